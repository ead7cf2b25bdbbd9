"""Tables: the rows of files or of splits on the hub, their cells, and the Datasets of their well-formed rows."""
import difflib
import math
import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import datasets
import pandas as pd
import xxhash

from _utils.errors import UserError
from _utils.files import read_text
from _utils.progress import counted

MAX_BAD_ROWS = .01  # a file with a larger share of malformed rows is rejected


class Table(NamedTuple):
    """The rows of a file, or of a split on the hub.

    source: its name in messages.   rows: DataFrame, indexed by the places of the rows in the source, such as "line 3";
    missing values are "".   problems: {place: what is wrong} of rows with the wrong number of cells.   unusable:
    {column: what is wrong} of columns that a task may not use.   warnings: about the source.
    """
    source: str
    rows: pd.DataFrame
    problems: dict
    unusable: dict = {}
    warnings: Sequence = ()


class TaskData(NamedTuple):
    """The tables of one task.

    task: its Task.   splits: {name on the hub: datasets.Dataset with the task's texts, and label}; a label is a class
    id or a score, -1 in test sets; a list of ids for several labels per text. For tagging, text and label are lists
    with an item for each word.
    missing: {split: message} of the splits that were not found.   messages: about skipped rows.
    test_task: of a custom task: the Task to score its test set with, whose labels include tags that only this set has;
    None if it has no labels.
    baseline: (settings of a run, names of splits) -> {split: {metric: value}} of another baseline; None: there is none.
    """
    task: Any
    splits: dict
    missing: dict
    messages: Sequence
    test_task: Any = None
    baseline: Callable | None = None


# Cells

def as_string(value):
    """A word or label as a string, "" for a missing one; 1 and 1.0 are the same."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    is_missing = value is None or isinstance(value, float) and math.isnan(value)
    return "" if is_missing else str(value)


def as_label(value):
    """A label as a string, without blanks at its ends."""
    return as_string(value).strip()


def shortened(labels, n=12):
    """The first n of some strings, and how many there are."""
    return ", ".join(labels[:n]) + (f" ... ({len(labels)} in all)" if len(labels) > n else "")


# Files

def read_tsv(path, names=(), keep_empty=False):
    """Table of a .tsv file of GLUE, each of whose lines is a row. names: of its columns, if it has no header.

    keep_empty: whether empty lines at the end of the file are rows.
    """
    lines = read_lines(path, keep_empty)
    return table_of_cells(path, pd.DataFrame([line.split("\t") for line in lines], lines.index), names)


def read_lines(path, keep_empty=True):
    """Series of the lines of a file, indexed by their places. Arguments as for `read_tsv`."""
    text = read_text(path)
    text = text.removesuffix("\n") if keep_empty else text.rstrip("\r\n")
    lines = text.split("\n")  # splitlines also splits at U+2028
    return pd.Series([line.removesuffix("\r") for line in lines], [f"line {i}" for i in range(1, len(lines) + 1)])


def table_of_cells(path, cells, names=()):
    """Table of a DataFrame of cells, in which short rows lack the last ones.

    names: of the columns, if the first row does not have them.
    """
    if not names and len(cells):
        names, cells = list(cells.iloc[0].dropna()), cells.iloc[1:]
    n_cells = cells.notna().sum(axis=1)
    wrong = n_cells[n_cells != len(names)]
    problems = {place: f"{counted(n, 'column')} instead of {len(names)}" for place, n in wrong.items()}
    return Table(path, cells.reindex(columns=range(len(names))).set_axis(names, axis=1).fillna(""), problems)


def check_columns(table, required, advice):
    """UserError for a Table without rows, and for a required column that is missing or there twice.

    advice: the end of the message about a missing column.
    """
    if table.rows.empty:
        raise UserError(f"{table.source} has no rows. Add some, or correct the path.")
    columns = list(table.rows)
    for name in required:
        if name in table.unusable:
            raise UserError(f"{table.source}, {table.unusable[name]}")
        if name not in columns:
            near = nearest(name, columns)
            suggestion = f"Did you mean {near!r}? " if near else ""
            raise UserError(f"{table.source}: missing column {name!r} (found: {', '.join(columns)}). {suggestion}"
                            f"{advice}")
        if columns.count(name) > 1:
            raise UserError(f"{table.source} has several columns {name!r}. Rename all but one of them.")


def nearest(name, names):
    """The one of some names that is spelled like a name, or nearly so; None if there is none."""
    by_lower = {other.lower(): other for other in names}
    return next(map(by_lower.get, difflib.get_close_matches(name.lower(), by_lower, 1, .65)), None)


def in_cell(value):
    """A value as a string between tabs: its own tabs and line breaks become spaces."""
    return re.sub(r"[\t\r\n]", " ", str(value))


def text_of_predictions(predictions):
    """`index TAB prediction` with a header, as the GLUE server expects it.

    predictions: a string for each row of the test file, in its order; the index counts the rows from 0.
    """
    return pd.Series(predictions, name="prediction", dtype=object).to_csv(sep="\t", index_label="index")


# Datasets

def to_dataset(table, columns, task, split, messages, advice="Correct the file", **more):
    """Dataset of the good rows of a Table. Appends a message about skipped rows to `messages`.

    columns: {column of the Dataset: column of the Table} of the texts, of the label if rows have it, and of `more`.
    advice: what to do about malformed rows.   more: the `Column` of each other column of the Dataset.
    An empty text is malformed except in a test set. electra_pytorch skips such rows in training, too; Google encodes
    them as single sentences (D13).
    Raises UserError as `skipped_rows`.
    """
    rows, problems = pd.DataFrame(index=table.rows.index), dict(table.problems)
    contents = dict.fromkeys(task.texts, task.inputs.text_column) | {"label": task.inputs.label_column} | more
    for name, column in columns.items():
        content, cells = contents[name], table.rows[column]
        values = content.parse(cells).astype(object)
        if name in task.texts and not is_test(split):
            values = values.mask(values.map("".join, na_action="ignore").astype(object).str.strip() == "")
        rows[name] = values
        for place, cell in cells[values.isna()].items():
            problems.setdefault(place, f"the column {column!r} contains {cell!r:.60}, which is not {content.accepted}")
    if "label" not in rows:
        rows["label"] = [task.inputs.unlabelled] * len(rows)
    messages += skipped_rows(table, problems, split, advice)
    features = datasets.Features({name: contents[name].feature for name in {**columns, "label": None}})
    return datasets.Dataset.from_pandas(rows.drop(list(problems))[list(features)], features, preserve_index=False)


def skipped_rows(table, problems, split, advice="Correct the file"):
    """[A message about the malformed rows of a Table], or []. problems: {place: what is wrong}.

    Raises UserError if more than 1% of the rows are malformed, or one of a test set. advice: as for `to_dataset`.
    """
    bad = [place for place in table.rows.index if place in problems]
    if not bad:
        return []
    found = f"{table.source}, {bad[0]}: {problems[bad[0]]} ({malformed(bad, len(table.rows))})"
    if is_test(split) or len(bad) > MAX_BAD_ROWS * len(table.rows):
        raise UserError(f"{found}. {advice}: at most {MAX_BAD_ROWS:.0%} of the rows of a training or dev set may be "
                        "malformed, and no row of a test set.")
    return [f"skipped rows: {found}"]


def malformed(places, n_rows):
    """How many of n_rows rows are malformed, and the places of the first three, as text."""
    return f"{len(places):,} of {n_rows:,} rows are malformed: {', '.join(places[:3])}{' ...' * (len(places) > 3)}"


def is_test(split):
    return split.startswith("test")


def table_key(rows):
    """Number of rows and content hash of a Dataset; stored with each run to detect other tables."""
    columns = [rows[name][:] for name in sorted(rows.column_names)]
    return f"{len(rows):,} rows, {xxhash.xxh3_64(repr(columns).encode()).hexdigest()[:8]}"
