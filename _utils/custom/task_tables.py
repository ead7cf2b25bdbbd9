"""From the tables of a custom task to its TaskData: columns, labels, metrics, Datasets and warnings.

The `load` of each kind of task calls these functions in this order, and does what only this kind needs between them.
"""
from typing import NamedTuple

import datasets
import numpy as np

from _utils.custom.cells import joint_of, labels_in, refuse
from _utils.custom.definition import SEPARATOR, is_conll, keys_without_effect
from _utils.custom.splits import shared_texts, split_rows
from _utils.errors import UserError
from _utils.tasks.parts import Column
from _utils.tasks.tables import Table, TaskData, as_label, check_columns, nearest, shortened, skipped_rows, to_dataset

# Of a sentence, whose cells are lists with an item for each word, the group of its first word.
_GROUP = Column(lambda cells: cells.map(lambda cell: as_label(next(iter(cell), "") if isinstance(cell, list) else cell))
                .replace("", np.nan), "a group", datasets.Value("string"))


class TaskTables(NamedTuple):
    """The tables of a custom task.

    labelled: {split: Table} of those with labels.   unlabelled: the Table of a test set without labels, or None.
    texts, labels: columns.   messages: about the files; later steps append theirs.
    """
    labelled: dict
    unlabelled: Table | None
    texts: list
    labels: list
    messages: list

    @property
    def fields(self):
        """{field: value} of a task with these columns."""
        n = len(self.texts)
        return {"texts": tuple(f"text{i + 1}" for i in range(n)) if n > 1 else ("text",),
                "file_columns": (*self.texts, *self.labels)}


def choose_columns(tables, definition):
    """(columns of the texts, columns of the labels) of {split: Table}. UserError if a file lacks a required column."""
    columns, name = [*tables["train"].rows], definition["name"]
    groups, choices = [*filter(None, [definition["groups"]])], definition["choices"] or []
    if is_conll(definition["train"]):
        others = [column for column in columns if column not in groups]
        names = definition["text"] or others[:1], definition["label"] or others[-1:]
        texts, labels = ([columns[-1] if name == "-1" else name for name in of_kind] for of_kind in names)
    else:
        labels = definition["label"] or ["label"]
        texts = definition["text"] or [column for column in columns if column not in (*labels, *groups, *choices)]
    of_all = [*texts, *choices]
    of_test = labels if "test" in tables and {*labels} & {*tables["test"].rows} else []  # which may have no labels
    required = {"train": [*labels, *of_all, *groups], "validation": [*labels, *of_all], "test": [*of_test, *of_all]}
    for split, table in tables.items():
        check_columns(table, required[split], f"Set 'text', 'label', 'groups' and 'choices' of the task {name!r} to "
                      "columns of its files, of which .csv and .tsv begin with a header and .conll has a word and its "
                      "tag per line. Questions in the format of SQuAD or MRQA need 'kind': 'questions'.")
        if 2 * len(table.problems) > len(table.rows):  # such as texts with commas: there are hardly labels to read
            skipped_rows(table, table.problems, split)
    if definition["text"] is None and len(texts) != 1:
        raise UserError(f"{definition['train']} has the columns {', '.join(columns)}: set 'text' of the task "
                        f"{name!r} to the column of the text, or to a list of two.")
    if len(labels) > 1 and definition["kind"] not in (None, "multilabel"):
        raise UserError(f"'label' of the task {name!r} names {len(labels)} columns, but the kind "
                        f"{definition['kind']!r} has one. Set it to one column, or 'kind' to 'multilabel'.")
    return texts, labels


def find_labels(tables, definition):
    """TaskTables of {split: Table}. UserError as from `choose_columns`, and for lists of numbers."""
    texts, labels = choose_columns(tables, definition)
    check_lists(tables["train"], labels)
    labelled, unlabelled = dict(tables), None
    messages = [*keys_without_effect(definition), *(text for table in tables.values() for text in table.warnings)]
    if "test" in tables:
        is_labelled, warnings = _has_labels(tables["test"], tables["train"], labels)
        messages += warnings
        if not is_labelled:
            unlabelled = labelled.pop("test")
    return TaskTables(labelled, unlabelled, texts, labels, messages)


def _has_labels(test, train, columns):
    """(whether the Table of a test set has labels, [warning]).

    A file with only empty cells or lists has none. Neither is -1 a label, as on the hub, unless the training file has
    it. UserError if only some are -1 and no training label is negative.
    """
    if columns[0] not in test.rows:
        near = nearest(columns[0], test.rows)
        is_renamed = near and near not in train.rows
        return False, [f"{test.source} has no column {columns[0]!r}, so it is not scored. Rename the column {near!r} "
                       "if it has the labels"] * bool(is_renamed)
    trained, found = _labels_of(train, columns), _labels_of(test, columns)
    found.discard("")
    unknown, warnings = {"-1", "-1.0"}, []
    if found and found <= unknown:
        are_known = "as in some training rows, so they count" if found & trained else "so it is only predicted"
        warnings = [f"all labels of {test.source} are -1, {are_known}"]
    elif found & unknown - trained and not any(label.startswith("-") for label in trained):
        raise UserError(f"{test.source}: some labels are -1, which no training row has, but not all. Write the labels "
                        "of all rows, or -1 for all.")
    return not found <= unknown - trained, warnings


def _labels_of(table, columns):
    """The different labels in columns of a Table, as strings. Those of lists are their items."""
    cells = table.rows[columns].to_numpy().ravel()
    return {as_label(item) for cell in cells for item in (cell if isinstance(cell, list) else [cell])}


def labels_by_split(tables, column):
    """{split: Series of all labels of the good rows, as strings} of {split: Table}."""
    return {split: labels_in(table, column).explode().dropna().map(as_label) for split, table in tables.items()}


def common_fields(kind, definition, labels=(), applicable=None):
    """{field: value} that all kinds of custom tasks have. UserError for a metric that does not apply.

    labels: names of the classes.   applicable: names of metrics that can be computed for them; None: all of the kind.
    """
    name, wanted = definition["name"], definition["metrics"] or []
    applicable = applicable or [*kind.metrics_class.functions]
    if unknown := sorted({*wanted} - {*applicable}):
        by_labels = ""
        if unknown[0] in kind.metrics_class.functions:
            by_labels = (f" with the labels {shortened(labels)} (f1 needs two labels, entity_f1 tags such as B-NP, "
                         "I-NP and O)")
        raise UserError(f"metrics={unknown[0]!r} of the task {name!r} does not apply to {kind.kind}{by_labels}. Choose "
                        f"from {', '.join(applicable)}, or set 'kind'.")
    if {*wanted[:1]} & kind.metrics_class.errors:
        raise UserError(f"metrics of the task {name!r} begins with {wanted[0]!r}, but the best run is the one with the "
                        "highest value of the first metric. Choose another first metric.")
    return {"name": name, "title": name, "score_titles": (("test", f"{name} (test)"),),
            "metrics": tuple(wanted or kind.metrics_class.default_metrics),
            "test_files": {"test": name + kind.suffix} if definition["test"] else {}}


def to_datasets(tables, definition, task, classes_of=None, test_task=None):
    """({split: Dataset}, those with labels) of TaskTables. UserError if there is no dev set.

    Without a dev file, a share of the training rows is the dev set, by `split_rows`; the same rows at every call.
    classes_of: labels of a Dataset -> the class of each row, of which a dev set gets its share.
    test_task: the Task to read a labelled test set with.
    """
    read, columns = tables.labelled, dict(zip((*task.texts, "label"), task.file_columns))
    groups = {"group": definition["groups"]} if definition["groups"] else {}
    train = to_dataset(read["train"], columns | groups, task, "train", tables.messages, group=_GROUP)
    if "validation" in read:
        splits = {"train": train,
                  "validation": to_dataset(read["validation"], columns, task, "validation", tables.messages)}
    else:
        splits = split_rows(train, definition["dev"], classes_of and classes_of(train["label"][:]))
        if not splits["validation"]:
            raise UserError(f"{definition['train']} has too few rows for a dev set. Add rows, or set 'dev' of "
                            f"{definition['name']!r} to a file.")
    if "test" in read:
        splits["test"] = to_dataset(read["test"], columns, test_task or task, "test", tables.messages)
    labelled = dict(splits)
    if tables.unlabelled is not None:
        del columns["label"]
        splits["test"] = to_dataset(tables.unlabelled, columns, task, "test", tables.messages)
    return splits, labelled


def task_data(task, splits, labelled, messages, description, details="", warnings=(), test_task=None):
    """TaskData of the Datasets of `to_datasets`.

    messages: about the files.   description, details, warnings: of the labels and metrics, also messages.
    test_task: as in TaskData, None: task.
    """
    described = f"{task.kind}, {description}; metrics {', '.join(task.metrics)}{details}"
    return TaskData(task, splits, {}, [described, *messages, *shared_texts(labelled, task), *warnings],
                    (test_task or task) if "test" in labelled else None)


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
