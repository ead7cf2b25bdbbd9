"""The commands `glue_results`, tables of finished runs, and `glue_submission`."""
from pathlib import Path

from _utils.errors import UserError
from _utils.finetuning.results import (
    COMPARISON,
    report,
    report_checkpoints,
    scores_by_task,
    without_synthetic,
)
from _utils.finetuning.runs import SCORES, Runs
from _utils.plots import plot_scores, save_plot
from _utils.tasks.submission import OFFICIAL_ROWS, check_submission, make_zip, read_submission, rows_of


def glue_results(groups=()):
    """Print the tables of finished runs and compare groups; an empty list means all of them."""
    runs = Runs()
    known = list(dict.fromkeys(record.group for record in runs))
    if not runs:
        raise UserError(f"No finished run in {SCORES}. Start some with python finetune.py.")
    if unknown := sorted({*groups} - {*known}):
        raise UserError(f"Group not found in {SCORES}: {unknown[0]!r}. Choose from {', '.join(known)}.")
    shown = list(dict.fromkeys(groups)) or known
    for group in shown:
        print(report(runs.of(group)), end="\n\n")
    runs = without_synthetic(runs)
    compared = [group for group in shown if runs.of(group)]
    if len(compared) > 1:
        try:
            print(report_checkpoints(runs, compared))
        except UserError as error:
            if groups:
                raise
            print(f"No comparison: {error}")
        save_plot(plot_scores({group: scores_by_task(runs.of(group)) for group in compared}), COMPARISON)
        print(f"Plot of all runs of these groups: {COMPARISON}")


def glue_submission(zip_or_folder, glue_dir=None):
    """Check a submission for the GLUE server, and zip a folder of one. Arguments as in `_utils/__main__.py`."""
    if glue_dir and not Path(glue_dir).is_dir():
        raise UserError(f"{glue_dir!r} is not a folder of tables. Leave it out for the official numbers of rows.")
    path, rows = Path(zip_or_folder), rows_of(glue_dir) if glue_dir else OFFICIAL_ROWS
    if path.is_dir():
        path = make_zip(path.resolve(), rows)  # "." has no name for the zip
    content = read_submission(path)
    check_submission(path, content, rows)
    for name in sorted(content):
        print(f"{name:12} {len(content[name].splitlines()):7,} lines")
    is_official = rows == OFFICIAL_ROWS
    print(f"{path} is {'a valid submission' if is_official else 'valid for tables other than the official ones'}")
