"""Where the text comes from: corpora on the hub by name, files by path, and `docs`, the text embedded in every installation.

`load_documents` turns an entry of `datas` into a Corpus. Hashes of files and commits of hub corpora are remembered in
`sources.json` and `hub_revisions.json`, so that unchanged text is not read again.
"""
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path

import datasets
import xxhash

from _utils.errors import PlainError
from _utils.runs.files import content_key, file_chunks
from _utils.text import embedded_text
from _utils.text.documents import add_to_record, is_unchanged, open_prepared, read_record, write_documents
from _utils.text.readers import HUB_CORPORA, find_files, format_of, hub_corpus, read_file, reading

_MTIME_RESOLUTION = 2.  # seconds; two changes of a file within them may leave the same modification time
ROWS_PER_DOCUMENT = {"bookcorpus": 1000}  # this hub dataset has one sentence per row and does not mark where books end
_READING_VERSION = 2  # increase when the readers yield other documents for the same files


@dataclass(frozen=True)
class Corpus:
    """name: the entry of `datas`.   key: hash of the content.   open_documents: function that returns `documents`."""
    name: str
    key: str
    open_documents: Callable[[], datasets.Dataset]

    @cached_property
    def documents(self):
        """Memory-mapped datasets.Dataset with the column `text`, opened on first use, and prepared if it is not in the cache."""
        return self.open_documents()

    @property
    def rows_per_document(self):
        """How many consecutive rows of `documents` form one document."""
        return ROWS_PER_DOCUMENT.get(self.name, 1)


def is_corpus_name(source):
    """Whether an entry of `datas` is the name of a corpus, not a path."""
    return source in (*HUB_CORPORA, "docs")


def check_sources(sources):
    """Raise PlainError for an entry of `datas` that is not a corpus name or a path with text files. Reads no file."""
    for source in sources:
        if not is_corpus_name(source):
            next(find_files(source, in_order=False))


def load_documents(source, cache_dir, encoding="utf-8", one_document_per_file=False, revisions=None):
    """Return the Corpus of one entry of `datas` (a name or a path). The text is read when its `documents` are first used.

    revisions: {name: commit, branch or tag} of hub corpora.
    Raises PlainError for a path that does not exist or has no text files, damaged prepared documents, or an unreachable hub.
    `documents` raises it for a file that cannot be read.
    """
    cache_dir = Path(cache_dir)
    if source in HUB_CORPORA:
        identity, open_documents = hub_corpus(source, (revisions or {}).get(source), cache_dir / "hub_revisions.json")
        return Corpus(source, content_key(identity), open_documents)
    if source == "docs":
        key, read = content_key(embedded_text.installed_versions()), embedded_text.documents
    else:
        key, signature = _key_of_files(source, (_READING_VERSION, encoding, one_document_per_file), cache_dir / "sources.json")
        read = partial(_read_files, source, signature, encoding, one_document_per_file)
    path = cache_dir / f"documents_{key}.arrow"
    if path.exists() and not is_unchanged(path):
        open_prepared(path)  # report damage now, even if the documents are not needed
    return Corpus(source, key, partial(_open_documents, read, path, source))


def _open_documents(read, path, source):
    if not path.exists():
        write_documents(read(), path, source)
    return open_prepared(path)


def _read_files(source, signature, encoding, one_document_per_file):
    """Yield the documents of all files of a source. Raises PlainError if the files no longer have the signature afterwards."""
    for file in find_files(source):
        yield from read_file(file, encoding, one_document_per_file)
    if _signature(source)[0] != signature:
        raise PlainError(f"Files of datas={str(source)!r} changed while they were read. Rerun when no program writes to them.")


def _key_of_files(source, reading_options, record):
    """Return (key, signature) of a source's files. The files are hashed only if `record` has no key for this signature."""
    signature, is_settled = _signature(source)
    entry = f"{os.path.abspath(source)} {reading_options}"
    known = read_record(record).get(entry, {})
    if known.get("signature") == signature:
        return known["key"], signature
    key = content_key(reading_options, _contents(source))
    if is_settled:
        add_to_record(record, entry, {"signature": signature, "key": key})
    return key, signature


def _signature(source):
    """Return (hash of the paths, sizes and modification times of a source's files, whether it would reveal later changes)."""
    start, newest, digest = time.time(), 0., xxhash.xxh3_128()
    for path in find_files(source):
        with reading(path):
            stat = os.stat(path)
        digest.update(os.fsencode(path) + b"\0%d %d\n" % (stat.st_size, stat.st_mtime_ns))
        newest = max(newest, stat.st_mtime)
    return digest.hexdigest(), newest < start - _MTIME_RESOLUTION


def _contents(source):
    """Yield format, size and content of all files of a source as bytes."""
    for path in find_files(source):
        with reading(path):
            yield f"{format_of(path)} {os.stat(path).st_size} ".encode()
            yield from file_chunks(path)
