"""GLUE's tables, from the hub or from a folder in the layout of the official download. Both sources give the same rows."""
import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import datasets
import numpy as np
import pandas as pd
import xxhash

from _utils.errors import PlainError, as_plain_error
from _utils.hub import load_split
from _utils.tasks.glue import Task, as_task
from _utils.tasks.spans import words_in
from _utils.tasks.table_files import Table, check_columns, read_tsv, split_words

HUB_GLUE = "nyu-mll/glue"
MAX_BAD_ROWS = .01  # a file with a larger share of malformed rows is rejected
_ANY_SCORE = -3.4e38, 3.4e38  # of 32-bit floats


class TaskData(NamedTuple):
    """The tables of one task.

    task: its Task.   splits: {name on the hub: datasets.Dataset with the columns index (of the row, as the test sets of GLUE number them),
    the task's texts, and label}; a label is a class id or a score, -1 in test sets; a list of ids for several labels per text. For
    tagging, text and label are lists with an item for each word.
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
        names = task.texts if is_test(split) else (*task.texts, "label")
        if glue_dir is None:
            table, columns = _read_hub(task, split), names
        else:
            paths = [Path(glue_dir, folder, task.file(split)) for folder in (task.title, "diagnostic")]  # another name of AX's folder
            path = next(filter(Path.is_file, paths), None)
            if path is None:
                data.missing[split] = f"{paths[0].name} not found in {paths[0].parent}"
                continue
            table, columns = read_tsv(path, () if is_test(split) else task.headerless), task.columns_in_files
        columns = dict(zip(names, columns))
        check_columns(table, columns.values(), "Use the official download.")
        data.splits[split] = to_dataset(table, columns, task, split, data.notices)
    return data


def _read_hub(task, split):
    """Table of a split on the hub."""
    with as_plain_error(f"Could not load {task.title} from the hub dataset {HUB_GLUE} ({{error}}). Check the "
                        "connection and rerun, or set glue_dir=PATH to a GLUE download, or try it without one: "
                        "python finetune.py quickstart=True"):
        on_hub = load_split(HUB_GLUE, task.name, split)
    rows = on_hub.to_pandas().rename("row {}".format)
    if labels := getattr(on_hub.features["label"], "names", None):
        rows["label"] = rows["label"].map(dict(enumerate(labels)))
    return Table(f"{HUB_GLUE}, {task.name}, {split}", rows, {})


def to_dataset(table, columns, task, split, notices):
    """Dataset of the good rows of a Table. Appends a message about skipped rows to `notices`.

    columns: {column of the Dataset: column of the Table} of the texts, and of label and group if rows have them.
    Raises PlainError if more than 1 % of the rows are malformed, or one of a test set.
    """
    if task.questions:
        raise PlainError(f"{task.name!r} answers questions about texts. Set its 'test' to a file in the format of SQuAD, and run "
                         "python finetune.py with do_finetune=False.")
    rows, problems = pd.DataFrame(index=table.rows.index), dict(table.problems)
    for name, column in columns.items():
        cells = table.rows[column]
        rows[name], accepted = _parsed(cells, name, task, is_test(split))
        for place, cell in cells[rows[name].isna()].items():
            problems.setdefault(place, f"the column {column!r} contains {cell!r:.60}, which is not {accepted}")
    text, label = datasets.Value("string"), datasets.Value("float32" if task.is_regression else "int64")
    if task.is_multilabel:
        label = datasets.List(label)
        if "label" not in rows:
            rows["label"] = [[]] * len(rows)
    if task.is_tagging:
        text, label = datasets.List(text), datasets.List(label)
        if "label" not in rows:
            rows["label"] = rows["text"].map(lambda words: [-1] * len(words), na_action="ignore")
        n_words, n_tags = (rows[name].astype(object).str.len() for name in ("text", "label"))  # without a good row, all are NaN
        for place in rows.index[n_words != n_tags]:
            problems.setdefault(place, "the numbers of words and tags differ")
    bad = [f"{table.source}, {place}: {problems[place]}" for place in rows.index if place in problems]
    if len(bad) > (0 if is_test(split) else MAX_BAD_ROWS * len(rows)):
        raise PlainError(f"{bad[0]} ({len(bad):,} of {len(rows):,} rows are malformed). Correct the file, or download it again: at most "
                         "1 % of the rows of a training or dev set may be malformed, and no row of a test set.")
    if bad:
        notices.append(f"skipped {len(bad):,} of {len(rows):,} rows: {'; '.join(bad[:5])}{' ...' if len(bad) > 5 else ''}")
    rows = rows.drop(list(problems))
    rows = pd.DataFrame({"label": -1}, rows.index).assign(**rows)
    features = datasets.Features({**dict.fromkeys(task.texts, text), "label": label,
                                  **dict.fromkeys({"group"} & columns.keys(), datasets.Value("string"))})
    return datasets.Dataset.from_pandas(rows[list(features)], features, preserve_index=False)


def _parsed(cells, name, task, may_be_blank):
    """(values of a column as the Dataset has them, a Series with NaN for malformed ones; a description of well-formed ones).

    may_be_blank: keep empty texts. electra_pytorch skips them in training, too; Google encodes them as single sentences (D13).
    """
    if name in task.texts:
        texts = cells.map(partial(words_of, task)) if task.is_tagging else cells.where(cells.map(lambda cell: isinstance(cell, str)))
        is_blank = ~texts.map(lambda text: bool(text.strip() if isinstance(text, str) else text))
        return texts.mask(is_blank & (not may_be_blank)), "a list of words" if task.is_tagging and not task.spans else "a text"
    if name == "group":
        return cells.map(as_label).replace("", np.nan), "a group"
    if task.is_regression:
        low, high = task.score_range or _ANY_SCORE
        numbers = pd.to_numeric(cells, errors="coerce")
        return numbers.where(numbers.between(low, high)), f"a number from {low:g} to {high:g}"
    ids = {label: i for labels in (task.labels, task.written_labels) for i, label in enumerate(labels)}
    if task.is_tagging or task.is_multilabel:
        lists = cells.map(items) if task.is_tagging else cells
        known = lambda labels: [ids[label] for label in labels] if ids.keys() >= set(labels) else np.nan
        return lists.map(known, na_action="ignore"), f"a list of labels from {shortened(task.labels)}"
    return cells.map(as_label).map(ids), f"one of {shortened(task.written_labels)}"


def words_of(task, cell):
    """The words of a text of a Task, as `items`; of a string of a task with character spans, as `words_in`. NaN for another cell."""
    if task.spans:
        return [word for word, *_ in words_in(cell)] if isinstance(cell, str) else np.nan
    return items(cell)


def items(cell):
    """The words, or tags, of a sentence as strings: a list, or a string with spaces between them. NaN for another cell."""
    found = split_words(cell) if isinstance(cell, str) else [as_label(item) for item in cell] if isinstance(cell, list) else [""]
    return found if all(map(split_words, found)) else np.nan


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


def rows_of_splits(data, official=True):
    """The rows of each split of a TaskData as text. official: an incomplete table reads '10,471 of 392,702'."""
    expected, parts = data.task.official_rows if official else {}, []
    for split, rows in data.splits.items():
        is_incomplete = len(rows) < expected.get(split, 0)
        parts.append(f"{split} {len(rows):,}" + (f" of {expected[split]:,}" if is_incomplete else ""))
    return ", ".join(parts)
