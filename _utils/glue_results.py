"""Prints the tables of finished runs: `python -m _utils.glue_results [GROUP ...]`."""
import sys

from _utils.errors import PlainError, print_plain_errors
from _utils.glue.results import COMPARISON, report, report_checkpoints, scores_by_task
from _utils.glue.runs import SCORES, read_scores
from _utils.plots import plot_scores, save_plot


def main(groups):
    rows = read_scores()
    if not rows:
        raise PlainError(f"there is no finished run in {SCORES}: make some with python finetune.py.")
    known = list(dict.fromkeys(row["group"] for row in rows))
    for group in groups:
        if group not in known:
            raise PlainError(f"there is no group {group!r} in {SCORES}: there are {', '.join(known)}.")
    for group in groups or known:
        print(report(rows, group), end="\n\n")
    synthetic = {row["group"] for row in rows if row["synthetic"]}
    groups = [group for group in groups or known if group not in synthetic]
    if len(groups) > 1:
        print(report_checkpoints(rows, groups))
        save_plot(plot_scores({group: scores_by_task(rows, group) for group in groups}), COMPARISON)
        print(f"All runs of these groups side by side: {COMPARISON}")


if __name__ == "__main__":
    print_plain_errors()
    main(sys.argv[1:])
