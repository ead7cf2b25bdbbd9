"""A custom task, and the kind of those with a class for each text."""
from functools import partial
from typing import ClassVar

import numpy as np
import torch
from pydantic import TypeAdapter
from sklearn import metrics as scikit
from torch import nn

from _utils.custom.cells import are_whole
from _utils.custom.loading import Loading
from _utils.custom.word_baseline import word_scores
from _utils.errors import UserError
from _utils.tasks.parts import Head, Inputs, Metrics
from _utils.tasks.tables import shortened
from _utils.tasks.task import Task, kind_of_task


@kind_of_task
class CustomTask(Task):
    """A task of a user. Another kind of task names other parts.

    Loading: how its files are read.   suffix: of its file of predictions.   unsaved: fields that runs need not share.
    """
    Loading: ClassVar[type] = Loading
    min_updates: ClassVar[int] = 300
    suffix: ClassVar[str] = ".tsv"
    unsaved: ClassVar[frozenset] = frozenset({"test_files"})

    def as_data(self):
        """{field: value} that are not defaults, without files."""
        fields = TypeAdapter(type(self)).dump_python(self, mode="json", exclude_defaults=True, exclude=self.unsaved)
        return fields | {"kind": self.kind}


class ClassLoading(Loading):
    """Texts with a class each."""

    def fields(self, labels):
        labels, fields = labels["train"], self.class_fields(labels["train"])
        names = fields["labels"]
        if len(labels) > 20 and len(names) > len(labels) / 2:
            raise UserError(f"{self.definition['train']}: {len(names):,} different labels in {len(labels):,} rows, "
                            f"such as {shortened(names, 3)}. Set 'label' to the column of the labels, or 'kind': "
                            "'regression' if they are numbers to predict, or 'tagging' if they are tags of words.")
        return fields

    def strata(self, labels):
        return labels

    def baseline(self, task, splits):
        return partial(word_scores, task, splits)


class ClassInputs(Inputs):
    """Texts and classes, whose numbers may be written with a fraction, as by pandas."""

    @property
    def label_ids(self):
        of_pandas = [f"{label}.0" for label in self.task.labels] if are_whole(self.task.labels) else []
        return super().label_ids | {label: i for i, label in enumerate(of_pandas)}


class ClassHead(Head):
    """A logit for each class, which may have weights in the loss."""

    def loss(self):
        return nn.CrossEntropyLoss(self.loss_weight())

    def loss_weight(self):
        """(C,) weights of the classes, or None."""
        return torch.tensor(self.task.class_weights) if self.task.class_weights else None


def macro_f1(targets, decisions):
    """The mean F1 of the labels that the targets have: ids (N,), or (N, C) with 1 for each of several labels.

    By default scikit-learn also counts labels that are only predicted, with 0, which would decide on the best run.
    """
    labels = np.flatnonzero(targets.any(0)) if targets.ndim == 2 else np.unique(targets)
    return scikit.f1_score(targets, decisions, labels=labels, average="macro", zero_division=0) if len(labels) else 0.


class ClassMetrics(Metrics):
    """As for GLUE, with more metrics, the scores of each class, and the confusion matrix."""
    functions = Metrics.functions | {"macro_f1": macro_f1}
    default_metrics = ("accuracy", "macro_f1")

    def metric(self, name, targets, decisions, labels):
        positive = self.task.positive if name == "f1" else None
        options = {"pos_label": self.task.labels.index(positive)} if positive else {}
        return self.functions[name](targets, decisions, **options)

    def classes(self, outputs, labels):
        """{label: [precision, recall, F1, rows]}."""
        ids, names = (self.targets(labels), self.decide(outputs)), self.task.labels
        columns = scikit.precision_recall_fscore_support(*ids, labels=range(len(names)), zero_division=0)
        return dict(zip(names, np.transpose(columns).tolist()))

    def confusion(self, outputs, labels):
        """Rows of each label (lines) by prediction (columns); [] if rows do not have one class each."""
        ids = self.targets(labels), self.decide(outputs)
        return scikit.confusion_matrix(*ids, labels=range(len(self.task.labels))).tolist()

    def evaluate(self, outputs, labels):
        """As `Metrics.evaluate`, with "classes" and "confusion" as from the methods."""
        outputs = np.asarray(outputs)
        return super().evaluate(outputs, labels) | {
            "classes": self.classes(outputs, labels), "confusion": self.confusion(outputs, labels)}


@kind_of_task
class Classification(CustomTask):
    """A task with a class of each sentence or pair.

    class_weights: of the labels in the loss; (): all equal.   positive: the label whose F1 the metric f1 is; None: the
    second one.
    """
    Loading: ClassVar[type] = ClassLoading
    inputs_class = ClassInputs
    head_class = ClassHead
    metrics_class = ClassMetrics

    class_weights: tuple[float, ...] = ()
    positive: str | None = None
