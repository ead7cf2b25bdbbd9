"""Streamed texts of the Hugging Face hub, in parts: text that does not fit on the disk."""
import itertools
import json
import math
from functools import partial

import datasets
import pyarrow
from pyarrow.compute import cumulative_sum, fill_null, utf8_length

from _utils.errors import UserError
from _utils.files import write_atomically, write_text_atomically
from _utils.hub import open_builder
from _utils.progress import Progress
from _utils.text.hub_texts import loading
from _utils.text.prepared_files import prepared
from _utils.text.readers import ROWS_PER_BLOCK

CHARACTERS_PER_PART = 1 << 28  # at least
_BATCH = 100    # rows that are read at once
_BEGINNING = {"rows": 0, "characters": 0, "state": None, "is_last": False}  # the record of the part before the first
_SCHEMA = datasets.Features({"text": datasets.Value("large_string")}).arrow_schema


class StreamedCorpus:
    """A HubText at a commit, which is read in parts of at least CHARACTERS_PER_PART characters while it is used.

    name, key: as of a Corpus.   stream: value of the key `stream`.
    A part is a file of documents, which is deleted when the next one is needed, and a record of where it ends in the
    stream, which remains: {"rows", "characters", "state", "is_last", "datasets"}. Rows and characters are counts up to
    there, and the state is that of the stream of this version of `datasets`, or None. Memory does not depend on the
    size of the text.
    """
    is_streamed = True

    def __init__(self, name, key, text, commit, stream, cache_dir):
        self.name, self.key, self.text, self.commit = name, key, text, commit
        self.max_rows = math.inf if stream is True or isinstance(stream, str) else stream
        self.max_characters = int(float(stream.split()[0])) if isinstance(stream, str) else math.inf
        self.path = cache_dir / f"documents_{key}.arrow"
        self.batches, self.next_part = None, None  # of the stream, if it is open, and the part that it is at

    def first_part(self):
        """The documents of the first part. The stream stays open for the next one."""
        return self._documents(0, _BEGINNING)

    def parts(self, skip=0):
        """Yield (first row in the stream, documents) of each part, without the first `skip` ones."""
        end = _BEGINNING
        try:
            for number in itertools.count():
                path, record = self._files(number)
                documents = None if number < skip and record.exists() else self._documents(number, end)
                if number >= skip:
                    yield end["rows"], documents
                path.unlink(missing_ok=True)
                end = json.loads(record.read_text())
                if end["is_last"]:
                    return
        finally:
            self.batches, self.next_part = None, None  # closes the stream

    def _documents(self, number, end):
        """The documents of a part, a memory-mapped datasets.Dataset. end: record of the part before."""
        path, record = self._files(number)
        if not (path.exists() and record.exists()):
            if self.next_part != number:
                self.batches = self._read(end)
            write_atomically(path, partial(self._write, end["characters"] + CHARACTERS_PER_PART, record))
            self.next_part = number + 1
        return prepared(path)

    def _files(self, number):
        path = self.path.with_stem(f"{self.path.stem}_{number:05}")
        return path, path.with_suffix(".json")

    def _write(self, ends_at, record, file):
        """Write the documents up to `ends_at` characters of the stream to a file, and the record of their end."""
        end = {"characters": 0}
        with pyarrow.ipc.new_stream(file, _SCHEMA) as writer:
            for texts, end in self.batches:
                writer.write_batch(pyarrow.record_batch([texts], _SCHEMA))
                if end["is_last"] or end["characters"] >= ends_at and end["rows"] % ROWS_PER_BLOCK == 0:
                    break
        if not end["characters"]:
            raise UserError(f"Invalid value for datas: {self.name!r}. There is no text in it.")
        write_text_atomically(record, json.dumps(end))

    def _read(self, end):
        """Yield (texts, the record of a part that would end behind them) from the end of a part on, up to the limit."""
        count, unit = ("rows", "documents") if self.max_characters == math.inf else ("characters", "characters")
        total = min(self.max_rows, self.max_characters)  # one of them, or neither, is a limit
        bar = Progress(desc=f"Streaming {self.name}", total=None if total == math.inf else total, initial=end[count],
                       unit=unit, smoothing=0)
        with bar:
            for (texts, state), following in itertools.pairwise(itertools.chain(self._batches(end), [None])):
                texts = texts[:min(len(texts), self.max_rows - end["rows"])]
                n_characters = end["characters"] + cumulative_sum(utf8_length(texts)).to_numpy()
                texts = texts[:1 + int((n_characters < self.max_characters).sum())]  # the last one may exceed it
                rows, characters = end["rows"] + len(texts), int(n_characters[len(texts) - 1])
                is_last = following is None or rows >= self.max_rows or characters >= self.max_characters
                end = {"rows": rows, "characters": characters, "state": state, "is_last": is_last,
                       "datasets": datasets.__version__}
                bar.set_postfix_str(f"{rows:,} documents, {characters / 1e6:,.0f} million characters", refresh=False)
                bar.update(end[count] - bar.n)
                yield texts, end

    def _batches(self, end):
        """Yield (texts, state of the stream behind them) from the end of a part on, without a limit.

        A file of the hub is read from its beginning, up to there without using it. Without the state at that end, or
        with that of another version of `datasets`, all files are; such a stream has no state that a later one can use.
        """
        text = self.text
        with loading(self.name, text.path):
            builder = open_builder(text.path, text.config, self.commit)
            stream = builder.as_streaming_dataset(split=text.split)
            stream = stream.select_columns(text.column).with_format("arrow")
            state_of = stream.state_dict
            if end["state"] and end["datasets"] == datasets.__version__:
                stream.load_state_dict(end["state"])
            elif end["rows"]:
                stream, state_of = stream.skip(end["rows"]), lambda: None
            for table in stream.iter(_BATCH):
                texts = table[text.column].combine_chunks().cast(pyarrow.large_string())
                yield fill_null(texts, ""), state_of()
