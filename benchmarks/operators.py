"""Operators that a pretraining step runs on a GPU, counted without one.

    python -m benchmarks.operators [size=small] [bs=...] [max_length=...] [precision=bf16] [masking=official]

The step runs on fake CUDA tensors, which have no values. Views are not counted. An eager GPU launches a kernel for nearly every operator,
and several for some; attention is counted as its parts, because fake tensors do not fuse it. Prints the number for each function of the
step and the most frequent operators, and writes them to benchmarks/results/.
"""
import sys
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import torch
from torch.utils._python_dispatch import TorchDispatchMode

import pretrain
from _utils.config import PRETRAIN_KEYS, complete
from _utils.text.vocabulary import tokenizer_from_tokens
from _utils.training.processes import Processes
from benchmarks.pretraining import VOCABULARY
from benchmarks.report import parse, write_results

sys.path.append(str(Path(__file__).parents[1] / "tests/support"))
from fake_cuda import fake_cuda  # noqa: E402

DEFAULTS = {"size": "small", "bs": None, "max_length": None, "precision": "bf16", "masking": "official"}
TYPES = {key: PRETRAIN_KEYS[key] for key in DEFAULTS}
NOT_COUNTED = {"device", "detach", "alias", "as_strided", "expand", "permute", "select", "slice", "split", "split_with_sizes", "squeeze",
               "t", "transpose", "unbind", "unsqueeze", "view", "_unsafe_view", "lift_fresh", "empty", "empty_like"}


class Count(TorchDispatchMode):
    """Counts operators by name."""

    def __init__(self):
        super().__init__()
        self.names = Counter()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        name = function._schema.name.partition("::")[2]
        if function.namespace == "aten" and name not in NOT_COUNTED:
            self.names[name] += 1
        return function(*args, **(kwargs or {}))


def counted_step(c):
    """{function of the step: Counter of its operators}, for a batch in one micro-batch. c: a completed configuration."""
    device = torch.device("cuda")
    with fake_cuda():
        with device:
            hf_tokenizer = tokenizer_from_tokens(VOCABULARY)
            learn = pretrain.build_learner(c, hf_tokenizer, SimpleNamespace(device=device), None, Processes())
        batch = learn.on_device((torch.full((c.bs, c.max_length), 7), torch.full((c.bs,), 10)))

        def step(run):
            x, counts = run("masks", learn.masks, *batch)
            run("accumulate", learn.accumulate, *x, *counts)
            run("update", learn.update)
        step(lambda name, function, *inputs: function(*inputs))  # allocates gradients and moments

        found = {}

        def count(name, function, *inputs):
            with Count() as counter:
                result = function(*inputs)
            found[name] = counter.names
            return result
        step(count)
    return found


def main(arguments):
    given = parse(arguments, DEFAULTS, TYPES)
    c = complete(pretrain.c.override([f"{key}={value}" for key, value in given.items() if value is not None]))
    c = c.copy_with({"micro_batch": c.bs, "device": "cuda"})
    counts = counted_step(c)
    counts["step"] = sum(counts.values(), Counter())
    rows = {name: {"operators": count.total()} for name, count in counts.items()}
    print(", ".join(f"{n} {name}" for name, n in counts["step"].most_common(12)))
    write_results("operators", rows, {**given, "bs": c.bs, "max_length": c.max_length, "by_name": dict(counts["step"].most_common())},
                  device=None)


if __name__ == "__main__":
    main(sys.argv[1:])
