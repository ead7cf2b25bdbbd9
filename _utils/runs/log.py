"""The name of a run and where its files are, its log, and uploads of its checkpoints."""
import contextlib
import itertools
import json
import math
import os
import posixpath
import re
import shlex
from pathlib import Path

import fsspec

from _utils.errors import UserError, one_line
from _utils.files import acquired, read_json_lines, write_text_atomically
from _utils.loggers import LOGGERS
from _utils.names import PRETRAIN_FOLDER, checkpoint_at
from _utils.progress import Progress
from _utils.runs.checkpoints import versions


class RunLog:
    """Configuration and metrics of a run in its folder: config.json, metrics.jsonl, and the files of the chosen logger.

    config: a JSON-serializable dictionary with the key 'logger'.   facts: {name: number} about the data, also for
    config.json.
    checkpoint: the one to resume from, with the `step` of the run and the `log_position`; later rows are dropped. None
    for a new run, whose folder must not exist.
    """

    def __init__(self, run_name, folder, config, facts=(), checkpoint=None):
        self.path = folder / "metrics.jsonl"
        if checkpoint is None:
            folder.mkdir(parents=True)
            made_by = {"config": config, "facts": dict(facts), "versions": versions()}
            write_text_atomically(folder / "config.json", json.dumps(made_by, indent=1) + "\n")
        else:
            with open(self.path, "ab") as file:
                file.truncate(min(checkpoint["log_position"], file.tell()))
        self.send, self.close = LOGGERS[config["logger"]](run_name, folder, config, checkpoint and checkpoint["step"])

    def position(self):
        """Size of metrics.jsonl in bytes, after a sync to disk."""
        with open(self.path, "ab") as file:
            os.fsync(file.fileno())
            return file.tell()

    def log(self, split, step, metrics):
        """Log {name: number, or None if undefined} of a step; split: 'train' or 'held_out'."""
        with open(self.path, "a") as file:
            file.write(json.dumps({"step": step, "split": split, **metrics}) + "\n")
        for name, value in metrics.items():
            if value is not None and math.isfinite(value):
                self.send(f"{split}/{name}", value, step)


@contextlib.contextmanager
def locked(folder, name_key="base_run_name"):
    """Context in which no other process can train the run of this folder.

    Raises UserError if one does. A kill releases the lock. Nothing is left of it if the run does not begin.
    name_key: the configuration key that names a run, for the error message.
    """
    def refuse():
        raise UserError(f"Another process is training the run in {str(folder)!r}. Wait for it, or choose another "
                        f"{name_key}.")

    path = folder.with_name(f".{folder.name}.lock")
    with acquired(path, refuse):
        try:
            yield
        finally:
            if not folder.exists():  # the run did not begin
                path.unlink(missing_ok=True)
                with contextlib.suppress(OSError):  # not empty
                    os.removedirs(path.parent)


def read_metrics(path, split):
    """The rows of one split in a metrics.jsonl, as dictionaries.

    Raises UserError naming a line that is not a row of metrics.
    """
    return [row for _, row in read_json_lines(path, "Delete that line.") if row.get("split") == split]


# The name of a milestone, as `RunFolder.milestone` writes it: the percentage may be 25.0 or 2.5e-05.
MILESTONE = re.compile(r"(?P<run>(?P<system>.+)_(?P<seed>\d+))_((?P<percent>\d+(\.\d+)?(e-\d+)?)%|step\d+)")


def log_of(checkpoint):
    """metrics.jsonl of the run that wrote a checkpoint of pretrain.py; None if it is not beside it."""
    milestone = MILESTONE.fullmatch(checkpoint.stem)
    log = checkpoint.with_name(milestone["run"] if milestone else checkpoint.stem) / "metrics.jsonl"
    return log if log.is_file() else None


class RunFolder:
    """A run is named <base_run_name>_<seed>. Its milestones are in PRETRAIN_FOLDER, the rest in a folder of that name.
    """

    def __init__(self, base_run_name, seed):
        self.name = f"{base_run_name}_{seed}"
        self.folder = PRETRAIN_FOLDER / self.name

    def milestone(self, at):
        """Path of a milestone, e.g. checkpoints/pretrain/vanilla_11081_100.0%.pth or vanilla_11081_step2000.pth.

        at: a percentage of the steps, or a step, an integer.
        """
        return PRETRAIN_FOLDER / f"{self.name}_{f'step{at}' if isinstance(at, int) else f'{at}%'}.pth"

    def has_milestone(self, name):
        """Whether a checkpoint, given by its name or its path, is a milestone of this run."""
        path = checkpoint_at(name)
        return path is not None and path.resolve() in map(Path.resolve, self.milestones())

    def milestones(self):
        """Paths of the milestones that exist."""
        matches = {path: MILESTONE.fullmatch(path.stem) for path in PRETRAIN_FOLDER.glob("*.pth")}
        return [path for path, match in matches.items() if match and match["run"] == self.name]

    def report(self):
        """Print where the results are and what to do with the newest checkpoint; nothing on a machine without it."""
        if milestones := self.milestones():
            last = self.milestone(100.)  # else the newest, if the files were not copied
            path = last if last in milestones else max(milestones, key=os.path.getmtime)
            print(f"Metrics and plots: {self.folder}/. To finetune this model: python finetune.py "
                  f"pretrained_checkpoint={shlex.quote(path.name)}")

    def archive(self):
        """Move the files of an earlier run of this name to aside/<name>_<number>, so that nothing is overwritten."""
        for left in self.folder.glob("*.unfinished"):  # by a process that was killed while it saved for the first time
            left.unlink()
        files = [*filter(Path.exists, [self.folder]), *self.milestones()]
        if files:
            archives = (PRETRAIN_FOLDER / "aside" / f"{self.name}_{n}" for n in itertools.count(1))
            archive = next(path for path in archives if not path.exists())
            archive.mkdir(parents=True)
            for path in files:
                path.rename(archive / path.name)
            print(f"Moved the earlier run {self.name} to {archive}")


def upload(path, where):
    """Copy a checkpoint to a folder or an address such as s3://bucket/run.

    where: the address, a function that is called with the path, or None to do nothing.
    At an address it appears under its own name only when it is complete. After an error, which is printed, training
    continues.
    """
    try:
        if callable(where):
            where(path)
        elif where is not None:
            filesystem, folder = fsspec.url_to_fs(where)
            filesystem.makedirs(folder, exist_ok=True)
            target = posixpath.join(folder, path.name)
            filesystem.put_file(str(path), f"{target}.unfinished")
            filesystem.mv(f"{target}.unfinished", target)
    except Exception as error:  # from the network or the user's function
        Progress.write(f"Could not upload {path.name} ({one_line(error)}). It stays in {path.parent}; training "
                       "continues.")
