"""Where the text comes from: corpora on the hub by name, files by path, and `docs`, the text embedded in every installation.

`load_documents` turns an entry of `datas` into a Corpus. Hashes of files and commits of hub corpora are remembered in the cache, so that
unchanged text is not read again.
"""
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path

import datasets

from _utils.errors import PlainError
from _utils.runs.files import content_key, file_chunks
from _utils.text import embedded_text
from _utils.text.documents import current_hash, open_prepared, write_documents
from _utils.text.readers import HUB_CORPORA, find_files, format_of, hub_corpus, read_file, reading

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
    """Raise PlainError for an entry of `datas` that is not a corpus name or a path with text files."""
    for source in sources:
        if not is_corpus_name(source):
            find_files(source)


def load_documents(source, cache_dir, encoding="utf-8", one_document_per_file=False, revisions=None):
    """Return the Corpus of one entry of `datas` (a name or a path). The text is read when its `documents` are first used.

    revisions: {name: commit, branch or tag} of hub corpora.
    Raises PlainError for a path that does not exist or has no text files, or an unreachable hub. `documents` raises it for a file that
    cannot be read, and for damaged prepared documents.
    """
    cache_dir = Path(cache_dir)
    if source in HUB_CORPORA:
        identity, open_documents = hub_corpus(source, (revisions or {}).get(source), cache_dir / "hub_revisions.json")
        return Corpus(source, content_key(identity), open_documents)
    if source == "docs":
        key, read = content_key(embedded_text.installed_versions()), embedded_text.documents
    else:
        options = (_READING_VERSION, encoding, one_document_per_file)
        key = _key_of_files(source, options, cache_dir)
        read = partial(_read_files, source, options, cache_dir, key)
    return Corpus(source, key, partial(_open_documents, read, cache_dir / f"documents_{key}.arrow", source))


def _open_documents(read, path, source):
    if not path.exists():
        write_documents(read(), path, source)
    return open_prepared(path)


def _read_files(source, options, cache_dir, key):
    """Yield the documents of all files of a source. Raises PlainError if the files no longer have this key afterwards."""
    _, encoding, one_document_per_file = options
    for file in find_files(source):
        yield from read_file(file, encoding, one_document_per_file)
    if _key_of_files(source, options, cache_dir) != key:
        raise PlainError(f"Files of datas={str(source)!r} changed while they were read. Rerun when no program writes to them.")


def _key_of_files(source, options, cache_dir):
    """Return the hash of the formats, sizes and contents of a source's files and the options for reading them."""
    files = find_files(source)

    def contents():
        for path in files:
            yield f"{format_of(path)[0]} {os.stat(path).st_size} ".encode()
            yield from file_chunks(path)
    with reading(source):
        record = cache_dir / f"source_{content_key((os.path.abspath(source), options))}.xxh3"
        return current_hash(files, record, lambda: content_key(options, contents()))
