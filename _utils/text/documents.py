"""Text as documents in Arrow files with checksums, and records of what was read when."""
import json
import os
from collections import Counter
from functools import partial
from pathlib import Path

import datasets
import pyarrow
from tqdm import tqdm

from _utils.errors import PlainError, as_plain_error
from _utils.runs.checkpoints import write_atomically
from _utils.runs.files import content_key, file_chunks


def read_record(path):
    """Return the dictionary in a record file, or an empty one if the file does not exist."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except ValueError:
        raise PlainError(f"{path} is not valid JSON. Correct it or delete it.") from None


def add_to_record(path, entry, value):
    """Set one entry of a record file. The file is read again first, because another run may have added to it."""
    content = json.dumps({**read_record(path), entry: value}, indent=1) + "\n"
    write_atomically(path, lambda file: file.write(content.encode()))


# In characters. They bound the memory that a document or a line takes.
LONG = 1 << 20   # longer documents are stored in several rows, longer lines are cut
PIECE = 1 << 16  # size of such a row, rounded up to the end of a line


class Continuation(str):
    """Text that continues the document a reader yielded before."""


def cut_text(text, size):
    """Yield pieces of at least `size` characters that end at a line break, or after LONG more characters without one."""
    start = 0
    while start < len(text):
        end = text.find("\n", start + size - 1, start + size + LONG) + 1 or start + size + LONG
        yield text[start:end]
        start = end


def write_documents(documents, path, name):
    """Write an iterable of strings and Continuations to the Arrow file `path`, which appears only when it is complete.

    Prints how many empty documents were skipped. name: of the corpus, for messages.
    Raises PlainError if no text is left.
    """
    checksum_path(path).unlink(missing_ok=True)  # left over from a damaged file that the user deleted
    write_atomically(path, partial(_write_rows, documents, name))


def _write_rows(documents, name, file):
    schema = datasets.Features({"text": datasets.Value("large_string"), "continues": datasets.Value("bool")}).arrow_schema
    bar = tqdm(documents, desc=f"Reading {name}", unit=" documents", unit_scale=True, mininterval=1,
               bar_format="{desc}: {n:,} documents [{elapsed}, {rate_noinv_fmt}]")
    counts = Counter()
    with pyarrow.ipc.new_stream(file, schema) as writer:
        for batch in _batches(_rows(bar, counts)):
            writer.write_batch(pyarrow.RecordBatch.from_pylist(batch, schema))
    if counts["empty"]:
        print(f"{name}: skipped {counts['empty']:,} empty documents")
    if not counts["rows"]:
        raise PlainError(f"Invalid value for datas: {name!r}. Its files contain no text.")


def _rows(documents, counts):
    """Yield the rows of all documents that are not empty. Counts `rows` and `empty` documents."""
    for document in documents:
        continues = isinstance(document, Continuation)
        if document.strip():
            for text in cut_text(document, PIECE) if continues or len(document) >= LONG else [document]:
                counts["rows"] += 1
                yield {"text": text, "continues": continues}
                continues = True
        elif not continues:
            counts["empty"] += 1


def _batches(rows):
    """Yield lists of up to 100 rows, or of a few MB of text."""
    batch, size = [], 0
    for row in rows:
        batch.append(row)
        size += len(row["text"])
        if len(batch) == 100 or size > 4 * LONG:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def open_prepared(path):
    """Memory-map an Arrow file that this or an earlier run prepared, as a datasets.Dataset.

    A checksum file beside it holds the hash of its content. The content is hashed and compared again only when the size or the
    modification time of the file has changed. Raises PlainError if the file is damaged.
    """
    checksum_file = checksum_path(path)
    with as_plain_error(f"{path} cannot be read ({{error}}). Delete it and {checksum_file.name} to rebuild it.",
                        (pyarrow.ArrowException, OSError, ValueError)):
        dataset = datasets.Dataset.from_file(str(path))
        if is_unchanged(path):
            return dataset
        stat = os.stat(path)
        checksum = content_key("", file_chunks(path))
        if checksum_file.exists() and checksum_file.read_text().split()[:1] != [checksum]:
            raise ValueError(f"its content does not match {checksum_file.name}")
    write_atomically(checksum_file, lambda file: file.write(f"{checksum} {stat.st_size} {stat.st_mtime_ns}".encode()))
    return dataset


def checksum_path(path):
    """Path of the file with the hash, size and modification time of a prepared file."""
    return Path(f"{path}.xxh3")


def is_unchanged(path):
    """Whether a prepared file has the size and modification time in its checksum file."""
    try:
        _, size, mtime_ns = checksum_path(path).read_text().split()
    except (FileNotFoundError, ValueError):
        return False
    stat = os.stat(path)
    return (size, mtime_ns) == (str(stat.st_size), str(stat.st_mtime_ns))
