"""Where the text comes from: corpora on the hub by name, files by path, and `prose`, the text in this repository.

`load_documents` turns an entry of `datas` into a Corpus, whose documents are stored in an Arrow file. The name of a
prepared file has a hash of the content that it was made from, so it is never out of date. Hashes of files and commits
of hub corpora are remembered in the cache, so that unchanged text is not read again.
"""
import itertools
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import datasets
import pyarrow
from fastcore.basics import chunked

from _utils.errors import UserError, as_user_error
from _utils.files import content_key, file_chunks, write_atomically, write_text_atomically
from _utils.names import HUB_CORPORA
from _utils.progress import Progress
from _utils.text.readers import (
    EMBEDDED,
    LONG,
    Continuation,
    cut_text,
    find_files,
    format_of,
    hub_corpus,
    invalid_line,
    read_file,
    reading,
)

_READING_VERSION = 2  # increase when the readers yield other documents for the same files


@dataclass(frozen=True)
class Corpus:
    """name: the entry of `datas`.   hash_content, open_documents: functions that return `key` and `documents`."""
    name: str
    hash_content: Callable[[], str]
    open_documents: Callable[[], datasets.Dataset]

    @cached_property
    def key(self):
        """Hash of the content. Files are read for it if they changed since it was recorded."""
        return self.hash_content()

    @cached_property
    def documents(self):
        """Memory-mapped datasets.Dataset with the column `text`, opened on first use, and prepared if it is not in the
        cache.
        """
        return self.open_documents()


def load_documents(source, cache_dir, encoding="utf-8", documents="blank_line", revisions=None):
    """Return the Corpus of one entry of `datas` (a name or a path). The text is read when its `key` or `documents` are
    first used.

    documents: how .txt files are divided, as in `read_file`.   revisions: {name: commit, branch or tag} of hub corpora.
    Raises UserError for a path that does not exist or has no text files, or an unreachable hub; `key` for files in
    another encoding; `documents` for a file that cannot be read, and for damaged prepared documents.
    """
    cache_dir = Path(cache_dir)
    if source in HUB_CORPORA:
        version, open_documents = hub_corpus(source, (revisions or {}).get(source), cache_dir)
        return Corpus(source, lambda: content_key(version), open_documents)
    if source in EMBEDDED:
        return _own_files(source, EMBEDDED[source], cache_dir, "utf-8", "blank_line")
    return _own_files(source, source, cache_dir, encoding, documents)


def _own_files(name, path, cache_dir, encoding, documents):
    """Return the Corpus of the files of a path, with a name for messages.

    Its key is a hash of the options for reading and of formats, compressions, sizes and contents of the files.
    """
    files, options = find_files(path), (_READING_VERSION, encoding, documents)
    record = cache_dir / f"source_{content_key((options, files))}.xxh3"

    def hash_content():
        with reading(path):  # a file that vanished
            return current_hash(files, record, lambda: content_key(options, _contents(files, encoding)))

    def open_documents():
        texts = itertools.chain.from_iterable(read_file(file, encoding, documents) for file in files)
        path = cache_dir / f"documents_{corpus.key}.arrow"
        return prepared(path, lambda file: _write_documents(texts, name, file))
    corpus = Corpus(name, hash_content, open_documents)
    return corpus


def _contents(files, encoding):
    """Yield formats, compressions, sizes and contents of files, after their encoding was checked."""
    _check_encoding([path for path in files if format_of(path) != ".parquet"], encoding)
    for path in files:
        with reading(path):
            suffix = os.path.splitext(path)[1].lower()
            yield f"{format_of(path)} {suffix} {os.stat(path).st_size} ".encode()
            yield from file_chunks(path)


def _check_encoding(files, encoding):
    """Raise UserError for text files in another encoding."""
    with as_user_error(f"Invalid value for encoding: {encoding!r} ({{error}}). Use one of Python's, such as "
                       f"latin-1.", LookupError):
        "".encode(encoding)
    if invalid := [f"{path}, line {line}" for path in files if (line := invalid_line(path, encoding))]:
        raise UserError(f"{len(invalid):,} of {len(files):,} files are not {encoding} text. Convert them, or set "
                        "their encoding (for example encoding=latin-1), which all files share. "
                        f"{'; '.join(invalid):.2000}")


def _write_documents(documents, name, file):
    """Write an iterable of strings and Continuations as Arrow rows. name: of the corpus.

    Raises UserError if there is no text.
    """
    schema = datasets.Features(
        {"text": datasets.Value("large_string"), "continues": datasets.Value("bool")}
    ).arrow_schema
    bar = Progress(documents, f"Reading {name}", unit="documents")
    with bar, pyarrow.ipc.new_stream(file, schema) as writer:
        for rows in chunked(_rows(bar), 100):
            writer.write_batch(pyarrow.RecordBatch.from_pylist(rows, schema))
        if not writer.stats.num_record_batches:
            raise UserError(f"Invalid value for datas: {name!r}. Its files contain no text.")


def _rows(documents):
    """Yield the rows of all documents that are not empty."""
    for document in documents:
        continues = isinstance(document, Continuation)
        if document.strip():
            for text in cut_text(document) if continues or len(document) >= LONG else [document]:
                yield {"text": text, "continues": continues}
                continues = True


def prepared(path, write=None):
    """Return the Arrow file `path` as a memory-mapped datasets.Dataset. If it does not exist, `write(file)` creates it
    first.

    It appears when it is complete. Raises UserError if its content is no longer the one that was written.
    """
    record = Path(f"{path}.xxh3")
    if not path.exists():
        record.unlink(missing_ok=True)  # left over from a damaged file that the user deleted
        write_atomically(path, write)
    with as_user_error(f"{path} cannot be read ({{error}}). Delete it and {record.name} to rebuild it.",
                       (pyarrow.ArrowException, OSError, ValueError)):
        dataset = datasets.Dataset.from_file(str(path))
        current_hash([path], record, lambda: content_key("", file_chunks(path)), may_change=False)
    return dataset


def current_hash(paths, record, compute, may_change=True):
    """Return the hash of the contents of files, from the file `record` of these files if their sizes and times are
    still those in it.

    compute(): the hash of the present contents, which is then recorded.   may_change: False raises ValueError if it
    differs from the recorded one.
    """
    # The time of change (ctime) cannot be set. It reveals a change after which the time of modification was restored.
    stats = map(os.stat, paths)
    state = content_key([(stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns) for stat in stats])
    recorded = record.read_text().split() if record.exists() else []
    if recorded[1:] == [state]:
        return recorded[0]
    computed = compute()
    if recorded and not may_change and recorded[0] != computed:
        raise ValueError(f"its content does not match {record.name}")
    write_text_atomically(record, f"{computed} {state}")
    return computed
