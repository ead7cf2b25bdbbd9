"""What the cells of tables contain: labels, numbers, words, and lists that are written as strings."""
import ast
import contextlib
import json
import re

import numpy as np
import pandas as pd

# White space between words. Others, such as no-break, thin and ideographic spaces, are part of a word.
_SPACES = re.compile(r"[ \t\r\n]+")
# A list of strings or numbers as NumPy prints it: without commas.
_NUMPY_ITEM = r"""(?:'[^']*'|"[^"]*"|[-+.\w]+)"""
_NUMPY_LIST = re.compile(rf"\[\s*{_NUMPY_ITEM}(\s+{_NUMPY_ITEM})+\s*\]")


def as_label(value):
    """A label as a string; 1 and 1.0 are the same label."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return "" if value is None else str(value)


def numbers_in(labels):
    """The numbers that labels spell; NaN for those that spell none."""
    return pd.to_numeric(pd.Series(labels), errors="coerce")


def shortened(labels, n=12):
    """The first n of some strings, and how many there are."""
    return ", ".join(labels[:n]) + (f" ... ({len(labels)} in all)" if len(labels) > n else "")


def split_words(text):
    """The words of a sentence in which they have spaces between them."""
    return [word for word in _SPACES.split(text) if word]


def items(cell):
    """The words, or tags, of a sentence as strings: a list, or a string with spaces between them.

    NaN for another cell.
    """
    if isinstance(cell, str):
        return split_words(cell)
    found = list(map(as_label, cell)) if isinstance(cell, list) else [""]
    return found if all(map(split_words, found)) else np.nan


def list_in(text):
    """The list that a string spells as JSON, Python or NumPy do; None for any other string."""
    text = text.strip()
    if not (text.startswith("[") and text.endswith("]")):
        return None
    if _NUMPY_LIST.fullmatch(text):
        text = f"[{', '.join(re.findall(_NUMPY_ITEM, text))}]"
    for parse in (json.loads, ast.literal_eval):
        with contextlib.suppress(ValueError, SyntaxError, MemoryError, RecursionError):
            found = parse(text)
            return found if isinstance(found, list) else None
    return None
