"""Micro-batches on a GPU, by an estimate of the memory that a step needs."""
from types import SimpleNamespace

import pytest
import torch
from electra_models import build

from _utils.errors import UserError
from _utils.training.device import micro_batch_size


def test_micro_batches_grow_with_the_memory_of_a_gpu(monkeypatch):
    """It is an error if the networks do not fit."""
    with torch.device("meta"):
        model = build("large")

    def size(gigabytes):
        properties = SimpleNamespace(total_memory=gigabytes * 10 ** 9)
        monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: properties)
        networks = [model.generator, model.discriminator]
        return micro_batch_size(torch.device("cuda"), 2048, 512, "bf16", networks, .25)
    assert 1 <= size(16) < size(40) and 2048 % size(40) == 0
    with pytest.raises(UserError, match="4.0 GB"):
        size(4)
