"""Batches for pretraining: hugdatafast's HF_Datasets with a loader that fetches whole batches from Arrow at once."""
import signal
from functools import lru_cache, partial

import numpy as np
import torch
from fastai.data.core import DataLoaders, TfmdDL
from fastcore.basics import chunked

from _utils.errors import UserError
from _utils.text.hugdatafast_repair import HF_Datasets

# On which a run saves and stops. Windows lacks SLURM's, before the time is over, and that of a closed terminal.
STOP_SIGNALS = [getattr(signal, n) for n in ("SIGINT", "SIGTERM", "SIGUSR1", "SIGHUP") if hasattr(signal, n)]

# a run that repeats fewer examples, or repeats its examples more often, gets a warning
FEW_EXAMPLES, MANY_EPOCHS = 1_000, 100


@lru_cache(1)
def permutation(size, seed, epoch):
    """Return range(size) in an order drawn from seed and epoch."""
    order = np.arange(size, dtype=np.uint32)
    np.random.default_rng((seed, epoch)).shuffle(order)  # in place, unlike permutation
    return order


class ArrowBatchDL(TfmdDL):
    """Loader of batches (input_ids (B, L) padded, sentA_length (B,)), each fetched from Arrow in one call.

    n: number of examples to load. With shuffle=True it may exceed the size of the dataset, which is then repeated in
    another order.
    All batches have the same shape, so the device compiles and allocates only once. Batches stay in host memory; with
    pin_memory=True they can be copied to a GPU asynchronously.
    `start`: number of examples that a shuffled loader skips, because the run used them before it was resumed.
    """

    def __init__(self, dataset, max_length, seed, **kwargs):
        super().__init__(dataset, **kwargs)
        self.max_length, self.seed, self.start = max_length, seed, 0
        self.rows = dataset.hf_dset.with_format("arrow")

    def to(self, device):
        """Do nothing: batches stay in host memory."""

    def wif(self):
        """Initialize a worker: ignore Ctrl-C and other signals, which terminals and job systems send to all processes.

        The training process finishes its step, saves, and stops its workers itself.
        """
        for number in STOP_SIGNALS:
            signal.signal(number, signal.SIG_IGN)

    def get_idxs(self):
        return range(self.start, self.n)

    def create_batches(self, samps):
        return map(self.fetch, chunked(samps, self.bs))

    def batch_of_step(self, step):
        """Return the batch of a step (counted from 0)."""
        return self.fetch(range(step * self.bs, (step + 1) * self.bs))

    def fetch(self, positions):
        """Return the batch of the examples at these positions in the training order, or in the dataset if not shuffled.

        The training order is one permutation of the dataset after another.
        positions: ascending.
        """
        rows, size = np.array(positions), len(self.dataset)
        if self.shuffle:
            epochs, places = np.divmod(rows, size)
            rows = np.concatenate([
                permutation(size, self.seed, int(epoch))[places[epochs == epoch]]
                for epoch in np.unique(epochs)
            ])
        table = self.rows[rows]
        ids = table["input_ids"].combine_chunks()
        batch = np.full((len(positions), self.max_length), self.dataset.pad_idx, dtype=np.int64)
        lengths = ids.value_lengths().to_numpy()
        batch[np.arange(self.max_length) < lengths[:, None]] = ids.flatten().to_numpy()
        return torch.from_numpy(batch), torch.from_numpy(table["sentA_length"].to_numpy().astype(np.int64))


def pretraining_dataloaders(splits, hf_tokenizer, bs, steps, max_length, seed, num_workers=0, pin_memory=False):
    """Return DataLoaders on the CPU.

    The first split gives `steps` shuffled batches, each other split one ordered pass.
    splits: {name: examples}, 'train' first; empty ones are dropped.
    Raises UserError if the first split has fewer examples than a batch.
    """
    n = len(next(iter(splits.values())))
    if n < bs:
        raise UserError(f"The text is too small: it yields only {n:,} training examples of {max_length} tokens, fewer "
                        f"than a batch (bs={bs}). Add text, or lower bs or max_length.")
    data = HF_Datasets(
        {name: examples for name, examples in splits.items() if len(examples)},
        cols=["input_ids", "sentA_length"],
        hf_toker=hf_tokenizer,
        n_inp=2,
    )
    new_loader = partial(
        ArrowBatchDL, bs=bs, max_length=max_length, seed=seed, num_workers=num_workers, pin_memory=pin_memory
    )
    train, *others = data.hf_dsets.values()
    loaders = [new_loader(train, n=bs * steps, shuffle=True), *map(new_loader, others)]
    return DataLoaders(*loaders, device="cpu")


def warn_of_repetition(n_examples, bs, steps):
    """Print a warning if `steps` batches repeat few examples, or repeat them often."""
    epochs = bs * steps / n_examples
    if epochs > MANY_EPOCHS or epochs >= 2 and n_examples < FEW_EXAMPLES:
        print(f"Warning: the text yields only {n_examples:,} training examples, so each is seen about {epochs:,.0f} "
              f"times in {steps:,} steps. The model may memorize them: add text, or lower steps.")
