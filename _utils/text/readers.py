"""Documents from files: .txt, .jsonl, .parquet, WikiExtractor output, compressed or not."""
import codecs
import glob
import io
import json
import lzma
import os
import re
from functools import cache, partial
from pathlib import Path

import pyarrow
import pyarrow.parquet

from _utils.errors import UserError, as_user_error
from _utils.names import COMPRESSIONS, HUB_CORPORA, HUB_NOTATION

BLOCK = 1000  # rows from which examples are made together, with random numbers of their own

# In characters. They bound the memory that a document or a line takes.
LONG = 1 << 20   # longer documents are stored in several rows, longer lines are cut
PIECE = 1 << 16  # size of such a row, rounded up to the end of a line


class Continuation(str):
    """Text that continues the document a reader yielded before."""


def cut_text(text):
    """Yield pieces of at least PIECE characters that end at a line break, or after LONG more characters without one."""
    start = 0
    while start < len(text):
        end = text.find("\n", start + PIECE - 1, start + PIECE + LONG) + 1 or start + PIECE + LONG
        yield text[start:end]
        start = end


# The text of the quickstart, and the tenth of it that no run trains on (prose/README.md).
PROSE = Path(__file__).with_name("prose")
EMBEDDED = {"prose": PROSE / "train.txt.xz", "prose_held_out": PROSE / "held_out.txt.xz"}


def find_files(pattern):
    """Return the text files of a file name, a folder with all visible folders in it, or a glob, sorted by the parts of
    their paths.

    Prints which other files it skips. Raises UserError if there are no text files.
    """
    pattern = str(pattern)
    existing = glob.escape(pattern) if os.path.exists(pattern) else pattern  # its name may contain glob characters
    found = glob.glob(os.path.join(existing, "**") if os.path.isdir(pattern) else existing, recursive=True)
    paths = {path for path in found if os.path.isfile(path)}
    files = set(filter(format_of, paths))
    if skipped := sorted(paths - files):
        _print_once(f"Skipped {len(skipped):,} of {len(paths):,} files in {pattern}, which are not named *.txt, "
                    f"*.jsonl, *.parquet or wiki_NN (also compressed): {', '.join(skipped[:5])}")
    if not files:
        raise UserError(f"Invalid value for datas: {pattern!r}. It is not a file, folder or glob with text in "
                        "the formats .txt, .jsonl, .parquet or wiki_NN of WikiExtractor (also "
                        f"{', '.join(COMPRESSIONS)}). "
                        f"The corpora are {', '.join([*HUB_CORPORA, *EMBEDDED])}, and those on the hub, "
                        f"{HUB_NOTATION}.")
    return sorted(files, key=lambda path: path.replace(os.sep, "\0"))


@cache
def _print_once(line):
    """Print a line once in a process, which may look for the same files several times."""
    print(line)


def format_of(path):
    """Return the format of a text file by its name: '.txt', '.jsonl', '.parquet', or 'wiki' (WikiExtractor's names).

    None for others.
    """
    name = os.path.basename(path).lower()
    compressed = "|".join(map(re.escape, COMPRESSIONS))
    match = re.fullmatch(rf"(.+(\.txt|\.jsonl|\.parquet)|(wiki)_\d+)({compressed})?", name)
    return match and (match[2] or match[3])


def reading(path):
    """Context manager that turns errors of reading a text file into a UserError with its path."""
    return as_user_error(f"{path} cannot be read ({{error}}). Replace it or remove it from datas.",
                         (OSError, EOFError, lzma.LZMAError, UnicodeError, pyarrow.ArrowException))


def read_file(path, encoding, documents):
    """Yield the documents of a file. A long document of a .txt file is yielded as one string and Continuations.

    documents: of a .txt file. 'blank_line' separates them; or the 'file' or each 'line' is one.
    Raises UserError with the file, and the line where possible, if it cannot be read.
    """
    file_format = format_of(path)
    with reading(path):
        if file_format == ".parquet":
            yield from _read_parquet(path)
            return
        # drops a byte order mark
        with io.TextIOWrapper(_open(path), "utf-8-sig" if encoding == "utf-8" else encoding) as stream:
            if file_format == ".txt":
                yield from _read_text(stream, _ENDS[documents])
            else:
                yield from _READERS[file_format](stream, path)


def _open(path):
    """A binary file, decompressed."""
    suffix = os.path.splitext(path)[1].lower()
    return lzma.open(path) if suffix == ".xz" else pyarrow.input_stream(path, compression=COMPRESSIONS.get(suffix))


def check_encoding(path, encoding):
    """Raise UserError, with the line, for a text file in another encoding."""
    if format_of(path) == ".parquet":
        return
    number = 1
    with reading(path), _open(path) as file:
        try:
            for text in codecs.iterdecode(iter(partial(file.read, LONG), b""), encoding):
                number += text.count("\n")
        except UnicodeDecodeError as error:
            number += error.object[:error.start].count(b"\n")
            raise UserError(f"{path}, line {number} is not {encoding} text. Convert the file, or set the encoding of "
                            "all files, for example encoding=latin-1.") from error


# Which lines end a document of a .txt file, for each value of the key `documents`.
_ENDS = {"blank_line": lambda line: not line.strip(), "line": lambda line: line.endswith("\n"),
         "file": lambda line: False}


def _read_text(stream, is_end):
    """Yield the documents of a .txt file, in pieces of up to twice LONG. is_end: function of a line."""
    text, kind = "", str
    for line in iter(partial(stream.readline, LONG), ""):
        text += line
        if is_end(line) or len(text) >= LONG:
            yield kind(text.rstrip())
            text, kind = "", str if is_end(line) else Continuation
    yield kind(text.rstrip())


def _read_json_lines(lines, path):
    for number, line in enumerate(lines, 1):
        if line.strip():
            yield _text_of_json(line, path, number)


def _text_of_json(line, path, number):
    try:
        text = json.loads(line)["text"]
        text.encode()  # raises ValueError for a lone surrogate, which UTF-8 cannot encode
        return text
    except (LookupError, ValueError, TypeError, AttributeError, RecursionError):
        raise UserError(f"{path}, line {number} is not a JSON object with a string \"text\". Correct or remove that "
                        f"line.") from None


_ARTICLE = re.compile(r"(?s)<doc [^\n]*>\n(.*?)</doc>")


def _read_wikiextractor(stream, path):
    """Yield the articles between <doc ...> and </doc> without their titles, the first lines."""
    text = stream.read()  # WikiExtractor divides its output into files of a megabyte
    if _ARTICLE.sub("", text).strip():
        raise UserError(f"{path} has text outside <doc> ... </doc>, so it is truncated or not the output of "
                        "WikiExtractor. Replace it, or rename it to .txt or .jsonl.")
    for match in _ARTICLE.finditer(text):
        title, *lines = map(str.strip, match[1].split("\n"))
        yield "\n".join(filter(None, lines))


_READERS = {".jsonl": _read_json_lines, "wiki": _read_wikiextractor}


def _read_parquet(path):
    file = pyarrow.parquet.ParquetFile(path)
    columns = {field.name: str(field.type) for field in file.schema_arrow}
    if columns.get("text") not in ("string", "large_string"):
        raise UserError(f"{path} has no column \"text\" of strings (its columns: {columns}). Rename or convert one of "
                        f"them.")
    for batch in file.iter_batches(batch_size=100, columns=["text"]):
        yield from (text or "" for text in batch.column(0).to_pylist())
