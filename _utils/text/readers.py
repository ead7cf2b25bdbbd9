"""Documents from files and from the hub: .txt, .jsonl, .parquet, WikiExtractor output, compressed or not."""
import bz2
import glob
import gzip
import io
import json
import lzma
import os
import re
import zlib
from functools import partial
from pathlib import Path

import datasets
import huggingface_hub
import pyarrow
import pyarrow.parquet
from datasets.naming import camelcase_to_snakecase
from datasets.packaged_modules.cache.cache import Cache

from _utils.errors import PlainError, as_plain_error
from _utils.text.documents import LONG, Continuation, add_to_record, read_record

# The corpora of the paper and of electra_pytorch under their present hub ids (facts.md#libraries), as arguments of datasets.load_dataset.
# `revision`: the branch to take the newest commit of; default: main.
HUB_CORPORA = {
    "openwebtext": dict(path="Skylion007/openwebtext"),
    "wikipedia": dict(path="wikimedia/wikipedia", name="20231101.en"),
    "bookcorpus": dict(path="bookcorpus/bookcorpus", revision="refs/convert/parquet"),
}


def hub_corpus(name, revision, record):
    """Return ((hub id, configuration, commit), function that opens the documents) of a corpus in HUB_CORPORA.

    revision: commit, branch or tag; None: the branch in HUB_CORPORA.   record: file with the commits of branches and tags.
    """
    path, config, branch = (HUB_CORPORA[name].get(part) for part in ("path", "name", "revision"))
    commit = _commit(name, path, revision or branch or "main", record)
    return (path, config, commit), partial(_load_from_hub, name, path, config, commit)


def _commit(name, path, revision, record):
    """Resolve a branch or tag to the commit in `record`, which its first use adds there."""
    if re.fullmatch("[0-9a-f]{40}", revision):
        return revision
    entry = f"{path}@{revision}"
    if commit := read_record(record).get(entry):
        return commit
    with _loading(name, path):
        commit = huggingface_hub.HfApi().dataset_info(path, revision=revision).sha
    add_to_record(record, entry, commit)
    return commit


def _load_from_hub(name, path, config, commit):
    """Open the documents of a hub dataset at a commit, from the cache of `datasets` or by download."""
    with _loading(name, path):
        documents = _cached_dataset(path, config, commit)
        if documents is None:
            documents = datasets.load_dataset(path, name=config, revision=commit, split="train")
    for folder in {os.path.dirname(file["filename"]) for file in documents.cache_files}:
        if os.path.basename(folder) != commit:  # without a connection `datasets` falls back to the version it loaded last
            raise PlainError(f"The corpus {name!r} could not be loaded from the hub dataset {path} at revision {commit}: only {folder!r} "
                             "is in the cache. Check the connection, delete that folder if an old version of `datasets` created it, or "
                             "choose another commit with the key revisions.")
    return documents.select_columns("text")


def _cached_dataset(path, config, commit):
    """Open the training split at a commit from the cache of `datasets`, without a connection; None if it is not cached."""
    namespace, name = path.split("/")
    folder = Path(datasets.config.HF_DATASETS_CACHE, f"{namespace}___{camelcase_to_snakecase(name)}")
    complete = [info.parent.relative_to(folder).parts for info in folder.glob(f"{config or '*'}/*/{commit}/dataset_info.json")]
    if not complete:
        return None
    config_name, version, _ = complete[0]
    return Cache(dataset_name=name, repo_id=path, config_name=config_name, version=version, hash=commit).as_dataset(split="train")


def _loading(name, path):
    """Context manager for calls to the hub libraries, which raise many kinds of exceptions."""
    return as_plain_error(f"The corpus {name!r} could not be loaded from the hub dataset {path} ({{error}}). Check the connection and "
                          "`revisions`, set datas=PATH to read your own text, or run without a download: python pretrain.py "
                          "quickstart=True")


FORMATS = (".txt", ".jsonl", ".parquet", "wiki_NN of WikiExtractor")
OPENERS = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}


def find_files(pattern, in_order=True):
    """Yield the paths of the text files of a path, a folder (with subfolders, without hidden files) or a glob.

    Paths are sorted by their parts, so the folder of `a/b.txt` comes before `a.txt`.
    in_order: False yields the first files before the whole folder has been listed.   Raises PlainError if there are none.
    """
    if os.path.isdir(pattern):
        paths = _walk(pattern, in_order)
    elif os.path.isfile(pattern):  # its name may contain glob characters
        paths = [pattern]
    else:
        paths = filter(os.path.isfile, sorted(glob.glob(str(pattern), recursive=True), key=lambda path: path.replace(os.sep, "\0")))
    has_text = has_files = False
    for path in paths:
        has_files = True
        if format_of(path):
            has_text = True
            yield path
    if not has_text:
        raise _no_text_files(pattern, has_files)


def _no_text_files(pattern, has_files):
    if has_files:
        reason = f"It has no file of the formats {', '.join(FORMATS)} (also .gz, .bz2, .xz, .zst)."
    elif os.path.isdir(pattern):
        reason = "The folder is empty."
    else:
        reason = f"It is not a file, a folder or a glob that matches files. The corpora are {', '.join([*HUB_CORPORA, 'docs'])}."
    return PlainError(f"Invalid value for datas: {str(pattern)!r}. {reason}")


def _walk(folder, in_order):
    """Yield the paths of all visible files below a folder. Only the names of one folder at a time are in memory."""
    with as_plain_error(f"The folder {folder} cannot be listed ({{error}}). Change its permissions or remove it from datas.", OSError):
        with os.scandir(folder) as entries:
            names = _names(entries)
            for name in sorted(names) if in_order else names:
                path = os.path.join(folder, name.rstrip("\0"))
                yield from _walk(path, in_order) if name.endswith("\0") else [path]


def _names(entries):
    """Yield the names of visible files and folders. A zero byte, which no name contains, marks folders and keeps the sorting order."""
    for entry in entries:
        if entry.name.startswith("."):
            continue
        if entry.is_dir(follow_symlinks=False):
            yield entry.name + "\0"
        elif entry.is_file():
            yield entry.name


def format_of(path):
    """Return '.txt', '.jsonl', '.parquet' or 'wiki' (WikiExtractor's file names); None for other files."""
    name = os.path.basename(path)
    stem, suffix = os.path.splitext(name)
    if suffix in (*OPENERS, ".zst"):
        name, suffix = stem, os.path.splitext(stem)[1]
    if suffix in (".txt", ".jsonl", ".parquet"):
        return suffix
    return "wiki" if re.fullmatch(r"wiki_\d+", name) else None


def reading(path):
    """Context manager that turns errors of reading a text file into a PlainError with its path."""
    return as_plain_error(f"{path} cannot be read ({{error}}). Replace it or remove it from datas.",
                          (OSError, EOFError, zlib.error, lzma.LZMAError, pyarrow.ArrowException))


def read_file(path, encoding, one_document_per_file):
    """Yield the documents of a file. A long document of a .txt file is yielded as one string and Continuations.

    Raises PlainError with the file, and the line where possible, if it cannot be read.
    """
    with reading(path):
        if format_of(path) == ".parquet":
            yield from _read_parquet(path)
            return
        try:
            with _open(path, encoding) as stream:
                yield from _read_stream(stream, path, one_document_per_file)
        except UnicodeError as error:
            raise PlainError(f"{path} is not {encoding} text ({getattr(error, 'reason', error)}). "
                             "Convert it, or set its encoding (for example encoding=latin-1).") from error


def _open(path, encoding):
    """Open a plain or compressed file as a text stream."""
    suffix = Path(path).suffix
    if suffix == ".zst":
        return io.TextIOWrapper(pyarrow.input_stream(str(path), compression="zstd"), encoding=encoding)
    return OPENERS.get(suffix, open)(path, "rt", encoding=encoding)


def _read_stream(stream, path, one_document_per_file):
    if format_of(path) == ".jsonl":
        return _read_json_lines(stream, path)
    if format_of(path) == "wiki":
        return _read_wikiextractor(stream, path)
    return _read_whole(stream) if one_document_per_file else _read_blank_line_separated(stream)


def _read_whole(stream):
    kind = str
    while text := stream.read(LONG) + stream.readline(LONG):
        yield kind(text)
        kind = Continuation


def _read_blank_line_separated(stream):
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


def _read_json_lines(lines, path):
    for number, line in enumerate(lines, 1):
        if line.strip():
            yield _text_of_json(line, path, number)


def _text_of_json(line, path, number):
    try:
        text = json.loads(line)["text"]
        text.encode()  # raises ValueError for a lone surrogate, which UTF-8 cannot encode
        return text
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise PlainError(f"{path}, line {number} is not a JSON object with a string \"text\". Correct or remove that line.") from None


def _read_wikiextractor(lines, path):
    """Yield the articles between <doc ...> and </doc> without their titles (the first line), or WikiExtractor's --json lines."""
    article = None
    for number, line in enumerate(lines, 1):
        if article is None and line.startswith("{"):
            yield _text_of_json(line, path, number)
        elif line.startswith("<doc "):
            article = []
        elif line.startswith("</doc>") and article is not None:
            yield "\n".join(article[1:])
            article = None
        elif article is not None and line.strip():
            article.append(line.strip())
        elif line.strip():
            raise PlainError(f"{path}, line {number} is outside <doc> ... </doc>, so this is not the output of WikiExtractor. "
                             "Rename the file to .txt or .jsonl.")
    if article is not None:
        raise PlainError(f"{path} ends before the </doc> of its last article. It seems to be truncated, so replace it.")


def _read_parquet(path):
    file = pyarrow.parquet.ParquetFile(path)
    if "text" not in file.schema_arrow.names:
        columns = ", ".join(file.schema_arrow.names)
        raise PlainError(f"{path} has no column \"text\" (its columns: {columns}). Rename one of them.")
    for batch in file.iter_batches(batch_size=100, columns=["text"]):
        for text in batch.column(0).to_pylist():
            if not isinstance(text, str | None):
                raise PlainError(f"{path}: the column \"text\" contains {text!r:.60}, which is not a string.")
            yield text or ""
