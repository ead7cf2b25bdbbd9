"""A score of a sentence or pair, as in STS-B."""
from dataclasses import replace
from typing import ClassVar

import datasets
import numpy as np
import pandas as pd
import torch
from scipy.stats import pearsonr, spearmanr
from sklearn.metrics import r2_score, root_mean_squared_error
from torch import nn

from _utils.errors import UserError
from _utils.tasks.base import Predictions, Task, kind_of_task
from _utils.tasks.custom_tables import MIN_ROWS
from _utils.tasks.tables import DECIMAL_COMMA, as_label, labels_in, numbers_in, shortened


def _correlation(function):
    """A correlation of scipy as a metric; 0 where it is undefined because all predictions or all targets are equal."""
    return lambda targets, scores: function(targets, scores).statistic if np.ptp(scores) and np.ptp(targets) else 0.


def _r2(targets, scores):
    """The coefficient of determination; 0 for a single row, for which it is undefined."""
    return r2_score(targets, scores) if len(targets) > 1 else 0.


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


@kind_of_task
class Regression(Task):
    """A task whose labels are numbers.

    score_range: of the labels; of GLUE's tasks, also of the predictions.   scale: (mean, standard deviation) of the
    training scores, by which they are standardized for training; by default they are used as they are, which for STS-B
    is from 0 to 5 (Google: from 0 to 1, F45).
    """
    kind: ClassVar[str] = "regression"
    one_class: ClassVar[bool] = False
    baseline: ClassVar[str] = "constant"
    unused: ClassVar[tuple] = ("positive", "class_weights")
    metric_functions: ClassVar[dict] = {"spearman": _correlation(spearmanr), "pearson": _correlation(pearsonr),
                                        "rmse": root_mean_squared_error, "r2": _r2}
    label_feature: ClassVar = datasets.Value("float32")
    problem_type: ClassVar = "regression"

    score_range: tuple[float, float] = (-3.4e38, 3.4e38)  # of 32-bit floats
    scale: tuple[float, float] = (0., 1.)

    @classmethod
    def labels_of(cls, tables, texts, columns, definition):
        """As `Task.labels_of`; decimal commas become points."""
        notices = _with_points(tables, *columns)
        label, labels, more, fields = super().labels_of(tables, texts, columns, definition)
        return label, labels, notices + more, fields

    @classmethod
    def fields_of(cls, definition, labels):
        scores = numbers_in(labels["train"])
        if scores[scores.abs() < np.inf].nunique() < 2:
            raise UserError(f"{definition['train']}: regression needs different numbers, written as 1234.5, but the "
                            f"labels are {shortened(sorted({*labels['train']}))}. Set 'label' to the column of the "
                            "scores.")
        return {}

    def fitted(self, definition, rows):
        scores = np.array(rows["label"][:])
        return replace(self, scale=(float(scores.mean()), float(scores.std()) or 1.))

    @classmethod
    def applicable_metrics(cls, labels):
        return [*cls.metric_functions]

    @classmethod
    def default_metrics(cls, applicable):
        return applicable

    def parse_labels(self, cells):
        numbers = pd.to_numeric(cells, errors="coerce")
        return numbers.where(numbers.between(*self.score_range))

    @property
    def label_format(self):
        low, high = self.score_range
        return f"a number from {low:g} to {high:g}"

    @property
    def n_outputs(self):
        return 1

    @property
    def output_names(self):
        return ["score"]

    def describe(self):
        mean, std = self.scale
        return f"scores with mean {mean:.4g} and standard deviation {std:.4g}; metrics {', '.join(self.metrics)}"

    def label_notices(self, labelled):
        n = len(labelled["validation"])
        few = f"warning: a dev set of {n} rows is small: its scores say little. Add rows, or set 'dev'."
        return [few] if n < MIN_ROWS else []

    def loss_targets(self, labels):
        mean, std = self.scale
        return ((np.asarray(labels) - mean) / std).astype("float32")  # a GPU rejects the gradient of a float64 loss

    def loss(self):
        """The mean over the batch of the squared error."""
        return nn.MSELoss()

    def in_units(self, outputs):
        mean, std = self.scale
        return outputs * std + mean

    @torch.no_grad()
    def finish(self, network):
        mean, std = self.scale
        network.classifier.weight.mul_(std)
        network.classifier.bias.mul_(std).add_(mean)

    def probabilities(self, logits):
        return logits

    def decide(self, outputs):
        return outputs

    def predictions(self, outputs, rows):
        return Predictions(outputs.tolist(), None)

    def constant(self, labels):
        """The mean score of the set."""
        return np.full(len(labels), np.mean(labels))

    def notice(self, outputs, labels):
        """A warning about scores that span less than a tenth of the labels' range, or None."""
        low, high, lowest, highest = np.min(outputs), np.max(outputs), np.min(labels), np.max(labels)
        if high - low >= (highest - lowest) / 10:
            return None
        return (f"all predictions are between {low:.4g} and {high:.4g}, while the labels are between {lowest:.4g} and "
                f"{highest:.4g}")

    def classes(self, outputs, labels):
        return {}

    def written(self, decisions):
        """In the task's range with 3 decimals, as the server expects them; others with 6 digits."""
        if self.is_own:
            return [f"{score:.6g}" for score in decisions]
        return [f"{score:.3f}" for score in np.clip(decisions, *self.score_range)]

    @property
    def accepted(self):
        return self.label_format

    def accepts(self, prediction):
        low, high = self.score_range
        return low <= pd.to_numeric(prediction, errors="coerce") <= high

    @property
    def output_columns(self):
        return ["score"]

    def output_cells(self, predictions, i):
        return self.written(predictions.labels[i:i + 1])
