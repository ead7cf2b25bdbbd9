"""Files of own tasks: CSV, TSV, JSON lines, parquet and CoNLL columns; reading their rows, and adding a column of predictions.

CSV files follow RFC 4180: a quoted cell may contain commas, quotes and line breaks. In TSV files quotes are ordinary characters, as in
GLUE's. In CoNLL files a line has the columns of one word, separated by tabs or spaces, and an empty line ends a sentence; columns have
no names, so they are numbered from 0, and the values of a row are lists with an item for each word.
"""
import csv
import io
import itertools
import json
from pathlib import Path

import pandas as pd
import pyarrow.parquet

from _utils.errors import PlainError, as_plain_error
from _utils.glue.tables import Table, lines_of, table_of_cells
from _utils.runs.checkpoints import write_atomically
from _utils.runs.files import read_json_lines, read_text


def format_of(path):
    """(reader, writer) of a file's format, which follows from its extension. PlainError for another one."""
    suffix = Path(path).suffix.lower()
    if suffix not in FORMATS:
        raise PlainError(f"Invalid file for an own task: {path!r}. Use a file that ends with {', '.join(FORMATS)}.")
    return FORMATS[suffix]


def read_table(path):
    """The Table of a file; missing values are "". PlainError, with the line where possible, if it cannot be read or has no rows."""
    read, _ = format_of(path)
    if not Path(path).is_file():
        raise PlainError(f"File not found: {path!r}. Correct the path in tasks.")
    table = read(path)
    if table.rows.empty:
        raise PlainError(f"{path} has no rows. Correct the path in tasks, or the file.")
    return table


def write_with_column(table, target, values):
    """Write the file of a Table, as it was read, to `target` atomically with one more column, 'prediction'.

    values: one string or number per row; for tagging a list of one per word. An existing column of that name stays: the new one is
    'prediction_2'.
    """
    names = itertools.chain(["prediction"], map("prediction_{}".format, itertools.count(2)))
    name, (_, with_column) = next(name for name in names if name not in table.rows), format_of(table.source)
    write_atomically(Path(target), lambda file: file.write(with_column(table, name, values)))


def _text_of(path):
    return read_text(path, "Convert the file.")


def _read_csv(path):
    reader = csv.reader(io.StringIO(_text_of(path), newline=""), strict=True)
    try:
        return _with_header(path, pd.Series({f"line {reader.line_num}": cells for cells in reader if cells}, dtype=object))
    except csv.Error as error:
        raise PlainError(f"{path}, line {reader.line_num} is not valid CSV ({error}). Quote cells that contain quotes or commas.") from None


def _read_tsv(path):
    return _with_header(path, lines_of(_text_of(path).rstrip("\r\n")).str.split("\t"))


def _with_header(path, cells):
    """Table of a Series of rows, as lists of cells, the first of which has the names of the columns."""
    names = next(iter(cells), [])
    if "" in names or len(set(names)) < len(names) or len(names) == 1 and set(names[0]) & set(";\t"):
        raise PlainError(f"{path}, line 1 has the columns {', '.join(map(repr, names))}. Each needs a different name; they are separated "
                         "by commas in .csv files, and by tabs in .tsv files.")
    return table_of_cells(path, cells[1:], names)


def _cells_with(table, name, values, **options):
    """A table with a header; the tags of a sentence have spaces between them."""
    values = [" ".join(value) if isinstance(value, list) else value for value in values]
    return table.rows.assign(**{name: values}).to_csv(index=False, lineterminator="\n", **options).encode()


def _tsv_with(table, name, values):
    return _cells_with(table, name, values, sep="\t", quoting=csv.QUOTE_NONE)


def _table_of_objects(path, objects, content):
    """Table of {place: {column: value}}."""
    rows = pd.DataFrame(objects.values(), objects, dtype=object).fillna("")
    return Table(path, rows, pd.Series(index=rows.index), content)


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
    lines = lines_of(_text_of(path))
    is_word = (lines.str.strip() != "") & (lines.str.split(n=1).str[0] != "-DOCSTART-")  # a line that some files put between documents
    cells = lines[is_word].map(lambda line: line.split("\t") if "\t" in line else line.split())
    table = table_of_cells(path, cells, range(len(next(iter(cells), []))))
    for place, problem in table.problems.dropna().items():
        raise PlainError(f"{path}, {place}: {problem}. Every word needs the same columns, and an empty line must end each sentence.")
    rows = table.rows.reset_index(names="place").groupby((~is_word).cumsum()[is_word].to_numpy()).agg(list)
    rows.index = rows.pop("place").str[0]
    return Table(path, rows, pd.Series(index=rows.index), (lines, is_word))


def _conll_with(table, name, values):
    lines, is_word = table.content
    lines = lines.copy()
    lines[is_word] = [line + ("\t" if "\t" in line else " ") + tag for line, tag in zip(lines[is_word], itertools.chain(*values))]
    return ("\n".join(lines) + "\n").encode()


# {extension: (path -> Table, (Table, name and values of another column) -> content of a file)}
FORMATS = {".csv": (_read_csv, _cells_with), ".tsv": (_read_tsv, _tsv_with), ".jsonl": (_read_json_lines, _json_lines_with),
           ".parquet": (_read_parquet, _parquet_with), ".conll": (_read_conll, _conll_with)}
FORMATS |= {".json": FORMATS[".jsonl"], ".txt": FORMATS[".conll"]}
