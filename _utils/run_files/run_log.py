"""Where the measures of a run go: always metrics.jsonl, and a logger of the user's choice."""
import contextlib
import itertools
import json
import math
import os
import uuid
from pathlib import Path

from filelock import FileLock, Timeout

from _utils.errors import PlainError
from _utils.run_files.checkpoints import MILESTONES, checkpoint_path, versions


class NoLogger:
    """Logs nothing; the others have the same two methods. step: after which a run that was begun before goes on, or None."""

    def __init__(self, run_name, folder, config, step=None):
        pass

    def log(self, metrics, step):
        """Take {name: number} measured at a step; the names hold the split, as 'train/gen_loss'."""

    def close(self):
        """Write what is pending."""


class TensorBoardLogger(NoLogger):
    """`tensorboard --logdir checkpoints` shows it."""

    def __init__(self, run_name, folder, config, step=None):
        from torch.utils.tensorboard import SummaryWriter
        self.writer = SummaryWriter(str(Path(folder) / "tensorboard"), purge_step=None if step is None else step + 1)
        self.writer.add_text("config", "\n".join(f"    {key}: {value!r}" for key, value in config.items()))

    def log(self, metrics, step):
        for name, value in metrics.items():
            self.writer.add_scalar(name, value, step)

    def close(self):
        self.writer.close()


class NeptuneLogger(NoLogger):
    """Neptune's offline store, in the folder .neptune: its hosted service was shut down in March 2026 (facts.md#libraries).

    It cannot go on with a run, so a resumed one has a second entry there.
    """

    def __init__(self, run_name, folder, config, step=None):
        import neptune
        self.run = neptune.init_run(mode="offline", name=run_name, capture_stdout=False, capture_stderr=False,
                                    capture_hardware_metrics=False)
        self.run["config"] = {key: str(value) for key, value in config.items()}

    def log(self, metrics, step):
        for name, value in metrics.items():
            self.run[name].append(value, step=step)

    def close(self):
        self.run.stop()


class WandbLogger(NoLogger):
    """Weights & Biases; without an account set WANDB_MODE=offline."""

    def __init__(self, run_name, folder, config, step=None):
        import wandb
        kept = Path(folder, "wandb_id")
        if step is None or not kept.exists():
            kept.write_text(uuid.uuid4().hex)
        self.run = wandb.init(project="electra", name=run_name, dir=str(folder), config=dict(config), id=kept.read_text(), resume="allow")

    def log(self, metrics, step):
        self.run.log(metrics, step=step)

    def close(self):
        self.run.finish()


LOGGERS = {None: NoLogger, "tensorboard": TensorBoardLogger, "neptune": NeptuneLogger, "wandb": WandbLogger}


class RunLog:
    """What made a run and what it measured, in a folder: config.json, metrics.jsonl, and the chosen logger's files.

    config: a dictionary of what JSON can hold, with the key 'logger'.
    place: from `place()` of the log that this one goes on with, what came after it is dropped; None: a new folder.   step: then the last.
    """

    def __init__(self, run_name, folder, config, place=None, step=None):
        folder = Path(folder)
        self.path = folder / "metrics.jsonl"
        if place is None:
            folder.mkdir(parents=True)
            made_by = {"config": config, "versions": versions()}
            (folder / "config.json").write_text(json.dumps(made_by, indent=1) + "\n")
        elif self.path.exists():
            os.truncate(self.path, min(place, self.path.stat().st_size))
        self.logger = LOGGERS[config["logger"]](run_name, folder, config, step)

    def place(self):
        """How far metrics.jsonl reaches, in bytes that are on the disk."""
        if not self.path.exists():
            return 0
        with open(self.path, "rb") as file:
            os.fsync(file.fileno())
            return file.seek(0, os.SEEK_END)

    def log(self, split, step, metrics):
        """Log {name: number or None} measured on 'train' or 'held_out' at a step; None stands for nothing to measure."""
        with open(self.path, "a") as file:
            file.write(json.dumps({"step": step, "split": split, **metrics}) + "\n")
        numbers = {f"{split}/{name}": value for name, value in metrics.items() if value is not None and math.isfinite(value)}
        self.logger.log(numbers, step)

    def close(self):
        self.logger.close()


class NoLog:
    """Takes the place of a RunLog in those of several processes that write nothing."""
    path = None

    def log(self, split, step, metrics):
        """Nothing."""

    def close(self):
        """Nothing."""


@contextlib.contextmanager
def locked(folder, name_key="base_run_name"):
    """Within it no other process trains the run of this folder. PlainError where one does; one that was killed does not.

    name_key: the key of the configuration that names another run.
    """
    folder = Path(folder)
    lock = FileLock(folder.with_name(f".{folder.name}.lock"))
    folder.parent.mkdir(parents=True, exist_ok=True)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        raise PlainError(f"another process is training the run in {str(folder)!r}: wait for it, or give another {name_key}.") from None
    try:
        yield
    finally:
        lock.release()


def archive_run(run_name, folder):
    """Move what an earlier run of this name left in `folder` to aside/<run_name>_<number>, so that nothing is overwritten."""
    milestones = [checkpoint_path(run_name, percent, folder) for percent in MILESTONES]
    folder = Path(folder)
    left = [path for path in (folder / run_name, *milestones) if path.exists()]
    if left:
        aside = next(path for n in itertools.count(1) if not (path := folder / "aside" / f"{run_name}_{n}").exists())
        aside.mkdir(parents=True)
        for unfinished in (folder / run_name).glob("*.unfinished"):  # what a killed process was writing
            unfinished.unlink()
        for path in left:
            path.rename(aside / path.name)
        print(f"The earlier run of the name {run_name} is kept in {aside}")


def read_metrics(path, split):
    """The rows of one split in a metrics.jsonl, as a list of dictionaries. PlainError for a line that is none of its rows."""
    rows = []
    for number, line in enumerate(Path(path).read_bytes().splitlines(), 1):
        try:
            row = json.loads(line)
            rows += [row] if row["split"] == split else []
        except (ValueError, TypeError, KeyError):
            raise PlainError(f"{path}, line {number} is no row of measures: delete that line.") from None
    return rows
