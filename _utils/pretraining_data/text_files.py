"""Which text files a path, a folder or a glob means; millions of them are listed without holding all."""
import bz2
import glob
import gzip
import lzma
import os
import re

from _utils.errors import PlainError
from _utils.pretraining_data.hub_corpora import HUB_CORPORA

KINDS = (".txt", ".jsonl", ".parquet", "wiki_NN of WikiExtractor")
OPENERS = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}


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
        if kind_of(path):
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


def kind_of(path):
    """'.txt', '.jsonl', '.parquet' or 'wiki' (by WikiExtractor's file names); None for anything else."""
    name = os.path.basename(path)
    stem, suffix = os.path.splitext(name)
    if suffix in (*OPENERS, ".zst"):
        name, suffix = stem, os.path.splitext(stem)[1]
    if suffix in (".txt", ".jsonl", ".parquet"):
        return suffix
    return "wiki" if re.fullmatch(r"wiki_\d+", name) else None
