"""Pretraining steps against the way electra_pytorch computes them, alternating in one process.

    python -m benchmarks.pretraining [size=small] [bs=32] [max_length=128] [device=cpu] [rounds=5] [steps=3]
                                      [micro_batch=...] [compile=False]

Prints ms/step, tokens/s, the ratio to the reference of the same round, peak memory of a step's tensors, the share of the machine's
measured matrix rate, and what share of the time each part of a step takes; writes them to benchmarks/results/. The text does not matter
here: ids are random, examples full.
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
    describe_machine,
    matrix_rate,
    median_ratio,
    parse,
    peak_bytes,
    seconds_of,
    take_turns,
    wait_for,
    write_results,
)

DEFAULTS = {"size": "small", "bs": None, "max_length": None, "device": None, "micro_batch": None, "compile": False, "rounds": 5, "steps": 3}
GIVEN_ON = ("size", "bs", "max_length", "micro_batch", "compile")  # to pretrain.py's configuration
RULES = {**{key: PRETRAIN_RULES[key] for key in (*GIVEN_ON, "device")}, "rounds": count(), "steps": count()}
WORDS = [*SPECIAL_TOKENS, *(f"word{i}" for i in range(30517))]


def our_learner(c, hf_tokenizer, device, precision):
    """What pretrain() trains with, without data and log."""
    c = pretrain.settle(c.copy_with({"precision": precision, "device": str(device)}), None, hf_tokenizer, Processes())
    learn = pretrain.build_learner(c, hf_tokenizer, SimpleNamespace(device=device), None, Processes())
    learn.training, learn.train_iter = True, 0
    return learn


def our_step(learn, batch):
    """One training step of PretrainingLearner."""
    learn.xb, learn.yb = batch, ()
    learn.masking.before_batch()
    learn._do_one_batch()


def variants(c, hf_tokenizer, device):
    """{name: function of a batch that takes one step}, each with a model of its own; and {precision: our learner}."""
    learners = {precision: our_learner(c, hf_tokenizer, device, precision) for precision in ("fp32", "bf16")}
    ours = lambda precision: partial(our_step, learners[precision])

    def reference(precision):
        set_seed(0)
        model = ReferenceModel(pretrain.build_model(c, hf_tokenizer)).to(device)
        optimizer = OneByOneAdam(model.named_parameters(), 1e-4)
        ids = hf_tokenizer.mask_token_id, len(hf_tokenizer), hf_tokenizer.all_special_ids
        return lambda batch: reference_step(model, optimizer, batch, ids, precision)

    steps = {"reference fp32": reference("fp32"), "ours fp32": ours("fp32"), "reference bf16": reference("bf16"), "ours bf16": ours("bf16")}
    return steps, learners


class Stopwatch:
    """Adds up the seconds of the parts of a step, {part: seconds}: `lap(part)` ends one."""

    def __init__(self, device):
        self.device = device
        self.restart()

    def restart(self):
        """Forget what was measured."""
        self.seconds, self.last = {}, time.perf_counter()

    def lap(self, part):
        wait_for(self.device)
        now = time.perf_counter()
        self.seconds[part] = self.seconds.get(part, 0.) + now - self.last
        self.last = now


@contextlib.contextmanager
def told_of_parts(watch, learn):
    """Within it the watch is told where the parts of the learner's steps end, from masking to the optimizer."""
    hooks = [network.register_forward_pre_hook(lambda *_, before=before: watch.lap(before))
             for network, before in ((learn.model.generator, "masking"), (learn.model.discriminator, "sampling"))]
    hooks += [network.register_forward_hook(lambda *_, part=part: watch.lap(part))
              for network, part in ((learn.model.generator, "generator"), (learn.model.discriminator, "discriminator"))]
    plain = learn._backward, learn._step

    def ends(before, function, part):
        watch.lap(before)
        function()
        watch.lap(part)
    learn._backward, learn._step = partial(ends, "losses", plain[0], "backward"), partial(ends, "backward", plain[1], "optimizer")
    try:
        yield
    finally:
        learn._backward, learn._step = plain
        for hook in hooks:
            hook.remove()


def shares(learn, loader, device):
    """{part: share of the time} of our steps, batches out of Arrow in this process; stopping at each part makes a GPU slower."""
    watch = Stopwatch(device)
    with told_of_parts(watch, learn):
        for i, batch in enumerate(loader):
            batch = tuple(tensor.to(device) for tensor in batch)
            watch.lap("data")
            our_step(learn, batch)
            if i == 0:  # the first step warms up
                watch.restart()
    total = sum(watch.seconds.values())
    return {part: seconds / total for part, seconds in watch.seconds.items()}


def random_batch(c, device):
    """(input_ids (B, L), sentA_length (B,)) of two segments of random words that fill the length."""
    ids = torch.randint(5, len(WORDS), (c.bs, c.max_length), device=device)
    ids[:, 0], ids[:, c.max_length // 2], ids[:, -1] = 2, 3, 3
    return ids, torch.full((c.bs,), c.max_length // 2 + 1, device=device)


def measure(steps, batches, device, rounds, n):
    """{name: seconds per step of each round}, each of n steps; the variants take turns within a round."""
    def n_times(step):
        for i in range(n):
            step(batches[i % len(batches)])

    for step in steps.values():
        step(batches[0])
    return take_turns({name: lambda step=step: seconds_of(partial(n_times, step), device) / n for name, step in steps.items()}, rounds)


def main(arguments):
    given = parse(arguments, DEFAULTS, RULES)
    device = choose_device(given["device"])
    c = complete(pretrain.c.override([f"{key}={given[key]}" for key in GIVEN_ON if given[key]]))
    hf_tokenizer = tokenizer_from_tokens(WORDS)
    batches = [random_batch(c, device) for _ in range(4)]
    steps, learners = variants(c, hf_tokenizer, device)
    seconds = measure(steps, batches, device, given["rounds"], given["steps"])
    tokens, flops = c.bs * c.max_length, flops_per_token(RECIPES[c.size], len(WORDS), c.max_length, c.mask_prob)
    rates = {precision: matrix_rate(device, DTYPES[precision] or torch.float32) for precision in ("fp32", "bf16")}
    rows = {}
    for name, step in steps.items():
        rows[name] = {"ms/step": 1e3 * median(seconds[name]), "tokens/s": tokens / median(seconds[name]),
                      "ratio to reference fp32": median_ratio(seconds["reference fp32"], seconds[name]),
                      "peak MB": peak_bytes(lambda step=step: step(batches[0]), device) / 1e6,
                      "share of matrix rate": tokens * flops / median(seconds[name]) / rates[name.split()[1]]}
    write_results("pretraining", rows, {**given, "bs": c.bs, "max_length": c.max_length, "rounds_seconds": seconds,
                                        "machine": describe_machine(device), "matrix_flops": rates,
                                        "shares": parts_of_a_step(c, hf_tokenizer, learners, device, given["steps"])})


def parts_of_a_step(c, hf_tokenizer, learners, device, n):
    """{'ours fp32': {part: share of the time}, 'ours bf16': ...} of n steps, printed too."""
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        examples = random_examples(c.bs * 4, c.max_length, folder)
        for precision, learn in learners.items():
            loader = pretraining_dataloaders({"train": examples}, hf_tokenizer, c.bs, n + 1, c.max_length, 0).train
            name = f"ours {precision}"
            found[name] = shares(learn, loader, device)
            print(f"{name}: " + ", ".join(f"{part} {share:.1%}" for part, share in found[name].items()))
    return found


if __name__ == "__main__":
    main(sys.argv[1:])
