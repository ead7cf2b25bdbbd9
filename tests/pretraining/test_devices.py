"""The default device and precision, and warnings about hardware that is slow or cannot be used."""
from contextlib import nullcontext

import pytest
import torch

from _utils.errors import UserError
from _utils.training.device import choose_device, choose_precision

GPU, CPU = torch.device("cuda"), torch.device("cpu")


def use_gpus(monkeypatch, capability, built_for):
    """Two GPUs of this compute capability, and a PyTorch with kernels for other ones or the same."""
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda *_: capability)
    monkeypatch.setattr(torch.cuda, "get_arch_list", built_for.split)


@pytest.mark.parametrize("capability, default", [((8, 0), "bf16"), ((7, 5), "fp16")])
def test_default_precision_is_the_fastest_that_the_gpu_supports(monkeypatch, capability, default):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    assert choose_precision(None, GPU) == default and choose_precision("fp32", GPU) == "fp32"


def test_a_gpu_has_an_index_and_a_missing_one_is_reported_by_name(monkeypatch):
    """torch.cuda.set_device refuses a device without an index."""
    use_gpus(monkeypatch, (9, 0), "sm_90")
    assert [choose_device(name).index for name in ("cuda", "cuda:1")] == [0, 1]
    for name in ("cuda:99", "gpu"):
        with pytest.raises(UserError, match=f"Device not found: '{name}'"):
            choose_device(name)


@pytest.mark.parametrize("capability, built_for, runs", [
    ((8, 9), "sm_75 sm_86 sm_90", True), ((8, 0), "sm_75 sm_86 sm_90", False), ((12, 0), "sm_90 compute_90", True)])
def test_a_gpu_for_which_pytorch_has_no_kernels_is_reported(monkeypatch, capability, built_for, runs):
    use_gpus(monkeypatch, capability, built_for)
    with nullcontext() if runs else pytest.raises(UserError, match="cuda:1.*sm_75"):
        choose_device("cuda:1")
