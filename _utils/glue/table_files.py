"""Files of tables: CSV, TSV, JSON lines, parquet and CoNLL columns; reading their rows, and adding a column of predictions.

CSV files follow RFC 4180: a quoted cell may contain commas, quotes and line breaks. In TSV files quotes are ordinary characters, as in
GLUE's (F49). In CoNLL files a line has the columns of one word, separated by tabs or spaces, and an empty line ends a sentence; columns
have no names, so they are numbered from 0, and the values of a row are lists with an item for each word.
"""
import csv
import io
import itertools
import json
import re
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
import pyarrow.parquet

from _utils.errors import PlainError, as_plain_error
from _utils.runs.checkpoints import write_atomically
from _utils.runs.files import read_json_lines, read_text


class Table(NamedTuple):
    """The rows of a file, or of a split on the hub.

    source: its name in messages.   columns: their names.   rows: {place in the source, such as "line 3": {column: value}}.
    problems: messages about rows with the wrong number of cells, which are not among `rows`.   content: what `write_with_column` needs
    beside the rows to write the file again.
    """
    source: str
    columns: list
    rows: dict
    problems: list
    content: Any = None


def read_table(path):
    """The Table of a file. PlainError, with the line where possible, if it cannot be read."""
    if not Path(path).is_file():
        raise PlainError(f"File not found: {path!r}. Correct the path in tasks.")
    read, _ = FORMATS[Path(path).suffix.lower()]
    return read(path)


def write_with_column(table, target, values):
    """Write the file of a Table, as it was read, to `target` atomically with one more column, 'prediction'.

    values: one string or number per row; for tagging a list of one per word. An existing column of that name stays: the new one is
    'prediction_2'.
    """
    name, (_, with_column) = "prediction", FORMATS[Path(table.source).suffix.lower()]
    while name in table.columns:
        name += "_2"
    write_atomically(target, lambda file: file.write(with_column(table, name, values)))


def check_columns(table, required, advice):
    """PlainError for a Table without rows, and, ending with `advice`, for a required column that it does not have."""
    if not table.rows and not table.problems:
        raise PlainError(f"{table.source} has no rows. Correct the path, or write the file again.")
    if missing := [name for name in required if name not in table.columns]:
        raise PlainError(f"{table.source}: missing column {missing[0]!r} (found: {', '.join(map(str, table.columns))}). {advice}")


def _text_of(path):
    return read_text(path, "Convert the file, or download it again.")


def _lines_of(text):
    """[("line 1", the first line of a text), ...]; str.splitlines would also split at U+2028."""
    return [(f"line {number}", line.removesuffix("\r")) for number, line in enumerate(text.removesuffix("\n").split("\n"), 1)]


def _table_of_cells(path, cells, columns=()):
    """Table of [(place, list of cells)]. columns: their names, if the first row does not have them."""
    if not columns and cells:
        (_, columns), *cells = cells
    rows = {place: dict(zip(columns, row)) for place, row in cells if len(row) == len(columns)}
    problems = [f"{place}: {len(row)} columns instead of {len(columns)}" for place, row in cells if place not in rows]
    return Table(path, columns, rows, problems)


def _table_of_objects(path, objects, content=None):
    """Table of {place: {column: value}}, of which some may lack columns."""
    return Table(path, list(dict.fromkeys(itertools.chain.from_iterable(objects.values()))), objects, [], content)


def _read_csv(path):
    reader = csv.reader(io.StringIO(_text_of(path), newline=""), strict=True)
    try:
        return _table_of_cells(path, [(f"line {reader.line_num}", cells) for cells in reader if cells])
    except csv.Error as error:
        raise PlainError(f"{path}, line {reader.line_num} is not valid CSV ({error}). Quote cells that contain quotes or commas.") from None


def _cells_with(table, name, values, **options):
    """A table with a header; the tags of a sentence have spaces between them."""
    values = [" ".join(value) if isinstance(value, list) else value for value in values]
    return pd.DataFrame(table.rows.values()).assign(**{name: values}).to_csv(index=False, lineterminator="\n", **options).encode()


def read_tsv(path, columns=()):
    """Table of a .tsv file. columns: their names, if it has no header."""
    return _table_of_cells(path, [(place, line.split("\t")) for place, line in _lines_of(_text_of(path).rstrip("\r\n"))], columns)


def _tsv_with(table, name, values):
    return _cells_with(table, name, values, sep="\t", quoting=csv.QUOTE_NONE)


def _read_json_lines(path):
    return _table_of_objects(path, dict(read_json_lines(path, "The file needs one JSON object per line.")))


def _json_lines_with(table, name, values):
    return "".join(json.dumps(row | {name: value}, ensure_ascii=False) + "\n" for row, value in zip(table.rows.values(), values)).encode()


def _read_parquet(path):
    with as_plain_error(f"{path} is not a readable parquet file ({{error}}). Write it again."):
        content = pyarrow.parquet.read_table(path)
    return _table_of_objects(path, {f"row {number}": row for number, row in enumerate(content.to_pylist())}, content)


def _parquet_with(table, name, values):
    file = io.BytesIO()
    pyarrow.parquet.write_table(table.content.append_column(name, [values]), file)
    return file.getvalue()


def _read_conll(path):
    rows, sentence, columns, lines = {}, None, range(0), _lines_of(_text_of(path))
    for place, line in lines:
        if not _is_word(line):
            sentence = None
            continue
        cells = line.split("\t") if "\t" in line else line.split()
        columns = columns or range(len(cells))
        if len(cells) != len(columns):
            raise PlainError(f"{path}, {place}: {len(cells)} columns instead of {len(columns)}. Every word needs the same columns, and an "
                             "empty line must end each sentence.")
        if sentence is None:
            sentence = rows[place] = {column: [] for column in columns}
        for column, cell in enumerate(cells):
            sentence[column].append(cell)
    return Table(path, columns, rows, [], [line for _, line in lines])


def _is_word(line):
    return not re.fullmatch(r"\s*(-DOCSTART-(\s.*)?)?", line)  # some files have such a line between documents


def _conll_with(table, name, values):
    tags = itertools.chain(*values)
    with_tag = lambda line: line + ("\t" if "\t" in line else " ") + next(tags)
    return "".join((with_tag(line) if _is_word(line) else line) + "\n" for line in table.content).encode()


# {extension: (path -> Table, (Table, name and values of another column) -> content of a file)}
FORMATS = {".csv": (_read_csv, _cells_with), ".tsv": (read_tsv, _tsv_with), ".jsonl": (_read_json_lines, _json_lines_with),
           ".parquet": (_read_parquet, _parquet_with), ".conll": (_read_conll, _conll_with)}
FORMATS |= {".json": FORMATS[".jsonl"], ".txt": FORMATS[".conll"]}
