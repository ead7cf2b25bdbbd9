"""The hash of the code: it changes with the code of the real scripts and notebooks, not with what users edit before each run."""
import re
import shutil
from pathlib import Path

import jupytext
import nbformat
import pytest

from _utils.commands.export_notebooks import SCRIPTS
from _utils.config import PRETRAIN_KEYS
from _utils.finetuning.config import FINETUNE_KEYS
from _utils.runs import files

KEYS = {"pretrain.py": PRETRAIN_KEYS, "finetune.py": FINETUNE_KEYS}
FIRST_CELL = re.compile(r"(?ms)^c = MyConfig\(\{$.*?^\}")
both_scripts = pytest.mark.parametrize("script", KEYS)


@pytest.fixture
def project(tmp_path, monkeypatch, repo):
    """A copy of both scripts and of a module; each script has a notebook with the same cells and one that only explores."""
    monkeypatch.setattr(files, "__file__", str(tmp_path / "_utils/runs/files.py"))
    (tmp_path / "_utils").mkdir()
    shutil.copy(repo / "_utils/optim.py", tmp_path / "_utils/optim.py")
    for notebook, script in SCRIPTS.items():
        shutil.copy(repo / script, tmp_path / script)
        content = jupytext.read(repo / script)
        content.cells.append(nbformat.v4.new_code_cell("print('explore')", metadata={"tags": [files.EXPLORING]}))
        nbformat.write(content, tmp_path / notebook)
    return tmp_path


def key(path):
    return files.code_key.__wrapped__(path)


def edit(path, pattern, replacement):
    """Replace all matches in a file, of which there has to be one."""
    text, n = re.subn(pattern, replacement, path.read_text())
    assert n
    path.write_text(text)


def edited_first_cell(text, value):
    """The text of a script with this value for every key in its first cell."""
    [cell] = FIRST_CELL.findall(text)
    edited, n = re.subn(r'(?m)^    "(\w+)": .*,$', rf'    "\1": {value},', cell)
    return text.replace(cell, edited), n


@both_scripts
@pytest.mark.parametrize("value", ["3", "'a})'", "{\n        'rte': {'lr': 2e-5}\n    }", "[2 *\n3]", "lambda path: None"])
def test_values_in_the_first_cell_do_not_count(project, script, value):
    path, before = project / script, key(script)
    text, n = edited_first_cell(path.read_text(), value)
    assert n == len(KEYS[script])  # the real first cell was found
    path.write_text(text)
    assert key(script) == before


@both_scripts
@pytest.mark.parametrize("old, new", [
    (r"c = MyConfig\(\{", "c = MyConfig( {"), (r"(?m)^\}(?=[,)])", "    }  # edited\n    "), (r"(?m)^    # .*\n", ""),
    (r"c = MyConfig\(\{", "# mine\nc = MyConfig({"), (r"c = MyConfig\(\{", "c = MyConfig(dict() | {")])
def test_the_form_of_the_first_cell_and_comments_do_not_count(project, script, old, new):
    before = key(script)
    edit(project / script, old, new)
    assert key(script) == before


@both_scripts
@pytest.mark.parametrize("old, new", [
    (r"return ", "return None or "), (r" \+ ", " - "), (r"1e-6", "1e-8"),
    (r"if __name__ == \"__main__\":", "if True:"), (r'"""', '""" '), (r"\Z", "x = 1\n"), (r"MyConfig\(", "YourConfig(")])
def test_code_counts(project, script, old, new):
    before = key(script)
    edit(project / script, old, new)
    assert key(script) != before


@pytest.mark.parametrize("notebook, script", SCRIPTS.items())
def test_a_notebook_has_the_key_of_its_script_and_is_not_changed_by_exploring(project, notebook, script):
    before = key(script)
    assert key(notebook) == before != key(next(other for other in SCRIPTS if other != notebook))
    content = nbformat.read(project / notebook, as_version=4)
    [first] = [cell for cell in content.cells if "c = MyConfig({" in cell.source]
    first.source = edited_first_cell(first.source, 0)[0]
    content.cells[-1].source = "print('explore more')"
    content.cells.append(nbformat.v4.new_markdown_cell("Results"))
    nbformat.write(content, project / notebook)
    assert key(notebook) == before
    content.cells.append(nbformat.v4.new_code_cell("%matplotlib inline"))  # not Python, and not marked as exploring
    nbformat.write(content, project / notebook)
    with_magic = key(notebook)
    first.source = edited_first_cell(first.source, 1)[0]
    nbformat.write(content, project / notebook)
    assert key(notebook) == with_magic != before
    assert key(script) == before  # the script does not run the notebook's code


def test_modules_count_and_files_may_be_missing(project):
    before = key("pretrain.py")
    edit(project / "_utils/optim.py", r"(?m)^import torch$", "import torch  # a comment")
    assert key("pretrain.py") == before
    edit(project / "_utils/optim.py", r"(?m)^import torch$|^import torch  # a comment$", "import torch as t")
    Path(project / "pretrain.py").unlink()
    assert len({before, key("pretrain.py"), key("finetune.py")}) == 3


def test_finished_runs_are_recognized_after_an_edit_of_the_first_cell(project):
    """As finetune.py compares them, in two processes."""
    keys = []
    for value in ("3", "5"):
        (project / "finetune.py").write_text(edited_first_cell((project / "finetune.py").read_text(), value)[0])
        files.code_key.cache_clear()
        keys.append(files.code_key(str(project / "finetune.py")))
    files.code_key.cache_clear()
    assert keys[0] == keys[1]
