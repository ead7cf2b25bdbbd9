"""Scripts equal their exported notebooks, notebooks run from top to bottom, and importing a script has no side effects.
"""
import re
import shutil
import subprocess
import sys

import nbformat
import pytest
from nbclient import NotebookClient

from _utils.commands.export_notebooks import EXPLORING, SCRIPTS, export
from _utils.tasks.glue import TASKS


@pytest.mark.parametrize("notebook, script", SCRIPTS.items())
def test_script_equals_exported_notebook(repo, notebook, script):
    assert (repo / script).read_text() == export(repo / notebook), (
        "edit the notebook, then run python -m _utils export_notebooks"
    )


FEW_ROWS = {name: {"rows": 64, "epochs": 1} for name in TASKS}
# The seed is one whose fresh networks have losses far from those of equal probabilities.
OVERRIDES = {"Pretrain.ipynb": ["seed=7", "steps=4", "num_workers=0", "milestones=100"],
             "Finetune_GLUE.ipynb": [f"task_overrides={FEW_ROWS}"]}
CHECKPOINT = "checkpoints/pretrain/quickstart_11081_100.0%.pth"
RESULTS = {
    "Pretrain.ipynb": ["checkpoints/pretrain/quickstart_7_100.0%.pth",
                       "checkpoints/pretrain/quickstart_7/damaged_text.json"],
    "Finetune_GLUE.ipynb": ["test_outputs/quickstart.zip", "checkpoints/quickstart.png"],
}


# It runs in a temporary folder, with a part of the quickstart's text and with empty files for plots.
PREPARE = """import gc, lzma, os, sys
from pathlib import Path
sys.path[:0] = [{repo!r}, {repo!r} + "/tests/support"]
os.chdir({folder!r})
from _utils.names import EMBEDDED
for name, path in EMBEDDED.items():
    EMBEDDED[name] = Path(name + ".txt").absolute()
    EMBEDDED[name].write_text(lzma.open(path, "rt").read(200_000))
from matplotlib.figure import Figure
from script_server import save_empty_file
Figure.savefig = save_empty_file
from _utils.finetuning import quickstart
quickstart.ROWS, quickstart.SETTINGS = {{"train": 32, "dev": 16}}, {{"lr": 1e-3, "epochs": 1}}
gc.freeze()  # the imported libraries, among which finetuning would search for garbage after each run
"""


@pytest.mark.parametrize("notebook", SCRIPTS)
def test_notebook_runs_from_top_to_bottom(repo, notebook, tmp_path, fresh_checkpoint):
    """As a quickstart, with fewer steps or rows."""
    content = nbformat.read(repo / notebook, as_version=4)
    [command_line] = [cell for cell in content.cells if 'sys.argv = ["' in cell.source]
    arguments = "".join(f", {argument!r}" for argument in OVERRIDES[notebook])
    command_line.source = command_line.source.replace(', "end=2"', "").replace("True\"]", f"True\"{arguments}]")
    # The folder needs the repository with the trained model and, for finetuning, a checkpoint.
    for name in ("_utils", "benchmarks"):
        (tmp_path / name).symlink_to(repo / name)
    if notebook != "Pretrain.ipynb":
        (tmp_path / "checkpoints/pretrain").mkdir(parents=True)
        shutil.copy(fresh_checkpoint, tmp_path / CHECKPOINT)
    content.cells.insert(0, nbformat.v4.new_code_cell(PREPARE.format(repo=str(repo), folder=str(tmp_path))))
    NotebookClient(content, timeout=600, kernel_name="python3").execute()
    assert all((tmp_path / result).exists() for result in RESULTS[notebook])


def run_cells(folder, *sources):
    """The outputs of cells that run in a folder, a list for each."""
    content = nbformat.v4.new_notebook(cells=list(map(nbformat.v4.new_code_cell, sources)))
    resources = {"metadata": {"path": str(folder)}}
    NotebookClient(content, timeout=100, kernel_name="python3", allow_errors=True, resources=resources).execute()
    return [cell.outputs for cell in content.cells]


@pytest.mark.parametrize("notebook", SCRIPTS)
def test_a_notebook_that_is_opened_alone_says_how_to_get_the_rest(repo, tmp_path, notebook):
    """In Colab, or if the kernel starts in another folder, although the package is installed there."""
    cells = nbformat.read(repo / notebook, as_version=4).cells
    first = next(cell.source for cell in cells if cell.cell_type == "code")
    [_, [error]] = run_cells(tmp_path, f"import sys; sys.path.insert(0, {str(repo)!r})", first)
    assert "git clone" in error.evalue and "pip install" in error.evalue
    assert run_cells(repo, first) == [[]]


def test_what_users_can_fix_is_one_line_below_a_cell(repo):
    """Also an interrupt. Other errors keep their traceback."""
    start = "from _utils.errors import UserError, print_user_errors\nprint_user_errors()"
    interrupt = "import os, signal, time\nos.kill(os.getpid(), signal.SIGINT)\ntime.sleep(9)"
    _, [mistake], [stopped], [bug] = run_cells(repo, start, "raise UserError('a mistake')", interrupt, "1 / 0")
    assert mistake.traceback == ["error: a mistake"]
    assert len(stopped.traceback) == 1 and stopped.traceback[0].startswith("Stopped.")
    assert bug.ename == "ZeroDivisionError" and len(bug.traceback) > 1


@pytest.mark.parametrize("notebook", SCRIPTS)
def test_exploring_cells_are_in_the_section_that_they_name(repo, notebook):
    """A merge may move them, which the exported script does not show."""
    heading = None
    for cell in nbformat.read(repo / notebook, as_version=4).cells:
        if cell.cell_type == "markdown":
            heading = ([heading] + re.findall(r"^#+ (.*)$", cell.source, re.MULTILINE))[-1]
        elif EXPLORING in cell.metadata.get("tags", []):
            assert cell.metadata.get("section") == heading, cell.source


@pytest.mark.parametrize("notebook", SCRIPTS)
def test_notebook_is_committed_with_outputs(repo, notebook):
    """Without errors, widgets, and bars that were overwritten."""
    content = nbformat.read(repo / notebook, as_version=4)
    assert "widgets" not in content.metadata
    with_outputs = [cell for cell in content.cells if cell.cell_type == "code" and cell.outputs]
    assert len(with_outputs) > 10
    for output in (output for cell in with_outputs for output in cell.outputs):
        assert output.output_type != "error"
        data = output.get("data", {})
        assert not any("widget" in kind for kind in data)
        text = output.get("text", "") + data.get("text/plain", "")
        assert "\r" not in text and "Loading weights" not in text


def test_importing_the_scripts_has_no_side_effects(repo, tmp_path):
    code = f"import sys; sys.path.insert(0, {str(repo)!r}); import pretrain, finetune"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and not done.stdout and not done.stderr, done.stderr
    assert not list(tmp_path.iterdir())
