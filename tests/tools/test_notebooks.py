"""Notebooks and scripts are in step; the notebooks run from top to bottom; importing a script does nothing."""
import os
import shutil
import subprocess
import sys

import nbformat
import pytest
from nbclient import NotebookClient

from _utils.export_notebooks import SCRIPTS, export
from _utils.glue.tasks import FINETUNED_TASKS


@pytest.mark.parametrize("notebook, script", SCRIPTS.items())
def test_the_script_is_what_the_notebook_exports_to(repo, notebook, script):
    assert (repo / script).read_text() == export(repo / notebook), "change the notebook, then python -m _utils.export_notebooks"


FEW_ROWS = {name: {"rows": 64, "epochs": 1} for name in FINETUNED_TASKS}
SHORTER = {"Pretrain.ipynb": ["steps=12", "num_workers=2"], "Finetune_GLUE.ipynb": ["end=1", f"task_overrides={FEW_ROWS}"]}
MAKES = {"Pretrain.ipynb": "checkpoints/pretrain/quickstart_11081_100.0%.pth", "Finetune_GLUE.ipynb": "test_outputs/quickstart.zip"}


@pytest.mark.parametrize("notebook", SCRIPTS)
def test_the_notebook_runs_from_top_to_bottom(repo, notebook, tmp_path, fresh_checkpoint):
    """In quickstart size, with fewer steps or rows."""
    story = nbformat.read(repo / notebook, as_version=4)
    [command_line] = [cell for cell in story.cells if 'sys.argv = ["' in cell.source]
    more = "".join(f", {argument!r}" for argument in SHORTER[notebook])
    command_line.source = command_line.source.replace('"quickstart=True"', '"quickstart=True"' + more)
    # It works in a folder of its own, where finetuning finds a checkpoint.
    if notebook != "Pretrain.ipynb":
        (tmp_path / "checkpoints/pretrain").mkdir(parents=True)
        shutil.copy(fresh_checkpoint, tmp_path / MAKES["Pretrain.ipynb"])
    story.cells.insert(0, nbformat.v4.new_code_cell(f"import os, sys; sys.path.insert(0, {str(repo)!r}); os.chdir({str(tmp_path)!r})"))
    NotebookClient(story, timeout=600, kernel_name="python3").execute()
    assert (tmp_path / MAKES[notebook]).exists()


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


@pytest.mark.parametrize("given, spins", [({}, "1000"), ({"GOMP_SPINCOUNT": "7"}, "7"), ({"OMP_WAIT_POLICY": "passive"}, None)])
@pytest.mark.parametrize("script", SCRIPTS.values())
def test_waiting_threads_stop_spinning_soon_unless_set_otherwise(repo, script, given, spins):
    """OpenMP reads the setting when torch is imported, so it has to be there then."""
    code = f"""if True:
        import os, sys
        def hook(event, arguments):
            if event == "import" and arguments[0] == "torch":
                print(os.environ.get("GOMP_SPINCOUNT"))
                os._exit(0)
        sys.addaudithook(hook)
        sys.path.insert(0, {str(repo)!r})
        import {script.removesuffix('.py')}"""
    env = {key: value for key, value in os.environ.items() if not key.startswith(("OMP_", "GOMP_"))} | given
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, env=env)
    assert done.stdout.strip() == str(spins), done.stderr
