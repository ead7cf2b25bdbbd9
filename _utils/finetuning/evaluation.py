"""What a score means: the baseline of a constant prediction, scores by class, and a notice about models that predict one."""
import copy

import numpy as np
from fastai.callback.core import Callback
from sklearn.metrics import confusion_matrix, precision_recall_fscore_support

from _utils.tasks.answers import Answers, score_answers
from _utils.tasks.glue import compute_metrics, decide, predictions_of, tags_of


def evaluation(task, outputs, targets, lengths=None):
    """What a run stores about a dev or test set.

    {"scores": {metric: value}, "baselines": {metric: value}, "notices": text or None, "classes": {label: [precision, recall, F1, rows]},
    "confusion": rows of each label (lines) by prediction (columns), of classification}. Arguments as for `compute_metrics`.
    """
    if task.questions:
        return _evaluation_of_answers(outputs, targets, task)
    outputs, targets = np.asarray(outputs), np.asarray(targets)
    return {"scores": compute_metrics(task, outputs, targets, lengths),
            "baselines": compute_metrics(task, constant_outputs(task, targets), targets, lengths),
            "notices": notice(task, outputs, targets), "classes": classes(task, outputs, targets, lengths),
            "confusion": confusion_matrix(targets, outputs.argmax(-1), labels=range(task.n_outputs)).tolist()
            if task.kind == "classification" else []}


def _evaluation_of_answers(found, answers, task):
    """`evaluation` of Answers to questions; the baseline declares all of them unanswerable."""
    scores, text = score_answers(found, answers, task.questions), None
    baseline = score_answers([Answers({"": 1.}, np.inf)] * len(answers), answers, task.questions)
    if task.questions.has_unanswerable and scores["best_f1"] - scores["f1"] > 1e-6:
        text = f"with na_threshold={scores['best_f1_threshold']:.4g}, F1 on this set would be {100 * scores['best_f1']:.2f}"
    return {"scores": {metric: scores[metric] for metric in task.metrics}, "notices": text, "classes": {}, "confusion": [],
            "baselines": {metric: baseline[metric] for metric in task.metrics}}


def classes(task, outputs, targets, lengths):
    """{label: [precision, recall, F1, rows]}; of tags that mark entities, {type: ...} of whole entities; {} for regression."""
    if task.is_regression:
        return {}
    predictions = decide(task, outputs)
    if "entity_f1" in task.metrics:
        from seqeval.metrics import classification_report  # here, because only tagging needs it
        tags = tags_of(task, lengths, targets, predictions)
        return {name: list(map(float, values.values())) for name, values in
                classification_report(*tags, output_dict=True, zero_division=0).items() if not name.endswith(" avg")}
    columns = precision_recall_fscore_support(targets, predictions, labels=range(task.n_outputs), zero_division=0)
    return dict(zip(task.labels, np.transpose(columns).tolist()))


def with_evaluations(row, found):
    """A row of the table of runs with {split: `evaluation`}, in place of those of a test file."""
    for kind in "scores baselines notices classes confusion".split():
        dev = {split: value for split, value in row.get(kind, {}).items() if split != "test"}
        row = row | {kind: dev | {split: values[kind] for split, values in found.items()}}
    return row


def constant_outputs(task, targets):
    """The best constant prediction for all rows: the most frequent label of the set, its mean score, or the labels of half its rows."""
    if task.is_regression:
        return np.full(len(targets), targets.mean())
    if task.is_multilabel:
        shares = targets.mean(0)
        return np.tile(shares >= min(.5, shares.max()), (len(targets), 1)).astype(float)
    return np.tile(np.bincount(targets, minlength=task.n_outputs), (len(targets), 1))


def notice(task, outputs, targets):
    """A warning if a model predicts one label for all rows, or scores that span less than a tenth of the labels' range; else None."""
    if task.is_regression:
        (low, high), (lowest, highest) = ((values.min(), values.max()) for values in (outputs, targets))
        return None if high - low >= (highest - lowest) / 10 else (
            f"all predictions are between {low:.4g} and {high:.4g}, while the labels are between {lowest:.4g} and {highest:.4g}")
    [first], _ = predictions_of(task, outputs[:1])
    return f"it predicts {first!r} for all rows" if len(np.unique(decide(task, outputs), axis=0)) == 1 else None


class KeepBest(Callback):
    """After each epoch, remembers the weights if `score(learner)` is the best so far, and restores the best ones at the end.

    An undefined score (NaN) is worse than any other.   best_epoch: its number, from 1.
    """
    order = 60

    def __init__(self, score):
        self.score, self.best = score, -np.inf

    def after_epoch(self):
        score = np.nan_to_num(self.score(self.learn), nan=-np.inf)
        if score > self.best or self.learn.epoch == 0:
            self.best, self.best_epoch, self.weights = score, self.learn.epoch + 1, copy.deepcopy(self.learn.model.state_dict())

    def after_fit(self):
        self.learn.model.load_state_dict(self.weights)
