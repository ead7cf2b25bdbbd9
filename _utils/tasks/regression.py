"""A score of a sentence or pair, as in STS-B."""

import datasets
import numpy as np
import pandas as pd
import torch.nn.functional as F
from scipy.stats import pearsonr, spearmanr
from torch import nn

from _utils.tasks.parts import Column, Head, Inputs, Metrics, PredictionFiles, Predictions, with_texts
from _utils.tasks.task import Task, kind_of_task


class RegressionLoss(nn.Module):
    """The mean over the batch of the squared error of scaled scores. scale: as of Regression."""

    def __init__(self, scale):
        super().__init__()
        self.zero, self.unit = scale

    def forward(self, scores, labels):
        """scores, labels (B,) -> ()."""
        # A GPU rejects the gradient of a float64 loss.
        return F.mse_loss(scores, ((labels - self.zero) / self.unit).to(scores.dtype))


class RegressionInputs(Inputs):
    """Texts and numbers in the range of the task."""

    @property
    def label_column(self):
        low, high = self.task.score_range
        return Column(self.parse, f"a number from {low:g} to {high:g}", datasets.Value("float32"))

    def parse(self, cells):
        numbers = pd.to_numeric(cells, errors="coerce").astype(float)  # Arrow rejects integers that it would round
        return numbers.where(numbers.between(*self.task.score_range))


class RegressionHead(Head):
    """An output layer on [CLS] with one output, a scaled score."""
    problem_type = "regression"
    output_names = ("score",)

    def loss(self):
        return RegressionLoss(self.task.scale)

    def outputs(self, rows, logits):
        """Scores (N,) in the unit of the labels."""
        zero, unit = self.task.scale
        return rows.mean(logits) * unit + zero

    def set_head(self, network, weights):
        """As `Head.set_head`; the exported network predicts in the unit of the labels."""
        zero, unit = self.task.scale
        super().set_head(network, {"weight": weights["weight"] * unit, "bias": weights["bias"] * unit + zero})

    def exported_logits(self, network, inputs):
        zero, unit = self.task.scale
        return (super().exported_logits(network, inputs) - zero) / unit


def _correlation(function):
    """A correlation of scipy as a metric; 0 where it is undefined because all predictions or all targets are equal."""
    return lambda targets, scores: function(targets, scores).statistic if np.ptp(scores) and np.ptp(targets) else 0.


class RegressionMetrics(Metrics):
    """Numbers and their metrics."""
    baseline = "constant"
    functions = {"spearman": _correlation(spearmanr), "pearson": _correlation(pearsonr)}

    def decide(self, outputs):
        return outputs

    def constant(self, labels):
        """The mean score of the set."""
        return np.full(len(labels), np.mean(labels))

    def warning(self, outputs, labels):
        """A warning about scores that span less than a tenth of the labels' range, or None."""
        low, high, lowest, highest = np.min(outputs), np.max(outputs), np.min(labels), np.max(labels)
        if high - low >= (highest - lowest) / 10:
            return None
        return (f"all predictions are between {low:.4g} and {high:.4g}, while the labels are between {lowest:.4g} and "
                f"{highest:.4g}")


class RegressionFiles(PredictionFiles):
    """A number for each text."""

    def written(self, decisions):
        """In the task's range with 3 decimals, as the server expects them."""
        return [f"{score:.3f}" for score in np.clip(decisions, *self.task.score_range)]

    def accepts(self, prediction):
        low, high = self.task.score_range
        return prediction == prediction.strip() and low <= pd.to_numeric(prediction, errors="coerce") <= high

    def predictions(self, outputs, rows):
        return Predictions(outputs.tolist(), None)

    def lines(self, texts, predictions):
        return with_texts(["score"], ([score] for score in self.written(predictions.labels)), texts)


@kind_of_task
class Regression(Task):
    """A task whose labels are numbers, for STS-B from 0 to 5.

    score_range: of the labels, and of the predictions that are written.
    scale: (zero, unit) in which the network predicts them.
    """
    kind = "regression"
    inputs_class = RegressionInputs
    head_class = RegressionHead
    metrics_class = RegressionMetrics
    files_class = RegressionFiles

    score_range: tuple[float, float] = (0., 1.)
    scale: tuple[float, float] = (0., 1.)
