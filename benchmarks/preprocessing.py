"""From documents to examples, in MB of text per second, compared with the tokenizers library alone on the same lines.

    python -m benchmarks.preprocessing [datas=prose] [vocab=8192] [megabytes=50] [processes=1,2] [rounds=3]

The library alone uses one thread, as do the tokenization of this repository and one process of the preprocessing. Each
measurement begins with an empty cache of words. Two ratios are printed: to the library alone, and to the first number
of processes. Starting and ending several processes takes a quarter of a second, and they cannot share a block of 1,000
documents; with 50 MB both cost a few percent.
Shorter text is repeated.
"""
import os
import sys
import tempfile
from collections import deque
from functools import partial
from pathlib import Path
from statistics import median

import datasets
import torch

from _utils.keys import PRETRAIN_KEYS, Count, Positive, Text
from _utils.text.processors import BLOCK_ROWS, ELECTRADataProcessor
from _utils.text.sources import load_documents
from _utils.text.vocabulary import load_tokenizer
from benchmarks.report import alternate, median_ratio, parse, processes, seconds_of, write_results

os.environ["TOKENIZERS_PARALLELISM"] = "false"  # one thread per process, as in the workers
CPU = torch.device("cpu")
DEFAULTS = {"datas": "prose", "vocab": 8192, "megabytes": 50, "processes": [1, 2], "rounds": 3}
TYPES = {
    "datas": Text,
    "vocab": PRETRAIN_KEYS["vocab"],
    "processes": processes(1),
    "rounds": Count,
    "megabytes": Positive,
}


def some_megabytes(documents, megabytes):
    """(documents in whole blocks of about that much text, repeated if necessary; their bytes)."""
    parts, size = [], 0
    while size < megabytes * 1e6:
        n = 0
        while n < len(documents) and size < megabytes * 1e6:
            size += sum(len(text.encode()) for text in documents[n:n + BLOCK_ROWS]["text"])
            n = min(n + BLOCK_ROWS, len(documents))
        parts.append(documents.select(range(n)))
    return datasets.concatenate_datasets(parts), size


def library_alone(new_processor):
    """Seconds of the library's tokenizer on all lines, in batches of a block of documents."""
    processor, seconds = new_processor(), 0.
    for block in range(n_blocks(processor)):
        lines = [line for text, _ in processor.rows(block) for line in text.split("\n") if line.strip()]
        seconds += seconds_of(
            lambda lines=lines: processor.tokenizer.encode_batch_fast(lines, add_special_tokens=False), CPU
        )
    return seconds


def tokenization(new_processor):
    """Seconds of a new processor from documents to the token ids of their lines."""
    processor, seconds = new_processor(), 0.
    for block in range(n_blocks(processor)):
        rows = list(processor.rows(block))
        seconds += seconds_of(lambda rows=rows: deque(processor.tokenize(rows), maxlen=0), CPU)
    return seconds


def n_blocks(processor):
    return -(-len(processor.hf_dset) // BLOCK_ROWS)


def pipeline(new_processor, processes):
    """Seconds of a new processor from documents to an Arrow file."""
    processor = new_processor()
    with tempfile.TemporaryDirectory() as folder:
        return seconds_of(lambda: processor.map(Path(folder, "examples.arrow"), processes), CPU)


def main(arguments):
    given = parse(arguments, DEFAULTS, TYPES)
    corpus = load_documents(given["datas"], "datasets")
    hf_tokenizer = load_tokenizer(given["vocab"], [corpus], "datasets")
    documents, size = some_megabytes(corpus.documents, given["megabytes"])
    new_processor = partial(
        ELECTRADataProcessor, documents, hf_tokenizer, 128, apply_cleaning=False, drop_parentheses=False
    )
    functions = {
        "tokenizers alone": partial(library_alone, new_processor),
        "tokenization": partial(tokenization, new_processor),
        **{f"{n} processes": partial(pipeline, new_processor, n) for n in given["processes"]},
    }
    seconds = alternate(functions, given["rounds"])
    bases = "tokenizers alone", f"{given['processes'][0]} processes"
    rows = {
        name: {
            "MB/s": size / median(found) / 1e6,
            **{f"ratio to {base}": median_ratio(seconds[base], found) for base in bases},
        }
        for name, found in seconds.items()
    }
    settings = {**given, "bytes": size, "rounds_seconds": seconds}
    write_results("preprocessing", rows, settings)


if __name__ == "__main__":
    main(sys.argv[1:])
