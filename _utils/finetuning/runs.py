"""Finished finetuning runs: their table, their checkpoints, and the best of them.

checkpoints/glue/scores.jsonl holds one line for each finished run of every group.
"""
import json
import os
from pathlib import Path

import numpy as np

from _utils.errors import UserError
from _utils.runs.checkpoints import find_checkpoint, has_keys, load_checkpoint
from _utils.tasks.glue import TASKS
from _utils.tasks.kinds import task_of

GLUE_FOLDER = Path("checkpoints/glue")
SCORES = GLUE_FOLDER / "scores.jsonl"
# Keys of a finetuned checkpoint, and of a row of the table; scores: {split: {metric: value}}, whose first metric ranks
# the runs.
FINETUNING_KEYS = {"model": dict, "encoder_config": dict, "tokenizer": str, "run": dict}
ROW_KEYS = {
    "group": str,
    "task": str,
    "run": int,
    "seed": int,
    "scores": dict,
    "settings": dict,
    "train_rows": int,
    "synthetic": bool,
}
_TABLES = {"training_table": "training", "dev_table": "dev"}  # settings that are keys of tables


class Runs(list):
    """Finished runs: the rows given, or those of the table, the latest of each run.

    Another command may add rows to the table at any time: `Runs()` reads it again. UserError for an invalid line.
    """

    def __init__(self, rows=None, path=SCORES):
        super().__init__(_read(path) if rows is None else rows)

    def of(self, group, task=None):
        """Those of a group, or of one of its tasks: GLUE's tasks in their order, then own tasks in that of their first
        runs, and by run.
        """
        found = [row for row in self if row["group"] == group and task in (None, row["task"])]
        tasks = list(dict.fromkeys((*TASKS, *(row["task"] for row in found))))
        return Runs(sorted(found, key=lambda row: (tasks.index(row["task"]), row["run"])))

    def find(self, group, task, run):
        """The row of the finished run with this checkpoint, or None."""
        path = run_path(group, task, run)
        return next((row for row in self if path_of(row) == path), None)

    def finished(self, group, task, run, seed, settings):
        """The row of a finished run, or None. UserError if the run was trained with other settings, or its checkpoint
        is another run's.

        The names of groups and own tasks may contain the character that separates them in the names of checkpoints.
        """
        row = self.find(group, task, run)
        if row and (
            differences := _differences(row | row["settings"], {"group": group, "task": task, "seed": seed} | settings)
        ):
            raise UserError(f"Run {run} of {task} in the group {group!r} was trained with {', '.join(differences)}. "
                            "Set another group_name for these runs.")
        return row

    def best(self):
        """The row with the best dev score among those whose checkpoint exists, or None."""
        return max((row for row in self if path_of(row).exists()), key=rank, default=None)

    def best_mnli(self, group, pretrained):
        """The row of a group's best MNLI run from the same pretrained weights. UserError if there is none."""
        same = [row for row in self.of(group, "mnli") if row["settings"]["pretrained_weights"] == pretrained.digest]
        if best := Runs(same).best():
            return best
        raise UserError(f"start_from_mnli needs an MNLI run in the group {group!r} from the same pretrained weights, "
                        "and none was found. Add mnli to tasks, or set start_from_mnli to another group or False.")


def _read(path):
    """The latest row of each run.

    A truncated row is skipped: a killed process leaves one, and its run is not finished.
    """
    latest = {}
    for number, line in enumerate(path.read_text(encoding="utf-8").split("\n") if path.exists() else (), 1):
        try:
            row = json.loads(line)
        except ValueError:
            if not line or line.startswith("{"):
                continue
            row = None
        if not is_row(row):
            raise UserError(f"{path}, line {number} is not a row of the table of runs. Delete that line.")
        latest[row["group"], row["task"], row["run"]] = row
    return latest.values()


def is_row(row):
    """Whether a value from a file is a row of the table, of a task of GLUE or with the record of an own task."""
    try:
        return has_keys(row, ROW_KEYS) and bool(task_of(row))
    except ValueError:
        return False


def add_run(row):
    """Append a finished run to the table and flush it to disk. Several processes may append at once."""
    GLUE_FOLDER.mkdir(parents=True, exist_ok=True)
    with open(SCORES, "a+") as file:
        file.seek(0)
        is_truncated = file.read()[-1:] not in ("", "\n")  # a killed process may have left a part of a row
        file.write("\n" * is_truncated + json.dumps(row) + "\n")
        file.flush()
        os.fsync(file.fileno())


def score(row):
    """The first metric on the first dev set in percent."""
    metrics = next(iter(row["scores"].values()))
    return 100 * next(iter(metrics.values()))


def rank(row):
    """`score`, or -inf if it is undefined (NaN), by which the runs of a task are compared."""
    return np.nan_to_num(score(row), nan=-np.inf)


def run_path(group, task, run):
    """Checkpoint of a run, e.g. checkpoints/glue/vanilla_11081_100.0%_cola_3.pth; without the suffix, the folder of its
    logs.
    """
    return GLUE_FOLDER / f"{group}_{task}_{run}.pth"


def path_of(row):
    """Checkpoint of a finished run."""
    return run_path(row["group"], row["task"], row["run"])


def _differences(found, wanted):
    """[text about each value of `wanted` that `found` does not have]; of values that are dictionaries, about their
    values.
    """
    texts = []
    for key, value in wanted.items():
        other = found.get(key)
        if isinstance(value, dict) and isinstance(other, dict):  # a missing key has its default value
            texts += [f"{key}: {text}" for text in _differences(other, dict.fromkeys(other) | value)]
        elif other != value and key in _TABLES:
            texts.append(f"other {_TABLES[key]} rows ({other}; now {value}), because a file, or the share in 'dev', "
                         "changed")
        elif other != value:
            texts.append(f"{key}={other!r:.200}, not {value!r:.200}")
    return texts


def load_finetuned_checkpoint(path):
    """The dictionary of a checkpoint that finetune.py wrote, given by its path or its name in checkpoints/glue.

    UserError for a missing file or another kind of checkpoint.
    """
    checkpoint = load_checkpoint(find_checkpoint(path, GLUE_FOLDER))
    check_finetuned(checkpoint, path)
    return checkpoint


def check_finetuned(checkpoint, path):
    """UserError if the content of the file `path` is not a checkpoint that finetune.py wrote."""
    if not has_keys(checkpoint, FINETUNING_KEYS) or not is_row(checkpoint["run"]):
        raise UserError(f"{str(path)!r} is not a checkpoint written by finetune.py. Pass one of "
                        f"checkpoints/glue/*.pth.")
