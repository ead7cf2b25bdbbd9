"""Tables of own tasks: which columns hold texts and labels, the kind of the task, its labels, and its training, dev and test sets."""
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd

from _utils.errors import PlainError
from _utils.glue.own_files import read_table
from _utils.glue.tables import TaskData, as_label, check_columns, items, shortened, to_dataset
from _utils.glue.tasks import METRICS_OF_KIND, Task, TestSet

MAX_LABELS = 1000
_SPLITS = {"train": "train", "dev": "validation", "test": "test"}
_BIO = re.compile(r"O|[BIESLU]-\S+")  # tags that mark where entities begin and end: BIO, BIOES, BILOU


def load_own_task(given):
    """TaskData of an own task. given: from `complete_own_task`.

    Without a dev file, a share of the training rows is the dev set; the same rows at every call.
    Raises PlainError, with file, line and column where possible, for what does not fit.
    """
    tables = {split: read_table(given[key]) for key, split in _SPLITS.items() if isinstance(given[key], str)}
    texts, label = _columns(given, tables)
    labels = {split: _labels(table, label) for split, table in tables.items() if split != "test" or _is_labelled(table, label)}
    kind = given["kind"] or _kind_of(labels["train"])
    labels = {split: _tags(found) if kind == "tagging" else found.map(as_label) for split, found in labels.items()}
    task = _with_metrics(_task(given, tables, texts, kind, labels))
    test_task, notices = None, [_description(task, given)]
    if "test" in labels:
        # Tags that only the test set has are no part of the Task: the test file may change.
        unknown = [tag for tag in labels["test"].unique() if task.is_tagging and tag not in task.labels]
        test_task = replace(task, labels=(*task.labels, *unknown))
        if unknown:
            notices.append(f"no training or dev sentence has the tags {shortened(unknown)} of the test file, so they count as errors")
    data = TaskData(task, {}, {}, notices, test_task)
    for split, table in tables.items():
        columns = dict(zip(task.texts, texts)) | ({"label": label} if split in labels else {})
        advice = "Correct it: in a test file, no row is skipped." if split == "test" else "Correct these rows, or remove them."
        data.splits[split] = to_dataset(table, columns, test_task if split == "test" and test_task else task, split, notices, advice)
    if "validation" not in tables:
        data.splits.update(_split(data.splits["train"], given["dev"], given["train"]))
    return data


def _columns(given, tables):
    """(columns of the texts, column of the label); PlainError if the files lack one."""
    columns, label = list(tables["train"].rows), given["label"]
    if isinstance(columns[0], int):  # CoNLL
        label = columns[-1] if label in (None, -1) else label
        texts = [columns[-1] if column == -1 else column for column in given["text"] or [0]]
    else:
        label = "label" if label is None else label
        texts = given["text"] or [column for column in columns if column != label]
        if given["text"] is None and label in columns and len(texts) != 1:
            raise PlainError(f"{given['train']} has the columns {', '.join(columns)}: set 'text' of the task {given['name']!r} to the "
                             "column of the text, or to a list of two.")
    for split, table in tables.items():
        required = texts if split == "test" else [label, *texts]
        check_columns(table.source, required, list(table.rows), f"Set 'text' and 'label' of the task {given['name']!r} to columns of its "
                      "files.")
    return texts, label


def _is_labelled(table, column):
    """Whether a table has labels other than -1, as in the test sets of the hub."""
    return column in table.rows and not table.rows[column].map(as_label).isin(["", "-1"]).all()


def _labels(table, column):
    """The labels of the good rows that have one: strings, numbers, or lists of labels."""
    cells = table.rows.loc[table.problems.isna(), column]
    labels = cells[cells.map(as_label) != ""]
    if labels.empty:
        raise PlainError(f"{table.source}: the column {column!r} is empty. It must contain the labels.")
    return labels


def _tags(labels):
    """The tags of all words."""
    return labels.map(items).explode().dropna()


def _kind_of(labels):
    """The kind that follows from the training labels: lists are tags, numbers with a fraction are scores, anything else is a class."""
    if labels.map(type).eq(list).any():
        return "tagging"
    numbers = _numbers(labels.map(as_label))
    return "regression" if numbers.notna().all() and (numbers % 1 > 0).any() else "classification"


def _numbers(labels):
    """The numbers that labels spell; NaN for those that spell none."""
    return pd.to_numeric(pd.Series(labels), errors="coerce")


def _task(given, tables, texts, kind, labels):
    """The Task without default metrics. labels: {split: Series of strings}."""
    name, test = given["name"], tables.get("test")
    if kind == "tagging" and len(texts) > 1:
        raise PlainError(f"The task {name!r} labels words, so it needs one column with the words, not {', '.join(map(repr, texts))}. Set "
                         "'text' to one column.")
    # A word of the dev set may have a tag that is in no training sentence; another class is a mistake in the row.
    found = pd.concat([labels[split] for split in labels if split != "test"]) if kind == "tagging" else labels["train"]
    values = {"scale": _scale(found, given)} if kind == "regression" else {"labels": _classes(found, kind, given)}
    tests = (TestSet("test", test.source, f"{name}{Path(test.source).suffix}", key=test.key),) if test else ()
    return Task(name, name, tuple(f"text{i}" if len(texts) > 1 else "text" for i, _ in enumerate(texts, 1)), kind=kind, tests=tests,
                devs=(("validation", tables.get("validation", tables["train"]).source),), metrics=tuple(given["metrics"] or ()),
                score_titles=(("test", f"{name} (test)"),), is_own=True, **values)


def _scale(labels, given):
    """(mean, standard deviation) of scores."""
    scores = _numbers(labels).dropna().to_numpy()
    if len(set(scores)) < 2:
        raise PlainError(f"{given['train']}: the labels are {shortened(labels.unique(), 3)}. Regression needs at least two different "
                         "numbers as labels.")
    return float(np.mean(scores)), float(np.std(scores))


def _classes(found, kind, given):
    """The different labels, in alphabetical order, or by value if all are numbers. PlainError for one label, or one in each row."""
    labels = sorted(set(found))
    if _numbers(labels).notna().all():
        labels.sort(key=float)
    if len(labels) < 2:
        raise PlainError(f"{given['train']}: all labels are {', '.join(map(repr, labels)) or 'malformed'}. Classification and tagging need "
                         "at least two different labels, and tagging a list of tags in each row.")
    if kind == "classification" and len(found) > 20 and len(labels) > min(MAX_LABELS, len(found) / 2):
        raise PlainError(f"{given['train']}: {len(labels):,} different labels in {len(found):,} rows, such as {shortened(labels, 3)}. Set "
                         "'label' to the column of the labels, or 'kind': 'regression' if they are numbers to predict.")
    return tuple(labels)


def _with_metrics(task):
    """The Task with its metrics, or those of its kind; PlainError for one that does not apply."""
    has_entities = all(map(_BIO.fullmatch, task.labels)) and set(task.labels) - {"O"}
    default = {"regression": ("spearman", "pearson"), "classification": ("accuracy", "macro_f1"),
               "tagging": ("entity_f1", "accuracy") if has_entities else ("accuracy", "macro_f1")}
    metrics = task.metrics or default[task.kind]
    if wrong := set(metrics) - set(METRICS_OF_KIND[task.kind]):
        raise PlainError(f"metrics={wrong.pop()!r} does not apply to {task.kind}, the kind of the task {task.name!r}. Choose from "
                         f"{', '.join(METRICS_OF_KIND[task.kind])}, or set 'kind'.")
    if "f1" in metrics and len(task.labels) != 2:
        raise PlainError(f"metrics='f1' of the task {task.name!r} is the F1 of one class against the other, but there are "
                         f"{len(task.labels)} labels. Use 'macro_f1', the mean over the classes.")
    if "entity_f1" in metrics and not has_entities:
        raise PlainError(f"metrics='entity_f1' of the task {task.name!r} needs tags such as B-NP, I-NP and O, but its labels are "
                         f"{shortened(task.labels)}. Use 'accuracy' or 'macro_f1'.")
    return replace(task, metrics=metrics)


def _description(task, given):
    """What was found out, to be printed."""
    if task.is_regression:
        found = "regression, scores with mean {:.4g} and standard deviation {:.4g}".format(*task.scale)
    else:
        found = f"{task.kind}, {len(task.labels)} labels: {shortened(task.labels)}"
    numbers = not task.is_regression and given["kind"] is None and _numbers(task.labels).notna().all()
    return f"{found}; metrics {', '.join(task.metrics)}" + (" (set 'kind': 'regression' to predict numbers)" if numbers else "")


def _split(rows, share, path):
    """{"train", "validation"}: a share of the rows, drawn with a fixed seed, becomes the dev set."""
    n_dev = round(share * len(rows))
    if not 0 < n_dev < len(rows):
        raise PlainError(f"{path} has {len(rows)} rows, of which dev={share} leaves none for training or for the dev set. Add rows, or set "
                         "'dev' to a file.")
    order = np.random.default_rng(0).permutation(len(rows))
    return {"train": rows.select(np.sort(order[n_dev:])), "validation": rows.select(np.sort(order[:n_dev]))}
