"""The gradients of a batch: the sum over its micro-batches and over processes."""
import itertools

import torch

from _utils.networks.faster_layers import HalfWeights


class Gradients:
    """Gradients of a model as views of one tensor: one operation zeroes them, or adds them up over processes.

    A step calls `begin`; for each micro-batch `network`, which is the model, and `add`; then the sum of `flat` over
    processes, the update with `views` (the norm of `flat` is less exact on a CPU), and `zero`. In fp32 and one process,
    this is what `loss.backward()` and `model.zero_grad()` do.
    The addresses of the gradients stay the same, as a CUDA graph requires. Parameters that the first loss does not
    depend on have none, so weight decay skips them, too.

    dtype: of the forward and backward pass, in which `network` has a copy of the weights of linear layers; None: that
    of the weights.
    """

    def __init__(self, model, dtype):
        self.half = HalfWeights(model, dtype) if dtype else None
        self.network = self.half or model
        halved, copies = (self.half.parameters, self.half.copies) if self.half else ([], [])
        has_copy = set(halved)
        others = [p for p in model.parameters() if p.requires_grad and p not in has_copy]
        self.parameters, self.leaves = [*halved, *others], [*copies, *others]  # leaves: of the autograd graph
        self.flat = None

    def begin(self):
        """Start a step, with copies of the current weights."""
        if self.half:
            self.half.refresh()

    def add(self, loss):
        """Add the gradients of a loss.

        All are added at once: autograd alone would launch an addition for each parameter.
        """
        gradients = torch.autograd.grad(loss, self.leaves, allow_unused=True)
        if self.flat is None:
            self._allocate(gradients)
        gradients = [gradient for gradient in gradients if gradient is not None]
        if self.n_half:
            torch._foreach_copy_(self.half_views, gradients[:self.n_half])
            self.flat[:len(self.flat_half)] += self.flat_half
        torch._foreach_add_(self.views[self.n_half:], gradients[self.n_half:])

    def _allocate(self, gradients):
        """Allocate gradients, in the order of `parameters`, for those that are used: first the `n_half` that have
        copies.
        """
        used = [(p, leaf) for p, leaf, gradient in zip(self.parameters, self.leaves, gradients) if gradient is not None]
        self.n_half, used = sum(p is not leaf for p, leaf in used), [p for p, _ in used]
        self.flat, self.views = flat_like(used)
        if self.n_half:
            self.flat_half, self.half_views = flat_like(used[:self.n_half], self.half.dtype)
        for p, view in zip(used, self.views):
            p.grad = view

    def zero(self):
        self.flat.zero_()


def flat_like(tensors, dtype=None):
    """(zeros in one dimension, views of them with the shapes and strides of some tensors, one after the other).

    Each view begins at a multiple of 16 bytes, as the fastest loads and stores of a GPU require.
    """
    sizes = [-(-tensor.numel() // 8) * 8 for tensor in tensors]  # of 2 or 4 bytes
    flat = torch.zeros(sum(sizes), dtype=dtype or tensors[0].dtype, device=tensors[0].device)
    offsets = itertools.accumulate(sizes, initial=0)
    return flat, [flat.as_strided(tensor.shape, tensor.stride(), offset) for tensor, offset in zip(tensors, offsets)]
