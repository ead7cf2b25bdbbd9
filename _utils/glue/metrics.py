"""What GLUE measures, by scikit-learn and scipy."""
import math

import numpy as np
from scipy.stats import pearsonr, spearmanr
from sklearn.metrics import accuracy_score, f1_score, matthews_corrcoef


def _correlation(function):
    def measure(targets, predictions):
        value = function(targets, predictions).statistic if np.ptp(predictions) > 0 else 0.
        return value if math.isfinite(value) else 0.  # the same score for every pair has no correlation with anything
    return measure


_MEASURES = {"matthews": matthews_corrcoef, "accuracy": accuracy_score, "f1": f1_score,
             "pearson": _correlation(pearsonr), "spearman": _correlation(spearmanr)}


def glue_metrics(task, logits, targets):
    """{metric: number in [-1, 1]} of a dev set.

    logits: (N, classes), or scores (N,).   targets: label numbers or scores, (N,).   task: Task, whose metrics are measured:
    Matthews for CoLA, Spearman and Pearson for STS-B, accuracy and F1 of label 1 for MRPC and QQP, accuracy elsewhere
    (Google's code has no F1 in use, F47).
    """
    predictions = np.asarray(logits) if task.is_regression else np.asarray(logits).argmax(-1)
    return {name: float(_MEASURES[name](np.asarray(targets), predictions)) for name in task.metrics}
