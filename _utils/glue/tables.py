"""GLUE's tables, from the hub or from a folder in the layout of the official download: the same rows out of both."""
import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import datasets
import xxhash

from _utils.errors import PlainError, first_line
from _utils.glue.tasks import TASKS

HUB_GLUE = "nyu-mll/glue"  # its present name on the hub (facts.md#libraries)
_OTHER_FOLDERS = {"AX": ("diagnostic",)}  # where scripts of the time put the same files
TOO_MANY_BAD_ROWS = .01  # beyond this share a file is taken for another kind of file


class TaskData(NamedTuple):
    """Rows of one task by the splits' names on the hub, and one sentence for each split that is not there.

    A split is a datasets.Dataset with the columns index, the task's texts, and label: a number of Task.labels or a score, -1 in
    test sets. `notices`: what was left out or is odd, one sentence each.
    """
    splits: dict
    lacking: dict
    notices: Sequence

    def missing(self, names):
        """The sentences of those of the splits that are not there."""
        return [self.lacking[name] for name in names if name in self.lacking]


def load_task(name, glue_dir=None):
    """TaskData of one task out of TASKS; glue_dir=None reads the hub.

    Raises PlainError for a folder or a hub that is not there, a file that is not what its name says, and a test set with a row
    that cannot be read, naming file and line.
    """
    task = TASKS[name]
    files = dict([("train", "train.tsv")] * bool(task.devs) + [*task.devs] + [(test.split, test.file) for test in task.tests])
    if glue_dir is None:
        return _from_hub(task, files)
    if not os.path.isdir(glue_dir):
        raise PlainError(f"glue_dir={str(glue_dir)!r} is no folder: give that of a GLUE download (with CoLA/, SST-2/ ...), or leave "
                         "it out to read the hub.")
    splits, lacking, notices = {}, {}, []
    for split, file in files.items():
        path = _find(Path(glue_dir), task.title, file)
        if path is None:
            lacking[split] = f"{task.title}: there is no {file} in {Path(glue_dir) / task.title}"
        else:
            splits[split] = read_split(path, task, split.startswith("test"), notices)
    return TaskData(splits, lacking, notices)


def _find(glue_dir, folder, file):
    candidates = (glue_dir / name / file for name in (folder, *_OTHER_FOLDERS.get(folder, ())))
    return next((path for path in candidates if path.is_file()), None)


def read_split(path, task, is_test, notices):
    """A Dataset of one .tsv file; what had to be left out is told in `notices`. PlainError as in `load_task`."""
    names, rows = _table(path, None if is_test else task.headerless)
    *texts, label = task.columns_in_files
    _check_columns(path, names, texts if is_test else [*texts, label])
    made, bad = [], []
    for number, cells in rows:
        try:
            made.append(_row(names, cells, task, is_test, len(made)))
        except ValueError as error:
            bad.append(f"{path}, line {number}: {error}")
    if is_test and bad:
        raise PlainError(f"{bad[0]}: the server wants a prediction for every row of a test set, so mend the file or fetch it again.")
    _judge(path, task, made, bad, notices)
    return _dataset(made, task)


def _table(path, headerless):
    """(names of the columns, [(line number, cells)]) of a .tsv without any quoting: a quote is a character like others (F49)."""
    try:
        text = Path(path).read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = error.object[:error.start].count(b"\n") + 1
        raise PlainError(f"{path}, line {line}: this is not UTF-8 text; convert the file or fetch it again.") from None
    lines = [line.removesuffix("\r") for line in text.removesuffix("\n").split("\n")]  # splitlines would cut at U+2028 too
    rows = [(number, line.split("\t")) for number, line in enumerate(lines, 1)]
    if not text:
        raise PlainError(f"{path} is empty: fetch it again.")
    return (headerless, rows) if headerless else (rows[0][1], rows[1:])


def _check_columns(path, names, wanted):
    lost = [name for name in wanted if name not in names]
    if lost:
        raise PlainError(f"{path}, line 1: there is no column {lost[0]!r} among {', '.join(names)}: "
                         "is this the file of the official download?")


def _row(names, cells, task, is_test, position):
    """One row as the hub has it, from the cells of a line; ValueError says what is wrong with it."""
    if len(cells) != len(names):
        raise ValueError(f"{len(cells)} columns instead of {len(names)}")
    cells = dict(zip(names, cells))
    *texts, label = task.columns_in_files
    row = {"index": position, "label": -1, **{column: cells[name] for column, name in zip(task.texts, texts)}}
    if is_test:
        index = cells.get("index", cells.get("id"))  # only the test sets' counts: the server asks for it
        return row if index is None else {**row, "index": _number(index, int, "index")}
    _check_texts(row, task)
    return {**row, "label": _score(cells[label]) if task.is_regression else _label(cells[label], task)}


def _check_texts(row, task):
    """ValueError for an empty text: electra_pytorch leaves such rows out, Google takes them for single sentences (D13)."""
    for column in task.texts:
        if not (row[column] or "").strip():
            raise ValueError(f"the {column} is empty")


def _number(text, kind, name):
    try:
        return kind(text)
    except ValueError:
        raise ValueError(f"the {name} {text[:40]!r} is no number") from None


def _score(text):
    score = _number(text, float, "score")
    if not 0 <= score <= 5:
        raise ValueError(f"the score {text[:40]!r} is not between 0 and 5")
    return score


def _label(text, task):
    if text not in task.written:
        raise ValueError(f"the label {text[:40]!r} is none of {', '.join(task.written)}")
    return task.written.index(text)


def _judge(path, task, made, bad, notices):
    """Tell of rows that were left out; PlainError if they are so many that the file must be another, or if nothing is left."""
    if bad and (not made or len(bad) > TOO_MANY_BAD_ROWS * (len(made) + len(bad))):
        raise PlainError(f"{bad[0]}, and so on, {len(bad):,} of {len(made) + len(bad):,} rows: this is not {task.title}'s table, or it was "
                         "saved by a program that adds quotes; fetch it again.")
    if bad:
        shown = "; ".join(bad[:5]) + (" ..." if len(bad) > 5 else "")
        notices.append(f"{len(bad):,} of {len(made) + len(bad):,} rows left out: {shown}")
    if not made:
        raise PlainError(f"{path} has a header and no row: fetch it again.")
    empty = sum(not all(row[column].strip() for column in task.texts) for row in made)
    if empty:
        notices.append(f"{path}: {empty:,} rows have an empty text and are kept, because a test set must stay whole")


def _dataset(rows, task):
    features = datasets.Features({
        "index": datasets.Value("int64"), **{column: datasets.Value("string") for column in task.texts},
        "label": datasets.Value("float32" if task.is_regression else "int64")})
    return datasets.Dataset.from_dict({name: [row[name] for row in rows] for name in features}, features)


def _from_hub(task, files):
    splits, notices = {}, []
    for split in files:
        rows = _hub_split(task, split)
        made, bad = [], []
        for position, row in enumerate(rows):
            row = {**row, "index": row["idx"] if split.startswith("test") else len(made)}
            try:
                if not split.startswith("test"):
                    _check_texts(row, task)
                made.append(row)
            except ValueError as error:
                bad.append(f"{HUB_GLUE}, {task.name}, {split}, row {position}: {error}")
        _judge(f"{HUB_GLUE}, {task.name}, {split}", task, made, bad, notices)
        splits[split] = _dataset(made, task)
    return TaskData(splits, {}, notices)


def _hub_split(task, split):
    try:
        rows = datasets.load_dataset(HUB_GLUE, task.name, split=split)
    except Exception as error:  # the hub's libraries raise a dozen kinds; the way out is the same
        raise PlainError(f"{task.title} could not be loaded from the hub dataset {HUB_GLUE} ({first_line(error)}); check the connection, "
                         "give glue_dir=PATH with the files of a GLUE download, or try without one: "
                         "python finetune.py quickstart=True") from error
    named = getattr(rows.features["label"], "names", None)
    if named and tuple(named) != task.labels:
        raise PlainError(f"{HUB_GLUE}, {task.name} has the labels {', '.join(named)}, not {', '.join(task.labels)}: "
                         "it has changed, so give glue_dir=PATH.")
    return rows


def table_key(rows):
    """What tells a table (a Dataset or a list) from others: its number of rows and a hash of its content."""
    columns = [rows[name][:] for name in sorted(rows.column_names)] if isinstance(rows, datasets.Dataset) else rows
    return f"{len(rows):,} rows, {xxhash.xxh3_64(repr(columns).encode()).hexdigest()[:8]}"


def describe(task, data, official=True):
    """{split: 'rows'}, or 'rows of so many' where an official table is not whole."""
    whole = dict(zip(("train", *(split for split, _ in task.devs)), task.rows)) | {test.split: test.rows for test in task.tests}
    return {split: f"{len(rows):,}" + f" of {whole.get(split, 0):,}" * (official and len(rows) < whole.get(split, 0))
            for split, rows in data.splits.items()}
