"""Cells of the tables of custom tasks: numbers, lists of words and labels."""
import re

import numpy as np
import pandas as pd

from _utils.tasks.tables import as_label, as_string

# White space between words. Others, such as no-break, thin and ideographic spaces, are part of a word.
_SPACES = re.compile(r"[ \t\r\n]+")
# Numbers with a decimal comma, or with separators of thousands
_LOCAL_NUMBER = re.compile(r"[+-]?(\d*,\d+|\d{1,3}([.,' \u00a0\u2009\u202f]\d{3})+([.,]\d+)?)")
_POINT_BEFORE_THREE_DIGITS = re.compile(r"[+-]?\d{1,3}\.\d{3}")  # 1.250: a thousand or a fraction
_DECIMAL_POINT = re.compile(r"[+-]?(0?\.\d+|\d+\.(\d{1,2}|\d{4,}))")
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


def are_local_numbers(labels):
    """Whether each label, a Series of cells, may be a number with a decimal comma or with separators of thousands.

    A point before three digits is a decimal one if the cell is a number, or if another label has a decimal point.
    """
    strings = labels.map(as_label)
    matches = lambda pattern: strings.str.fullmatch(pattern).astype(bool)  # also if there are none
    is_number = labels.map(lambda cell: not isinstance(cell, str)).astype(bool)
    is_decimal = matches(_POINT_BEFORE_THREE_DIGITS) & (is_number | matches(_DECIMAL_POINT).any())
    return matches(_LOCAL_NUMBER) & ~is_decimal


def split_words(text):
    """The words of a sentence in which they have spaces between them."""
    return [word for word in _SPACES.split(text) if word]


def items(cell):
    """The words, or tags, of a sentence as strings: a list, or a string with spaces between them.

    NaN for another cell.
    """
    if isinstance(cell, str):
        return split_words(cell)
    strings = list(map(as_string, cell)) if isinstance(cell, list) else [""]
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


def is_nested(cell):
    """Whether a cell is a dictionary, or a list of lists or dictionaries: neither a label nor a list of labels."""
    if isinstance(cell, list):
        return any(isinstance(item, list | tuple | dict) for item in cell)
    return isinstance(cell, dict)
