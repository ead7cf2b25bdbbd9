"""Prints the tables of finished runs, and compares groups: `python -m _utils glue_results [GROUP ...]`. Without names: all groups."""

from _utils.errors import PlainError
from _utils.glue.results import COMPARISON, report, report_checkpoints, scores_by_task, synthetic_titles, without_synthetic
from _utils.glue.runs import SCORES, Runs
from _utils.plots import plot_scores, save_plot


def main(groups):
    if {"-h", "--help"} & set(groups):
        print(__doc__)
        return
    runs = Runs()
    if not runs:
        raise PlainError(f"No finished run in {SCORES}. Start some with python finetune.py.")
    known = list(dict.fromkeys(row["group"] for row in runs))
    for group in groups:
        if group not in known:
            raise PlainError(f"Group not found in {SCORES}: {group!r}. Choose from {', '.join(known)}.")
    are_chosen, groups = bool(groups), groups or known
    for group in groups:
        print(report(runs.of(group)), end="\n\n")
    for group in groups:
        if are_chosen and (synthetic := synthetic_titles(runs.of(group))):
            print(f"Not compared: {', '.join(synthetic)} of {group}, on synthetic tables")
    runs = without_synthetic(runs)
    groups = [group for group in groups if runs.of(group)]
    if len(groups) > 1:
        try:
            print(report_checkpoints(runs, groups))
        except PlainError as error:  # all groups need not be comparable
            if are_chosen:
                raise
            print(f"No comparison of all groups: {error}")
        save_plot(plot_scores({group: scores_by_task(runs.of(group)) for group in groups}), COMPARISON)
        print(f"Plot of all runs of these groups: {COMPARISON}")
