"""Export the notebooks to the scripts: `python -m _utils export_notebooks`."""
import re
from pathlib import Path

import jupytext
import nbformat
from nbclient import NotebookClient

from _utils.errors import UserError, as_user_error
from _utils.files import content_key, write_text_atomically

SCRIPTS = {"Pretrain.ipynb": "pretrain.py", "Finetune_GLUE.ipynb": "finetune.py"}
EXPLORING = "active-ipynb"  # tag of the cells that are left out of the script
REPLACED = Path(".exported")  # scripts that exports have replaced, each once


def export(notebook_path):
    """The script of a notebook in jupytext's percent format, without the exploring cells."""
    with as_user_error(f"Cannot read {notebook_path} ({{error}}). Start the command in the root folder of the "
                       f"repository."):
        notebook = jupytext.read(notebook_path, fmt="ipynb")
    notebook.cells = [cell for cell in notebook.cells if EXPLORING not in cell.metadata.get("tags", [])]
    notebook.metadata = {"jupytext": {"notebook_metadata_filter": "-all", "cell_metadata_filter": "tags,-all"}}
    return jupytext.writes(notebook, fmt="py:percent")


def is_shown(output):
    """Whether an output of a cell is one that a reader sees: not a widget, nor the blanks that remain of a bar."""
    if output.output_type == "stream":
        return bool(re.sub(r"[^\n]*\r", "", output.text).strip())
    return "application/vnd.jupyter.widget-view+json" not in output.get("data", {})


def run(notebook_path):
    """Run a notebook and save its outputs, without times and counts, and with the last state of progress bars only."""
    notebook = nbformat.read(notebook_path, as_version=4)
    NotebookClient(notebook, coalesce_streams=True, record_timing=False, store_widget_state=False).execute()
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs = list(filter(is_shown, cell.outputs))
            for counted in (cell, *(output for output in cell.outputs if "execution_count" in output)):
                counted.execution_count = None
    nbformat.write(notebook, notebook_path)


def keep(script, text):
    """Keep the text of a script that is replaced in the folder REPLACED, because somebody may have edited it."""
    kept = REPLACED / f"{Path(script).stem}_{content_key(text)[:8]}.py"
    write_text_atomically(kept, text)
    print(f"{script} was replaced; the script before is now {kept}.")


def export_notebooks(*, check=False, execute=False):
    """Export the notebooks to the scripts. Arguments as in `_utils/__main__.py`."""
    texts = {notebook: export(notebook) for notebook in SCRIPTS}  # running a notebook does not change its code
    for notebook in SCRIPTS if execute else ():
        run(notebook)
    for notebook, script in SCRIPTS.items():
        now = Path(script).read_text(encoding="utf-8") if Path(script).is_file() else None
        if now == texts[notebook]:
            continue
        if check:
            raise UserError(f"{script} differs from {notebook}. Edit the notebook, then run python -m _utils "
                            f"export_notebooks.")
        if now is not None:
            keep(script, now)
        write_text_atomically(script, texts[notebook])
