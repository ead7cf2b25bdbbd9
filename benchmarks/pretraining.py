"""Pretraining steps, compared with a reference that computes as electra_pytorch does; both alternate in one process.

    python -m benchmarks.pretraining [size=small] [bs=32] [max_length=128] [device=cpu] [rounds=5] [steps=3]
                                      [micro_batch=...] [compile=False]

Prints ms/step, tokens/s, the ratio to the reference of the same round, peak memory of the tensors of a step, the share of the measured
matmul throughput of the machine, and the share of the time of each part of a step; writes them to benchmarks/results/. Examples are full
and have random ids, because the text does not matter here.
"""
import contextlib
import sys
import tempfile
import time
from functools import partial
from statistics import median
from types import SimpleNamespace

import torch

import pretrain
from _utils.config import complete
from _utils.config_rules import PRETRAIN_RULES, count
from _utils.pretraining_data.batches import pretraining_dataloaders
from _utils.pretraining_data.vocabulary import SPECIAL_TOKENS, tokenizer_from_tokens
from _utils.recipes import RECIPES, flops_per_token
from _utils.training.device import choose_device
from _utils.training.learners import DTYPES
from _utils.training.processes import Processes
from _utils.training.seeds import set_seed
from benchmarks.loader import random_examples
from benchmarks.reference import OneByOneAdam, ReferenceModel, reference_step
from benchmarks.report import (
    alternate,
    describe_machine,
    matmul_throughput,
    median_ratio,
    parse,
    peak_bytes,
    seconds_of,
    wait_for,
    write_results,
)

DEFAULTS = {"size": "small", "bs": None, "max_length": None, "device": None, "micro_batch": None, "compile": False, "rounds": 5, "steps": 3}
FORWARDED = ("size", "bs", "max_length", "micro_batch", "compile")  # keys of the configuration of pretrain.py
RULES = {**{key: PRETRAIN_RULES[key] for key in (*FORWARDED, "device")}, "rounds": count(), "steps": count()}
VOCABULARY = [*SPECIAL_TOKENS, *(f"word{i}" for i in range(30517))]


def build_learner(c, hf_tokenizer, device, precision):
    """The learner of pretrain.py, without data and log."""
    c = pretrain.settle(c.copy_with({"precision": precision, "device": str(device)}), None, hf_tokenizer, Processes())
    learn = pretrain.build_learner(c, hf_tokenizer, SimpleNamespace(device=device), None, Processes())
    learn.training, learn.train_iter = True, 0
    return learn


def train_step(learn, batch):
    """One training step of a PretrainingLearner."""
    learn.xb, learn.yb = batch, ()
    learn._do_one_batch()


def variants(c, hf_tokenizer, device):
    """({name: function of a batch that takes one step}, each with its own model; {precision: learner of pretrain.py})."""
    learners = {precision: build_learner(c, hf_tokenizer, device, precision) for precision in ("fp32", "bf16")}

    def reference(precision):
        set_seed(0)
        model = ReferenceModel(pretrain.build_model(c, hf_tokenizer)).to(device)
        optimizer = OneByOneAdam(model.named_parameters(), 1e-4)
        ids = hf_tokenizer.mask_token_id, len(hf_tokenizer), hf_tokenizer.all_special_ids
        return lambda batch: reference_step(model, optimizer, batch, ids, precision)

    steps = {}
    for precision, learn in learners.items():
        steps[f"reference {precision}"] = reference(precision)
        steps[f"pretrain.py {precision}"] = partial(train_step, learn)
    return steps, learners


class Stopwatch:
    """Accumulates the seconds of each part of a step, {part: seconds}. `lap(part)` ends a part."""

    def __init__(self, device):
        self.device = device
        self.restart()

    def restart(self):
        self.seconds, self.last = {}, time.perf_counter()

    def lap(self, part):
        wait_for(self.device)
        now = time.perf_counter()
        self.seconds[part] = self.seconds.get(part, 0.) + now - self.last
        self.last = now


@contextlib.contextmanager
def timed_parts(watch, learn):
    """Context manager: the watch takes a lap at each part of the learner's steps, from masking to the optimizer."""
    hooks = [network.register_forward_pre_hook(lambda *_, before=before: watch.lap(before))
             for network, before in ((learn.model.generator, "masking"), (learn.model.discriminator, "sampling"))]
    hooks += [network.register_forward_hook(lambda *_, part=part: watch.lap(part))
              for network, part in ((learn.model.generator, "generator"), (learn.model.discriminator, "discriminator"))]
    plain = learn._backward, learn._step

    def timed(before, function, part):
        watch.lap(before)
        function()
        watch.lap(part)
    learn._backward, learn._step = partial(timed, "losses", plain[0], "backward"), partial(timed, "backward", plain[1], "optimizer")
    try:
        yield
    finally:
        learn._backward, learn._step = plain
        for hook in hooks:
            hook.remove()


def shares(learn, loader, device):
    """{part: share of the time} of a learner's steps, with batches from Arrow in this process. Waiting at each part slows a GPU down."""
    watch = Stopwatch(device)
    with timed_parts(watch, learn):
        for i, batch in enumerate(loader):
            batch = tuple(tensor.to(device) for tensor in batch)
            watch.lap("data")
            train_step(learn, batch)
            if i == 0:  # warmup
                watch.restart()
    total = sum(watch.seconds.values())
    return {part: seconds / total for part, seconds in watch.seconds.items()}


def random_batch(c, device):
    """(input_ids (B, L), sentA_length (B,)): two segments of random tokens that fill the length."""
    ids = torch.randint(5, len(VOCABULARY), (c.bs, c.max_length), device=device)
    ids[:, 0], ids[:, c.max_length // 2], ids[:, -1] = 2, 3, 3
    return ids, torch.full((c.bs,), c.max_length // 2 + 1, device=device)


def measure(steps, batches, device, rounds, n):
    """{name: seconds per step of each round}; each variant takes n steps per round."""
    def n_times(step):
        for i in range(n):
            step(batches[i % len(batches)])

    for step in steps.values():
        step(batches[0])
    return alternate({name: lambda step=step: seconds_of(partial(n_times, step), device) / n for name, step in steps.items()}, rounds)


def main(arguments):
    given = parse(arguments, DEFAULTS, RULES)
    device = choose_device(given["device"])
    c = complete(pretrain.c.override([f"{key}={given[key]}" for key in FORWARDED if given[key]]))
    hf_tokenizer = tokenizer_from_tokens(VOCABULARY)
    batches = [random_batch(c, device) for _ in range(4)]
    steps, learners = variants(c, hf_tokenizer, device)
    seconds = measure(steps, batches, device, given["rounds"], given["steps"])
    tokens, flops = c.bs * c.max_length, flops_per_token(RECIPES[c.size], len(VOCABULARY), c.max_length, c.mask_prob)
    throughput = {precision: matmul_throughput(device, DTYPES[precision] or torch.float32) for precision in learners}
    rows = {}
    for name, step in steps.items():
        rows[name] = {"ms/step": 1e3 * median(seconds[name]), "tokens/s": tokens / median(seconds[name]),
                      "ratio to reference fp32": median_ratio(seconds["reference fp32"], seconds[name]),
                      "peak MB": peak_bytes(lambda step=step: step(batches[0]), device) / 1e6,
                      "share of matmul throughput": tokens * flops / median(seconds[name]) / throughput[name.split()[1]]}
    write_results("pretraining", rows, {**given, "bs": c.bs, "max_length": c.max_length, "rounds_seconds": seconds,
                                        "machine": describe_machine(device), "matmul_flops": throughput,
                                        "shares": parts_of_a_step(c, hf_tokenizer, learners, device, given["steps"])})


def parts_of_a_step(c, hf_tokenizer, learners, device, n):
    """Print and return {'pretrain.py fp32': {part: share of the time}, 'pretrain.py bf16': ...}, over n steps."""
    parts = {}
    with tempfile.TemporaryDirectory() as folder:
        examples = random_examples(c.bs * 4, c.max_length, folder)
        for precision, learn in learners.items():
            loader = pretraining_dataloaders({"train": examples}, hf_tokenizer, c.bs, n + 1, c.max_length, 0).train
            name = f"pretrain.py {precision}"
            parts[name] = shares(learn, loader, device)
            print(f"{name}: " + ", ".join(f"{part} {share:.1%}" for part, share in parts[name].items()))
    return parts


if __name__ == "__main__":
    main(sys.argv[1:])
