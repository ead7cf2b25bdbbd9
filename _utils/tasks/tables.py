"""The tables of a task: Datasets of the well-formed rows of files or of splits on the hub."""
from collections.abc import Sequence
from typing import Any, NamedTuple

import datasets
import numpy as np
import pandas as pd
import xxhash

from _utils.errors import UserError
from _utils.tasks.cells import as_label

MAX_BAD_ROWS = .01  # a file with a larger share of malformed rows is rejected


class TaskData(NamedTuple):
    """The tables of one task.

    task: its Task.   splits: {name on the hub: datasets.Dataset with the columns index (of the row, as the test sets of
    GLUE number them), the task's texts, and label}; a label is a class id or a score, -1 in test sets; a list of ids
    for several labels per text. For tagging, text and label are lists with an item for each word.
    missing: {split: message} of the splits that were not found.   notices: messages about skipped rows.
    test_task: of an own task: the Task to score its test set with, whose labels include tags that only this set has;
    None if it has no labels.
    """
    task: Any
    splits: dict
    missing: dict
    notices: Sequence
    test_task: Any = None


def to_dataset(table, columns, task, split, notices, advice="Correct the file"):
    """Dataset of the good rows of a Table. Appends a message about skipped rows to `notices`.

    columns: {column of the Dataset: column of the Table} of the texts, and of label and group if rows have them.
    advice: what to do about malformed rows.
    Raises UserError if more than 1% of the rows are malformed, or one of a test set.
    """
    rows, problems = pd.DataFrame(index=table.rows.index), dict(table.problems)
    for name, column in columns.items():
        cells = table.rows[column]
        rows[name], accepted = _parsed(cells, name, task, is_test(split))
        for place, cell in cells[rows[name].isna()].items():
            problems.setdefault(place, f"the column {column!r} contains {cell!r:.60}, which is not {accepted}")
    if "label" not in rows:
        rows["label"] = pd.Series(task.unlabelled(rows), rows.index)
    problems = task.mismatches(rows) | problems
    bad = [f"{table.source}, {place}: {problems[place]}" for place in rows.index if place in problems]
    if len(bad) > (0 if is_test(split) else MAX_BAD_ROWS * len(rows)):
        raise UserError(f"{bad[0]} ({len(bad):,} of {len(rows):,} rows are malformed). {advice}: at most 1% of "
                        "the rows of a training or dev set may be malformed, and no row of a test set.")
    if bad:
        notices.append(f"skipped {len(bad):,} of {len(rows):,} rows: "
                       f"{'; '.join(bad[:5])}{' ...' if len(bad) > 5 else ''}")
    rows = rows.drop(list(problems))
    features = datasets.Features({**dict.fromkeys(task.texts, task.text_feature), "label": task.label_feature,
                                  **dict.fromkeys({"group"} & columns.keys(), datasets.Value("string"))})
    return datasets.Dataset.from_pandas(rows[list(features)], features, preserve_index=False)


def _parsed(cells, name, task, may_be_blank):
    """(values of a column as the Dataset has them, a Series with NaN for malformed ones; a description of well-formed
    ones).

    may_be_blank: keep empty texts. electra_pytorch skips them in training, too; Google encodes them as single sentences
    (D13).
    """
    if name in task.texts:
        texts = task.parse_texts(cells)
        is_blank = ~texts.map(lambda text: bool(text.strip() if isinstance(text, str) else text))
        return texts.mask(is_blank & (not may_be_blank)), task.text_format
    if name == "group":
        return cells.map(as_label).replace("", np.nan), "a group"
    return task.parse_labels(cells), task.label_format


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
