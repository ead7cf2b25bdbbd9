"""Files of tables: CSV, TSV, JSON lines, parquet and CoNLL columns; reading their rows, and adding a column of predictions.

CSV files follow RFC 4180: a quoted cell may contain commas, quotes and line breaks. In TSV files quotes are ordinary characters, as in
GLUE's (F49). In CoNLL files a line has the columns of one word, separated by tabs or spaces, and an empty line ends a sentence; columns
have no names, so they are numbered from 0, and the values of a row are lists with an item for each word.
"""
import ast
import contextlib
import csv
import io
import itertools
import json
import re
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow.parquet

from _utils.errors import PlainError, as_plain_error
from _utils.runs.checkpoints import write_atomically, write_text_atomically
from _utils.runs.files import read_json_lines, read_text


class Table(NamedTuple):
    """The rows of a file, or of a split on the hub.

    source: its name in messages.   rows: DataFrame, indexed by the places of the rows in the source, such as "line 3"; missing values
    are "".   problems: {place: what is wrong} of rows with the wrong number of cells.   content: what `write_with_column` needs beside the
    rows to write the file again.
    """
    source: str
    rows: pd.DataFrame
    problems: dict
    content: Any = None


def read_table(path):
    """The Table of a file that exists. PlainError, with the line where possible, if it cannot be read."""
    suffix = Path(path).suffix.lower()
    if suffix == ".gz":
        raise PlainError(f"{path} is compressed. Only files of questions may be; decompress it.")
    read, _ = FORMATS[suffix]
    table = read(path)
    return table._replace(rows=table.rows.apply(_as_lists, source=table.source))


# White space between words. Others, such as no-break, thin and ideographic spaces, are part of a word.
_SEPARATORS = re.compile(r"[ \t\r\n]+")


def split_words(text):
    """The words of a sentence in which they have spaces between them."""
    return [word for word in _SEPARATORS.split(text) if word]


def items(cell):
    """The words, or tags, of a sentence as strings: a list, or a string with spaces between them. NaN for another cell."""
    found = split_words(cell) if isinstance(cell, str) else [as_label(item) for item in cell] if isinstance(cell, list) else [""]
    return found if all(map(split_words, found)) else np.nan


def as_label(value):
    """A label as a string; 1 and 1.0 are the same label."""
    return "" if value is None else str(int(value) if isinstance(value, float) and value.is_integer() else value)


def shortened(labels, n=12):
    return ", ".join(labels[:n]) + (f" ... ({len(labels)} in all)" if len(labels) > n else "")


def labels_in(table, column):
    """The labels of the good rows of a Table that have one: strings, numbers, or lists of labels."""
    cells = table.rows[column].drop(list(table.problems))
    return cells[cells.map(as_label) != ""]


def numbers_in(labels):
    """The numbers that labels spell; NaN for those that spell none."""
    return pd.to_numeric(pd.Series(labels), errors="coerce")


_WRITTEN_LIST = re.compile(r"\s*(\[.*\]|\(.*\)|\{.*\})\s*", re.S)
_ITEM = r"""(?:'[^']*'|"[^"]*"|[-+\w]+(?:\.\w*)?)"""
_NUMPY_ARRAY = re.compile(rf"\s*\[\s*{_ITEM}(\s+{_ITEM})+\s*\]\s*")
_SHORTENED = re.compile(r"\s*\[.*['\"\d.]\s+\.\.\.\s+['\"\d-].*\]\s*", re.S)  # a long array as NumPy prints it


def _as_lists(column, source):
    """A column of lists that are written as strings, such as "['art', 'news']" by pandas, as lists; any other column as it is.

    PlainError for a cell that is not a list if most are, and for arrays that NumPy shortened.
    """
    written = column[column.map(lambda cell: isinstance(cell, str) and bool(cell))]
    if 2 * sum(map(bool, map(_WRITTEN_LIST.fullmatch, written))) <= len(written):
        return column
    for place, cell in written[written.map(lambda cell: bool(_SHORTENED.fullmatch(cell)))].items():
        raise PlainError(f"{source}, {place}: the column {column.name!r} has an array that NumPy shortened with '...': {cell!r:.60}. Turn "
                         "the arrays into lists before you write the table.")
    lists = written.map(list_in)
    if lists.notna().mean() < .5:
        return column
    for place, cell in written[lists.isna()].items():
        raise PlainError(f"{source}, {place}: the column {column.name!r} has lists such as {lists.dropna().iloc[0]}, but here "
                         f"{cell!r:.60}. Correct it.")
    return lists.reindex(column.index).where(column.index.isin(lists.index), column)


def list_in(cell):
    """The list, tuple or set that a string spells as Python, JSON or NumPy do, as a list; None for any other string."""
    if not _WRITTEN_LIST.fullmatch(cell):
        return None
    if _NUMPY_ARRAY.fullmatch(cell):
        cell = f"[{', '.join(re.findall(_ITEM, cell))}]"
    for parse in (ast.literal_eval, json.loads):
        with contextlib.suppress(ValueError, SyntaxError, MemoryError, RecursionError):
            found = parse(cell)
            if isinstance(found, set):
                return sorted(found, key=str)
            return list(found) if isinstance(found, list | tuple) else None
    return None


def write_with_column(table, target, values):
    """Write the file of a Table, as it was read, to `target` atomically with one more column, 'prediction'.

    values: one string or number per row; for tagging a list of one per word. An existing column of that name stays: the new one is
    'prediction_2'.
    """
    name, (_, with_column) = "prediction", FORMATS[Path(table.source).suffix.lower()]
    while name in table.rows:
        name += "_2"
    write_atomically(target, lambda file: file.write(with_column(table, name, values)))


def write_tsv(path, predictions):
    """Write one file of GLUE's atomically: a header, then `index TAB prediction`."""
    write_text_atomically(path, pd.Series(predictions, name="prediction").to_csv(sep="\t", index_label="index"))


def check_columns(table, required, advice):
    """PlainError for a Table without rows, and for a required column that it has twice or, ending with `advice`, does not have."""
    if table.rows.empty:
        raise PlainError(f"{table.source} has no rows. Correct the path, or write the file again.")
    for name in required:
        if name not in table.rows:
            raise PlainError(f"{table.source}: missing column {name!r} (found: {', '.join(map(str, table.rows))}). {advice}")
        if list(table.rows).count(name) > 1:
            raise PlainError(f"{table.source} has several columns {name!r}. Rename all but one of them.")


def _text_of(path):
    return read_text(path, "Convert the file, or download it again.")


def _lines_of(text):
    """Series of the lines of a text, indexed by "line 1", "line 2", ...; str.splitlines would also split at U+2028."""
    lines = [line.removesuffix("\r") for line in text.removesuffix("\n").split("\n")]
    return pd.Series(lines, [f"line {i}" for i in range(1, len(lines) + 1)])


def _table_of_cells(path, cells, names=()):
    """Table of a Series of rows, which are lists of cells. names: of the columns, if the first row does not have them."""
    if not names:
        names, cells = next(iter(cells), []), cells[1:]
    rows = pd.DataFrame(cells.tolist(), cells.index).reindex(columns=range(len(names))).set_axis(names, axis=1).fillna("")
    problems = {place: f"{len(row)} columns instead of {len(names)}" for place, row in cells.items() if len(row) != len(names)}
    return Table(path, rows, problems)


def _table_of_objects(path, objects, content):
    """Table of {place: {column: value}}."""
    return Table(path, pd.DataFrame(objects.values(), objects, dtype=object).fillna(""), {}, content)


def _read_csv(path):
    text = _text_of(path)
    delimiter = max(",;\t|", key=text.partition("\n")[0].count)  # the most frequent one of the header
    csv.field_size_limit(2 ** 31 - 1)  # a cell may be a book; the default is 131,072 characters
    reader = csv.reader(io.StringIO(text, newline=""), strict=True, delimiter=delimiter)
    try:
        table = _table_of_cells(path, pd.Series({f"line {reader.line_num}": cells for cells in reader if cells}, dtype=object))
        # With "\r\n" cells that contain "\r" are quoted, too.
        return table._replace(content=(table.rows, {"sep": delimiter, "lineterminator": "\r\n" if "\r" in text else "\n"}))
    except csv.Error as error:
        raise PlainError(f"{path}, line {reader.line_num} is not valid CSV ({error}). Quote cells that contain quotes or commas.") from None


def _cells_with(table, name, values):
    """A table with a header; the tags of a sentence have spaces between them."""
    cells, options = table.content  # as they were read
    values = [" ".join(value) if isinstance(value, list) else value for value in values]
    return cells.assign(**{name: values}).to_csv(index=False, **options).encode()


def read_tsv(path, names=()):
    """Table of a .tsv file. names: of its columns, if it has no header."""
    table = _table_of_cells(path, _lines_of(_text_of(path).rstrip("\r\n")).str.split("\t"), names)
    return table._replace(content=(table.rows, {"sep": "\t", "quoting": csv.QUOTE_NONE}))


def _read_json_lines(path):
    objects = dict(read_json_lines(path, "The file needs one JSON object per line."))
    return _table_of_objects(path, objects, objects.values())


def _json_lines_with(table, name, values):
    return "".join(json.dumps(row | {name: value}, ensure_ascii=False) + "\n" for row, value in zip(table.content, values)).encode()


def _read_parquet(path):
    with as_plain_error(f"{path} is not a readable parquet file ({{error}}). Write it again."):
        content = pyarrow.parquet.read_table(path)
    return _table_of_objects(path, {f"row {number}": row for number, row in enumerate(content.to_pylist())}, content)


def _parquet_with(table, name, values):
    file = io.BytesIO()
    pyarrow.parquet.write_table(table.content.append_column(name, [values]), file)
    return file.getvalue()


def _read_conll(path):
    lines = _lines_of(_text_of(path))
    is_word = ~lines.str.match(r"\s*(-DOCSTART-(\s.*)?)?$")  # some files have such a line between documents
    cells = lines[is_word].map(lambda line: line.split("\t") if "\t" in line else split_words(line))
    leading = _before_sentences(lines.str.startswith("#") & is_word, is_word)
    words = cells[~leading[cells.index]]
    usual = int((words if len(words) else cells).str.len().mode().max()) if len(cells) else 0
    is_comment = _before_sentences(leading & _look_like_comments(lines, cells, words, usual), is_word)
    is_word &= ~is_comment
    words = _table_of_cells(path, cells[~is_comment[cells.index]], range(usual))
    for place, problem in words.problems.items():
        raise PlainError(f"{path}, {place}: {problem}. Every word needs the same columns, an empty line must end each sentence, and a "
                         "comment begins with # and stands before a sentence.")
    rows = words.rows.reset_index(names="place").groupby((~is_word).cumsum()[is_word].to_numpy()).agg(list)
    rows.index = rows.pop("place").str[0]
    return Table(path, rows, {}, (lines, is_word))


def _before_sentences(are, is_word):
    """Of lines that are something, those before the first other line of a sentence."""
    found, before = [], True
    for one, word in zip(are, is_word):
        found.append(bool(before and one))
        before = not word or found[-1]
    return pd.Series(found, are.index)


def _look_like_comments(lines, cells, words, n_columns):
    """Whether lines with # are not words: "# key = value", another number of columns, or a last column that no word has.

    cells: of the lines that are not empty.   words: those that are certainly words, with n_columns. PTB's tag of the word # is # itself.
    """
    is_assignment = lines.str.match(r"#\s*[\w.:-]+\s*=")
    has_other_tag = cells.str[0].eq("#") & ~cells.str[-1].isin({"#", *words.str[-1]})
    is_other = cells.str.len().ne(n_columns) | has_other_tag
    return is_assignment | is_other.reindex(lines.index, fill_value=False)


def _conll_with(table, name, values):
    tags = itertools.chain(*values)
    with_tag = lambda line: line + ("\t" if "\t" in line else " ") + next(tags)
    return "".join((with_tag(line) if is_word else line) + "\n" for line, is_word in zip(*table.content)).encode()


# {extension: (path -> Table, (Table, name and values of another column) -> content of a file)}
FORMATS = {".csv": (_read_csv, _cells_with), ".tsv": (read_tsv, _cells_with),
           ".jsonl": (_read_json_lines, _json_lines_with), ".parquet": (_read_parquet, _parquet_with),
           ".conll": (_read_conll, _conll_with)}
FORMATS |= {".json": FORMATS[".jsonl"], ".txt": FORMATS[".conll"], ".bio": FORMATS[".conll"]}
