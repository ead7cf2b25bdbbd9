"""Text as documents in Arrow files, and hashes of files that are computed again only when a file was changed."""
import itertools
import os
from functools import partial
from pathlib import Path

import datasets
import pyarrow
import xxhash
from tqdm import tqdm

from _utils.errors import PlainError, as_plain_error
from _utils.runs.checkpoints import write_atomically
from _utils.runs.files import content_key, file_chunks

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

    name: of the corpus, for messages.   Raises PlainError if there is no text.
    """
    write_prepared(path, partial(_write_rows, documents, name))


def _write_rows(documents, name, file):
    schema = datasets.Features({"text": datasets.Value("large_string"), "continues": datasets.Value("bool")}).arrow_schema
    bar = tqdm(documents, desc=f"Reading {name}", unit=" documents", unit_scale=True, mininterval=1)
    rows = _rows(bar)
    with bar, pyarrow.ipc.new_stream(file, schema) as writer:
        while batch := list(itertools.islice(rows, 100)):
            writer.write_batch(pyarrow.RecordBatch.from_pylist(batch, schema))
        if not writer.stats.num_record_batches:
            raise PlainError(f"Invalid value for datas: {name!r}. Its files contain no text.")


def _rows(documents):
    """Yield the rows of all documents that are not empty."""
    for document in documents:
        continues = isinstance(document, Continuation)
        if document.strip():
            for text in cut_text(document, PIECE) if continues or len(document) >= LONG else [document]:
                yield {"text": text, "continues": continues}
                continues = True


def write_prepared(path, write):
    """Call `write` with a binary file, which appears under `path` when it is complete, with its checksum."""
    Path(f"{path}.xxh3").unlink(missing_ok=True)  # left over from a damaged file that the user deleted
    write_atomically(path, write)
    open_prepared(path)


def open_prepared(path):
    """Memory-map an Arrow file that this or an earlier run prepared, as a datasets.Dataset. Raises PlainError if it is damaged."""
    checksum = Path(f"{path}.xxh3")
    with as_plain_error(f"{path} cannot be read ({{error}}). Delete it and {checksum.name} to rebuild it.",
                        (pyarrow.ArrowException, OSError, ValueError)):
        dataset = datasets.Dataset.from_file(str(path))
        current_hash([path], checksum, lambda: content_key("", file_chunks(path)), may_change=False)
    return dataset


def current_hash(paths, record, compute, may_change=True):
    """Return the hash of the contents of files, from the file `record` if their paths, sizes and times are still those in it.

    compute(): the hash of the present contents, which is then recorded.   may_change: False raises ValueError if it differs from the
    recorded one.
    """
    digest = xxhash.xxh3_128()
    for path in paths:
        stat = os.stat(path)
        # The time of change (ctime) cannot be set, and so reveals a change after which the time of modification was restored.
        digest.update(os.fsencode(path) + b"\0%d %d %d\n" % (stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns))
    known, *unchanged = (record.read_text() if record.exists() else "").split() or [None]
    if unchanged == [digest.hexdigest()]:
        return known
    found = compute()
    if not may_change and known not in (None, found):
        raise ValueError(f"its content does not match {record.name}")
    write_atomically(record, lambda file: file.write(f"{found} {digest.hexdigest()}".encode()))
    return found
