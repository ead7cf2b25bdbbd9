"""Configuration of finetuning: the rules of its keys, and the values derived from other keys."""
import os

from _utils.config import check_logger, unless_given, with_quickstart
from _utils.config_rules import (
    DEVICE,
    FILE_NAME,
    LENGTH,
    LOGGER,
    POSITIVE,
    PRECISION,
    SCHEDULES,
    SEED,
    by_name,
    choice,
    count,
    either,
    flag,
    list_of,
    mapping,
    number,
    optional,
    text,
)
from _utils.errors import PlainError
from _utils.glue.own_tasks import OWN_TASK, check_names, names_of
from _utils.glue.tasks import AVERAGED_TASKS, FINETUNED_TASKS
from _utils.recipes import RECIPES

_RUNS = either(count(0), list_of(count(0), "a list of runs"), accepts="a run or a list of runs")
_TASKS = either(choice(*FINETUNED_TASKS), OWN_TASK, accepts="a task")
_TASK_SETTINGS = mapping({"lr": POSITIVE, "epochs": count(), "bs": count(), "rows": count()}, "the settings of a task")

# In the order of the first cell of Finetune_GLUE.ipynb.
FINETUNE_RULES = {
    "quickstart": flag(),
    "device": DEVICE,
    "start": count(0),
    "end": count(1),
    "tasks": list_of(_TASKS, f"a list of different tasks from {', '.join(FINETUNED_TASKS)}, or of dictionaries such as "
                     "{'train': 'reviews.csv', 'text': 'review', 'label': 'stars'}, with the quotes", check_names),
    "pretrained_checkpoint": optional(text("the name of a checkpoint of pretrain.py, a path, or a hub id")),
    "seeds": optional(list_of(SEED, "a list of integers, one for each run")),
    "weight_decay": number("a number in [0, 1)", lambda value: 0 <= value < 1),
    "adam_bias_correction": flag(),
    "xavier_reinited_outlayer": flag(),
    "schedule": choice(*SCHEDULES),
    "original_lr_layer_decays": flag(),
    "double_unordered": flag(),
    "protocol": choice(None, "lmtuners"),
    "start_from_mnli": either(flag(), text(), accepts="True, False or the name of a group"),
    "task_overrides": by_name(_TASK_SETTINGS, "{task: {'lr': number, 'epochs': count, 'bs': count, 'rows': count}}, each of the four "
                              "optional"),
    "do_finetune": flag(),
    "th_run": optional(either(_RUNS, by_name(_RUNS, "runs by task"),
                              accepts="a run, a list of runs, or {task: a run or a list of runs}")),
    "majority_for_missing": flag(),
    "size": choice(*RECIPES),
    "max_length": LENGTH,
    "wsc_trick": flag(),
    "freeze": flag(),
    "glue_dir": optional(text("the folder of a GLUE download")),
    "wsc_dir": optional(text("the folder with train.jsonl and val.jsonl of WSC")),
    "precision": PRECISION,
    "num_workers": count(0),
    "logger": LOGGER,
    "group_name": optional(FILE_NAME),
}

QUICKSTART_GLUE = {"size": "tiny", "pretrained_checkpoint": "quickstart_11081_100.0%.pth", "end": 2, "group_name": "quickstart",
                   "glue_dir": "datasets/quickstart_glue"}


def complete_finetuning(config):
    """Fill in derived values: the quickstart's, the protocol's, the maximum length, the group name and the folder of WSC.

    Raises PlainError for values that contradict each other.
    """
    quickstart = dict(QUICKSTART_GLUE)
    if "pretrained_checkpoint" in config.overridden:
        quickstart["group_name"] = config.group_name  # derived from the checkpoint below
    config = with_quickstart(config, quickstart)
    if config.protocol == "lmtuners":  # its hyperparameters, which also depend on the model, follow in plan.py
        config = unless_given(config, {"end": 5, "start_from_mnli": True, "tasks": list(AVERAGED_TASKS)})
    config = config.copy_with(_derived(config))
    _check(config)
    return config


def _derived(config):
    """Values for the keys that are None and depend on others."""
    derived = {}
    if config.max_length is None:
        is_from_pretrain = (config.pretrained_checkpoint or "").endswith(".pth")
        derived["max_length"] = RECIPES[config.size].glue_length if is_from_pretrain else 512
    if config.group_name is None:
        name = config.pretrained_checkpoint or f"electra_{config.size}_google"
        derived["group_name"] = _group_of(name.rstrip("/\\"))
    if config.wsc_trick and config.wsc_dir is None and config.glue_dir is not None:
        folder = os.path.join(config.glue_dir, "WSC")
        derived["wsc_dir"] = folder if os.path.isdir(folder) or config.quickstart else None
    return derived


def _group_of(model):
    """Group name for a checkpoint, folder or hub id: the last part of the path, or the last two for one network of a pair."""
    parent, last = os.path.split(model.removesuffix(".pth"))
    in_pair = last in ("discriminator", "generator", "classifier") and os.path.basename(parent)
    return f"{os.path.basename(parent)}_{last}" if in_pair else last or "finetuned"


def _check(config):
    _check_names(config)
    if config.freeze and config.wsc_trick:
        raise PlainError("freeze=True trains only an output layer, and wsc_trick=True has none. Leave one of them out.")
    if config.end <= config.start:
        raise PlainError(f"start={config.start} and end={config.end} select no run: the runs are start, start + 1, ..., end - 1.")
    if config.seeds is not None and len(config.seeds) < config.end:
        raise PlainError(f"seeds has {len(config.seeds)} entries, but the last run is {config.end - 1} and run i uses the i-th seed. "
                         "Add seeds, or set seeds=None.")
    if config.wsc_dir is not None and not config.wsc_trick:
        raise PlainError(f"wsc_dir={config.wsc_dir!r} is only used with wsc_trick=True. Add it, or remove wsc_dir.")
    check_logger(config)


def _check_names(config):
    """PlainError for a name in task_overrides or th_run that no task has, and for one in th_run that is not in tasks."""
    known = dict.fromkeys((*FINETUNED_TASKS, *names_of(config.tasks)))
    for key in ("task_overrides", "th_run"):
        for name in config[key] if isinstance(config[key], dict) else ():
            if name not in known:
                raise PlainError(f"Invalid value for {key}: there is no task {name!r:.60}. Choose from {', '.join(known)}.")
    tasks = names_of(config.tasks)
    for name in config.th_run if isinstance(config.th_run, dict) else ():
        if name not in tasks:
            raise PlainError(f"th_run names {name}, which is not in tasks ({', '.join(tasks)}). Add it to tasks, or remove it.")


def uses_synthetic_glue(config):
    """True for the quickstart's tables, which are generated on the fly and whose scores do not carry over to GLUE."""
    return config.glue_dir is not None and os.path.realpath(config.glue_dir) == os.path.realpath(QUICKSTART_GLUE["glue_dir"])
