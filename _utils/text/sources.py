"""Where the text comes from: the hub by name or id, files by path, and `prose`, the text in this repository.

`load_documents` turns an entry of `datas` into a Corpus, whose documents are stored in an Arrow file. The name of a
prepared file has a hash of the content that it was made from, so it is never out of date. Hashes of files and commits
of hub corpora are remembered in the cache, so that unchanged text is not read again.
"""
import codecs
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import chain
from pathlib import Path

import datasets
import pyarrow
from fastcore.basics import chunked

from _utils.errors import UserError
from _utils.files import content_key, file_chunks, recorded
from _utils.names import EMBEDDED, hub_text, is_path
from _utils.progress import Progress
from _utils.text.hub_texts import check_hub_text, commit_of, download
from _utils.text.prepared_files import prepared
from _utils.text.readers import (
    LONG,
    Continuation,
    beginning_of,
    cut_text,
    find_files,
    format_of,
    invalid_line,
    print_once,
    read_file,
    reading,
    without_copies,
)
from _utils.text.streams import StreamedCorpus

_READING_VERSION = 2  # increase it if the same files then give other documents


@dataclass(frozen=True)
class Corpus:
    """The text of an entry of `datas`. A StreamedCorpus has the same interface, but its documents only in parts.

    name: the entry.   key: hash of the content.   open_documents: a function that returns `documents`.
    """
    name: str
    key: str
    open_documents: Callable[[], datasets.Dataset]
    is_streamed = False

    @cached_property
    def documents(self):
        """Memory-mapped datasets.Dataset with the column `text`, prepared on first use if it is not in the cache."""
        return self.open_documents()

    def first_part(self):
        """All documents, because there are no other parts."""
        return self.documents

    def parts(self, skip=0):
        """Yield (first row, documents) of the only part, unless `skip` is 1."""
        if not skip:
            yield 0, self.documents


def load_documents(source, cache_dir, encoding="utf-8", documents="blank_line", revisions=None, stream=None):
    """Return the Corpus, or StreamedCorpus, of one entry of `datas`: a name, a hub id or a path.

    documents: how .txt files are divided, as in `read_file`.   stream: value of the key `stream`.
    revisions: {name or id: commit, branch or tag} of hub texts.
    Raises UserError for a path that does not exist or has no text files, for files in another encoding, for an
    unreachable hub, and for a configuration, split or column that a hub dataset does not have. The documents are read
    when they are first used, which raises UserError for a file that cannot be read, and for damaged prepared documents.
    """
    cache_dir = Path(cache_dir)
    if text := hub_text(source):
        return _hub_corpus(source, text, revisions or {}, stream, cache_dir)
    if source in EMBEDDED:
        return _file_corpus(source, EMBEDDED[source], cache_dir, "utf-8", "blank_line")
    is_utf8 = codecs.lookup(encoding).name in ("utf-8", "utf-8-sig")  # which have many names, such as UTF8
    return _file_corpus(source, source, cache_dir, "utf-8" if is_utf8 else encoding, documents)


def _hub_corpus(name, text, revisions, stream, cache_dir):
    """Return the corpus of a HubText. Its key is a hash of its parts, the commit, and how much of it is streamed."""
    commit = commit_of(name, text, revisions, cache_dir)
    key = content_key((*text[:4], commit, stream) if stream else (*text[:4], commit))

    def check():
        check_hub_text(name, text, commit, bool(stream))
        return key

    recorded(cache_dir / f"source_{key}.txt", check)  # that the hub has it, so that later runs need no connection
    if stream:
        return StreamedCorpus(name, key, text, commit, stream, cache_dir)
    return Corpus(name, key, partial(download, name, text, commit))


def _file_corpus(name, path, cache_dir, encoding, documents):
    """Return the Corpus of the files of a path.

    Its key is a hash of the options for reading and of formats, compressions, sizes and contents of the files, without
    copies. It is recorded for these states of the files, with a notice about copies.
    """
    files, options = find_files(path), (_READING_VERSION, encoding, documents)
    with reading(path):  # a file that vanished
        states = _states(files)
        record = cache_dir / f"source_{content_key((options, files, states, 'without copies'))}.txt"
        key, *notices = recorded(record, partial(_key_and_notices, files, options)).split("\n")
    for notice in notices:
        print_once(notice)
    prepared_file = cache_dir / f"documents_{key}.arrow"
    return Corpus(name, key, partial(prepared, prepared_file, partial(_write_documents, name, files, options, states)))


def _states(files):
    """Sizes and times of files. The time of change (ctime) cannot be set, unlike the time of modification."""
    return [(stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns) for stat in map(os.stat, files)]


def _key_and_notices(files, options):
    """The key of a corpus of files, and the notice about copies among them, if any, on lines of their own."""
    originals, notices = without_copies(files)
    _, encoding, _ = options
    return "\n".join([content_key(options, _contents(originals, encoding)), *notices])


def _contents(files, encoding):
    """Yield formats, compressions, sizes and contents of files, after their encoding was checked."""
    _check_encoding([path for path in files if format_of(path) != ".parquet"], encoding)
    for path in files:
        with reading(path):
            suffix = os.path.splitext(path)[1].lower()
            yield f"{format_of(path)} {suffix} {os.stat(path).st_size} ".encode()
            yield from file_chunks(path)


def _check_encoding(files, encoding):
    """Raise UserError for text files in another encoding, also for UTF-8 that this one decodes to other characters."""
    if of_utf8 := [path for path in files if encoding != "utf-8" and _is_utf8(path)]:
        raise UserError(f"{len(of_utf8):,} of {len(files):,} files are utf-8 text, not {encoding}, such as "
                        f"{of_utf8[0]}. Leave out encoding, and convert the others to utf-8.")
    if invalid := [f"{path}, line {line}" for path in files if (line := invalid_line(path, encoding))]:
        raise UserError(f"{len(invalid):,} of {len(files):,} files are not {encoding} text. Convert them, or set "
                        "their encoding (for example encoding=cp1252, of Windows), which all files share. "
                        f"{'; '.join(invalid):.2000}")


def _is_utf8(path):
    """Whether a file is UTF-8 and has so many other bytes than ASCII that this is not by chance."""
    n_others = sum(byte > 127 for byte in beginning_of(path))
    return n_others > 20 and not invalid_line(path, "utf-8")


def _write_documents(name, files, options, states, file):
    """Write the documents of files as Arrow rows, or raise UserError if there is no text.

    name: of the corpus.   options: for reading.   states: of the files for which `file` is named; UserError if they
    changed since.
    """
    _, *how = options
    originals, _ = without_copies(files)
    documents = chain.from_iterable(read_file(path, *how) for path in originals)
    schema = datasets.Features(
        {"text": datasets.Value("large_string"), "continues": datasets.Value("bool")}
    ).arrow_schema
    bar = Progress(documents, f"Reading {name}", unit="documents")
    with bar, pyarrow.ipc.new_stream(file, schema) as writer:
        for rows in chunked(_rows(bar), 100):
            writer.write_batch(pyarrow.RecordBatch.from_pylist(rows, schema))
        if not writer.stats.num_record_batches:
            raise UserError(f"Invalid value for datas: {name!r}. Its files contain no text.")
    if _states(files) != states:
        raise UserError(f"{name}: its files changed while they were read. Rerun the same command when they are "
                        "complete.")


def _rows(documents):
    """Yield the rows of all documents that are not empty."""
    for document in documents:
        continues = isinstance(document, Continuation)
        if document.strip():
            for text in cut_text(document) if continues or len(document) >= LONG else [document]:
                yield {"text": text, "continues": continues}
                continues = True


def identity_of(path):
    """The first bytes of a file, decompressed, which its copies share; the path of anything else."""
    return beginning_of(path) if os.path.isfile(path) else path


def real_files(source):
    """The real paths of the files of an entry of `datas`; the entry itself if it is a name, or has no files.

    Of a text of the hub, the entry and its dataset with configuration and split, of which others may be a part.
    """
    if text := hub_text(source):
        return {source, f"{text.path}:{text.config or ''}:{text.split.partition('[')[0]}"}
    if not is_path(source):
        return {source}
    with suppress(UserError):
        return {*map(os.path.realpath, find_files(source))}
    return {os.path.realpath(source)}
