"""Training and held-out parts: slices of ELECTRA's examples, and divided documents for lmtuners' line pairs."""
from dataclasses import replace
from functools import partial

import datasets
import numpy as np

from _utils.errors import PlainError

HELD_OUT = 1024        # held-out examples, at most
HELD_OUT_SHARE = .05   # and at most this share of a small corpus
_RUNS = 16             # held-out examples are consecutive runs, so that few documents are in both parts


def split_held_out(examples):
    """Return (training, held-out) examples: up to 1,024 examples or 5 % are held out, in 16 runs spread over the corpus.

    Both parts are slices of the memory-mapped examples, in their order. A corpus of fewer than 20 examples holds out none.
    """
    n = len(examples)
    n_held = min(HELD_OUT, int(n * HELD_OUT_SHARE))
    n_runs = min(_RUNS, n_held)
    train, held, end = [], [], 0
    for i in range(n_runs):
        size = n_held * (i + 1) // n_runs - n_held * i // n_runs
        start = n * i // n_runs
        train.append((end, start))
        held.append((start, start + size))
        end = start + size
    train.append((end, n))
    return _slices(examples, train), _slices(examples, held)


def _slices(examples, ranges):
    parts = [examples.select(range(start, end)) for start, end in ranges if end > start]
    return datasets.concatenate_datasets(parts) if parts else examples.select(range(0))


def split_documents(corpus, seed):
    """Return lmtuners' training, validation and test corpora: .8, .1 and .1 of the documents, drawn with the seed."""
    return [replace(corpus, key=f"{corpus.key} {name} of seed {seed}", open_documents=partial(_part, corpus, seed, part))
            for part, name in enumerate(("train", "validation", "test"))]


def limit_held_out(train, validation, test):
    """Return prepared training, validation and test examples with at most 1,024 evenly spaced ones in the latter two."""
    return train, *(evenly_spaced(part, min(HELD_OUT, len(part))) for part in (validation, test))


def evenly_spaced(examples, n):
    """Return n evenly spaced ones of the examples, in their order. n: at most their number."""
    return examples.select(np.arange(n) * len(examples) // n)


def _part(corpus, seed, part):
    document_of_row = _document_of_row(corpus)
    n = int(document_of_row[-1]) + 1
    if n < 10:
        raise PlainError(f"{corpus.name} has {n} documents, but examples='line_pairs' needs at least 10 for training, validation and "
                         "test. Put blank lines between documents, or set examples=electra.")
    order = np.random.default_rng(seed).permutation(n)
    documents = np.split(order, [n - 2 * (n // 10), n - n // 10])[part]
    return corpus.documents.select(np.flatnonzero(np.isin(document_of_row, documents)))


def _document_of_row(corpus):
    """Return the index of the document that each row belongs to."""
    documents = corpus.documents
    if "continues" in documents.column_names:
        return np.cumsum(~documents.with_format("numpy")["continues"][:]) - 1
    return np.arange(len(documents)) // corpus.rows_per_document
