"""Export the notebooks to the scripts: `python -m _utils export_notebooks`."""
import difflib
import re
import shutil
import subprocess
from pathlib import Path

import jupytext
import nbformat
from nbclient import NotebookClient

from _utils.errors import UserError, as_user_error
from _utils.files import write_text_atomically

SCRIPTS = {"Pretrain.ipynb": "pretrain.py", "Finetune_GLUE.ipynb": "finetune.py"}
EXPLORING = "active-ipynb"  # tag of the cells that are left out of the script
EXPORTED = Path(".exported")  # copies of the scripts, by which the next export finds out whether somebody edited them


def export(notebook_path):
    """The script of a notebook in jupytext's percent format, without the exploring cells."""
    with as_user_error(f"Cannot read {notebook_path} ({{error}}). Start the command in the root folder of the "
                       f"repository."):
        return as_script(Path(notebook_path).read_text(encoding="utf-8"))


def as_script(text):
    """`export` of the text of a notebook file."""
    notebook = jupytext.reads(text, fmt="ipynb")
    notebook.cells = [cell for cell in notebook.cells if EXPLORING not in cell.metadata.get("tags", [])]
    notebook.metadata = {"jupytext": {"notebook_metadata_filter": "-all", "cell_metadata_filter": "tags,-all"}}
    return jupytext.writes(notebook, fmt="py:percent")


def is_shown(output):
    """Whether an output of a cell is one that a reader sees: not a widget, nor the blanks that remain of a bar."""
    if output.output_type == "stream":
        return bool(re.sub(r"[^\n]*\r", "", output.text).strip())
    return "application/vnd.jupyter.widget-view+json" not in output.get("data", {})


def run(notebook_path):
    """Run a notebook and save its outputs, without times and with the last state of progress bars only."""
    notebook = nbformat.read(notebook_path, as_version=4)
    NotebookClient(notebook, coalesce_streams=True, record_timing=False, store_widget_state=False).execute()
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs = list(filter(is_shown, cell.outputs))
    nbformat.write(notebook, notebook_path)


def exported_before(notebook, script):
    """Texts that an export has written: the copy that the last one kept, and the script of the committed notebook."""
    texts, copy = [], EXPORTED / script
    if copy.is_file():
        texts.append(copy.read_text(encoding="utf-8"))
    if shutil.which("git"):
        committed = subprocess.run(["git", "show", f"HEAD:./{notebook}"], capture_output=True, encoding="utf-8")
        if committed.returncode == 0:
            texts.append(as_script(committed.stdout))
    return texts


def changed_lines(before, now):
    """The lines that differ between two texts, each with - or + before it."""
    # without file names
    lines = list(difflib.unified_diff(before.splitlines(), now.splitlines(), n=0, lineterm=""))[2:]
    return [f"{line[0]} {line[1:].strip()}" for line in lines if not line.startswith("@@")]


def check_unedited(notebook, script, now, text):
    """UserError if writing `text` would undo edits of a script, whose text is `now`: users may edit it directly."""
    before = exported_before(notebook, script)
    if now in (None, text, *before):
        return
    edits = min((changed_lines(known, now) for known in before or [text]), key=len)
    shown = "; ".join(edits[:4]) + (f"; ... ({len(edits)} lines)" if len(edits) > 4 else "")
    raise UserError(f"{script} was edited, and the export of {notebook} would undo it ({shown}). Make the same change "
                    "in the notebook, or pass --overwrite to discard it. No script was written.")


def export_notebooks(
    *,
    check=False,      # write no script, and fail if one differs from its notebook
    execute=False,    # run the notebooks first and save their outputs
    overwrite=False,  # discard edits of the scripts that the notebooks lack
):
    """Export the notebooks to the scripts. Cells tagged active-ipynb, code and text, only explore and are left out of
    the scripts.

    A script that was edited since it was exported is not overwritten.
    """
    texts = {notebook: export(notebook) for notebook in SCRIPTS}  # running a notebook does not change its code
    for notebook, script in SCRIPTS.items():
        now = Path(script).read_text(encoding="utf-8") if Path(script).is_file() else None
        if check and now != texts[notebook]:
            raise UserError(f"{script} differs from {notebook}. Edit the notebook, then run python -m _utils "
                            f"export_notebooks.")
        if not overwrite:
            check_unedited(notebook, script, now, texts[notebook])
    for notebook in SCRIPTS if execute else ():
        run(notebook)
    for notebook, script in () if check else SCRIPTS.items():
        for path in (script, EXPORTED / script):
            write_text_atomically(path, texts[notebook])
