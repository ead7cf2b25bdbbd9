"""Files of custom tasks: CSV, TSV, JSON lines, parquet and CoNLL columns.

CSV files follow RFC 4180: a quoted cell may contain commas, quotes and line breaks. In TSV files quotes are ordinary
characters, as in GLUE's (F49). In CoNLL files a line has the columns of one word, separated by tabs or spaces, and an
empty line ends a sentence; columns have no names, so they are numbered from 0, and the values of a row are lists with
an item for each word.
"""
import ast
import contextlib
import csv
import io
import json
import re
from pathlib import Path

import datasets
import pandas as pd
import pyarrow.parquet

from _utils.custom.cells import refuse, split_words
from _utils.custom.definition import FORMATS, TEXTS_ADVICE, hub_table
from _utils.custom.hub_tables import load_rows
from _utils.errors import UserError, as_user_error
from _utils.files import read_json_lines, read_text
from _utils.tasks.tables import Table, check_columns, malformed, read_lines, table_of_cells

# Lists without a comma between two strings, as NumPy prints them: Python would read one string.
_WITHOUT_COMMA = re.compile(r"""['"]\s+['"]""")
_LIST = re.compile(r"""\s*\[\s*['"\d.+-].*\]\s*""", re.DOTALL)  # probably: a text may begin with a bracket, too
_QUOTED = re.compile(r'"([^"]*"")+[^"]*"')  # a quoted cell with quotes in it
_HEADER = re.compile(r'\s*("[^"]*"|[^"\r\n])*')
_JSON_ADVICE = ("The file needs one JSON object per line. If it has questions in the format of SQuAD, set 'kind': "
                "'questions'.")


def read_table(path):
    """The Table of a file that exists, or on the hub. UserError, with the line where possible, if it cannot be read."""
    if hub_table(path):
        rows = load_rows(path)
        return _table_of_rows(path, rows.to_list(), rows.features)
    suffix = Path(path).suffix.lower()
    if suffix == ".gz":
        raise UserError(f"{path} is compressed. Decompress it, or set 'kind': 'questions' if it has questions.")
    table = _READERS[FORMATS[suffix]](path)
    problems = {}
    return table._replace(rows=table.rows.apply(_as_lists, problems=problems), unusable=problems)


def _as_lists(column, problems):
    """A column of lists that are written as strings, such as "['art', 'news']", as lists; any other as it is.

    Adds a column to `problems`, as in Table, in which most strings seem to be lists, but not all are.
    """
    written = column[column.map(lambda cell: isinstance(cell, str) and cell != "")]
    lists = written.map(list_in)
    may_be = lists.notna() | written.map(_LIST.fullmatch).notna()
    if not may_be.mean() > .5:
        return column
    others = written[lists.isna()]
    if len(others):
        problems[column.name] = (f"{others.index[0]}: the column {column.name!r} has lists, but here "
                                 f"{others.iloc[0]!r:.60} ({malformed(others.index, len(written))}). Write lists such "
                                 "as ['art', 'news'], with commas, in all of its rows.")
        return column
    return lists.reindex(column.index).fillna(column)


def list_in(text):
    """The list that a string spells as JSON or Python do; None for any other string."""
    text = text.strip()
    is_list = text[:1] == "[" and not _WITHOUT_COMMA.search(text)
    for parse in (json.loads, ast.literal_eval) if is_list else ():
        with contextlib.suppress(ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
            value = parse(text)
            return value if isinstance(value, list) else None  # not "[1], [2]", a tuple
    return None


def _read_csv(path):
    text = read_text(path)
    header = re.sub('"[^"]*"', "", _HEADER.match(text)[0])
    delimiter = max(",;\t|", key=header.count)
    return _read_cells(path, text, strict=True, delimiter=delimiter, skipinitialspace=f"{delimiter} " in header)


def _read_tsv(path):
    table = _read_cells(path, read_text(path), delimiter="\t", quoting=csv.QUOTE_NONE)
    quoted = [(place, cell) for place, *cells in table.rows.itertuples(name=None)
              for cell in filter(_QUOTED.fullmatch, cells)]
    if not quoted:
        return table
    place, cell = quoted[0]
    return table._replace(warnings=(
        f"warning: {path}: {len(quoted):,} cells look quoted, such as {cell:.60} in {place}, but quotes are part of "
        "the cells of a .tsv file. If a program such as pandas added them, rename the file to .csv",))


def _read_cells(path, text, **dialect):
    """Table of cells with a header. As for pandas, an empty line or one of spaces is not a row.

    Blanks at the ends of the names of columns do not count, and a row that repeats the header is malformed.
    """
    csv.field_size_limit(2 ** 31 - 1)  # a cell may be a book; the default is 131,072 characters
    reader = csv.reader(io.StringIO(text, newline=""), **dialect)
    is_row = lambda cells: cells == [""] or ",".join(cells).strip(" \t")
    try:
        rows = {f"line {reader.line_num}": cells for cells in reader if is_row(cells)}
    except csv.Error as error:
        raise UserError(f"{path}, line {reader.line_num} is not valid CSV ({error}). Quote cells that contain quotes "
                        "or commas.") from None
    header = rows.pop(next(iter(rows), None), [])
    table = table_of_cells(path, pd.DataFrame(rows.values(), rows), [*map(str.strip, header)])
    repeated = [place for place, cells in rows.items() if cells == header and len(cells) > 1]
    return table._replace(problems=table.problems | dict.fromkeys(repeated, "the header is repeated"))


def _read_json_lines(path):
    return _table_of_objects(path, dict(read_json_lines(path, _JSON_ADVICE)))


def _read_parquet(path):
    with as_user_error(f"{path} is not a readable parquet file ({{error}}). Write it again."):
        table = pyarrow.parquet.read_table(path)
        rows = table.to_pylist()  # pandas would read lists as arrays
        # `datasets` stores the names of classes only there
        has_features = b"huggingface" in (table.schema.metadata or ())
        features = datasets.Features.from_arrow_schema(table.schema) if has_features else {}
    return _table_of_rows(path, rows, features)


def _table_of_rows(path, rows, features):
    """Table of dictionaries. features: those of `datasets` that are known, {column: feature}."""
    rows = [{name: _with_names(features.get(name), value) for name, value in row.items()} for row in rows]
    return _table_of_objects(path, {f"row {number}": row for number, row in enumerate(rows)})


def _with_names(feature, value):
    """A value of a feature of `datasets` with names in place of the ids of classes, and None for -1, which is none."""
    if isinstance(feature, datasets.ClassLabel):
        return feature.names[value] if value in range(feature.num_classes) else None
    if isinstance(feature, datasets.List | datasets.LargeList) and isinstance(value, list):
        return [_with_names(feature.feature, item) for item in value]
    if isinstance(feature, dict) and isinstance(value, dict):
        return {name: _with_names(feature.get(name), item) for name, item in value.items()}
    return value


def _table_of_objects(path, objects):
    """Table of {place: {column: value}}."""
    return Table(path, pd.DataFrame(objects.values(), objects, dtype=object).fillna(""), {})


def _read_conll(path):
    lines = read_lines(path)
    is_word = ~lines.str.match(r"\s*(-DOCSTART-(\s.*)?)?$")  # some files have such a line between documents
    sentence, lines = (~is_word).cumsum()[is_word], lines[is_word]
    cells = lines.map(lambda line: line.split("\t") if "\t" in line else split_words(line))
    cells = cells[~_are_comments(lines, cells, sentence)]
    cells = cells[~_repeat_words(cells.str.get(0))]
    n_columns = int(max(cells.str.len().mode(), default=0))
    for i in range(n_columns):  # texts; but words may have spaces, as in Vietnamese
        are_several = cells.str.get(i).map(lambda cell: len(split_words(cell)) > 1, na_action="ignore").fillna(False)
        refuse(path, lines[cells.index], are_several & (are_several.mean() >= .5),
               f"lines have several words in column {i}", TEXTS_ADVICE)
    words = table_of_cells(path, pd.DataFrame(cells.tolist(), cells.index), [*map(str, range(n_columns))])
    return _sentences(words, sentence[cells.index],
                      "an empty line must end each sentence, and a comment begins with # and stands before a sentence. "
                      f"{TEXTS_ADVICE}")


def by_sentence(table, column, name, groups):
    """The Table of a file with a word in each row as one of sentences, whose cells are lists.

    Successive rows with the same cell in `column`, or with an empty one, are a sentence, unless their `groups` differ.
    name: of the task.   groups: a column, which may be missing, or None.
    """
    check_columns(table, [column], f"Set 'sentence' of the task {name!r} to the column with the numbers of the "
                                   "sentences.")
    of_sentence = table.rows[table.rows.columns.intersection([column, groups])].replace("", None).ffill().fillna("")
    words = table._replace(rows=table.rows.drop(columns=column))
    is_first = (of_sentence != of_sentence.shift()).any(axis=1)
    return _sentences(words, is_first.cumsum(), f"and {column!r} is the number of its sentence.")


def _sentences(words, sentence, advice):
    """The Table of sentences. words: a Table.   sentence: Series of the number of the sentence of each word.

    UserError, which ends with `advice`, for malformed words.
    """
    if words.problems:
        place, problem = next(iter(words.problems.items()))
        raise UserError(f"{words.source}, {place}: {problem} ({malformed([*words.problems], len(words.rows))}). Every "
                        f"word needs the same columns, {advice}")
    sentence = sentence.to_numpy()
    places = words.rows.index.to_series().groupby(sentence).first()
    return words._replace(rows=words.rows.groupby(sentence).agg(list).set_axis(places))


def _are_comments(lines, cells, sentence):
    """Whether lines are comments. cells, sentence: of each line, its columns and the number of its sentence.

    They stand before a sentence, begin with #, and are "key = value" or have another number of columns than most words.
    """
    has_sign, n_columns = lines.str.startswith("#"), cells.str.len()
    has_other_columns = n_columns != n_columns[~has_sign].mode().max()
    may_be = has_sign & (has_other_columns | lines.str.match(r"#\s*[\w.:-]+\s*="))
    return may_be.astype(int).groupby(sentence).cummin().astype(bool)


def _repeat_words(first):
    """Whether lines of CoNLL-U are multiword tokens (3-4), which repeat words, or empty nodes (6.1), which are none.

    first: the first cell of each line.
    """
    are_numbered = first.str.fullmatch(r"\d+([-.]\d+)?").mean() > .9
    return first.str.fullmatch(r"\d+[-.]\d+") & are_numbered


# {format: path -> Table}
_READERS = {"csv": _read_csv, "tsv": _read_tsv, "JSON lines": _read_json_lines, "parquet": _read_parquet,
            "CoNLL": _read_conll}
