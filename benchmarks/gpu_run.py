"""The first part of a pretraining and its finetuning: ELECTRA-Small after 62,500 of 1,000,000 steps, with the settings of Google's code.

    benchmarks/gpu_run.sh datas=PATH glue_dir=PATH [percent=6.25] [runs=3] [at_once=3] [vocab=vocab.txt] [tasks=cola,rte]
                          [size=small] [seed=11081] [base_run_name=official] [compile=True] [device=None] [steps=...] ...

Pretrains with pretrain.py until `percent` of the steps (`stop_at`). The schedule is that of all steps, so `python pretrain.py` with the
settings that are printed, but without stop_at, can continue the run. Then finetunes that checkpoint with
finetune.py, `runs` runs of each task and `at_once` of them at the same time, and writes the tables of scores to
checkpoints/glue/<group>/scores.txt. Rerun the same command to resume after an interruption. The other keys are those of pretrain.py and
finetune.py.
"""
import contextlib
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import finetune
import pretrain
from _utils.config import PRETRAIN_KEYS, Count, Percent, count
from _utils.errors import PlainError
from _utils.glue.config import FINETUNE_KEYS
from _utils.recipes import RECIPES
from _utils.runs.log import Run
from benchmarks.report import launcher, parse

REPO = Path(__file__).parents[1]
OF_PRETRAINING = {**{key: pretrain.c[key] for key in ("size", "seed", "datas", "vocab", "device", "num_workers", "logger", "steps", "bs",
                                                      "max_length")},
                  "masking": "official", "initial_weights": "official", "base_run_name": "official", "compile": True}
OF_FINETUNING = {key: finetune.c[key] for key in ("tasks", "glue_dir", "task_overrides")}
SHARED = ("size", "device", "logger", "max_length")  # keys of pretraining that finetuning gets too
DEFAULTS = {**OF_PRETRAINING, **OF_FINETUNING, "percent": 6.25, "runs": 3, "at_once": 3}
TYPES = {**{key: PRETRAIN_KEYS[key] for key in OF_PRETRAINING}, **{key: FINETUNE_KEYS[key] for key in OF_FINETUNING},
         "percent": Percent, "runs": Count, "at_once": count(1, 64)}


def settings(given, keys):
    """The `key=value` arguments of a script."""
    return [f"{key}={given[key]}" for key in keys]


def pretrain_until(milestone, arguments):
    """Run pretrain.py with arguments that make it stop at `milestone`. Does nothing if the milestone exists.

    Raises PlainError if pretraining fails.
    """
    if milestone.exists():
        return
    print(shlex.join(["python", "pretrain.py", *arguments]), flush=True)
    process = subprocess.Popen([sys.executable, REPO / "pretrain.py", *arguments])
    with stopped_with_this_process(process):
        process.wait()
    if process.returncode:
        raise PlainError(f"Pretraining failed with exit status {process.returncode}. Its message is above. Rerun the same command to "
                         "resume.")


@contextlib.contextmanager
def stopped_with_this_process(process):
    """Context that ends a training script with Ctrl-C if it is left by an exception or SIGTERM, and waits until it has saved."""
    def raise_interrupt(*_):
        raise KeyboardInterrupt

    previous = signal.signal(signal.SIGTERM, raise_interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
        process.wait()


def finetune_in_processes(at_once, arguments):
    """Run finetune.py in several processes. Raises PlainError if it fails."""
    print(shlex.join(["python", *launcher(at_once), "finetune.py", *arguments]), flush=True)
    if status := subprocess.run([sys.executable, *launcher(at_once), REPO / "finetune.py", *arguments]).returncode:
        raise PlainError(f"Finetuning failed with exit status {status}. Its message is above. Rerun the same command to resume.")


def main(arguments):
    given = parse(arguments, DEFAULTS, TYPES)
    milestone = Run(given.base_run_name, given.seed).milestone(given.percent)
    stop_at = max(1, round((given.steps or RECIPES[given.size].steps) * given.percent / 100))
    pretrain_until(milestone, [*settings(given, OF_PRETRAINING), f"milestones={given.percent}", f"stop_at={stop_at}"])
    finetune_in_processes(given.at_once, [*settings(given, (*SHARED, *OF_FINETUNING)), f"end={given.runs}",
                                          f"pretrained_checkpoint={milestone.name}"])
    scores = Path("checkpoints/glue", milestone.stem, "scores.txt")
    done = subprocess.run([sys.executable, "-m", "_utils", "glue_results", milestone.stem], stdout=subprocess.PIPE, text=True,
                          check=True)
    scores.write_text(done.stdout)
    print(f"Scores: {scores}")


if __name__ == "__main__":
    main(sys.argv[1:])
