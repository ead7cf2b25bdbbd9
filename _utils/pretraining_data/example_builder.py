"""The example builder of the original: tokenized lines to `[CLS] A [SEP] B [SEP]` (build_pretraining_dataset.py:ExampleBuilder, F2, F3)."""
from array import array


class ExampleBuilder:
    """Collects tokenized lines into examples, with the random draws of the original in its order (F3).

    Token ids are arrays of one typecode.   max_length: of an example, in tokens.   cls, sep: arrays of one id.   rng: random.Random.
    """

    def __init__(self, max_length, cls, sep, rng):
        self.max_length, self.cls, self.sep, self.rng = max_length, cls, sep, rng
        self.target_length = max_length
        self.lines, self.length = [], 0

    def add_line(self, ids):
        """Add the tokens of one line. Returns an example if the pending lines reach the target length, else None."""
        self.lines.append(ids)
        self.length += len(ids)
        return self.flush() if self.length >= self.target_length else None

    def flush(self):
        """Return (input_ids, sentA_length) for the pending lines; sentA_length is the number of tokens in [CLS] A [SEP]."""
        first, second = self._split()
        # The line that crossed the limit is truncated and its overflow is dropped, as in the original (F2).
        first = first[:self.max_length - 2]
        second = second[:max(0, self.max_length - len(first) - 3)]
        input_ids = self.cls + first + self.sep
        sentA_length = len(input_ids)
        if second:
            input_ids += second + self.sep
        self.lines, self.length = [], 0
        is_short = self.rng.random() < .05  # so that the model sees other lengths too
        self.target_length = self.rng.randint(5, self.max_length) if is_short else self.max_length
        return input_ids, sentA_length

    def _split(self):
        """Return the two segments: the first takes lines up to about half of the target length, the second the rest."""
        single_segment = self.rng.random() < .1  # as in tasks that classify one text
        target = 100_000 if single_segment else (self.target_length - 3) // 2
        first, second = array(self.cls.typecode), array(self.cls.typecode)
        for line in self.lines:
            fits = not first or len(first) + len(line) < target
            if fits or (not second and len(first) < target and self.rng.random() < .5):
                first += line
            else:
                second += line
        return first, second
