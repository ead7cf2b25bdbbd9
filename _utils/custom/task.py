"""A custom task, and the kind of those with a class for each text."""
from dataclasses import replace
from functools import partial

import datasets
import numpy as np
import pandas as pd
import torch
from pydantic import TypeAdapter
from sklearn import metrics as scikit
from torch import nn

from _utils.custom.cells import are_whole, ids_of_lists, items, numbers_in, without_fraction
from _utils.custom.splits import contradictions, label_counts
from _utils.custom.table_files import read_table
from _utils.custom.task_tables import common_fields, find_labels, labels_by_split, task_data, to_datasets
from _utils.custom.word_baseline import word_scores
from _utils.errors import UserError
from _utils.tasks.parts import Column, Head, Inputs, Metrics
from _utils.tasks.tables import shortened
from _utils.tasks.task import Task, kind_of_task


@kind_of_task
class CustomTask(Task):
    """A task of a user.

    read_file: path -> the content of a file.   suffix: of its file of predictions.   unsaved: fields that runs need not
    share.
    """
    read_file = staticmethod(read_table)
    min_updates = 300
    suffix = ".tsv"
    unsaved = frozenset({"test_files"})

    def as_data(self):
        """{field: value} that are not defaults, without files."""
        fields = TypeAdapter(type(self)).dump_python(self, mode="json", exclude_defaults=True, exclude=self.unsaved)
        return fields | {"kind": self.kind}

    @classmethod
    def load(cls, definition, tables):
        """TaskData of {split: content of a file}.

        Raises UserError, with file, line and column where possible, for content that does not fit.
        """


class ClassInputs(Inputs):
    """Texts and classes, whose numbers may be written with a fraction, as by pandas."""

    @property
    def label_ids(self):
        of_pandas = [f"{label}.0" for label in self.task.labels] if are_whole(self.task.labels) else []
        return super().label_ids | {label: i for i, label in enumerate(of_pandas)}


class ListInputs(ClassInputs):
    """Texts, and a list of classes for each."""
    unlabelled = []

    @property
    def label_column(self):
        """Column of a list of the ids of labels."""
        return Column(lambda cells: ids_of_lists(cells.map(items), self.label_ids),
                      f"a list of labels from {shortened(self.task.labels)}", datasets.List(datasets.Value("int64")))


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

    @classmethod
    def applicable(cls, labels):
        """Names of the metrics that can be computed for the names of labels."""
        return [name for name in cls.functions if name != "f1" or len(labels) == 2]

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
    inputs_class = ClassInputs
    head_class = ClassHead
    metrics_class = ClassMetrics

    class_weights: tuple[float, ...] = ()
    positive: str | None = None

    @classmethod
    def load(cls, definition, tables):
        tables = find_labels(tables, definition)
        labels = labels_by_split(tables.labelled, *tables.labels)["train"]
        task = class_task(cls, definition, tables, labels)
        names = task.labels
        if len(labels) > 20 and len(names) > len(labels) / 2:
            raise UserError(f"{definition['train']}: {len(names):,} different labels in {len(labels):,} rows, such as "
                            f"{shortened(names, 3)}. Set 'label' to the column of the labels, or 'kind': 'regression' "
                            "if they are numbers to predict, or 'tagging' if they are tags of words.")
        data = class_data(task, definition, tables, classes_of=lambda labels: labels)
        return data._replace(baseline=partial(word_scores, data.task, data.splits))

    def balanced_weights(self, labels):
        """Weights of the classes, inversely proportional to their training rows (of tags: words).

        Each class counts as having at least one.
        """
        counts = pd.Series(labels).explode().value_counts().reindex(range(len(self.labels))).fillna(1)
        return tuple((counts.sum() / (len(counts) * counts)).tolist())


def class_task(kind, definition, tables, labels, **fields):
    """A task whose classes are the labels, strings which may repeat: in alphabetical order, or numbers by value.

    fields: more of the task. UserError for fewer than two labels, and for another 'positive'.
    """
    names, positive = set(labels), definition["positive"]
    names = sorted(set(map(without_fraction, names)) if are_whole(names) else names)
    if numbers_in(names).notna().all():
        names.sort(key=float)
    if len(names) < 2:
        raise UserError(f"{definition['train']}: all labels are {', '.join(map(repr, names)) or 'missing'}. "
                        "Classification and tagging need at least two different labels, and tagging a list of tags in "
                        "each row.")
    if positive not in (None, *names):
        raise UserError(f"positive={positive!r} of the task {definition['name']!r} is not one of its labels "
                        f"{shortened(names)}.")
    applicable = kind.metrics_class.applicable(names)
    if positive and "f1" in applicable and "f1" not in (definition["metrics"] or ()):
        tables.messages.append("no effect without f1 in 'metrics': positive")
    common = common_fields(kind, definition, names, applicable)
    return kind(**common, **tables.fields, **fields, labels=tuple(names), positive=positive)


def class_data(task, definition, tables, classes_of=None, label_key=str, unknown=(), details=""):
    """TaskData of a `class_task`.

    classes_of: as for `to_datasets`.   label_key: a label of a Dataset -> a value to compare labels.
    unknown: labels that only the test set has. The Task lacks them, because they may change.   details: as for
    `task_data`.
    """
    test_task = replace(task, labels=(*task.labels, *unknown))
    splits, labelled = to_datasets(tables, definition, task, classes_of, test_task)
    if definition["class_weights"]:
        task = replace(task, class_weights=task.balanced_weights(splits["train"]["label"][:]))
    warnings = [*label_counts(labelled, task.labels), *contradictions(labelled, task, label_key)]
    if "f1" in task.metrics:
        details = f" (f1 of {task.positive or task.labels[1]!r}; 'positive' selects the label)"
    description = f"{len(task.labels)} labels"
    return task_data(task, splits, labelled, tables.messages, description, details, warnings, test_task)
