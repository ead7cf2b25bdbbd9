"""The hash of the code: it changes with the code of the real scripts, not with what users edit before each run."""
import re
import shutil

import pytest

from _utils import files
from _utils.commands.export_notebooks import SCRIPTS

FIRST_CELL = re.compile(r"(?ms)^c = MyConfig\(\{$.*?^\}")
both_scripts = pytest.mark.parametrize("script", SCRIPTS.values())


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
