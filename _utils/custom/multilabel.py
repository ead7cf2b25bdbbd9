"""Any number of labels for each sentence or pair."""
import json
from dataclasses import replace
from functools import partial
from typing import Literal

import numpy as np
import pandas as pd
from sklearn.metrics import f1_score
from torch import nn

from _utils.custom.cells import refuse
from _utils.custom.definition import SEPARATOR
from _utils.custom.task import ClassHead, Classification, ClassMetrics, ListInputs, class_data, class_task
from _utils.custom.task_tables import check_separator, find_labels, labels_by_split
from _utils.errors import UserError
from _utils.tasks.parts import PredictionFiles
from _utils.tasks.tables import as_label, malformed
from _utils.tasks.task import kind_of_task

_MARKS = {"1": True, "true": True, "0": False, "false": False}  # whether a label applies, in a column of its own
_LISTS = "(labels)"  # column for the list of the labels of a row


class MultiLabelHead(ClassHead):
    """A logit for each label, which is an independent yes or no."""
    problem_type = "multi_label_classification"

    def loss(self):
        """The mean over the batch and the labels of the binary cross-entropy."""
        return nn.BCEWithLogitsLoss(pos_weight=self.loss_weight())

    def outputs(self, rows, logits):
        """The probability of each label (N, C)."""
        return rows.mean(logits.sigmoid())

    def exported(self, hf_tokenizer, settings):
        hf_tokenizer, values = super().exported(hf_tokenizer, settings)
        return hf_tokenizer, values | {"threshold": self.task.scores.threshold}


class MultiLabelMetrics(ClassMetrics):
    """A label applies if its probability is at least the threshold."""
    functions = {"micro_f1": partial(f1_score, average="micro", zero_division=0),
                 "macro_f1": ClassMetrics.functions["macro_f1"]}
    default_metrics = ("micro_f1", "macro_f1")

    @property
    def threshold(self):
        """The threshold as a number, None if a run has to choose it."""
        return self.task.chosen if self.task.threshold == "best" else self.task.threshold

    def decide(self, outputs):
        """Whether each label applies, (N, C)."""
        return outputs >= self.threshold

    def targets(self, labels):
        """(N, C) with 1 for each label that applies."""
        return np.array([[i in of_text for i in range(len(self.task.labels))] for of_text in labels], np.float32)

    def constant(self, labels):
        """The labels of half the rows of the set, or the most frequent one."""
        shares = self.targets(labels).mean(0)
        return np.tile(shares >= min(.5, shares.max()), (len(labels), 1)).astype(float)

    def confusion(self, outputs, labels):
        return []

    def evaluate(self, outputs, labels):
        """As `ClassMetrics.evaluate`, with the threshold and a text about it. Choose the threshold if no run has."""
        task, outputs = self.task, np.asarray(outputs)
        is_chosen = task.threshold == "best"
        if is_chosen and task.chosen is None:
            task = replace(task, chosen=self.best_threshold(outputs, labels))
        threshold = task.scores.threshold
        text = f"threshold {threshold:.4g}" + ", chosen on the dev set" * is_chosen
        return {**super(MultiLabelMetrics, task.scores).evaluate(outputs, labels), "thresholds": threshold,
                "remarks": text}

    def best_threshold(self, outputs, labels):
        """The threshold, in hundredths, with the best first metric on a dev set; of equal ones the nearest to 0.5."""
        targets, metric = self.targets(labels), self.functions[self.task.metrics[0]]
        thresholds = sorted((i / 100 for i in range(1, 100)), key=lambda threshold: abs(threshold - .5))
        return max(thresholds, key=lambda threshold: metric(targets, outputs >= threshold))


class MultiLabelFiles(PredictionFiles):
    """The labels of each text as one string."""

    def named(self, decisions):
        return [[self.task.labels[i] for i in np.flatnonzero(row)] for row in decisions]

    def joined(self, labels):
        """Several labels of a text as one string: with "|" between them, or as a JSON list if a name has that."""
        if any(SEPARATOR in name for name in self.task.labels):
            return json.dumps(labels, ensure_ascii=False)
        return SEPARATOR.join(labels)

    def written(self, decisions):
        return list(map(self.joined, self.named(decisions)))

    def lines(self, texts, predictions):
        return super().lines(texts, predictions._replace(labels=map(self.joined, predictions.labels)))


@kind_of_task
class MultiLabel(Classification):
    """A task with several labels of a text.

    threshold: the probability from which a label applies; "best": each run chooses the one with the best first metric
    on its dev set.   chosen: that of a run.
    """
    kind = "multilabel"
    inputs_class = ListInputs
    head_class = MultiLabelHead
    metrics_class = MultiLabelMetrics
    files_class = MultiLabelFiles
    unsaved = Classification.unsaved | {"chosen"}

    threshold: float | Literal["best"] = .5
    chosen: float | None = None

    @classmethod
    def load(cls, definition, tables):
        """As `CustomTask.load`. The labels of a row are a list, a string with separators, or columns of 1 and 0."""
        found = find_labels(tables, definition)
        columns = found.labels
        if len(columns) == 1:
            check_separator(tables["train"], columns[0], definition)
        separator = definition["separator"] or SEPARATOR
        labelled = {split: _with_lists(table, columns, separator) for split, table in found.labelled.items()}
        found = found._replace(labelled=labelled, labels=[_LISTS])
        threshold = {"threshold": definition["threshold"]} if definition["threshold"] else {}
        labels = columns if len(columns) > 1 else labels_by_split(labelled, _LISTS)["train"]
        task = class_task(cls, definition, found, labels, **threshold)
        return class_data(task, definition, found, _rarest, frozenset, details=f"; threshold {task.threshold}")

    def balanced_weights(self, labels):
        """The weight of the rows with each label, which is that of all rows without it.

        Each label counts as having a row, and as missing in one.
        """
        n = self.scores.targets(labels).sum(0)
        return tuple(((len(labels) - n).clip(1) / n.clip(1)).tolist())

    def of_runs(self, records):
        if self.threshold != "best" or not records:
            return self
        thresholds = [record.thresholds.get(self.devs[0]) for record in records]
        if None in thresholds:
            raise ValueError("a run without a threshold")
        return replace(self, chosen=float(np.mean(thresholds)))


def _rarest(labels):
    """The rarest label of each row."""
    labels = pd.Series(labels)
    counts = labels.explode().value_counts()
    return labels.map(lambda of_text: min(of_text, key=counts.get, default=-1))


def _with_lists(table, columns, separator):
    """The Table with the labels of each row as a list in one more column.

    They are in a list, a string with separators, or columns of 1 and 0.
    """
    if len(columns) == 1:
        lists = table.rows[columns[0]].map(partial(_labels_in_cell, separator))
        has_repeated = lists.map(lambda labels: len(set(labels)) < len(labels))
        refuse(table.source, lists, has_repeated, "texts have a label twice",
               "If these are 1 and 0 for each label, write the names of the labels, or a column for each label.")
    else:
        marks = table.rows[columns].map(lambda cell: _MARKS.get(as_label(cell).lower()))
        unknown = marks.index[marks.isna().any(axis=1)]
        if len(unknown):
            raise UserError(f"{table.source}, {unknown[0]}: with several columns of labels, each cell is 1 or 0, or "
                            f"True or False, but these are {', '.join(map(repr, table.rows.loc[unknown[0], columns]))} "
                            f"({marks.isna().sum().sum():,} other cells; {malformed(unknown, len(marks))}).")
        lists = marks.apply(lambda row: [column for column in columns if row[column]], axis=1)
    return table._replace(rows=table.rows.assign(**{_LISTS: lists}))


def _labels_in_cell(separator, cell):
    """The labels in a cell: a list, or a string with separators."""
    labels = cell if isinstance(cell, list) else as_label(cell).split(separator)
    return [*filter(None, map(as_label, labels))]
