"""Exports the notebooks to the scripts that people run: `python -m _utils.export_notebooks`.

With --check it changes nothing and fails where a script is not what its notebook exports to. With --execute it first runs the
notebooks from top to bottom and keeps their outputs, as they are committed.
Cells tagged active-ipynb explore: the scripts have them as comments.
"""
import sys
from pathlib import Path

import jupytext
import nbformat
from nbclient import NotebookClient

from _utils.errors import PlainError, print_plain_errors

SCRIPTS = {"Pretrain.ipynb": "pretrain.py", "Finetune_GLUE.ipynb": "finetune.py"}


def export(notebook_path):
    """The script that a notebook exports to, as text in jupytext's percent format."""
    notebook = jupytext.read(notebook_path)
    notebook.metadata = {"jupytext": {"notebook_metadata_filter": "-all", "cell_metadata_filter": "tags,-all"}}
    return jupytext.writes(notebook, fmt="py:percent")


def execute(notebook_path):
    """Run a notebook in place. Its outputs stay, without times and with a progress bar's last state only."""
    notebook = nbformat.read(notebook_path, as_version=4)
    NotebookClient(notebook, timeout=None, coalesce_streams=True, record_timing=False).execute()
    nbformat.write(without_widgets(notebook), notebook_path)


def without_widgets(notebook):
    """The notebook without progress bars that only a running kernel could show."""
    notebook.metadata.pop("widgets", None)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs = [output for output in cell.outputs
                            if "application/vnd.jupyter.widget-view+json" not in output.get("data", {})]
    return notebook


def main(arguments):
    if unknown := set(arguments) - {"--check", "--execute"}:
        raise PlainError(f"{unknown.pop()!r} is no option of export_notebooks: it takes --check and --execute.")
    check, run = "--check" in arguments, "--execute" in arguments
    for notebook, script in SCRIPTS.items():
        if not Path(notebook).is_file():
            raise PlainError(f"there is no {notebook} in this folder: start in the repository's.")
        if run:
            execute(notebook)
        text = export(notebook)
        if not check:
            Path(script).write_text(text, encoding="utf-8")
        elif text != Path(script).read_text(encoding="utf-8"):
            raise PlainError(f"{script} is not what {notebook} exports to: change the notebook, then python -m _utils.export_notebooks")


if __name__ == "__main__":
    print_plain_errors()
    main(sys.argv[1:])
