"""Training steps that change nothing: to capture a step, or to measure its time."""
import contextlib
import math
import time

import torch

from _utils.training.device import fork_rng


def trial_step(learn, batch):
    """A step as a PretrainingLearner takes it in all processes, without callbacks. batch: one batch of the training, on
    the device.
    """
    masked, counts = learn.masks(*batch)
    for _, micro_batch in learn.processes.own(learn.micro_batches(masked)):
        learn.accumulate(*micro_batch, *counts)
    learn.processes.sum(learn.gradients.flat)
    learn.update()


@contextlib.contextmanager
def state_restored(learn):
    """Context at whose end weights, optimizer state, metrics, random numbers and learning rates are as before, at the
    same addresses.
    """
    def state():
        moments = [tensor for of_parameter in learn.opt.opt.state.values() for tensor in of_parameter.values()]
        return [*learn.model.parameters(), learn.train_metrics.state, *moments]

    before = {tensor: tensor.detach().to("cpu", copy=True) for tensor in state()}
    rates = [group["lr"] for group in learn.opt.opt.param_groups]
    with fork_rng(learn.device):
        yield
    with torch.no_grad():
        for tensor in state():
            tensor.copy_(before.get(tensor, torch.zeros(())))  # zero: a moment that did not exist before
        learn.gradients.flat.zero_()
    learn.opt.set_hyper("lr", rates)


def seconds_per_step(learn, batch):
    """Mean seconds of a step of a PretrainingLearner that is compiled and captured, if it is to be. batch: as for
    `trial_step`.

    All processes must call it together.
    """
    if hasattr(learn, "compiled_step"):
        learn.compiled_step.prepare(batch)

    def seconds(n):
        started = time.perf_counter()
        for _ in range(n):
            trial_step(learn, batch)
        if learn.device.type == "cuda":
            torch.cuda.synchronize()
        return (time.perf_counter() - started) / n

    with state_restored(learn):
        seconds(1)  # allocates memory
        roughly = max(learn.processes.gather(seconds(1)))
        return seconds(min(100, max(3, math.ceil(2 / roughly))))
