"""Finished finetuning runs: their records, their checkpoints, and the best of them.

checkpoints/glue/scores.jsonl holds one line for each finished run of every group, its record.
"""
import json
import os
from contextlib import suppress
from pathlib import Path

import numpy as np

from _utils.errors import UserError
from _utils.names import find_checkpoint
from _utils.runs.checkpoints import check_format, has_keys, load_checkpoint
from _utils.tasks.glue import TASKS
from _utils.tasks.registry import task_of

GLUE_FOLDER = Path("checkpoints/glue")
SCORES = GLUE_FOLDER / "scores.jsonl"
# Keys of a finetuned checkpoint, and of a record; scores: {split: {metric: value}}, whose first metric ranks the runs.
FINETUNING_KEYS = {"model": dict, "encoder_config": dict, "tokenizer": str, "run": dict}
RECORD_KEYS = {
    "group": str,
    "task": str,
    "run": int,
    "seed": int,
    "scores": dict,
    "settings": dict,
    "train_rows": int,
    "synthetic": bool,
}
# Texts about a setting that differs, and about those that are keys of tables.
_DIFFERENCE = "{key}={stored!r:.200}, not {wanted!r:.200}"
_OTHER_ROWS = {key: f"other {rows} rows ({{stored}}; now {{wanted}}), because a file, or the share in 'dev', changed"
               for key, rows in (("training_table", "training"), ("dev_table", "dev"))}


class Runs(list):
    """Records of finished runs: those given, or those of the file, the latest of each run.

    Another command may add records to the file at any time: `Runs()` reads it again. UserError for an invalid line.
    """

    def __init__(self, records=None, path=SCORES):
        super().__init__(_read(path) if records is None else records)

    def of(self, group, task=None):
        """Those of a group, or of one of its tasks: GLUE's tasks in their order, then custom tasks in that of their
        first runs, and by run.
        """
        of_group = [record for record in self if record["group"] == group and task in (None, record["task"])]
        tasks = list(dict.fromkeys((*TASKS, *(record["task"] for record in of_group))))
        return Runs(sorted(of_group, key=lambda record: (tasks.index(record["task"]), record["run"])))

    def find(self, group, task, run):
        """The record of the finished run with this checkpoint, or None."""
        path = run_path(group, task, run)
        return next((record for record in self if path_of(record) == path), None)

    def finished(self, group, task, run, seed, settings):
        """The record of a finished run, or None. UserError if the run was trained with other settings, or its
        checkpoint is another run's.

        The names of groups and custom tasks may contain the character that separates them in the names of checkpoints.
        """
        record = self.find(group, task, run)
        if record and (differences := _differences(record, {"group": group, "seed": seed, "settings": settings})):
            raise UserError(f"Run {run} of {task} in the group {group!r} was trained with {', '.join(differences)}. "
                            "Set another group_name for these runs.")
        return record

    def with_checkpoints(self):
        """Those whose checkpoint exists."""
        return Runs(record for record in self if path_of(record).exists())

    def best(self):
        """The record with the best dev score among those whose checkpoint exists, or None."""
        return max(self.with_checkpoints(), key=rank, default=None)

    def best_mnli(self, group, pretrained):
        """The record of a group's best MNLI run from the same pretrained weights. UserError if there is none."""
        same = [record for record in self.of(group, "mnli")
                if record["settings"]["pretrained_weights"] == pretrained.digest]
        if best := Runs(same).best():
            return best
        raise UserError(f"start_from_mnli needs an MNLI run in the group {group!r} from the same pretrained weights, "
                        "and none was found. Add mnli to tasks, or set start_from_mnli to another group or False.")


def _read(path):
    """The latest record of each run.

    A truncated line is skipped: a killed process leaves one, and its run is not finished.
    """
    latest, lines = {}, path.read_text(encoding="utf-8").split("\n") if path.exists() else []
    for number, line in enumerate(lines, 1):
        record = None
        with suppress(ValueError):
            record = json.loads(line)
        if has_keys(record, RECORD_KEYS):
            check_format(record, f"{path}, line {number},", "Move the file to another folder.")
        if is_record(record):
            latest[record["group"], record["task"], record["run"]] = record
        elif record is not None or line[:1] not in ("", "{"):
            raise UserError(f"{path}, line {number} is not a record of a run. Delete that line.")
    return latest.values()


def is_record(value):
    """Whether a value from a file is the record of a run: of a task of GLUE, or of a custom task that it describes."""
    with suppress(ValueError):
        return has_keys(value, RECORD_KEYS) and bool(task_of(value))
    return False


def add_run(record):
    """Append a finished run to the file and flush it to disk. Several processes may append at once."""
    GLUE_FOLDER.mkdir(parents=True, exist_ok=True)
    with open(SCORES, "a+") as file:
        file.seek(0)
        is_truncated = file.read()[-1:] not in ("", "\n")  # a killed process may have left a part of a record
        file.write("\n" * is_truncated + json.dumps(record) + "\n")
        file.flush()
        os.fsync(file.fileno())


def with_baseline(evaluations, data, settings):
    """{split: `Scores.evaluate`} with {metric: value} of the other baseline of a TaskData as "words", if it has one."""
    scores = data.baseline(settings, [*evaluations]) if data.baseline else {}
    return {split: evaluation | ({"words": scores[split]} if split in scores else {})
            for split, evaluation in evaluations.items()}


def with_evaluations(record, evaluations):
    """A record with {split: `Scores.evaluate`}, in place of those of a test file. Those of custom tasks have more."""
    for part in "scores baselines words notices remarks classes confusion thresholds".split():
        dev = {split: value for split, value in record.get(part, {}).items() if split != "test"}
        record = record | {part: dev | {split: values[part] for split, values in evaluations.items() if part in values}}
    return record


def score_of(evaluations):
    """`score` of {split: `Scores.evaluate`}."""
    return score(with_evaluations({}, evaluations))


def score(record):
    """The first metric on the first dev set in percent."""
    metrics = next(iter(record["scores"].values()))
    return 100 * next(iter(metrics.values()))


def rank(record):
    """`score`, or -inf if it is undefined (NaN), by which the runs of a task are compared."""
    return np.nan_to_num(score(record), nan=-np.inf)


def run_path(group, task, run):
    """Checkpoint of a run, e.g. checkpoints/glue/vanilla_11081_100.0%_cola_3.pth; without the suffix, the folder of its
    logs.
    """
    return GLUE_FOLDER / f"{group}_{task}_{run}.pth"


def path_of(record):
    """Checkpoint of a finished run."""
    return run_path(record["group"], record["task"], record["run"])


def _differences(record, wanted):
    """[text about each value that differs] between a record and a wanted one, of which only some keys are known."""
    stored, wanted = _values(record), _values(wanted)
    return [_OTHER_ROWS.get(key, _DIFFERENCE).format(key=key, stored=stored.get(key), wanted=wanted.get(key))
            for key in {**stored, **wanted} if stored.get(key) != wanted.get(key)]


def _values(record):
    """{key: value} of a record that are the same if its run does not have to be repeated.

    A key of a custom task that is missing has its default value.
    """
    settings = {**record["settings"]}
    own_task = settings.pop("own_task") or {}
    return {**own_task, **settings, "group": record["group"], "seed": record["seed"]}


def load_finetuned_checkpoint(path):
    """The dictionary of a checkpoint that finetune.py wrote, given by its path or its name in checkpoints/glue.

    UserError for a missing file or another kind of checkpoint.
    """
    checkpoint = load_checkpoint(find_checkpoint(path, GLUE_FOLDER))
    check_finetuned(checkpoint, path)
    return checkpoint


def check_finetuned(checkpoint, path):
    """UserError if the content of the file `path` is not a checkpoint that finetune.py wrote."""
    is_finetuned = has_keys(checkpoint, FINETUNING_KEYS) and has_keys(checkpoint["run"], RECORD_KEYS)
    if is_finetuned:
        check_format(checkpoint["run"], repr(str(path)))
    if not is_finetuned or not is_record(checkpoint["run"]):
        raise UserError(f"{str(path)!r} is not a checkpoint written by finetune.py. Pass one of "
                        f"checkpoints/glue/*.pth.")
