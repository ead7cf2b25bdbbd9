"""Prepared examples and their cache, held-out examples, and the unigram entropy of the text."""
import random
from contextlib import closing
from pathlib import Path

import datasets
import numpy as np
from scipy.stats import entropy

from _utils.errors import UserError
from _utils.files import acquired, content_key
from _utils.names import HUB_CORPORA, without_parts
from _utils.text.normalization import warn_of_losses
from _utils.text.prepared_files import prepared
from _utils.text.processors import MAX_FILES, SHORT, ELECTRADataProcessor
from _utils.text.special_tokens import MANY_UNKNOWN, content_of, text_tokenizer, unknown_words

_MAX_EXAMPLES = 50_000  # enough for two decimals


def unigram_entropy(examples, special_ids):
    """Entropy in nats of the tokens of up to 50,000 examples, evenly spread, without special tokens.

    examples: a datasets.Dataset with input_ids.   special_ids: ids that are never masked.
    """
    ids = _sample(examples).flatten().to_numpy()
    counts = np.bincount(ids, minlength=max(special_ids) + 1)
    counts[special_ids] = 0
    return float(entropy(counts))


def example_lengths(examples):
    """Tokens of up to 50,000 examples, evenly spread, an array. examples: a datasets.Dataset with input_ids."""
    return _sample(examples).value_lengths().to_numpy()


def _sample(examples):
    """The token ids of up to _MAX_EXAMPLES examples, a list array."""
    rows = examples.select(range(0, len(examples), -(-len(examples) // _MAX_EXAMPLES)))
    return rows.with_format("arrow")[:]["input_ids"].combine_chunks()


HELD_OUT = 1024        # held-out examples, at most
HELD_OUT_SHARE = .05   # and at most this share of a small corpus
HELD_OUT_RUNS = 16     # held-out examples are consecutive runs, so that few documents are in both parts


def split_held_out(examples):
    """Return (training, held-out) examples: up to 1,024 examples or 5% are held out, in 16 runs across the corpus.

    Both parts are slices of the memory-mapped examples, in their order. A corpus of fewer than 20 examples holds out
    none.
    """
    n = len(examples)
    n_held = min(HELD_OUT, int(n * HELD_OUT_SHARE))
    n_runs = min(HELD_OUT_RUNS, n_held)
    starts = [n * i // n_runs for i in range(n_runs)]
    ends = [start + n_held * (i + 1) // n_runs - n_held * i // n_runs for i, start in enumerate(starts)]
    training, held_out = zip([0, *ends], [*starts, n]), zip(starts, ends)
    return tuple(
        datasets.concatenate_datasets([examples.select([]), *(examples.select(range(*rows)) for rows in part)])
        for part in (training, held_out))


_FILES_OF_PART = 16  # at most, of the examples of a part of a stream
_BUILDING_VERSION = 1  # increase when the same documents would give other examples
_CHECKED, _CHECKED_OF_ROW = 100_000, 1000  # tokens at each place of a corpus, and characters of each row


def long_lines_of(name, long_lines=None):
    """Return how a corpus treats long lines, 'keep' or 'truncate'.

    long_lines: either of them, or None: 'truncate' for the names in HUB_CORPORA, as in Google's code, else 'keep'.
    """
    return long_lines or ("truncate" if without_parts(name) in HUB_CORPORA else "keep")


def prepare_examples(corpus, hf_tokenizer, max_length, seed, cache_dir, clean=None, long_lines=None, num_proc=None,
                     warn_of_marks=False):
    """Return the examples of a corpus, from the cache if text, vocabulary and arguments are the same.

    clean: None cleans like electra_pytorch (D5), which drops lines under 80 characters from Wikipedia and "()" from all
    HUB_CORPORA, and leaves other text unchanged; True or False does both or neither.   long_lines: as in
    `long_lines_of`.
    num_proc: None uses all cores.   warn_of_marks: print a warning if the tokenizer removes accents or case that
    matter.
    Raises UserError if some of the documents show that the text cannot be used.
    """
    name = without_parts(corpus.name)
    options = {
        "max_length": max_length,
        "apply_cleaning": name == "wikipedia" if clean is None else clean,
        "drop_parentheses": name in HUB_CORPORA if clean is None else clean,
        # bookcorpus has one sentence per row and does not mark where books end.
        "rows_per_document": 1000 if name == "bookcorpus" else 1,
        "long_lines": long_lines_of(name, long_lines),
        "seed": seed,
    }
    version = _BUILDING_VERSION + options["apply_cleaning"]  # cleaning of version 1 measured stripped lines
    key = content_key((version, corpus.key, content_of(text_tokenizer(hf_tokenizer)), options))
    path = Path(cache_dir) / f"examples_{key}.arrow"
    path_of = lambda number: path.with_stem(f"{path.stem}_{number:05}") if corpus.is_streamed else path
    examples = []  # of each part
    while (corpus.is_streamed or not examples) and (built := _built_examples(path_of(len(examples)))) is not None:
        examples.append(built)
    lock = path.with_name(".lock")
    wait = lambda: print(f"Waiting until another process has prepared its text ({lock})", flush=True)
    with closing(corpus.parts(skip=len(examples))) as parts:
        for first_row, documents in parts:
            processor = ELECTRADataProcessor(documents, hf_tokenizer, **options, first_row=first_row)
            if not first_row:
                check_sample(corpus.name, processor, hf_tokenizer, warn_of_marks)
            max_files = _FILES_OF_PART if corpus.is_streamed else MAX_FILES
            with acquired(lock, wait):
                # Workers of a killed process may have lived until a moment ago.
                for left in path.parent.glob("examples_*.unfinished"):
                    left.unlink()
                examples.append(processor.map(path_of(len(examples)), num_proc, max_files))
    return datasets.concatenate_datasets(examples)


def _built_examples(path):
    """The examples in the files of a part that `ELECTRADataProcessor.map` writes; None if one is missing."""
    files = sorted(path.parent.glob(f"{path.stem}_*_of_*{path.suffix}"))
    if not files or len(files) < int(files[0].stem.rsplit("_", 1)[1]):
        return None
    return datasets.concatenate_datasets([prepared(file) for file in files])


def check_sample(name, processor, hf_tokenizer, warn_of_marks=False):
    """Check some documents of a corpus, from its beginning to its end, before all of it is processed.

    Warns if cleaning or examples drop much of the text, if many tokens are not in the vocabulary, and, with
    warn_of_marks, if the tokenizer drops accents or case that matter.
    Raises UserError if there is no text, if nearly all of it would be dropped because of long lines, or if it does not
    fit the vocabulary.
    """
    texts = [text[:_CHECKED_OF_ROW] for rows in processor.sample() for text, _ in rows]
    lines = [ids for rows in processor.sample() for ids in _beginning(processor.tokenize(rows))]
    n_tokens = sum(len(ids or ()) for ids in lines)
    if not n_tokens:
        raise UserError(f"{name}: no text is left of {len(texts)} documents. Check the files and their encoding, or "
                        f"set clean=False, which keeps lines under {SHORT} characters.")
    if (share := processor.short_share(text for rows in processor.sample() for text, _ in rows)) > .3:
        _warn(f"{name}: cleaning drops the lines under {SHORT} characters, {share:.0%} of the text. Set clean=False to "
              "keep them.")
    unknown = sum(ids.count(hf_tokenizer.unk_token_id) for ids in lines if ids) / n_tokens
    if unknown > MANY_UNKNOWN:
        words = unknown_words(hf_tokenizer, texts)
        _warn(f"{name}: {unknown:.0%} of its tokens are not in the vocabulary, such as {words}. Choose a vocabulary "
              "(or initial_weights) for its language, or train one with vocab=30522.", is_fatal=unknown > .3)
    if warn_of_marks:
        warn_of_losses(name, hf_tokenizer.backend_tokenizer.normalizer, texts)
    examples = processor.build(lines, random.Random(0))
    special = {*processor.before, *processor.after, *processor.between, *processor.end}  # raw text has none of them
    kept = sum(i not in special for ids, _ in examples for i in ids) / n_tokens
    if kept < .7:
        longest = max(filter(None, lines), key=len)
        _warn(f"{name}: examples keep only {kept:.0%} of the text. An example has {processor.max_length} tokens, "
              f"and the rest of the line that fills it is dropped. The longest line has {len(longest):,} tokens "
              f"and begins with {processor.tokenizer.decode(longest[:8])!r:.80}. To keep more, set long_lines=keep, "
              "or put a line break after each sentence.", is_fatal=kept < .1)


def _beginning(lines):
    """Yield tokenized lines until they have as many tokens as are checked at each place of a corpus."""
    n_tokens = 0
    for ids in lines:
        yield ids
        n_tokens += len(ids or ())
        if n_tokens > _CHECKED:
            break


def _warn(message, is_fatal=False):
    """Print a warning; raise UserError with the same message if it is fatal."""
    if is_fatal:
        raise UserError(message)
    print(f"Warning: {message}")
