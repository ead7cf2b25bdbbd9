"""Finished finetuning runs: their table, where their checkpoints lie, which is the best.

checkpoints/glue/scores.jsonl holds one line for each finished run of every group.
"""
import json
import os
from pathlib import Path

from _utils.errors import PlainError
from _utils.glue.tasks import TASKS
from _utils.run_files.checkpoints import has_keys, load_checkpoint

GLUE_FOLDER = Path("checkpoints/glue")
SCORES = GLUE_FOLDER / "scores.jsonl"
_FIELDS = {"group": str, "task": str, "run": int, "seed": int, "scores": dict, "settings": dict, "train_rows": int, "synthetic": bool}
FINETUNING_KEYS = {"model": dict, "encoder_config": dict, "tokenizer": str, "run": dict}  # of a finetuned checkpoint


def read_scores(path=SCORES):
    """Rows of the table, of each run the latest; [] if there is no table. PlainError for a line that is none of its rows.

    The beginning of a row is what a killed run leaves and is passed over: the run is not finished.
    """
    if not os.path.exists(path):
        return []
    latest = {}
    for number, line in enumerate(Path(path).read_text(encoding="utf-8").split("\n"), 1):
        try:
            row = json.loads(line)
        except ValueError:
            if line and not line.startswith("{"):
                raise PlainError(f"{path}, line {number} is no row of the table of runs: delete that line.") from None
            continue
        if not has_keys(row, _FIELDS) or row["task"] not in TASKS or not _are_scores(row["scores"]):
            raise PlainError(f"{path}, line {number} is no row of the table of runs: delete that line.")
        latest[row["group"], row["task"], row["run"]] = row
    return list(latest.values())


def _are_scores(scores):
    """Whether this is {split: {metric: number}} with at least one of each."""
    are_numbers = lambda measured: all(isinstance(value, int | float) for value in measured.values())
    return bool(scores) and all(isinstance(measured, dict) and measured and are_numbers(measured) for measured in scores.values())


def append_score(row, path=SCORES):
    """Add a finished run to the table; it is on the disk when this returns. Several processes may do so at once."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "ab+") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - 1))
        after_half_a_row = file.read(1) not in (b"", b"\n")
        file.write(b"\n" * after_half_a_row + json.dumps(row).encode() + b"\n")
        file.flush()
        os.fsync(file.fileno())


def score(row):
    """The number that runs of a task are compared by, in percent: of the first dev set the first metric."""
    [first, *_] = row["scores"].values()
    return 100 * next(iter(first.values()))


def find_run(rows, group, task, run):
    """The row of a finished run, or None."""
    return next((row for row in rows if (row["group"], row["task"], row["run"]) == (group, task, run)), None)


def runs_of(rows, group, task):
    """The finished runs of a task, by number."""
    return sorted((row for row in rows if (row["group"], row["task"]) == (group, task)), key=lambda row: row["run"])


def run_path(group, task, run):
    """The checkpoint of a run, e.g. checkpoints/glue/vanilla_11081_100.0%_cola_3.pth."""
    return GLUE_FOLDER / f"{group}_{task}_{run}.pth"


def run_folder(group, task, run):
    """The folder of a run's metrics, beside its checkpoint."""
    return run_path(group, task, run).with_suffix("")


def finished_run(rows, group, task, run, seed, settings):
    """The row of a run that is finished, or None; PlainError if it was made with other settings, naming one."""
    row = find_run(rows, group, task, run)
    wanted = {**settings, "seed": seed}
    found = row and {**row["settings"], "seed": row["seed"]}
    differing = [key for key in wanted if row and found.get(key) != wanted[key]]
    if differing:
        told = ", ".join(f"{key}={found.get(key)!r}, not {wanted[key]!r}" for key in differing)
        raise PlainError(f"run {run} of {task} in the group {group!r} was made with {told}: give these runs a group_name of their own.")
    return row


def best_runs(rows, group, task):
    """[the number of the best run by its dev score among those whose checkpoint is there], or [] if there is none."""
    there = [row for row in runs_of(rows, group, task) if run_path(group, task, row["run"]).exists()]
    return [max(there, key=score)["run"]] if there else []


def mnli_run(rows, group, pretrained):
    """The number of a group's best MNLI run from the same pretrained weights; PlainError if there is none."""
    same = [row for row in rows if row["settings"]["pretrained_weights"] == pretrained.digest]
    best = best_runs(same, group, "mnli")
    if not best:
        raise PlainError(f"start_from_mnli needs an MNLI run in the group {group!r} from the same pretrained weights, and there is none: "
                         "add mnli to tasks, or say start_from_mnli=GROUP or False.")
    return best[0]


def load_finetuned_checkpoint(path):
    """The same for one that finetune.py wrote."""
    if not Path(path).is_file():
        raise PlainError(f"there is no finetuned checkpoint {str(path)!r}: give one of checkpoints/glue/*.pth, or make it "
                         "with python finetune.py.")
    checkpoint = load_checkpoint(path)
    if not has_keys(checkpoint, FINETUNING_KEYS) or checkpoint["run"].get("task") not in TASKS \
            or not has_keys(checkpoint["run"].get("settings"), {"wsc_trick": bool}):
        raise PlainError(f"{str(path)!r} is no checkpoint that finetune.py wrote: see checkpoints/glue/.")
    return checkpoint
