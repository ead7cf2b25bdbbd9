"""Sections of benchmarks.gpu: how fast is a step of pretraining, and what takes the time?"""
import contextlib
import tempfile
from statistics import median
from unittest import mock

import torch
from torch._dynamo.utils import counters

import pretrain
from _utils.config import complete
from _utils.recipes import RECIPES
from _utils.text.batches import pretraining_dataloaders
from _utils.text.vocabulary import tokenizer_from_tokens
from _utils.training import cuda_graph
from _utils.training.device import choose_device
from _utils.training.learners import DTYPES
from benchmarks.flops import flops_per_token
from benchmarks.gpu_training import (
    captured_graphs,
    gradients_of_a_batch,
    host_ms,
    longest_kernels,
    peak_memory,
    release,
    set_kind,
    static_training,
    traced_only,
    warm_up,
)
from benchmarks.loader import random_examples
from benchmarks.pretraining import VOCABULARY, Training, warmup_steps
from benchmarks.report import matmul_throughput, seconds_of

CHANGES = {  # (Inductor's options, sampling); the first is what compile=True runs
    "combined kernels": (cuda_graph.GPU_OPTIONS, "fp32_gumbel"),
    "separate kernels": ({}, "fp32_gumbel"),
    "combined kernels, inverse_cdf": (cuda_graph.GPU_OPTIONS, "inverse_cdf")}


# Changes of the compiled step

def changes(device, miniature, groups=10):
    """The step that compile=True runs with and without what makes it faster, one after the other in this process.

    Seconds until the first step and how many compiled graphs came from the cache, milliseconds per step (median of
    `groups` groups of 20) and of launching it, and the gradients of one batch beside those of the first kind, where the
    same samples are drawn.
    """
    device, checks, reference, summary = choose_device(device), {}, None, []
    for name, (options, sampling) in CHANGES.items():
        with mock.patch.object(cuda_graph, "GPU_OPTIONS", options):
            gradients, ms = yield from changed_step(name, device, miniature, sampling, groups)
        reference = reference or gradients
        if sampling == "fp32_gumbel":
            checks[f"{name}, largest relative difference of a gradient"] = difference(gradients, reference), .05
        checks[f"{name}, MB that are not released"] = release(device), 100.
        summary.append(f"{name} {ms:.4g} ms")
        yield {"checks": checks, "summary": ", ".join(summary)}


def changed_step(name, device, miniature, sampling, groups):
    """Yields the numbers of a captured step, under `name`. Returns its gradients of a batch, and milliseconds per step.
    """
    settings, n = (["size=tiny", "bs=8", "max_length=32"], 1) if miniature else (["size=small"], 20)
    counters.clear()
    with contextlib.nullcontext() if device.type == "cuda" else traced_only():
        training = static_training(device, [*settings, f"sampling={sampling}"], kind="captured")
        yield {f"{name}: seconds to the first step": seconds_of(lambda: training.take(1), device)}
    yield {f"{name}: graphs from the cache": counters["aot_autograd"]["autograd_cache_hit"]}
    training.take(n)
    ms = 1e3 * median(seconds_of(lambda: training.take(n), device) / n for _ in range(groups))
    yield {f"{name}: ms/step": ms}
    yield {f"{name}: host ms/step": host_ms(training, n)}
    return gradients_of_a_batch(training), ms


def difference(gradients, reference):
    """Largest relative difference of the gradient of a parameter."""
    return max(float((g - reference[p]).norm() / reference[p].norm().clamp(min=1e-20)) for p, g in gradients.items())


# Steps with the loader

def steps(size, kind, device, miniature, seconds=9.):
    """Speed and memory of pretraining with the batches of a recipe, from Arrow through the workers of the loader. kind:
    of KINDS.
    """
    device, hf_tokenizer = choose_device(device), tokenizer_from_tokens(VOCABULARY)
    changes = ["bs=8", "max_length=32", "num_workers=0"] if miniature else []
    c = complete(pretrain.c.override([f"size={size}", f"compile={kind != 'eager'}", *changes]))
    with tempfile.TemporaryDirectory() as folder:
        examples = random_examples(max(1000, 2 * c.bs), c.max_length, folder)
        loader = pretraining_dataloaders(
            {"train": examples},
            hf_tokenizer,
            c.bs,
            c.steps,
            c.max_length,
            0,
            c.num_workers,
            pin_memory=device.type == "cuda",
        ).train
        training = set_kind(Training(c, hf_tokenizer, device, iter(loader)), kind)
        yield {"precision": training.c.precision, "bs": c.bs, "max_length": c.max_length}
        row = {"micro-batch": training.c.micro_batch}
        for found in time_steps(training, seconds):
            per_step = median(found["seconds per step"])
            row |= {"ms/step": 1e3 * per_step, "tokens/s": c.bs * c.max_length / per_step,
                    "hours for all steps": c.steps * per_step / 3600}
            yield {**found, "row": row, "summary": f"{row['ms/step']:.4g} ms/step, {row['tokens/s']:,.0f} tokens/s"}
        row |= {"host ms/step": host_ms(training), "peak MB": peak_memory(device) / 1e6}
        yield {"row": row}
        if training.learn.train_iter % training.learn.training_recorder.every == 0:  # which begins new metrics
            training.take(1)
    yield checks_of_steps(training, kind)
    throughput = matmul_throughput(device, DTYPES[training.c.precision] or torch.float32, 256 if miniature else None)
    flops = c.bs * c.max_length * flops_per_token(RECIPES[size], len(VOCABULARY), c.max_length, c.mask_prob)
    row["share of matmul throughput"] = flops / per_step / throughput
    yield {"row": row, "matmul_flops": throughput}


def checks_of_steps(training, kind):
    """Checks of the steps of a kind: whether they were captured, and their mean loss."""
    loss, graphs = training.learn.train_metrics.compute()["loss"], captured_graphs(training.learn)
    should_capture = kind == "captured" and training.device.type == "cuda" and training.c.precision != "fp16"
    skipped = counters["inductor"]["cudagraph_skips"] if kind == "reduce-overhead" else 0
    checks = {
        "captured graphs are missing": (float(should_capture and not graphs), 0),
        "mean loss": (loss, 100.),
        "functions that torch.compile did not capture": (float(skipped), 0),
    }
    return {"captured graphs": graphs, "mean loss": loss, "checks": checks}


def time_steps(training, seconds):
    """Warm a Training up and time three groups of its steps, which take about `seconds` in all.

    Yields the numbers after each group.
    """
    warmup = warm_up(training, most=warmup_steps(training.c, training.device))
    n = max(1, round(seconds / 3 / seconds_of(lambda: training.take(1), training.device)))
    per_step = []
    for _ in range(3):
        per_step.append(seconds_of(lambda: training.take(n), training.device) / n)
        yield {"seconds per step": per_step, "steps of each group": n, "seconds of warmup steps": warmup}


# What takes the time

def kernels(size, kind, device, miniature):
    """The kernels of a step that take the longest."""
    device = choose_device(device)
    settings = ["size=tiny", "bs=8", "max_length=32"] if miniature else [f"size={size}"]
    training = static_training(device, settings, kind)
    training.take(3)
    yield {"longest kernels": longest_kernels(training)}
