"""Finished finetuning runs: their records, their checkpoints, and the best of them.

checkpoints/glue/scores.jsonl holds the record of each finished run of every group, a line. The last one counts: a
labelled test file adds one with its scores.
"""
import json
import os
import sys
from collections import defaultdict
from contextlib import suppress
from dataclasses import asdict, field, fields, replace
from functools import cache
from pathlib import Path

import numpy as np
from pydantic import ConfigDict, TypeAdapter
from pydantic.dataclasses import dataclass

from _utils.errors import UserError, as_user_error
from _utils.finetuning.config import custom_tasks
from _utils.runs.checkpoints import FORMAT, check_format, has_keys
from _utils.tasks.glue import TASKS
from _utils.tasks.settings import Settings
from _utils.tasks.wsc import WSC

GLUE_FOLDER = Path("checkpoints/glue")
SCORES = GLUE_FOLDER / "scores.jsonl"
FINETUNING_KEYS = {"model": dict, "encoder_config": dict, "tokenizer": str, "run": dict}  # of a finetuned checkpoint


@dataclass(frozen=True, config=ConfigDict(extra="forbid"))
class FinishedRun:
    """The record of a finished run: a line of the file, and a part of its checkpoint.

    task: its name.   synthetic: whether its tables are the quickstart's.   mnli_run: number of the run with whose
    encoder it began.   train_rows: texts or pairs of an epoch.   best_epoch: with keep='best'.   code: hash.
    What follows from the evaluations is by split; scores: {split: {metric: value}}, whose first metric ranks the runs.
    baselines: of a constant prediction.   words: of another baseline.   notices: warnings or None.   remarks,
    classes, confusion, thresholds: of custom tasks.   test_table: `table_key` of the test file of the scores.
    """
    group: str
    task: str
    run: int
    seed: int
    settings: Settings
    pretrained_checkpoint: str
    objective: str | None
    synthetic: bool
    train_rows: int
    seconds: float
    device: str
    code: str
    format: int = FORMAT
    mnli_run: int | None = None
    best_epoch: int | None = None
    scores: dict[str, dict[str, float]] = field(default_factory=dict)
    baselines: dict[str, dict[str, float]] = field(default_factory=dict)
    words: dict[str, dict[str, float]] = field(default_factory=dict)
    notices: dict[str, str | None] = field(default_factory=dict)
    remarks: dict[str, str] = field(default_factory=dict)
    classes: dict[str, dict[str, list[float]]] = field(default_factory=dict)
    confusion: dict[str, list[list[int]]] = field(default_factory=dict)
    thresholds: dict[str, float] = field(default_factory=dict)
    test_table: str | None = None

    @property
    def path(self):
        """Its checkpoint; without the suffix, the folder of its logs."""
        return run_path(self.group, self.task, self.run)

    @property
    def score(self):
        """The first metric on the first dev set in percent."""
        return percent(self.scores)

    @property
    def rank(self):
        """`score`, or -inf if it is undefined (NaN), by which the runs of a task are compared."""
        return np.nan_to_num(self.score, nan=-np.inf)

    def with_evaluations(self, evaluations, **values):
        """The record with {split: `Metrics.evaluate`}, in place of those of a test file, and other values."""
        by_split = {one.name for one in fields(self) if one.default_factory is dict}
        for part in by_split.union(*evaluations.values()):
            of_devs = {split: value for split, value in getattr(self, part).items() if split != "test"}
            values[part] = of_devs | {split: found[part] for split, found in evaluations.items() if part in found}
        return replace(self, **values)


def task_of(record):
    """The Task of a FinishedRun, with what the run determined; ValueError if it names or describes no task.

    The record may come from a stranger.
    """
    settings, name = record.settings, record.task
    if settings.own_task is None:
        task = WSC if settings.wsc_trick else TASKS.get(name)
    else:
        task = custom_tasks("task_kinds").task_of_data(settings.own_task)
    if task is None or task.name != name:
        raise ValueError(f"unknown task {name!r:.40}")
    return task.in_recipe(settings.recipe).of_runs([record])


def record_in(content, what, advice):
    """The FinishedRun of a value from a file. UserError if it is not a run by this version.

    what, advice: the beginning and the end of the message.
    """
    if has_keys(content, {"settings": dict}):
        check_format(content, what, advice)
    with as_user_error(f"{what} was not written by finetune.py. {advice}", ValueError):
        run = TypeAdapter(FinishedRun).validate_python(content)
        if not run.scores:
            raise ValueError
    return run


def percent(scores):
    """The first metric of the first split of {split: {metric: value}}, in percent."""
    return 100 * next(iter(next(iter(scores.values())).values()))


def score_of(evaluations):
    """`percent` of {split: `Metrics.evaluate`}."""
    return percent({split: evaluation["scores"] for split, evaluation in evaluations.items()})


class Runs(list):
    """Records of finished runs: those given, or those of the file, the latest of each run.

    Another command may add records to the file at any time: `Runs()` reads it again. UserError for an invalid line.
    """

    def __init__(self, records=None, path=SCORES):
        super().__init__(read_records(path) if records is None else records)

    def of(self, group, task=None):
        """Those of a group, or of one of its tasks: GLUE's tasks in their order, then custom tasks in that of their
        first runs, and by run.
        """
        of_group = [run for run in self if run.group == group and task in (None, run.task)]
        tasks = list(dict.fromkeys((*TASKS, *(run.task for run in of_group))))
        return Runs(sorted(of_group, key=lambda run: (tasks.index(run.task), run.run)))

    def find(self, group, task, run):
        """The FinishedRun with this checkpoint, or None."""
        path = run_path(group, task, run)
        return next((record for record in self if record.path == path), None)

    def finished(self, group, task, run, seed, settings):
        """The FinishedRun, or None. UserError if the run was trained with other settings, or its checkpoint is another
        run's.

        The names of groups and custom tasks may contain the character that separates them in the names of checkpoints.
        """
        record = self.find(group, task, run)
        wanted = _values(group, seed, settings)
        if record and (differences := _differing(_values(record.group, record.seed, record.settings), wanted)):
            raise UserError(f"Run {run} of {task} in the group {group!r} was trained with {', '.join(differences)}. "
                            "Set another group_name for these runs.")
        return record

    def with_checkpoints(self):
        """Those whose checkpoint exists."""
        return Runs(run for run in self if run.path.exists())

    def best(self):
        """The one with the best dev score among those whose checkpoint exists, or None."""
        return max(self.with_checkpoints(), key=lambda run: run.rank, default=None)

    def mnli_run_of(self, group, task, mnli_group, pretrained, is_planned=False):
        """The MNLI run of a group with which the other runs of a task began, so that all begin with the same one; else
        the best, or None if runs of MNLI will be trained first.

        UserError if there is none, and if the checkpoint of the one with which the others began was deleted.
        """
        used = {run.mnli_run for run in self.of(group, task) if run.settings.start_from_mnli == mnli_group}
        if not used:
            return None if is_planned else self.best_mnli(mnli_group, pretrained)
        for run in self.of(mnli_group, "mnli").with_checkpoints():
            if run.run in used:
                return run
        path = run_path(mnli_group, "mnli", min(used))
        raise UserError(f"The other runs of {task} in the group {group!r} began with '{path}', which was deleted. "
                        "Restore it, or set another group_name.")

    def best_mnli(self, group, pretrained):
        """A group's best MNLI run that trained the encoder of the same pretrained weights. UserError if there is none.
        """
        same = [run for run in self.of(group, "mnli")
                if run.settings.pretrained_weights == pretrained.digest and not run.settings.freeze]
        if best := Runs(same).best():
            return best
        raise UserError(f"start_from_mnli needs an MNLI run in the group {group!r} with a checkpoint, from the same "
                        "pretrained weights and without freeze=True, and none was found. Finetune MNLI in that group "
                        "(with a larger end if its runs are finished), or set start_from_mnli to another one or False.")


def read_records(path):
    """The latest record of each run.

    A truncated line is skipped: a killed process leaves one, and its run is not finished. So is a run of an unknown
    task, with a warning.
    """
    latest, lines = {}, path.read_text(encoding="utf-8-sig").split("\n") if path.exists() else []
    for number, line in enumerate(lines, 1):
        content = None
        with suppress(ValueError):
            content = json.loads(line)
        if content is not None or line[:1] not in ("", "{"):
            run = record_in(content, f"{path}, line {number}", "Delete that line, or move the file.")
            try:
                task_of(run)
                latest[run.group, run.task, run.run] = run
            except ValueError:
                _warn(f"Warning: skipped {path}, line {number}: this version does not know the task {run.task!r:.60}.")
    return latest.values()


@cache
def _warn(line):
    """Print a line to stderr once in a process, which reads the file several times."""
    print(line, file=sys.stderr)


def add_run(run):
    """Append a FinishedRun to the file and flush it to disk. Several processes may append at once."""
    GLUE_FOLDER.mkdir(parents=True, exist_ok=True)
    with open(SCORES, "a+") as file:
        file.seek(0)
        is_truncated = file.read()[-1:] not in ("", "\n")  # a killed process may have left a part of a record
        file.write("\n" * is_truncated + json.dumps(asdict(run)) + "\n")
        file.flush()
        os.fsync(file.fileno())


def with_baseline(evaluations, data, settings):
    """{split: `Metrics.evaluate`} with {metric: value} of the other baseline of a TaskData, if any, as "words"."""
    scores = data.baseline(settings, [*evaluations]) if data.baseline else {}
    return {split: evaluation | ({"words": scores[split]} if split in scores else {})
            for split, evaluation in evaluations.items()}


def run_path(group, task, run):
    """Checkpoint of a run, e.g. checkpoints/glue/vanilla_11081_100.0%_cola_3.pth; without the suffix, the folder of its
    logs.
    """
    return GLUE_FOLDER / f"{group}_{task}_{run}.pth"


def _differing(stored, wanted):
    """[text about each key whose values differ] between two dictionaries."""
    return [f"{key}={stored.get(key)!r:.200}, not {wanted.get(key)!r:.200}"
            for key in {**stored, **wanted} if stored.get(key) != wanted.get(key)]


def check_same_task(run, task, path):
    """UserError if a FinishedRun was trained for another task than a Task. path: of its checkpoint."""
    name = str(path)
    if run.task != task.name:
        raise UserError(f"{name!r} was trained for the task {run.task!r}, not for {task.name!r}.")
    if differences := _differing(run.settings.own_task or {}, task.as_data() or {}):
        raise UserError(f"{name!r} was trained for another task than {task.name!r} is now: with "
                        f"{', '.join(differences)}. Restore that, or finetune with another group_name.")


def setting_differences(runs):
    """Yield a line for each setting of a task that is not the same in all runs, except the pretrained weights.

    runs: [(name of a group or a pretraining, FinishedRun)].
    """
    names_of = defaultdict(lambda: defaultdict(set))  # {(task, setting): {value: {name, ...}}}
    for name, run in runs:
        for key, value in asdict(run.settings).items():
            own_group = key == "start_from_mnli" and value == run.group
            names_of[run.task, key][str(own_group or value)].add(name)
    for (task, key), names in names_of.items():
        if len(names) > 1 and key != "pretrained_weights":
            yield f"{task} was finetuned with " + " and ".join(
                f"{key}={value} ({', '.join(sorted(of_value))})" for value, of_value in names.items())


def _values(group, seed, settings):
    """{key: value}, which are the same if a run does not have to be repeated.

    A key of a custom task that is missing has its default value.
    """
    values = asdict(settings)
    own_task = values.pop("own_task") or {}
    return {**own_task, **values, "group": group, "seed": seed}


def finished_run(checkpoint, path):
    """The FinishedRun of the content of the file `path`. UserError if it is not a checkpoint that finetune.py wrote."""
    content = checkpoint["run"] if has_keys(checkpoint, FINETUNING_KEYS) else None
    run = record_in(content, repr(str(path)), "Pass one of checkpoints/glue/*.pth.")
    with as_user_error(f"{str(path)!r} cannot be used: {{error}}. Pass one of checkpoints/glue/*.pth.", ValueError):
        task_of(run)
    return run
