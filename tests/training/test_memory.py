"""Micro-batches on a GPU, by an estimate of the memory that a step needs."""
import pytest
import torch
from electra_models import build

from _utils.errors import UserError
from _utils.training.device import micro_batch_size


def test_micro_batches_grow_with_the_free_memory_of_a_gpu(monkeypatch):
    """It is an error if the networks do not fit. Memory that PyTorch holds without using it is free."""
    with torch.device("meta"):
        model = build("large")

    def size(free, reserved=0, allocated=0):
        free, reserved, allocated = (gigabytes * 10 ** 9 for gigabytes in (free, reserved, allocated))
        monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (free, 141 * 10 ** 9))
        monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: reserved)
        monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device: allocated)
        networks = [model.generator, model.discriminator]
        return micro_batch_size(torch.device("cuda"), 2048, 512, "bf16", networks, .25)
    assert 1 <= size(16) < size(40) and 2048 % size(40) == 0
    assert size(20, reserved=25, allocated=5) == size(40)
    with pytest.raises(UserError, match="4.0 GB"):
        size(4)
