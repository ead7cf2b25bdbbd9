"""The kind of an own task, where it is guessed from the training labels."""
from functools import partial

import pandas as pd

from _utils.errors import PlainError
from _utils.glue.tables import as_label, items

FEW = .05  # share of the rows that may not decide on the kind by themselves


def numbers_in(labels):
    """The numbers that labels spell; NaN for those that spell none."""
    return pd.to_numeric(pd.Series(labels), errors="coerce")


def labels_of(table, column):
    """The labels of the good rows that have one: strings, numbers, or lists of labels."""
    cells = table.rows[column].drop(list(table.problems))
    return cells[cells.map(as_label) != ""]


def kind_of(table, texts, column, separator):
    """(kind that follows from the training labels, why): lists are tags if they are as long as the lists of words or texts, else labels.

    Numbers of which some have a fraction are scores; if less than a tenth of the labels are not numbers, their rows are malformed.
    Otherwise, strings with the separator are several labels, and anything else is a class. PlainError for numbers with decimal commas, and
    if the kind depends on at most one row in twenty.
    """
    labels = labels_of(table, column)
    decided = partial(_decided, table.source, labels)
    is_list = labels.map(lambda label: isinstance(label, list)).astype(bool)
    if is_list.any():
        words = table.rows.loc[labels.index, texts[0]]
        n_words, n_labels = (cells.map(items).str.len() for cells in (words, labels))
        kind = "tagging" if words.map(type).eq(list).any() or (n_words == n_labels).mean() > .5 else "multilabel"
        return kind, decided(is_list, "are lists", kind) if not is_list.all() else ""
    strings = labels.map(as_label)
    numbers = numbers_in(strings)
    if numbers.notna().mean() > .9 and (numbers % 1 > 0).any():
        return "regression", decided(numbers % 1 > 0, "have a fraction", "regression")
    has_separator = strings.str.contains(separator, regex=False)
    if has_separator.any():
        return "multilabel", decided(has_separator, f"contain {separator!r}", "multilabel")
    if strings.str.fullmatch(r"-?\d+(,\d+)?").all() and numbers.isna().any():
        raise PlainError(f"{table.source}: the labels are numbers with decimal commas, such as {max(strings, key=len)!r}. Write them with "
                         "points, or set 'kind': 'classification' if they are names of classes.")
    return "classification", ""


def _decided(source, labels, is_reason, what, kind):
    """Why labels have a kind. is_reason: whether each is a reason.   what: is true of these. PlainError if they are few."""
    n, place = is_reason.sum(), is_reason.idxmax()
    reason = f"{n:,} of {len(labels):,} labels {what}, such as {labels[place]!r:.60} in {place}"
    if is_reason.mean() <= FEW:
        raise PlainError(f"{source}: {reason}, which would make the task {kind}. Set 'kind' to {kind!r} or 'classification', or correct "
                         "these rows.")
    return reason
