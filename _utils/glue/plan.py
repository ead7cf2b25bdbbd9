"""Which runs to finetune, in which process and with which settings, and which runs predict the test sets."""
import itertools
import os
import sys

import torch

from _utils.errors import PlainError
from _utils.glue.own_tasks import names_of
from _utils.glue.runs import best_runs, check_paths, find_run, finished_run, mnli_run, read_scores, run_path, runs_of
from _utils.glue.tables import table_key
from _utils.glue.tasks import FIRST_TASK, LMTUNERS_FROM_MNLI, LMTUNERS_SETTINGS, PRONOUN_TASK
from _utils.glue.wsc_trick import find_spacy
from _utils.recipes import RECIPES
from _utils.training import choose_device, choose_precision
from _utils.training.processes import Processes


class RunProcesses(Processes):
    """Processes that finetune different runs. They exchange no tensors, so several of them may share a GPU.

    device: of the configuration; None spreads the processes evenly over the GPUs of their machine.
    """

    def __init__(self, device=None):
        super().__init__("cpu")  # over gloo: NCCL refuses processes that share a GPU
        self.configured = device

    def device(self, chosen):
        """The torch.device of this process; `chosen` is the device of a single process."""
        if self.n == 1 or chosen.type == "cpu" or self.configured is not None:
            return chosen
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count())
        torch.cuda.set_device(device)  # pinned memory is allocated through the current GPU
        return device

    def report(self, line):
        """Print a line of any process, although only the first one of a machine prints otherwise."""
        # One write for text and newline, so that the lines of several processes do not mix.
        print(f"{line}\n", end="", file=sys.stdout if self.is_main else sys.__stdout__, flush=True)


CONFIGURED_SETTINGS = ("size", "max_length", "weight_decay", "adam_bias_correction", "xavier_reinited_outlayer", "schedule",
                       "original_lr_layer_decays", "protocol", "freeze")


def hyperparameters(task, c, model_type):
    """{"lr", "epochs", "bs", "rows", "layer_decay"} of a task: the recipe's, overridden by the protocol, then by task_overrides."""
    recipe = RECIPES[c.size]
    values = {"lr": recipe.glue_lr, "epochs": task.epochs, "bs": 32, "rows": None, "layer_decay": recipe.layer_decay}
    if uses_wsc(task, c):
        values["epochs"] = 10
    if c.protocol == "lmtuners":
        values |= LMTUNERS_SETTINGS["albert" if model_type == "albert" else "others"].get(task.name, {})
    return values | c.task_overrides.get(task.name, {})


def mnli_group(task, c):
    """The group whose best MNLI run a task starts from, or False."""
    starts_from_mnli = task.name in LMTUNERS_FROM_MNLI if c.protocol == "lmtuners" else task.starts_from_mnli
    if not starts_from_mnli:
        return False
    return c.group_name if c.start_from_mnli is True else c.start_from_mnli


def uses_wsc(task, c):
    return c.wsc_trick and task.resolves_pronouns


def settings_of(task, data, c, pretrained):
    """{name: value} of all settings of a run except its seed. They are stored with the scores to detect changes within a group."""
    wsc_trick = uses_wsc(task, c)
    return {**hyperparameters(task, c, pretrained.model.config.model_type), **{key: c[key] for key in CONFIGURED_SETTINGS},
            "precision": choose_precision(c.precision, choose_device(c.device)),
            "double_unordered": c.double_unordered and task.unordered,
            "own_task": task.as_record() if task.is_own else None,
            "wsc_trick": wsc_trick, "spacy_model": find_spacy() if wsc_trick else None,
            "start_from_mnli": mnli_group(task, c),
            "training_table": table_key(data.splits["wsc_train" if wsc_trick else "train"]),
            "dev_table": table_key(data.splits["validation"]) if task.is_own else None,
            "pretrained_weights": pretrained.digest}


def plan_runs(c, pretrained, tables):
    """{task: settings} of the tasks that can be finetuned, MNLI first if others start from it. Prints what is skipped.

    Raises PlainError, before training starts, for an unavailable device, finished runs with other settings, a missing MNLI run or
    discriminator, and runs in th_run that will not exist.
    """
    plan, names = {}, names_of(c.tasks)
    for name in sorted(names, key=lambda name: name != FIRST_TASK) if c.start_from_mnli else names:
        task, data = tables[name].task, tables[name]
        missing = [data.missing[split] for split in task.train_splits if split in data.missing]
        if missing and not uses_wsc(task, c):  # the WSC trick does not read WNLI's tables
            print(f"Skipping {task.title}: {'; '.join(missing)}")
        else:
            plan[name] = settings_of(task, data, c, pretrained)
    for name in sorted(set(c.task_overrides) - set(names)):
        print(f"Ignoring task_overrides of {name}, which is not in tasks")
    unaffected = [name for name in names if name != FIRST_TASK and not mnli_group(tables[name].task, c)]
    if c.start_from_mnli and unaffected:
        print(f"Ignoring start_from_mnli for {', '.join(unaffected)}, which do not start from MNLI")
    if c.wsc_trick and PRONOUN_TASK not in names:
        print(f"Ignoring wsc_trick, because {PRONOUN_TASK} is not in tasks")
    if not plan:
        raise PlainError(f"Tables are missing for each of the tasks {', '.join(names)}. Set glue_dir=PATH to a complete GLUE download.")
    check_plan(c, plan, read_scores(), pretrained)
    return plan


def check_plan(c, plan, rows, pretrained):
    """Raise PlainError for problems that would stop the planned runs later. rows: of the table of runs."""
    for name, settings in plan.items():
        for row in runs_of(rows, c.group_name, name):  # those that this command does not train, too
            seed = seed_of(c, row["run"]) if c.start <= row["run"] < c.end else row["seed"]
            finished_run(rows, c.group_name, name, row["run"], seed, settings)
        check_paths(rows, c.group_name, name, range(c.start, c.end))
        group = settings["start_from_mnli"]
        if group and not (group == c.group_name and FIRST_TASK in plan):
            mnli_run(rows, group, pretrained)
        if settings["wsc_trick"]:
            pretrained.discriminator()
    chosen_runs(c, rows, plan)


def seed_of(c, run):
    return c.seeds[run] if c.seeds else run


def assign_runs(c, plan, rows, processes):
    """{(task, run): index of its process}: unfinished runs round-robin; finished runs, which are only printed, to the first process.

    rows: of the table of runs. Other commands may change it meanwhile, so all processes use what the first one read.
    """
    runs = [(name, run) for name in plan for run in range(c.start, c.end)]
    is_finished = processes.broadcast(lambda: [find_run(rows, c.group_name, name, run) is not None for name, run in runs])
    turns = itertools.cycle(range(processes.n))
    return {run: 0 if finished else next(turns) for run, finished in zip(runs, is_finished)}


def chosen_runs(c, rows, plan=()):
    """{task: numbers of the runs that predict its test sets}; [] for a task without runs. rows: of the table of runs.

    plan: tasks whose runs start, ..., end - 1 will be finished by then.   Raises PlainError for a run in th_run that is neither planned nor
    finished with its checkpoint, and if no task has a run.
    """
    chosen = {}
    for name in names_of(c.tasks):
        has_runs = name in plan or runs_of(rows, c.group_name, name)
        requested = requested_runs(c.th_run, name, has_runs)
        for run in requested:
            path, is_planned = run_path(c.group_name, name, run), name in plan and c.start <= run < c.end
            if not is_planned and not (find_run(rows, c.group_name, name, run) and path.exists()):
                raise PlainError(f"th_run names run {run} of {name}, but in the group {c.group_name!r} it is not finished, or "
                                 f"{str(path)!r} was deleted. Choose another run, or finetune it.")
        chosen[name] = requested or best_runs(rows, c.group_name, name)
    if not plan and not any(chosen.values()):
        finished = dict.fromkeys(row["task"] for row in rows if row["group"] == c.group_name)
        others = f" (it has runs of {', '.join(finished)})" if finished else ""
        raise PlainError(f"The group {c.group_name!r} has no finished run of {', '.join(names_of(c.tasks))} with a checkpoint{others}. "
                         "Finetune first with do_finetune=True, or set tasks or group_name.")
    return chosen


def requested_runs(th_run, name, has_runs):
    """The runs that th_run names for a task; [] for the best run. Without a dictionary, th_run applies to the tasks that have runs."""
    if isinstance(th_run, dict):
        th_run = th_run.get(name)
    elif not has_runs:
        return []
    return [th_run] if isinstance(th_run, int) else th_run or []
