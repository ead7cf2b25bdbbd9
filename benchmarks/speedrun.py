"""ELECTRA-Small in minutes on one GPU: from text to GLUE scores, with the settings of Google's code and a complete
schedule.

    benchmarks/speedrun.sh datas=PATH vocab=vocab.txt glue_dir=PATH [minutes=10] [stages=prepare,pretrain,finetune]
                           [keep=FOLDER] [runs=3] [at_once=3] [tasks=cola,rte] [size=small] [seed=11081] ...

prepare: builds the examples of the texts; run it for each text that arrives, while others are copied.
pretrain: for `minutes`, or `steps`.
finetune: `runs` runs of each task, `at_once` of them at the same time; scores go to
checkpoints/glue/<group>/scores.txt.

keep: a folder to which configuration, metrics, the newest weights in half precision and the compiled step are copied
at every tenth of the training, in files of at most 15 MB, so that a rented machine that is taken away leaves something.
`cat weights.pth.*` joins the weights to a checkpoint. `cat compiled.tar.gz.* | tar xz`, in the folder where the next
run starts, saves its compilation on a GPU of the same model.
The other keys are those of pretrain.py and finetune.py. Rerun the same command to resume after an interruption.
"""
import contextlib
import io
import shlex
import shutil
import signal
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Literal

import torch

import finetune
import pretrain
from _utils.config import complete
from _utils.errors import UserError
from _utils.finetuning.config import FINETUNE_KEYS
from _utils.keys import PRETRAIN_KEYS, Count, Text, count, list_of
from _utils.runs.checkpoints import load_checkpoint, write_atomically
from _utils.runs.log import RunFolder
from _utils.training.pretraining_run import prepare_data
from benchmarks.report import launcher, parse

REPO = Path(__file__).parents[1]
STAGES = ("prepare", "pretrain", "finetune")
FORWARDED = (
    "size",
    "seed",
    "datas",
    "vocab",
    "device",
    "num_workers",
    "logger",
    "steps",
    "bs",
    "max_length",
    "sampling",
    "precision",
)
OF_PRETRAINING = {
    **{key: pretrain.c[key] for key in FORWARDED},
    "minutes": None,
    "warmup_steps": 0.05,
    "masking": "official",
    "initial_weights": "official",
    "base_run_name": "speedrun",
    "compile": True,
    "save_minutes": 2.0,
}
OF_FINETUNING = {key: finetune.c[key] for key in ("tasks", "glue_dir", "task_overrides")}
SHARED = ("size", "device", "logger", "max_length", "precision")  # keys of pretraining that finetuning gets too
DEFAULTS = {**OF_PRETRAINING, **OF_FINETUNING, "stages": list(STAGES), "keep": None, "runs": 3, "at_once": 3}
TYPES = {
    **{key: PRETRAIN_KEYS[key] for key in OF_PRETRAINING},
    **{key: FINETUNE_KEYS[key] for key in OF_FINETUNING},
    "stages": list_of(Literal[STAGES], f"a list of {', '.join(STAGES)}"),
    "keep": Text | None,
    "runs": Count,
    "at_once": count(1, 64),
}
MILESTONES = list(range(10, 101, 10))
PIECE = 15_000_000  # bytes


def settings(given, keys):
    """The `key=value` arguments of a script."""
    return [f"{key}={given[key]}" for key in keys]


def prepare(given):
    """Build the examples of the texts, unless they exist."""
    c = complete(pretrain.c.override(settings(given, OF_PRETRAINING)))
    _, examples = prepare_data(c)
    print(f"Prepared: {', '.join(c.datas)}, {sum(map(len, examples)):,} examples", flush=True)


def pretrain_run(run, given):
    """Run pretrain.py, and keep its newest files meanwhile. Raises UserError if pretraining fails."""
    arguments = [*settings(given, OF_PRETRAINING), f"milestones={MILESTONES}"]
    print(shlex.join(["python", "pretrain.py", *arguments]), flush=True)
    kept = Kept(run, Path(given.keep)) if given.keep else None
    process = subprocess.Popen([sys.executable, REPO / "pretrain.py", *arguments])
    with stopped_with_this_process(process):
        while process.poll() is None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(2)
            if kept:
                kept.update()
    if process.returncode:
        raise UserError(f"Pretraining failed with exit status {process.returncode}. Its message is above. Rerun the "
                        "same command to resume.")


@contextlib.contextmanager
def stopped_with_this_process(process):
    """Context that ends a training script with Ctrl-C if it is left by an exception or SIGTERM, and waits until it has
    saved.
    """
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


class Kept:
    """Copies of what a run has written so far, in a folder."""

    def __init__(self, run, folder):
        self.run, self.folder, self.newest = run, folder, None
        folder.mkdir(parents=True, exist_ok=True)

    def update(self):
        """Copy metrics and weights if there is a new milestone."""
        milestones = sorted(
            self.run.folder.parent.glob(f"{self.run.name}_*%.pth"), key=lambda path: path.stat().st_mtime
        )
        if not milestones or milestones[-1] == self.newest:
            return
        is_first, self.newest = self.newest is None, milestones[-1]
        for name in ("config.json", "metrics.jsonl"):
            shutil.copy(self.run.folder / name, self.folder)
        write_pieces(self.folder / "weights.pth", in_half_precision(self.newest))
        if is_first and Path("datasets/compiled").exists():
            write_pieces(self.folder / "compiled.tar.gz", archive("datasets/compiled"))


def in_half_precision(path):
    """The bytes of a pretraining checkpoint with its weights in float16.

    Shared weights stay shared, and are stored once.
    """
    content, file, halves = load_checkpoint(path), io.BytesIO(), {}
    for name, value in content["model"].items():
        if value.is_floating_point():
            content["model"][name] = halves.setdefault(value.data_ptr(), value.half())
    torch.save(content, file)
    return file.getvalue()


def archive(folder):
    """The bytes of a .tar.gz of a folder."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w:gz") as tar:
        tar.add(folder)
    return file.getvalue()


def write_pieces(path, data):
    """Write bytes as <path>.00, <path>.01 ... of at most PIECE bytes, instead of those that exist."""
    pieces = [data[start:start + PIECE] for start in range(0, len(data), PIECE)]
    for i, piece in enumerate(pieces):
        write_atomically(f"{path}.{i:02}", lambda file, piece=piece: file.write(piece))
    for left in path.parent.glob(f"{path.name}.*"):
        if int(left.suffix[1:]) >= len(pieces):
            left.unlink()


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
    if not (given.steps or given.minutes):
        given = given.copy_with({"minutes": 10.})
    run = RunFolder(given.base_run_name, given.seed)
    if "prepare" in given.stages:
        prepare(given)
    if "pretrain" in given.stages and not run.milestone(100.).exists():
        pretrain_run(run, given)
    if "finetune" in given.stages:
        milestone = run.milestone(100.)
        finetune_in_processes(given.at_once, [*settings(given, (*SHARED, *OF_FINETUNING)), f"end={given.runs}",
                                              f"pretrained_checkpoint={milestone.name}"])
        write_scores(milestone.stem)


if __name__ == "__main__":
    main(sys.argv[1:])
