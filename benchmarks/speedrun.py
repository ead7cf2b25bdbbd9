"""ELECTRA-Small in minutes on one GPU, with the settings of Google's code and a complete schedule.

    benchmarks/speedrun.sh datas=PATH vocab=vocab.txt [minutes=9] [keep=FOLDER] [stages=pretrain] [KEY=VALUE ...]

stages:
prepare: build the examples of the texts; run it for each text that arrives, while others are copied.
pretrain: train until `minutes` after the start of speedrun.sh. When the step is compiled, some steps, held-out
batches and a save are timed, and as many steps are trained as fit into the rest; or `steps`.
finetune: `runs` runs of each task in glue_dir, `at_once` of them at the same time; scores go to
checkpoints/glue/<group>/scores.txt.

keep: a folder from which a rented machine gives back what it has reached, at most `save_minutes` old
(benchmarks/kept.py joins its files).
The other keys are those of pretrain.py, with other defaults: recipe=google, compile=True, warmup_steps=0.05,
base_run_name=speedrun, save_minutes=2; and some of finetune.py. Rerun the same command to resume after an
interruption, with the same number of steps.
"""
import contextlib
import gc
import math
import os
import shlex
import subprocess
import sys
import time
from pathlib import Path
from typing import Literal

import torch

import finetune
import pretrain
from _utils.config import MyConfig, complete, with_schedule
from _utils.errors import UserError
from _utils.finetuning.config import FINETUNE_KEYS
from _utils.keys import PRETRAIN_KEYS, Count, Positive, Text, count, list_of
from _utils.objectives.registry import objective_of
from _utils.runs.checkpoints import find_resume_checkpoint, save_checkpoint
from _utils.runs.log import RunFolder
from _utils.text import load_data, prepare_data
from _utils.training.callbacks import Stopped, step_callbacks
from _utils.training.cuda_graph import state_restored
from _utils.training.metrics import evaluate
from _utils.training.pretraining_run import pretraining_run
from benchmarks.kept import Keep
from benchmarks.pretraining import begin
from benchmarks.report import launcher, parse, seconds_of

REPO = Path(__file__).parents[1]
STAGES = ("prepare", "pretrain", "finetune")
OF_PRETRAINING = {"recipe": "google", "compile": True, "warmup_steps": .05, "base_run_name": "speedrun",
                  "save_minutes": 2.}
OF_FINETUNING = {key: finetune.c[key] for key in ("tasks", "glue_dir", "task_overrides")}
SHARED = ("size", "device", "logger", "max_length", "precision")  # keys of pretraining that finetuning gets too
DEFAULTS = {**pretrain.c, **OF_PRETRAINING, **OF_FINETUNING, "stages": ["pretrain"], "minutes": None, "keep": None,
            "runs": 3, "at_once": 3}
TYPES = {
    **PRETRAIN_KEYS,
    **{key: FINETUNE_KEYS[key] for key in OF_FINETUNING},
    "stages": list_of(Literal[STAGES], f"a list of {', '.join(STAGES)}"),
    "minutes": Positive | None,
    "keep": Text | None,
    "save_minutes": Positive,
    "runs": Count,
    "at_once": count(1, 64),
}
MINUTES = 9.  # less than the ten after which some machines end a command
MOST_TIMED = 1000  # steps
SLACK = 1.03  # steps of a long run take longer than the timed ones
SECONDS_AROUND = 5  # between the timed steps and the first one, and after the last one


# Pretraining in a given time

def configuration(given):
    """The completed configuration of pretraining. Its steps are preliminary if `minutes` determine them."""
    values = {key: given[key] for key in PRETRAIN_KEYS}
    return complete(MyConfig(values, PRETRAIN_KEYS, (given.chosen | set(OF_PRETRAINING)) & set(PRETRAIN_KEYS)))


def train(c, deadline=None, keep=None, warmup_steps=.05):
    """Pretrain as pretrain.py does. Returns the learner.

    deadline: time.time() until which to train, with a number of steps that is chosen for it; None: `steps` of the
    configuration.   warmup_steps: a number or a share of the chosen steps.
    keep: folder for what a rented machine gives back.
    Raises UserError if no step fits before the deadline.
    """
    checkpoint = find_resume_checkpoint(RunFolder(c.base_run_name, c.seed).folder) if c.resume else None
    if deadline and checkpoint:
        c, deadline = at_steps(c, checkpoint["config"]["steps"], warmup_steps), None
    with pretraining_run(c, pretrain.pretrain) as run:
        hf_tokenizer, dls = load_data(run.c, run.processes)
        learn = pretrain.build_learner(run.start(hf_tokenizer, dls), hf_tokenizer, dls, run.networks, run.processes)
        per_step = seconds_per_step(learn, run.c, deadline - time.time()) if deadline else None
        if keep and run.processes.is_main:
            learn.add_cb(Keep(run, keep, c.save_minutes))
        if deadline:
            run.c = at_steps(run.c, steps_until(deadline, per_step, run, learn), warmup_steps)
            replace_schedule(learn, run.c)
        with run.training(learn), kept_when_stopped(learn):
            learn.fit(1)
    return learn


def at_steps(c, steps, warmup_steps):
    """The configuration with another number of steps."""
    return with_schedule(c.copy_with({"warmup_steps": warmup_steps}), steps)


def replace_schedule(learn, c):
    """Let a learner follow the schedule of a configuration with other steps."""
    [schedule, *_] = step_callbacks(c, learn.opt.opt)  # whose rates `state_restored` has put back
    learn.remove_cb(learn.schedule)
    learn.add_cb(schedule)


@contextlib.contextmanager
def kept_when_stopped(learn):
    """Context that keeps the last step of a run that Ctrl-C or SIGTERM stops."""
    try:
        yield
    except Stopped:
        if hasattr(learn, "keep"):
            learn.keep.write()
        raise


def steps_until(deadline, per_step, run, learn):
    """The number of steps that fit before the deadline, beside milestones and what is saved every `save_minutes`.

    per_step: seconds.   Raises UserError if none fits. All processes must call it together, as `seconds_per_step`.
    """
    if hasattr(learn, "keep"):
        learn.keep.write()  # the compiled step, which later files do not contain
    c, per_save, per_batch = run.c, seconds_per_save(run, learn), seconds_per_held_out_batch(learn)
    left = deadline - time.time() - SECONDS_AROUND
    n_batches = min(sum(map(len, learn.dls.loaders[1:])), max(4, left / per_step / 20))  # as Milestones.evaluate
    n_saves = 1 + len(c.milestones) + left / 60 / c.save_minutes
    pauses = n_saves * per_save + len(c.milestones) * n_batches * per_batch
    steps = min(run.processes.gather(math.floor((left - pauses) / (SLACK * per_step))))
    print(f"{max(0., left):.0f} s are left, of which milestones and saving take {pauses:.0f} s: "
          f"{max(0, steps):,} steps of {1e3 * per_step:.4g} ms", flush=True)
    if steps < 1:
        raise UserError("No step fits into the remaining time. Raise minutes, or rerun the same command: texts are "
                        "prepared now and the step is compiled.")
    return steps


def seconds_per_step(learn, c, left):
    """Mean seconds of a step, from the loader on, after the step is compiled and captured. Changes nothing else.

    left: seconds of the whole run, of which the timed steps take up to 2%.
    """
    learn.dls.train.start, learn.dls.train.n = 0, MOST_TIMED * c.bs  # set again when it trains
    with state_restored(learn):
        training_log, batches = begin(learn, c), iter(learn.dls.train)

        def take(n):
            for _ in range(n):
                learn.one_batch(learn.train_iter, next(batches))
        take(3)  # starts workers, compiles, captures, and allocates memory
        roughly = seconds_of(lambda: take(2), learn.device) / 2
        n = min(learn.processes.gather(max(3, min(MOST_TIMED - 5, round(min(5., .02 * left) / roughly)))))
        found = seconds_of(lambda: take(n), learn.device) / n
        batches.close()
        learn.remove_cb(training_log)
        learn.train_iter = 0
    return found


def seconds_per_save(run, learn):
    """Seconds in which a checkpoint to resume from, which is larger than a milestone, and what is kept are written."""
    started, path = time.perf_counter(), run.run_folder.folder.with_name(f".{run.run_folder.name}_timed.pth")
    save_checkpoint({"model": learn.model.state_dict(), "optimizer": learn.opt.opt.state_dict()}, path)
    path.unlink(missing_ok=True)  # by another process
    if hasattr(learn, "keep"):
        learn.keep.write()
    return time.perf_counter() - started


def seconds_per_held_out_batch(learn):
    """Seconds in which a held-out batch is evaluated."""
    started, n = time.perf_counter(), 2
    for loader in learn.dls.loaders[1:]:
        evaluate(learn, loader, max_batches=n)
    return (time.perf_counter() - started) / n


# Finetuning

def finetune_in_processes(at_once, arguments):
    """Run finetune.py in several processes. Raises UserError if it fails."""
    print(shlex.join(["python", *launcher(at_once), "finetune.py", *arguments]), flush=True)
    if status := subprocess.run([sys.executable, *launcher(at_once), REPO / "finetune.py", *arguments]).returncode:
        raise UserError(f"Finetuning failed with exit status {status}. Its message is above. Rerun the same command "
                        f"to resume.")


def write_scores(group):
    """Write the tables of scores of a group of finetuning runs to its folder."""
    command = [sys.executable, "-m", "_utils", "glue_results", group]
    scores = Path("checkpoints/glue", group, "scores.txt")
    scores.write_text(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout)
    print(f"Scores: {scores}")


def main(arguments):
    given = parse(arguments, DEFAULTS, TYPES)
    c = configuration(given)
    milestone = RunFolder(c.base_run_name, c.seed).milestone(100.)
    if given.steps and given.minutes:
        raise UserError(f"minutes={given.minutes:g} chooses the number of steps, which conflicts with "
                        f"steps={given.steps}. Leave out one of them.")
    if objective_of(c).first_stage and not given.steps:
        raise UserError(f"The time of objective={c.objective} cannot be chosen, because it trains in two stages. Set "
                        "steps.")
    if "prepare" in given.stages:
        _, examples = prepare_data(c)
        print(f"Prepared: {', '.join(c.datas)}, {sum(map(len, examples)):,} examples", flush=True)
    if "pretrain" in given.stages and not (c.resume and milestone.exists()):
        started = float(os.environ.get("SPEEDRUN_STARTED") or time.time())  # set by speedrun.sh, before the imports
        deadline = None if given.steps else started + 60 * (given.minutes or MINUTES)
        train(c, deadline, given.keep, given.warmup_steps)
    if "finetune" in given.stages:
        gc.collect()  # the learner, whose memory the processes need
        torch.cuda.empty_cache()
        settings = [f"{key}={given[key]}" for key in (*SHARED, *OF_FINETUNING)]
        settings += [f"end={given.runs}", f"pretrained_checkpoint={milestone.name}"]
        finetune_in_processes(given.at_once, settings)
        write_scores(milestone.stem)


if __name__ == "__main__":
    main(sys.argv[1:])
