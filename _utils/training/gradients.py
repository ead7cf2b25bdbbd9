"""Adding up gradients over the parts of a batch and over processes.

Two implementations of one protocol: `network` runs the forward pass of a part and `backward(loss)` its backward pass, both inside the
context `part(is_last)`; `add_up()` follows the last part; `tensors()` are the gradients to clip; `zero()` prepares the next step.
"""
import contextlib

import torch
from torch.nn.parallel import DistributedDataParallel


class FlatGradients:
    """Gradients as views of one tensor: one operation zeroes them, clips them, or adds them up over processes.

    Their addresses stay the same, as a CUDA graph requires. A parameter that never receives a gradient has None, so weight decay skips it.
    """

    def __init__(self, model, processes):
        self.network, self.processes = model, processes
        self.parameters = [p for p in model.parameters() if p.requires_grad]
        self.views = [None] * len(self.parameters)
        self.flat = torch.zeros(0)

    def part(self, is_last):
        return contextlib.nullcontext()

    def backward(self, loss):
        """Add the gradients of a loss. They are added all at once: autograd alone would launch one addition for each parameter."""
        gradients = torch.autograd.grad(loss, self.parameters, allow_unused=True)
        if any(gradient is not None and view is None for gradient, view in zip(gradients, self.views)):
            self._extend(gradients)
        pairs = [(view, gradient) for view, gradient in zip(self.views, gradients) if gradient is not None]
        torch._foreach_add_(*map(list, zip(*pairs)))

    def _extend(self, gradients):
        """Make room for the gradients that have no view yet: at the first backward pass, for all."""
        old = self.views
        used = [p for p, gradient, view in zip(self.parameters, gradients, old) if gradient is not None or view is not None]
        self.flat = torch.zeros(sum(p.numel() for p in used), dtype=used[0].dtype, device=used[0].device)
        offset = 0
        for p in used:
            # With the strides of the parameter, so that an optimizer can walk through both in memory order.
            p.grad = self.flat.as_strided(p.shape, p.stride(), offset)
            offset += p.numel()
        self.views = [p.grad for p in self.parameters]
        for view, before in zip(self.views, old):
            if before is not None:
                view.copy_(before)

    def add_up(self):
        self.processes.add_up([self.flat])

    def tensors(self):
        return [self.flat]

    def zero(self):
        self.flat.zero_()


class BucketedGradients:
    """Gradients of several processes through DistributedDataParallel, which adds them up while the backward pass continues.

    They are sums over processes, not means: each loss is already divided by the totals of the whole batch.
    """

    def __init__(self, model):
        # find_unused_parameters: some families have parameters that receive no gradient, such as an unused pooler.
        self.network = DistributedDataParallel(model, broadcast_buffers=False, find_unused_parameters=True, gradient_as_bucket_view=True)
        self.network.register_comm_hook(None, _add_up_bucket)
        self.parameters = list(model.parameters())

    def part(self, is_last):
        return contextlib.nullcontext() if is_last else self.network.no_sync()

    def backward(self, loss):
        loss.backward()

    def add_up(self):
        pass  # the backward pass of the last part has done it

    def tensors(self):
        return [p.grad for p in self.parameters if p.grad is not None]

    def zero(self):
        for p in self.parameters:
            p.grad = None


def _add_up_bucket(state, bucket):
    """Communication hook of DistributedDataParallel: the sum over processes. Its default is the mean."""
    return torch.distributed.all_reduce(bucket.buffer(), async_op=True).get_future().then(lambda future: future.value()[0])
