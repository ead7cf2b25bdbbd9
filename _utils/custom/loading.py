"""The tables of a custom task: its columns, labels and metrics, the dev set, and warnings.

A kind of task subclasses `Loading` and overrides the steps in which it differs.
"""
from dataclasses import replace

import datasets
import numpy as np
import pandas as pd

from _utils.custom.cells import are_whole, joint_of, labels_in, numbers_in, refuse, without_fraction
from _utils.custom.definition import SEPARATOR, is_conll
from _utils.custom.splits import contradictions, label_counts, shared_texts, split_rows
from _utils.custom.table_files import read_table
from _utils.errors import UserError
from _utils.tasks.parts import Column
from _utils.tasks.tables import TaskData, as_label, check_columns, nearest, shortened, to_dataset

_GROUP = Column(lambda cells: cells.map(as_label).replace("", np.nan), "a group", datasets.Value("string"))


class Loading:
    """How the files of a custom task become its TaskData.

    kind: the CustomTask class.   definition: from `complete_custom_task`.   notices: messages, which the steps append.
    has_label_columns: whether each label may have a column of 1 or 0.   empty_is_label: whether an empty list is a
    label.   label_key: function of a label of a Dataset, to compare labels.
    """
    has_label_columns = False
    empty_is_label = False
    label_key = staticmethod(str)
    read_file = staticmethod(read_table)

    def __init__(self, kind, definition):
        self.kind, self.definition, self.notices = kind, definition, []
        self.name = definition["name"]

    def load(self, tables):
        """TaskData. tables: {split: Table}.

        Raises UserError, with file, line and column where possible, for what does not fit. Without a dev file, a share
        of the training rows is the dev set, by `split_rows`; the same rows at every call.
        """
        texts, columns = self.columns(tables)
        if len(columns) > 1 and not self.has_label_columns:
            raise UserError(f"'label' of the task {self.name!r} names {len(columns)} columns, but the kind "
                            f"{self.kind.kind!r} has one. Set it to one column, or 'kind' to 'multilabel'.")
        check_lists(tables["train"], columns)
        tables, unlabelled = dict(tables), None
        self.notices += [notice for table in tables.values() for notice in table.notices]
        if "test" in tables and not self.has_labels(tables, columns):
            unlabelled = tables.pop("test")
        label, labels = self.labels(tables, texts, columns)
        fields = self.fields(labels)
        task = self.kind(**self.common_fields(fields.get("labels", ())), **fields,
                         texts=self.text_names(texts), file_columns=(*texts, label))
        columns, test_task = dict(zip(task.texts, texts)), None
        splits = self.training_splits(tables, columns | {"label": label}, task)
        task = self.fitted(task, splits["train"])
        labelled = dict(splits)
        if unlabelled is not None:
            splits["test"] = to_dataset(unlabelled, columns, task, "test", self.notices)
        elif "test" in tables:
            test_task = self.test_task(task, labels["test"])
            splits["test"] = labelled["test"] = to_dataset(
                tables["test"], columns | {"label": label}, test_task, "test", self.notices)
        notices = [f"{self.kind.kind}, {self.describe(task)}", *self.notices, *shared_texts(labelled, task),
                   *self.label_notices(task, labelled)]
        return TaskData(task, splits, {}, notices, test_task, self.baseline(task, splits))

    def columns(self, tables):
        """(columns of the texts, columns of the labels); UserError if the files lack a column that they need."""
        definition, columns = self.definition, [*tables["train"].rows]
        groups, choices = [*filter(None, [definition["groups"]])], definition["choices"] or []
        if is_conll(definition["train"]):
            names = definition["text"] or columns[:1], definition["label"] or columns[-1:]
            texts, label = ([columns[-1] if name == "-1" else name for name in of_kind] for of_kind in names)
        else:
            label = definition["label"] or ["label"]
            texts = definition["text"] or [column for column in columns if column not in (*label, *groups, *choices)]
        of_all = [*texts, *choices]
        required = {"train": [*label, *of_all, *groups], "validation": [*label, *of_all], "test": of_all}
        for split, table in tables.items():
            check_columns(table, required[split], f"Set 'text' and 'label' of the task {self.name!r} to columns of its "
                          "files, of which .csv and .tsv begin with a header and .conll has a word and its tag per "
                          "line. Questions in the format of SQuAD or MRQA need 'kind': 'questions'.")
        if definition["text"] is None and len(texts) != 1:
            raise UserError(f"{definition['train']} has the columns {', '.join(columns)}: set 'text' of the task "
                            f"{self.name!r} to the column of the text, or to a list of two.")
        return texts, label

    def has_labels(self, tables, columns):
        """Whether the test file has labels. Empty ones are none, and neither is -1, as on the hub, unless the training
        file has it.
        """
        test = tables["test"]
        if missing := [column for column in columns if column not in test.rows]:
            near = nearest(missing[0], test.rows)
            if near and near not in tables["train"].rows:
                self.notices.append(f"{test.source} has no column {missing[0]!r}, so it is not scored. Rename the "
                                    f"column {near!r} if it has the labels")
            return False
        trained, found = (_labels_of(tables[split], columns) for split in ("train", "test"))
        found -= {""} if self.empty_is_label else {"", "[]"}
        missing = {"-1", "-1.0"}
        if found and found <= missing:
            are_known = "as in some training rows, so they count" if found & trained else "so it is only predicted"
            self.notices.append(f"all labels of {test.source} are -1, {are_known}")
        return not found <= missing - trained

    def labels(self, tables, texts, columns):
        """(column of the labels, {split: Series of all its labels as strings}).

        Replaces the tables whose labels have to be converted. tables: {split: Table}.   columns: of the labels.
        """
        return columns[0], labels_by_split(tables, columns[0])

    def fields(self, labels):
        """{field: value} of the task that follow from labels, {split: Series of strings}. UserError for those that do
        not fit.
        """
        return {}

    def common_fields(self, labels=()):
        """{field: value} of any kind. labels: names of its classes."""
        return {"name": self.name, "title": self.name, "score_titles": (("test", f"{self.name} (test)"),),
                "metrics": self.metrics(labels),
                "test_files": {"test": self.name + self.kind.suffix} if self.definition["test"] else {}}

    def class_names(self, labels):
        """The different labels of a Series, in alphabetical order, or by value if all are numbers.

        UserError for fewer than two.
        """
        names = set(labels)
        names = sorted(set(map(without_fraction, names)) if are_whole(names) else names)
        if numbers_in(names).notna().all():
            names.sort(key=float)
        if len(names) < 2:
            raise UserError(f"{self.definition['train']}: all labels are {', '.join(map(repr, names)) or 'missing'}. "
                            "Classification and tagging need at least two different labels, and tagging a list of tags "
                            "in each row.")
        return tuple(names)

    def class_fields(self, labels):
        """{"labels", "positive"} of a task whose classes are the labels of a Series. UserError for another 'positive'.
        """
        names, positive = self.class_names(labels), self.definition["positive"]
        if positive not in (None, *names):
            raise UserError(f"positive={positive!r} of the task {self.name!r} is not one of its labels "
                            f"{shortened(names)}.")
        if positive and "f1" not in (self.definition["metrics"] or ()):
            self.notices.append("no effect without f1 in 'metrics': positive")
        return {"labels": names, "positive": positive}

    def metrics(self, labels):
        """The metrics of the task, by default `default_metrics`. UserError for one that does not apply."""
        applicable, wanted = self.applicable_metrics(labels), self.definition["metrics"] or []
        if unknown := sorted({*wanted} - {*applicable}):
            raise UserError(f"metrics={unknown[0]!r} of the task {self.name!r} does not apply to {self.kind.kind} "
                            f"(labels: {shortened(labels)}). Choose from {', '.join(applicable)}, or set 'kind'. f1 "
                            "needs two labels, entity_f1 tags such as B-NP, I-NP and O.")
        if {*wanted[:1]} & self.kind.metrics_class.errors:
            raise UserError(f"metrics of the task {self.name!r} begins with {wanted[0]!r}, but the best run is the one "
                            "with the highest value of the first metric. Choose another first metric.")
        return tuple(wanted or self.default_metrics(applicable))

    def applicable_metrics(self, labels):
        """Names of the metrics that can be computed for these labels."""
        return [name for name in self.kind.metrics_class.functions if name != "f1" or len(labels) in (0, 2)]

    def default_metrics(self, applicable):
        """The metrics if the definition names none."""
        return self.kind.metrics_class.default_metrics

    def text_names(self, columns):
        """`texts` of the task. columns: of the texts in its files."""
        return ("text1", "text2") if len(columns) == 2 else ("text",)

    def training_splits(self, tables, columns, task):
        """{"train", "validation"}: Datasets. UserError if there is no dev set.

        columns: of the texts and the label, as for `to_dataset`.
        """
        groups, contents = {}, {}
        if self.definition["groups"]:
            groups, contents = {"group": self.definition["groups"]}, {"group": _GROUP}
        train = to_dataset(tables["train"], columns | groups, task, "train", self.notices, **contents)
        if "validation" in tables:
            dev = to_dataset(tables["validation"], columns, task, "validation", self.notices)
            return {"train": train, "validation": dev}
        splits = split_rows(train, self.strata(train["label"][:]), self.definition["dev"])
        if not splits["validation"]:
            raise UserError(f"{self.definition['train']} has too few rows for a dev set. Add rows, or set 'dev' of "
                            f"{self.name!r} to a file.")
        return splits

    def strata(self, labels):
        """The class of each row, of which a dev set gets its share. labels: of a Dataset."""
        return [0] * len(labels)

    def fitted(self, task, rows):
        """The task with what follows from its training rows, a Dataset: balanced weights of the classes."""
        if self.definition["class_weights"] != "balanced":
            return task
        return replace(task, class_weights=self.balanced_weights(task, rows["label"][:]))

    def balanced_weights(self, task, labels):
        """Weights of the classes, inversely proportional to their training rows (of tags: words), of which each counts
        as having at least one.
        """
        counts = pd.Series(labels).explode().value_counts().reindex(range(len(task.labels))).fillna(1)
        return tuple((counts.sum() / (len(counts) * counts)).tolist())

    def test_task(self, task, labels):
        """The task to score the test file with. labels: of this file, a Series of strings."""
        return task

    def baseline(self, task, splits):
        """`TaskData.baseline`."""

    def describe(self, task):
        """The labels and metrics of the task, as text."""
        text = f"{len(task.labels)} labels; metrics {', '.join(task.metrics)}"
        if "f1" in task.metrics:
            text += f" (f1 of {task.positive or task.labels[1]!r}; 'positive' selects the label)"
        return text

    def label_notices(self, task, labelled):
        """Messages about the labels of {split: Dataset}."""
        return [*label_counts(labelled, task.labels), *contradictions(labelled, task, self.label_key)]


def labels_by_split(tables, column):
    """{split: Series of the labels of the good rows that have one, as strings}."""
    return {split: labels_in(table, column).explode().dropna().map(as_label) for split, table in tables.items()}


def _labels_of(table, columns):
    """The different labels in columns of a Table, as strings; those of lists are their items."""
    cells = table.rows[columns].to_numpy().ravel()
    return {as_label(item) for cell in cells for item in (cell or [cell] if isinstance(cell, list) else [cell])}


def check_separator(table, column, definition):
    """UserError for labels that are joined by another character than the default separator, if none is set."""
    labels = labels_in(table, column)
    labels = labels[labels.map(lambda cell: isinstance(cell, str))]
    joint = joint_of({name for label in labels for name in label.split(SEPARATOR)})
    if joint and definition["separator"] is None:
        refuse(table.source, labels, labels.str.contains(joint, regex=False), f"labels contain {joint!r}",
               f"Set 'separator' to {joint!r} and 'kind' to 'multilabel' if it separates several labels of a text, "
               f"else 'separator' to {SEPARATOR!r}.")


def check_lists(table, columns):
    """UserError for lists of numbers with a fraction, which are neither labels nor tags."""
    has_fraction = lambda cell: isinstance(cell, list) and any(isinstance(item, float) and item % 1 for item in cell)
    for name, cells in table.rows[columns].items():
        are_numbers = cells.map(has_fraction)
        refuse(table.source, cells, are_numbers & (are_numbers.mean() > .5), f"cells of {name!r} are lists of numbers",
               "A task predicts one number for each text: write a column for each, and make a task of each.")
