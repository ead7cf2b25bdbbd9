"""Cells of the tables of custom tasks: numbers, lists of words and labels."""
import itertools
import re
from collections import Counter

import numpy as np
import pandas as pd

from _utils.errors import UserError
from _utils.tasks.tables import as_label, as_string

# Other white space, such as no-break, thin and ideographic spaces, is part of a word.
_WORD = re.compile(r"[^ \t\r\n]+")
_WHOLE = re.compile(r"[+-]?\d+(\.0)?")


def are_whole(labels):
    """Whether strings are whole numbers, which pandas also writes as "1.0"."""
    return all(_WHOLE.fullmatch(label) for label in labels)


def without_fraction(label):
    """The usual spelling of a whole number."""
    return label.removesuffix(".0")


def numbers_in(labels):
    """The numbers that labels spell; NaN for those that spell none."""
    return pd.to_numeric(pd.Series(labels), errors="coerce")


def joint_of(names):
    """The character that joins parts of which most are in other names, too, as the comma in "art, law" beside "law".

    None if there is none, or if the joined names differ only in the order of the parts, as "e1,e2" and "e2,e1".
    """
    for joint in ",;#/":
        parts = [{*map(str.strip, name.split(joint))} for name in names]
        n_names = Counter(itertools.chain.from_iterable(parts))
        joined = [frozenset(of_name) for of_name in parts if len(of_name) > 1]
        differ_in_order = len(joined) > 1 == len({*joined})
        are_known = [n_names[part] > 1 for of_name in joined for part in of_name]
        if not differ_in_order and 2 * sum(are_known) > len(are_known):
            return joint
    return None


def split_words(text):
    """The words of a sentence in which they have spaces between them."""
    return _WORD.findall(text)


def items(cell):
    """The words, or tags, of a sentence as strings: of a list, or of a string with spaces between them.

    From parquet, pandas reads lists as arrays. NaN for another cell.
    """
    if isinstance(cell, str):
        return split_words(cell)
    strings = list(map(as_string, cell)) if isinstance(cell, list | tuple | np.ndarray) else [""]
    return strings if all(map(split_words, strings)) else np.nan


def ids_of_lists(lists, ids):
    """A Series of lists of labels as lists of ids; NaN for a list with an unknown label. ids: {label: id}."""
    def ids_of(labels):
        labels = list(map(as_label, labels))
        return [ids[label] for label in labels] if ids.keys() >= set(labels) else np.nan
    return lists.map(ids_of, na_action="ignore")


def labels_in(table, column):
    """The labels of the good rows of a Table that have one: strings, numbers, or lists of labels."""
    cells = table.rows[column].drop(list(table.problems))
    return cells[cells.map(as_label) != ""]


def refuse(source, cells, is_reason, what, advice):
    """UserError if there are reasons to.

    source: of the cells, a Series by place.   is_reason: whether each cell is one.   what: they and what is true of
    them.
    """
    is_reason = is_reason.astype(bool)
    if is_reason.any():
        place = is_reason.idxmax()
        raise UserError(f"{source}: {is_reason.sum():,} of {len(cells):,} {what}, such as {cells[place]!r:.60} in "
                        f"{place}. {advice}")


def is_nested(cell):
    """Whether a cell is a dictionary, or a list of lists or dictionaries: neither a label nor a list of labels."""
    if isinstance(cell, list):
        return any(isinstance(item, list | tuple | dict) for item in cell)
    return isinstance(cell, dict)
