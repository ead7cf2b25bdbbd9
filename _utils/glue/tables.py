"""GLUE's tables, from the hub or from a folder in the layout of the official download. Both sources give the same rows."""
import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import datasets
import xxhash

from _utils.errors import PlainError, as_plain_error
from _utils.glue.tasks import Task, as_task
from _utils.runs.files import read_text

HUB_GLUE = "nyu-mll/glue"
MAX_BAD_ROWS = .01  # a file with a larger share of malformed rows is rejected


class TaskData(NamedTuple):
    """The tables of one task.

    task: its Task.   splits: {name on the hub: datasets.Dataset with the columns index, the task's texts, and label}; a label is a class
    id or a score, -1 in test sets. For tagging, text and label are lists with an item for each word.
    missing: {split: message} of the splits that were not found.   notices: messages about skipped or unusual rows.
    test_task: the Task to score the labelled test set of an own task with, whose labels include tags that only this set has; None if it
    has no labels.
    """
    task: Task
    splits: dict
    missing: dict
    notices: Sequence
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
    for split in splits or task.files:
        file = task.files[split]
        if glue_dir is None:
            source, lines, parse = _open_hub(task, split)
        elif path := _find(Path(glue_dir), task, file):
            source, lines, parse = _open_file(path, task, split)
        else:
            data.missing[split] = f"{file} not found in {Path(glue_dir) / task.title}"
            continue
        advice = "Every row of a test set needs a prediction: correct the file, or download it again." if is_test(split) else \
            f"This is not the table of {task.title}, or a program added quotes to it. Download it again."
        data.splits[split] = parse_rows(source, lines, parse, task, split, data.notices, advice)
    return data


def _find(glue_dir, task, file):
    candidates = (glue_dir / folder / file for folder in (task.title, *task.other_folders))
    return next((path for path in candidates if path.is_file()), None)


def parse_rows(source, lines, parse, task, split, notices, advice):
    """Dataset of one table. Appends messages about skipped and unusual rows to `notices`.

    lines: (place in the source, content).   parse(content, position): the row, with the position as its index if it has no other;
    ValueError if it is malformed.
    Raises PlainError, which ends with `advice`, if more than 1 % of the rows are malformed, or one of a test set.
    """
    rows, bad = [], []
    for place, content in lines:
        try:
            row = parse(content, len(rows))
            if not is_test(split):
                _check_texts(row, task)
                row["index"] = len(rows)
            rows.append(row)
        except ValueError as error:
            bad.append(f"{source}, {place}: {error}")
    total = len(rows) + len(bad)
    if bad and is_test(split):
        raise PlainError(f"{bad[0]}. {advice}")
    if bad and (not rows or len(bad) > MAX_BAD_ROWS * total):
        raise PlainError(f"{bad[0]} ({len(bad):,} of {total:,} rows are malformed). {advice}")
    if not rows:
        raise PlainError(f"{source} has a header but no rows. {advice}")
    if bad:
        notices.append(f"skipped {len(bad):,} of {total:,} rows: {'; '.join(bad[:5])}{' ...' if len(bad) > 5 else ''}")
    if empty := sum(not all(has_text(row[text]) for text in task.texts) for row in rows):
        notices.append(f"{source}: kept {empty:,} rows with an empty text, because every row of a test set needs a prediction")
    features = _features(task)
    return datasets.Dataset.from_dict({name: [row[name] for row in rows] for name in features}, features)


def _features(task):
    """datasets.Features of the tables of a task."""
    label = datasets.Value("float32" if task.is_regression else "int64")
    text = datasets.Value("string")
    if task.is_tagging:
        text, label = datasets.List(text), datasets.List(label)
    return datasets.Features({"index": datasets.Value("int64"), **dict.fromkeys(task.texts, text), "label": label})


def is_test(split):
    return split.startswith("test")


def has_text(text):
    """Whether a text is not blank, or a list of words not empty."""
    return bool(text and (text.strip() if isinstance(text, str) else text))


def _check_texts(row, task):
    """ValueError for an empty text. electra_pytorch skips such rows too; Google encodes them as single sentences (D13)."""
    for text in task.texts:
        if not has_text(row[text]):
            raise ValueError(f"the {text} is empty")


def numbered_cells(text):
    """[(place, cells)] of the lines of a .tsv file."""
    lines = text.removesuffix("\n").split("\n")  # splitlines would also split at U+2028
    return [(f"line {number}", line.removesuffix("\r").split("\t")) for number, line in enumerate(lines, 1)]


def _open_file(path, task, split):
    """(source, lines, parse) of a .tsv file for `parse_rows`. Quotes are ordinary characters (F49)."""
    content = read_text(path, "Convert the file or download it again.")
    if not content:
        raise PlainError(f"{path} is empty. Download it again.")
    numbered = numbered_cells(content)
    names = task.headerless
    if not names or is_test(split):
        (_, names), *numbered = numbered
    *texts, label = task.columns_in_files
    required = texts if is_test(split) else task.columns_in_files
    if missing := [name for name in required if name not in names]:
        raise PlainError(f"{path}, line 1: missing column {missing[0]!r} (found: {', '.join(names)}). Use the official download.")

    def parse(cells, position):
        if len(cells) != len(names):
            raise ValueError(f"{len(cells)} columns instead of {len(names)}")
        cells = dict(zip(names, cells))
        row = {text: cells[name] for text, name in zip(task.texts, texts)}
        if is_test(split):
            return row | {"label": -1, "index": _parse_number(cells.get("index", cells.get("id", position)), int, "index")}
        return row | {"label": _parse_label(cells[label], task)}
    return path, numbered, parse


def _parse_number(text, kind, name):
    try:
        return kind(text)
    except ValueError:
        raise ValueError(f"the {name} {text[:40]!r} is not a number") from None


def _parse_label(text, task):
    """The class id, or the score of a regression task."""
    if task.is_regression:
        score, (low, high) = _parse_number(text, float, "score"), task.score_range
        if not low <= score <= high:
            raise ValueError(f"the score {text[:40]!r} is not between {low:g} and {high:g}")
        return score
    if text not in task.written_labels:
        raise ValueError(f"the label {text[:40]!r} is not one of {', '.join(task.written_labels)}")
    return task.written_labels.index(text)


def _open_hub(task, split):
    """(source, lines, parse) of a split on the hub for `parse_rows`."""
    with as_plain_error(f"Could not load {task.title} from the hub dataset {HUB_GLUE} ({{error}}). Check the connection, or set "
                        "glue_dir=PATH to a GLUE download, or try it without one: python finetune.py quickstart=True"):
        rows = datasets.load_dataset(HUB_GLUE, task.name, split=split)
    names = getattr(rows.features["label"], "names", None)
    if names and tuple(names) != task.labels:
        raise PlainError(f"{HUB_GLUE}, {task.name} has the labels {', '.join(names)} instead of {', '.join(task.labels)}: it has changed. "
                         "Set glue_dir=PATH to a GLUE download.")
    lines = ((f"row {position}", row) for position, row in enumerate(rows))
    return f"{HUB_GLUE}, {task.name}, {split}", lines, lambda row, _: row | {"index": row["idx"]}


def table_key(rows):
    """Number of rows and content hash of a table, a Dataset or a list; stored with each run to detect other tables."""
    columns = [rows[name][:] for name in sorted(rows.column_names)] if isinstance(rows, datasets.Dataset) else rows
    return f"{len(rows):,} rows, {xxhash.xxh3_64(repr(columns).encode()).hexdigest()[:8]}"


def row_counts(task, data, official=True):
    """{split: number of rows as text}. official: incomplete tables read '10,471 of 392,702'."""
    counts = {}
    for split, rows in data.splits.items():
        expected = task.official_rows.get(split, 0) if official else 0
        counts[split] = f"{len(rows):,} of {expected:,}" if len(rows) < expected else f"{len(rows):,}"
    return counts
