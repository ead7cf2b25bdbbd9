"""Reading files of tables: CSV, TSV, JSON lines, parquet and CoNLL columns.

CSV files follow RFC 4180: a quoted cell may contain commas, quotes and line breaks. In TSV files quotes are ordinary
characters, as in GLUE's (F49). In CoNLL files a line has the columns of one word, separated by tabs or spaces, and an
empty line ends a sentence; columns have no names, so they are numbered from 0, and the values of a row are lists with
an item for each word.
"""
import csv
import io
from pathlib import Path
from typing import NamedTuple

import pandas as pd
import pyarrow.parquet

from _utils.errors import UserError, as_user_error
from _utils.runs.files import read_json_lines, read_text
from _utils.tasks.cells import as_label, list_in, split_words


class Table(NamedTuple):
    """The rows of a file, or of a split on the hub.

    source: its name in messages.   rows: DataFrame, indexed by the places of the rows in the source, such as "line 3";
    missing values are "".   problems: {place: what is wrong} of rows with the wrong number of cells.
    """
    source: str
    rows: pd.DataFrame
    problems: dict


def read_table(path):
    """The Table of a file that exists. UserError, with the line where possible, if it cannot be read."""
    suffix = Path(path).suffix.lower()
    if suffix == ".gz":
        raise UserError(f"{path} is compressed. Only files of questions may be; decompress it.")
    table = FORMATS[suffix](path)
    return table._replace(rows=table.rows.apply(_as_lists, source=table.source))


def _as_lists(column, source):
    """A column of lists that are written as strings, such as "['art', 'news']", as lists; any other as it is.

    UserError for a string that is not a list if most are.
    """
    written = column[column.map(lambda cell: isinstance(cell, str) and cell != "")]
    lists = written.map(list_in)
    if written.empty or lists.notna().mean() <= .5:
        return column
    for place, cell in written[lists.isna()].items():
        raise UserError(f"{source}, {place}: the column {column.name!r} has lists such as {lists.dropna().iloc[0]}, "
                        f"but here {cell!r:.60}. Correct it, or write JSON lines instead.")
    return lists.reindex(column.index).where(column.index.isin(lists.index), column)


def labels_in(table, column):
    """The labels of the good rows of a Table that have one: strings, numbers, or lists of labels."""
    cells = table.rows[column].drop(list(table.problems))
    return cells[cells.map(as_label) != ""]


def check_columns(table, required, advice):
    """UserError for a Table without rows, and for a required column that is missing or there twice.

    advice: the end of the message about a missing column.
    """
    if table.rows.empty:
        raise UserError(f"{table.source} has no rows. Correct the path, or write the file again.")
    for name in required:
        if name not in table.rows:
            raise UserError(f"{table.source}: missing column {name!r} (found: {', '.join(map(str, table.rows))}). "
                            f"{advice}")
        if list(table.rows).count(name) > 1:
            raise UserError(f"{table.source} has several columns {name!r}. Rename all but one of them.")


def _text_of(path):
    return read_text(path, "Convert the file to UTF-8.")


def _lines_of(text):
    """Series of the lines of a text, indexed by "line 1", "line 2", ...; str.splitlines would also split at U+2028."""
    lines = text.removesuffix("\n").split("\n")
    return pd.Series(lines, [f"line {i}" for i in range(1, len(lines) + 1)]).str.removesuffix("\r")


def _table_of(path, cells, names=()):
    """Table of a DataFrame of cells, in which short rows lack the last ones.

    names: of the columns, if the first row does not have them.
    """
    if not names and len(cells):
        names, cells = list(cells.iloc[0].dropna()), cells.iloc[1:]
    n_cells = cells.notna().sum(axis=1)
    problems = {place: f"{n} columns instead of {len(names)}" for place, n in n_cells[n_cells != len(names)].items()}
    return Table(path, cells.reindex(columns=range(len(names))).set_axis(names, axis=1).fillna(""), problems)


def read_tsv(path, names=()):
    """Table of a .tsv file of GLUE, each of whose lines is a row. names: of its columns, if it has no header."""
    lines = _lines_of(_text_of(path).rstrip("\r\n"))
    return _table_of(path, lines.str.split("\t", expand=True), names)


def _read_csv(path):
    text = _text_of(path)
    header = text.lstrip().partition("\n")[0]
    return _read_cells(path, text, strict=True, delimiter=max(",;\t|", key=header.count))


def _read_own_tsv(path):
    return _read_cells(path, _text_of(path), delimiter="\t", quoting=csv.QUOTE_NONE)


def _read_cells(path, text, **dialect):
    """Table of cells with a header. As for pandas, an empty line or one of spaces is not a row."""
    csv.field_size_limit(2 ** 31 - 1)  # a cell may be a book; the default is 131,072 characters
    reader = csv.reader(io.StringIO(text, newline=""), **dialect)
    is_row = lambda cells: len(cells) > 1 or cells == [""] or cells and cells[0].strip(" \t")
    try:
        rows = {f"line {reader.line_num}": cells for cells in reader if is_row(cells)}
    except csv.Error as error:
        raise UserError(f"{path}, line {reader.line_num} is not valid CSV ({error}). Quote cells that contain quotes "
                        "or commas.") from None
    return _table_of(path, pd.DataFrame(rows.values(), rows))


def _read_json_lines(path):
    return _table_of_objects(path, dict(read_json_lines(path, "The file needs one JSON object per line.")))


def _read_parquet(path):
    with as_user_error(f"{path} is not a readable parquet file ({{error}}). Write it again."):
        rows = pyarrow.parquet.read_table(path).to_pylist()  # pandas would read lists as arrays
    return _table_of_objects(path, {f"row {number}": row for number, row in enumerate(rows)})


def _table_of_objects(path, objects):
    """Table of {place: {column: value}}."""
    return Table(path, pd.DataFrame(objects.values(), objects, dtype=object).fillna(""), {})


def _read_conll(path):
    lines = _lines_of(_text_of(path))
    is_word = ~lines.str.match(r"\s*(-DOCSTART-(\s.*)?)?$")  # some files have such a line between documents
    cells = lines[is_word].map(lambda line: line.split("\t") if "\t" in line else split_words(line))
    is_comment = _are_comments(lines, is_word, cells)
    is_word &= ~is_comment
    cells = cells[~is_comment[cells.index]]
    n_columns = int(cells.str.len().mode().max()) if len(cells) else 0
    words = _table_of(path, pd.DataFrame(cells.tolist(), cells.index), range(n_columns))
    for place, problem in words.problems.items():
        raise UserError(f"{path}, {place}: {problem}. Every word needs the same columns, an empty line must end each "
                        "sentence, and a comment begins with # and stands before a sentence.")
    rows = words.rows.reset_index(names="place").groupby((~is_word).cumsum()[is_word].to_numpy()).agg(list)
    rows.index = rows.pop("place").str[0]
    return Table(path, rows, {})


def _are_comments(lines, is_word, cells):
    """Whether lines are comments.

    They stand before a sentence, begin with #, and are "key = value" or have another number of columns than most words.
    """
    has_sign = lines.str.startswith("#") & is_word
    others = cells[~has_sign[cells.index]].str.len()
    has_other_columns = cells.str.len().ne(others.mode().max()).reindex(lines.index, fill_value=False)
    may_be = has_sign & (has_other_columns | lines.str.match(r"#\s*[\w.:-]+\s*="))
    found, is_before = [], True
    for may_be_comment, word in zip(may_be, is_word):
        found.append(bool(is_before and may_be_comment))
        is_before = not word or found[-1]
    return pd.Series(found, lines.index)


# {extension: path -> Table}
FORMATS = {
    ".csv": _read_csv, ".tsv": _read_own_tsv, ".jsonl": _read_json_lines, ".json": _read_json_lines,
    ".parquet": _read_parquet, ".conll": _read_conll, ".txt": _read_conll, ".bio": _read_conll}
