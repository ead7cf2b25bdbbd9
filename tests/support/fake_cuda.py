"""CUDA tensors without a GPU: they have a device, a shape and a dtype, but no numbers (torch's FakeTensor).

What a GPU would have to wait for raises here: reading a number or a size that depends on one (`DataDependentOutputException`,
`DynamicOutputShapeException`), and combining tensors of two devices (`FakeTensorDeviceMismatchError`).
"""
import contextlib
from types import SimpleNamespace
from unittest import mock

import torch
import transformers.utils.import_utils
from fastai.data.load import DataLoader
from torch._subclasses import FakeTensorMode
from torch._subclasses.fake_tensor import unset_fake_temporarily

_batches_of, _swap_tensors = DataLoader.__iter__, torch.utils.swap_tensors


@contextlib.contextmanager
def fake_cuda():
    """Within it all new tensors are fake, on the CPU or on 'cuda', and operations take real tensors as fake ones of their device.

    Patched, because each would ask the CUDA driver or treat fake tensors in another way:
    - mixed precision asks whether a GPU is available and knows bf16;
    - `Tensor.backward` is replaced by `backward` below, because autograd's engine asks for the GPU's context;
    - `Module.to` refuses parameters with weak references or gradients, which fake ones have, even where nothing has to move;
    - transformers does not look at the attention mask of fake tensors; with real ones it does;
    - fastai's loaders give real tensors on the CPU, because they read a random number for their workers.
    """
    with contextlib.ExitStack() as stack:
        stack.enter_context(FakeTensorMode(allow_non_fake_inputs=True))
        for owner, name, replacement in (
                (torch.cuda.amp.common, "amp_definitely_not_available", lambda: False),
                (torch.cuda, "is_bf16_supported", lambda *_, **__: True),
                (torch.Tensor, "backward", backward),
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
        batches = list(_batches_of(loader))
    yield from batches


@torch.no_grad()
def backward(loss):
    """Adds the gradients of a scalar to the `grad` of its leaves: calls each node of autograd's graph once, the last one first."""
    waiting = {loss.grad_fn: [torch.ones_like(loss)]}  # {node: sums of its outputs' gradients so far}
    for node in reversed(_in_order(loss.grad_fn)):
        if node not in waiting:
            continue
        gradients = [_fitting(*pair) for pair in zip(waiting.pop(node), node._input_metadata, strict=True)]
        if hasattr(node, "variable"):  # a leaf's
            node.variable.grad = _sum(node.variable.grad, gradients[0])
            continue
        found = node(*gradients)
        for (below, index), gradient in zip(node.next_functions, found if isinstance(found, tuple) else (found,), strict=True):
            if below is not None and gradient is not None:
                sums = waiting.setdefault(below, [None] * len(below._input_metadata))
                sums[index] = _sum(sums[index], gradient)


def _sum(a, b):
    return b if a is None else a + b


def _fitting(gradient, output):
    """A gradient in the shape and dtype of the output that it belongs to, as autograd's engine does. Refuses one on another device."""
    if gradient is None:
        return None
    assert gradient.device == output.device, f"a gradient on {gradient.device} of a tensor on {output.device}"
    return gradient.sum_to_size(output.shape).to(output.dtype)


def _in_order(last):
    """All nodes of the graph behind `last`, each after those whose outputs' gradients it passes on to."""
    order, seen, stack = [], set(), [(last, False)]
    while stack:
        node, is_done = stack.pop()
        if is_done:
            order.append(node)
        elif node not in seen:
            seen.add(node)
            stack.append((node, True))
            stack += [(below, False) for below, _ in node.next_functions if below is not None]
    return order
