"""The hash of the code: it changes with the code of the real scripts and notebooks, not with what users edit before
each run.
"""
import re
import shutil

import jupytext
import nbformat
import pytest

from _utils.commands.export_notebooks import SCRIPTS
from _utils.runs import files

FIRST_CELL = re.compile(r"(?ms)^c = MyConfig\(\{$.*?^\}")
both_scripts = pytest.mark.parametrize("script", SCRIPTS.values())


@pytest.fixture
def project(tmp_path, monkeypatch, repo):
    """A copy of both scripts and of a module; each script has a notebook with the same cells and one that only
    explores.
    """
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


@both_scripts
@pytest.mark.parametrize("value", ["3", "'a})'", "{\n        'rte': {'lr': 2e-5}\n    }", "lambda path: None"])
def test_values_in_the_first_cell_do_not_count(project, script, value):
    path, before = project / script, key(script)
    [cell] = FIRST_CELL.findall(path.read_text())
    edited, n = re.subn(r'(?m)^    "(\w+)": .*,.*$', rf'    "\1": {value},', cell)
    assert n > 10  # the real first cell was found
    path.write_text(path.read_text().replace(cell, edited))
    assert key(script) == before


@both_scripts
@pytest.mark.parametrize("old, new", [
    (r"return ", "return None or "), (r"1e-6", "1e-8"), (r"\Z", "x = 1\n"), (r"MyConfig\(", "YourConfig(")])
def test_code_counts(project, script, old, new):
    before = key(script)
    edit(project / script, old, new)
    assert key(script) != before


@pytest.mark.parametrize("notebook, script", SCRIPTS.items())
def test_a_notebook_has_the_key_of_its_script_and_is_not_changed_by_exploring(project, notebook, script):
    before = key(script)
    assert key(notebook) == before
    content = nbformat.read(project / notebook, as_version=4)
    content.cells[-1].source = "print('explore more')"
    content.cells.append(nbformat.v4.new_markdown_cell("Results"))
    nbformat.write(content, project / notebook)
    assert key(notebook) == before


def test_modules_count_and_files_may_be_missing(project):
    before, module = key("pretrain.py"), project / "_utils/optim.py"
    edit(module, r"\Z", "# a comment")
    assert key("pretrain.py") == before
    edit(module, r"(?m)^import torch$", "import torch as t")
    (project / "pretrain.py").unlink()
    assert len({before, key("pretrain.py"), key("finetune.py")}) == 3
