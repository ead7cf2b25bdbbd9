"""The example builder of the original: lines of tokens in, `[CLS] A [SEP] B [SEP]` out (build_pretraining_dataset.py, F2, F3)."""


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
