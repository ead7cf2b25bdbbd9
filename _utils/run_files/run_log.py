"""The log of a run: metrics.jsonl always, and optionally TensorBoard, Neptune or Weights & Biases."""
import contextlib
import json
import math
import os
import uuid
from pathlib import Path

from filelock import FileLock, Timeout

from _utils.errors import PlainError
from _utils.run_files.checkpoints import versions


class NoLogger:
    """Logs nothing; the interface of the others. step: last step of a run that is resumed, or None for a new run."""

    def __init__(self, run_name, folder, config, step=None):
        pass

    def log(self, metrics, step):
        """Log {name: number} of a step; names include the split, e.g. 'train/gen_loss'."""

    def close(self):
        """Flush and close."""


class TensorBoardLogger(NoLogger):
    """For `tensorboard --logdir checkpoints`."""

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
    """Neptune's offline store in the folder .neptune; the hosted service was shut down in March 2026 (facts.md#libraries).

    It cannot append to a run, so a resumed run has a second entry.
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
    """Weights & Biases. Without an account, set WANDB_MODE=offline."""

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
    """Configuration and metrics of a run in its folder: config.json, metrics.jsonl, and the files of the chosen logger.

    config: a JSON-serializable dictionary with the key 'logger'.   facts: {name: number} about the data, also for config.json.
    position, step: of the log and the run that are resumed; later rows are dropped. None for a new run, whose folder must not exist.
    """

    def __init__(self, run_name, folder, config, position=None, step=None, facts=None):
        folder = Path(folder)
        self.path = folder / "metrics.jsonl"
        if position is None:
            folder.mkdir(parents=True)
            made_by = {"config": config, "facts": facts or {}, "versions": versions()}
            (folder / "config.json").write_text(json.dumps(made_by, indent=1) + "\n")
        elif self.path.exists():
            os.truncate(self.path, min(position, self.path.stat().st_size))
        self.logger = LOGGERS[config["logger"]](run_name, folder, config, step)

    def position(self):
        """Size of metrics.jsonl in bytes, after a sync to disk."""
        if not self.path.exists():
            return 0
        with open(self.path, "rb") as file:
            os.fsync(file.fileno())
            return file.seek(0, os.SEEK_END)

    def log(self, split, step, metrics):
        """Log {name: number, or None if undefined} of a step; split: 'train', 'held_out' or 'test'."""
        with open(self.path, "a") as file:
            file.write(json.dumps({"step": step, "split": split, **metrics}) + "\n")
        numbers = {f"{split}/{name}": value for name, value in metrics.items() if value is not None and math.isfinite(value)}
        self.logger.log(numbers, step)

    def close(self):
        self.logger.close()


class NoLog:
    """The RunLog of processes other than the main one: writes nothing."""
    path = None

    def log(self, split, step, metrics):
        pass

    def close(self):
        pass


def open_log(run, config, checkpoint=None, facts=None):
    """RunLog of a Run that starts (an earlier one of its name is archived), or that is resumed from a checkpoint. facts: for RunLog."""
    if checkpoint is None:
        run.archive()
        return RunLog(run.name, run.folder, config.as_data(), facts=facts)
    is_complete = checkpoint["step"] == config.steps
    print(f"The run {run.name} is complete. Set resume=False to train it again." if is_complete else
          f"Resuming the run {run.name} after step {checkpoint['step']:,}.")
    return RunLog(run.name, run.folder, config.as_data(), checkpoint["log_position"], checkpoint["step"])


@contextlib.contextmanager
def locked(folder, name_key="base_run_name"):
    """Context in which no other process can train the run of this folder; raises PlainError if one does. A kill releases the lock.

    name_key: the configuration key that names a run, for the error message.
    """
    folder = Path(folder)
    lock = FileLock(folder.with_name(f".{folder.name}.lock"))
    folder.parent.mkdir(parents=True, exist_ok=True)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        raise PlainError(f"Another process is training the run in {str(folder)!r}. Wait for it, or choose another {name_key}.") from None
    try:
        yield
    finally:
        lock.release()


def read_metrics(path, split):
    """The rows of one split in a metrics.jsonl, as dictionaries. Raises PlainError naming a line that is not a row of metrics."""
    rows = []
    for number, line in enumerate(Path(path).read_bytes().splitlines(), 1):
        try:
            row = json.loads(line)
            rows += [row] if row["split"] == split else []
        except (ValueError, TypeError, KeyError):
            raise PlainError(f"{path}, line {number}: not a row of metrics. Delete that line.") from None
    return rows
