"""Fake CUDA tensors: operations that synchronize raise an exception, and gradients equal those of autograd."""
import pytest
import torch
from fake_cuda import backward, fake_cuda
from torch import nn
from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException
from transformers import ElectraConfig, ElectraModel

CONFIG = ElectraConfig(vocab_size=50, embedding_size=8, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32)
ON_CPU = torch.ones(3)


@pytest.mark.parametrize("operation, error", [
    (lambda x: bool(x.all()), DataDependentOutputException),
    (lambda x: float(x.sum()), DataDependentOutputException),
    (lambda x: x.tolist(), DataDependentOutputException),
    (lambda x: x[x > 0], DynamicOutputShapeException),
    (lambda x: x.nonzero(), DynamicOutputShapeException),
    (lambda x: x + torch.ones(3), RuntimeError),
    (lambda x: x + ON_CPU, RuntimeError)])
def test_operations_that_synchronize_or_mix_devices_fail(operation, error):
    with fake_cuda():
        x = torch.ones(3, device="cuda")
        with pytest.raises(error, match="cuda:0.*cpu" if error is RuntimeError else None):
            operation(x)


def test_network_moves_to_fake_cuda_and_trains_in_bf16():
    with fake_cuda():
        model = ElectraModel(CONFIG).to("cuda")
        model.set_attn_implementation("sdpa")
        ids = torch.ones(4, 8, dtype=torch.int64).to("cuda", non_blocking=True)
        with torch.autocast("cuda", torch.bfloat16):
            hidden = model(ids).last_hidden_state
            assert (model.encoder.layer[0].attention.self.query(hidden)).dtype == torch.bfloat16
            with pytest.raises(DataDependentOutputException):  # transformers looks for padding, as with real tensors
                model(ids, attention_mask=torch.ones_like(ids))
        hidden.float().square().mean().backward()
        for parameter in model.parameters():
            assert parameter.device.type == "cuda" and parameter.grad.device == parameter.device
    assert torch.ones(3).sum() == 3 and torch.Tensor.backward is not backward


def test_gradients_match_autograd():
    torch.manual_seed(0)
    model = nn.Sequential(ElectraModel(CONFIG).eval())
    parameters = list(model.parameters())
    for n_accumulated in (1, 2):
        loss = model(torch.arange(24).view(2, 12))[0].square().mean()
        expected = torch.autograd.grad(loss, parameters, retain_graph=True)
        backward(loss)
        for parameter, gradient in zip(parameters, expected, strict=True):
            torch.testing.assert_close(parameter.grad, n_accumulated * gradient)
