"""The device and the default precision."""
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from _utils.errors import UserError
from _utils.training.device import choose_device, choose_precision
from benchmarks.fake_cuda import fake_cuda

GPU = torch.device("cuda")


@pytest.mark.parametrize("capability, default", [((8, 0), "bf16"), ((7, 5), "fp16")])
def test_default_precision_is_the_fastest_that_the_gpu_supports(monkeypatch, capability, default):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    assert choose_precision(None, GPU) == default and choose_precision("fp32", GPU) == "fp32"


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
    with fake_cuda(), NoKernels():
        assert torch.empty(1, device="cuda:1").device == torch.device("cuda:1")
        with pytest.raises(UserError, match="cuda:1.*no kernel image.*device=cpu"):
            choose_device("cuda:1")
    with fake_cuda():
        assert choose_device("cuda:1") == torch.device("cuda:1")
