"""Scores of a user's texts, in any unit."""
from dataclasses import replace
from typing import ClassVar

import numpy as np
from sklearn.metrics import r2_score, root_mean_squared_error

from _utils.custom.cells import numbers_in
from _utils.custom.loading import Loading
from _utils.custom.splits import MIN_ROWS
from _utils.custom.task import CustomTask
from _utils.errors import UserError
from _utils.tasks.regression import Regression, RegressionFiles, RegressionMetrics
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


def _r2(targets, scores):
    """The coefficient of determination; 0 for a single row, for which it is undefined."""
    return r2_score(targets, scores) if len(targets) > 1 else 0.


class CustomRegressionMetrics(RegressionMetrics):
    """As for GLUE, with more metrics."""
    functions = RegressionMetrics.functions | {"rmse": root_mean_squared_error, "r2": _r2}
    default_metrics = tuple(functions)
    errors = frozenset({"rmse"})


class CustomRegressionFiles(RegressionFiles):
    """Numbers with six digits."""

    def written(self, decisions):
        return [f"{score:.6g}" for score in decisions]


@kind_of_task
class CustomRegression(CustomTask, Regression):
    """A task whose labels are numbers. scale: (mean, standard deviation) of the training labels."""
    Loading: ClassVar[type] = ScaledLoading
    metrics_class = CustomRegressionMetrics
    files_class = CustomRegressionFiles

    score_range: tuple[float, float] = (-3.4e38, 3.4e38)  # of 32-bit floats
