"""Metrics of finetuning, computed by scikit-learn, SciPy and seqeval."""
import math
from functools import partial

import numpy as np
from scipy.stats import pearsonr, spearmanr
from seqeval.metrics import f1_score as entity_f1_score
from sklearn.metrics import accuracy_score, f1_score, matthews_corrcoef


def _or_zero(correlation):
    """The correlation function, with 0 where it is undefined because all predictions are equal."""
    def compute(targets, predictions):
        value = correlation(targets, predictions).statistic if np.ptp(predictions) > 0 else 0.
        return value if math.isfinite(value) else 0.
    return compute


METRICS = {"matthews": matthews_corrcoef, "accuracy": accuracy_score, "f1": f1_score,
           "macro_f1": partial(f1_score, average="macro", zero_division=0),
           "pearson": _or_zero(pearsonr), "spearman": _or_zero(spearmanr)}
# The metrics that exist for each kind of task.
METRICS_OF_KIND = {"classification": ("accuracy", "f1", "macro_f1", "matthews"), "regression": ("pearson", "spearman"),
                   "tagging": ("entity_f1", "accuracy", "macro_f1")}


def compute_metrics(task, logits, targets, lengths=None):
    """{metric: value in [-1, 1]} of a dev set, for the metrics of a Task.

    logits: (N, C), or scores (N,).   targets: class ids or scores, (N,).   lengths: words of each sentence, for tagging, where N counts
    the words.
    GLUE's: Matthews correlation for CoLA, Spearman and Pearson correlation for STS-B, accuracy and F1 of class 1 for MRPC and QQP,
    accuracy otherwise. Google's code computes no F1 (F47). entity_f1 counts whole entities, or chunks, as CoNLL's evaluation does.
    """
    targets, predictions = np.asarray(targets), np.asarray(logits) if task.is_regression else np.asarray(logits).argmax(-1)
    return {name: _entity_f1(task, predictions, targets, lengths) if name == "entity_f1" else float(METRICS[name](targets, predictions))
            for name in task.metrics}


def _entity_f1(task, predictions, targets, lengths):
    labels = [{"L-": "E-", "U-": "S-"}.get(label[:2], label[:2]) + label[2:] for label in task.labels]  # seqeval knows BIOES, not BILOU
    tags = lambda ids: [[labels[i] for i in sentence] for sentence in np.split(ids, np.cumsum(lengths)[:-1])]
    return float(entity_f1_score(tags(targets), tags(predictions), zero_division=0))
