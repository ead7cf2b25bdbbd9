"""The device and the default precision."""
import pytest
import torch

from _utils.errors import UserError
from _utils.training.device import choose_device, choose_precision

GPU = torch.device("cuda")


@pytest.mark.parametrize("capability, default", [((8, 0), "bf16"), ((7, 5), "fp16")])
def test_default_precision_is_the_fastest_that_the_gpu_supports(monkeypatch, capability, default):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    assert choose_precision(None, GPU) == default and choose_precision("fp32", GPU) == "fp32"


@pytest.mark.parametrize("name, capability, found", [
    ("cuda", (8, 9), 0), ("cuda:1", (12, 0), 1),  # torch.cuda.set_device refuses a device without an index
    ("cuda:99", (8, 9), "'cuda:99'"), ("gpu", (8, 9), "'gpu'"), ("cuda:1", (8, 0), "cuda:1.*sm_86")])
def test_a_gpu_that_is_missing_or_for_which_pytorch_has_no_kernels_is_named(monkeypatch, name, capability, found):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda *_: capability)
    monkeypatch.setattr(torch.cuda, "get_arch_list", lambda: ["sm_86", "sm_90", "compute_90"])
    if isinstance(found, int):
        assert choose_device(name).index == found
    else:
        with pytest.raises(UserError, match=found):
            choose_device(name)
