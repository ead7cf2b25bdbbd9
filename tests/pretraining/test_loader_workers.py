"""Worker processes prepare the same batches as the main process, however they are started."""
import multiprocessing

import pytest
import torch
from datasets import Dataset
from fastai.data.load import _FakeLoader

from _utils.glue.batches import EncodedRows, finetuning_dataloaders
from _utils.text.batches import pretraining_dataloaders


@pytest.fixture(params=["forkserver", "spawn"])
def start_method(request, monkeypatch):
    """Start workers with this method instead of fork, the default on Linux before Python 3.14."""
    context = multiprocessing.get_context(request.param)
    monkeypatch.setattr(_FakeLoader, "multiprocessing_context", property(lambda self: context if self.num_workers else None))


def assert_same_batches(loader, other):
    found, expected = list(loader), list(other)
    assert len(found) == len(expected) > 3
    for batch, same in zip(found, expected):
        for a, b in zip(batch, same, strict=True):
            assert torch.equal(a, b)


def test_pretraining(small_tokenizer, tmp_path, start_method):
    rows = [{"input_ids": [2, *range(5, 6 + i % 20), 3], "sentA_length": 3 + i % 7} for i in range(40)]
    Dataset.from_list(rows).save_to_disk(tmp_path)
    splits = {"train": Dataset.load_from_disk(tmp_path)}
    loaders = [pretraining_dataloaders(splits, small_tokenizer, bs=8, steps=7, max_length=24, seed=3, num_workers=workers).train
               for workers in (2, 0)]
    for loader in loaders:
        loader.start = 16  # as in a resumed run
    assert_same_batches(*loaders)


def test_finetuning(start_method):
    rows = EncodedRows([{"inp_ids": [5] * (3 + i % 9), "token_type_ids": [0] * (3 + i % 9)} for i in range(70)], list(range(70)))
    assert_same_batches(*(finetuning_dataloaders(rows, [rows], 4, workers, "cpu").loaders[1] for workers in (1, 0)))
