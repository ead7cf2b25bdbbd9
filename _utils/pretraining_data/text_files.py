"""Which text files a path, a folder or a glob stands for. Millions of files are listed without holding all their names in memory."""
import bz2
import glob
import gzip
import lzma
import os
import re
import zlib

import pyarrow

from _utils.errors import PlainError, as_plain_error
from _utils.pretraining_data.hub_corpora import HUB_CORPORA

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
    """Yield the paths of all visible files below a folder. Only the entries of one folder at a time are in memory."""
    with as_plain_error(f"The folder {folder} cannot be listed ({{error}}). Change its permissions or remove it from datas.", OSError):
        with os.scandir(folder) as entries:
            visible = (entry for entry in entries if not entry.name.startswith("."))
            for entry in sorted(visible, key=lambda entry: entry.name) if in_order else visible:
                if entry.is_dir(follow_symlinks=False):
                    yield from _walk(entry.path, in_order)
                elif entry.is_file():
                    yield entry.path


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
