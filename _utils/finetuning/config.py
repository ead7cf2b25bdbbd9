"""Configuration of finetuning: the keys and their types, and the values derived from other keys."""
import os
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, ConfigDict, Field, with_config
from typing_extensions import TypedDict

from _utils.config import (
    Count,
    Device,
    FileName,
    Index,
    Length,
    Logger,
    Positive,
    Precision,
    Schedule,
    Size,
    Text,
    check_logger,
    list_of,
    number,
)
from _utils.errors import PlainError
from _utils.networks.build import check_length
from _utils.recipes import RECIPES
from _utils.tasks.base import Task
from _utils.tasks.custom import QUESTION_TASKS, complete_own_task, question_task
from _utils.tasks.glue import FINETUNED_TASKS
from _utils.tasks.kinds import KINDS

_NAMES = *FINETUNED_TASKS, *QUESTION_TASKS
_Tasks = list_of(Literal[_NAMES] | Annotated[dict, AfterValidator(complete_own_task)], (
    f"a list of different tasks from {', '.join(_NAMES)}, or of dictionaries such as "
    "{'train': 'reviews.csv', 'text': 'review', 'label': 'stars'}, with the quotes"))
_Runs = list_of(Index, "a run or a list of runs")


def names_of(tasks):
    """The names of the entries of `tasks`, in their order; an entry is a name of GLUE's, or the dictionary of an own task."""
    return [task if isinstance(task, str) else task["name"] for task in tasks]


def _check_names(tasks):
    """The tasks; PlainError if two have the same name."""
    names = names_of(tasks)
    for name in names:
        if names.count(name) > 1:
            raise PlainError(f"Invalid value for tasks: two tasks are called {name!r}. Remove one, or set 'name'.")
    return tasks


@with_config(ConfigDict(extra="forbid"))
class _TaskSettings(TypedDict, total=False):
    lr: Positive
    epochs: Count
    bs: Count
    rows: Count


class FinetuneKeys(TypedDict):
    """The keys of Finetune_GLUE.ipynb, in the order of its first cell, which explains them."""
    quickstart: bool
    device: Device | None
    start: Index
    end: Count
    tasks: Annotated[_Tasks, AfterValidator(_check_names)]
    pretrained_checkpoint: Text | None
    seeds: list_of(Index, "a list of integers, one for each run") | None
    weight_decay: number("a number in [0, 1)", ge=0, lt=1)
    adam_bias_correction: bool
    xavier_reinited_outlayer: bool
    schedule: Schedule
    original_lr_layer_decays: bool
    double_unordered: bool
    start_from_mnli: bool | Text
    task_overrides: Annotated[dict[str, _TaskSettings], Field(description=(
        "{task: {'lr': number, 'epochs': count, 'bs': count, 'rows': count}}, each of the four optional"))]
    do_finetune: bool
    th_run: _Runs | Annotated[dict[str, _Runs], Field(description="{task: a run or a list of runs}")] | None
    majority_for_missing: bool
    size: Size | None
    max_length: Length | None
    window_stride: Count | None
    wsc_trick: bool
    freeze: bool
    pooling: Literal["first", "mean"]
    keep: Literal["last", "best"]
    glue_dir: Text | None
    wsc_dir: Text | None
    precision: Precision
    num_workers: Index
    logger: Logger
    group_name: FileName | None


FINETUNE_KEYS = FinetuneKeys.__annotations__
QUICKSTART_GLUE = {"pretrained_checkpoint": "quickstart_11081_100.0%.pth", "end": 2, "group_name": "quickstart",
                   "glue_dir": "datasets/quickstart_glue"}


def complete_finetuning(config):
    """Fill in what follows from the configuration alone: the quickstart's values, group name and folder of WSC.

    Raises PlainError for values that contradict each other.
    """
    if config.quickstart:
        # A group name of one's own checkpoint follows below.
        derived = {"group_name": config.group_name} if "pretrained_checkpoint" in config.overridden else {}
        config = config.unless_given(QUICKSTART_GLUE | derived)
    tasks = [question_task(task, config.glue_dir) if task in QUESTION_TASKS else task for task in config.tasks]
    model = config.pretrained_checkpoint or f"electra_{config.size or 'small'}_google"
    config = config.copy_with({"tasks": tasks}).with_defaults({"group_name": _group_of(model)})
    if config.wsc_trick and config.glue_dir is not None:
        folder = os.path.join(config.glue_dir, "WSC")
        config = config.with_defaults({"wsc_dir": folder if os.path.isdir(folder) or config.quickstart else None})
    _check(config)
    return config


def for_checkpoint(config, pretrained):
    """The configuration with the size and the maximum length of a Pretrained, where they are None.

    Raises PlainError for a maximum length that the model or window_stride does not allow.
    """
    kinds = {Task if isinstance(task, str) else KINDS.get(task["kind"], Task) for task in config.tasks}
    of_recipe = min(kind.default_length(RECIPES[pretrained.size]) for kind in kinds)
    length = of_recipe if pretrained.name.endswith(".pth") else 512
    config = config.with_defaults({"size": pretrained.size, "max_length": length})
    check_length(pretrained.model, config.max_length, repr(pretrained.name))
    _check_windows(config)
    return config


def _check_windows(config):
    if config.window_stride and config.max_length and config.window_stride >= config.max_length:
        raise PlainError(f"window_stride={config.window_stride} would leave out tokens between windows of "
                         f"max_length={config.max_length} tokens. Set it to half of max_length, for example.")


def _group_of(model):
    """Group name for a checkpoint, folder or hub id: the last part of the path, or the last two for one network of a pair."""
    path = Path(model.removesuffix(".pth"))
    in_pair = path.name in ("discriminator", "generator", "classifier") and path.parent.name
    return f"{path.parent.name}_{path.name}" if in_pair else path.name or "finetuned"


def _check(config):
    tasks = names_of(config.tasks)
    for key, known in (("task_overrides", (*FINETUNED_TASKS, *tasks)), ("th_run", tasks)):
        for name in config[key] if isinstance(config[key], dict) else ():
            if name not in known:
                raise PlainError(f"Invalid value for {key}: there is no task {name!r:.60}. Choose from {', '.join(known)}.")
    if config.freeze and config.wsc_trick:
        raise PlainError("freeze=True trains only an output layer, and wsc_trick=True has none. Leave one of them out.")
    _check_windows(config)
    if config.end <= config.start:
        raise PlainError(f"start={config.start} and end={config.end} select no run: the runs are start, start + 1, ..., end - 1.")
    if config.seeds is not None and len(config.seeds) < config.end:
        raise PlainError(f"seeds has {len(config.seeds)} entries, but the last run is {config.end - 1} and run i uses the i-th seed. "
                         "Add seeds, or set seeds=None.")
    check_logger(config)


def uses_synthetic_glue(config):
    """True for the quickstart's tables, which are generated on the fly and whose scores do not carry over to GLUE."""
    return config.glue_dir is not None and os.path.realpath(config.glue_dir) == os.path.realpath(QUICKSTART_GLUE["glue_dir"])
