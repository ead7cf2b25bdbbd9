"""Scores of a user's texts, in any unit."""
from dataclasses import replace
from typing import ClassVar

import numpy as np
import torch.nn.functional as F
from sklearn.metrics import r2_score, root_mean_squared_error
from torch import nn

from _utils.custom.cells import DECIMAL_COMMA, labels_in, numbers_in
from _utils.custom.loading import Loading
from _utils.custom.splits import MIN_ROWS
from _utils.custom.task import CustomTask
from _utils.errors import UserError
from _utils.tasks.regression import Regression, ScoreFiles, ScoreHead, ScoreScores
from _utils.tasks.tables import as_label, shortened
from _utils.tasks.task import kind_of_task


class ScaledLoading(Loading):
    """Labels that are numbers, also with a decimal comma."""
    unused = ("positive", "class_weights")

    def labels(self, tables, texts, columns):
        self.notices += _with_points(tables, *columns)
        return super().labels(tables, texts, columns)

    def fields(self, labels):
        scores = numbers_in(labels["train"])
        if scores[scores.abs() < np.inf].nunique() < 2:
            raise UserError(f"{self.definition['train']}: regression needs different numbers, written as 1234.5, but "
                            f"the labels are {shortened(sorted({*labels['train']}))}. Set 'label' to the column of the "
                            "scores.")
        return {}

    def strata(self, labels):
        return [0] * len(labels)

    def fitted(self, task, rows):
        """The task with the scale of its training labels."""
        scores = np.array(rows["label"][:])
        return replace(task, scale=(float(scores.mean()), float(scores.std()) or 1.))

    def applicable_metrics(self, labels):
        return [*self.kind.Scores.functions]

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


def _with_points(tables, column):
    """[notice] about scores with a decimal comma, which are written with a point in {split: Table}; [] without any.

    UserError if the comma may separate thousands.
    """
    written = labels_in(tables["train"], column).map(as_label)
    with_comma = written[written.str.fullmatch(DECIMAL_COMMA)]
    if with_comma.empty:
        return []
    source, others = tables["train"].source, written[written.str.contains(".", regex=False)]
    if len(others):
        raise UserError(f"{source}: the scores have a comma, such as {with_comma.iloc[0]!r} in {with_comma.index[0]}, "
                        f"and a point, such as {others.iloc[0]!r} in {others.index[0]}. Write all of them as 1234.5.")
    if with_comma.str.fullmatch(r"[+-]?[1-9]\d{0,2},\d{3}").all():
        raise UserError(f"{source}: the comma of scores such as {with_comma.iloc[0]!r} in {with_comma.index[0]} may be "
                        "a decimal comma or separate thousands. Write them as 1.234 or 1234.")
    for split, table in tables.items():
        scores = table.rows[column].map(_with_point)
        tables[split] = table._replace(rows=table.rows.assign(**{column: scores}))
    return [f"scores such as {with_comma.iloc[0]!r} have a decimal comma"]


def _with_point(cell):
    """A number with a decimal comma as one with a point; any other cell as it is."""
    return cell.replace(",", ".") if isinstance(cell, str) and DECIMAL_COMMA.fullmatch(cell.strip()) else cell
