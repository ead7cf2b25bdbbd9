"""GLUE's metrics, computed by scikit-learn and SciPy."""
import math

import numpy as np
from scipy.stats import pearsonr, spearmanr
from sklearn.metrics import accuracy_score, f1_score, matthews_corrcoef


def _or_zero(correlation):
    """The correlation function, with 0 where it is undefined because all predictions are equal."""
    def compute(targets, predictions):
        value = correlation(targets, predictions).statistic if np.ptp(predictions) > 0 else 0.
        return value if math.isfinite(value) else 0.
    return compute


METRICS = {"matthews": matthews_corrcoef, "accuracy": accuracy_score, "f1": f1_score,
           "pearson": _or_zero(pearsonr), "spearman": _or_zero(spearmanr)}


def glue_metrics(task, logits, targets):
    """{metric: value in [-1, 1]} of a dev set, for the metrics of a Task.

    logits: (N, C), or scores (N,).   targets: class ids or scores, (N,).
    GLUE's: Matthews correlation for CoLA, Spearman and Pearson correlation for STS-B, accuracy and F1 of class 1 for MRPC and QQP,
    accuracy otherwise. Google's code computes no F1 (F47).
    """
    predictions = np.asarray(logits) if task.is_regression else np.asarray(logits).argmax(-1)
    return {name: float(METRICS[name](np.asarray(targets), predictions)) for name in task.metrics}
