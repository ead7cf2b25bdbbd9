"""What a score means: the baseline of a constant prediction, and a notice about models that predict one."""
import numpy as np

from _utils.glue.tasks import compute_metrics


def evaluation(task, outputs, targets, lengths=None):
    """What a run stores about a dev or test set: {"scores": {metric: value}, "baselines": {metric: value}, "notices": text or None}.

    Arguments as for `compute_metrics`.
    """
    outputs, targets = np.asarray(outputs), np.asarray(targets)
    return {"scores": compute_metrics(task, outputs, targets, lengths),
            "baselines": compute_metrics(task, constant_outputs(task, targets), targets, lengths),
            "notices": notice(task, outputs, targets)}


def with_evaluations(row, found):
    """A row of the table of runs with {split: `evaluation`}, in place of those of a test file."""
    for kind in ("scores", "baselines", "notices"):
        dev = {split: value for split, value in row.get(kind, {}).items() if split != "test"}
        row = row | {kind: dev | {split: values[kind] for split, values in found.items()}}
    return row


def constant_outputs(task, targets):
    """The best constant prediction for all rows: the most frequent label of the set, or its mean score."""
    if task.is_regression:
        return np.full(len(targets), targets.mean())
    return np.tile(np.bincount(targets, minlength=task.n_outputs), (len(targets), 1))


def notice(task, outputs, targets):
    """A warning if a model predicts one label for all rows, or scores that span less than a tenth of the labels' range; else None."""
    if task.is_regression:
        (low, high), (lowest, highest) = ((values.min(), values.max()) for values in (outputs, targets))
        return None if high - low >= (highest - lowest) / 10 else (
            f"all predictions are between {low:.4g} and {high:.4g}, while the labels are between {lowest:.4g} and {highest:.4g}")
    found = np.unique(outputs.argmax(-1))
    return f"the only label that it predicts is {task.labels[found[0]]!r}" if len(found) == 1 else None
