"""The first part of a pretraining and its finetuning: ELECTRA-Small after 62,500 of 1,000,000 steps, with the settings of Google's code.

    benchmarks/gpu_run.sh datas=PATH glue_dir=PATH [percent=6.25] [runs=3] [at_once=3] [vocab=PATH/vocab.txt] [tasks=cola,rte]
                          [size=small] [seed=11081] [base_run_name=official] [compile=True] [device=None] [steps=...] ...

Pretrains with pretrain.py until the checkpoint at `percent` of the steps is written, and then stops it as Ctrl-C does. The schedule is that
of all steps, so `python pretrain.py` with the settings that are printed can continue the run. Then finetunes that checkpoint with
finetune.py, `runs` runs of each task and `at_once` of them at the same time, and writes the tables of scores to
checkpoints/glue/<group>/scores.txt. Rerun the same command to resume after an interruption. The other keys are those of pretrain.py and
finetune.py.
"""
import contextlib
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import finetune
import pretrain
from _utils.config_rules import PRETRAIN_RULES, choice, count
from _utils.errors import PlainError
from _utils.glue.config import FINETUNE_RULES
from _utils.run_files.checkpoints import MILESTONES
from _utils.run_files.run import Run
from benchmarks.report import launcher, parse

REPO = Path(__file__).parents[1]
OF_PRETRAINING = {**{key: pretrain.c[key] for key in ("size", "seed", "datas", "vocab", "device", "num_workers", "logger", "steps", "bs",
                                                      "max_length")},
                  "masking": "official", "initial_weights": "official", "base_run_name": "official", "compile": True}
OF_FINETUNING = {key: finetune.c[key] for key in ("tasks", "glue_dir", "task_overrides")}
SHARED = ("size", "device", "logger", "max_length")  # keys of pretraining that finetuning gets too
DEFAULTS = {**OF_PRETRAINING, **OF_FINETUNING, "percent": 6.25, "runs": 3, "at_once": 3}
RULES = {**{key: PRETRAIN_RULES[key] for key in OF_PRETRAINING}, **{key: FINETUNE_RULES[key] for key in OF_FINETUNING},
         "percent": choice(*MILESTONES), "runs": count(), "at_once": count(1, 64)}


def settings(given, keys):
    """The `key=value` arguments of a script."""
    return [f"{key}={given[key]}" for key in keys]


def pretrain_until(milestone, arguments):
    """Run pretrain.py until it has written `milestone`, then stop it. Does nothing if the milestone exists.

    Raises PlainError if pretraining ends without it.
    """
    if milestone.exists():
        return
    print(shlex.join(["python", "pretrain.py", *arguments]), flush=True)
    process = subprocess.Popen([sys.executable, REPO / "pretrain.py", *arguments])
    with stopped_at_the_end(process):
        while process.poll() is None and not milestone.exists():
            time.sleep(.5)
    if not milestone.exists():
        raise PlainError(f"Pretraining ended before {str(milestone)!r} was written (exit status {process.returncode}). Its message is "
                         "above. Rerun the same command to resume.")


@contextlib.contextmanager
def stopped_at_the_end(process):
    """Context that ends a training script with Ctrl-C, also if it is left by an exception or SIGTERM, and waits until it has saved."""
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
    given = parse(arguments, DEFAULTS, RULES)
    milestone = Run(given.base_run_name, given.seed).milestone(given.percent)
    pretrain_until(milestone, settings(given, OF_PRETRAINING))
    finetune_in_processes(given.at_once, [*settings(given, (*SHARED, *OF_FINETUNING)), f"end={given.runs}",
                                          f"pretrained_checkpoint={milestone.name}"])
    scores = Path("checkpoints/glue", milestone.stem, "scores.txt")
    done = subprocess.run([sys.executable, "-m", "_utils.glue_results", milestone.stem], stdout=subprocess.PIPE, text=True, check=True)
    scores.write_text(done.stdout)
    print(f"Scores: {scores}")


if __name__ == "__main__":
    main(sys.argv[1:])
