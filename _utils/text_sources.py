"""Where the text comes from: hub corpora by name, files of several kinds by path, and the text embedded in every installation.

`load_documents` turns any of them into a Corpus, whose documents are a memory-mapped `datasets.Dataset` with the column `text`, one
document a row. A long document takes several rows: the bool column `continues`, which files have, marks those that continue the
document of the row before. What is known without reading files again stays in `sources.json` and `hub_revisions.json` beside the
prepared documents.
"""
import bz2
import glob
import gzip
import io
import json
import lzma
import os
import re
import time
import zlib
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path

import datasets
import huggingface_hub
import pyarrow
import pyarrow.parquet
import xxhash
from datasets.arrow_writer import ArrowWriter
from datasets.naming import camelcase_to_snakecase
from datasets.packaged_modules.cache.cache import Cache
from tqdm import tqdm

from _utils import embedded_text
from _utils.checkpoints import unfinished_name, write_atomically
from _utils.errors import PlainError, first_line

# The corpora of the paper and of electra_pytorch under their present hub names (FACTS 13); arguments of datasets.load_dataset.
# `revision` is the branch whose newest commit is loaded at first; without it, main.
HUB_CORPORA = {
    "openwebtext": dict(path="Skylion007/openwebtext"),
    "wikipedia": dict(path="wikimedia/wikipedia", name="20231101.en"),
    "bookcorpus": dict(path="bookcorpus/bookcorpus", revision="refs/convert/parquet"),
}
KINDS = (".txt", ".jsonl", ".parquet", "wiki_NN of WikiExtractor")
_OPENERS = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}
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
        return _from_hub(source, (revisions or {}).get(source), cache_dir)
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


def _from_hub(name, revision, cache_dir):
    """Corpus of a hub dataset at one commit: the one that `revision`, or else the branch in HUB_CORPORA, named at its first use."""
    path, config, branch = (HUB_CORPORA[name].get(part) for part in ("path", "name", "revision"))
    commit = _commit(name, path, revision or branch or "main", cache_dir / "hub_revisions.json")
    return Corpus(name, _hash(repr((path, config, commit))), partial(_load_from_hub, name, path, config, commit))


def _commit(name, path, revision, record):
    """The commit of a branch or tag of a hub dataset as in `record`, where its first use writes it; a commit is one already."""
    if re.fullmatch("[0-9a-f]{40}", revision):
        return revision
    entry = f"{path}@{revision}"
    if commit := _read_record(record).get(entry):
        return commit
    try:
        commit = huggingface_hub.HfApi().dataset_info(path, revision=revision).sha
    except Exception as error:  # the hub's libraries raise a dozen kinds, and what to do is the same for all
        raise _not_loaded(name, path, error) from error
    _add_to_record(record, entry, commit)
    return commit


def _load_from_hub(name, path, config, commit):
    """The documents of a hub dataset at a commit, downloaded unless they are in the cache of `datasets`."""
    try:
        documents = _cached_dataset(path, config, commit)
        if documents is None:
            documents = datasets.load_dataset(path, name=config, revision=commit, split="train")
    except Exception as error:
        raise _not_loaded(name, path, error) from error
    for folder in {os.path.dirname(file["filename"]) for file in documents.cache_files}:
        if os.path.basename(folder) != commit:  # without a connection `datasets` takes whatever it loaded last
            raise PlainError(f"the corpus {name!r} could not be loaded from the hub dataset {path} at revision {commit}, only {folder!r} "
                             "is in the cache: check the connection, delete that folder if an old version of `datasets` made it, or choose "
                             "another commit with the key revisions.")
    return documents.select_columns("text")


def _cached_dataset(path, config, commit):
    """The training split at a commit from the cache of `datasets`, None if it is not there. No connection is needed."""
    namespace, name = path.split("/")
    folder = Path(datasets.config.HF_DATASETS_CACHE, f"{namespace}___{camelcase_to_snakecase(name)}")
    complete = [info.parent.relative_to(folder).parts for info in folder.glob(f"{config or '*'}/*/{commit}/dataset_info.json")]
    if not complete:
        return None
    config_name, version, _ = complete[0]
    return Cache(dataset_name=name, repo_id=path, config_name=config_name, version=version, hash=commit).as_dataset(split="train")


def _not_loaded(name, path, error):
    return PlainError(f"the corpus {name!r} could not be loaded from the hub dataset {path} ({first_line(error)}): check the connection "
                      "and `revisions`, give datas=PATH to read your own text, or run without a download: python pretrain.py "
                      "quickstart=True")


def find_files(pattern, in_order=True):
    """Paths of the text files that a path, a folder (with its subfolders, without hidden files) or a glob means, one by one.

    Sorted by their parts: of `a/b.txt`, `a.txt` the folder comes first. PlainError if there is none.
    in_order: False yields the first ones before a folder has been listed to its end.
    """
    if os.path.isdir(pattern):
        found = _walk(pattern, in_order)
    elif os.path.isfile(pattern):  # its name may hold the signs of a glob
        found = [pattern]
    else:
        found = filter(os.path.isfile, sorted(glob.glob(str(pattern), recursive=True), key=lambda path: path.replace(os.sep, "\0")))
    has_text = has_files = False
    for path in found:
        has_files = True
        if _kind(path):
            has_text = True
            yield path
    if has_text:
        return
    if has_files:
        seen = f"holds no file of the kinds {', '.join(KINDS)} (also .gz, .bz2, .xz, .zst)"
    elif os.path.isdir(pattern):
        seen = "is an empty folder"
    else:
        seen = f"is neither a file, a folder or a glob that matches one, nor one of the corpora {', '.join([*HUB_CORPORA, 'docs'])}"
    raise PlainError(f"datas: {str(pattern)!r} {seen}.")


def _walk(folder, in_order):
    """Paths of all files below a folder but hidden ones, as strings; of millions only the names in one folder are held at a time."""
    try:
        with os.scandir(folder) as entries:
            names = _names(entries)
            for name in sorted(names) if in_order else names:
                path = os.path.join(folder, name.rstrip("\0"))
                yield from _walk(path, in_order) if name.endswith("\0") else [path]
    except OSError as error:
        raise PlainError(f"the folder {folder} cannot be listed ({error.strerror}): change its permissions or leave it out of "
                         "datas.") from error


def _names(entries):
    """Names of the visible files and folders in a folder. A zero byte, which no name can hold, marks folders and keeps the order."""
    for entry in entries:
        if entry.name.startswith("."):
            continue
        if entry.is_dir(follow_symlinks=False):
            yield entry.name + "\0"
        elif entry.is_file():
            yield entry.name


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
    known = _read_record(record).get(entry, {})
    if known.get("signature") == signature:
        return known["key"], signature
    key = _hash(reading, find_files(source))
    if is_settled:
        _add_to_record(record, entry, {"signature": signature, "key": key})
    return key, signature


def _read_files(source, signature, encoding, one_document_per_file):
    """The documents of all files of a source. PlainError if at the end the files are not those of the signature, which the key is of."""
    for file in find_files(source):
        yield from read_file(file, encoding, one_document_per_file)
    if _signature(source)[0] != signature:
        raise PlainError(f"datas: files of {str(source)!r} changed since the start: start again when nothing writes to them.")


def _read_record(path):
    """The dictionary in a JSON file of `datasets/`; empty if there is none."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except ValueError:
        raise PlainError(f"{path} is not valid JSON: correct it, or delete it.") from None


def _add_to_record(path, entry, value):
    content = json.dumps({**_read_record(path), entry: value}, indent=1) + "\n"  # read again: another run may have added to it
    write_atomically(path, lambda file: file.write(content.encode()))


def _kind(path):
    """'.txt', '.jsonl', '.parquet' or 'wiki' (by WikiExtractor's file names); None for anything else."""
    name = os.path.basename(path)
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


def _unreadable(path, error):
    return PlainError(f"{path} cannot be read ({error.strerror}): replace it or leave it out of datas.")


def _hash(text, files=()):
    """xxh3-128 of a text and the contents of files, streamed."""
    digest, block = xxhash.xxh3_128(text.encode()), memoryview(bytearray(1 << 20))
    for file in files:
        try:
            with open(file, "rb", buffering=0) as stream:
                digest.update(f"{_kind(file)} {os.fstat(stream.fileno()).st_size} ".encode())
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
