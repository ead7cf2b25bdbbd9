"""Finished finetuning runs: their table, their checkpoints, and the best of them.

checkpoints/glue/scores.jsonl holds one line for each finished run of every group.
"""
import json
import os
from pathlib import Path

from _utils.errors import PlainError
from _utils.glue.tasks import FIRST_TASK, task_of
from _utils.runs.checkpoints import has_keys, load_checkpoint

GLUE_FOLDER = Path("checkpoints/glue")
SCORES = GLUE_FOLDER / "scores.jsonl"
_FIELDS = {"group": str, "task": str, "run": int, "seed": int, "scores": dict, "settings": dict, "train_rows": int, "synthetic": bool}
_ADDED_SETTINGS = {"freeze": False, "own_task": None, "dev_table": None}  # settings of runs of earlier versions, which do not name them
FINETUNING_KEYS = {"model": dict, "encoder_config": dict, "tokenizer": str, "run": dict}  # of a finetuned checkpoint


def read_scores(path=SCORES):
    """Rows of the table, the latest of each run; [] if there is no table. PlainError for an invalid line.

    A truncated row is skipped: a killed process leaves one, and its run is not finished.
    """
    if not os.path.exists(path):
        return []
    latest = {}
    for number, line in enumerate(Path(path).read_text(encoding="utf-8").split("\n"), 1):
        try:
            row = json.loads(line)
        except ValueError:
            if not line or line.startswith("{"):
                continue
            row = None
        row = _with_current_keys(row)
        if not has_keys(row, _FIELDS) or not _has_task(row) or not _are_scores(row["scores"]):
            raise PlainError(f"{path}, line {number} is not a row of the table of runs. Delete that line.")
        latest[row["group"], row["task"], row["run"]] = row
    return list(latest.values())


def _with_current_keys(row):
    """Rows of earlier versions have the key "made_up" instead of "synthetic"."""
    if isinstance(row, dict) and "made_up" in row:
        row = {"synthetic" if key == "made_up" else key: value for key, value in row.items()}
    return row


def _has_task(row):
    """Whether a row names a task of GLUE, or holds the record of an own task."""
    try:
        return bool(task_of(row))
    except (ValueError, TypeError):
        return False


def _are_scores(scores):
    """Check for {split: {metric: number}} with at least one split and one metric each."""
    is_valid = lambda metrics: isinstance(metrics, dict) and metrics and all(isinstance(value, int | float) for value in metrics.values())
    return bool(scores) and all(map(is_valid, scores.values()))


def append_score(row, path=SCORES):
    """Append a finished run to the table and flush it to disk. Several processes may append at once."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "ab+") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - 1))
        separator = b"" if file.read(1) in (b"", b"\n") else b"\n"  # a killed process may have left a truncated row
        file.write(separator + json.dumps(row).encode() + b"\n")
        file.flush()
        os.fsync(file.fileno())


def score(row):
    """The first metric on the first dev set in percent, by which the runs of a task are ranked."""
    metrics = next(iter(row["scores"].values()))
    return 100 * next(iter(metrics.values()))


def find_run(rows, group, task, run):
    """The row of a finished run, or None."""
    return next((row for row in rows if (row["group"], row["task"], row["run"]) == (group, task, run)), None)


def runs_of(rows, group, task):
    """The finished runs of a task, sorted by number."""
    return sorted((row for row in rows if (row["group"], row["task"]) == (group, task)), key=lambda row: row["run"])


def run_path(group, task, run):
    """Checkpoint of a run, e.g. checkpoints/glue/vanilla_11081_100.0%_cola_3.pth."""
    return GLUE_FOLDER / f"{group}_{task}_{run}.pth"


def run_folder(group, task, run):
    """Folder of a run's logs, beside its checkpoint."""
    return run_path(group, task, run).with_suffix("")


def check_paths(rows, group, task, runs):
    """PlainError if a finished run of another group or task has the checkpoint's path of one of these runs."""
    paths = {run_path(group, task, run) for run in runs}
    for row in rows:
        path = run_path(row["group"], row["task"], row["run"])
        if path in paths and (row["group"], row["task"]) != (group, task):
            raise PlainError(f"{str(path)!r} belongs to run {row['run']} of {row['task']} in the group {row['group']!r}. Set another "
                             "group_name, or another 'name' of the task.")


def finished_run(rows, group, task, run, seed, settings):
    """The row of a finished run, or None. PlainError if it was trained with other settings."""
    row = find_run(rows, group, task, run)
    if row is None:
        return None
    wanted, found = {**settings, "seed": seed}, {**_ADDED_SETTINGS, **row["settings"], "seed": row["seed"]}
    if differences := _differences(found, wanted):
        raise PlainError(f"Run {run} of {task} in the group {group!r} was trained with {', '.join(differences)}. Set another group_name "
                         "for these runs.")
    return row


def _differences(found, wanted):
    """[text about each value of `wanted` that `found` does not have]; of values that are dictionaries, about their values."""
    texts = []
    for key, value in wanted.items():
        other = found.get(key)
        if isinstance(value, dict) and isinstance(other, dict):
            texts += [f"{key}: {text}" for text in _differences(other, value)]
        elif other != value:
            texts.append(f"{key}={other!r:.200}, not {value!r:.200}")
    return texts


def best_runs(rows, group, task):
    """[number of the run with the best dev score among those whose checkpoint exists], or []."""
    existing = [row for row in runs_of(rows, group, task) if run_path(group, task, row["run"]).exists()]
    return [max(existing, key=score)["run"]] if existing else []


def mnli_run(rows, group, pretrained):
    """Number of a group's best MNLI run from the same pretrained weights. PlainError if there is none."""
    same = [row for row in rows if row["settings"]["pretrained_weights"] == pretrained.digest]
    best = best_runs(same, group, FIRST_TASK)
    if not best:
        raise PlainError(f"start_from_mnli needs an MNLI run in the group {group!r} from the same pretrained weights, and none was found. "
                         "Add mnli to tasks, or set start_from_mnli to another group or False.")
    return best[0]


def load_finetuned_checkpoint(path):
    """The dictionary of a checkpoint that finetune.py wrote. PlainError for a missing file or another kind of checkpoint."""
    if not Path(path).is_file():
        raise PlainError(f"Finetuned checkpoint not found: {str(path)!r}. Pass one of checkpoints/glue/*.pth, or create it with "
                         "python finetune.py.")
    checkpoint = load_checkpoint(path)
    check_finetuned(checkpoint, path)
    return checkpoint


def check_finetuned(checkpoint, path):
    """PlainError if the content of the file `path` is not a checkpoint that finetune.py wrote."""
    if not has_keys(checkpoint, FINETUNING_KEYS) or not has_keys(checkpoint["run"].get("settings"), {"wsc_trick": bool}) \
            or "task" not in checkpoint["run"] or not _has_task(checkpoint["run"]):
        raise PlainError(f"{str(path)!r} is not a checkpoint written by finetune.py. Pass one of checkpoints/glue/*.pth.")
