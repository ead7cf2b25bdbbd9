"""Micro-batches on a GPU, by an estimate of the memory that a step needs."""
import pytest
import torch
from electra_models import build
from transformers import RoFormerPreTrainedModel

from _utils.errors import UserError
from _utils.training.device import micro_batch_size


@pytest.fixture
def size_on_gpu(monkeypatch):
    """size(model, gigabytes of the GPU, free, reserved and allocated by PyTorch): micro-batch of 2,048 x 512 tokens."""
    def size(model, total, free=None, reserved=0, allocated=0):
        free = total if free is None else free
        total, free, reserved, allocated = (int(number * 10 ** 9) for number in (total, free, reserved, allocated))
        monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (free, total))
        monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: reserved)
        monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device: allocated)
        networks = [model.generator, model.discriminator]
        return micro_batch_size(torch.device("cuda"), 2048, 512, "bf16", networks, .25)
    return size


def test_micro_batches_grow_with_the_memory_of_a_gpu(size_on_gpu):
    """Whatever is free, but it is an error if the networks do not fit. Memory that PyTorch holds unused is free."""
    with torch.device("meta"):
        model = build("large")
    assert 1 <= size_on_gpu(model, 16) < size_on_gpu(model, 40) and 2048 % size_on_gpu(model, 40) == 0
    assert size_on_gpu(model, 40, free=2, reserved=25, allocated=5) == size_on_gpu(model, 40)
    with pytest.raises(UserError, match="4.0 GB"):
        size_on_gpu(model, 40, free=4)


def test_micro_batches_are_smaller_where_attention_is_not_fused(size_on_gpu, monkeypatch):
    with torch.device("meta"):
        model = build("mini")
    size = size_on_gpu(model, 1)
    monkeypatch.setattr(RoFormerPreTrainedModel, "_supports_sdpa", True)
    assert 1 <= size <= size_on_gpu(model, 1) / 2
