"""Any number of labels for each sentence or pair."""
from functools import partial
from typing import ClassVar

import datasets
import numpy as np
import pandas as pd
from sklearn.metrics import f1_score
from torch import nn

from _utils.tasks.base import Task, kind_of_task
from _utils.tasks.guess import LISTS, with_lists
from _utils.tasks.own_tables import class_fields, class_names, labels_by_split
from _utils.tasks.table_files import shortened


@kind_of_task
class MultiLabel(Task):
    """A task with several labels of a text: each is an independent yes or no."""
    kind: ClassVar[str] = "multilabel"
    metric_functions: ClassVar[dict] = {"micro_f1": partial(f1_score, average="micro", zero_division=0),
                                        "macro_f1": partial(f1_score, average="macro", zero_division=0)}
    label_feature: ClassVar = datasets.List(datasets.Value("int64"))
    problem_type: ClassVar = "multi_label_classification"

    @classmethod
    def labels_of(cls, tables, texts, columns, given):
        """As `Task.labels_of`; the labels of each row become a list, in one more column."""
        tables |= {split: with_lists(table, columns, given["separator"]) for split, table in tables.items()}
        return LISTS, labels_by_split(tables, LISTS), [], {}

    @classmethod
    def fields_of(cls, given, labels):
        return class_fields(given, class_names(labels["train"], given), labels["train"])

    def parse_labels(self, cells):
        ids = self.label_ids
        return cells.map(lambda labels: [ids[label] for label in labels] if ids.keys() >= set(labels) else np.nan, na_action="ignore")

    @property
    def label_format(self):
        return f"a list of labels from {shortened(self.labels)}"

    def unlabelled(self, rows):
        return [[]] * len(rows)

    def strata(self, labels):
        """The rarest label of each row."""
        labels = pd.Series(labels)
        counts = labels.explode().value_counts()
        return labels.map(lambda found: min(found, key=counts.get, default=-1))

    def hints(self):
        return ""

    def loss_targets(self, labels):
        return self.targets(labels)

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
        return np.array([[label in found for label in range(len(self.labels))] for found in labels], np.float32)

    def constant(self, labels):
        """The labels of half the rows of the set, or the most frequent one."""
        shares = self.targets(labels).mean(0)
        return np.tile(shares >= min(.5, shares.max()), (len(labels), 1)).astype(float)

    def confusion(self, outputs, labels):
        return []

    def written(self, decisions):
        """With "|" between the labels of a text."""
        return ["|".join(found) for found in self.named(decisions)]

    def output_cells(self, predictions, i):
        _, *probabilities = super().output_cells(predictions, i)
        return ["|".join(predictions.labels[i]), *probabilities]
