"""Exports the notebooks to the scripts that people run: `python -m _utils.export_notebooks`.

`python -m _utils.export_notebooks --check` changes nothing and fails where a script is not what its notebook exports to.
Cells tagged active-ipynb explore: the script has them as comments.
"""
import sys
from pathlib import Path

import jupytext

from _utils.errors import PlainError, print_plain_errors

SCRIPTS = {"Pretrain.ipynb": "pretrain.py"}


def export(notebook_path):
    """The script that a notebook exports to, as text in jupytext's percent format."""
    notebook = jupytext.read(notebook_path)
    notebook.metadata = {"jupytext": {"notebook_metadata_filter": "-all", "cell_metadata_filter": "tags,-all"}}
    return jupytext.writes(notebook, fmt="py:percent")


def main(check):
    for notebook, script in SCRIPTS.items():
        text = export(notebook)
        if not check:
            Path(script).write_text(text, encoding="utf-8")
        elif text != Path(script).read_text(encoding="utf-8"):
            raise PlainError(f"{script} is not what {notebook} exports to: change the notebook, then python -m _utils.export_notebooks")


if __name__ == "__main__":
    print_plain_errors()
    main(check="--check" in sys.argv[1:])
