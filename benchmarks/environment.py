"""Pretraining steps with settings of OpenMP and malloc, on an idle machine and next to a busy process.

    python -m benchmarks.environment [size=mini] [bs=64] [max_length=64] [precision=fp32] [rounds=3] [seconds=8]

These settings are environment variables that are read once, so each measurement is a new process. The settings
alternate within a round. Prints tokens/s and the ratio to the settings of the scripts, and writes them to
benchmarks/results/.
"""
import json
import os
import subprocess
import sys
import time
from functools import partial
from statistics import median

# Environment variables of each setting.
SETTINGS = {
    "scripts": {"GOMP_SPINCOUNT": "1000"},
    "default of OpenMP": {},  # spins, which wastes the time slices of a busy core
    "passive": {"OMP_WAIT_POLICY": "passive"},
    "one thread": {"OMP_NUM_THREADS": "1"},
    # The values at which glibc's own thresholds end up: blocks of more than 32 MiB are mapped when they are allocated,
    # and unmapped when they are freed.
    "default of malloc": {
        "GOMP_SPINCOUNT": "1000",
        "MALLOC_MMAP_THRESHOLD_": str(32 << 20),
        "MALLOC_TRIM_THRESHOLD_": str(64 << 20),
    },
}
DEFAULTS = {"size": "mini", "bs": 64, "max_length": 64, "precision": "fp32", "rounds": 3, "seconds": 8}


def tokens_per_second(given):
    """Speed of the learner of pretrain.py on full examples in this process, after two warmup steps."""
    import itertools

    import torch

    import pretrain
    from _utils.config import complete
    from _utils.text.vocabulary import tokenizer_from_tokens
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
        plain = {key: value for key, value in os.environ.items() if not key.startswith(("OMP_", "GOMP_", "MALLOC_"))}
        # Set even if empty, because _utils/__init__.py has its own default.
        env = {**plain, "OMP_WAIT_POLICY": "", **SETTINGS[setting]}
        done = subprocess.run(
            [sys.executable, "-m", "benchmarks.environment", "--measure", json.dumps(given)],
            env=env,
            text=True,
            capture_output=True,
            check=True,
        )
        return float(done.stdout.split()[-1])
    finally:
        if neighbour:
            neighbour.kill()
            neighbour.wait()


def main(arguments):
    from _utils.keys import PRETRAIN_KEYS, Count
    from benchmarks.report import alternate, median_ratio, parse, write_results

    types = {
        **{key: PRETRAIN_KEYS[key] for key in ("size", "bs", "max_length", "precision")},
        "rounds": Count,
        "seconds": Count,
    }
    given = dict(parse(arguments, DEFAULTS, types))
    rates = alternate({(setting, is_busy): partial(measure, setting, is_busy, given)
                       for setting in SETTINGS for is_busy in (False, True)}, given["rounds"])
    rows = {setting: {} for setting in SETTINGS}
    for (setting, is_busy), rate in rates.items():
        load = "busy" if is_busy else "idle"
        rows[setting][f"{load} tokens/s"] = median(rate)
        rows[setting][f"{load} ratio"] = median_ratio(rate, rates["scripts", is_busy])
    rounds = {f"{setting}, {'busy' if is_busy else 'idle'}": rate for (setting, is_busy), rate in rates.items()}
    write_results("environment", rows, {**given, "rounds_tokens_per_second": rounds})


if __name__ == "__main__":
    if sys.argv[1:2] == ["--measure"]:
        print(tokens_per_second(json.loads(sys.argv[2])))
    else:
        main(sys.argv[1:])
