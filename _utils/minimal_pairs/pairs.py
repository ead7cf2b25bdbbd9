"""Minimal pairs from files in the layout of BLiMP (Warstadt et al. 2020): JSON lines, one pair each."""
from pathlib import Path

import pandas as pd

from _utils.errors import PlainError
from _utils.text_files import read_json_lines

# Keys of a line. A paradigm (UID) is a template of pairs, a phenomenon (linguistics_term) has one or more of them.
COLUMNS = {"sentence_good": "good", "sentence_bad": "bad", "field": "field", "linguistics_term": "phenomenon", "UID": "paradigm"}
EXPECTED = f"a JSON object with the strings {', '.join(COLUMNS)}"


def read_pairs(path):
    """DataFrame of the pairs in a .jsonl file or in all .jsonl files of a folder: good, bad, field, phenomenon, paradigm.

    Raises PlainError with file and line for a pair that cannot be read, and for a path without pairs.
    """
    pairs = pd.DataFrame([pair for file in _files(path) for pair in _read_file(file)], columns=[*COLUMNS.values()])
    pairs["field"] = pairs["field"].str.replace("/", "_")  # BLiMP spells one of its fields in two ways
    return pairs


def _files(path):
    files = sorted(Path(path).glob("*.jsonl")) if Path(path).is_dir() else [Path(path)]
    if not files:
        raise PlainError(f"The folder {str(path)!r} has no .jsonl files. Pass the folder data/ of BLiMP, or one of its files.")
    return files


def _read_file(path):
    """The values of COLUMNS of every line that is not empty."""
    if not path.is_file():
        raise PlainError(f"File not found: {str(path)!r}. Pass a folder of .jsonl files in the layout of BLiMP, or one file.")
    pairs = [_values(pair, f"{path}, {place}") for place, pair in read_json_lines(path, f"Expected {EXPECTED} on each line.")]
    if not pairs:
        raise PlainError(f"{path} is empty. Expected {EXPECTED} on each line.")
    return pairs


def _values(pair, place):
    for key in COLUMNS:
        value = pair.get(key)
        if not isinstance(value, str) or not value.strip():
            raise PlainError(f"{place} has no string {key!r}. Expected {EXPECTED}.")
    return [pair[key] for key in COLUMNS]
