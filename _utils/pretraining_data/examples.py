"""From documents to examples: the example builder of the original, run over blocks of documents by several processes.

An example is `[CLS] A [SEP] B [SEP]`, cut to the length of the model (build_pretraining_dataset.py:ExampleBuilder, F1-F5).
"""
import contextlib
import gc
import glob
import itertools
import os
import random
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

import datasets
import numpy as np
import pyarrow
import tokenizers
import xxhash
from filelock import FileLock, Timeout

from _utils.errors import PlainError
from _utils.pretraining_data.example_builder import ExampleBuilder
from _utils.pretraining_data.hub_corpora import HUB_CORPORA
from _utils.pretraining_data.sources import LONG, open_prepared, seal_of
from _utils.pretraining_data.worker_pool import available_cores, run_in_processes
from _utils.run_files.checkpoints import write_atomically

# Examples do not depend on the number of processes: each block of rows, most often documents, has random numbers of its own.
BLOCK = 1000
MOST_FILES = 256       # that examples are divided into; what a killed process had finished is kept by the file
_TOKENIZED_AT_ONCE = 1 << 20  # characters
_WRITTEN_AT_ONCE = 10_000     # examples
_CHECKED = 1_000_000          # tokens of the first block
_BUILDING_VERSION = 1  # raise it whenever the same documents would give other examples
HELD_OUT = 1024        # examples held out for evaluation, at most
HELD_OUT_SHARE = .05   # and at most this share of a small corpus
_RUNS = 16             # neighbouring examples are held out together, so that few documents are on both sides


@contextlib.contextmanager
def no_search_for_cycles():
    """Python looks for cycles among all objects again and again while many lists are made, here a sixth of the time for nothing."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


class ELECTRADataProcessor:
    """Documents in, examples out; `processor(documents)` gives {'input_ids': lists of ids, 'sentA_length': lengths}.

    hf_dset: datasets.Dataset with the column `text_col`, or None where only single blocks are processed. Where it has the bool column
    `continues`, rows with True continue the document of the row before.
    hf_tokenizer: a fast WordPiece tokenizer.   max_length: of an example, in tokens.
    lines_delimiter: what divides the "sentences" of a document.   apply_cleaning: drop lines under 80 characters,
    as electra_pytorch does for Wikipedia, and drop_parentheses: remove each "()", as it does everywhere (D5).
    seed: of the random draws; a random.Random is drawn from directly.
    rows_per_document: neighbouring rows that make up a document, where there is no column `continues`.
    """

    def __init__(self, hf_dset, hf_tokenizer, max_length, text_col="text", lines_delimiter="\n", apply_cleaning=True,
                 drop_parentheses=True, seed=0, rows_per_document=1):
        self.hf_dset, self.text_col, self.lines_delimiter = hf_dset, text_col, lines_delimiter
        self.max_length, self.apply_cleaning, self.seed = max_length, apply_cleaning, seed
        self.drop_parentheses, self.rows_per_document = drop_parentheses, rows_per_document
        self.cls_id, self.sep_id = hf_tokenizer.cls_token_id, hf_tokenizer.sep_token_id
        self.vocab_size = len(hf_tokenizer)
        self.tokenizer = tokenizers.Tokenizer.from_str(settings_of(hf_tokenizer))
        if isinstance(self.tokenizer.model, tokenizers.models.WordPiece):
            self.tokenizer.model.max_input_chars_per_word = 200  # as the original; the library's own is 100 (F1)

    def __call__(self, documents, rng=None):
        """Examples of one block of documents, drawn from `rng` (default: the random numbers of block 0)."""
        rows = ((document, False) for document in documents)
        return _columns(self.gather(self.tokenize(rows), rng or self._block_rng(0)))

    def rows(self, block):
        """Yield (text, whether it continues the document of the row before) of a block, without holding all of it."""
        start = block * BLOCK
        table = self.hf_dset.with_format("arrow")[start:start + BLOCK]
        if "continues" in table.column_names:
            continues = table["continues"].to_pylist()
        else:
            continues = (i % self.rows_per_document != 0 for i in itertools.count(start))
        return zip((text.as_py() for text in table[self.text_col]), continues)

    def tokenize(self, rows):
        """Yield the tokens of each line, and None where a document begins. rows: as `rows` gives them."""
        # As the original: "[MASK]" in raw text is text (F1). Set here because it is lost on the way to another process.
        self.tokenizer.encode_special_tokens = True
        for lines in self._chunks(rows):
            texts = [line for line in lines if line is not None]
            encodings = iter(self.tokenizer.encode_batch_fast(texts, add_special_tokens=False))
            for line in lines:
                yield None if line is None else next(encodings).ids

    def gather(self, lines, rng):
        """Yield examples (input_ids, sentA_length) of tokenized lines, which never reach over the end of a document."""
        builder = ExampleBuilder(self.max_length, self.cls_id, self.sep_id, rng)
        for ids in itertools.chain(lines, [None]):
            if ids is not None:
                example = builder.add_line(ids)
            else:
                example = builder.flush() if builder.length else None
            if example:
                yield example

    def tokens_used(self, input_ids, sentA_length):
        """How many tokens of the text an example brings."""
        return len(input_ids) - 2 - (len(input_ids) > sentA_length)

    def _block_rng(self, block):
        return self.seed if isinstance(self.seed, random.Random) else random.Random(f"{self.seed}, block {block}")

    def _lines(self, document):
        """The lines of a document that go into examples, of which the longest are cut: no example takes so much."""
        if self.drop_parentheses:
            document = document.replace("()", "")
        lines = (line.strip() for line in document.split(self.lines_delimiter))
        return [line[:LONG] for line in lines if line and not (self.apply_cleaning and len(line) < 80)]

    def _chunks(self, rows):
        """Lines that are tokenized together, and None where a document begins."""
        chunk, size = [], 0
        for text, continues in rows:
            if not continues:
                chunk.append(None)
            for line in self._lines(text):
                chunk.append(line)
                size += len(line)
                if size >= _TOKENIZED_AT_ONCE:
                    yield chunk
                    chunk, size = [], 0
        yield chunk

    def map(self, cache_file_name, num_proc=None):
        """Examples of the whole dataset as a datasets.Dataset, the same for any number of processes (None: one for each core).

        They are written to a fixed number of Arrow files beside `cache_file_name`. Files that an earlier call finished are kept.
        """
        target = Path(cache_file_name)
        target.parent.mkdir(parents=True, exist_ok=True)
        files = self._files(target)
        missing = [task for task in files if not task[0].exists()]
        run_in_processes(self._write_file, missing, min(num_proc or available_cores(), len(missing)), "Building examples")
        return datasets.concatenate_datasets([open_prepared(path) for path, _ in files])

    def _files(self, target):
        """[(path, its blocks)]: blocks divided evenly into at most MOST_FILES files."""
        n_blocks = -(-len(self.hf_dset) // BLOCK)
        per_file = -(-n_blocks // MOST_FILES)
        blocks = [range(start, min(start + per_file, n_blocks)) for start in range(0, n_blocks, per_file)]
        return [(target.with_stem(f"{target.stem}_{i:05}_of_{len(blocks):05}"), blocks[i]) for i in range(len(blocks))]

    def _write_file(self, task):
        """Write the examples of some blocks; the file appears under its name when it is complete, with its check sum."""
        path, blocks = task
        seal_of(path).unlink(missing_ok=True)  # of a damaged file that was deleted
        write_atomically(path, partial(self._write_blocks, blocks))
        open_prepared(path)

    def _write_blocks(self, blocks, file):
        word = datasets.Value("uint16" if self.vocab_size <= 1 << 16 else "int32")
        schema = datasets.Features({"input_ids": datasets.List(word), "sentA_length": datasets.Value("int32")}).arrow_schema
        with pyarrow.ipc.new_stream(file, schema) as writer, no_search_for_cycles():
            for block in blocks:
                examples = self.gather(self.tokenize(self.rows(block)), self._block_rng(block))
                while part := list(itertools.islice(examples, _WRITTEN_AT_ONCE)):
                    writer.write_batch(pyarrow.record_batch(_columns(part), schema))


class LinePairsProcessor(ELECTRADataProcessor):
    """lmtuners' examples (facts.md#lmtuners): two lines of one document, each of at most half the length; `[CLS] A [SEP] B [SEP]`.

    Every line is A once, its B is drawn from the other lines; a document of one line gives one segment. The lines of a document are held
    in memory: after LONG tokens those that follow count as another document.
    """

    def gather(self, lines, rng):
        """As that of ELECTRADataProcessor."""
        document, size = [], 0
        for ids in itertools.chain(lines, [None]):
            if ids is not None:
                document.append(ids)
                size += len(ids)
            if ids is None or size > LONG:
                yield from self._pairs(document, rng)
                document, size = [], 0

    def _pairs(self, lines, rng):
        longest = self.max_length // 2 - 2
        for i, line in enumerate(lines):
            first = [self.cls_id, *line[:longest], self.sep_id]
            other = rng.randrange(len(lines) - 1) if len(lines) > 1 else None
            second = [] if other is None else [*lines[other + (other >= i)][:longest], self.sep_id]
            yield first + second, len(first)

    def tokens_used(self, input_ids, sentA_length):
        """As A, in which every line comes once."""
        return sentA_length - 2


def _columns(examples):
    """{'input_ids': lists of ids, 'sentA_length': lengths} of some examples."""
    examples = list(examples)
    return {"input_ids": [ids for ids, _ in examples], "sentA_length": [length for _, length in examples]}


def settings_of(hf_tokenizer):
    """A tokenizer as tokenizers.Tokenizer.to_str writes it, without the padding and truncation that may have been saved with it."""
    tokenizer = tokenizers.Tokenizer.from_str(hf_tokenizer.backend_tokenizer.to_str())
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return tokenizer.to_str()


PROCESSORS = {"electra": ELECTRADataProcessor, "line_pairs": LinePairsProcessor}


def split_documents(corpus, seed):
    """lmtuners' training, validation and test corpora: .8, .1 and .1 of the documents, drawn from the seed."""
    return [replace(corpus, key=f"{corpus.key} {name} of seed {seed}", open_documents=partial(_part, corpus, seed, part))
            for part, name in enumerate(("train", "validation", "test"))]


def _part(corpus, seed, part):
    document_of_row = _document_of_row(corpus)
    n = int(document_of_row[-1]) + 1
    if n < 10:
        raise PlainError(f"{corpus.name} has {n} documents, and examples='line_pairs' divides them into ten parts: put blank lines between "
                         "documents, or say examples=electra.")
    order = np.random.default_rng(seed).permutation(n)
    documents = np.split(order, [n - 2 * (n // 10), n - n // 10])[part]
    return corpus.documents.select(np.flatnonzero(np.isin(document_of_row, documents)))


def _document_of_row(corpus):
    """The number of the document that each row of a corpus belongs to."""
    documents = corpus.documents
    if "continues" in documents.column_names:
        return np.cumsum(~documents.with_format("numpy")["continues"][:]) - 1
    return np.arange(len(documents)) // corpus.rows_per_document


def prepare_examples(corpus, hf_tokenizer, max_length, seed, cache_dir, clean=None, num_proc=None, kind="electra"):
    """The examples of a corpus, from the cache if text, vocabulary, length, cleaning, kind and seed are the same; else it is read.

    kind: 'electra' or 'line_pairs'.   clean: None cleans as electra_pytorch (D5): the 80-character filter for Wikipedia, "()" removed
    from the hub corpora, text of one's own left as it is; True or False do both or neither.   num_proc: None is one for each core.
    Raises PlainError where the first block of documents already shows that the text cannot be used.
    """
    cleaning = dict(apply_cleaning=corpus.name == "wikipedia" if clean is None else clean,
                    drop_parentheses=corpus.name in HUB_CORPORA if clean is None else clean)
    joined = corpus.rows_per_document
    made_of = (_BUILDING_VERSION, corpus.key, settings_of(hf_tokenizer), max_length, cleaning, seed, *([] if kind == "electra" else [kind]),
               *([] if joined == 1 else [joined]))
    key = xxhash.xxh3_128(repr(made_of).encode()).hexdigest()
    target = Path(cache_dir) / f"examples_{key}.arrow"
    if (finished := _finished(target)) is not None:
        return finished
    processor = PROCESSORS[kind](corpus.documents, hf_tokenizer, max_length, seed=seed, rows_per_document=joined, **cleaning)
    check_first_block(corpus.name, processor, hf_tokenizer.unk_token_id)
    with _only_maker(target):
        finished = _finished(target)  # by the process that this one waited for
        return processor.map(target, num_proc) if finished is None else finished


def open_examples(files, patience=180):
    """The examples in Arrow files that another process prepared, which may appear late in a folder that machines share.

    patience: seconds until PlainError.
    """
    end = time.monotonic() + patience
    while missing := [file for file in files if not os.path.exists(file)]:
        if time.monotonic() > end:
            raise PlainError(f"{missing[0]}, which the first process prepared, did not appear within {patience} seconds: start all "
                             "processes in a folder that their machines share.")
        time.sleep(1)
    return datasets.concatenate_datasets([datasets.Dataset.from_file(file) for file in files])


@contextlib.contextmanager
def _only_maker(target):
    """Within it no other process prepares the same examples; those that try wait. Half-written files are removed at the end."""
    target.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(target.with_suffix(".lock"))
    try:
        lock.acquire(timeout=0)
    except Timeout:
        print("Waiting for another process that prepares the same examples.")
        lock.acquire()
    try:
        yield
        Path(lock.lock_file).unlink(missing_ok=True)  # whoever waits for it finds all examples
    finally:
        for left in target.parent.glob(f"{glob.escape(target.stem)}*.unfinished"):
            left.unlink(missing_ok=True)
        lock.release()


def _finished(target):
    """The examples that an earlier run left under this name, in however many files; None if they are not complete."""
    if target.exists():
        return open_prepared(target)
    by_number = {}
    for file in sorted(target.parent.glob(f"{target.stem}_*_of_*{target.suffix}")):
        by_number.setdefault(file.stem.rsplit("_", 1)[1], []).append(file)
    for number, files in by_number.items():
        if len(files) == int(number):
            return datasets.concatenate_datasets([open_prepared(file) for file in files])
    return None


def check_first_block(name, processor, unk_id):
    """Look at the beginning of a text: PlainError if it gives no examples, loses nearly all text in long lines or is foreign to the
    vocabulary; a warning if much text is lost.
    """
    lines, n_tokens, n_unknown = [], 0, 0
    for ids in processor.tokenize(processor.rows(0)):
        lines.append(ids)
        n_tokens += len(ids or ())
        n_unknown += (ids or []).count(unk_id)
        if n_tokens > _CHECKED:
            break
    if not n_tokens:
        short = " once lines under 80 characters are dropped (clean=False keeps them)" if processor.apply_cleaning else ""
        raise PlainError(f"{name}: no text is left in its first {min(BLOCK, len(processor.hf_dset))} documents{short}.")
    used = sum(processor.tokens_used(*example) for example in processor.gather(lines, random.Random(0))) / n_tokens
    if used < .1:
        raise PlainError(f"{name}: {1 - used:.0%} of the text would be thrown away, because an example takes at most "
                         f"{processor.max_length} wordpieces of a line and the lines are far longer: put a line break after each "
                         "sentence or paragraph.")
    if used < .7:
        print(f"Warning: {name}: examples keep only {used:.0%} of the text. An example has {processor.max_length} tokens, and what is left "
              "of the line that fills it is dropped. Put a line break after each sentence to keep more.")
    unknown = n_unknown / n_tokens
    if unknown > .3:
        raise PlainError(f"{name}: {unknown:.0%} of its wordpieces are not in the vocabulary: choose one of its language, "
                         "or train one with vocab=30522.")


def text_key(examples):
    """What tells apart examples of other texts: the keys in the names of the Arrow files that hold them."""
    return sorted({Path(file["filename"]).stem.split("_")[1] for file in examples.cache_files})


def split_held_out(examples):
    """(training, held out): up to 1,024 examples or 5 % are held out, in 16 runs of neighbours spread over the corpus.

    Both parts are slices of the memory-mapped examples, in their order. A corpus too small to spare an example holds out none.
    """
    n = len(examples)
    n_held = min(HELD_OUT, int(n * HELD_OUT_SHARE))
    runs = min(_RUNS, n_held)
    train, held, end = [], [], 0
    for i in range(runs):
        size = n_held * (i + 1) // runs - n_held * i // runs
        start = n * i // runs
        train.append((end, start))
        held.append((start, start + size))
        end = start + size
    train.append((end, n))
    return _slices(examples, train), _slices(examples, held)


def _slices(examples, ranges):
    parts = [examples.select(range(start, end)) for start, end in ranges if end > start]
    return datasets.concatenate_datasets(parts) if parts else examples.select(range(0))
