"""Where the text comes from: hub corpora by name, files of several kinds by path, and the text embedded in every installation.

`load_documents` turns any of them into a Corpus, whose documents are a memory-mapped `datasets.Dataset` with the column `text`, one
document a row. A long document takes several rows: the bool column `continues`, which files have, marks those that continue the
document of the row before. What is known without reading files again stays in `sources.json` and `hub_revisions.json` beside the
prepared documents.
"""
import io
import json
import lzma
import os
import time
import zlib
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path

import datasets
import pyarrow
import pyarrow.parquet
import xxhash
from datasets.arrow_writer import ArrowWriter
from tqdm import tqdm

from _utils.errors import PlainError, first_line
from _utils.pretraining_data import embedded_text
from _utils.pretraining_data.hub_corpora import HUB_CORPORA, add_to_record, hub_corpus, read_record
from _utils.pretraining_data.text_files import OPENERS, find_files, kind_of
from _utils.run_files.checkpoints import unfinished_name, write_atomically

_JUST_WRITTEN = 2.      # seconds within which a second change of a file may leave its modification time the same
# A document of so many characters is stored in several rows, and so long a line is cut: memory does not grow with either.
LONG = 1 << 20
PIECE = 1 << 16  # characters of such a row, up to the end of a line
ROWS_PER_DOCUMENT = {"bookcorpus": 1000}  # the hub has one sentence a row, without the ends of books; neighbours are joined
_READING_VERSION = 2  # raise it whenever the readers below give other documents for the same files


@dataclass(frozen=True)
class Corpus:
    """`name`: as the user wrote it; `key`: identifies the content; `open_documents`: function that returns `documents`."""
    name: str
    key: str
    open_documents: Callable[[], datasets.Dataset]

    @cached_property
    def documents(self):
        """Dataset with the column `text`. Opened when first used, and prepared if that was not done before."""
        return self.open_documents()

    @property
    def rows_per_document(self):
        """How many neighbouring rows of `documents` make up one document."""
        return ROWS_PER_DOCUMENT.get(self.name, 1)


class Continuation(str):
    """Text that a reader gives after another part of the same document."""


def cut_text(text, size):
    """Yield the parts of a text: at least `size` characters each, up to the end of a line or at most LONG characters more."""
    start = 0
    while start < len(text):
        end = text.find("\n", start + size - 1, start + size + LONG) + 1 or start + size + LONG
        yield text[start:end]
        start = end


def load_documents(source, cache_dir, encoding="utf-8", one_document_per_file=False, revisions=None):
    """The Corpus of one entry of `datas` (a name or a path). The text is read when `documents` is first used.

    revisions: {name: commit, branch or tag} of hub corpora.
    Raises PlainError for a path that does not exist or holds no text, a prepared file that changed, or a hub that cannot be reached;
    `documents` raises it for a file that is not what its name says.
    """
    cache_dir = Path(cache_dir)
    if source in HUB_CORPORA:
        identity, open_documents = hub_corpus(source, (revisions or {}).get(source), cache_dir / "hub_revisions.json")
        return Corpus(source, _hash(repr(identity)), open_documents)
    if source == "docs":
        key = _hash(embedded_text.content_key())
        read = embedded_text.documents
    else:
        reading = (_READING_VERSION, encoding, one_document_per_file)
        key, signature = _content_key(source, repr(reading), cache_dir / "sources.json")
        read = partial(_read_files, source, signature, encoding, one_document_per_file)
    target = cache_dir / f"documents_{key}.arrow"
    if target.exists() and not _is_as_sealed(target):
        open_prepared(target)
    return Corpus(source, key, partial(_open_documents, read, target, source))


def _open_documents(read, target, source):
    """The Dataset of a corpus, from the cache if the same content was read before. Nothing half written is left behind."""
    if not target.exists():
        _write_documents(read(), target, source)
    return open_prepared(target)


def open_prepared(path):
    """The Dataset in an Arrow file that this or an earlier run prepared. PlainError if it is damaged.

    The seal beside it holds a hash of the content, which is compared again only when size or modification time of the file changed.
    """
    seal = seal_of(path)
    try:
        found = datasets.Dataset.from_file(str(path))
        if _is_as_sealed(path):
            return found
        stat = os.stat(path)
        content = _hash("", [path])
        if seal.exists() and seal.read_text().split()[:1] != [content]:
            raise ValueError(f"{seal.name} holds the hash of other content")
    except (pyarrow.ArrowException, OSError, ValueError) as error:
        raise PlainError(f"{path}, which holds prepared text, cannot be read ({first_line(error)}): delete it and {seal.name}, and it is "
                         "rebuilt.") from error
    write_atomically(seal, lambda file: file.write(f"{content} {stat.st_size} {stat.st_mtime_ns}".encode()))
    return found


def seal_of(path):
    """Path of the seal of a prepared file: the hash of its content, its size and its modification time."""
    return Path(f"{path}.xxh3")


def _is_as_sealed(path):
    """Whether size and modification time of a prepared file are those in its seal."""
    try:
        _, size, mtime_ns = seal_of(path).read_text().split()
    except (FileNotFoundError, ValueError):
        return False
    stat = os.stat(path)
    return (size, mtime_ns) == (str(stat.st_size), str(stat.st_mtime_ns))


def check_sources(sources):
    """PlainError for an entry of `datas` that is neither a name nor a path with text files. Stops at the first file; reads none."""
    for source in sources:
        if source not in (*HUB_CORPORA, "docs"):
            next(find_files(source, in_order=False))


def _signature(source):
    """(digest of paths, sizes and modification times of a source's files, whether later changes would alter it). Reads no file."""
    start, newest, digest = time.time(), 0., xxhash.xxh3_128()
    for path in find_files(source):
        try:
            stat = os.stat(path)
        except OSError as error:
            raise _unreadable(path, error) from error
        digest.update(os.fsencode(path) + b"\0%d %d\n" % (stat.st_size, stat.st_mtime_ns))
        newest = max(newest, stat.st_mtime)
    return digest.hexdigest(), newest < start - _JUST_WRITTEN


def _content_key(source, reading, record):
    """(hash of how a source is read and of its files' content, signature of the files). The hash is in `record` if it was made before."""
    signature, is_settled = _signature(source)
    entry = f"{os.path.abspath(source)} {reading}"
    known = read_record(record).get(entry, {})
    if known.get("signature") == signature:
        return known["key"], signature
    key = _hash(reading, find_files(source))
    if is_settled:
        add_to_record(record, entry, {"signature": signature, "key": key})
    return key, signature


def _read_files(source, signature, encoding, one_document_per_file):
    """The documents of all files of a source. PlainError if at the end the files are not those of the signature, which the key is of."""
    for file in find_files(source):
        yield from read_file(file, encoding, one_document_per_file)
    if _signature(source)[0] != signature:
        raise PlainError(f"datas: files of {str(source)!r} changed since the start: start again when nothing writes to them.")


def read_file(path, encoding, one_document_per_file):
    """The documents of one file as strings, read as a stream; a long document of a .txt file comes as one string and Continuations.

    Raises PlainError naming file and line for what cannot be read.
    """
    kind = kind_of(path)
    try:
        if kind == ".parquet":
            yield from _read_parquet(path)
            return
        with _open(path, encoding) as stream:
            if kind == ".jsonl":
                yield from _read_json_lines(stream, path)
            elif kind == "wiki":
                yield from _read_wikiextractor(stream, path)
            elif one_document_per_file:
                yield from _read_whole(stream)
            else:
                yield from _read_paragraph_blocks(stream)
    except UnicodeError as error:
        raise PlainError(f"{path} is not {encoding} text ({getattr(error, 'reason', error)}): "
                         "convert it, or name its encoding (for example encoding=latin-1).") from error
    except (OSError, EOFError, zlib.error, lzma.LZMAError, pyarrow.ArrowException) as error:
        raise PlainError(f"{path} cannot be read ({first_line(error)}): replace it or leave it out of datas.") from error


def _open(path, encoding):
    """A text stream of a plain or compressed file."""
    suffix = Path(path).suffix
    try:
        if suffix == ".zst":
            return io.TextIOWrapper(pyarrow.input_stream(str(path), compression="zstd"), encoding=encoding)
        return OPENERS.get(suffix, open)(path, "rt", encoding=encoding)
    except LookupError:
        raise PlainError(f"encoding={encoding!r} is not one that Python knows: try utf-8, latin-1 or utf-16.") from None


def _read_whole(stream):
    """One document."""
    kind = str
    while text := stream.read(LONG) + stream.readline(LONG):
        yield kind(text)
        kind = Continuation


def _read_paragraph_blocks(stream):
    """Documents divided by blank lines."""
    lines, size, kind = [], 0, str
    while line := stream.readline(LONG):
        is_blank = not line.strip()
        if not is_blank:
            lines.append(line)
            size += len(line)
        if lines and (is_blank or size >= LONG):
            text = "".join(lines)
            yield kind(text.removesuffix("\n") if is_blank else text)
            lines, size, kind = [], 0, Continuation
        if is_blank:
            kind = str
    if lines:
        yield kind("".join(lines).removesuffix("\n"))


def _text_of(line, path, number):
    try:
        text = json.loads(line)["text"]
        text.encode()  # ValueError for half of a surrogate pair, which no file can hold
        return text
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise PlainError(f"{path}, line {number} is not a JSON object whose \"text\" is a string: "
                         "correct or remove that line.") from None


def _read_json_lines(lines, path):
    for number, line in enumerate(lines, 1):
        if line.strip():
            yield _text_of(line, path, number)


def _read_wikiextractor(lines, path):
    """Articles between <doc ...> and </doc>, or WikiExtractor's --json lines. The first line, the title, is left out."""
    article = None
    for number, line in enumerate(lines, 1):
        if article is None and line.startswith("{"):
            yield _text_of(line, path, number)
        elif line.startswith("<doc "):
            article = []
        elif line.startswith("</doc>") and article is not None:
            yield "\n".join(article[1:])
            article = None
        elif article is not None and line.strip():
            article.append(line.strip())
        elif line.strip():
            raise PlainError(f"{path}, line {number} stands outside <doc> ... </doc>: "
                             "is this WikiExtractor's output? Name other files .txt or .jsonl.")
    if article is not None:
        raise PlainError(f"{path} ends before the </doc> of its last article: it seems to be cut off, so replace it.")


def _read_parquet(path):
    file = pyarrow.parquet.ParquetFile(path)
    if "text" not in file.schema_arrow.names:
        columns = ", ".join(file.schema_arrow.names)
        raise PlainError(f"{path} has no column \"text\" (its columns: {columns}): rename one of them.")
    for batch in file.iter_batches(batch_size=100, columns=["text"]):
        for text in batch.column(0).to_pylist():
            if not isinstance(text, str | None):
                raise PlainError(f"{path}: the column \"text\" holds {text!r:.60} where a string should be.")
            yield text or ""


def _unreadable(path, error):
    return PlainError(f"{path} cannot be read ({error.strerror}): replace it or leave it out of datas.")


def _hash(text, files=()):
    """xxh3-128 of a text and the contents of files, streamed."""
    digest, block = xxhash.xxh3_128(text.encode()), memoryview(bytearray(1 << 20))
    for file in files:
        try:
            with open(file, "rb", buffering=0) as stream:
                digest.update(f"{kind_of(file)} {os.fstat(stream.fileno()).st_size} ".encode())
                while n := stream.readinto(block):
                    digest.update(block[:n])
        except OSError as error:
            raise _unreadable(file, error) from error
    return digest.hexdigest()


def _write_documents(documents, target, source):
    """Stream documents to an Arrow file that appears under its name only when complete."""
    target.parent.mkdir(parents=True, exist_ok=True)
    unfinished = unfinished_name(target)
    features = datasets.Features({"text": datasets.Value("large_string"), "continues": datasets.Value("bool")})
    counts = Counter()
    try:
        with ArrowWriter(path=str(unfinished), features=features) as writer:
            shown = tqdm(documents, desc=f"Reading {source}", unit=" documents", unit_scale=True, mininterval=1)
            for batch in _batches(_rows(shown, counts)):
                writer.write_batch(batch)
            writer.finalize()
        if counts["empty"]:
            print(f"{source}: {counts['empty']:,} empty documents are left out")
        if not counts["rows"]:
            raise PlainError(f"datas: {source!r} holds files, but no text in them.")
        seal_of(target).unlink(missing_ok=True)  # of a damaged file that was deleted
        os.replace(unfinished, target)
    finally:
        unfinished.unlink(missing_ok=True)


def _rows(documents, counts):
    """Yield (text, whether it continues the document before); count the `rows`, and the documents that are `empty`."""
    for document in documents:
        continues = isinstance(document, Continuation)
        if not document.strip():
            counts["empty"] += not continues
            continue
        for text in cut_text(document, PIECE) if continues or len(document) >= LONG else [document]:
            counts["rows"] += 1
            yield text, continues
            continues = True


def _batches(rows):
    """Gather rows into columns for the Arrow writer: up to 100 rows, or a few MB where they are long."""
    batch, size = {"text": [], "continues": []}, 0
    for text, continues in rows:
        batch["text"].append(text)
        batch["continues"].append(continues)
        size += len(text)
        if len(batch["text"]) == 100 or size > 4 * LONG:
            yield batch
            batch, size = {"text": [], "continues": []}, 0
    if batch["text"]:
        yield batch
