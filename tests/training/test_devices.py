"""The device, the default precision, and the seeds of a step."""
from types import SimpleNamespace
from unittest import mock

import numpy as np
import pytest
import torch
from torch._subclasses import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import ElectraConfig, ElectraModel

from _utils.errors import UserError
from _utils.networks.sampling import uniform_like
from _utils.seeds import seed_step
from _utils.training import device
from _utils.training.device import choose_device, choose_precision

GPU = torch.device("cuda")


@pytest.mark.parametrize("capability, default", [((8, 0), "bf16"), ((7, 5), "fp16")])
def test_default_precision_is_the_fastest_that_the_gpu_supports(monkeypatch, capability, default):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    assert choose_precision(None, GPU) == default and choose_precision("fp32", GPU) == "fp32"


SMALL = {"device": "cpu", "precision": "fp32", "steps": 10 ** 6, "compile": False}


@pytest.mark.parametrize("changes, width, named", [
    ({}, 256, "precision=bf16"), ({"precision": "bf16"}, 256, None), ({}, 128, None),
    ({"device": "cuda", "precision": "bf16"}, 128, "compile=True"),
    ({"device": "cuda", "precision": "bf16", "compile": True}, 128, None),
    ({"device": "cuda", "precision": "bf16", "steps": 500}, 128, None)])
def test_a_faster_setting_that_is_off_is_named(monkeypatch, changes, width, named):
    monkeypatch.setattr(device, "has_on_cpu", lambda precision: True)
    model = ElectraModel(ElectraConfig(vocab_size=9, hidden_size=width, num_hidden_layers=1, num_attention_heads=1))
    found = device.faster_setting(SimpleNamespace(**SMALL | changes), model)
    assert found is named is None or named in found


@pytest.mark.parametrize("name", ["cuda:99", "gpu"])
def test_a_missing_device_is_named(name):
    with pytest.raises(UserError, match=name):
        choose_device(name)


class NoKernels(TorchDispatchMode):
    """A GPU on which tensors can be allocated, but no kernel can run."""

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        allocated = (torch.ops.aten.empty.memory_format, torch.ops.aten.empty_strided.default)
        if torch.device(kwargs.get("device") or "cpu").type == "cuda" and function not in allocated:
            raise RuntimeError("CUDA error: no kernel image is available for execution on the device")
        return function(*args, **kwargs)


def test_a_gpu_for_which_pytorch_has_no_kernels_is_named():
    """PyTorch only notices when it launches the first one."""
    with FakeTensorMode(), NoKernels():
        assert torch.empty(1, device="cuda:1").device == torch.device("cuda:1")
        with pytest.raises(UserError, match="cuda:1.*no kernel image"):
            choose_device("cuda:1")
    with FakeTensorMode():
        assert choose_device("cuda:1") == torch.device("cuda:1")


@pytest.mark.parametrize("uses_gpu", [False, True])
def test_a_step_draws_the_numbers_of_manual_seed_but_seeds_only_what_is_in_use(monkeypatch, uses_gpu):
    def draws():
        return torch.stack([torch.rand(8), torch.randn(8), uniform_like(torch.empty(8))])

    seed = int(np.random.SeedSequence((5, 12, 1)).generate_state(1)[0])
    torch.manual_seed(seed)
    expected, of_gpus = draws(), mock.Mock()
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: uses_gpu)
    monkeypatch.setattr(torch.cuda, "manual_seed_all", of_gpus)
    seed_step(5, 12, 1)
    assert draws().equal(expected)
    assert of_gpus.mock_calls == [mock.call(seed)] * uses_gpu
