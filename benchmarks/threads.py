"""Pretraining steps with several OpenMP settings for waiting threads, on an idle machine and next to a busy process.

    python -m benchmarks.threads [size=mini] [bs=32] [max_length=64] [precision=fp32] [rounds=3] [seconds=8]

OpenMP reads its settings once, so each measurement is a new process. The settings alternate within a round. Prints tokens/s and the
ratio to the default settings of OpenMP, and writes them to benchmarks/results/.
"""
import json
import os
import subprocess
import sys
import time
from functools import partial
from statistics import median

# Environment variables of each setting. By default GCC's OpenMP spins, which wastes the time slices of a busy core.
SETTINGS = {
    "default": {},
    "passive": {"OMP_WAIT_POLICY": "passive"},
    "spin 1,000 times": {"GOMP_SPINCOUNT": "1000"},
    "spin 10,000 times": {"GOMP_SPINCOUNT": "10000"},
    "spin 100,000 times": {"GOMP_SPINCOUNT": "100000"},
    "one thread": {"OMP_NUM_THREADS": "1"},
}
DEFAULTS = {"size": "mini", "bs": 32, "max_length": 64, "precision": "fp32", "rounds": 3, "seconds": 8}


def tokens_per_second(given):
    """Speed of the learner of pretrain.py on full examples in this process, after two warmup steps."""
    import itertools

    import torch

    import pretrain
    from _utils.config import complete
    from _utils.pretraining_data.vocabulary import tokenizer_from_tokens
    from benchmarks.pretraining import VOCABULARY, Training, random_batch
    c = complete(pretrain.c.override([f"{key}={given[key]}" for key in ("size", "bs", "max_length", "precision")]))
    device = torch.device("cpu")
    training = Training(c, tokenizer_from_tokens(VOCABULARY), device, itertools.repeat(random_batch(c, device)))
    training.take(2)
    steps, start = 0, time.perf_counter()
    while time.perf_counter() - start < given["seconds"]:
        training.take(1)
        steps += 1
    return steps * c.bs * c.max_length / (time.perf_counter() - start)


def measure(setting, is_busy, given):
    """tokens/s of a new process with a setting. is_busy: another process keeps one core busy meanwhile."""
    neighbour = subprocess.Popen([sys.executable, "-c", "while True: pass"]) if is_busy else None
    try:
        plain = {key: value for key, value in os.environ.items() if not key.startswith(("OMP_", "GOMP_"))}
        # Set even if empty, because _utils/__init__.py has its own default.
        env = {**plain, "OMP_WAIT_POLICY": "", **SETTINGS[setting]}
        done = subprocess.run([sys.executable, "-m", "benchmarks.threads", "--measure", json.dumps(given)], env=env, text=True,
                              capture_output=True, check=True)
        return float(done.stdout.split()[-1])
    finally:
        if neighbour:
            neighbour.kill()
            neighbour.wait()


def main(arguments):
    from _utils.config_rules import PRETRAIN_RULES, count
    from benchmarks.report import alternate, describe_machine, median_ratio, parse, write_results
    rules = {**{key: PRETRAIN_RULES[key] for key in ("size", "bs", "max_length", "precision")}, "rounds": count(), "seconds": count()}
    given = dict(parse(arguments, DEFAULTS, rules))
    rates = alternate({(setting, is_busy): partial(measure, setting, is_busy, given)
                       for setting in SETTINGS for is_busy in (False, True)}, given["rounds"])
    rows = {setting: {} for setting in SETTINGS}
    for (setting, is_busy), rate in rates.items():
        load = "busy" if is_busy else "idle"
        rows[setting][f"{load} tokens/s"] = median(rate)
        rows[setting][f"{load} ratio"] = median_ratio(rate, rates["default", is_busy])
    import torch
    rounds = {f"{setting}, {'busy' if is_busy else 'idle'}": rate for (setting, is_busy), rate in rates.items()}
    write_results("threads", rows, {**given, "rounds_tokens_per_second": rounds, "machine": describe_machine(torch.device("cpu"))})


if __name__ == "__main__":
    if sys.argv[1:2] == ["--measure"]:
        print(tokens_per_second(json.loads(sys.argv[2])))
    else:
        main(sys.argv[1:])
