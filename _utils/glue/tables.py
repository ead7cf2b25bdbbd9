"""GLUE's tables, from the hub or from a folder in the layout of the official download. Both sources give the same rows."""
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import datasets
import numpy as np
import pandas as pd
import xxhash

from _utils.errors import PlainError, as_plain_error
from _utils.glue.tasks import Task, as_task
from _utils.runs.files import read_text

HUB_GLUE = "nyu-mll/glue"
MAX_BAD_ROWS = .01  # a file with a larger share of malformed rows is rejected


class Table(NamedTuple):
    """The rows of a file, or of a split on the hub.

    source: its name in messages.   rows: DataFrame, indexed by the places of the rows in the source, such as "line 3".
    problems: what is wrong with each row, a Series; NaN for a good row.   content: of the file of an own task, to add a column to.
    """
    source: str
    rows: pd.DataFrame
    problems: pd.Series
    content: Any = None


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
    data = TaskData(task, {}, {}, [])
    for split in splits or task.official_rows:
        if glue_dir is None:
            table, columns = _read_hub(task, split)
        else:
            paths = [Path(glue_dir, folder, task.file(split)) for folder in (task.title, "diagnostic")]  # another name of AX's folder
            path = next(filter(Path.is_file, paths), None)
            if path is None:
                data.missing[split] = f"{paths[0].name} not found in {paths[0].parent}"
                continue
            table, columns = _read_file(path, task, split)
        advice = "Every row of a test set needs a prediction: correct the file, or download it again." if is_test(split) else \
            f"This is not the table of {task.title}, or a program added quotes to it. Download it again."
        data.splits[split] = to_dataset(table, columns, task, split, data.notices, advice)
    return data


def _read_file(path, task, split):
    """(Table, columns for `to_dataset`) of a .tsv file, in which quotes are ordinary characters (F49)."""
    cells = lines_of(read_text(path, "Convert the file or download it again.")).str.split("\t")
    names = task.headerless
    if not names or is_test(split):
        names, cells = cells.iloc[0], cells.iloc[1:]
    columns = dict(zip((*task.texts, "label"), task.columns_in_files))
    if is_test(split):
        del columns["label"]
        columns["index"] = "index" if "index" in names else "id"
    check_columns(f"{path}, line 1", columns.values(), names, "Use the official download.")
    return table_of_cells(path, cells, names), columns


def _read_hub(task, split):
    """(Table, columns for `to_dataset`) of a split on the hub."""
    with as_plain_error(f"Could not load {task.title} from the hub dataset {HUB_GLUE} ({{error}}). Check the connection, or set "
                        "glue_dir=PATH to a GLUE download, or try it without one: python finetune.py quickstart=True"):
        on_hub = datasets.load_dataset(HUB_GLUE, task.name, split=split)
    rows = on_hub.to_pandas().rename("row {}".format)
    if labels := getattr(on_hub.features["label"], "names", None):
        rows["label"] = rows["label"].map(dict(enumerate(labels)))
    columns = dict(zip(task.texts, task.texts)) | ({"index": "idx"} if is_test(split) else {"label": "label"})
    return Table(f"{HUB_GLUE}, {task.name}, {split}", rows, pd.Series(index=rows.index)), columns


def lines_of(text):
    """Series of the lines of a text, indexed by "line 1", "line 2", ...; str.splitlines would also split at U+2028."""
    lines = [line.removesuffix("\r") for line in text.removesuffix("\n").split("\n")]
    return pd.Series(lines, [f"line {i}" for i in range(1, len(lines) + 1)])


def table_of_cells(source, cells, names, content=None):
    """Table of a Series of rows, which are lists of cells. A row with more or fewer cells than names is malformed."""
    rows = pd.DataFrame(cells.tolist(), cells.index).reindex(columns=range(len(names))).set_axis(names, axis=1).fillna("")
    problems = cells.map(lambda row: f"{len(row)} columns instead of {len(names)}" if len(row) != len(names) else None)
    return Table(source, rows, problems, content)


def check_columns(source, required, found, advice):
    """PlainError, which ends with `advice`, for a required column that a table does not have."""
    if missing := [name for name in required if name not in found]:
        raise PlainError(f"{source}: missing column {missing[0]!r} (found: {', '.join(map(str, found))}). {advice}")


def to_dataset(table, columns, task, split, notices, advice):
    """Dataset of the good rows of a Table. Appends a message about skipped rows to `notices`.

    columns: {column of the Dataset: column of the Table} of the texts; of the label, if rows have one; of the index, if it is not the
    position.
    Raises PlainError, which ends with `advice`, if there are no rows, if more than 1 % are malformed, or one of a test set.
    """
    if table.rows.empty:
        raise PlainError(f"{table.source} has a header but no rows. {advice}")
    rows, problems = pd.DataFrame(index=table.rows.index), table.problems
    for name, column in columns.items():
        cells = table.rows[column]
        rows[name], accepted = _parsed(cells, name, task, is_test(split))
        problems = problems.fillna(
            cells[rows[name].isna()].map(lambda cell: f"the column {column!r} contains {cell!r:.60}, which is not {accepted}"))
    text, label = datasets.Value("string"), datasets.Value("float32" if task.is_regression else "int64")
    if task.is_tagging:
        text, label = datasets.List(text), datasets.List(label)
        if "label" not in rows:
            rows["label"] = rows["text"].map(lambda words: [-1] * len(words), na_action="ignore")
        differ = rows["text"].str.len() != rows["label"].str.len()
        problems = problems.fillna(differ[differ].map(lambda _: "the numbers of words and tags differ"))
    bad = [f"{table.source}, {place}: {problem}" for place, problem in problems.dropna().items()]
    if bad and is_test(split):
        raise PlainError(f"{bad[0]}. {advice}")
    if len(bad) > MAX_BAD_ROWS * len(rows):
        raise PlainError(f"{bad[0]} ({len(bad):,} of {len(rows):,} rows are malformed). {advice}")
    if bad:
        notices.append(f"skipped {len(bad):,} of {len(rows):,} rows: {'; '.join(bad[:5])}{' ...' if len(bad) > 5 else ''}")
    rows = rows[problems.isna()]
    rows = pd.DataFrame({"index": range(len(rows)), "label": -1}, rows.index).assign(**rows)
    features = datasets.Features({"index": datasets.Value("int64"), **dict.fromkeys(task.texts, text), "label": label})
    return datasets.Dataset.from_pandas(rows[list(features)], features, preserve_index=False)


def _parsed(cells, name, task, may_be_blank):
    """(values of a column as the Dataset has them, a Series with NaN for malformed ones; a description of well-formed ones).

    may_be_blank: keep empty texts. electra_pytorch skips them in training, too; Google encodes them as single sentences (D13).
    """
    if name in task.texts:
        texts = cells.map(items) if task.is_tagging else cells.where(cells.map(type).eq(str))
        is_blank = ~texts.map(lambda text: bool(text.strip() if isinstance(text, str) else text))
        return texts.mask(is_blank & (not may_be_blank)), "a list of words" if task.is_tagging else "a text"
    if name == "index" or task.is_regression:
        low, high = task.score_range or (-np.finfo("float32").max, np.finfo("float32").max)
        numbers = pd.to_numeric(cells, errors="coerce")
        if name == "index":
            return numbers, "a number"
        return numbers.where(numbers.between(low, high)), f"a number from {low:g} to {high:g}" if task.score_range else "a number"
    ids = {label: i for labels in (task.labels, task.written_labels) for i, label in enumerate(labels)}
    if task.is_tagging:
        return cells.map(items).map(lambda tags: [ids[tag] for tag in tags], na_action="ignore"), "a list of tags"
    return cells.map(as_label).map(ids), f"one of {shortened(task.written_labels)}"


def items(cell):
    """The words, or tags, of a sentence as strings: a list, or a string with spaces between them. NaN for another cell."""
    found = cell.split() if isinstance(cell, str) else [as_label(item) for item in cell] if isinstance(cell, list) else [""]
    return found if all(map(str.strip, found)) else np.nan


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
