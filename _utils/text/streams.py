"""Streamed texts of the Hugging Face hub, in parts: text that does not fit on the disk."""
import itertools
import json
import math

import datasets
import pyarrow
import pyarrow.compute

from _utils.errors import UserError
from _utils.files import write_text_atomically
from _utils.hub import open_builder
from _utils.progress import Progress
from _utils.text.hub_texts import loading
from _utils.text.prepared_files import prepared
from _utils.text.readers import BLOCK_ROWS

PART = 1 << 28  # characters of a part of a stream, at least
_BATCH = 100    # rows that are read at once
_SCHEMA = datasets.Features({"text": datasets.Value("large_string")}).arrow_schema


def limits_of(stream):
    """(documents, characters) at most, of a value of the key `stream`."""
    if isinstance(stream, str):
        return math.inf, int(float(stream.split()[0]))
    return (math.inf if stream is True else stream), math.inf


class StreamedParts:
    """The documents of a HubText in parts of at least PART characters, each read from the hub when it is needed.

    A part is a file of documents, which may be deleted, and a record of where it ends in the stream, from which the
    next one is read. Memory does not depend on the size of the text.
    key: of the corpus.   stream: value of the key `stream`.
    """

    def __init__(self, source, text, commit, key, stream, cache_dir):
        self.source, self.text, self.commit = source, text, commit
        self.bar, self.next_part, self.batches = None, None, iter(())  # of the stream, if it is open
        self.max_rows, self.max_characters = limits_of(stream)
        self.path = cache_dir / f"documents_{key}.arrow"

    def documents(self, number):
        """The documents of a part, a memory-mapped datasets.Dataset. The parts before it must have been read once."""
        path, record = self._file(number), self._record_file(number)
        if not record.exists():
            path.unlink(missing_ok=True)  # of a process that was killed between the two
        return prepared(path, lambda file: self._write(number, file))

    def is_read(self, number):
        """Whether it is known where a part ends."""
        return self._record_file(number).exists()

    def is_last(self, number):
        return self._end_of(number)["is_last"]

    def first_row(self, number):
        """The row of the stream with which a part begins."""
        return self._end_of(number - 1)["rows"]

    def delete(self, number):
        """Delete the documents of a part."""
        self._file(number).unlink(missing_ok=True)

    def close(self):
        """Close the stream and remove the progress bar."""
        self.next_part, self.batches = None, iter(())
        if self.bar is not None:
            self.bar.close()

    def _file(self, number):
        return self.path.with_stem(f"{self.path.stem}_{number:05}")

    def _record_file(self, number):
        return self._file(number).with_suffix(".json")

    def _end_of(self, number):
        """{"rows", "characters", "state", "is_last"} at the end of a part.

        rows, characters: counts up to there.   state: of the stream there, or None.
        """
        if number < 0:
            return {"rows": 0, "characters": 0, "state": None, "is_last": False}
        return json.loads(self._record_file(number).read_text())

    def _write(self, number, file):
        """Write the documents of a part to a file, and the record of its end."""
        end = self._end_of(number - 1)
        part_ends_at = end["characters"] + PART
        self._show(end)
        if self.next_part != number:  # else the stream is open at its beginning
            self.batches = self._read(end)
        with pyarrow.ipc.new_stream(file, _SCHEMA) as writer:
            for texts, state in self.batches:
                if end["characters"] >= part_ends_at and end["rows"] % BLOCK_ROWS == 0:
                    self.next_part, self.batches = number + 1, itertools.chain([(texts, state)], self.batches)
                    break
                texts = self._up_to_limit(texts, end)
                writer.write_batch(pyarrow.record_batch([texts], _SCHEMA))
                end["rows"] += len(texts)
                end["characters"] += pyarrow.compute.sum(pyarrow.compute.utf8_length(texts)).as_py() or 0
                end["state"] = state
                self._show(end)
                if end["rows"] >= self.max_rows or end["characters"] >= self.max_characters:
                    end["is_last"] = True
                    break
            else:
                end["is_last"] = True
        if not end["characters"]:
            raise UserError(f"Invalid value for datas: {self.source!r}. There is no text in it.")
        write_text_atomically(self._record_file(number), json.dumps(end | {"datasets": datasets.__version__}))

    def _read(self, end):
        """Yield (texts, state of the stream behind them) from the end of a part on.

        A file of the hub is read from its beginning, up to there without using it. Without the state at that end, or
        with that of another version of `datasets`, all files are; such a stream has no state that a later one can use.
        """
        text = self.text
        with loading(self.source, text.path):
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
                yield pyarrow.compute.fill_null(texts, ""), state_of()

    def _up_to_limit(self, texts, end):
        """Those of the next texts that are wanted; the last one may exceed the number of characters."""
        texts = texts[:min(len(texts), self.max_rows - end["rows"])]
        if self.max_characters == math.inf:
            return texts
        n_characters = pyarrow.compute.cumulative_sum(pyarrow.compute.utf8_length(texts)).to_numpy()
        n_before_limit = int((n_characters < self.max_characters - end["characters"]).sum())
        return texts[:n_before_limit + 1]

    def _show(self, end):
        """Show the progress of the whole stream."""
        documents, characters = f"{end['rows']:,} documents", f"{end['characters'] / 1e6:,.0f} million characters"
        if self.max_characters < math.inf:
            n, total, unit, detail = end["characters"], self.max_characters, "characters", documents
        else:
            n, total, unit, detail = end["rows"], self.max_rows, "documents", characters
        if self.bar is None:
            total = None if total == math.inf else total
            self.bar = Progress(desc=f"Streaming {self.source}", total=total, initial=n, unit=unit, smoothing=0)
        self.bar.set_postfix_str(detail, refresh=False)
        self.bar.update(n - self.bar.n)
