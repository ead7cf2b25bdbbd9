"""Notebooks and scripts are in step; the notebooks run from top to bottom; importing a script does nothing."""
import subprocess
import sys

import nbformat
import pytest
from nbclient import NotebookClient

from _utils.export_notebooks import SCRIPTS, export


@pytest.mark.parametrize("notebook, script", SCRIPTS.items())
def test_the_script_is_what_the_notebook_exports_to(repo, notebook, script):
    assert (repo / script).read_text() == export(repo / notebook), "change the notebook, then python -m _utils.export_notebooks"


@pytest.mark.parametrize("notebook", SCRIPTS)
def test_the_notebook_runs_from_top_to_bottom(repo, notebook, tmp_path):
    """In quickstart size, with fewer steps."""
    story = nbformat.read(repo / notebook, as_version=4)
    [command_line] = [cell for cell in story.cells if 'sys.argv = ["' in cell.source]
    command_line.source = command_line.source.replace('"quickstart=True"', '"quickstart=True", "steps=12", "num_workers=2"')
    # It works in a folder of its own; only the prepared data are shared between the tests.
    story.cells.insert(0, nbformat.v4.new_code_cell(f"import os, sys; sys.path.insert(0, {str(repo)!r}); os.chdir({str(tmp_path)!r})"))
    NotebookClient(story, timeout=600, kernel_name="python3").execute()
    assert list((tmp_path / "checkpoints/pretrain").glob("quickstart_*_100.0%.pth"))


@pytest.mark.parametrize("notebook", SCRIPTS)
def test_the_notebook_is_committed_with_the_outputs_of_a_whole_run(repo, notebook):
    story = nbformat.read(repo / notebook, as_version=4)
    assert "widgets" not in story.metadata
    run = [cell for cell in story.cells if cell.cell_type == "code" and cell.outputs]
    assert len(run) > 10 and not any(output.output_type == "error" for cell in run for output in cell.outputs)


@pytest.mark.parametrize("script", SCRIPTS.values())
def test_importing_a_script_does_nothing(repo, script, tmp_path):
    code = f"import sys; sys.path.insert(0, {str(repo)!r}); import {script.removesuffix('.py')}"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and not done.stdout and not done.stderr, done.stderr
    assert not list(tmp_path.iterdir())
