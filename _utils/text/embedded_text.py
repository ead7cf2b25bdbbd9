"""The corpus `docs`: English prose that is part of every installation, for pretraining without a download.

It is the documentation in the Python standard library and the installed packages: pydoc's topics, and the docstrings of
every source file as one document with one paragraph per line. No module is imported or run.
"""
import ast
import gc
import importlib.metadata
import inspect
import itertools
import multiprocessing
import pydoc_data.topics
import re
import sys
import sysconfig
import warnings
from pathlib import Path

from fastcore.basics import num_cpus

# Lines of a docstring that are not prose: doctests, tables, directives, parameter lists.
_NOT_PROSE = re.compile(r"^\s*(>>>|\.\.\s|:\w+|[-=~*^+|#`]{3,}|@|\$)|::\s*$|\|\s|[{}\\=<>_]{2,}|https?://")
_MARKUP = re.compile(r":\w+:`~?\.?([^`<]*?)(?:\s*<[^`]*>)?`|``([^`]*)``|`([^`]*)`|\*\*([^*]+)\*\*")
_DOCUMENTED = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def documents():
    """Yield the documents: pydoc's topics, then one per source file with enough prose, without repeated paragraphs."""
    topics = [paragraph for topic in pydoc_data.topics.topics.values() for paragraph in paragraphs(topic)]
    seen = set()  # hashes of paragraphs
    # Syntax trees have no reference cycles, and with torch loaded the search for cycles takes longer than parsing.
    with multiprocessing.Pool(num_cpus(), initializer=gc.disable) as pool:
        for candidates in itertools.chain([topics], pool.imap(prose_of, source_files(), chunksize=64)):
            new = []
            for paragraph in candidates:
                digest = hash(paragraph.lower())
                if digest not in seen:
                    seen.add(digest)
                    new.append(paragraph)
            if sum(map(len, new)) >= 200:
                yield "\n".join(new).encode(errors="replace").decode()


def installed_versions():
    """Return the versions of Python and of all installed packages, which determine the documents."""
    installed = {f"{d.metadata['Name']}=={d.version}" for d in importlib.metadata.distributions()}
    return [sys.version, *sorted(installed)]


def source_files():
    """Yield the source files of the standard library and the installed packages, without test suites (hardly any
    prose).
    """
    for folder in dict.fromkeys(sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")):
        for path in sorted(Path(folder).rglob("*.py")):
            # the standard library may contain packages
            if {"test", "tests", "site-packages"}.isdisjoint(path.relative_to(folder).parts):
                yield path


def prose_of(path):
    """Return the paragraphs of a Python source file; none if it cannot be parsed."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # invalid escapes in third-party files
            tree = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError, OSError, RecursionError, MemoryError):
        return []
    return [paragraph for docstring in docstrings(tree) for paragraph in paragraphs(docstring)]


def docstrings(node):
    """Yield the docstrings of a syntax tree in order. ast.walk would visit every expression too, which takes longer
    than parsing.
    """
    yield ast.get_docstring(node, clean=False) or ""
    for child in node.body:
        if isinstance(child, _DOCUMENTED):
            yield from docstrings(child)


def paragraphs(docstring):
    """Return the paragraphs of prose in a docstring, each on one line without markup; code, tables and name lists are
    dropped.
    """
    prose = []
    for block in re.split(r"\n\s*\n", inspect.cleandoc(docstring)):
        if any(_NOT_PROSE.search(line) for line in block.split("\n")):
            continue
        text = _MARKUP.sub(lambda match: match[match.lastindex], " ".join(block.split()))
        letters = sum(c.isalpha() or c == " " for c in text)
        if len(text) >= 60 and text.count(" ") >= 9 and letters >= .9 * len(text):
            prose.append(text)
    return prose
