"""Scores of a user's texts, in any unit."""
from dataclasses import replace
from typing import ClassVar

import numpy as np
import torch.nn.functional as F
from sklearn.metrics import r2_score, root_mean_squared_error
from torch import nn

from _utils.custom.cells import numbers_in
from _utils.custom.loading import Loading
from _utils.custom.splits import MIN_ROWS
from _utils.custom.task import CustomTask
from _utils.errors import UserError
from _utils.tasks.regression import Regression, ScoreFiles, ScoreHead, ScoreScores
from _utils.tasks.tables import shortened
from _utils.tasks.task import kind_of_task


class ScaledLoading(Loading):
    """Labels that are numbers."""

    def fields(self, labels):
        scores = numbers_in(labels["train"])
        if scores[scores.abs() < np.inf].nunique() < 2:
            raise UserError(f"{self.definition['train']}: regression needs different numbers, written as 1234.5, but "
                            f"the labels are {shortened(sorted({*labels['train']}))}. Write a decimal comma as a "
                            "point, or set 'label' to the column of the scores.")
        return {}

    def fitted(self, task, rows):
        """The task with the scale of its training labels."""
        scores = np.array(rows["label"][:])
        return replace(task, scale=(float(scores.mean()), float(scores.std()) or 1.))

    def describe(self, task):
        mean, std = task.scale
        return f"scores with mean {mean:.4g} and standard deviation {std:.4g}; metrics {', '.join(task.metrics)}"

    def label_notices(self, task, labelled):
        n = len(labelled["validation"])
        few = f"warning: a dev set of {n} rows is small: its scores say little. Add rows, or set 'dev'."
        return [few] if n < MIN_ROWS else []


class ScaledLoss(nn.Module):
    """The mean over the batch of the squared error of standardized scores. scale: (mean, standard deviation)."""

    def __init__(self, scale):
        super().__init__()
        self.mean, self.std = scale

    def forward(self, scores, labels):
        """scores, labels (B,) -> ()."""
        # A GPU rejects the gradient of a float64 loss.
        return F.mse_loss(scores, ((labels - self.mean) / self.std).to(scores.dtype))


class ScaledHead(ScoreHead):
    """The network predicts standardized scores."""

    def loss(self):
        return ScaledLoss(self.task.scale)

    def outputs(self, rows, logits):
        """Scores (N,) in the unit of the labels."""
        mean, std = self.task.scale
        return super().outputs(rows, logits) * std + mean

    def set_head(self, network, weights):
        """As `Head.set_head`; the exported network predicts in the unit of the labels."""
        mean, std = self.task.scale
        super().set_head(network, {"weight": weights["weight"] * std, "bias": weights["bias"] * std + mean})


def _r2(targets, scores):
    """The coefficient of determination; 0 for a single row, for which it is undefined."""
    return r2_score(targets, scores) if len(targets) > 1 else 0.


class MoreScores(ScoreScores):
    """As for GLUE, with more metrics."""
    functions = ScoreScores.functions | {"rmse": root_mean_squared_error, "r2": _r2}
    default_metrics = tuple(functions)
    errors = frozenset({"rmse"})


class NumberFiles(ScoreFiles):
    """Numbers with six digits."""

    def written(self, decisions):
        return [f"{score:.6g}" for score in decisions]


@kind_of_task
class CustomRegression(CustomTask, Regression):
    """A task whose labels are numbers. scale: (mean, standard deviation) of the training labels."""
    Loading: ClassVar[type] = ScaledLoading
    Head: ClassVar[type] = ScaledHead
    Scores: ClassVar[type] = MoreScores
    Files: ClassVar[type] = NumberFiles

    score_range: tuple[float, float] = (-3.4e38, 3.4e38)  # of 32-bit floats
    scale: tuple[float, float] = (0., 1.)
