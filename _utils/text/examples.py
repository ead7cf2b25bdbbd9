"""Prepared examples and their cache, held-out examples, and the unigram entropy of the text."""
import contextlib
import glob
import os
import random
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

import datasets
import numpy as np
from filelock import FileLock, Timeout
from scipy.stats import entropy

from _utils.errors import PlainError
from _utils.runs.files import content_key
from _utils.text.documents import open_prepared
from _utils.text.processors import BLOCK, PROCESSORS, tokenizer_json
from _utils.text.readers import HUB_CORPORA

_MAX_EXAMPLES = 50_000  # enough for two decimals


def unigram_entropy(examples, special_ids):
    """Entropy in nats of the tokens of up to 50,000 examples, evenly spread, without special tokens.

    examples: a datasets.Dataset with input_ids.   special_ids: ids that are never masked.
    """
    rows = examples.select(range(0, len(examples), -(-len(examples) // _MAX_EXAMPLES)))
    counts = np.zeros(1, dtype=np.int64)
    for batch in rows.with_format("arrow").iter(batch_size=10_000):
        of_batch = np.bincount(batch["input_ids"].combine_chunks().flatten().to_numpy(), minlength=len(counts))
        of_batch[:len(counts)] += counts
        counts = of_batch
    counts[[i for i in special_ids if i < len(counts)]] = 0
    return float(entropy(counts))


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


_BUILDING_VERSION = 1  # increase when the same documents would give other examples
_CHECKED = 1_000_000   # tokens at the beginning of a corpus


def prepare_examples(corpus, hf_tokenizer, max_length, seed, cache_dir, clean=None, num_proc=None, kind="electra"):
    """Return the examples of a corpus, from the cache if text, vocabulary, length, cleaning, kind and seed are the same.

    kind: 'electra' or 'line_pairs'.   clean: None cleans like electra_pytorch (D5), which drops lines under 80 characters from Wikipedia
    and "()" from all hub corpora, and leaves other text unchanged; True or False does both or neither.   num_proc: None uses all cores.
    Raises PlainError if the first block of documents shows that the text cannot be used.
    """
    cleaning = dict(apply_cleaning=corpus.name == "wikipedia" if clean is None else clean,
                    drop_parentheses=corpus.name in HUB_CORPORA if clean is None else clean)
    path = Path(cache_dir) / f"examples_{_key(corpus, hf_tokenizer, max_length, seed, cleaning, kind)}.arrow"
    if (finished := _open_finished(path)) is not None:
        return finished
    processor = PROCESSORS[kind](corpus.documents, hf_tokenizer, max_length, seed=seed, rows_per_document=corpus.rows_per_document,
                                 **cleaning)
    check_first_block(corpus.name, processor, hf_tokenizer.unk_token_id)
    with _only_builder(path):
        finished = _open_finished(path)  # by the process that this one waited for
        return processor.map(path, num_proc) if finished is None else finished


def _key(corpus, hf_tokenizer, max_length, seed, cleaning, kind):
    """Return the key of the examples. Options with their default value are not part of it."""
    made_of = [_BUILDING_VERSION, corpus.key, tokenizer_json(hf_tokenizer), max_length, cleaning, seed]
    if kind != "electra":
        made_of.append(kind)
    if corpus.rows_per_document != 1:
        made_of.append(corpus.rows_per_document)
    return content_key(tuple(made_of))


def _open_finished(path):
    """Open the examples of an earlier run, in one file or several; None if they are missing or incomplete."""
    if path.exists():
        return open_prepared(path)
    files_by_count = {}
    for file in sorted(path.parent.glob(f"{path.stem}_*_of_*{path.suffix}")):
        files_by_count.setdefault(int(file.stem.rsplit("_", 1)[1]), []).append(file)
    for count, files in files_by_count.items():
        if len(files) == count:
            return datasets.concatenate_datasets([open_prepared(file) for file in files])
    return None


@contextlib.contextmanager
def _only_builder(path):
    """Context manager in which no other process builds the same examples; others wait. Removes unfinished files at the end."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(path.with_suffix(".lock"))
    try:
        lock.acquire(timeout=0)
    except Timeout:
        print("Waiting for another process that builds the same examples.")
        lock.acquire()
    try:
        yield
        Path(lock.lock_file).unlink(missing_ok=True)  # processes that wait for it find the finished examples
    finally:
        for unfinished in path.parent.glob(f"{glob.escape(path.stem)}*.unfinished"):
            unfinished.unlink(missing_ok=True)
        lock.release()


def open_examples(files, patience=180):
    """Open the Arrow files that another process prepared. In a folder shared by several machines they may appear late.

    patience: seconds until PlainError.
    """
    end = time.monotonic() + patience
    while missing := [file for file in files if not os.path.exists(file)]:
        if time.monotonic() > end:
            raise PlainError(f"{missing[0]}, which the first process prepared, did not appear within {patience} seconds. Start all "
                             "processes in a folder that their machines share.")
        time.sleep(1)
    return datasets.concatenate_datasets([datasets.Dataset.from_file(file) for file in files])


def text_key(examples):
    """Return what identifies the text of examples: the keys in the names of their Arrow files."""
    return sorted({Path(file["filename"]).stem.split("_")[1] for file in examples.cache_files})


def check_first_block(name, processor, unk_id):
    """Check the beginning of a corpus before all of it is processed. Warns if examples drop much of the text.

    Raises PlainError if it has no text, if nearly all of it would be dropped because of long lines, or if it does not fit the vocabulary.
    """
    lines = _first_lines(processor)
    tokens = [token for line in lines if line is not None for token in line]
    if not tokens:
        filtered = " after lines under 80 characters are dropped (clean=False keeps them)" if processor.apply_cleaning else ""
        raise PlainError(f"{name}: no text is left in its first {min(BLOCK, len(processor.hf_dset))} documents{filtered}.")
    _check_line_lengths(name, processor, lines, len(tokens))
    unknown = tokens.count(unk_id) / len(tokens)
    if unknown > .3:
        raise PlainError(f"{name}: {unknown:.0%} of its tokens are not in the vocabulary. Choose a vocabulary for its language, "
                         "or train one with vocab=30522.")


def _first_lines(processor):
    """Return the first tokenized lines of a corpus, with None where a document begins."""
    lines, n_tokens = [], 0
    for ids in processor.tokenize(processor.rows(0)):
        lines.append(ids)
        n_tokens += len(ids or ())
        if n_tokens > _CHECKED:
            break
    return lines


def _check_line_lengths(name, processor, lines, n_tokens):
    kept = sum(processor.tokens_used(*example) for example in processor.build(lines, random.Random(0))) / n_tokens
    if kept >= .7:
        return
    message = (f"{name}: examples keep only {kept:.0%} of the text. An example has {processor.max_length} tokens, and the rest of the line "
               f"that fills it is dropped. The longest line is in {_longest_line(processor, lines)}. Put a line break after each sentence")
    if kept < .1:
        raise PlainError(f"{message}.")
    print(f"Warning: {message} to keep more.")


def _longest_line(processor, lines):
    """Describe the longest line, e.g. `document 3 (512 tokens, begins with 'in the year 1843')`."""
    i = max(range(len(lines)), key=lambda i: len(lines[i] or ()))
    beginning = processor.tokenizer.decode(lines[i][:8])
    return f"document {lines[:i].count(None):,} ({len(lines[i]):,} tokens, begins with {beginning!r:.80})"
