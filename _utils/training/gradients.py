"""Adding up gradients over the parts of a batch and over processes.

Two implementations of one protocol: `begin()` starts a step; `network` runs the forward pass of a part and `backward(loss)` its backward
pass, both inside the context `part(is_last)`; `add_up()` follows the last part; `tensors()` are the gradients to clip; `zero()` ends it.
"""
import contextlib
import warnings

import torch
from torch.nn.parallel import DistributedDataParallel


class FlatGradients:
    """Gradients as views of one tensor: one operation zeroes them, or adds them up over processes.

    Their addresses stay the same, as a CUDA graph requires. Parameters that the first loss does not depend on have none, so weight decay
    skips them, too.
    half: HalfWeights of the model, for training in half precision.
    """

    def __init__(self, model, processes, half=None):
        self.network, self.processes, self.half = half or model, processes, half
        halved, copies = (half.parameters, half.copies) if half else ([], [])
        ids = {id(p) for p in halved}
        rest = [p for p in model.parameters() if p.requires_grad and id(p) not in ids]
        self.parameters, self.leaves = [*halved, *rest], [*copies, *rest]  # leaves: of the autograd graph
        self.flat = None

    def begin(self):
        if self.half:
            self.half.refresh()

    def part(self, is_last):
        return contextlib.nullcontext()

    def backward(self, loss):
        """Add the gradients of a loss. All are added at once: autograd alone would launch an addition for each parameter."""
        gradients = torch.autograd.grad(loss, self.leaves, allow_unused=True)
        if self.flat is None:
            self._allocate(gradients)
        half, full = [[gradients[i] for i in indices] for indices in (self.half_indices, self.full_indices)]
        if half:
            torch._foreach_copy_(self.half_views, half)
            self.flat[:len(self.flat_half)] += self.flat_half
        torch._foreach_add_(self.full_views, full)

    def _allocate(self, gradients):
        """Allocate gradients, in the order of `parameters`, for those that are used."""
        used = [i for i, gradient in enumerate(gradients) if gradient is not None]
        self.half_indices = [i for i in used if self.leaves[i] is not self.parameters[i]]
        self.full_indices = used[len(self.half_indices):]
        half, full = [[self.parameters[i] for i in indices] for indices in (self.half_indices, self.full_indices)]
        self.flat, self.views = flat_like([*half, *full])
        self.full_views = self.views[len(half):]
        if half:
            self.flat_half, self.half_views = flat_like(half, self.half.dtype)
        for p, view in zip([*half, *full], self.views):
            p.grad = view

    def add_up(self):
        if self.processes.n > 1:
            torch.distributed.all_reduce(self.flat)

    def tensors(self):
        return self.views  # not the flat tensor, whose norm is less exact on a CPU

    def zero(self):
        if self.flat is not None:
            self.flat.zero_()


def flat_like(tensors, dtype=None):
    """(zeros in one dimension, views of them with the shapes and strides of some tensors, one after the other)."""
    flat = torch.zeros(sum(tensor.numel() for tensor in tensors), dtype=dtype or tensors[0].dtype, device=tensors[0].device)
    views, offset = [], 0
    for tensor in tensors:
        views.append(flat.as_strided(tensor.shape, tensor.stride(), offset))
        offset += tensor.numel()
    return flat, views


class BucketedGradients:
    """Gradients of several processes through DistributedDataParallel, which adds them up while the backward pass continues.

    They are sums over processes, not means: each loss is already divided by the totals of the whole batch. The first step, which shows what
    parameters have gradients, adds them up in one message; the others are then frozen, because DistributedDataParallel would wait for them.
    """

    def __init__(self, model, processes):
        self.network = self.model = model
        self.processes, self.parameters, self.is_first_step = processes, list(model.parameters()), True

    def begin(self):
        if self.network is self.model and not self.is_first_step:
            with warnings.catch_warnings():  # newer versions of PyTorch have another name for broadcast_buffers
                warnings.simplefilter("ignore", FutureWarning)
                self.network = DistributedDataParallel(self.model, broadcast_buffers=False, gradient_as_bucket_view=True)
            self.network.register_comm_hook(None, _add_up_bucket)

    def part(self, is_last):
        return contextlib.nullcontext() if is_last or self.is_first_step else self.network.no_sync()

    def backward(self, loss):
        loss.backward()

    def add_up(self):
        """Add up the gradients of the first step; in later ones the backward pass of the last part has done it."""
        if self.is_first_step:
            self.is_first_step = False
            self.processes.add_up(self.tensors())
            for p in self.parameters:
                p.requires_grad_(p.grad is not None)

    def tensors(self):
        return [p.grad for p in self.parameters if p.grad is not None]

    def zero(self):
        for p in self.parameters:
            p.grad = None


def _add_up_bucket(state, bucket):
    """Communication hook of DistributedDataParallel: the sum over processes. Its default is the mean."""
    return torch.distributed.all_reduce(bucket.buffer(), async_op=True).get_future().then(lambda future: future.value()[0])
