"""Batches for pretraining: hugdatafast's HF_Datasets with a loader that fetches whole batches from Arrow at once."""
import itertools
import signal

import numpy as np
import torch
from fastai.data.core import TfmdDL

from _utils.errors import PlainError
from _utils.pretraining_data.hugdatafast_repair import HF_Datasets

_BLOCK = 10_000  # indices turned into Python integers at once; these need ten times the memory of an array


class EndlessPermutations:
    """Iterates over `n` indices out of range(size): permutations of it one after another, each drawn from seed and epoch.

    start: how many of the n are left out, because an earlier process had them.
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
    """Loader of batches (input_ids (bs, max_length) padded, sentA_length (bs,)), each fetched from Arrow in one call.

    n: examples to give in all; with shuffle=True they may be more than the dataset has, which is then gone through again in
    another order. Every batch has the same shape, so nothing on the device is compiled or allocated twice. Batches stay in the
    host's memory; pin_memory=True lets who takes them send them to a GPU without waiting. `start`: how many of a shuffled loader's
    examples are left out.
    """

    def __init__(self, dataset, bs=64, shuffle=False, max_length=128, seed=0, **kwargs):
        super().__init__(dataset, bs=bs, shuffle=shuffle, **kwargs)
        self.max_length, self.seed, self.start = max_length, seed, 0
        self.rows = dataset.hf_dset.with_format("arrow")

    def to(self, device):
        """Nothing: batches stay where they are."""

    def wif(self):
        """In a worker, when it starts: leave Ctrl-C and SIGTERM, which job systems send to all processes, to the training process.

        It finishes its step, saves, and ends its workers itself.
        """
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)

    def get_idxs(self):
        return EndlessPermutations(len(self.dataset), self.n, self.seed, self.start) if self.shuffle else range(self.n)

    def create_batches(self, samps):
        while idxs := list(itertools.islice(samps, self.bs)):
            yield self.fetch(idxs)

    def batch_of_step(self, step):
        """The batch of a step, counted from 0, of a shuffled loader."""
        return self.fetch(list(itertools.islice(EndlessPermutations(len(self.dataset), self.n, self.seed, step * self.bs), self.bs)))

    def fetch(self, idxs):
        """The batch of these examples."""
        table = self.rows[idxs]
        ids = table["input_ids"].combine_chunks()
        batch = np.full((len(idxs), self.max_length), self.dataset.pad_idx, dtype=np.int64)
        lengths = np.diff(ids.offsets.to_numpy())
        batch[np.arange(self.max_length) < lengths[:, None]] = ids.flatten().to_numpy()
        return torch.from_numpy(batch), torch.from_numpy(table["sentA_length"].to_numpy().astype(np.int64))

    def new(self, dataset=None, cls=None, **kwargs):
        return super().new(dataset, cls, **{"max_length": self.max_length, "seed": self.seed, **kwargs})


class PretrainingDatasets(HF_Datasets):
    """HF_Datasets whose loaders are ArrowBatchDL."""
    _dl_type = ArrowBatchDL


def pretraining_dataloaders(splits, hf_tokenizer, bs, steps, max_length, seed, num_workers=0, pin_memory=False):
    """DataLoaders of `steps` shuffled batches of the first split and of the others in order, on the CPU.

    splits: {name: examples}, 'train' first; one without examples is left out.   Raises PlainError for fewer than a batch of the first.
    """
    n = len(next(iter(splits.values())))
    if n < bs:
        raise PlainError(f"the text makes only {n:,} examples of {max_length} wordpieces to train on, fewer than a batch (bs={bs}): "
                         "give more text, or lower bs or max_length.")
    data = PretrainingDatasets({name: examples for name, examples in splits.items() if len(examples)}, cols=["input_ids", "sentA_length"],
                               hf_toker=hf_tokenizer, n_inp=2)
    return data.dataloaders(bs=bs, n=bs * steps, max_length=max_length, seed=seed, num_workers=num_workers,
                            pin_memory=pin_memory, device="cpu")
