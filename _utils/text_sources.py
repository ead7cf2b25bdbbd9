"""Where the text comes from: hub corpora by name, files of several kinds by path, and the text embedded in every installation.

`load_documents` turns any of them into a memory-mapped `datasets.Dataset` with the column `text`, one document a row. A long document takes
several rows: the bool column `continues`, which files have, marks those that continue the document of the row before.
"""
import bz2
import glob
import gzip
import io
import json
import lzma
import os
import re
import zlib
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import datasets
import pyarrow
import pyarrow.parquet
import xxhash
from datasets.arrow_writer import ArrowWriter
from tqdm import tqdm

from _utils import embedded_text
from _utils.checkpoints import unfinished_name, write_atomically
from _utils.errors import PlainError, first_line, is_first_process

# The corpora of the paper and of electra_pytorch under their present hub names (FACTS 13); arguments of datasets.load_dataset.
HUB_CORPORA = {
    "openwebtext": dict(path="Skylion007/openwebtext"),
    "wikipedia": dict(path="wikimedia/wikipedia", name="20231101.en"),
    "bookcorpus": dict(path="bookcorpus/bookcorpus", revision="refs/convert/parquet"),
}
KINDS = (".txt", ".jsonl", ".parquet", "wiki_NN of WikiExtractor")
_OPENERS = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}
# A document of so many characters is stored in several rows, and so long a line is cut: memory does not grow with either.
LONG = 1 << 20
PIECE = 1 << 16  # characters of such a row, up to the end of a line
ROWS_PER_DOCUMENT = {"bookcorpus": 1000}  # the hub has one sentence a row, without the ends of books; neighbours are joined
_READING_VERSION = 2  # raise it whenever the readers below give other documents for the same files


@dataclass(frozen=True)
class Corpus:
    """`documents`: Dataset with the column `text`; `key`: hash of its content; `name`: as the user wrote it."""
    name: str
    key: str
    documents: datasets.Dataset

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


def load_documents(source, cache_dir, encoding="utf-8", one_document_per_file=False):
    """The documents of one entry of `datas` (a name or a path), from the cache if the same content was read before.

    Raises PlainError for a path that does not exist or holds no text, a file that cannot be read as what it claims to be,
    or a hub that cannot be reached. Nothing half written is left behind.
    """
    if source in HUB_CORPORA:
        return _from_hub(source)
    if source == "docs":
        key = _hash(embedded_text.content_key())
        read = embedded_text.documents
    else:
        files = find_files(source)
        key = _hash(repr((_READING_VERSION, encoding, one_document_per_file)), *files)
        read = lambda: (document for file in files for document in read_file(file, encoding, one_document_per_file))
    target = Path(cache_dir) / f"documents_{key}.arrow"
    if not target.exists():
        _write_documents(read(), target, source)
    return Corpus(source, key, open_prepared(target))


def open_prepared(path):
    """The Dataset in an Arrow file that was prepared, now or by an earlier run. PlainError for a damaged one.

    A file beside it, written when it is first opened, holds the hash of its content: Arrow would not notice a changed word. Of several
    processes on a machine the first one compares.
    """
    seal = seal_of(path)
    try:
        found = datasets.Dataset.from_file(str(path))
        if not is_first_process():
            return found
        content = _hash("", path)
        if seal.exists() and seal.read_text() != content:
            raise ValueError(f"it is not what {seal.name} was written for")
    except (pyarrow.ArrowException, OSError, ValueError) as error:
        raise PlainError(f"{path}, which holds prepared text, cannot be read ({first_line(error)}): delete it and {seal.name}, and it is "
                         "made anew.") from error
    if not seal.exists():
        write_atomically(seal, lambda file: file.write(content.encode()))
    return found


def seal_of(path):
    """Where the hash of a prepared file stands."""
    return Path(f"{path}.xxh3")


def check_sources(sources):
    """PlainError for an entry of `datas` that is no name and at whose path no text lies; nothing is read."""
    for source in sources:
        if source not in (*HUB_CORPORA, "docs"):
            find_files(source)


def _from_hub(name):
    arguments = HUB_CORPORA[name]
    try:
        documents = datasets.load_dataset(**arguments, split="train")
    except Exception as error:  # the hub's libraries raise a dozen kinds; whatever it was, the way out is the same
        raise PlainError(f"the corpus {name!r} could not be loaded from the hub dataset {arguments['path']} ({first_line(error)}); "
                         "check the connection, give datas=PATH to read text of your own, or try without a download: "
                         "python pretrain.py quickstart=True") from error
    return Corpus(name, documents._fingerprint, documents.select_columns("text"))


def find_files(pattern):
    """Files meant by a path, a folder (searched to its depth, hidden files left out) or a glob, sorted. PlainError if none."""
    if os.path.isdir(pattern):
        found = (path for path in Path(pattern).rglob("*") if not any(
            part.startswith(".") for part in path.relative_to(pattern).parts))
    elif os.path.isfile(pattern):  # its name may hold the signs of a glob
        found = [Path(pattern)]
    else:
        found = map(Path, glob.glob(str(pattern), recursive=True))
    existing = sorted(path for path in found if path.is_file())
    if files := [path for path in existing if _kind(path)]:
        return files
    if existing:
        seen = f"holds no file of the kinds {', '.join(KINDS)} (also .gz, .bz2, .xz, .zst)"
    elif os.path.isdir(pattern):
        seen = "is an empty folder"
    else:
        seen = f"is neither a file, a folder or a glob that matches one, nor one of the corpora {', '.join([*HUB_CORPORA, 'docs'])}"
    raise PlainError(f"datas: {str(pattern)!r} {seen}.")


def _kind(path):
    """'.txt', '.jsonl', '.parquet' or 'wiki' (by WikiExtractor's file names); None for anything else."""
    name = Path(path).name
    stem, suffix = os.path.splitext(name)
    if suffix in (*_OPENERS, ".zst"):
        name, suffix = stem, os.path.splitext(stem)[1]
    if suffix in (".txt", ".jsonl", ".parquet"):
        return suffix
    return "wiki" if re.fullmatch(r"wiki_\d+", name) else None


def read_file(path, encoding, one_document_per_file):
    """The documents of one file as strings, read as a stream; a long document of a .txt file comes as one string and Continuations.

    Raises PlainError naming file and line for what cannot be read.
    """
    kind = _kind(path)
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
        return _OPENERS.get(suffix, open)(path, "rt", encoding=encoding)
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
                         "mend or remove that line.") from None


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


def _hash(text, *files):
    """xxh3-128 of a text and the contents of files, streamed."""
    digest = xxhash.xxh3_128(text.encode())
    for file in files:
        try:
            digest.update(f"{_kind(file)} {os.path.getsize(file)} ".encode())
            with open(file, "rb") as stream:
                while block := stream.read(1 << 22):
                    digest.update(block)
        except OSError as error:
            raise PlainError(f"{file} cannot be read ({error.strerror}): replace it or leave it out of datas.") from error
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
