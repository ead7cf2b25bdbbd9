"""The tables of a custom task: its columns, labels and metrics, the dev set, and warnings.

`Loading` is that of classification. Another kind of task subclasses it and overrides the steps in which it differs.
"""
from dataclasses import replace
from functools import partial

import datasets
import numpy as np
import pandas as pd

from _utils.custom.cells import are_whole, labels_in, numbers_in, without_fraction
from _utils.custom.definition import is_conll
from _utils.custom.splits import label_counts, shared_texts, split_rows
from _utils.custom.table_files import read_table
from _utils.custom.word_baseline import word_scores
from _utils.errors import UserError
from _utils.tasks.parts import Column
from _utils.tasks.tables import TaskData, as_label, check_columns, shortened, to_dataset

_HEADER = " A .csv or .tsv file begins with a header; if a line is a word with its tag, let the name end with .conll."
_GROUP = Column(lambda cells: cells.map(as_label).replace("", np.nan), "a group", datasets.Value("string"))


class Loading:
    """How the files of a custom task become its TaskData.

    kind: the CustomTask class.   definition: from `complete_custom_task`.   reason: for the kind, if it is not given.
    notices: messages, which the steps append.
    unused: keys of the dictionary that do not apply.   has_label_columns: whether each label may have a column of 1 or
    0.   empty_is_label: whether an empty list is a label.   has_word_baseline: whether texts have a class each.
    """
    unused = ()
    has_label_columns = False
    empty_is_label = False
    has_word_baseline = False
    read_file = staticmethod(read_table)

    def __init__(self, kind, definition, reason=""):
        self.kind, self.definition, self.reason, self.notices = kind, definition, reason, []
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
        tables = {split: _with_labels(table, columns) for split, table in tables.items()}
        check_lists(tables["train"], columns)
        of_test, is_labelled = [], False
        if "test" in tables:
            is_labelled, of_test = self.has_labels(tables, columns)
            if not is_labelled:
                tables["test"] = _without_labels(tables["test"], columns)
        label, labels = self.labels(tables, texts, columns)
        fields = self.fields(labels)
        task = self.kind(**self.common_fields(tables, fields.get("labels", ())), **fields,
                         texts=self.text_names(texts), file_columns=(*texts, label))
        columns = dict(zip(task.texts, texts))
        splits = self.training_splits(tables, columns | {"label": label}, task)
        task, test_task = self.fitted(task, splits["train"]), None
        if is_labelled:
            test_task = self.test_task(task, labels["test"])
            columns |= {"label": label}
        if "test" in tables:
            splits["test"] = to_dataset(tables["test"], columns, test_task or task, "test", self.notices)
        labelled = {split: rows for split, rows in splits.items() if split != "test" or test_task}
        notices = [*self.notices, *of_test, *shared_texts(labelled, task), *self.label_notices(task, labelled)]
        described = f"{self.kind.kind}{self.reason}, {self.describe(task)}"
        baseline = partial(word_scores, task, splits) if self.has_word_baseline else None
        return TaskData(task, splits, {}, [described, *notices], test_task, baseline)

    def columns(self, tables):
        """(columns of the texts, columns of the labels); UserError if the files lack a column that they need."""
        definition, columns = self.definition, [*tables["train"].rows]
        groups, choices = [*filter(None, [definition["groups"]])], definition["choices"] or []
        if columns and is_conll(definition["train"]):
            names = definition["text"] or ["0"], definition["label"] or ["-1"]
            texts, label = ([columns[-1] if column == "-1" else column for column in of_kind] for of_kind in names)
        else:
            label = definition["label"] or ["label"]
            texts = definition["text"] or [column for column in columns if column not in (*label, *groups, *choices)]
        of_all = [*texts, *choices]
        keys = ["'text'", "'label'", *(repr(key) for key in ("choices", "groups") if definition[key])]
        required = {"train": [*label, *of_all, *groups], "validation": [*label, *of_all], "test": of_all}
        for split, table in tables.items():
            check_columns(table, required[split], f"Set {' and '.join(keys)} of the task {self.name!r} to columns of "
                          f"its files.{_HEADER * table.source.lower().endswith(('.csv', '.tsv'))}")
        if definition["text"] is None and len(texts) != 1:
            raise UserError(f"{definition['train']} has the columns {', '.join(columns)}: set 'text' of the task "
                            f"{self.name!r} to the column of the text, or to a list of two.")
        return texts, label

    def has_labels(self, tables, columns):
        """(whether a test file has labels, [notice]). Empty ones are none, and neither is -1, as on the hub, unless the
        training file has it.
        """
        trained, found = _labels_of(tables["train"], columns), _labels_of(tables["test"], columns) - {""}
        missing = {"-1", "-1.0"}
        are_known = "as in some training rows, so they count" if found & trained else "so it is only predicted"
        notices = []
        if found and found <= missing:
            notices = [f"all labels of {tables['test'].source} are -1, {are_known}"]
        empty = set() if self.empty_is_label else {"[]"}
        return not found <= missing - trained | empty, notices

    def labels(self, tables, texts, columns):
        """(column of the labels, {split: Series of all its labels as strings}).

        Replaces the tables whose labels have to be converted. tables: {split: Table}.   columns: of the labels.
        """
        return columns[0], labels_by_split(tables, columns[0])

    def fields(self, labels):
        """{field: value} of the task that follow from labels, {split: Series of strings}. UserError for those that do
        not fit.
        """
        names = self.class_names(labels["train"])
        self.check_share_of_classes(labels["train"], names)
        return self.class_fields(names)

    def common_fields(self, tables, labels=()):
        """{field: value} of any kind. tables: {split: ...}.   labels: names of its classes."""
        return {"name": self.name, "title": self.name, "score_titles": (("test", f"{self.name} (test)"),),
                "metrics": self.metrics(labels),
                "test_files": dict.fromkeys({"test"} & tables.keys(), self.name + self.kind.suffix)}

    def class_names(self, labels):
        """The different labels of a Series, in alphabetical order, or by value if all are numbers.

        UserError for fewer than two.
        """
        names = set(labels)
        if are_whole(names):
            names = set(map(without_fraction, names))
        names = sorted(names)
        if numbers_in(names).notna().all():
            names.sort(key=float)
        if len(names) < 2:
            raise UserError(f"{self.definition['train']}: all labels are {', '.join(map(repr, names)) or 'missing'}. "
                            "Classification and tagging need at least two different labels, and tagging a list of tags "
                            "in each row.")
        return tuple(names)

    def check_share_of_classes(self, labels, names):
        """UserError if nearly each row has a label of its own."""
        if len(labels) > 20 and len(names) > len(labels) / 2:
            raise UserError(f"{self.definition['train']}: {len(names):,} different labels in {len(labels):,} rows, "
                            f"such as {shortened(names, 3)}. Set 'label' to the column of the labels, or 'kind': "
                            "'regression' if they are numbers to predict.")

    def class_fields(self, names):
        """{"labels", "class_weights", "positive"} of a task with classes of these names.

        class_weights: the weight of each class in the loss, 1 by default. Balanced ones follow from the training rows
        (`fitted`).
        """
        weights, positive = self.definition["class_weights"] or {}, self.definition["positive"]
        weights = {} if weights == "balanced" else weights
        for key, value in [("positive", positive), *(("class_weights", label) for label in weights)]:
            if value not in (None, *names):
                raise UserError(f"{key}={value!r} of the task {self.name!r} is not one of its labels "
                                f"{shortened(names)}.")
        weights = tuple(float(weights.get(label, 1)) for label in names if weights)
        return {"labels": names, "class_weights": weights, "positive": positive}

    def metrics(self, labels):
        """The metrics of the task, by default `default_metrics`. UserError for one that does not apply."""
        applicable, wanted = self.applicable_metrics(labels), self.definition["metrics"] or []
        if unknown := sorted({*wanted} - {*applicable}):
            raise UserError(f"metrics={unknown[0]!r} of the task {self.name!r} does not apply to {self.kind.kind} "
                            f"(labels: {shortened(labels)}). Choose from {', '.join(applicable)}, or set 'kind'. f1 "
                            "needs two labels, entity_f1 tags such as B-NP, I-NP and O.")
        if {*wanted[:1]} & self.kind.Scores.errors:
            raise UserError(f"metrics of the task {self.name!r} begins with {wanted[0]!r}, but the best run is the one "
                            "with the highest value of the first metric. Choose another first metric.")
        return tuple(wanted or self.default_metrics(applicable))

    def applicable_metrics(self, labels):
        """Names of the metrics that can be computed for these labels."""
        return [name for name in self.kind.Scores.functions if name != "f1" or len(labels) == 2]

    def default_metrics(self, applicable):
        """The metrics if the definition names none."""
        return self.kind.Scores.default_metrics

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
        return labels

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

    def describe(self, task):
        """The labels and metrics of the task, as text."""
        return f"{len(task.labels)} labels; metrics {', '.join(task.metrics)}{self.hints(task)}"

    def hints(self, task):
        """Keys that change what `describe` returns, as text."""
        text = ""
        if "f1" in task.metrics:
            text += f" (f1 of {task.positive or task.labels[1]!r}; 'positive' selects the label)"
        if numbers_in(task.labels).notna().all():
            text += " (set 'kind': 'regression' to predict numbers)"
        return text

    def label_notices(self, task, labelled):
        """Messages about the labels of {split: Dataset}."""
        return label_counts(labelled, task.labels)


def labels_by_split(tables, column):
    """{split: Series of the labels of the good rows that have one, as strings}."""
    return {split: labels_in(table, column).explode().dropna().map(as_label) for split, table in tables.items()}


def _with_labels(table, columns):
    """The Table with empty labels if it lacks some of their columns, as a test file may."""
    return table if {*columns} <= {*table.rows} else _without_labels(table, columns)


def _without_labels(table, columns):
    """The Table with empty labels."""
    return table._replace(rows=table.rows.assign(**dict.fromkeys(columns, "")))


def _labels_of(table, columns):
    """The different labels in columns of a Table, as strings; those of lists are their items."""
    cells = table.rows[columns].to_numpy().ravel()
    return {as_label(item) for cell in cells for item in (cell or [cell] if isinstance(cell, list) else [cell])}


def check_lists(table, columns):
    """UserError for lists of numbers with a fraction, which are neither labels nor tags."""
    has_fraction = lambda cell: isinstance(cell, list) and any(isinstance(item, float) and item % 1 for item in cell)
    for name, cells in table.rows[columns].items():
        are_numbers = cells.map(has_fraction)
        if are_numbers.mean() > .5:
            place = are_numbers.idxmax()
            raise UserError(f"{table.source}: the column {name!r} has lists of numbers, such as {cells[place]!r:.60} "
                            f"in {place}. A task predicts one number for each text: write a column for each, and make "
                            "a task of each.")
