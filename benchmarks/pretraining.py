"""Pretraining steps, compared with a reference that computes as electra_pytorch does; both alternate in one process.

    python -m benchmarks.pretraining [size=small] [bs=32] [max_length=128] [device=cpu] [rounds=5] [steps=3]
                                      [micro_batch=...] [compile=False]

Prints ms/step, tokens/s, the ratio to the reference of the same round, peak memory of the tensors of a step, the share of the measured
matmul throughput of the machine, and the share of the time of each part of a step (not with compile=True, where a step has no parts);
writes them to benchmarks/results/. Examples are full and have random ids, because the text does not matter here. bf16 is left out on a CPU
that only emulates it. Steps of pretrain.py include what its training does around them: the copy to the GPU, new masks, the schedule, the
check for non-finite gradients, the log. The reference returns freed memory to the system, which is the default.
"""
import contextlib
import itertools
import sys
import tempfile
import time
from functools import partial
from statistics import median
from types import SimpleNamespace

import torch

import pretrain
from _utils.config import PRETRAIN_KEYS, Count, complete
from _utils.errors import PlainError
from _utils.recipes import RECIPES, flops_per_token
from _utils.text.batches import pretraining_dataloaders
from _utils.text.vocabulary import SPECIAL_TOKENS, tokenizer_from_tokens
from _utils.training.after_step import Bookkeeping
from _utils.training.device import choose_device, has_on_cpu, keep_freed_memory, set_seed
from _utils.training.learners import DTYPES
from _utils.training.processes import Processes
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
TYPES = {**{key: PRETRAIN_KEYS[key] for key in (*FORWARDED, "device")}, "rounds": Count, "steps": Count}
VOCABULARY = [*SPECIAL_TOKENS, *(f"word{i}" for i in range(30517))]


class Training:
    """The training of pretrain.py, some steps at a time: its learner, with metrics that are computed but not written.

    batches: iterator over batches (input_ids (B, L), sentA_length (B,)) in host memory.
    """

    def __init__(self, c, hf_tokenizer, device, batches):
        self.c = pretrain.fit_to_hardware(c.copy_with({"device": str(device)}), None, hf_tokenizer, Processes())
        self.learn = pretrain.build_learner(self.c, hf_tokenizer, SimpleNamespace(device=device, n_inp=2), None, Processes())
        self.device, self.batches = device, batches
        bookkeeping = Bookkeeping(self.c.steps, self.c.bs * self.c.max_length)
        self.learn.add_cb(bookkeeping)
        self.learn.n_epoch, self.learn.n_iter = 1, self.c.steps
        for event in ("before_fit", "before_epoch", "before_train"):
            self.learn(event)
        bookkeeping.close()  # the progress bar

    def take(self, n):
        """Take n steps, as `Learner.all_batches` does."""
        keep_freed_memory()  # as the learner does when it is created
        for _ in range(n):
            self.learn.one_batch(self.learn.train_iter, next(self.batches))


def warmup_steps(c, device):
    """Steps before time is measured: until the GPU's memory is allocated, and with compile=True until the step is compiled."""
    if c.compile:
        return 12
    return 3 if device.type == "cuda" else 1


def variants(c, hf_tokenizer, device, batches):
    """({name: function that takes n steps}, each with its own model; {precision: Training of pretrain.py})."""
    is_emulated = device.type == "cpu" and not has_on_cpu("bf16")
    trainings = {precision: Training(c.copy_with({"precision": precision}), hf_tokenizer, device, itertools.cycle(batches))
                 for precision in (["fp32"] if is_emulated else ["fp32", "bf16"])}

    def reference(precision):
        set_seed(0)
        model, endless = ReferenceModel(pretrain.build_model(c, hf_tokenizer)).to(device), itertools.cycle(batches)
        optimizer = OneByOneAdam(model.named_parameters(), 1e-4)
        ids = hf_tokenizer.mask_token_id, len(hf_tokenizer), hf_tokenizer.all_special_ids

        def take(n):
            keep_freed_memory(False)
            for batch in itertools.islice(endless, n):
                reference_step(model, optimizer, tuple(tensor.to(device) for tensor in batch), ids, precision)
        return take

    steps = {}
    for precision, training in trainings.items():
        steps[f"reference {precision}"] = reference(precision)
        steps[f"pretrain.py {precision}"] = training.take
    return steps, trainings


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
    add, step = learn.gradients.add, learn._step

    def timed(before, function, part, *args):
        watch.lap(before)
        function(*args)
        watch.lap(part)
    learn.gradients.add, learn._step = partial(timed, "losses", add, "backward"), partial(timed, "backward", step, "optimizer")
    try:
        yield
    finally:
        learn.gradients.add, learn._step = add, step
        for hook in hooks:
            hook.remove()


def lapped(batches, watch):
    """The batches; the watch takes a lap when the training asks for the next one, and when it has been fetched."""
    for batch in batches:
        watch.lap("data")
        yield batch
        watch.lap("log")


def shares(training, loader):
    """{part: share of the time} of the steps on a loader's batches, except the first. Waiting at each part slows a GPU down."""
    watch = Stopwatch(training.device)
    training.batches = lapped(loader, watch)
    with timed_parts(watch, training.learn):
        training.take(1)
        watch.restart()
        training.take(len(loader) - 1)
        watch.lap("log")
    total = sum(watch.seconds.values())
    return {part: seconds / total for part, seconds in watch.seconds.items()}


def random_batch(c, device):
    """(input_ids (B, L), sentA_length (B,)) in host memory, pinned for a GPU: two segments of random tokens that fill the length."""
    ids = torch.randint(5, len(VOCABULARY), (c.bs, c.max_length))
    ids[:, 0], ids[:, c.max_length // 2], ids[:, -1] = 2, 3, 3
    batch = ids, torch.full((c.bs,), c.max_length // 2 + 1)
    return tuple(tensor.pin_memory() for tensor in batch) if device.type == "cuda" else batch


def measure(steps, device, rounds, n):
    """{name: seconds per step of each round}; each variant takes n steps per round."""
    return alternate({name: lambda take=take: seconds_of(lambda: take(n), device) / n for name, take in steps.items()}, rounds)


def main(arguments):
    given = parse(arguments, DEFAULTS, TYPES)
    if RECIPES[given["size"]].discriminator is None:
        raise PlainError(f"Invalid value for size: {given['size']!r}, which has no discriminator. Choose an ELECTRA, such as mini.")
    device = choose_device(given["device"])
    c = complete(pretrain.c.override([f"{key}={given[key]}" for key in FORWARDED if given[key]]))
    hf_tokenizer = tokenizer_from_tokens(VOCABULARY)
    steps, trainings = variants(c, hf_tokenizer, device, [random_batch(c, device) for _ in range(4)])
    peaks = {}
    for name, take in steps.items():
        take(1)  # allocates the state of the optimizer
        peaks[name] = peak_bytes(partial(take, warmup_steps(c, device)), device)
    seconds = measure(steps, device, given["rounds"], given["steps"])
    tokens, flops = c.bs * c.max_length, flops_per_token(RECIPES[c.size], len(VOCABULARY), c.max_length, c.mask_prob)
    throughput = {precision: matmul_throughput(device, DTYPES[precision] or torch.float32) for precision in trainings}
    rows = {}
    for name in steps:
        rows[name] = {"ms/step": 1e3 * median(seconds[name]), "tokens/s": tokens / median(seconds[name]),
                      "ratio to reference fp32": median_ratio(seconds["reference fp32"], seconds[name]),
                      "peak MB": peaks[name] / 1e6,
                      "share of matmul throughput": tokens * flops / median(seconds[name]) / throughput[name.split()[1]]}
    write_results("pretraining", rows, {**given, "bs": c.bs, "max_length": c.max_length, "rounds_seconds": seconds,
                                        "machine": describe_machine(device), "matmul_flops": throughput,
                                        "shares": {} if c.compile else parts_of_a_step(c, hf_tokenizer, trainings, given["steps"])})


def parts_of_a_step(c, hf_tokenizer, trainings, n):
    """Print and return {'pretrain.py fp32': {part: share of the time}, 'pretrain.py bf16': ...}, over n steps."""
    parts = {}
    with tempfile.TemporaryDirectory() as folder:
        examples = random_examples(c.bs * 4, c.max_length, folder)
        for precision, training in trainings.items():
            loader = pretraining_dataloaders({"train": examples}, hf_tokenizer, c.bs, n + 1, c.max_length, 0).train
            name = f"pretrain.py {precision}"
            parts[name] = shares(training, loader)
            print(f"{name}: " + ", ".join(f"{part} {share:.1%}" for part, share in parts[name].items()))
    return parts


if __name__ == "__main__":
    main(sys.argv[1:])
