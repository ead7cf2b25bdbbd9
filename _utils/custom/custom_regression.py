"""Scores of a user's texts, in any unit."""
from dataclasses import replace

import numpy as np
from sklearn.metrics import r2_score, root_mean_squared_error

from _utils.custom.cells import numbers_in
from _utils.custom.splits import MIN_ROWS
from _utils.custom.task import CustomTask
from _utils.custom.task_tables import common_fields, find_labels, labels_by_split, task_data, to_datasets
from _utils.errors import UserError
from _utils.tasks.regression import Regression, RegressionFiles, RegressionMetrics
from _utils.tasks.tables import shortened
from _utils.tasks.task import kind_of_task


def _r2(targets, scores):
    """The coefficient of determination; 0 for a single row, for which it is undefined."""
    return r2_score(targets, scores) if len(targets) > 1 else 0.


class CustomRegressionMetrics(RegressionMetrics):
    """As for GLUE, with more metrics."""
    functions = RegressionMetrics.functions | {"rmse": root_mean_squared_error, "r2": _r2}
    default_metrics = tuple(functions)
    errors = frozenset({"rmse"})


class CustomRegressionFiles(RegressionFiles):
    """Numbers with the digits of 32-bit floats."""

    def written(self, decisions):
        return [f"{score:.7g}" for score in decisions]


@kind_of_task
class CustomRegression(CustomTask, Regression):
    """A task whose labels are numbers. scale: (mean, standard deviation) of the training labels."""
    metrics_class = CustomRegressionMetrics
    files_class = CustomRegressionFiles

    score_range: tuple[float, float] = (-3.4e38, 3.4e38)  # of 32-bit floats

    @classmethod
    def load(cls, definition, tables):
        tables = find_labels(tables, definition)
        labels = labels_by_split(tables.labelled, *tables.labels)["train"]
        scores = numbers_in(labels)
        if scores[scores.abs() < np.inf].nunique() < 2:
            raise UserError(f"{definition['train']}: regression needs different numbers, written as 1234.5, but the "
                            f"labels are {shortened(sorted({*labels}))}. Write a decimal comma as a point, or set "
                            "'label' to the column of the scores.")
        task = cls(**common_fields(cls, definition), **tables.fields)
        splits, labelled = to_datasets(tables, definition, task)
        scores, n_dev = np.array(splits["train"]["label"][:]), len(splits["validation"])
        mean, std = scale = float(scores.mean()), float(scores.std()) or 1.
        few = f"warning: a dev set of {n_dev} rows is small: its scores say little. Add rows, or set 'dev'."
        return task_data(replace(task, scale=scale), splits, labelled, tables.messages,
                         f"scores with mean {mean:.4g} and standard deviation {std:.4g}",
                         warnings=[few] * (n_dev < MIN_ROWS))
