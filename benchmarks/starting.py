"""Startup of pretraining on a synthetic corpus, up to the prepared documents: seconds, memory, and ratio to the first
start.

    python -m benchmarks.starting [documents=20000] [files=2000] [text=PATH] [rounds=3]

The corpus comes in two forms: one .txt file with `documents` separated by blank lines, and a folder of `files` with one
document each.
Documents are random paragraphs of `text`, by default of `prose`, about a kilobyte each (OpenWebText: 8
million of five kilobytes). The first start reads the text and prepares the documents; the second opens them again, as
for another vocabulary; the next one finds the examples and needs no documents. Each start is a new process; its memory
excludes the imports.
"""
import multiprocessing
import random
import re
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from statistics import median

from _utils.keys import Count, Text
from _utils.text.sources import load_documents
from benchmarks.report import parse, write_results

DEFAULTS = {"documents": 20_000, "files": 2_000, "text": "prose", "rounds": 3}
TYPES = {"documents": Count, "files": Count, "text": Text, "rounds": Count}
DOCUMENT_LENGTH = 1_000  # characters


def paragraphs(source):
    """Lines of the first documents of a corpus."""
    with tempfile.TemporaryDirectory() as cache:
        documents = load_documents(source, cache).documents
        return [line for text in documents[:2000]["text"] for line in text.split("\n") if line.strip()]


def random_documents(n, lines):
    """Yield n documents of random lines with about DOCUMENT_LENGTH characters."""
    rng = random.Random(0)
    for _ in range(n):
        document, size = [], 0
        while size < DOCUMENT_LENGTH:
            document.append(rng.choice(lines)[:DOCUMENT_LENGTH])
            size += len(document[-1])
        yield "\n".join(document)


def write_corpora(folder, documents, files, lines):
    """{form: path} of both forms of the corpus."""
    text, many = folder / "text.txt", folder / "many"
    with text.open("w", encoding="utf-8") as file:
        file.writelines(f"{document}\n\n" for document in random_documents(documents, lines))
    for i, document in enumerate(random_documents(files, lines)):
        path = many / f"{i // 10_000:04}" / f"{i:08}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(document, encoding="utf-8")
    return {"one file": text, "many files": many}


def start(source, cache, opens):
    """(seconds, bytes of memory) of a start in this process. opens: open the documents, as the first start does."""
    Path("/proc/self/clear_refs").write_text("5")  # resets the peak memory
    before, begin = peak_bytes(), time.perf_counter()
    corpus = load_documents(source, cache)
    corpus.hash_content()
    if opens:
        len(corpus.documents)
    return time.perf_counter() - begin, peak_bytes() - before


def peak_bytes():
    """Peak memory of this process, including mapped files."""
    return int(re.search(r"VmHWM:\s*(\d+) kB", Path("/proc/self/status").read_text())[1]) * 1024


def in_new_process(*arguments):
    """Result of `start` in a new process."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("fork")) as pool:
        return pool.submit(start, *arguments).result()


def measure(source, folder, rounds):
    """{start: [(seconds, bytes) of each round]}."""
    found = {"first": [], "documents opened": [], "next": []}
    for _ in range(rounds):
        with tempfile.TemporaryDirectory(dir=folder) as cache:
            for name, measured in found.items():
                measured.append(in_new_process(str(source), cache, name != "next"))
    return found


def main(arguments):
    given = parse(arguments, DEFAULTS, TYPES)
    rows, raw = {}, {}
    with tempfile.TemporaryDirectory() as folder:
        corpora = write_corpora(Path(folder), given["documents"], given["files"], paragraphs(given["text"]))
        for form, source in corpora.items():
            found = raw[form] = measure(source, folder, given["rounds"])
            for name, measured in found.items():
                ratio = median(seconds / first for (seconds, _), (first, _) in zip(measured, found["first"]))
                seconds, memory = (median(values) for values in zip(*measured))
                rows[f"{form}, {name}"] = {"seconds": seconds, "ratio": ratio, "MB": memory / 1e6}
    write_results("starting", rows, {**given, "rounds_raw": raw})


if __name__ == "__main__":
    main(sys.argv[1:])
