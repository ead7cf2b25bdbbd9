"""Documents from files: .txt, .jsonl, .parquet, WikiExtractor output, compressed or not."""
import codecs
import glob
import io
import itertools
import json
import lzma
import os
import re
from collections import Counter
from functools import cache, partial
from pathlib import Path

import pyarrow
import pyarrow.parquet

from _utils.errors import UserError, as_user_error
from _utils.files import content_key
from _utils.names import COMPRESSIONS, TEXT_FILES, no_text_error

ROWS_PER_BLOCK = 1000  # from which examples are made together, with random numbers of their own

print_once = cache(print)  # a process may look for the same files several times

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


def find_files(pattern):
    """Return the text files of a file name, a folder or a glob, sorted by the parts of their paths.

    A folder includes all visible folders in it. Prints which other files it skips.
    Raises UserError if there are no text files, or if a folder cannot be listed.
    """
    if os.path.isfile(pattern):  # its name may contain glob characters
        paths = {str(pattern)}
    else:
        paths = {*(_walk(pattern) if os.path.isdir(pattern) else _glob(str(pattern)))}
    files = {path for path in paths if format_of(path) and os.path.isfile(path)}
    if skipped := sorted(paths - files):
        names = ", ".join(skipped[:5]) + " ..." * (len(skipped) > 5)
        print_once(f"Skipped {len(skipped):,} of {len(paths):,} paths in {pattern}, which are not named like files "
                    f"of text ({', '.join(TEXT_FILES)} or wiki_NN, also compressed): {names}")
    if not files:
        raise no_text_error(pattern)
    return sorted(files, key=lambda path: path.replace(os.sep, "\0"))


def without_copies(files):
    """Return (files without copies of earlier ones, [a notice about the copies] or []).

    Copies have the same content after decompression. Only files with the size of another one, or with its name but for
    the compression, are read.
    """
    names, originals, copies = {path: _names_of(path) for path in files}, {}, []
    n_files = Counter(itertools.chain.from_iterable(names.values()))
    for path in files:
        may_be_copy = os.path.getsize(path) and any(n_files[name] > 1 for name in names[path])
        original = originals.setdefault(_content_of(path) if may_be_copy else path, path)
        if original != path:
            copies.append(f"{path} of {original}")
    notice = f"Skipped {len(copies):,} files that are copies of others: {', '.join(copies):.500}"
    return [*originals.values()], [notice] if copies else []


def _names_of(path):
    """The size of a file, and its name without the compression."""
    name, suffix = os.path.splitext(os.path.basename(path))
    return os.path.getsize(path), name if suffix.lower() in COMPRESSIONS else name + suffix


def _content_of(path):
    """Hash of the format and the decompressed content of a file."""
    with reading(path), _open(path) as file:
        return content_key(format_of(path), iter(partial(file.read, LONG), b""))


def _glob(pattern):
    """Return the paths that a glob matches, except for folders of which it matches files.

    The folders it begins with are not patterns if they exist, and neither are brackets if it matches nothing otherwise.
    """
    existing = (path for path in map(str, Path(pattern).parents) if os.path.isdir(path) and pattern.startswith(path))
    folder = next(existing, "")
    name = pattern[len(folder):]
    found = lambda name: glob.glob(glob.escape(folder) + name, recursive=True)
    paths = [path.rstrip(os.sep) for path in found(name) or found(name.replace("[", "[[]"))]
    return {*paths} - {os.path.dirname(path) for path in paths}


def _walk(folder):
    """Yield all visible files and links below a folder. Raises UserError for a folder that cannot be listed."""
    def fail(error):
        with reading(error.filename):
            raise error

    for root, folders, names in os.walk(folder, onerror=fail):
        folders[:] = [name for name in folders if not name.startswith(".")]
        links = [name for name in folders if os.path.islink(os.path.join(root, name))]  # not followed: may be cycles
        yield from (os.path.join(root, name) for name in [*links, *names] if not name.startswith("."))


def format_of(path):
    """Return the format of a text file by its name, or None if it is not one.

    Formats are TEXT_FILES, and 'wiki' for the names of WikiExtractor. All but .parquet may be compressed.
    """
    name = os.path.basename(path).lower()
    endings, compressed = ("|".join(map(re.escape, names)) for names in (TEXT_FILES, COMPRESSIONS))
    match = re.fullmatch(rf"(.+({endings})|(wiki)_\d+)({compressed})?", name)
    is_unreadable = not match or match[2] == ".parquet" and match[4]  # which is compressed already
    return None if is_unreadable else match[2] or match[3]


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


def beginning_of(path):
    """The first bytes of a file, decompressed, at most PIECE."""
    with reading(path), _open(path) as file:
        return file.read(PIECE)


def invalid_line(path, encoding):
    """The number of the first line of a text file that is not text in this encoding; None if all of it is."""
    number = 1
    with reading(path), _open(path) as file:
        try:
            for text in codecs.iterdecode(iter(partial(file.read, LONG), b""), encoding):
                number += text.count("\n")
        except UnicodeDecodeError as error:
            return number + error.object[:error.start].count(b"\n")


# Which lines end a document of a .txt file, for each value of the key `documents`.
_ENDS = {"blank_line": lambda line: not line.strip(), "line": lambda line: line.endswith("\n"),
         "file": lambda line: False}


def _read_text(stream, is_end):
    """Yield the documents of a .txt file, in pieces of up to twice LONG. is_end: function of a line."""
    text, kind = "", str
    for line in iter(partial(stream.readline, LONG), ""):
        text += line
        if is_end(line):
            yield kind(text.rstrip())
            text, kind = "", str
        elif len(text) >= LONG:
            yield kind(text)
            text, kind = "", Continuation
    yield kind(text.rstrip())


def _read_json_lines(lines, path):
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            text = json.loads(line)["text"]
            text.encode()  # raises ValueError for a lone surrogate, which UTF-8 cannot encode
        except (LookupError, ValueError, TypeError, AttributeError, RecursionError):
            raise UserError(f"{path}, line {number} is not a JSON object with a string \"text\". Correct or remove "
                            "that line.") from None
        yield text


def _read_wikiextractor(lines, path):
    """Yield the articles between <doc ...> and </doc> without their titles, the first lines."""
    article = None
    for number, line in enumerate(itertools.chain(lines, ["<doc "]), 1):  # at the end, no article is open either
        if line.startswith("<doc "):
            if article is not None:
                raise UserError(f"{path}, line {number}: the article before has no </doc>, as in a truncated file. "
                                "Repair or replace it.")
            article = []
        elif article is None:
            if line.strip():
                raise UserError(f"{path}, line {number} is outside <doc> ... </doc>, so this is not the output of "
                                "WikiExtractor. Rename the file to .txt or .jsonl.")
        elif line.startswith("</doc>"):
            yield "\n".join(article[1:])
            article = None
        elif line.strip():
            article.append(line.strip())


_READERS = {".jsonl": _read_json_lines, "wiki": _read_wikiextractor}


def _read_parquet(path):
    file = pyarrow.parquet.ParquetFile(path)
    columns = {field.name: str(field.type) for field in file.schema_arrow}
    if columns.get("text") not in ("string", "large_string"):
        raise UserError(f"{path} has no column \"text\" of strings (its columns: {columns}). Rename or convert one of "
                        f"them.")
    for batch in file.iter_batches(batch_size=100, columns=["text"]):
        yield from (text or "" for text in batch.column(0).to_pylist())
