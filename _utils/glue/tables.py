"""GLUE's tables, from the hub or from a folder in the layout of the official download. Both sources give the same rows."""
import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import datasets
import xxhash

from _utils.errors import PlainError, as_plain_error
from _utils.glue.table_files import Table, check_columns, read_tsv
from _utils.glue.tasks import Task, as_task

HUB_GLUE = "nyu-mll/glue"
MAX_BAD_ROWS = .01  # a file with a larger share of malformed rows is rejected
_ANY_SCORE = -3.4e38, 3.4e38  # of 32-bit floats


class TaskData(NamedTuple):
    """The tables of one task.

    task: its Task.   splits: {name on the hub: datasets.Dataset with the columns index, the task's texts, and label}; a label is a class
    id or a score, -1 in test sets. For tagging, text and label are lists with an item for each word.
    missing: {split: message} of the splits that were not found.   notices: messages about skipped rows.
    test_table, test_task: of an own task: the Table of its test set, and the Task to score it with, whose labels include tags that only
    this set has; None if it has no labels.
    """
    task: Task
    splits: dict
    missing: dict
    notices: Sequence
    test_table: Table | None = None
    test_task: Task | None = None


def load_task(task, glue_dir=None, splits=None):
    """TaskData of a Task or its name; glue_dir=None reads the hub. splits: names of the splits to read, None: all.

    Raises PlainError if the folder or the hub cannot be read, for a file with other content than its name promises, and for a malformed
    row of a test set, with file and line.
    """
    task = as_task(task)
    if glue_dir is not None and not os.path.isdir(glue_dir):
        raise PlainError(f"Invalid value for glue_dir: {str(glue_dir)!r} is not a folder. Pass the folder of a GLUE download (with CoLA/, "
                         "SST-2/ ...), or None to read the hub.")
    data, names = TaskData(task, {}, {}, []), (*task.texts, "label")
    for split in splits or task.official_rows:
        if glue_dir is None:
            table, columns = _read_hub(task, split), dict(zip(names, names))
        else:
            paths = [Path(glue_dir, folder, task.file(split)) for folder in (task.title, "diagnostic")]  # another name of AX's folder
            path = next(filter(Path.is_file, paths), None)
            if path is None:
                data.missing[split] = f"{paths[0].name} not found in {paths[0].parent}"
                continue
            table, columns = read_tsv(path, () if is_test(split) else task.headerless), dict(zip(names, task.columns_in_files))
        if is_test(split):
            del columns["label"]
            columns["index"] = next((name for name in ("idx", "id") if name in table.columns), "index")
        check_columns(table, columns.values(), "Use the official download.")
        data.splits[split] = to_dataset(table, columns, task, split, data.notices)
    return data


def _read_hub(task, split):
    """Table of a split on the hub."""
    with as_plain_error(f"Could not load {task.title} from the hub dataset {HUB_GLUE} ({{error}}). Check the connection, or set "
                        "glue_dir=PATH to a GLUE download, or try it without one: python finetune.py quickstart=True"):
        on_hub = datasets.load_dataset(HUB_GLUE, task.name, split=split)
    names, rows = getattr(on_hub.features["label"], "names", None), on_hub.to_list()
    if names:
        rows = [row | {"label": names[row["label"]]} for row in rows]
    return Table(f"{HUB_GLUE}, {task.name}, {split}", on_hub.column_names, {f"row {i}": row for i, row in enumerate(rows)}, [])


def to_dataset(table, columns, task, split, notices):
    """Dataset of the good rows of a Table. Appends a message about skipped rows to `notices`.

    columns: {column of the Dataset: column of the Table} of the texts; of the label, if rows have one; of the index, if it is not the
    position.
    Raises PlainError if more than 1 % of the rows are malformed, or one of a test set.
    """
    rows, problems = [], list(table.problems)
    for place, row in table.rows.items():
        try:
            rows.append({"index": len(rows)} | _parsed(row, columns, task, is_test(split)))
        except ValueError as error:
            problems.append(f"{place}: {error}")
    n_rows, bad = len(rows) + len(problems), [f"{table.source}, {problem}" for problem in problems]
    if len(bad) > (0 if is_test(split) else MAX_BAD_ROWS * n_rows):
        raise PlainError(f"{bad[0]} ({len(bad):,} of {n_rows:,} rows are malformed). Correct the file, or download it again: at most 1 % of "
                         "the rows of a training or dev set may be malformed, and no row of a test set.")
    if bad:
        notices.append(f"skipped {len(bad):,} of {n_rows:,} rows: {'; '.join(bad[:5])}{' ...' if len(bad) > 5 else ''}")
    text, label = datasets.Value("string"), datasets.Value("float32" if task.is_regression else "int64")
    if task.is_tagging:
        text, label = datasets.List(text), datasets.List(label)
    features = {"index": datasets.Value("int64"), **dict.fromkeys(task.texts, text), "label": label}
    return datasets.Dataset.from_list(rows, datasets.Features(features))


def _parsed(row, columns, task, may_be_blank):
    """{column of the Dataset: value} of a row of a Table. ValueError, with column, value and what is accepted, for a malformed one.

    may_be_blank: keep empty texts. electra_pytorch skips them in training, too; Google encodes them as single sentences (D13).
    """
    values = {}
    for name, column in columns.items():
        cell = row.get(column)
        try:
            values[name] = _text(cell, task, may_be_blank) if name in task.texts else int(cell) if name == "index" else _label(cell, task)
        except (ValueError, TypeError, KeyError):
            raise ValueError(f"the column {column!r} contains {cell!r:.60}, which is not {_accepted(name, task)}") from None
    values.setdefault("label", [-1] * len(values["text"]) if task.is_tagging else -1)
    if task.is_tagging and len(values["text"]) != len(values["label"]):
        raise ValueError("the numbers of words and tags differ")
    return values


def _text(cell, task, may_be_blank):
    """A text, or the list of a sentence's words for tagging."""
    words = items(cell)
    if not (words or may_be_blank) or not (task.is_tagging or isinstance(cell, str)):
        raise ValueError
    return words if task.is_tagging else cell


def _label(cell, task):
    """A class id or a score, or the list of the class ids of a sentence's words."""
    if task.is_regression:
        score, (low, high) = float(cell), task.score_range or _ANY_SCORE
        if not low <= score <= high:
            raise ValueError
        return score
    return [task.ids[tag] for tag in items(cell)] if task.is_tagging else task.ids[as_label(cell)]


def _accepted(name, task):
    """What is accepted in a column of the Dataset, for messages."""
    if name in task.texts:
        return "a list of words" if task.is_tagging else "a text"
    if task.is_tagging or name == "index":
        return "a list of tags" if task.is_tagging else "a number"
    return "a number from {:g} to {:g}".format(*task.score_range or _ANY_SCORE) if task.is_regression else \
        f"one of {shortened(task.written_labels)}"


def items(cell):
    """The words, or tags, of a sentence as strings: a list, or a string with spaces between them. None for another cell."""
    found = cell.split() if isinstance(cell, str) else list(map(as_label, cell)) if isinstance(cell, list) else [""]
    return found if all(map(str.strip, found)) else None


def as_label(value):
    """A label as a string; 1 and 1.0 are the same label."""
    return "" if value is None else str(int(value) if isinstance(value, float) and value.is_integer() else value)


def shortened(labels, n=12):
    return ", ".join(labels[:n]) + (f" ... ({len(labels)} in all)" if len(labels) > n else "")


def is_test(split):
    return split.startswith("test")


def table_key(rows):
    """Number of rows and content hash of a table, a Dataset or a list; stored with each run to detect other tables."""
    columns = [rows[name][:] for name in sorted(rows.column_names)] if isinstance(rows, datasets.Dataset) else rows
    return f"{len(rows):,} rows, {xxhash.xxh3_64(repr(columns).encode()).hexdigest()[:8]}"


def print_tables(tables, official=True):
    """Print the number of rows of each split of {task: TaskData}, and notices about missing files and skipped rows.

    official: the rows of an incomplete table read '10,471 of 392,702'.
    """
    for task, splits, missing, notices, *_ in tables.values():
        expected = task.official_rows if official else {}
        counts = [f"{split} {len(rows):,}" + (f" of {expected[split]:,}" if len(rows) < expected.get(split, 0) else "")
                  for split, rows in splits.items()]
        print(f"{task.title:6} {', '.join(counts)}", *missing.values(), *notices, sep="\n       ")
