"""Tables of own tasks: which columns hold texts and labels, the kind of the task, its labels, and its training, dev and test sets."""
import math
import re
from dataclasses import replace
from pathlib import Path

import numpy as np

from _utils.errors import PlainError
from _utils.glue.own_files import read_table
from _utils.glue.tables import TaskData, has_text, is_test, parse_rows
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
    files = {split: given[key] for key, split in _SPLITS.items() if split in tables}
    texts, label = _columns(given, files, tables)
    labelled = {split: _labels(files[split], table, label) for split, table in tables.items()
                if split != "test" or not _is_unlabelled(table, label)}
    kind = given["kind"] or _kind_of(labelled["train"])
    task = _with_metrics(_with_labels(_task(given, files, tables, texts, kind), labelled, files))
    test_task = _with_test_tags(task, labelled["test"]) if "test" in labelled else None
    data = TaskData(task, {}, {}, [_description(task, given, label), *_unknown_tags(task, test_task)], test_task)
    for split, table in tables.items():
        parse = _parser(test_task if split == "test" and test_task else task, texts, label if split in labelled else None, is_test(split))
        advice = "Correct it: in a test file, no row is skipped." if split == "test" else "Correct these rows, or remove them."
        data.splits[split] = parse_rows(files[split], table.rows, parse, task, split, data.notices, advice)
    if "validation" not in tables:
        data.splits.update(_split(data.splits["train"], given["dev"], files["train"]))
    return data


def _columns(given, files, tables):
    """(columns of the texts, column of the label); PlainError if the files lack one."""
    columns = tables["train"].columns
    is_conll = all(isinstance(column, int) for column in columns)
    if is_conll:
        label = columns[-1] if given["label"] in (None, -1) else given["label"]
        texts = [columns[-1] if column == -1 else column for column in given["text"] or [0]]
    else:
        label = "label" if given["label"] is None else given["label"]
        texts = given["text"] or [column for column in columns if column != label]
        if given["text"] is None and label in columns and len(texts) != 1:
            raise PlainError(f"{files['train']} has the columns {', '.join(columns)}: set 'text' of the task {given['name']!r} to the "
                             "column of the text, or to a list of two.")
    for split, table in tables.items():
        required = texts if split == "test" else [label, *texts]
        if missing := [column for column in required if column not in table.columns]:
            raise PlainError(f"{files[split]}: missing column {missing[0]!r} (found: {', '.join(map(str, table.columns))}). Set 'text' and "
                             f"'label' of the task {given['name']!r} to columns of its files.")
    if label in texts:
        raise PlainError(f"The column {label!r} of the task {given['name']!r} is both text and label. Set 'text' and 'label' to different "
                         "columns.")
    return texts, label


def _is_unlabelled(table, column):
    """Whether a table has no labels: no such column, empty cells, or -1 as in the test sets of the hub."""
    return all(isinstance(row, str) or row.get(column) in (None, "", -1, "-1") for _, row in table.rows)


def _labels(path, table, column):
    """(place, label) of the rows that have one; a label is a string, a number, or a list of labels."""
    labels = [(f"{path}, {place}", row[column]) for place, row in table.rows if isinstance(row, dict) and row.get(column) not in (None, "")]
    if not labels:
        raise PlainError(f"{path}: the column {column!r} is empty. It must contain the labels.")
    return labels


def _kind_of(labels):
    """The kind that follows from the training labels: lists are tags, numbers with a fraction are scores, anything else is a class."""
    if any(isinstance(label, list) for _, label in labels):
        return "tagging"
    numbers = [_as_number(label) for _, label in labels]
    return "regression" if None not in numbers and any(number % 1 for number in numbers) else "classification"


def _as_number(value):
    """A finite number, or None."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return number if math.isfinite(number) and not isinstance(value, bool) else None


def _task(given, files, tables, texts, kind):
    """The Task without labels and metrics."""
    name, devs = given["name"], (("validation", files.get("validation", files["train"])),)
    tests = (TestSet("test", files["test"], f"{name}{Path(files['test']).suffix}", key=tables["test"].key),) if "test" in files else ()
    if kind == "tagging" and len(texts) > 1:
        raise PlainError(f"The task {name!r} labels words, so it needs one column with the words, not {', '.join(map(repr, texts))}. Set "
                         "'text' to one column.")
    return Task(name, name, tuple(f"text{i}" if len(texts) > 1 else "text" for i, _ in enumerate(texts, 1)), kind=kind, tests=tests,
                devs=devs, metrics=tuple(given["metrics"] or ()), score_titles=(("test", f"{name} (test)"),), is_own=True)


def _with_labels(task, labelled, files):
    """The Task with its labels, or the scale of its scores."""
    found = {split: _values(task, labels) for split, labels in labelled.items() if split != "test"}
    if task.is_regression:
        scores = [score for score in map(_as_number, found["train"]) if score is not None]
        if len(set(scores)) < 2:
            place, label = next(((place, label) for place, label in labelled["train"] if _as_number(label) is None), labelled["train"][0])
            raise PlainError(f"{place}: the label {label!r:.40}. Regression needs at least two different numbers as labels.")
        return replace(task, scale=(float(np.mean(scores)), float(np.std(scores))))
    # A word of the dev set may have a tag that is in no training sentence; another class is a mistake in the row.
    labels = _sorted_labels(set().union(*found.values()) if task.is_tagging else set(found["train"]))
    _check_labels(task, labels, labelled["train"], files["train"])
    return replace(task, labels=labels)


def _with_test_tags(task, labelled):
    """The Task with the tags that only the test set has as its last labels. They are no part of the Task: the test file may change."""
    return replace(task, labels=tuple(dict.fromkeys((*task.labels, *_values(task, labelled))))) if task.is_tagging else task


def _unknown_tags(task, test_task):
    """[a notice about the tags that only the test set has], or []."""
    tags = test_task.labels[len(task.labels):] if test_task else ()
    return [f"no training or dev sentence has the tags {_shortened(tags)} of the test file, so they count as errors"] if tags else []


def _with_metrics(task):
    """The Task with its metrics, or those of its kind; PlainError for one that does not apply."""
    metrics = task.metrics or _default_metrics(task)
    wrong = [metric for metric in metrics if metric not in METRICS_OF_KIND[task.kind]]
    if wrong:
        raise PlainError(f"metrics={wrong[0]!r} does not apply to {task.kind}, the kind of the task {task.name!r}. Choose from "
                         f"{', '.join(METRICS_OF_KIND[task.kind])}, or set 'kind'.")
    if "f1" in metrics and len(task.labels) != 2:
        raise PlainError(f"metrics='f1' of the task {task.name!r} is the F1 of one class against the other, but there are "
                         f"{len(task.labels)} labels. Use 'macro_f1', the mean over the classes.")
    if "entity_f1" in metrics and not _has_entities(task):
        raise PlainError(f"metrics='entity_f1' of the task {task.name!r} needs tags such as B-NP, I-NP and O, but its labels are "
                         f"{_shortened(task.labels)}. Use 'accuracy' or 'macro_f1'.")
    return replace(task, metrics=tuple(metrics))


def _values(task, labels):
    """The labels of all rows as strings; of tagging, of all words."""
    if not task.is_tagging:
        return [_spelled(label, place) for place, label in labels]
    return [_spelled(tag, place) for place, tags in labels for tag in _tags(tags, place)]


def _tags(cell, place):
    """The tags of a sentence. PlainError if the cell is not a list or string of tags."""
    if not isinstance(cell, str | list) or any(tag is None or tag == "" for tag in cell):
        raise PlainError(f"{place}: the label {str(cell)[:60]} is not a list with a tag for each word. Correct it.")
    return _words(cell)


def _spelled(label, place):
    """A label as a string. PlainError if it is a list or a dictionary."""
    if isinstance(label, list | dict):
        raise PlainError(f"{place}: the label {str(label)[:60]} is not a string or a number. Correct it, or set 'kind': 'tagging'.")
    return _as_string(label)


def _as_string(label):
    """A label as a string; 1 and 1.0 are the same label."""
    return str(int(label) if isinstance(label, float) and label.is_integer() else label)


def _words(cell):
    """The words, or tags, of a sentence: a list, or a string with spaces between them."""
    return cell.split() if isinstance(cell, str) else list(cell)


def _sorted_labels(labels):
    """Labels in alphabetical order, or by value if all are numbers."""
    is_numeric = all(_as_number(label) is not None for label in labels)
    return tuple(sorted(labels, key=(lambda label: (float(label), label)) if is_numeric else None))


def _check_labels(task, labels, rows, path):
    """PlainError for a single label, and for classes that look like texts or numbers. rows: (place, label) of the training rows."""
    if len(labels) < 2:
        raise PlainError(f"{path}: all labels are {labels[0]!r}. Classification and tagging need at least two different labels.")
    n = len(rows)
    if task.is_tagging or n <= 20 or len(labels) <= min(MAX_LABELS, n / 2):
        return
    words = [f"; {place}: {label!r:.40} is not a number" for place, label in rows if _as_number(label) is None]
    exception = words[0] if 0 < len(words) < n / 2 else ""
    raise PlainError(f"{path}: {len(labels):,} different labels in {n:,} rows, such as {_shortened(labels, 3)}{exception}. Set 'label' to "
                     "the column of the labels, or 'kind': 'regression' if they are numbers to predict.")


def _default_metrics(task):
    if task.is_tagging and _has_entities(task):
        return ("entity_f1", "accuracy")
    return ("spearman", "pearson") if task.is_regression else ("accuracy", "macro_f1")


def _has_entities(task):
    return all(map(_BIO.fullmatch, task.labels)) and any(label != "O" for label in task.labels)


def _shortened(labels, n=12):
    return ", ".join(labels[:n]) + (f" ... ({len(labels)} in all)" if len(labels) > n else "")


def _description(task, given, label):
    """What was found out, to be printed."""
    if task.is_regression:
        found = "regression, scores with mean {:.4g} and standard deviation {:.4g}".format(*task.scale)
    else:
        found = f"{task.kind}, {len(task.labels)} labels: {_shortened(task.labels)}"
    numbers = not task.is_regression and given["kind"] is None and all(_as_number(name) is not None for name in task.labels)
    return f"{found}; metrics {', '.join(task.metrics)}" + (" (set 'kind': 'regression' to predict numbers)" if numbers else "")


def _parser(task, texts, label, may_be_empty):
    """parse(row, position) for `parse_rows`. texts, label: columns in the file; label=None: rows have none.

    may_be_empty: whether texts may, as in a test set, whose rows all need a prediction.
    """
    as_text, ids = _words_of if task.is_tagging else _text_of, {name: i for i, name in enumerate(task.labels)}

    def parse(row, position):
        if isinstance(row, str):
            raise ValueError(row)
        parsed = {name: as_text(row.get(column), column) for name, column in zip(task.texts, texts)}
        empty = [column for name, column in zip(task.texts, texts) if not has_text(parsed[name])]
        if empty and not may_be_empty:
            raise ValueError(f"the column {empty[0]!r} is empty")
        parsed |= {"label": _parse_label(row.get(label), label, task, ids) if label is not None else _no_label(task, parsed),
                   "index": position}
        if task.is_tagging and len(parsed["label"]) != len(parsed["text"]):
            raise ValueError(f"{len(parsed['text'])} words in the column {texts[0]!r}, but {len(parsed['label'])} labels in {label!r}")
        return parsed
    return parse


def _text_of(value, column):
    if not isinstance(value, str | None):
        raise ValueError(f"the column {column!r} contains {value!r:.60}, which is not a string")
    return value or ""


def _words_of(value, column):
    words = _words(value) if isinstance(value, str | list) else [None]
    if not all(isinstance(word, str) and word.strip() for word in words):
        raise ValueError(f"the column {column!r} contains {value!r:.60}, which is not a list of words")
    return words


def _no_label(task, parsed):
    return [-1] * len(parsed["text"]) if task.is_tagging else -1


def _parse_label(value, column, task, ids):
    """Class id, score, or list of class ids; ValueError if the row has no label or another one than the task."""
    if value is None or value == "":
        raise ValueError(f"the label in the column {column!r} is empty")
    if task.is_tagging:
        return [ids[_as_string(tag)] for tag in _words(value)]
    if not task.is_regression:
        if _as_string(value) not in ids:
            raise ValueError(f"the label {str(value)[:40]!r} in the column {column!r} is not one of the training file's: "
                             f"{_shortened(task.labels)}")
        return ids[_as_string(value)]
    number = _as_number(value)
    if number is None:
        raise ValueError(f"the label {value!r:.40} in the column {column!r} is not a number")
    return number


def _split(rows, share, path):
    """{"train", "validation"}: a share of the rows, drawn with a fixed seed, becomes the dev set."""
    n_dev = round(share * len(rows))
    if not 0 < n_dev < len(rows):
        raise PlainError(f"{path} has {len(rows)} rows, of which dev={share} leaves none for training or for the dev set. Add rows, or set "
                         "'dev' to a file.")
    order = np.random.default_rng(0).permutation(len(rows))
    return {"train": rows.select(np.sort(order[n_dev:])), "validation": rows.select(np.sort(order[:n_dev]))}
