"""Trainings of benchmarks.gpu: on random batches, eager, compiled or captured, and what is read off them."""
import gc
import itertools
import resource
import time
from functools import partial
from statistics import median
from unittest import mock

import torch
from torch.profiler import ProfilerActivity, profile

import pretrain
from _utils.config import complete
from _utils.seeds import seed_step, set_seed
from _utils.text.vocabulary import tokenizer_from_tokens
from _utils.training import cuda_graph
from benchmarks.pretraining import VOCABULARY, Training, random_batch
from benchmarks.report import seconds_of, wait_for

KINDS = ("eager", "compiled", "captured", "reduce-overhead")


def static_training(device, changes, kind, batches=None):
    """Training of a configuration on random batches, in one of KINDS, on the same weights each time.

    Each step has one micro-batch.
    """
    # With many steps, the metrics are not reset meanwhile.
    c = complete(pretrain.c.override(["masking=official", "steps=1000000", *changes, f"compile={kind != 'eager'}"]))
    c = c.copy_with({"micro_batch": c.bs})
    set_seed(0)
    return set_kind(
        Training(c, tokenizer_from_tokens(VOCABULARY), device, batches or itertools.repeat(random_batch(c, device))),
        kind,
    )


def set_kind(training, kind):
    """Let a Training that was built with compile=True only compile its steps, or use torch.compile's own CUDA graphs.
    """
    learn = training.learn
    if kind in ("compiled", "reduce-overhead"):
        cuda_graph.compile_step(learn)
        learn.compiled_step.is_ready = True  # without capture
    if kind == "reduce-overhead":
        half, metrics = learn.gradients.half, learn.train_metrics
        for tensor in (*(half.copies if half else ()), metrics.state, metrics.sums, metrics.histogram):
            torch._dynamo.mark_static_address(tensor)  # torch.compile captures no function that changes other tensors
        for name in ("masks", "forward"):
            function = getattr(type(learn), name).__get__(learn)
            setattr(learn, name, torch.compile(function, fullgraph=True, dynamic=False, mode="reduce-overhead"))
    return training


def captured_graphs(learn):
    """The number of CUDA graphs that the steps of a learner replay: 0 for eager steps."""
    functions = [getattr(learn, name) for name in ("masks", "accumulate", "update")]
    return sum(len(function.graphs) for function in functions if isinstance(function, cuda_graph.CapturedFunction))


def traced_only():
    """Context in which compile=True traces the functions of a step as one graph each, but runs PyTorch's own operators.
    """
    return mock.patch.object(cuda_graph, "compile_step", partial(cuda_graph.compile_step, backend="aot_eager"))


def release(device):
    """Free what the trainings that are no longer referenced occupied: learners are parts of reference cycles, and
    torch.compile keeps their graphs. Returns the megabytes of tensors that are left on a GPU.
    """
    torch._dynamo.reset()
    gc.collect()
    if device.type == "cpu":
        return 0.
    torch.cuda.empty_cache()
    return torch.cuda.memory_allocated(device) / 1e6


def weights_of(model):
    """The weights of a model, one after the other, on the CPU; without biases of keys, whose gradients are rounding
    errors.
    """
    return torch.cat(
        [p.detach().cpu().flatten() for name, p in model.named_parameters() if not name.endswith("key.bias")]
    )


def gradients_of_a_batch(training):
    """{name: gradient, on the CPU} of a batch with fixed random numbers; without biases of keys, whose gradients are
    rounding errors.
    """
    learn = training.learn
    seed_step(learn.seed, 77)
    masked, counts = learn.masks(*learn.on_device(next(training.batches)))
    seed_step(learn.seed, 77, 1)
    learn.gradients.flat.zero_()
    learn.accumulate(*masked, *counts)
    found = {
        name: p.grad.float().cpu()
        for name, p in learn.model.named_parameters()
        if p.grad is not None and "key.bias" not in name
    }
    learn.gradients.flat.zero_()
    return found


# Time, memory and kernels

def host_ms(training, n=20):
    """Median milliseconds in which Python launches a step, without waiting for a GPU. If a step takes hardly longer,
    the GPU waits for Python.
    """
    found = []
    for _ in range(n):
        wait_for(training.device)
        started = time.perf_counter()
        training.take(1)
        found.append(1e3 * (time.perf_counter() - started))
    return median(found)


def warm_up(training, most, least=3, seconds=20.):
    """Seconds of each warmup step. There are `most`, or fewer if they are slow, but at least `least`."""
    taken = []
    while len(taken) < most and (len(taken) < least or sum(taken) < seconds):
        taken.append(seconds_of(lambda: training.take(1), training.device))
    return taken


def peak_memory(device):
    """Peak bytes of tensors on a GPU, or of this process."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def longest_kernels(training, n=20):
    """{name: share of the time} of the kernels of a GPU, or of the operators on a CPU, that take the longest in a step.
    """
    activity, attribute = {"cuda": (ProfilerActivity.CUDA, "self_device_time_total"),
                           "cpu": (ProfilerActivity.CPU, "self_cpu_time_total")}[training.device.type]
    with profile(activities=[activity]) as found:
        seconds_of(lambda: training.take(1), training.device)
    times = {event.key: getattr(event, attribute) for event in found.key_averages()}
    return {name: times[name] / sum(times.values()) for name in sorted(times, key=times.get, reverse=True)[:n]}


