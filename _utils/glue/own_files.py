"""Files of own tasks: CSV, TSV, JSON lines, parquet and CoNLL columns; reading their rows, and adding a column of predictions.

CSV files follow RFC 4180: a quoted cell may contain commas, quotes and line breaks. In TSV files quotes are ordinary characters, as in
GLUE's. In CoNLL files a line has the columns of one word, separated by tabs or spaces, and an empty line ends a sentence; columns have
no names, so they are numbered from 0.
"""
import csv
import io
import itertools
import json
from pathlib import Path
from typing import NamedTuple

import pyarrow
import pyarrow.parquet

from _utils.errors import PlainError, as_plain_error
from _utils.glue.tables import numbered_cells
from _utils.runs.checkpoints import write_atomically
from _utils.runs.files import content_key, file_chunks, read_json_lines, read_text

_DOCUMENT_START = "-DOCSTART-"  # a line that some CoNLL files put between documents


class Table(NamedTuple):
    """A file's columns, its rows: (place in the file, {column: value}, or a message for a row that cannot be read), and its content key."""
    columns: list
    rows: list
    key: str = ""


def format_of(path):
    """The format of a file by its extension. PlainError for another extension."""
    suffix = Path(path).suffix.lower()
    if suffix not in FORMATS:
        raise PlainError(f"Invalid file for an own task: {str(path)!r}. Use a file that ends with {', '.join(FORMATS)}.")
    return FORMATS[suffix]


def read_table(path):
    """The Table of a file. PlainError, with the line where possible, if it cannot be read or has no rows."""
    if not Path(path).is_file():
        raise PlainError(f"File not found: {str(path)!r}. Correct the path in tasks.")
    key = content_key("table", file_chunks(path))
    table = format_of(path).read(path)._replace(key=key)
    if not table.rows:
        raise PlainError(f"{path} has no rows. Correct the path in tasks, or the file.")
    return table


def add_column(source, target, values, key):
    """Write `source` to `target` atomically with one more column, 'prediction'.

    values: one string or number per row; for tagging a list of one per word. An existing column of that name stays: the new one is
    'prediction_2'.   key: of the Table that the values belong to; PlainError if the file has changed since it was read.
    """
    table = read_table(source)
    if table.key != key:
        raise PlainError(f"{source} changed after it was read, so the predictions do not belong to its rows. Rerun the command with "
                         "do_finetune=False to predict the new file.")
    names = table.columns
    candidates = itertools.chain(["prediction"], (f"prediction_{number}" for number in itertools.count(2)))
    name = next(name for name in candidates if name not in names)
    content = format_of(source).with_column(source, name, values)
    write_atomically(Path(target), lambda file: file.write(content))


def _read_text(path):
    return read_text(path, "Convert the file.")


def _named_cells(names, cells):
    """{column: cell}, or a message."""
    return dict(zip(names, cells)) if len(cells) == len(names) else f"{len(cells)} columns instead of {len(names)}"


def _cell(value):
    """A value as text: the tags of a sentence with spaces between them."""
    return " ".join(value) if isinstance(value, list) else str(value)


def _check_header(path, names):
    repeated = [name for name in names if names.count(name) > 1]
    if not all(names) or repeated:
        problem = f"has the column {repeated[0]!r} twice" if repeated else "has a column without a name"
        raise PlainError(f"{path}, line 1 {problem}. The first line must name each column.")


class _Csv:
    """Comma-separated values with a header."""

    @staticmethod
    def read(path):
        reader, rows = csv.reader(io.StringIO(_read_text(path), newline=""), strict=True), []
        try:
            names = next(reader, [])
            if len(names) == 1 and (separators := {";", "\t"} & set(names[0])):
                raise PlainError(f"{path}, line 1: the columns are separated by {separators.pop()!r}. Use commas, or tabs in a .tsv file.")
            _check_header(path, names)
            rows = [(f"line {reader.line_num}", _named_cells(names, cells)) for cells in reader if cells]
        except csv.Error as error:
            raise PlainError(f"{path}, line {reader.line_num} is not valid CSV ({error}). Quote cells that contain quotes or "
                             "commas.") from None
        return Table(names, rows)

    @staticmethod
    def with_column(path, name, values):
        header, *rows = [cells for cells in csv.reader(io.StringIO(_read_text(path), newline="")) if cells]
        file = io.StringIO(newline="")
        extended = ([*cells, _cell(value)] for cells, value in zip(rows, values, strict=True))
        csv.writer(file, lineterminator="\n").writerows([[*header, name], *extended])
        return file.getvalue().encode()


class _Tsv:
    """Tab-separated values with a header, without quoting."""

    @staticmethod
    def read(path):
        (_, names), *rows = _Tsv._lines(path)
        _check_header(path, names)
        return Table(names, [(place, _named_cells(names, cells)) for place, cells in rows])

    @staticmethod
    def _lines(path):
        """(place, cells) of the lines; empty lines at the end are no rows."""
        return numbered_cells(_read_text(path).rstrip("\r\n"))

    @staticmethod
    def with_column(path, name, values):
        lines = ["\t".join([*cells, _cell(value)]) for (_, cells), value in zip(_Tsv._lines(path), [name, *values], strict=True)]
        return ("\n".join(lines) + "\n").encode()


class _JsonLines:
    """One JSON object per line."""

    @staticmethod
    def read(path):
        rows = _JsonLines._rows(path)
        return Table(list(dict.fromkeys(column for _, row in rows for column in row)), rows)

    @staticmethod
    def _rows(path):
        return read_json_lines(path, "The file needs one JSON object per line.")

    @staticmethod
    def with_column(path, name, values):
        rows = (row | {name: value} for (_, row), value in zip(_JsonLines._rows(path), values, strict=True))
        return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()


class _Parquet:
    """A parquet file."""

    @staticmethod
    def read(path):
        rows = _Parquet._table(path).to_pylist()
        return Table(list(rows[0]) if rows else [], [(f"row {number}", row) for number, row in enumerate(rows)])

    @staticmethod
    def _table(path):
        with as_plain_error(f"{path} is not a readable parquet file ({{error}}). Write it again."):
            return pyarrow.parquet.read_table(path)

    @staticmethod
    def with_column(path, name, values):
        file = io.BytesIO()
        pyarrow.parquet.write_table(_Parquet._table(path).append_column(name, [values]), file)
        return file.getvalue()


class _Conll:
    """A line per word, an empty line between sentences. The values of a row are lists with an item for each word."""

    @staticmethod
    def read(path):
        rows, n_columns = [], None
        for number, words in _Conll._sentences(path):
            n_columns = n_columns or len(words[0])
            wrong = next((i for i, cells in enumerate(words) if len(cells) != n_columns), None)
            if wrong is not None:
                raise PlainError(f"{path}, line {number + wrong}: {len(words[wrong])} columns instead of {n_columns}. Every word needs the "
                                 "same columns, and an empty line must end each sentence.")
            rows.append((f"line {number}", dict(enumerate(map(list, zip(*words))))))
        return Table(list(range(n_columns or 0)), rows)

    @staticmethod
    def _sentences(path):
        """(number of the first line, [cells of each word]) of each sentence."""
        sentences, words = [], []
        for number, line in enumerate([*_read_text(path).split("\n"), ""], 1):
            if cells := _Conll._cells(line):
                words.append(cells)
            elif words:
                sentences.append((number - len(words), words))
                words = []
        return sentences

    @staticmethod
    def _cells(line):
        """The columns of a word; [] for a line between sentences."""
        cells = line.rstrip("\r").split("\t") if "\t" in line else line.split()
        return [] if not line.strip() or cells[0] == _DOCUMENT_START else cells

    @staticmethod
    def with_column(path, name, values):
        tags, lines = itertools.chain.from_iterable(values), []
        for line in _read_text(path).removesuffix("\n").split("\n"):
            separator = "\t" if "\t" in line else " "
            lines.append(line.rstrip("\r") + (separator + next(tags) if _Conll._cells(line) else ""))
        return ("\n".join(lines) + "\n").encode()


FORMATS = {".csv": _Csv, ".tsv": _Tsv, ".jsonl": _JsonLines, ".json": _JsonLines, ".parquet": _Parquet, ".txt": _Conll, ".conll": _Conll}
