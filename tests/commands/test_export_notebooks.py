"""The export of the real notebooks keeps scripts that it replaces, which users are free to edit."""
import json
from pathlib import Path

import pytest

from _utils.__main__ import main
from _utils.commands.export_notebooks import SCRIPTS, export
from _utils.errors import UserError

OLD, NEW = "c = MyConfig({\n", "c = MyConfig({  # edited\n"  # a line of both scripts


@pytest.fixture
def project(empty_folder, repo):
    """A working directory with the notebooks and no scripts."""
    for notebook in SCRIPTS:
        Path(notebook).write_text((repo / notebook).read_text())


def edit_notebook(notebook, old=OLD, new=NEW):
    content = Path(notebook).read_text()
    old, new = (json.dumps(line)[1:-1] for line in (old, new))
    assert content.count(old) == 1
    Path(notebook).write_text(content.replace(old, new))


def edit_script(script):
    Path(script).write_text(Path(script).read_text().replace(OLD, NEW))


def export_all(*flags):
    main(["export_notebooks", *flags])


def contents():
    return {script: Path(script).read_text() for script in SCRIPTS.values()}


def test_edits_of_a_notebook_are_exported_again_and_again(project):
    export_all()
    for old, new in ((OLD, NEW), (NEW, OLD)):
        edit_notebook("Finetune_GLUE.ipynb", old, new)
        export_all()
        assert contents() == {script: export(notebook) for notebook, script in SCRIPTS.items()}
        assert new in Path("finetune.py").read_text()
    export_all("--check")


@pytest.mark.parametrize("script", SCRIPTS.values())
def test_an_edited_script_is_replaced_and_kept_in_a_file_that_is_named(project, script, capsys):
    export_all()
    edit_script(script)
    edited = Path(script).read_text()
    capsys.readouterr()
    export_all()
    [kept] = (word.rstrip(".") for word in capsys.readouterr().out.split() if ".exported" in word)
    for notebook in SCRIPTS:
        edit_notebook(notebook, "import sys\n", "import sys  # of the notebook\n")
    export_all()
    assert Path(kept).read_text() == edited and NEW not in Path(script).read_text()


def test_check_writes_nothing(project):
    export_all()
    edit_script("finetune.py")
    before = contents()
    with pytest.raises(UserError, match="finetune.py"):
        export_all("--check")
    assert contents() == before
