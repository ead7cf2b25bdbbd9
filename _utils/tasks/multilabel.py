"""Any number of labels for each sentence or pair."""
import json
from functools import partial
from typing import ClassVar

import datasets
import numpy as np
import pandas as pd
from sklearn.metrics import f1_score
from torch import nn

from _utils.errors import UserError
from _utils.tasks.base import Task, kind_of_task
from _utils.tasks.custom_tables import class_fields, class_names, labels_by_split
from _utils.tasks.definition import SEPARATOR
from _utils.tasks.tables import as_label, ids_of_lists, malformed, shortened

_LISTS = "(labels)"  # column for the list of the labels of a row


@kind_of_task
class MultiLabel(Task):
    """A task with several labels of a text: each is an independent yes or no."""
    kind: ClassVar[str] = "multilabel"
    one_class: ClassVar[bool] = False
    has_label_columns: ClassVar[bool] = True
    metric_functions: ClassVar[dict] = {"micro_f1": partial(f1_score, average="micro", zero_division=0),
                                        "macro_f1": partial(f1_score, average="macro", zero_division=0)}
    label_feature: ClassVar = datasets.List(datasets.Value("int64"))
    problem_type: ClassVar = "multi_label_classification"

    @classmethod
    def labels_of(cls, tables, texts, columns, definition):
        """As `Task.labels_of`; the labels of each row become a list, in one more column."""
        tables |= {split: _with_lists(table, columns, definition["separator"]) for split, table in tables.items()}
        return _LISTS, labels_by_split(tables, _LISTS), [], {}

    @classmethod
    def fields_of(cls, definition, labels):
        return class_fields(definition, class_names(labels["train"], definition), labels["train"])

    def parse_labels(self, cells):
        return ids_of_lists(cells, self.label_ids)

    @property
    def label_format(self):
        return f"a list of labels from {shortened(self.labels)}"

    def unlabelled(self, rows):
        return [[]] * len(rows)

    def strata(self, labels):
        """The rarest label of each row."""
        labels = pd.Series(labels)
        counts = labels.explode().value_counts()
        return labels.map(lambda of_text: min(of_text, key=counts.get, default=-1))

    def loss(self):
        """The mean over the batch and the labels of the binary cross-entropy."""
        return nn.BCEWithLogitsLoss(pos_weight=self.loss_weight())

    def probabilities(self, logits):
        return logits.sigmoid()

    def decide(self, outputs):
        """Whether each label applies, (N, C)."""
        return outputs >= .5

    def named(self, decisions):
        return [[self.labels[i] for i in np.flatnonzero(row)] for row in decisions]

    def targets(self, labels):
        """(N, C) with 1 for each label that applies."""
        return np.array([[i in of_text for i in range(len(self.labels))] for of_text in labels], np.float32)

    def constant(self, labels):
        """The labels of half the rows of the set, or the most frequent one."""
        shares = self.targets(labels).mean(0)
        return np.tile(shares >= min(.5, shares.max()), (len(labels), 1)).astype(float)

    def written(self, decisions):
        return [joined(labels, self.labels) for labels in self.named(decisions)]

    def output_cells(self, predictions, i):
        _, *probabilities = super().output_cells(predictions, i)
        return [joined(predictions.labels[i], self.labels), *probabilities]


def joined(labels, names):
    """Several labels of a text as one string: with "|" between them, or as a JSON list if that is part of a name.

    names: of all labels of the task.
    """
    if any(SEPARATOR in name for name in names):
        return json.dumps(labels, ensure_ascii=False)
    return SEPARATOR.join(labels)


def _with_lists(table, columns, separator):
    """The Table with the labels of each row as a list in one more column.

    They are in a list, a string with separators, or columns of 1 and 0.
    """
    if len(columns) == 1:
        lists = table.rows[columns[0]].map(partial(_labels_in_cell, separator))
        repeated = lists[lists.map(lambda labels: len(set(labels)) < len(labels))]
        if len(repeated):
            raise UserError(f"{table.source}, {repeated.index[0]}: the labels {shortened(repeated.iloc[0])} repeat one "
                            f"({malformed(repeated.index, len(lists))}). If they are 1 and 0 for each label, write the "
                            "names of the labels instead, or a column for each label.")
    else:
        marks = table.rows[columns].map(_mark)
        unknown = marks[marks.isna().any(axis=1)].isna()
        if len(unknown):
            place, column = unknown.index[0], unknown.columns[unknown.iloc[0]][0]
            raise UserError(f"{table.source}, {place}: the column {column!r} contains "
                            f"{table.rows.loc[place, column]!r:.60} ({malformed(unknown.index, len(marks))}). With "
                            "several columns of labels, each cell is 1 or 0 (or True or False).")
        lists = marks.apply(lambda row: [column for column in columns if row[column]], axis=1)
    return table._replace(rows=table.rows.assign(**{_LISTS: lists}))


def _labels_in_cell(separator, cell):
    """The labels in a cell: a list, or a string with separators."""
    if isinstance(cell, list):
        return list(map(as_label, cell))
    return [*filter(None, map(str.strip, as_label(cell).split(separator)))]


def _mark(cell):
    """1 if a cell marks that a label applies, 0 if it does not or is empty; None for another cell."""
    text = str(cell).strip().lower()
    number = {"": 0, "false": 0, "true": 1}.get(text, pd.to_numeric(text, errors="coerce"))
    return number if number in (0, 1) else None
