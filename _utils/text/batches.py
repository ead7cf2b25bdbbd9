"""Batches for pretraining: hugdatafast's HF_Datasets with a loader that fetches whole batches from Arrow at once."""
import itertools
import signal

import numpy as np
import torch
from fastai.data.core import TfmdDL

from _utils.errors import PlainError
from _utils.text.hugdatafast_repair import HF_Datasets

_BLOCK = 10_000  # indices converted to Python integers at once; these need ten times the memory of an array
FEW_EXAMPLES, MANY_EPOCHS = 1_000, 100  # a run that repeats fewer examples, or repeats its examples more often, gets a warning


class EndlessPermutations:
    """Iterates over n indices in range(size): one permutation after another, each drawn from seed and epoch.

    start: number of indices to skip, because the run used them before it was resumed.
    """

    def __init__(self, size, n, seed, start=0):
        self.size, self.n, self.seed, self.start = size, n, seed, start

    def __len__(self):
        return self.n - self.start

    def __iter__(self):
        return itertools.islice(self._from_start(), len(self))

    def _from_start(self):
        epoch, skipped = divmod(self.start, self.size)
        while True:
            order = np.arange(self.size, dtype=np.uint32 if self.size <= 1 << 32 else np.int64)
            np.random.default_rng((self.seed, epoch)).shuffle(order)
            for first in range(skipped, self.size, _BLOCK):
                yield from order[first:first + _BLOCK].tolist()
            epoch, skipped = epoch + 1, 0


class ArrowBatchDL(TfmdDL):
    """Loader of batches (input_ids (B, L) padded, sentA_length (B,)), each fetched from Arrow in one call.

    n: number of examples to load. With shuffle=True it may exceed the size of the dataset, which is then repeated in another order.
    All batches have the same shape, so the device compiles and allocates only once. Batches stay in host memory; with pin_memory=True
    they can be copied to a GPU asynchronously.
    `start`: number of examples that a shuffled loader skips.
    """

    def __init__(self, dataset, bs=64, shuffle=False, max_length=128, seed=0, **kwargs):
        super().__init__(dataset, bs=bs, shuffle=shuffle, **kwargs)
        self.max_length, self.seed, self.start = max_length, seed, 0
        self.rows = dataset.hf_dset.with_format("arrow")

    def to(self, device):
        """Do nothing: batches stay in host memory."""

    def wif(self):
        """Initialize a worker: ignore Ctrl-C and SIGTERM, which job systems send to all processes.

        The training process finishes its step, saves, and stops its workers itself.
        """
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)

    def get_idxs(self):
        return EndlessPermutations(len(self.dataset), self.n, self.seed, self.start) if self.shuffle else range(self.n)

    def create_batches(self, samps):
        while idxs := list(itertools.islice(samps, self.bs)):
            yield self.fetch(idxs)

    def batch_of_step(self, step):
        """Return the batch of a step (counted from 0) of a shuffled loader."""
        return self.fetch(list(itertools.islice(EndlessPermutations(len(self.dataset), self.n, self.seed, step * self.bs), self.bs)))

    def fetch(self, idxs):
        """Return the batch of the examples with these indices."""
        table = self.rows[idxs]
        ids = table["input_ids"].combine_chunks()
        batch = np.full((len(idxs), self.max_length), self.dataset.pad_idx, dtype=np.int64)
        lengths = np.diff(ids.offsets.to_numpy())
        batch[np.arange(self.max_length) < lengths[:, None]] = ids.flatten().to_numpy()
        return torch.from_numpy(batch), torch.from_numpy(table["sentA_length"].to_numpy().astype(np.int64))

    def new(self, dataset=None, cls=None, **kwargs):
        return super().new(dataset, cls, **{"max_length": self.max_length, "seed": self.seed, **kwargs})


class PretrainingDatasets(HF_Datasets):
    """HF_Datasets that use ArrowBatchDL as their loader."""
    _dl_type = ArrowBatchDL


def pretraining_dataloaders(splits, hf_tokenizer, bs, steps, max_length, seed, num_workers=0, pin_memory=False):
    """Return DataLoaders with `steps` shuffled batches of the first split, and one ordered pass over each other split, on the CPU.

    splits: {name: examples}, 'train' first; empty ones are dropped.
    Raises PlainError if the first split has fewer examples than a batch, and warns if training repeats too few examples too often.
    """
    _check_size(len(next(iter(splits.values()))), bs, steps, max_length)
    data = PretrainingDatasets({name: examples for name, examples in splits.items() if len(examples)}, cols=["input_ids", "sentA_length"],
                               hf_toker=hf_tokenizer, n_inp=2)
    return data.dataloaders(bs=bs, n=bs * steps, max_length=max_length, seed=seed, num_workers=num_workers,
                            pin_memory=pin_memory, device="cpu")


def _check_size(n, bs, steps, max_length):
    if n < bs:
        raise PlainError(f"The text is too small: it yields only {n:,} training examples of {max_length} tokens, fewer than a batch "
                         f"(bs={bs}). Add text, or lower bs or max_length.")
    epochs = bs * steps / n
    if epochs > MANY_EPOCHS or epochs > 1 and n < FEW_EXAMPLES:
        print(f"Warning: the text yields only {n:,} training examples of {max_length} tokens, so each is seen about {epochs:,.0f} times "
              f"in {steps:,} steps. The model may memorize them: add text, or lower steps.")
