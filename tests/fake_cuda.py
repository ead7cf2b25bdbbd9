"""CUDA tensors without a GPU: they have a device, a shape and a dtype, but no numbers (torch's FakeTensor).

What a GPU would have to wait for raises here: reading a number or a size that depends on one (`DataDependentOutputException`,
`DynamicOutputShapeException`), and combining tensors of two devices (`FakeTensorDeviceMismatchError`).
"""
import contextlib
from types import SimpleNamespace
from unittest import mock

import torch
import transformers.utils.import_utils
from torch._subclasses import FakeTensorMode


@contextlib.contextmanager
def fake_cuda():
    """Within it all new tensors are fake, on the CPU or on 'cuda'; real ones are refused.

    Patched, because each would ask the CUDA driver or treat fake tensors in another way:
    - mixed precision asks whether a GPU is available and knows bf16;
    - `Tensor.backward` is replaced by `backward` below, because autograd's engine asks for the GPU's context;
    - `Module.to` refuses a parameter with weak references, and fake parameters have some for bookkeeping;
    - transformers does not look at the attention mask of fake tensors; with real ones it does.
    """
    with contextlib.ExitStack() as stack:
        stack.enter_context(FakeTensorMode())
        for owner, name, replacement in (
                (torch.cuda.amp.common, "amp_definitely_not_available", lambda: False),
                (torch.cuda, "is_bf16_supported", lambda *_, **__: True),
                (torch.Tensor, "backward", backward),
                (torch.utils, "weakref", SimpleNamespace(getweakrefs=lambda _: [])),
                (transformers.utils.import_utils, "is_fake_tensor", lambda _: False)):
            stack.enter_context(mock.patch.object(owner, name, replacement))
        yield


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
