"""Batches: their shape, the order of the training examples, the held-out part, and worker processes."""
import multiprocessing
import random

import numpy as np
import pytest
import torch
from datasets import Dataset
from fastai.data.load import _FakeLoader

from _utils.text.batches import pretraining_dataloaders
from _utils.text.examples import split_held_out


def dataloaders(tokenizer, n=100, bs=8, steps=30, num_workers=0, seed=3):
    rng = random.Random(1)
    rows = [[2, *(rng.randrange(5, 200) for _ in range(rng.randint(1, 28))), 3] for _ in range(n)]
    examples = Dataset.from_dict({"input_ids": rows, "sentA_length": [len(row) for row in rows]})
    train, held_out = split_held_out(examples)
    splits = {"train": train, "held_out": held_out}
    return pretraining_dataloaders(splits, tokenizer, bs, steps, 32, seed, num_workers), train, held_out


def rows_of(batches):
    """Check the shape of pretraining batches and return their examples without padding."""
    assert all(ids.shape == (8, 32) and lengths.shape == (8,) for ids, lengths in batches)
    assert all(int(length) == int((row != 0).sum()) for ids, lengths in batches for row, length in zip(ids, lengths))
    return [row[row != 0].tolist() for ids, _ in batches for row in ids]


def test_batches_contain_every_example_once_per_epoch_in_the_order_of_numpy_permutations(small_tokenizer):
    dls, train, held_out = dataloaders(small_tokenizer)
    found, examples = rows_of(list(dls.train)), train.with_format(None)["input_ids"][:]
    assert len(dls.train) == 30 and len(found) == 240
    sizes = [len(ids) for ids, _ in dls.valid]
    assert len(dls.valid) == len(sizes) and sum(sizes) == len(held_out) == 5
    order = np.concatenate([np.random.default_rng((3, epoch)).permutation(len(train)) for epoch in range(3)])[:240]
    assert found == [examples[i] for i in order]
    assert found != rows_of(list(dataloaders(small_tokenizer, seed=4)[0].train))
    dls.train.start = 152  # as in a resumed run
    assert rows_of(list(dls.train)) == found[152:] and rows_of([dls.train.batch_of_step(19)]) == found[152:160]


@pytest.mark.parametrize("n, held", [(0, 0), (10, 0), (20, 1), (1000, 50), (100_000, 1024)])
def test_held_out_examples_are_consecutive_runs_and_not_in_the_training_part(n, held):
    examples = Dataset.from_dict({"id": list(range(n))})
    train, held_out = split_held_out(examples)
    assert len(held_out) == held and sorted(train["id"][:] + held_out["id"][:]) == list(range(n))
    assert len(np.flatnonzero(np.diff(held_out["id"][:]) != 1)) <= 15


@pytest.mark.parametrize("method, workers", [("fork", 2), ("forkserver", 1)])
def test_workers_of_pretraining_prepare_the_same_batches(small_tokenizer, tmp_path, monkeypatch, method, workers):
    """fork is the default on Linux before Python 3.14."""
    context = multiprocessing.get_context(method)
    monkeypatch.setattr(_FakeLoader, "multiprocessing_context",
                        property(lambda self: context if self.num_workers else None))
    rows = [{"input_ids": [2, *range(5, 6 + i % 20), 3], "sentA_length": 3 + i % 7} for i in range(40)]
    Dataset.from_list(rows).save_to_disk(tmp_path)
    splits, found = {"train": Dataset.load_from_disk(tmp_path)}, []
    for n in (workers, 0):
        loader = pretraining_dataloaders(splits, small_tokenizer, 8, 7, 24, seed=3, num_workers=n).train
        loader.start = 16
        found.append(list(loader))
    assert len(found[0]) > 3
    torch.testing.assert_close(*found, atol=0, rtol=0)
