"""From documents to examples: the example builder of the original, run over blocks of documents by several processes.

An example is `[CLS] A [SEP] B [SEP]`, cut to the length of the model (build_pretraining_dataset.py:ExampleBuilder, F1-F5).
"""
import contextlib
import gc
import os
import random
import shutil
import time
from functools import partial
from pathlib import Path

import datasets
import numpy as np
import tokenizers
import xxhash

from _utils.checkpoints import unfinished_name
from _utils.errors import PlainError
from _utils.text_sources import HUB_CORPORA, Corpus, open_prepared, seal_of

# Examples do not depend on the number of processes: each block of documents has random numbers of its own.
BLOCK = 1000
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


class ExampleBuilder:
    """Gathers tokenised lines into examples, with the original's order of random draws (F2, F3)."""

    def __init__(self, max_length, cls_id, sep_id, rng):
        self.max_length, self.cls_id, self.sep_id, self.rng = max_length, cls_id, sep_id, rng
        self.target_length = max_length
        self.lines, self.length = [], 0

    def add_line(self, ids):
        """Take the wordpieces of one line; return an example if they reach the target length, else None."""
        self.lines.append(ids)
        self.length += len(ids)
        return self.flush() if self.length >= self.target_length else None

    def flush(self):
        """(input_ids, sentA_length) of the pending lines; sentA_length counts [CLS] A [SEP]."""
        first, second = self._split()
        # The line that crossed the limit is cut here and what overflows is lost, as in the original (F2).
        first = first[:self.max_length - 2]
        second = second[:max(0, self.max_length - len(first) - 3)]
        input_ids = [self.cls_id, *first, self.sep_id]
        sentA_length = len(input_ids)
        if second:
            input_ids += [*second, self.sep_id]
        self.lines, self.length = [], 0
        short = self.rng.random() < .05  # so that the model sees other lengths too
        self.target_length = self.rng.randint(5, self.max_length) if short else self.max_length
        return input_ids, sentA_length

    def _split(self):
        """The two segments: the first gets lines up to about half of the target, the second all that follow."""
        single_segment = self.rng.random() < .1  # as in tasks that classify one text
        target = 100_000 if single_segment else (self.target_length - 3) // 2
        first, second = [], []
        for line in self.lines:
            fits = not first or len(first) + len(line) < target
            if fits or (not second and len(first) < target and self.rng.random() < .5):
                first += line
            else:
                second += line
        return first, second


class ELECTRADataProcessor:
    """Documents in, examples out; `processor(documents)` gives {'input_ids': lists of ids, 'sentA_length': lengths}.

    hf_dset: datasets.Dataset with the column `text_col`, or None where only single blocks are processed.
    hf_tokenizer: a fast WordPiece tokenizer.   max_length: of an example, in wordpieces.
    lines_delimiter: what divides the "sentences" of a document.   apply_cleaning: drop lines under 80 characters,
    as electra_pytorch does for Wikipedia, and drop_parentheses: remove each "()", as it does everywhere (D5).
    seed: of the random draws; a random.Random is drawn from directly.
    """

    def __init__(self, hf_dset, hf_tokenizer, max_length, text_col="text", lines_delimiter="\n", apply_cleaning=True,
                 drop_parentheses=True, seed=0):
        self.hf_dset, self.text_col, self.lines_delimiter = hf_dset, text_col, lines_delimiter
        self.max_length, self.apply_cleaning, self.seed = max_length, apply_cleaning, seed
        self.drop_parentheses = drop_parentheses
        self.cls_id, self.sep_id = hf_tokenizer.cls_token_id, hf_tokenizer.sep_token_id
        self.vocab_size = len(hf_tokenizer)
        self.tokenizer = tokenizers.Tokenizer.from_str(hf_tokenizer.backend_tokenizer.to_str())
        if isinstance(self.tokenizer.model, tokenizers.models.WordPiece):
            self.tokenizer.model.max_input_chars_per_word = 200  # as the original; the library's own is 100 (F1)

    def __call__(self, documents, rng=None):
        """Examples of one block of documents, drawn from `rng` (default: the random numbers of block 0)."""
        builder = ExampleBuilder(self.max_length, self.cls_id, self.sep_id, rng or self._block_rng(0))
        examples = []
        for lines in self._tokenize(documents):
            examples += [example for line in lines if (example := builder.add_line(line))]
            if builder.length:  # examples never reach over the end of a document
                examples.append(builder.flush())
        return {"input_ids": [ids for ids, _ in examples], "sentA_length": [length for _, length in examples]}

    def _block_rng(self, block):
        return self.seed if isinstance(self.seed, random.Random) else random.Random(f"{self.seed}, block {block}")

    def _lines(self, document):
        """The lines of a document that go into examples."""
        if self.drop_parentheses:
            document = document.replace("()", "")
        lines = (line.strip() for line in document.split(self.lines_delimiter))
        return [line for line in lines if line and not (self.apply_cleaning and len(line) < 80)]

    def _tokenize(self, documents):
        """Per document the wordpieces of each line, through the fast tokenizer in one batch."""
        # As the original: "[MASK]" in raw text is text (F1). Set here because it is lost on the way to another process.
        self.tokenizer.encode_special_tokens = True
        lines = [self._lines(document) for document in documents]
        flat = [line for of_document in lines for line in of_document]
        ids = (encoding.ids for encoding in self.tokenizer.encode_batch_fast(flat, add_special_tokens=False))
        return [[next(ids) for _ in of_document] for of_document in lines]

    def _process_block(self, block):
        documents = self.hf_dset[block * BLOCK:(block + 1) * BLOCK][self.text_col]
        with no_search_for_cycles():
            return self(documents, self._block_rng(block))

    def map(self, cache_file_name, num_proc=None):
        """Examples of the whole dataset as a datasets.Dataset in `cache_file_name`, the same for any number of processes."""
        n_blocks = -(-len(self.hf_dset) // BLOCK)
        n_processes = min(num_proc or 1, n_blocks)
        word = datasets.Value("uint16" if self.vocab_size <= 1 << 16 else "int32")
        features = datasets.Features({"input_ids": datasets.List(word), "sentA_length": datasets.Value("int32")})
        return datasets.Dataset.from_dict({"block": range(n_blocks)}).map(
            lambda rows: self._process_block(rows["block"][0]), batched=True, batch_size=1, remove_columns="block",
            features=features, cache_file_name=str(cache_file_name), writer_batch_size=BLOCK, load_from_cache_file=True,
            new_fingerprint=Path(cache_file_name).stem, num_proc=n_processes if n_processes > 1 else None,
            desc=f"Building examples (blocks of {BLOCK:,} documents)")


class LinePairsProcessor(ELECTRADataProcessor):
    """lmtuners' examples (FACTS 11): two lines of one document, each of at most half the length; `[CLS] A [SEP] B [SEP]`.

    Every line is A once, its B is drawn from the other lines; a document of one line gives one segment.
    """

    def __call__(self, documents, rng=None):
        rng, longest = rng or self._block_rng(0), self.max_length // 2 - 2
        examples = {"input_ids": [], "sentA_length": []}
        for lines in self._tokenize(documents):
            for i, line in enumerate(lines):
                first = [self.cls_id, *line[:longest], self.sep_id]
                other = rng.randrange(len(lines) - 1) if len(lines) > 1 else None
                second = [] if other is None else [*lines[other + (other >= i)][:longest], self.sep_id]
                examples["input_ids"].append(first + second)
                examples["sentA_length"].append(len(first))
        return examples


PROCESSORS = {"electra": ELECTRADataProcessor, "line_pairs": LinePairsProcessor}


def split_documents(corpus, seed):
    """lmtuners' training, validation and test corpora: .8, .1 and .1 of the documents, drawn from the seed."""
    return [Corpus(corpus.name, f"{corpus.key} {name} of seed {seed}", partial(_part, corpus, seed, part))
            for part, name in enumerate(("train", "validation", "test"))]


def _part(corpus, seed, part):
    n = len(corpus.documents)
    if n < 10:
        raise PlainError(f"{corpus.name} has {n} documents, and examples='line_pairs' divides them into ten parts: put blank lines between "
                         "documents, or say examples=electra.")
    order = np.random.default_rng(seed).permutation(n)
    indices = np.split(order, [n - 2 * (n // 10), n - n // 10])[part]
    return corpus.documents.select(np.sort(indices))


def prepare_examples(corpus, hf_tokenizer, max_length, seed, cache_dir, clean=None, num_proc=None, kind="electra"):
    """The examples of a corpus, from the cache if text, vocabulary, length, cleaning, kind and seed are the same; else it is read.

    kind: 'electra' or 'line_pairs'.   clean: None cleans as electra_pytorch (D5): the 80-character filter for Wikipedia, "()" removed
    from the hub corpora, text of one's own left as it is; True or False do both or neither.
    Raises PlainError where the first block of documents already shows that the text cannot be used.
    """
    cleaning = dict(apply_cleaning=corpus.name == "wikipedia" if clean is None else clean,
                    drop_parentheses=corpus.name in HUB_CORPORA if clean is None else clean)
    vocabulary = hf_tokenizer.backend_tokenizer.to_str()
    made_of = (_BUILDING_VERSION, corpus.key, vocabulary, max_length, cleaning, seed, *([] if kind == "electra" else [kind]))
    key = xxhash.xxh3_128(repr(made_of).encode()).hexdigest()
    target = Path(cache_dir) / f"examples_{key}.arrow"
    finished = _finished(target)
    if finished is None:
        processor = PROCESSORS[kind](corpus.documents, hf_tokenizer, max_length, seed=seed, **cleaning)
        check_first_block(corpus, processor, hf_tokenizer.unk_token_id)
        _make(processor, target, num_proc)
        finished = _finished(target)
    return finished


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


def _make(processor, target, num_proc):
    """Let a processor write its examples; the files appear beside `target` when all are complete."""
    folder = unfinished_name(target)  # its own, so that nothing of a killed process stays
    folder.mkdir(parents=True)
    try:
        processor.map(folder / target.name, num_proc)
        for file in folder.glob("*.arrow"):
            seal_of(target.with_name(file.name)).unlink(missing_ok=True)  # of a damaged file that was deleted
            os.replace(file, target.with_name(file.name))
    finally:
        shutil.rmtree(folder)


def _finished(target):
    """The examples that an earlier run left under this name, by however many processes; None if they are not complete."""
    if target.exists():
        return open_prepared(target)
    shards = sorted(target.parent.glob(f"{target.stem}_*_of_*{target.suffix}"))
    by_run = {}
    for shard in shards:
        by_run.setdefault(shard.stem.rsplit("_", 1)[1], []).append(shard)
    for n_processes, files in by_run.items():
        if len(files) == int(n_processes):
            return datasets.concatenate_datasets([open_prepared(file) for file in files])
    return None


def check_first_block(corpus, processor, unk_id):
    """PlainError if the first documents give no examples, lose nearly all text in long lines or are foreign to the vocabulary."""
    documents = corpus.documents[:BLOCK]["text"]
    pieces = [piece for document in processor._tokenize(documents) for line in document for piece in line]
    if not pieces:
        short = " once lines under 80 characters are dropped (clean=False keeps them)" if processor.apply_cleaning else ""
        raise PlainError(f"{corpus.name}: no text is left in its first {len(documents)} documents{short}.")
    used = sum(map(len, processor(documents)["input_ids"])) / len(pieces)
    if used < .1:
        raise PlainError(f"{corpus.name}: {1 - used:.0%} of the text would be thrown away, because an example takes at most "
                         f"{processor.max_length} wordpieces of a line and the lines are far longer: put a line break after each "
                         "sentence or paragraph.")
    unknown = np.mean(np.array(pieces) == unk_id)
    if unknown > .3:
        raise PlainError(f"{corpus.name}: {unknown:.0%} of its wordpieces are not in the vocabulary: choose one of its language, "
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
