"""Sections of benchmarks.gpu: is a step of pretraining right on a GPU, and how fast is it?

A section is a generator of dictionaries, which are written to the result as soon as they are known: "summary" is one
line, "row" a row of a table, and "checks" {what: (value, the largest one that is right)}.
"""
import contextlib
import gc
import itertools
import resource
import tempfile
import time
from dataclasses import replace
from functools import partial
from statistics import median
from unittest import mock

import torch
from torch._dynamo.utils import counters

import pretrain
from _utils.config import complete
from _utils.recipes import RECIPES, Network
from _utils.seeds import seed_step, set_seed
from _utils.text.batches import pretraining_dataloaders
from _utils.text.vocabulary import tokenizer_from_tokens
from _utils.training import cuda_graph
from _utils.training.device import choose_device, choose_precision
from _utils.training.learners import DTYPES
from benchmarks.flops import flops_per_token
from benchmarks.loader import random_examples
from benchmarks.pretraining import VOCABULARY, Training, random_batch, warmup_steps
from benchmarks.report import matmul_throughput, seconds_of, wait_for

KINDS = ("eager", "compiled", "captured", "reduce-overhead")
MINIATURE = ["size=tiny", "bs=8", "max_length=32"]
# Inductor's options; the first are those of compile=True
CHANGES = {"combined kernels": cuda_graph.GPU_OPTIONS, "separate kernels": {}}


# Changes of the compiled step

def changes(device, miniature, groups=10):
    """The step that compile=True runs with and without what makes it faster, one after the other in this process.

    Seconds until the first step and how many compiled graphs came from the cache, milliseconds per step (median of
    `groups` groups of 20) and of launching it, and the gradients of one batch beside those of the first kind.
    """
    device, checks, reference, summary = choose_device(device), {}, None, []
    for name, options in CHANGES.items():
        with mock.patch.object(cuda_graph, "GPU_OPTIONS", options):
            gradients, ms = yield from changed_step(name, device, miniature, groups)
        reference = reference or gradients
        checks[f"{name}, largest relative difference of a gradient"] = difference(gradients, reference), .05
        checks[f"{name}, MB that are not released"] = release(device), 100.
        summary.append(f"{name} {ms:.4g} ms")
        yield {"checks": checks, "summary": ", ".join(summary)}


def changed_step(name, device, miniature, groups):
    """Yields the numbers of a captured step, under `name`.

    Returns its gradients of a batch, and milliseconds per step.
    """
    settings, n = (MINIATURE, 1) if miniature else (["size=small"], 20)
    counters.clear()
    with traced_only(device):
        training = static_training(device, settings, kind="captured")
        yield {f"{name}: seconds to the first step": seconds_of(lambda: training.take(1), device)}
    yield {f"{name}: graphs from the cache": counters["aot_autograd"]["autograd_cache_hit"]}
    gradients = gradients_of_a_batch(training)  # before rounding makes two trainings differ
    training.take(n)
    ms = 1e3 * median(seconds_of(lambda: training.take(n), device) / n for _ in range(groups))
    yield {f"{name}: ms/step": ms}
    yield {f"{name}: host ms/step": host_ms(training, n)}
    return gradients, ms


def difference(gradients, reference):
    """Largest relative difference of the gradient of a parameter."""
    return max(float((g - reference[p]).norm() / reference[p].norm().clamp(min=1e-20)) for p, g in gradients.items())


def gradients_of_a_batch(training):
    """{name: gradient, on the CPU} of a batch with fixed random numbers.

    Without biases of keys, whose gradients are rounding errors.
    """
    learn = training.learn
    seed_step(learn.seed, 77)
    masked, counts = learn.masks(*learn.on_device(next(training.batches)))
    seed_step(learn.seed, 77, 1)
    learn.gradients.flat.zero_()
    learn.accumulate(*masked, *counts)
    found = {
        name: p.grad.to("cpu", torch.float32, copy=True)
        for name, p in learn.model.named_parameters()
        if p.grad is not None and "key.bias" not in name
    }
    learn.gradients.flat.zero_()
    return found


# The captured step beside the eager one

def replay(device, miniature):
    """The random numbers of the step that compile=True runs, and its results beside those of eager steps.

    First in the precision of the device and then in fp32. On a CPU it is traced, but neither compiled nor captured.
    """
    device = choose_device(device)
    settings = MINIATURE if miniature else ["size=small"]
    with traced_only(device):
        checks = random_numbers(static_training(device, settings, kind="captured"))
        yield {"checks": checks}
        release(device)
        for precision in dict.fromkeys((choose_precision(None, device), "fp32")):
            of_precision = [*settings, f"precision={precision}", "warmup_steps=5"]
            checks |= differences_from_eager(device, of_precision, precision, steps=3 if miniature else 20)
            yield {"checks": checks}
    yield {"summary": ", ".join(f"{name} {value:.1e}" for name, (value, _) in checks.items() if value)}


def random_numbers(training):
    """Checks of masks, dropout and learning rate in the functions that a captured step replays."""
    training.take(1)  # compiles and captures
    learn, batch = training.learn, training.learn.on_device(next(training.batches))

    def masks(step):
        seed_step(learn.seed, step)
        masked, counts = learn.masks(*batch)
        return tuple(tensor.clone() for tensor in masked), tuple(count.clone() for count in counts)

    def loss(masked, counts, step, micro_batch):
        seed_step(learn.seed, step, micro_batch)
        learn.train_metrics.state.zero_()
        learn.accumulate(*masked, *counts)
        return learn.train_metrics.compute()["loss"]

    (masked, counts), (again, _), (others, _) = masks(3), masks(3), masks(4)
    losses = [loss(masked, counts, *seed) for seed in ((3, 1), (3, 1), (3, 2))]
    before = weights_of(learn.model)
    learn.opt.set_hyper("lr", 0.)
    learn.update()
    moved = float((weights_of(learn.model) - before).abs().max())
    same = lambda a, b: float(all(torch.equal(x, y) for x, y in zip(a, b)))
    is_captured = learn.device.type == "cuda" and learn.precision != "fp16"
    missing = 3 - captured_graphs(learn) if is_captured else 0
    return {"functions that were not captured": (missing, 0), "same seed, other masks": (1 - same(masked, again), 0),
            "same seed and masks, another loss": (relative(losses[1], losses[0]), 1e-6),
            "another step, same masks": (same(masked, others), 0),
            "another micro-batch, same dropout": (float(losses[2] == losses[0]), 0),
            "learning rate 0, weights moved by": (moved, 0)}


def differences_from_eager(device, settings, precision, steps):
    """Checks of the losses and weights of captured steps beside eager ones.

    Without dropout, with fixed masks and samples.
    """
    limits = {"fp32": (1e-4, 1e-2), "bf16": (2e-2, .3), "fp16": (2e-2, .3)}[precision]
    with without_dropout(), fixed_masks_and_samples():
        other_losses, other_change = losses_and_change(device, settings, "eager", steps)
        release(device)
        losses, change = losses_and_change(device, settings, "captured", steps)
        release(device)
    by_loss = max(map(relative, losses, other_losses))
    by_weights = float((change - other_change).norm() / other_change.norm())
    return {f"{precision}, losses of {steps} captured and eager steps": (by_loss, limits[0]),
            f"{precision}, change of the weights in {steps} captured and eager steps": (by_weights, limits[1])}


def losses_and_change(device, settings, kind, steps):
    """(the loss of each step, the change of all weights) of a training on the same batches for each kind."""
    set_seed(1)
    c = complete(pretrain.c.override(settings))
    training = static_training(device, settings, kind, iter([random_batch(c, device) for _ in range(steps)]))
    learn, losses = training.learn, []
    start = weights_of(learn.model)
    for _ in range(steps):
        learn.train_metrics.state.zero_()
        training.take(1)
        losses.append(learn.train_metrics.compute()["loss"])
    return losses, weights_of(learn.model) - start


def relative(a, b):
    return abs(a - b) / abs(b)


def weights_of(model):
    """The weights of a model, one after the other, on the CPU.

    Without biases of keys, whose gradients are rounding errors.
    """
    return torch.cat(
        [p.detach().cpu().flatten() for name, p in model.named_parameters() if not name.endswith("key.bias")]
    )


def without_dropout():
    """Context in which networks of the recipes are built without dropout."""
    config = Network.config
    return mock.patch.object(Network, "config", lambda network, *args: config(replace(network, dropout=0.), *args))


@contextlib.contextmanager
def fixed_masks_and_samples():
    """Context in which pretraining masks every seventh position and puts the same tokens there."""
    def every_seventh(inputs, mask_token_index, ignore_index=-100, **_):
        is_mlm_applied = (torch.arange(inputs.shape[1], device=inputs.device) % 7 == 3).expand(inputs.shape)
        return (
            inputs.masked_fill(is_mlm_applied, mask_token_index),
            inputs.masked_fill(~is_mlm_applied, ignore_index),
            is_mlm_applied,
        )

    def build_masking(c, hf_tokenizer):
        return pretrain.MaskedLMCallback(
            hf_tokenizer.mask_token_id, hf_tokenizer.all_special_ids, len(hf_tokenizer), masking=every_seventh
        )

    def sample(logits, *_):
        return 100 + torch.arange(len(logits), device=logits.device) % 1000

    with mock.patch.object(pretrain, "build_masking", build_masking):
        with mock.patch.object(pretrain, "sample", sample):
            yield


# Steps with the loader

def steps(size, kind, device, miniature, seconds=9.):
    """Speed and memory of pretraining with the batches of a recipe, from Arrow through the workers of the loader.

    kind: of KINDS.
    """
    device, hf_tokenizer = choose_device(device), tokenizer_from_tokens(VOCABULARY)
    settings = ["bs=8", "max_length=32", "num_workers=0"] if miniature else []
    c = complete(pretrain.c.override([f"size={size}", f"compile={kind != 'eager'}", *settings]))
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
        if training.learn.train_iter % training.learn.training_log.every == 0:  # which begins new metrics
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


def warm_up(training, most, least=3, seconds=20.):
    """Seconds of each warmup step. There are `most`, or fewer if they are slow, but at least `least`."""
    taken = []
    while len(taken) < most and (len(taken) < least or sum(taken) < seconds):
        taken.append(seconds_of(lambda: training.take(1), training.device))
    return taken


# Trainings

def static_training(device, settings, kind, batches=None):
    """Training of a configuration on random batches, in one of KINDS, on the same weights each time.

    Each step has one micro-batch.
    """
    # With many steps, the metrics are not reset meanwhile.
    c = complete(pretrain.c.override(["masking=official", "steps=1000000", *settings, f"compile={kind != 'eager'}"]))
    c = c.copy_with({"micro_batch": c.bs})
    set_seed(0)
    batches = batches or itertools.repeat(random_batch(c, device))
    return set_kind(Training(c, tokenizer_from_tokens(VOCABULARY), device, batches), kind)


def set_kind(training, kind):
    """Let a Training built with compile=True only compile its steps, or use torch.compile's own CUDA graphs."""
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


def traced_only(device):
    """Context in which compile=True, on a CPU, traces the functions of a step but runs PyTorch's own operators."""
    if device.type == "cuda":
        return contextlib.nullcontext()
    return mock.patch.object(cuda_graph, "compile_step", partial(cuda_graph.compile_step, backend="aot_eager"))


def release(device):
    """Free what the trainings that are no longer referenced occupied. Returns the megabytes left on a GPU.

    Learners are parts of reference cycles, and torch.compile keeps their graphs.
    """
    torch._dynamo.reset()
    gc.collect()
    if device.type == "cpu":
        return 0.
    torch.cuda.empty_cache()
    return torch.cuda.memory_allocated(device) / 1e6


def host_ms(training, n=20):
    """Median milliseconds in which Python launches a step, without waiting for a GPU.

    If a step takes hardly longer, the GPU waits for Python.
    """
    found = []
    for _ in range(n):
        wait_for(training.device)
        started = time.perf_counter()
        training.take(1)
        found.append(1e3 * (time.perf_counter() - started))
    return median(found)


def peak_memory(device):
    """Peak bytes of tensors on a GPU, or of this process."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
