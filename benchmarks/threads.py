"""How PyTorch's threads should wait for each other: pretraining steps under several settings of OpenMP, idle and beside a busy process.

    python -m benchmarks.threads [size=mini] [bs=32] [max_length=64] [precision=fp32] [rounds=3] [seconds=8]

Each measurement is a process of its own, since OpenMP reads its settings once. The settings take turns within a round. Prints tokens/s
and the ratio to the default settings of OpenMP, and writes them to benchmarks/results/.
"""
import json
import os
import subprocess
import sys
import time
from statistics import median

# For each setting the environment of its process. Without any, GCC's OpenMP spins, which wastes the time slices of a busy core.
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
    """Measured in this process: steps of the real learner on full examples, after two to warm up."""
    import torch

    import pretrain
    from _utils.config import complete
    from _utils.pretraining_data.vocabulary import tokenizer_from_tokens
    from benchmarks.pretraining import WORDS, our_learner, our_step, random_batch
    c = complete(pretrain.c.override([f"{key}={given[key]}" for key in ("size", "bs", "max_length")]))
    learn = our_learner(c, tokenizer_from_tokens(WORDS), torch.device("cpu"), given["precision"])
    batch = random_batch(c, torch.device("cpu"))
    for _ in range(2):
        our_step(learn, batch)
    steps, start = 0, time.perf_counter()
    while time.perf_counter() - start < given["seconds"]:
        our_step(learn, batch)
        steps += 1
    return steps * c.bs * c.max_length / (time.perf_counter() - start)


def measure(setting, is_busy, given):
    """tokens/s of a new process with a setting, beside a process that keeps one core busy if is_busy."""
    neighbour = subprocess.Popen([sys.executable, "-c", "while True: pass"]) if is_busy else None
    try:
        plain = {key: value for key, value in os.environ.items() if not key.startswith(("OMP_", "GOMP_"))}
        # Set even where it is empty: the project has a default of its own.
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
    from benchmarks.report import describe_machine, median_ratio, parse, take_turns, write_results
    rules = {**{key: PRETRAIN_RULES[key] for key in ("size", "bs", "max_length", "precision")}, "rounds": count(), "seconds": count()}
    given = dict(parse(arguments, DEFAULTS, rules))
    ways = {(setting, is_busy): lambda setting=setting, is_busy=is_busy: measure(setting, is_busy, given)
            for setting in SETTINGS for is_busy in (False, True)}
    found = take_turns(ways, given["rounds"])
    rows = {setting: {f"{name}{column}": value for is_busy, name in ((False, "idle "), (True, "busy ")) for column, value in (
        ("tokens/s", median(found[setting, is_busy])),
        ("ratio", median_ratio(found[setting, is_busy], found["default", is_busy])))} for setting in SETTINGS}
    import torch
    rounds = {f"{setting}, {'busy' if is_busy else 'idle'}": rates for (setting, is_busy), rates in found.items()}
    write_results("threads", rows, {**given, "rounds_tokens_per_second": rounds, "machine": describe_machine(torch.device("cpu"))})


if __name__ == "__main__":
    if sys.argv[1:2] == ["--measure"]:
        print(tokens_per_second(json.loads(sys.argv[2])))
    else:
        main(sys.argv[1:])
