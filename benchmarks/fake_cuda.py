"""CUDA tensors without a GPU: they have a device, a shape and a dtype, but no values (torch's FakeTensor).

Operations that synchronize with the GPU raise an exception: reading a value (`DataDependentOutputException`) or a shape
that depends on one (`DynamicOutputShapeException`). So does combining tensors on different devices (`RuntimeError`).
"""
import contextlib
from types import SimpleNamespace
from unittest import mock

import torch
import transformers.utils.import_utils
from fastai.data.load import DataLoader
from torch._subclasses import FakeTensorMode
from torch._subclasses.fake_tensor import unset_fake_temporarily

# PyTorch has no fake kernel of the fused AdamW with a tensor as learning rate.
torch.library.register_fake("aten::_fused_adamw_.tensor_lr", lambda *args, **kwargs: None)

_iterate_loader, _swap_tensors = DataLoader.__iter__, torch.utils.swap_tensors


@contextlib.contextmanager
def fake_cuda():
    """Context in which all new tensors are fake, on the CPU or on 'cuda'; operations treat real tensors as fake ones on
    their device.

    It patches functions that would call the CUDA driver or treat fake tensors differently:
    - mixed precision checks that a GPU is available and supports bf16;
    - `Tensor.backward` and `torch.autograd.grad` are replaced by `backward` and `grad` below, because the autograd
      engine needs a CUDA context;
    - `Module.to` rejects parameters with weak references or gradients, which fake ones have, even if nothing has to be
      moved;
    - transformers does not inspect the attention mask of fake tensors, as it does for real ones;
    - fastai's loaders yield real tensors on the CPU, because they read a random number to seed their workers.
    """
    with contextlib.ExitStack() as stack:
        stack.enter_context(FakeTensorMode(allow_non_fake_inputs=True))
        for owner, name, replacement in (
                (torch.cuda.amp.common, "amp_definitely_not_available", lambda: False),
                (torch.cuda, "is_bf16_supported", lambda *_, **__: True),
                (torch.Tensor, "backward", backward),
                (torch.autograd, "grad", grad),
                (torch.utils, "swap_tensors", _swap),
                (transformers.utils.import_utils, "is_fake_tensor", lambda _: False),
                (DataLoader, "__iter__", _real_batches)):
            stack.enter_context(mock.patch.object(owner, name, replacement))
        yield


def _swap(parameter, moved):
    if (parameter.device, parameter.dtype) != (moved.device, moved.dtype):
        with mock.patch.object(torch.utils, "weakref", SimpleNamespace(getweakrefs=lambda _: [])):
            _swap_tensors(parameter, moved)


def _real_batches(loader):
    with unset_fake_temporarily():
        batches = list(_iterate_loader(loader))
    yield from batches


def backward(loss):
    """Add the gradients of a scalar loss to the `grad` of its leaves, in place where they have one."""
    for leaf, gradient in _gradients(loss, torch.ones_like(loss)).items():
        leaf.grad = gradient if leaf.grad is None else leaf.grad.add_(gradient)


def grad(outputs, inputs, grad_outputs=None, allow_unused=False, **_):
    """Gradients of one output with respect to tensors; None for those it does not depend on."""
    [output] = [outputs] if isinstance(outputs, torch.Tensor) else outputs
    [seed] = [torch.ones_like(output)] if grad_outputs is None else grad_outputs
    keys = [x if x.grad_fn is None else (x.grad_fn, x.output_nr) for x in inputs]
    found = _gradients(output, seed, {key for key in keys if isinstance(key, tuple)})
    return tuple(found.get(key) for key in keys)


@torch.no_grad()
def _gradients(output, seed, ends=frozenset()):
    """{leaf, or (node, number of its output) in `ends`: gradient}: call each node of the autograd graph once, the
    latest first.
    """
    found, waiting = {}, {}  # waiting: {node: gradients of its outputs, accumulated so far}

    def arrive(node, index, gradient):
        sums = waiting.setdefault(node, [None] * len(node._input_metadata))
        sums[index] = gradient if sums[index] is None else sums[index] + gradient

    arrive(output.grad_fn, output.output_nr, seed)
    while waiting:
        node = max(waiting, key=lambda node: node._sequence_nr())  # no other node can pass a gradient to it any more
        gradients = [
            _match_output(gradient, output)
            for gradient, output in zip(waiting.pop(node), node._input_metadata, strict=True)
        ]
        if reached := {(node, i): gradient for i, gradient in enumerate(gradients) if (node, i) in ends}:
            found |= reached
            continue
        results = node.apply(*gradients) if hasattr(node, "apply") else node(*gradients)
        for (next_node, index), gradient in zip(
            node.next_functions, results if isinstance(results, tuple) else [results], strict=True
        ):
            if gradient is None or next_node is None:
                continue
            if hasattr(next_node, "variable"):  # it accumulates the gradient of a leaf
                gradient = _match_output(gradient, next_node._input_metadata[0])
                leaf = next_node.variable
                found[leaf] = found[leaf] + gradient if leaf in found else gradient
            else:
                arrive(next_node, index, gradient)
    return found


def _match_output(gradient, output):
    """Convert a gradient to the shape and dtype of its output, as the autograd engine does.

    Both must be on the same device.
    """
    if gradient is None:
        return None
    assert gradient.device == output.device, f"gradient on {gradient.device} for a tensor on {output.device}"
    return gradient.sum_to_size(output.shape).to(output.dtype)
