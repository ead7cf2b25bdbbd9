"""Export the notebooks to the scripts: `python -m _utils export_notebooks`."""
from pathlib import Path

import jupytext
import nbformat
from nbclient import NotebookClient

from _utils.errors import PlainError, as_plain_error
from _utils.runs.files import EXPLORING

SCRIPTS = {"Pretrain.ipynb": "pretrain.py", "Finetune_GLUE.ipynb": "finetune.py"}


def export(notebook_path):
    """The script of a notebook in jupytext's percent format, without the exploring cells."""
    with as_plain_error(f"Cannot read {notebook_path} ({{error}}). Start the command in the root folder of the repository."):
        notebook = jupytext.read(notebook_path)
    notebook.cells = [cell for cell in notebook.cells if EXPLORING not in cell.metadata.get("tags", [])]
    notebook.metadata = {"jupytext": {"notebook_metadata_filter": "-all", "cell_metadata_filter": "tags,-all"}}
    return jupytext.writes(notebook, fmt="py:percent")


def run(notebook_path):
    """Run a notebook and save its outputs, without times and with the last state of progress bars only."""
    notebook = nbformat.read(notebook_path, as_version=4)
    NotebookClient(notebook, coalesce_streams=True, record_timing=False, store_widget_state=False).execute()
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs = [output for output in cell.outputs
                            if "application/vnd.jupyter.widget-view+json" not in output.get("data", {})]
    nbformat.write(notebook, notebook_path)


def export_notebooks(
    *,
    check=False,    # write no script, and fail if one differs from its notebook
    execute=False,  # run the notebooks first and save their outputs
):
    """Export the notebooks to the scripts. Cells tagged active-ipynb, code and text, only explore and are left out of the scripts."""
    for notebook, script in SCRIPTS.items():
        if execute:
            run(notebook)
        text = export(notebook)
        if not check:
            Path(script).write_text(text, encoding="utf-8")
        elif text != Path(script).read_text(encoding="utf-8"):
            raise PlainError(f"{script} differs from {notebook}. Edit the notebook, then run python -m _utils export_notebooks.")
