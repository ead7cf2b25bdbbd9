"""The corpus `docs`: English prose that every installation carries, so that pretraining can be tried without a download.

It is the documentation inside the Python standard library and the installed packages: pydoc's topics and the docstrings
of every module, one document per source file, one paragraph per line. Nothing is imported or run to get it.
"""
import ast
import gc
import hashlib
import importlib.metadata
import inspect
import itertools
import multiprocessing
import re
import sys
import sysconfig
import warnings
from pathlib import Path

from _utils.pretraining_data.worker_pool import available_cores

# Where a docstring stops being prose: doctests, tables, directives, parameter lists.
_NOT_PROSE = re.compile(r"^\s*(>>>|\.\.\s|:\w+|[-=~*^+|#`]{3,}|@|\$)|::\s*$|\|\s|[{}\\=<>_]{2,}|https?://")
_MARKUP = re.compile(r":\w+:`~?\.?([^`<]*?)(?:\s*<[^`]*>)?`|``([^`]*)``|`([^`]*)`|\*\*([^*]+)\*\*")
_DOCUMENTED = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def paragraphs(docstring):
    """Paragraphs of prose in a docstring, each joined to one line, markup removed; code, tables and lists of names left out."""
    found = []
    for block in re.split(r"\n\s*\n", inspect.cleandoc(docstring)):
        if any(_NOT_PROSE.search(line) for line in block.split("\n")):
            continue
        text = _MARKUP.sub(lambda m: next(g for g in m.groups() if g is not None), " ".join(block.split()))
        letters = sum(c.isalpha() or c == " " for c in text)
        if len(text) >= 60 and text.count(" ") >= 9 and letters >= .9 * len(text):
            found.append(text)
    return found


def docstrings(path):
    """Every docstring of a Python source file, in the file's order; none if it cannot be parsed."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # invalid escapes in other people's files
            tree = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError, OSError, RecursionError, MemoryError):
        return
    pending = [tree]
    while pending:  # not ast.walk: it visits every expression too, which costs more than the parsing
        node = pending.pop()
        docstring = ast.get_docstring(node, clean=False)
        if docstring:
            yield docstring
        pending += [child for child in reversed(node.body) if isinstance(child, _DOCUMENTED)]


def source_files():
    """Source files of the standard library and of the installed packages, without their test suites (hardly any prose)."""
    stdlib, *packages = dict.fromkeys(sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib"))
    for folder in (stdlib, *packages):
        for path in sorted(Path(folder).rglob("*.py")):
            inside = set(path.relative_to(folder).parts)
            if not inside & {"test", "tests"} and not (folder == stdlib and "site-packages" in inside):
                yield path


def _prose(path):
    return [paragraph for docstring in docstrings(path) for paragraph in paragraphs(docstring)]


def documents(num_workers=None):
    """Documents of the corpus: pydoc's topics, then one per source file with enough prose. A paragraph is given only once.

    The files are read by `num_workers` processes (None: one for each core that this process may use); the documents do not depend on
    their number.
    """
    import pydoc_data.topics
    topics = [paragraph for topic in pydoc_data.topics.topics.values() for paragraph in paragraphs(topic)]
    # Syntax trees have no cycles, and looking for some takes longer than the parsing when torch is loaded.
    with multiprocessing.Pool(num_workers or available_cores(), initializer=gc.disable) as pool:
        yield from _without_repeats([topics], pool.imap(_prose, source_files(), chunksize=64))


def _without_repeats(*sources):
    seen = set()
    for candidates in itertools.chain(*sources):
        fresh = []
        for paragraph in candidates:
            digest = hashlib.blake2b(paragraph.lower().encode(errors="replace"), digest_size=8).digest()
            if digest not in seen:
                seen.add(digest)
                fresh.append(paragraph)
        if sum(map(len, fresh)) >= 200:
            yield "\n".join(fresh).encode(errors="replace").decode()


def content_key():
    """What the corpus is made from: the versions of Python and of every installed package."""
    installed = {f"{d.metadata['Name']}=={d.version}" for d in importlib.metadata.distributions()}
    return "\n".join([sys.version, *sorted(installed)])
