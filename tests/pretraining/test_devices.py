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


@pytest.mark.parametrize("name", ["cuda:99", "gpu"])
def test_a_missing_device_is_named(name):
    with pytest.raises(UserError, match=name):
        choose_device(name)
