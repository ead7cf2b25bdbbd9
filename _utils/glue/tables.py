"""GLUE's tables, from the hub or from a folder in the layout of the official download. Both sources give the same rows."""
import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import datasets
import xxhash

from _utils.errors import PlainError, as_plain_error
from _utils.glue.tasks import as_task

HUB_GLUE = "nyu-mll/glue"
MAX_BAD_ROWS = .01  # a file with a larger share of malformed rows is rejected


class TaskData(NamedTuple):
    """The tables of one task.

    splits: {name on the hub: datasets.Dataset with the columns index, the task's texts, and label}; a label is a class id or a score, -1 in
    test sets.   missing: {split: message} of the splits that were not found.   notices: messages about skipped or unusual rows.
    """
    splits: dict
    missing: dict
    notices: Sequence


def load_task(task, glue_dir=None):
    """TaskData of a Task or its name; glue_dir=None reads the hub.

    Raises PlainError if the folder or the hub cannot be read, for a file with other content than its name promises, and for a malformed
    row of a test set, with file and line.
    """
    task = as_task(task)
    if glue_dir is None:
        return _from_hub(task)
    if not os.path.isdir(glue_dir):
        raise PlainError(f"Invalid value for glue_dir: {str(glue_dir)!r} is not a folder. Pass the folder of a GLUE download (with CoLA/, "
                         "SST-2/ ...), or None to read the hub.")
    splits, missing, notices = {}, {}, []
    for split, file in task.files.items():
        path = _find(Path(glue_dir), task, file)
        if path is None:
            missing[split] = f"{file} not found in {Path(glue_dir) / task.title}"
        else:
            splits[split] = read_split(path, task, split.startswith("test"), notices)
    return TaskData(splits, missing, notices)


def _find(glue_dir, task, file):
    candidates = (glue_dir / folder / file for folder in (task.title, *task.other_folders))
    return next((path for path in candidates if path.is_file()), None)


def read_split(path, task, is_test, notices):
    """Dataset of one .tsv file. Appends messages about skipped rows to `notices`; raises PlainError as `load_task`."""
    names, rows = _read_tsv(path, () if is_test else task.headerless)
    *texts, label = task.columns_in_files
    _check_columns(path, names, texts if is_test else [*texts, label])
    good, bad = [], []
    for number, cells in rows:
        try:
            good.append(_parse_row(names, cells, task, is_test, len(good)))
        except ValueError as error:
            bad.append(f"{path}, line {number}: {error}")
    if is_test and bad:
        raise PlainError(f"{bad[0]}. The GLUE server expects a prediction for every test row: fix the file or download it again.")
    _check_rows(path, task, good, bad, notices)
    return _dataset(good, task)


def _read_tsv(path, headerless):
    """(column names, [(line number, cells)]) of a .tsv file. Quotes are ordinary characters (F49). headerless: its column names."""
    try:
        text = Path(path).read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = error.object[:error.start].count(b"\n") + 1
        raise PlainError(f"{path}, line {line} is not UTF-8 text. Convert the file or download it again.") from None
    if not text:
        raise PlainError(f"{path} is empty. Download it again.")
    lines = [line.removesuffix("\r") for line in text.removesuffix("\n").split("\n")]  # splitlines would also split at U+2028
    rows = [(number, line.split("\t")) for number, line in enumerate(lines, 1)]
    return (headerless, rows) if headerless else (rows[0][1], rows[1:])


def _check_columns(path, names, required):
    missing = [name for name in required if name not in names]
    if missing:
        raise PlainError(f"{path}, line 1: missing column {missing[0]!r} (found: {', '.join(names)}). Use the official download.")


def _parse_row(names, cells, task, is_test, position):
    """One row, as the hub stores it, from the cells of a line; ValueError if it is malformed."""
    if len(cells) != len(names):
        raise ValueError(f"{len(cells)} columns instead of {len(names)}")
    cells = dict(zip(names, cells))
    *texts, label = task.columns_in_files
    row = {"index": position, "label": -1, **{column: cells[name] for column, name in zip(task.texts, texts)}}
    if not is_test:
        _check_texts(row, task)
        row["label"] = _parse_label(cells[label], task)
    elif "index" in cells or "id" in cells:  # only in test sets: the GLUE server expects this index
        row["index"] = _parse_number(cells.get("index", cells.get("id")), int, "index")
    return row


def _check_texts(row, task):
    """ValueError for an empty text. electra_pytorch skips such rows too; Google encodes them as single sentences (D13)."""
    for column in task.texts:
        if not (row[column] or "").strip():
            raise ValueError(f"the {column} is empty")


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


def _check_rows(source, task, good, bad, notices):
    """Append a notice about skipped rows and empty texts; PlainError if too many rows are malformed or none is left."""
    total = len(good) + len(bad)
    if bad and (not good or len(bad) > MAX_BAD_ROWS * total):
        raise PlainError(f"{bad[0]} ({len(bad):,} of {total:,} rows are malformed). This is not the table of {task.title}, or a program "
                         "added quotes to it. Download it again.")
    if not good:
        raise PlainError(f"{source} has a header but no rows. Download it again.")
    if bad:
        shown = "; ".join(bad[:5]) + (" ..." if len(bad) > 5 else "")
        notices.append(f"skipped {len(bad):,} of {total:,} rows: {shown}")
    empty = sum(not all(row[column].strip() for column in task.texts) for row in good)
    if empty:
        notices.append(f"{source}: kept {empty:,} rows with an empty text, because every row of a test set needs a prediction")


def _dataset(rows, task):
    features = datasets.Features({
        "index": datasets.Value("int64"), **{column: datasets.Value("string") for column in task.texts},
        "label": datasets.Value("float32" if task.is_regression else "int64")})
    return datasets.Dataset.from_dict({name: [row[name] for row in rows] for name in features}, features)


def _from_hub(task):
    splits, notices = {}, []
    for split in task.files:
        source, is_test = f"{HUB_GLUE}, {task.name}, {split}", split.startswith("test")
        good, bad = [], []
        for position, row in enumerate(_hub_split(task, split)):
            try:
                if not is_test:
                    _check_texts(row, task)
                good.append({**row, "index": row["idx"] if is_test else len(good)})
            except ValueError as error:
                bad.append(f"{source}, row {position}: {error}")
        _check_rows(source, task, good, bad, notices)
        splits[split] = _dataset(good, task)
    return TaskData(splits, {}, notices)


def _hub_split(task, split):
    with as_plain_error(f"Could not load {task.title} from the hub dataset {HUB_GLUE} ({{error}}). Check the connection, or set "
                        "glue_dir=PATH to a GLUE download, or try it without one: python finetune.py quickstart=True"):
        rows = datasets.load_dataset(HUB_GLUE, task.name, split=split)
    names = getattr(rows.features["label"], "names", None)
    if names and tuple(names) != task.labels:
        raise PlainError(f"{HUB_GLUE}, {task.name} has the labels {', '.join(names)} instead of {', '.join(task.labels)}: it has changed. "
                         "Set glue_dir=PATH to a GLUE download.")
    return rows


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
