"""Where the text comes from: the hub by name or id, files by path, and `prose`, the text in this repository.

`load_documents` turns an entry of `datas` into a Corpus, whose documents are stored in an Arrow file. The name of a
prepared file has a hash of the content that it was made from, so it is never out of date. Hashes of files and commits
of hub corpora are remembered in the cache, so that unchanged text is not read again.
"""
import codecs
import itertools
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

import datasets
import pyarrow
from fastcore.basics import chunked

from _utils.errors import UserError
from _utils.files import content_key, file_chunks, recorded
from _utils.names import EMBEDDED, hub_text, is_path, without_parts
from _utils.progress import Progress
from _utils.text.hub_texts import check_hub_text, commit_of, download
from _utils.text.prepared_files import prepared
from _utils.text.readers import (
    LONG,
    Continuation,
    cut_text,
    find_files,
    format_of,
    invalid_line,
    print_once,
    read_file,
    reading,
    without_copies,
)
from _utils.text.streams import StreamedParts

_READING_VERSION = 2  # increase it if the same files then give other documents


@dataclass(frozen=True)
class Corpus:
    """name: the entry of `datas`.   hash_content, open_documents: functions that return `key` and `documents`.

    parts: the documents of a text that is streamed, else None.
    """
    name: str
    hash_content: Callable[[], str]
    open_documents: Callable[[], datasets.Dataset]
    parts: StreamedParts | None = None

    @cached_property
    def key(self):
        """Hash of the content. Files are read for it if they changed since it was recorded."""
        return self.hash_content()

    @cached_property
    def documents(self):
        """Memory-mapped datasets.Dataset with the column `text`, opened on first use.

        It is prepared if it is not in the cache. For streamed text, it is the first part.
        """
        return self.open_documents()


def load_documents(source, cache_dir, encoding="utf-8", documents="blank_line", revisions=None, stream=None):
    """Return the Corpus of one entry of `datas`: a name, a hub id or a path.

    The text is read when its `key` or `documents` are first used.
    documents: how .txt files are divided, as in `read_file`.   stream: value of the key `stream`.
    revisions: {name or id: commit, branch or tag} of hub texts.
    Raises UserError for a path that does not exist or has no text files, or an unreachable hub; `key` for files in
    another encoding, and for a configuration, split or column that a hub dataset does not have; `documents` for a file
    that cannot be read, and for damaged prepared documents.
    """
    cache_dir = Path(cache_dir)
    if text := hub_text(source):
        return _of_hub(source, text, (revisions or {}).get(without_parts(source)), stream, cache_dir)
    if source in EMBEDDED:
        return _own_files(source, EMBEDDED[source], cache_dir, "utf-8", "blank_line")
    is_utf8 = codecs.lookup(encoding).name == "utf-8"  # which has many names, such as UTF8
    return _own_files(source, source, cache_dir, "utf-8" if is_utf8 else encoding, documents)


def _of_hub(source, text, revision, stream, cache_dir):
    """Return the Corpus of a HubText. Its key is a hash of its parts, the commit, and how much of it is streamed.

    That the hub has it is recorded in a file, so that later runs need no connection.
    """
    commit = commit_of(source, text, revision, cache_dir)
    version = (*text[:4], commit, stream) if stream else (*text[:4], commit)
    key = content_key(version)

    def check():
        check_hub_text(source, text, commit, bool(stream))
        return key

    def hash_content():
        return recorded(cache_dir / f"source_{key}.txt", check)

    if not stream:
        return Corpus(source, hash_content, lambda: download(source, text, commit))
    parts = StreamedParts(source, text, commit, key, stream, cache_dir)
    return Corpus(source, hash_content, lambda: parts.documents(0), parts)


def _own_files(name, path, cache_dir, encoding, documents):
    """Return the Corpus of the files of a path, with a name for messages.

    Its key is a hash of the options for reading and of formats, compressions, sizes and contents of the files, without
    copies.
    """
    files, options = find_files(path), (_READING_VERSION, encoding, documents)
    without = cache(lambda: without_copies(files))

    def content():
        read, notices = without()
        return "\n".join([content_key(options, _contents(read, encoding)), *notices])

    def hash_content():
        with reading(path):  # a file that vanished
            stats = map(os.stat, files)
            # The time of change (ctime) cannot be set, unlike the time of modification.
            state = [(stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns) for stat in stats]
            record = cache_dir / f"source_{content_key((options, files, state, 'without copies'))}.txt"
            key, *notices = recorded(record, content).split("\n")
            for notice in notices:
                print_once(notice)
            return key

    def open_documents():
        texts = itertools.chain.from_iterable(read_file(file, encoding, documents) for file in without()[0])
        path = cache_dir / f"documents_{corpus.key}.arrow"
        return prepared(path, lambda file: _write_documents(texts, name, file))

    corpus = Corpus(name, hash_content, open_documents)
    return corpus


def real_files(source):
    """The real paths of the files of an entry of `datas`; the entry itself if it is a name, or has no files."""
    if not is_path(source):
        return {source}
    with suppress(UserError):
        return {*map(os.path.realpath, find_files(source))}
    return {os.path.realpath(source)}


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
