"""The corpus `docs`: English prose that every installation of requirements.txt has, for pretraining without a download.

It consists of the plain sentences in the docstrings of a fixed list of packages, so other installed packages do not
change it. A document is a source file, with one sentence per line. No module is imported or run. Every tenth document
is held out for finetuning and for measurements: the corpus `docs_held_out`.
"""
import ast
import gc
import importlib.metadata
import importlib.util
import inspect
import multiprocessing
import re
import warnings
from collections import Counter
from pathlib import Path

from fastcore.basics import num_cpus

from _utils.progress import Progress

# {package: its distribution}: those of requirements.txt with the most prose, and sympy and networkx, which torch
# requires.
PACKAGES = {name: name for name in (
    "IPython", "accelerate", "datasets", "fsspec", "huggingface_hub", "matplotlib", "networkx", "numpy", "pandas",
    "pydantic", "scipy", "sympy", "tensorboard", "torch", "transformers")} | {"sklearn": "scikit-learn"}
VERSION = 1  # increase when the same packages would give other documents
N_WORDS = 8_000  # sentences with a word that is not among so many most frequent ones are dropped
HELD_OUT = {"docs": False, "docs_held_out": True}  # the two corpora

_MARKUP = re.compile(
    r":\w+:`~?\.?([^`<]*?)(?:\s*<[^`]*>)?`|``([^`]*)``|`([^`]*)`|\*\*([^*]+)\*\*|\*(\w[^*]*)\*|\[([^\]]+)\]\([^)]*\)"
)
_ITEM = re.compile(r"(?:[-*+]|\d+\.)\s+")
_WORD = r"(?:[A-Za-z]+(?:['-][A-Za-z]+)*|\d+)"
_WORDS = re.compile(_WORD)
_SENTENCE = re.compile(rf"[A-Z][a-z'-]*(?:[,;:]? \(?{_WORD}\)?)+\.")
_DOCUMENTED = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def documents():
    """The documents, each a string with one sentence per line. No sentence occurs twice."""
    # Syntax trees have no reference cycles, and with torch loaded the search for cycles takes longer than parsing.
    files = [*source_files()]
    with multiprocessing.Pool(num_cpus(), initializer=gc.disable) as pool:
        read = pool.imap(sentences_of, files, chunksize=64)
        by_file = [*Progress(read, "Reading source files", len(files), unit="files")]
    seen, new_by_file, counts = set(), [], Counter()
    for sentences in by_file:
        new = [sentence for sentence in dict.fromkeys(sentences) if sentence.lower() not in seen]
        seen.update(map(str.lower, new))
        new_by_file.append(new)
        counts.update(word for sentence in new for word in _words(sentence))
    known = set(sorted(counts, key=lambda word: (-counts[word], word))[:N_WORDS])
    for sentences in new_by_file:
        if kept := [sentence for sentence in sentences if known.issuperset(_words(sentence))]:
            yield "\n".join(kept)


def part_of(dataset, name):
    """The rows of a datasets.Dataset of all documents that belong to `docs` or to `docs_held_out`."""
    return dataset.select([i for i in range(len(dataset)) if (i % 10 == 9) == HELD_OUT[name]])


def versions():
    """The versions of the packages, which determine the documents."""
    return [f"{name}=={importlib.metadata.version(name)}" for name in PACKAGES.values()]


def source_files():
    """The source files of the packages, without test suites (hardly any prose)."""
    for name in PACKAGES:
        folder = Path(importlib.util.find_spec(name).origin).parent
        for path in sorted(folder.rglob("*.py")):
            if {"test", "tests", "testing"}.isdisjoint(path.relative_to(folder).parts):
                yield path


def sentences_of(path):
    """The plain sentences in the docstrings of a Python source file; none if it cannot be parsed."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # invalid escapes in third-party files
            tree = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError, OSError, RecursionError, MemoryError):
        return []
    return [sentence for docstring in docstrings(tree) for sentence in sentences_in(docstring)]


def docstrings(node):
    """Yield the docstrings of a syntax tree in order. ast.walk would visit every expression too, which takes longer
    than parsing.
    """
    yield ast.get_docstring(node, clean=False) or ""
    for child in node.body:
        if isinstance(child, _DOCUMENTED):
            yield from docstrings(child)


def sentences_in(docstring):
    """The plain sentences of 5 to 45 words in a docstring, without markup.

    Plain: only words and numbers, with commas and parentheses.
    """
    sentences = []
    for paragraph in paragraphs(docstring):
        text = _MARKUP.sub(lambda match: match[match.lastindex], paragraph)
        for sentence in re.split(r"(?<=[.!?]) (?=[A-Z])", " ".join(text.split())):
            if 4 <= sentence.count(" ") < 45 and _SENTENCE.fullmatch(sentence):
                sentences.append(sentence)
    return sentences


def paragraphs(docstring):
    """Yield the paragraphs of a docstring: consecutive lines of the same indentation that begin with a letter or
    markup.
    """
    lines, indentation = [], None
    for line in [*inspect.cleandoc(docstring).split("\n"), ""]:
        text = line.lstrip()
        is_prose = text[:1].isalpha() or text.startswith(("`", "(", "*", ":"))
        if lines and not (is_prose and len(line) - len(text) == indentation):
            yield " ".join(lines)
            lines = []
        indentation = len(line) - len(text)
        if is_prose or _ITEM.match(text):
            lines.append(_ITEM.sub("", text, count=1))


def _words(sentence):
    return _WORDS.findall(sentence.lower())
