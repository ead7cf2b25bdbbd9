"""Accumulating gradients over the parts of a batch, and adding them up over processes.

Two implementations of one protocol: `network` runs the forward pass; `accumulate(is_last)` is the context of the forward and backward pass of
a part; `collect()` follows each backward pass; `add_up()` follows the last one; `tensors()` are the gradients to clip; `zero()` starts over.
"""
import contextlib

import torch
from torch.nn.parallel import DistributedDataParallel


class FlatGradients:
    """Gradients as views of one tensor: one operation zeroes them, clips them, or adds them up over processes.

    They keep their addresses, as a CUDA graph requires. Parameters that receive no gradient keep None, so that weight decay skips them too.
    """

    def __init__(self, model, processes):
        self.network, self.processes = model, processes
        self.parameters = list(model.parameters())
        self.views, self.flat = [None] * len(self.parameters), None

    def accumulate(self, is_last):
        return contextlib.nullcontext()

    def collect(self):
        """Move the gradients into the flat tensor: after the first backward pass; later ones add to the views."""
        if any(p.grad is not view for p, view in zip(self.parameters, self.views)):
            self._flatten([p for p in self.parameters if p.grad is not None])

    @torch.no_grad()
    def _flatten(self, parameters):
        gradients = [p.grad for p in parameters]
        self.flat = torch.cat([torch.zeros(p.numel(), dtype=p.dtype, device=p.device) for p in parameters])
        offset = 0
        for p in parameters:
            # With the strides of the parameter, so that optimizers can walk through both in memory order.
            p.grad = self.flat.as_strided(p.shape, p.stride(), offset)
            offset += p.numel()
        torch._foreach_copy_([p.grad for p in parameters], gradients)
        self.views = [p.grad for p in self.parameters]

    def add_up(self):
        self.processes.add_up([self.flat])

    def tensors(self):
        return [self.flat]

    def zero(self):
        self.flat.zero_()


class BucketedGradients:
    """Gradients of several processes through DistributedDataParallel, which adds them up while the backward pass continues.

    Gradients are sums over processes, not means: each loss is already divided by the totals of the whole batch.
    """

    def __init__(self, model):
        on_gpu = next(model.parameters()).is_cuda
        # find_unused_parameters: some families have parameters without gradients, such as an unused pooler.
        self.network = DistributedDataParallel(model, device_ids=[torch.cuda.current_device()] if on_gpu else None, broadcast_buffers=False,
                                               find_unused_parameters=True, gradient_as_bucket_view=True)
        self.network.register_comm_hook(None, _add_up_bucket)
        self.parameters = list(model.parameters())

    def accumulate(self, is_last):
        return contextlib.nullcontext() if is_last else self.network.no_sync()

    def collect(self):
        pass

    def add_up(self):
        pass

    def tensors(self):
        return [p.grad for p in self.parameters if p.grad is not None]

    def zero(self):
        for p in self.parameters:
            p.grad = None


def _add_up_bucket(state, bucket):
    """Communication hook of DistributedDataParallel: the sum over processes; its default is the mean."""
    return torch.distributed.all_reduce(bucket.buffer(), async_op=True).get_future().then(lambda future: future.value()[0])
