"""The hash of the code: it changes with the code of the real scripts, not with what users edit before each run."""
import json
import re
import shutil

import pytest

from _utils import files
from _utils.commands.export_notebooks import SCRIPTS

FIRST_CELL = re.compile(r"(?ms)^c = MyConfig\(\{$.*?^\}")
both_scripts = pytest.mark.parametrize("script", SCRIPTS.values())
both_notebooks = pytest.mark.parametrize("notebook", SCRIPTS)


@pytest.fixture
def project(tmp_path, monkeypatch, repo):
    """A copy of both scripts, both notebooks and a module."""
    monkeypatch.setattr(files, "__file__", str(tmp_path / "_utils/files.py"))
    (tmp_path / "_utils").mkdir()
    for name in ("_utils/optim.py", *SCRIPTS, *SCRIPTS.values()):
        shutil.copy(repo / name, tmp_path / name)
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


@both_notebooks
def test_of_a_notebook_only_code_counts(project, notebook):
    path, before = project / notebook, key(notebook)
    content = json.loads(path.read_text())
    first = next(cell for cell in content["cells"] if any("MyConfig({" in line for line in cell["source"]))
    first["source"] = [re.sub('^    "seed.*:.*', '    "seed": 7,', line) for line in first["source"]]
    for cell in content["cells"]:
        cell["outputs" if cell["cell_type"] == "code" else "source"] = []
    path.write_text(json.dumps(content))
    assert key(notebook) == before
    first["source"].append("\nx = 1")
    path.write_text(json.dumps(content))
    assert key(notebook) != before


def test_modules_count_and_files_may_be_missing(project):
    before, module = key("pretrain.py"), project / "_utils/optim.py"
    edit(module, r"(?m)^import torch$", "import torch as t")
    (project / "pretrain.py").unlink()
    (project / "Pretrain.ipynb").unlink()
    assert len({before, key("pretrain.py"), key("finetune.py")}) == 3
    assert key("pretrain.py") == key("Pretrain.ipynb")
