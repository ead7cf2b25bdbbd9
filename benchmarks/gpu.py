"""A quarter of an hour on a GPU: does everything run, are the results right, and how fast is it?

    python -m benchmarks.gpu [device=cuda] [sections=equality,replay,changes,runs,steps,finetuning] [sizes=small]
    [kinds=eager,captured]
                             [at_once=1,2,4] [glue_dir=PATH] [limit=120] [minutes=12] [results=benchmarks/results]
                             [miniature=False]

The environment (versions, driver, GPUs) is always recorded first. Then, in this order:
equality: a step with the same weights, masks and samples, compared with the CPU.   replay: the compiled and captured
step, which compile=True runs: random numbers, learning rate, and 20 steps compared with eager ones.   changes: what
makes that step faster, each with its time, its compilation and its gradients, one after the other in one process.
runs: short runs of pretrain.py in every precision, loaded again, and compiled.   steps: speed, memory and longest
kernels of pretraining from the loader on; `kinds`: eager; compiled; compiled and captured in CUDA graphs
(compile=True); compiled with torch.compile's own CUDA graphs.   finetuning: rows/s with several runs at once on one
GPU, on CoLA of glue_dir or on synthetic sentences.

Each measurement is a new process that is stopped after `limit` seconds, so a failure does not affect the others; what
it has measured by then is kept. After `minutes` no further one is started. All are collected in <results>/gpu_<name of
the device>.json, which keeps earlier measurements that are not repeated. The exit status is 1 if a measurement failed,
was not finished, or is beyond its threshold. Needs no network. miniature=True: tiny sizes, to test the command itself,
also with device=cpu.

A section is a generator of dictionaries, which are written to the result as soon as they are known: "summary" is one
line, "row" a row of a table, and "checks" {what: (value, the largest one that is right)}.
"""
import contextlib
import itertools
import json
import math
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import mean, median
from typing import Literal
from unittest import mock

import psutil
import torch
from torch.profiler import ProfilerActivity, profile

import finetune  # noqa: F401  shows what is missing in the environment
import pretrain
from _utils.config import complete
from _utils.finetuning.runs import Runs
from _utils.keys import Count, Device, Size, Text, list_of
from _utils.objectives.kinds import flops_per_token
from _utils.optim import clip_by_global_norm
from _utils.recipes import RECIPES, Network
from _utils.runs.checkpoints import save_pretrained, versions
from _utils.runs.log import read_metrics
from _utils.tasks.glue import GLUE, TASKS
from _utils.text.batches import pretraining_dataloaders
from _utils.text.vocabulary import tokenizer_from_tokens
from _utils.training import cuda_graph
from _utils.training.device import choose_device, choose_precision, seed_step, set_seed
from _utils.training.learners import DTYPES
from benchmarks.finetuning import load_tables, tokenizer_for
from benchmarks.loader import random_examples
from benchmarks.pretraining import VOCABULARY, Training, random_batch, warmup_steps
from benchmarks.report import describe_machine, launcher, matmul_throughput, parse, processes, seconds_of, slug

REPO = Path(__file__).parents[1]


# Environment

def environment(device, **_):
    """Versions, driver, GPUs and compilers."""
    device = choose_device(device)
    found = {
        "machine": describe_machine(device),
        "versions": versions(),
        "cuda": torch.version.cuda,
        "driver": driver_version(),
        "c++ compiler": shutil.which(os.environ.get("CXX", "g++")),
        "cores": len(os.sched_getaffinity(0)),
    }
    found["gpus"] = (
        [torch.cuda.get_device_properties(i) for i in range(torch.cuda.device_count())] if device.type == "cuda" else []
    )
    found["gpus"] = [{"name": gpu.name, "GB": gpu.total_memory / 1e9, "compute capability": f"{gpu.major}.{gpu.minor}",
                      "processors": gpu.multi_processor_count} for gpu in found["gpus"]]
    found["summary"] = (
        f"{len(found['gpus'])} GPUs, driver {found['driver']}, CUDA {found['cuda']}, torch {found['versions']['torch']}"
    )
    yield found


def driver_version():
    """Version of the NVIDIA driver, or None."""
    if not shutil.which("nvidia-smi"):
        return None
    command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    return subprocess.run(command, capture_output=True, text=True).stdout.partition("\n")[0] or None


# Equality

def equality(device, miniature):
    """One step in fp32 on the CPU and on the device, without dropout, with the weights, masks and samples of the CPU.

    The biases of the keys are left out: attention does not depend on them, so their gradients are nothing but rounding
    errors.
    """
    device, hf_tokenizer = choose_device(device), tokenizer_from_tokens(VOCABULARY)
    c = complete(
        pretrain.c.override([f"size={'tiny' if miniature else 'small'}", "bs=4", "max_length=64", "masking=official"])
    )
    set_seed(0)
    x, _ = pretrain.build_masking(c, hf_tokenizer).mask(*random_batch(c, torch.device("cpu")))
    sampled, draw = [], pretrain.sample

    def draw_and_keep(*arguments):
        sampled.append(draw(*arguments))
        return sampled[-1]

    with without_dropout():
        with mock.patch.object(pretrain, "sample", draw_and_keep):
            expected = step_from_start(c, hf_tokenizer, x, torch.device("cpu"))
        with mock.patch.object(pretrain, "sample", lambda logits, *_: sampled[0].to(logits.device)):
            found = step_from_start(c, hf_tokenizer, x, device)
    differences, worst = {}, {}
    for kind, values in expected.items():
        by_name = {
            name: relative_difference(found[kind][name], value)
            for name, value in values.items()
            if not name.endswith("key.bias")
        }
        worst[kind] = max(by_name, key=by_name.get)
        differences[kind] = by_name[worst[kind]]
    limits = {"losses": 1e-4, "gradients": 1e-3, "weights": 2e-3}
    yield {
        "relative differences": differences,
        "worst": worst,
        "losses": {name: float(loss) for name, loss in found["losses"].items()},
        "checks": {
            f"{kind}, relative difference from the CPU": (differences[kind], limit) for kind, limit in limits.items()
        },
        "summary": "maximum relative difference from the CPU: "
        + ", ".join(f"{kind} {difference:.1e} ({worst[kind]})" for kind, difference in differences.items()),
    }


def without_dropout():
    """Context in which networks of the recipes are built without dropout."""
    config = Network.config
    return mock.patch.object(Network, "config", lambda network, *args: config(replace(network, dropout=0.), *args))


def step_from_start(c, hf_tokenizer, x, device):
    """{"losses", "gradients", "weights": {name: tensor on the CPU}} of the first step of a configuration. x: the
    model's inputs.
    """
    set_seed(0)
    model = pretrain.build_model(c, hf_tokenizer, fixed_slots=True).to(device)
    optimizer = pretrain.build_optimizer(model, c.lr)
    x = tuple(tensor.to(device) for tensor in x)
    loss, terms = pretrain.build_loss(c)(model(*x), x[-1], model.counts(*x), return_losses=True)
    loss.backward()
    gradients = {
        name: parameter.grad.cpu().clone() for name, parameter in model.named_parameters() if parameter.grad is not None
    }
    clip_by_global_norm(model.parameters())
    optimizer.step()
    losses = dict(zip(("loss", "generator", "discriminator"), (loss, *terms)))
    return {"losses": {name: loss.detach().cpu() for name, loss in losses.items()}, "gradients": gradients,
            "weights": {name: parameter.detach().cpu() for name, parameter in model.named_parameters()}}


def relative_difference(a, b):
    """Largest difference between two tensors, relative to the largest element of b."""
    return float((a - b).abs().max() / b.abs().max().clamp(min=1e-30))


# The compiled and captured step

def replay(device, miniature):
    """The step that compile=True runs, in the precision of the device: its random numbers, and its results beside those
    of eager steps.

    On a CPU it is traced, but neither compiled nor captured.
    """
    device = choose_device(device)
    changes = ["size=tiny", "bs=8", "max_length=32"] if miniature else ["size=small"]
    with contextlib.nullcontext() if device.type == "cuda" else traced_only():
        checks = random_numbers(static_training(device, changes, kind="captured"))
        yield {"checks": checks}
        for precision in dict.fromkeys(("fp32", choose_precision(None, device))):
            checks = checks | differences_from_eager(
                device, [*changes, f"precision={precision}", "warmup_steps=5"], precision, steps=3 if miniature else 20
            )
            yield {"checks": checks}
    yield {"summary": ", ".join(f"{name} {value:.1e}" for name, (value, _) in checks.items() if value)}


def traced_only():
    """Context in which compile=True traces the functions of a step as one graph each, but runs PyTorch's own operators.
    """
    return mock.patch.object(cuda_graph, "compile_step", partial(cuda_graph.compile_step, backend="aot_eager"))


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


def random_numbers(training):
    """Checks of masks, dropout and learning rate in the functions that a static step replays."""
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
    missing = 3 - captured_graphs(learn) if learn.device.type == "cuda" else 0
    return {"functions that were not captured": (missing, 0), "same seed, other masks": (1 - same(masked, again), 0),
            "same seed and masks, another loss": (relative(losses[1], losses[0]), 1e-6),
            "another step, same masks": (same(masked, others), 0),
            "another micro-batch, same dropout": (float(losses[2] == losses[0]), 0),
            "learning rate 0, weights moved by": (moved, 0)}


def differences_from_eager(device, changes, precision, steps):
    """Checks of the losses and weights of captured steps beside eager ones: without dropout, with fixed masks and
    samples.
    """
    limits = {"fp32": (1e-4, 1e-2), "bf16": (2e-2, .3), "fp16": (2e-2, .3)}[precision]
    found = {}
    with without_dropout(), fixed_masks_and_samples():
        for kind in ("eager", "captured"):
            set_seed(1)
            c = complete(pretrain.c.override(changes))
            training = static_training(device, changes, kind, iter([random_batch(c, device) for _ in range(steps)]))
            learn, losses = training.learn, []
            start = weights_of(learn.model)
            for _ in range(steps):
                learn.train_metrics.state.zero_()
                training.take(1)
                losses.append(learn.train_metrics.compute()["loss"])
            found[kind] = losses, weights_of(learn.model) - start
    (losses, change), (other_losses, other_change) = found["captured"], found["eager"]
    by_loss = max(map(relative, losses, other_losses))
    by_weights = float((change - other_change).norm() / other_change.norm())
    return {f"{precision}, losses of {steps} captured and eager steps": (by_loss, limits[0]),
            f"{precision}, change of the weights in {steps} captured and eager steps": (by_weights, limits[1])}


def relative(a, b):
    return abs(a - b) / abs(b)


def weights_of(model):
    """The weights of a model, one after the other, on the CPU; without biases of keys, whose gradients are rounding
    errors.
    """
    return torch.cat(
        [p.detach().cpu().flatten() for name, p in model.named_parameters() if not name.endswith("key.bias")]
    )


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

    with mock.patch.object(pretrain, "build_masking", build_masking), mock.patch.object(pretrain, "sample", sample):
        yield


# Changes of the compiled step

CHANGES = {  # (Inductor's options, sampling)
    "separate kernels": ({}, "fp32_gumbel"),
    "combined kernels": (cuda_graph.GPU_OPTIONS, "fp32_gumbel"),
    "combined kernels, inverse_cdf": (cuda_graph.GPU_OPTIONS, "inverse_cdf")}


def changes(device, miniature, groups=10):
    """The step that compile=True runs with and without what makes it faster, one after the other in this process.

    Seconds until the first step, milliseconds per step (median of `groups` groups of 20), the longest kernels, and the
    gradients of one batch beside those of the first kind, where the same samples are drawn.
    """
    device, found, reference = choose_device(device), {}, None
    for name, (options, sampling) in CHANGES.items():
        row, gradients, kernels = measured_step(device, miniature, options, sampling, groups)
        reference = reference or gradients
        if sampling == "fp32_gumbel":
            differences = {
                p: float((g - reference[p]).norm() / reference[p].norm().clamp(min=1e-20)) for p, g in gradients.items()
            }
            row["largest relative difference of a gradient"] = max(differences.values())
        found[name] = row
        yield {f"{name}: {key}": value for key, value in row.items()} | {f"{name}: longest kernels": kernels}
    yield {"checks": {"gradients of combined "
                      "kernels": (found["combined kernels"]["largest relative difference of a gradient"], .05)},
           "summary": ", ".join(f"{name} {found[name]['ms/step']:.4g} ms" for name in CHANGES)}


def measured_step(device, miniature, options, sampling, groups):
    """({column: number}, {name: gradient of a batch}, longest kernels) of a compiled and captured step with Inductor's
    options.
    """
    torch._dynamo.reset()
    settings = ["size=tiny", "bs=8", "max_length=32"] if miniature else ["size=small"]
    with (
        mock.patch.object(cuda_graph, "GPU_OPTIONS", options),
        contextlib.nullcontext() if device.type == "cuda" else traced_only(),
    ):
        training = static_training(device, [*settings, f"sampling={sampling}"], kind="captured")
        row = {"seconds to the first step": seconds_of(lambda: training.take(1), device)}
    gradients, n = gradients_of_a_batch(training), 1 if miniature else 20
    training.take(n)
    row["ms/step"] = 1e3 * median(seconds_of(lambda: training.take(n), device) / n for _ in range(groups))
    return row, gradients, longest_kernels(training, 25)


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


# Pretraining runs

def runs(device, miniature):
    """Short runs of pretrain.py in every precision and compiled, and one that is loaded again: their mean losses in the
    second half.

    A single step would depend on its masks, which a compiled run draws differently.
    """
    device = choose_device(device)
    kinds = {"eager": [], "eager, loaded again": [], "fp32": ["precision=fp32"], "bf16": ["precision=bf16"]}
    if device.type == "cuda":
        kinds |= {"fp16": ["precision=fp16"], "compiled": ["compile=True"]}
    with tempfile.TemporaryDirectory() as folder:
        write_random_corpus(Path(folder))
        settings = [
            "size=tiny",
            "datas=text.txt",
            "vocab=vocab.txt",
            "seed=5",
            "bs=32",
            "max_length=64",
            "num_workers=1",
            "logger=None",
            f"steps={20 if miniature else 100}",
            f"device={device}",
        ]
        losses = {}
        for kind, more in kinds.items():
            name = kind.partition(",")[0]
            run_script(folder, 1, "pretrain.py", *settings, *more, f"base_run_name={name}")
            rows = read_metrics(Path(folder, f"checkpoints/pretrain/{name}_5/metrics.jsonl"), "train")
            losses[kind] = mean(row["loss"] for row in rows[len(rows) // 2:])
            yield {
                "losses": losses,
                "summary": "mean loss in the second half: "
                + ", ".join(f"{kind} {loss:.4g}" for kind, loss in losses.items()),
                "checks": {
                    f"{kind}, relative difference from eager": (relative(loss, losses["eager"]), 0.05)
                    for kind, loss in losses.items()
                },
            }


# Pretraining steps

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
        for found in time_steps(training, seconds):
            yield found
        if training.learn.train_iter % training.learn.training_recorder.every == 0:  # which begins new metrics
            training.take(1)
    loss, graphs = training.learn.train_metrics.compute()["loss"], captured_graphs(training.learn)
    should_capture = kind == "captured" and device.type == "cuda" and training.c.precision != "fp16"
    skipped = torch._dynamo.utils.counters["inductor"]["cudagraph_skips"] if kind == "reduce-overhead" else 0
    yield {"captured graphs": graphs, "mean loss": loss,
           "checks": {"captured graphs are "
                      "missing": (float(should_capture and not graphs), 0), "mean loss": (loss, 100.),
                      "functions that torch.compile did not capture": (float(skipped), 0)}}
    per_step, peak = median(found["seconds per step"]), peak_memory(device)
    throughput = matmul_throughput(device, DTYPES[training.c.precision] or torch.float32, 256 if miniature else None)
    tokens = c.bs * c.max_length
    flops = tokens * flops_per_token(RECIPES[size], len(VOCABULARY), c.max_length, c.mask_prob)
    row = {
        "ms/step": 1e3 * per_step,
        "tokens/s": tokens / per_step,
        "share of matmul throughput": flops / per_step / throughput,
        "peak MB": peak / 1e6,
        "micro-batch": training.c.micro_batch,
        "hours for all steps": c.steps * per_step / 3600,
    }
    yield {"row": row, "matmul_flops": throughput,
           "summary": f"{row['ms/step']:.4g} ms/step, {row['tokens/s']:,.0f} tokens/s, "
                      f"{row['share of matmul throughput']:.1%} of matmul throughput, {graphs} CUDA graphs"}
    yield {"longest kernels": longest_kernels(training)}  # last, because the numbers above are kept if profiling fails


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


def longest_kernels(training, n=20):
    """{name: share of the time} of the kernels of a GPU, or of the operators on a CPU, that take the longest in a step.
    """
    activity, attribute = {"cuda": (ProfilerActivity.CUDA, "self_device_time_total"),
                           "cpu": (ProfilerActivity.CPU, "self_cpu_time_total")}[training.device.type]
    with profile(activities=[activity]) as found:
        seconds_of(lambda: training.take(1), training.device)
    times = {event.key: getattr(event, attribute) for event in found.key_averages()}
    return {name: times[name] / sum(times.values()) for name in sorted(times, key=times.get, reverse=True)[:n]}


def captured_graphs(learn):
    """The number of CUDA graphs that the steps of a learner replay: 0 for eager steps."""
    functions = [getattr(learn, name) for name in ("masks", "accumulate", "update")]
    return sum(len(function.graphs) for function in functions if isinstance(function, cuda_graph.CapturedFunction))


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


# Scripts

def run_script(folder, n_processes, script, *settings):
    """Seconds of a script of the repository in n processes, with `folder` as working directory."""
    started = time.perf_counter()
    subprocess.run([sys.executable, *launcher(n_processes), REPO / script, *settings], cwd=folder, check=True)
    return time.perf_counter() - started


def finetuning(at_once, device, glue_dir, miniature):
    """Rows per second of `at_once` runs of CoLA that share a device, by finetune.py.

    Each process does two runs; the second counts.
    """
    device, size = choose_device(device), "tiny" if miniature else "small"
    with tempfile.TemporaryDirectory() as folder:
        tables = Path(folder, "glue")
        [table] = load_tables(["cola"], glue_dir, tables).values()
        c, hf_tokenizer = complete(pretrain.c.override([f"size={size}"])), tokenizer_for(None, {TASKS["cola"]: table})
        set_seed(0)
        save_pretrained(Path(folder, "fresh.pth"), pretrain.build_model(c, hf_tokenizer), c, hf_tokenizer, step=0)
        rows = 64 if miniature else len(table)
        # about as many as a run of CoLA
        settings = {"rows": rows, "epochs": 1 if miniature else math.ceil(24_000 / rows)}
        run_script(
            folder,
            at_once,
            "finetune.py",
            f"size={size}",
            "pretrained_checkpoint=fresh.pth",
            f"glue_dir={glue_dir or tables}",
            "tasks=cola",
            f"end={2 * at_once}",
            f"task_overrides={{'cola': {settings}}}",
            f"device={device}",
            "logger=None",
            "group_name=benchmark",
        )
        finished = Runs(path=Path(folder, "checkpoints/glue/scores.jsonl"))
    each = [row["train_rows"] * settings["epochs"] / row["seconds"] for row in finished if row["run"] >= at_once]
    speed = at_once * median(each)
    minutes = {task.name: task.rows[0] * (1 + task.unordered) * task.epochs / speed / 60 for task in GLUE if task.devs}
    yield {
        "row": {
            "rows/s": speed,
            "rows/s of each run": median(each),
            "minutes for MNLI": minutes["mnli"],
            "minutes for a run of all nine tasks": sum(minutes.values()),
        },
        "estimated minutes": minutes,
        "table": "CoLA" if glue_dir else "synthetic CoLA, short sentences",
        "rows/s of runs": each,
        "summary": f"{speed:,.0f} rows/s",
    }


def write_random_corpus(folder):
    """Write text.txt, documents of random words, and vocab.txt."""
    rng, words = random.Random(0), VOCABULARY[5:2000]
    documents = ["\n".join(" ".join(rng.choices(words, k=15)) + " ." for _ in range(20)) for _ in range(400)]
    Path(folder, "text.txt").write_text("\n\n".join(documents))
    Path(folder, "vocab.txt").write_text("\n".join([*VOCABULARY[:2000], "."]))


# The command

SECTIONS = {
    function.__name__: function for function in (environment, equality, replay, changes, runs, steps, finetuning)
}
KINDS = ("eager", "compiled", "captured", "reduce-overhead")
DEFAULTS = {"device": "cuda", "sections": [name for name in SECTIONS if name != "environment"], "sizes": ["small"],
            "kinds": ["eager", "captured"], "at_once": [1, 2, 4], "glue_dir": None, "limit": 120, "minutes": 12,
            "results": str(REPO / "benchmarks/results"), "miniature": False}
TYPES = {
    "device": Device | None,
    "sections": list_of(Literal[tuple(SECTIONS)], f"a list of {', '.join(SECTIONS)}"),
    "sizes": list_of(Size, "a list of sizes"),
    "kinds": list_of(Literal[KINDS], f"a list of {', '.join(KINDS)}"),
    "at_once": processes(1),
    "glue_dir": Text | None,
    "limit": Count,
    "minutes": Count,
    "results": Text,
    "miniature": bool,
}


def measurements(given):
    """{name: (section, its arguments)}, the most important first."""
    shared = {"device": given.device, "miniature": given.miniature}
    glue_dir = given.glue_dir and str(Path(given.glue_dir).absolute())
    found = {name: (name, shared) for name in ("equality", "replay", "changes", "runs")}
    for size in ["tiny"] if given.miniature else given.sizes:
        for kind in given.kinds if given.device != "cpu" else ["eager"]:
            found[f"steps of {size}, {kind}"] = "steps", {**shared, "size": size, "kind": kind}
    for n in given.at_once:
        found[f"finetuning, {n} at once"] = "finetuning", {**shared, "at_once": n, "glue_dir": glue_dir}
    return {name: (section, arguments) for name, (section, arguments) in found.items() if section in given.sections}


def measure(section, arguments, limit):
    """Result of a section in a new process: {"status", "seconds", "printed", its numbers}.

    status: 'ok', 'failed' or 'timed out'; the latter two may have some of the numbers.   printed: the end of its
    output.
    """
    started = time.perf_counter()
    compiled = str(Path(tempfile.gettempdir(), "torchinductor_electra"))  # kept, so that a rerun does not compile again
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        found, printed = Path(folder, "found.json"), Path(folder, "printed")
        command = [sys.executable, "-m", "benchmarks.gpu", "--section", section, json.dumps(arguments), str(found)]
        environment = {"TORCHINDUCTOR_CACHE_DIR": compiled, **os.environ, "TMPDIR": folder, "HF_HUB_OFFLINE": "1"}
        with printed.open("w") as output:
            process = subprocess.Popen(
                command, cwd=REPO, env=environment, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
            )
        try:
            status = "failed" if process.wait(limit) else "ok"
        except subprocess.TimeoutExpired:
            status = "timed out"
        finally:
            stop(process)
        result = {"status": status, "seconds": round(time.perf_counter() - started, 1),
                  "printed": printed.read_text(errors="replace")[-3000:]}
        return result | (json.loads(found.read_text()) if found.exists() else {})


def run_section(section, arguments, path):
    """Write what a section finds to a JSON file, as soon as it is known."""
    found, path = {}, Path(path)
    for more in SECTIONS[section](**json.loads(arguments)):
        found |= more
        unfinished = path.with_suffix(".unfinished")
        unfinished.write_text(json.dumps(found))
        unfinished.replace(path)


def stop(process):
    """Kill a process, if it still runs, with all that it started; the workers of a launcher have sessions of their own.
    """
    started = []
    with contextlib.suppress(psutil.NoSuchProcess):
        started = psutil.Process(process.pid).children(recursive=True)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    for one in started:
        with contextlib.suppress(psutil.NoSuchProcess):
            one.kill()
    process.wait()


def exceeded(found):
    """The checks of a result whose value is not a number up to its limit, each as one line."""
    return [f"{name}: {value} (at most {limit})" for name, (value, limit) in found.get("checks", {}).items()
            if value is None or not (math.isfinite(value) and value <= limit)]


def save(path, machine, command, found):
    """Add results to the file of the machine; those that it already has under another name are kept."""
    path.parent.mkdir(parents=True, exist_ok=True)
    earlier = json.loads(path.read_text())["measurements"] if path.exists() else {}
    unfinished = path.with_suffix(".unfinished")
    unfinished.write_text(
        json.dumps({"command": command, "machine": machine, "measurements": earlier | found}, indent=1) + "\n"
    )
    unfinished.replace(path)


def main(arguments):
    if arguments[:1] == ["--section"]:
        return run_section(*arguments[1:])
    given, started, problems = parse(arguments, DEFAULTS, TYPES), time.monotonic(), []
    first = measure("environment", {"device": given.device}, given.limit)
    if first["status"] != "ok":
        sys.exit(f"{first['printed']}\nerror: The environment is incomplete: see the last lines above.")
    machine, command = first["machine"], " ".join(["python -m benchmarks.gpu", *arguments])
    path = Path(given.results, f"gpu_{slug(machine.partition(',')[0])}{'_miniature' if given.miniature else ''}.json")
    save(path, machine, command, {"environment": first})
    print(f"{machine}, {first['summary']}", flush=True)
    for name, (section, its_arguments) in measurements(given).items():
        seconds_left = 60 * given.minutes - (time.monotonic() - started)
        if seconds_left < 1:
            problems.append(f"{name} (no time left)")
            continue
        found = measure(section, its_arguments, min(given.limit, seconds_left))
        save(path, machine, command, {name: found})
        print(f"{name}: {found['status']} ({found['seconds']:.0f} s) {found.get('summary', '')}", flush=True)
        if found["status"] != "ok":
            print(found["printed"], flush=True)
            problems.append(f"{name} ({found['status']})")
        problems += [f"{name}, {check}" for check in exceeded(found)]
    print(f"Written to {path}")
    if problems:
        sys.exit(
            "error: Not measured, or beyond its threshold: "
            + "; ".join(problems)
            + ". The output of each is above and in the file."
        )


if __name__ == "__main__":
    main(sys.argv[1:])
