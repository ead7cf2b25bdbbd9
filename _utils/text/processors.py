"""From documents to examples, as in Google's example builder."""
import copy
import itertools
import random
from array import array
from functools import partial
from pathlib import Path

import datasets
import numpy
import pyarrow
from datasets import Dataset
from fastcore.basics import chunked, num_cpus, store_attr
from transformers import PreTrainedTokenizerBase

from _utils.text.prepared_files import prepared
from _utils.text.readers import LONG, ROWS_PER_BLOCK
from _utils.text.special_tokens import templates_of, text_tokenizer
from _utils.text.vocabulary import WordCache, is_cacheable
from _utils.text.worker_pool import run_in_processes

MAX_FILES = 256        # files that the examples of a corpus are divided into; a killed run keeps the finished ones
SHORT = 80             # characters of a line; cleaning drops lines with fewer (D5)
_WRITTEN_AT_ONCE = 10_000  # examples


class ELECTRADataProcessor:
    """Turns documents into examples: `processor(documents)` and `map` build them.

    hf_dset: datasets.Dataset with the column `text_col`; None if only `processor(documents)` is used. An optional
    boolean column `continues` marks rows that belong to the same document as the previous row.
    hf_tokenizer: a fast tokenizer.   max_length: of an example, in tokens.
    lines_delimiter: separates the "sentences" of a document.   apply_cleaning: drop lines under 80 characters,
    as electra_pytorch does for Wikipedia.   drop_parentheses: remove every "()", as it does for all corpora (D5).
    seed: of the random draws.
    rows_per_document: consecutive rows that form a document, if there is no column `continues`.
    long_lines: 'truncate' drops the part of a line that does not fit into an example, as Google's code (F2); with
    'keep' it begins the next example.
    first_row: of hf_dset in its corpus, a multiple of ROWS_PER_BLOCK, if it is a part of one.
    """

    def __init__(
        self,
        hf_dset: Dataset | None,
        hf_tokenizer: PreTrainedTokenizerBase,
        max_length: int,
        text_col: str = "text",
        lines_delimiter: str = "\n",
        apply_cleaning: bool = True,
        drop_parentheses: bool = True,
        seed: int = 0,
        rows_per_document: int = 1,
        long_lines: str = "truncate",
        first_row: int = 0,
    ):
        store_attr(but="hf_tokenizer")
        self.typecode = "H" if len(hf_tokenizer) <= 1 << 16 else "i"  # of token ids, as in the module `array`
        self.tokenizer = copy.deepcopy(text_tokenizer(hf_tokenizer))
        single, pair = templates_of(self.tokenizer).values()
        as_array = partial(array, self.typecode)
        self.before, self.after = map(as_array, single.special)
        _, self.between, self.end = map(as_array, pair.special)
        self.n_single, self.n_pair = map(self.tokenizer.num_special_tokens_to_add, (False, True))
        # special tokens between the segments that belong to the first one
        self.n_first = pair.type_ids.index(1) - len(self.before) - 1 if 1 in pair.type_ids else None
        self.word_cache = WordCache(self.tokenizer, self.typecode) if is_cacheable(self.tokenizer) else None

    def __call__(self, documents, rng=None):
        """Return {'input_ids': lists of ids, 'sentA_length': lengths} of the examples of one block of documents.

        rng: draws the random numbers; None: as for block 0.
        """
        rows = ((document, False) for document in documents)
        examples = list(self.build(self.tokenize(rows), rng or self._block_rng(0)))
        return {"input_ids": [ids.tolist() for ids, _ in examples], "sentA_length": [length for _, length in examples]}

    def rows(self, block):
        """Return an iterator over (text, whether it continues the document of the row before) of a block."""
        return self._rows(block * ROWS_PER_BLOCK, ROWS_PER_BLOCK)

    def sample(self):
        """Return iterators as from `rows`, each over a tenth of a block, which begin at evenly spaced rows."""
        size, last = ROWS_PER_BLOCK // 10, len(self.hf_dset) - ROWS_PER_BLOCK // 10
        is_small = len(self.hf_dset) <= ROWS_PER_BLOCK
        starts = range(0, len(self.hf_dset), size) if is_small else (last * i // 9 for i in range(10))
        return [self._rows(start, size) for start in starts]

    def _rows(self, start, n):
        table = self.hf_dset.with_format("arrow")[start:start + n]
        continues = (table["continues"].to_pylist() if "continues" in table.column_names
                     else (row % self.rows_per_document != 0 for row in itertools.count(self.first_row + start)))
        return zip((text.as_py() or "" for text in table[self.text_col]), continues)

    def tokenize(self, rows):
        """Yield the token ids of each line as an array, and None where a document begins. rows: as from `rows`."""
        # "[MASK]" in raw text is text (F1). Set here because pickling to another process loses it.
        self.tokenizer.encode_special_tokens = True
        for text, continues in rows:
            if not continues:
                yield None
            lines = self._lines(text)
            if self.word_cache is not None:
                yield from map(self.word_cache.encode, lines)
            else:
                encodings = self.tokenizer.encode_batch_fast(lines, add_special_tokens=False)
                yield from (array(self.typecode, encoding.ids) for encoding in encodings)

    def _lines(self, text):
        """Return the cleaned lines of a text, cut to LONG characters, or with 'keep' into pieces of as many."""
        lines = text.split(self.lines_delimiter)
        if self.apply_cleaning:
            lines = [line for line in lines if len(line) >= SHORT]
        if self.drop_parentheses:
            lines = [line.replace("()", "") for line in lines]
        lines = [*filter(None, map(str.strip, lines))]
        if self.long_lines == "truncate":
            return [line[:LONG] for line in lines]
        return [line[i:i + LONG] for line in lines for i in range(0, len(line), LONG)]

    def short_share(self, texts):
        """Share of the characters of some texts that cleaning drops with lines under SHORT; 0 without cleaning."""
        if not self.apply_cleaning:
            return 0
        lengths = [len(line) for text in texts for line in text.split(self.lines_delimiter)]
        return sum(length for length in lengths if length < SHORT) / max(1, sum(lengths))

    def build(self, lines, rng):
        """Yield the examples (input_ids, sentA_length) of tokenized lines. No example crosses the end of a document.

        Lines are collected until they fill an example. The random draws are those of Google's code, in its order (F3).
        """
        pending, length, target_length = [], 0, self.max_length
        for ids in itertools.chain(lines, [None]):
            if ids is not None:
                pending.append(ids)
                length += len(ids)
            while length >= (1 if ids is None else target_length):
                first, second, rest = self._fit(*self._segments(pending, target_length, rng))
                yield self._example(first, second)
                is_short = rng.random() < .05  # so that the model sees other lengths too
                target_length = rng.randint(5, self.max_length) if is_short else self.max_length
                pending, length = ([rest], len(rest)) if self.long_lines == "keep" else ([], 0)

    def _segments(self, lines, target_length, rng):
        """Return the two segments: the first takes lines up to about half of the target length, the second the rest."""
        single_segment = rng.random() < .1  # as in tasks that classify one text
        target = 100_000 if single_segment else (target_length - self.n_pair) // 2
        first, second = array(self.typecode), array(self.typecode)
        for line in lines:
            fits = not first or len(first) + len(line) < target
            if fits or (not second and len(first) < target and rng.random() < .5):
                first += line
            else:
                second += line
        return first, second

    def _fit(self, first, second):
        """Return the parts of two segments that fit into an example, and the rest of both (F2)."""
        n_first = self.max_length - self.n_single
        n_second = max(0, self.max_length - len(first[:n_first]) - self.n_pair)
        return first[:n_first], second[:n_second], first[n_first:] + second[n_second:]

    def _example(self, first, second):
        """Return (input_ids, sentA_length) for two segments, with the special tokens of the tokenizer's template.

        sentA_length is the number of tokens in [CLS] A [SEP], or of all tokens if the template has one type of segment.
        """
        if not second:
            input_ids = self.before + first + self.after
            return input_ids, len(input_ids)
        input_ids = self.before + first + self.between + second + self.end
        return input_ids, len(input_ids) if self.n_first is None else len(self.before) + len(first) + self.n_first

    def _block_rng(self, block):
        return random.Random(f"{self.seed}, block {self.first_row // ROWS_PER_BLOCK + block}")

    def map(self, cache_file_name, num_proc=None, max_files=MAX_FILES):
        """Return the examples of the whole dataset as a datasets.Dataset.

        They do not depend on num_proc, the number of processes (None: one per core). They are written to at most
        max_files Arrow files named after `cache_file_name`, with the blocks evenly divided. Files that an earlier call
        finished are kept.
        """
        target = Path(cache_file_name)
        n_blocks = -(-len(self.hf_dset) // ROWS_PER_BLOCK)
        parts = list(chunked(range(n_blocks), -(-n_blocks // max_files)))
        files = {target.with_stem(f"{target.stem}_{i:05}_of_{len(parts):05}"): blocks for i, blocks in enumerate(parts)}
        missing = [(path, blocks) for path, blocks in files.items() if not path.exists()]
        if missing:
            run_in_processes(self._write_file, missing, min(num_proc or num_cpus(), len(missing)), "Building examples")
        return datasets.concatenate_datasets([prepared(path) for path in files])

    def _write_file(self, task):
        path, blocks = task
        prepared(path, partial(self._write_blocks, blocks))

    def _write_blocks(self, blocks, file):
        token_id = datasets.Value("uint16" if self.typecode == "H" else "int32")
        schema = datasets.Features(
            {"input_ids": datasets.List(token_id), "sentA_length": datasets.Value("int32")}
        ).arrow_schema
        with pyarrow.ipc.new_stream(file, schema) as writer:
            for block in blocks:
                examples = self.build(self.tokenize(self.rows(block)), self._block_rng(block))
                for part in chunked(examples, _WRITTEN_AT_ONCE):
                    ids, lengths = zip(*part)
                    offsets, values = numpy.cumsum([0, *map(len, ids)]), numpy.frombuffer(b"".join(ids), self.typecode)
                    lists = pyarrow.ListArray.from_arrays(offsets, values)
                    writer.write_batch(pyarrow.record_batch([lists, lengths], schema))
