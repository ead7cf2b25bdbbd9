"""Which tasks and runs to finetune, and which runs predict the test sets."""
import os
import sys

import torch

from _utils.errors import UserError
from _utils.finetuning.config import check_windows, names_of
from _utils.finetuning.lengths import default_length
from _utils.finetuning.results import format_scores, notices_of
from _utils.finetuning.runs import Runs, run_path
from _utils.networks.build import check_length
from _utils.progress import counted
from _utils.tasks.registry import task_of
from _utils.tasks.rows import training_rows, updates_per_epoch
from _utils.tasks.settings import Settings
from _utils.tasks.tables import rows_of_splits, table_key
from _utils.training import choose_device, choose_precision
from _utils.training.processes import Processes


class RunProcesses(Processes):
    """Processes that finetune different runs. They exchange no tensors, so several of them may share a GPU.

    device: of the configuration; None spreads the processes evenly over the GPUs of their machine.
    """

    def __init__(self, device=None):
        super().__init__("cpu")  # over gloo: NCCL refuses processes that share a GPU
        if self.n > 1 and device is None and torch.cuda.is_available():
            torch.cuda.set_device(int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count())

    def device(self, chosen):
        """The torch.device of this process: `chosen`, which is the current GPU if the configuration names no device."""
        return chosen

    def report(self, line):
        """Print a line of any process, although only the first one of a machine prints otherwise."""
        is_silent = getattr(sys.stdout, "name", None) == os.devnull
        # One write for text and newline, so that the lines of several processes do not mix.
        print(f"{line}\n", end="", file=sys.__stdout__ if is_silent else sys.stdout, flush=True)


def for_checkpoint(config, pretrained):
    """The configuration with the size and the maximum length of a Pretrained, where they are None.

    Raises UserError for a maximum length that the model or window_stride does not allow.
    """
    config = config.with_defaults({"size": pretrained.size, "max_length": default_length(pretrained)})
    check_length(pretrained.model, config.max_length, repr(pretrained.name))
    check_windows(config)
    return config


def seed_of(c, run):
    """The seed of a run number."""
    return c.seeds[run] if c.seeds else run


def trainable_tasks(c, tables):
    """Names of the tasks that can be finetuned, MNLI first if others start from it. UserError if no task is left.

    tables: {task: TaskData}.
    """
    names = [name for name in names_of(c.tasks) if not missing_tables(tables[name])]
    if not names:
        name = names_of(c.tasks)[0]
        raise UserError(f"Tables are missing for each of the tasks {', '.join(names_of(c.tasks))} "
                        f"({'; '.join(missing_tables(tables[name]))}). Set glue_dir=PATH to a complete GLUE download.")
    return sorted(names, key=lambda name: name != "mnli") if c.start_from_mnli else names


CONFIGURED_SETTINGS = ("size", "max_length", "weight_decay", "adam_bias_correction", "xavier_reinited_outlayer",
                       "schedule", "original_lr_layer_decays", "freeze", "keep")
FEW_UPDATES = 100  # of a run, below which a warning is printed
STARTED_FROM_MNLI = ("mrpc", "stsb", "rte")


def settings_of(task, splits, values, c, pretrained):
    """The Settings of a run.

    splits: {name: Dataset} of the task.   values: its hyperparameters.
    """
    keys = [*CONFIGURED_SETTINGS, *task.head.keys]
    if task.unordered:
        keys.append("double_unordered")
    return Settings(
        **values,
        **{key: c[key] for key in keys},
        precision=choose_precision(c.precision, choose_device(c.device)),
        own_task=task.as_data(),
        start_from_mnli=task.name in STARTED_FROM_MNLI and c.start_from_mnli,
        training_table=table_key(splits["train"]),
        dev_table=table_key(splits[task.devs[0]]),
        pretrained_weights=pretrained.digest,
    )


def missing_tables(data):
    """Messages about files of a TaskData without which the task cannot be finetuned."""
    return [message for split, message in data.missing.items() if split not in data.task.test_files]


def print_tables(tables, settings_by_task=(), official=True, family=None):
    """Print for each task the rows of its tables, the updates of a run, and below them notices.

    tables: {task: TaskData}.   settings_by_task: {task: settings} of the tasks to finetune.   official: as in
    `rows_of_splits`.
    family: of the encoder, to say what export_hf will refuse; None: nothing.
    """
    for name, data in tables.items():
        text, notices = rows_of_splits(data, official), [*data.missing.values(), *data.notices]
        if name in settings_by_task:
            text += f"; {text_of_updates(data, settings_by_task[name])}"
            # GLUE's models are for the server.
            if data.task.as_data() and (head := data.task.head.why_not_exported(settings_by_task[name], family)):
                text += f"; export_hf cannot write {head}"
        elif settings_by_task and missing_tables(data):
            text += "; not finetuned"
        print(f"{data.task.title:6} {text}", *notices, sep="\n       ")


def text_of_updates(data, settings):
    """The number of updates of a run as text, with a warning if there are few. settings: of the run."""
    n_orders, orders = (2, "of both orders ") if settings.double_unordered else (1, "")
    n_rows = len(training_rows(data.splits["train"], settings.rows))
    n = settings.epochs * updates_per_epoch(n_orders * n_rows, settings.bs)
    text = f"{counted(settings.epochs, 'epoch')} {orders}with batch size {settings.bs} = {n:,} updates per run"
    if settings.window_stride:  # texts are not yet divided
        text += ", and more if texts are divided into windows"
    elif n < FEW_UPDATES:
        text += f" (few: a model may not learn; set task_overrides={{'{data.task.name}': {{'epochs': N}}}})"
    return text


def check_settings(c, settings_by_task, pretrained):
    """Raise UserError for problems that would stop the planned runs later. settings_by_task: {task: settings}.

    Such problems are finished runs with other settings, a missing MNLI run, and runs in th_run that will not exist.
    """
    runs = Runs()
    for name, settings in settings_by_task.items():
        # also of runs that this command does not train
        seeds = {record.run: record.seed for record in runs.of(c.group_name, name)}
        for run, seed in (seeds | {run: seed_of(c, run) for run in range(c.start, c.end)}).items():
            runs.finished(c.group_name, name, run, seed, settings)
        group = settings.start_from_mnli
        if group and not (group == c.group_name and "mnli" in settings_by_task):
            runs.best_mnli(group, pretrained)
    chosen_runs(c, runs, settings_by_task)


def chosen_runs(c, runs, planned=()):
    """{task: records of the runs that predict its test sets}: those in th_run, or the best one; [] without a run.

    planned: tasks whose runs start, ..., end - 1 will be trained; their records are None.
    Raises UserError for a run in th_run that is neither planned nor finished with its checkpoint, and if no task has a
    run.
    """
    chosen = {}
    for name in names_of(c.tasks):
        of_task = runs.of(c.group_name, name)
        finished = sorted(of_task.with_checkpoints(), key=lambda run: run.rank, reverse=True)
        known = dict.fromkeys(range(c.start, c.end) if name in planned else ())
        known |= {record.run: record for record in finished}
        of_all = c.th_run if of_task or known else ()  # a list is for the tasks that have runs
        wanted = c.th_run.get(name, ()) if isinstance(c.th_run, dict) else of_all
        if missing := [run for run in wanted if run not in known]:
            path = run_path(c.group_name, name, missing[0])
            raise UserError(f"th_run names run {missing[0]} of {name}, but in the group {c.group_name!r} it is not "
                            f"finished, or '{path}' was deleted. Choose another run, or finetune it.")
        chosen[name] = [known[run] for run in wanted] or finished[:1]
    if not planned and not any(chosen.values()):
        raise UserError(f"The group {c.group_name!r} has no finished run of {', '.join(chosen)} with a checkpoint. "
                        "Finetune first with do_finetune=True, or set tasks or group_name.")
    return chosen


def report_run(record, status, processes):
    """Print the scores of a finished run, and warnings about its predictions."""
    task = task_of(record)
    status = ", ".join([status, *dict.fromkeys(record.remarks.values())])
    result = f"{task.title}, run {record.run}, seed {record.seed}: {format_scores(record)} ({status})"
    processes.report("; ".join([result, *(f"warning, {notice}" for notice in notices_of(record))]))
