"""Pretraining steps, compared with a reference that computes as electra_pytorch does.

    python -m benchmarks.pretraining [size=small] [bs=...] [max_length=...] [device=...] [rounds=5] [steps=3]
                                      [micro_batch=...] [compile=False] [vocab=30522] [cpu_time=False]
                                      [variants=reference fp32,pretrain.py fp32,...]

bs, max_length: None: the recipe's.   device: None: the first GPU, else the CPU.

Each variant runs in a process of its own, in turn. A variant is a system and a precision: the reference, pretrain.py,
or pretrain.py with an objective, such as "electric fp32". cpu_time=True: the time of the process, over all threads,
which other processes change less.

Prints ms/step, tokens/s, the ratio to the reference of the same round in fp32 and in the same precision, peak memory of
all tensors but weights and optimizer state, and the share of the measured matmul throughput of the machine; writes them
to benchmarks/results/. Examples are full and have random ids, because the text does not matter here. bf16 is left out
on a CPU that only emulates it. Steps of pretrain.py include what its training does around them: the copy to the GPU,
new masks, the schedule, the check for non-finite gradients, the log. The reference's process has the default settings
of OpenMP and malloc, which the scripts change.
"""
import contextlib
import itertools
import sys
import time
from functools import partial
from statistics import median
from types import SimpleNamespace
from typing import Literal

import torch

import pretrain
from _utils.config import complete
from _utils.errors import UserError
from _utils.keys import PRETRAIN_KEYS, Count, count, list_of
from _utils.objectives.objective_keys import NAMES, selected
from _utils.objectives.registry import objective_of
from _utils.recipes import RECIPES
from _utils.seeds import set_seed
from _utils.text.vocabulary import SPECIAL_TOKENS, tokenizer_from_tokens
from _utils.training.callbacks import TrainingLog
from _utils.training.device import choose_device, has_on_cpu
from _utils.training.learners import DTYPES
from _utils.training.pretraining_run import fit_to_hardware
from _utils.training.processes import Processes
from benchmarks.flops import flops_per_token
from benchmarks.reference import OneByOneAdam, PredictsEverywhere, reference_step
from benchmarks.report import (
    alternate,
    matmul_throughput,
    median_ratio,
    own_process,
    parse,
    peak_bytes,
    seconds_of,
    write_results,
)

VARIANTS = ("reference fp32", "pretrain.py fp32", "reference bf16", "pretrain.py bf16")
OF_OBJECTIVES = tuple(f"{name} {precision}" for name in NAMES for precision in ("fp32", "bf16"))
DEFAULTS = {
    "size": "small",
    "bs": None,
    "max_length": None,
    "device": None,
    "micro_batch": None,
    "compile": False,
    "vocab": 30_522,
    "cpu_time": False,
    "rounds": 5,
    "steps": 3,
    "variants": list(VARIANTS),
}
FORWARDED = ("size", "bs", "max_length", "micro_batch", "compile")  # keys of the configuration of pretrain.py
TYPES = {**{key: PRETRAIN_KEYS[key] for key in (*FORWARDED, "device")}, "rounds": Count, "steps": Count,
         "vocab": count(200, 30_522), "cpu_time": bool,
         "variants": list_of(Literal[VARIANTS + OF_OBJECTIVES], f"a list of {', '.join(VARIANTS + OF_OBJECTIVES)}")}
N_TOKENS = 30_522
VOCABULARY = [*SPECIAL_TOKENS, *(f"word{i}" for i in range(N_TOKENS - len(SPECIAL_TOKENS)))]


class Training:
    """The training of pretrain.py, some steps at a time: its learner, with metrics that are computed but not written.

    batches: iterator over batches (input_ids (B, L), sentA_length (B,)) in host memory.
    """

    def __init__(self, c, hf_tokenizer, device, batches):
        if device.type == "cuda":
            torch.cuda.set_device(device)  # as pretrain.pretrain
        dls = SimpleNamespace(device=device, n_inp=2, train=SimpleNamespace(batch_of_step=lambda _: next(batches)))
        self.c = fit_to_hardware(c.copy_with({"device": str(device)}), None, hf_tokenizer, Processes())
        self.learn = pretrain.build_learner(self.c, hf_tokenizer, dls, None, Processes())
        self.device, self.batches = device, batches
        begin(self.learn, self.c)

    def take(self, n):
        """Take n steps, as `Learner.all_batches` does."""
        for _ in range(n):
            self.learn.one_batch(self.learn.train_iter, next(self.batches))

    def lasting_bytes(self):
        """(bytes of weights and optimizer state, bytes of gradients and copies of weights)."""
        gradients, moments = self.learn.gradients, self.learn.opt.opt.state.values()
        copies = [gradients.flat_half, *gradients.half.copies] if gradients.half else []
        state = itertools.chain(self.learn.model.parameters(), *(of_parameter.values() for of_parameter in moments))
        return bytes_of(state), bytes_of([gradients.flat, *copies])


def begin(learn, c):
    """Let a PretrainingLearner take steps outside of `fit`, with `one_batch`.

    Returns the callback for their metrics, which are computed but not written.
    """
    training_log = TrainingLog(c.steps, c.bs * c.max_length, c.steps)
    learn.add_cb(training_log)
    learn.n_epoch, learn.n_iter = 1, c.steps
    for event in ("before_fit", "before_epoch", "before_train"):
        learn(event)
    training_log.close()  # the progress bar
    return training_log


def bytes_of(tensors):
    """Bytes of tensors that share no memory."""
    return sum(tensor.nbytes for tensor in tensors)


def warmup_steps(c, device):
    """Steps before time is measured.

    Until the GPU's memory is allocated, and with compile=True until the step is compiled.
    """
    if c.compile:
        return 12
    return 3 if device.type == "cuda" else 1


class ReferenceTraining:
    """The reference's training, like Training. precision: 'fp32' or 'bf16'."""

    def __init__(self, c, hf_tokenizer, device, batches, precision):
        set_seed(0)
        networks = objective_of(c).fresh(c, len(hf_tokenizer), hf_tokenizer.pad_token_id)
        self.model = pretrain.ELECTRAModel(*networks, hf_tokenizer).to(device)
        self.model.generator = PredictsEverywhere(self.model.generator)
        self.batches, self.device, self.precision = batches, device, precision
        self.optimizer = OneByOneAdam(self.model.named_parameters(), 1e-4)
        self.ids = hf_tokenizer.mask_token_id, len(hf_tokenizer), hf_tokenizer.all_special_ids

    def take(self, n):
        for batch in itertools.islice(self.batches, n):
            reference_step(
                self.model, self.optimizer, tuple(tensor.to(self.device) for tensor in batch), self.ids, self.precision
            )

    def lasting_bytes(self):
        """As in Training. Gradients are freed after each update."""
        return bytes_of(itertools.chain(self.model.parameters(), *self.optimizer.state.values())), 0


class Variant:
    """What the process of a variant does when it is asked."""

    def __init__(self, name, given):
        system, self.precision = name.split()
        self.c, self.device = configuration(given, name), choose_device(given["device"])
        self.clock = time.process_time if given["cpu_time"] else time.perf_counter
        hf_tokenizer = tokenizer_from_tokens(VOCABULARY[:given["vocab"]])
        batches = itertools.cycle([random_batch(self.c, self.device, given["vocab"]) for _ in range(4)])
        if system == "reference":
            self.training = ReferenceTraining(self.c, hf_tokenizer, self.device, batches, self.precision)
        else:
            c = self.c.copy_with({"precision": self.precision})
            self.training = Training(c, hf_tokenizer, self.device, batches)

    def warm_up(self):
        """Take the first steps, and return the peak bytes of all tensors but weights and optimizer state."""
        n = warmup_steps(self.c, self.device)
        if self.device.type == "cuda":  # from the first step on: CUDA graphs allocate nothing when they are replayed
            torch.cuda.reset_peak_memory_stats(self.device)
            self.training.take(1 + n)
            return torch.cuda.max_memory_allocated(self.device) - self.training.lasting_bytes()[0]
        self.training.take(1)
        return peak_bytes(partial(self.training.take, n)) + self.training.lasting_bytes()[1]

    def seconds_per_step(self, n):
        return seconds_of(lambda: self.training.take(n), self.device, self.clock) / n

    def matmul_throughput(self):
        return matmul_throughput(self.device, DTYPES[self.precision] or torch.float32)


def configuration(given, variant):
    """The completed configuration of pretrain.py for the benchmark's arguments and one of its variants."""
    settings = [f"{key}={given[key]}" for key in FORWARDED if given[key]]
    objective = [f"objective={variant.split()[0]}"] if variant in OF_OBJECTIVES else []
    return complete(pretrain.c.override(settings + objective))


def random_batch(c, device, vocab_size=N_TOKENS):
    """(input_ids (B, L), sentA_length (B,)) in host memory, pinned for a GPU.

    Two segments of random tokens fill the length.
    """
    ids = torch.randint(5, vocab_size, (c.bs, c.max_length))
    ids[:, 0], ids[:, c.max_length // 2], ids[:, -1] = 2, 3, 3
    batch = ids, torch.full((c.bs,), c.max_length // 2 + 1)
    return tuple(tensor.pin_memory() for tensor in batch) if device.type == "cuda" else batch


def ratio(seconds, base, name):
    """How many times as fast as another variant one is, or nan if that was not measured.

    seconds: {variant: of each round}.
    """
    return median_ratio(seconds[base], seconds[name]) if base in seconds else float("nan")


def main(arguments):
    given = parse(arguments, DEFAULTS, TYPES)
    if RECIPES[given["size"]].discriminator is None:
        raise UserError(f"Invalid value for size: {given['size']!r}, which has no discriminator. Choose an ELECTRA, "
                        f"such as mini.")
    device, c = choose_device(given["device"]), configuration(given, "reference fp32")
    is_emulated = device.type == "cpu" and not has_on_cpu("bf16")
    names = [name for name in given["variants"] if not (is_emulated and name.endswith("bf16"))]
    with contextlib.ExitStack() as stack:
        calls = {
            name: stack.enter_context(
                own_process(Variant, name, dict(given), of_reference=name.startswith("reference"))
            )
            for name in names
        }
        peaks = {name: call("warm_up") for name, call in calls.items()}
        seconds = alternate(
            {name: partial(call, "seconds_per_step", given["steps"]) for name, call in calls.items()}, given["rounds"]
        )
        throughput = {name: call("matmul_throughput") for name, call in calls.items()}
    tokens, rows = c.bs * c.max_length, {}
    for name in names:
        objective = selected(configuration(given, name))
        flops = flops_per_token(RECIPES[c.size], given["vocab"], c.max_length, c.mask_prob, objective)
        rows[name] = {"ms/step": 1e3 * median(seconds[name]), "tokens/s": tokens / median(seconds[name]),
                      "ratio to reference fp32": ratio(seconds, "reference fp32", name),
                      "ratio in this precision": ratio(seconds, f"reference {name.split()[1]}", name),
                      "peak MB": peaks[name] / 1e6}
        if not given["cpu_time"]:  # the throughput is by the clock on the wall
            rows[name]["share of matmul throughput"] = tokens * flops / median(seconds[name]) / throughput[name]
    batch = "objectives_" * any(name in OF_OBJECTIVES for name in names) + f"{c.bs}x{c.max_length}"
    write_results("pretraining", rows, {**given, "bs": c.bs, "max_length": c.max_length, "rounds_seconds": seconds,
                                        "matmul_flops": throughput}, device, batch)


if __name__ == "__main__":
    main(sys.argv[1:])
