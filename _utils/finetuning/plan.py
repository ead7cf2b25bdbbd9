"""The plan of a group's runs: their tables and settings, and which of them predict the test sets."""
from _utils.errors import UserError
from _utils.finetuning.config import check_windows, custom_tasks, names_of, uses_synthetic_glue
from _utils.finetuning.runs import Runs, run_path
from _utils.networks.build import check_length
from _utils.tasks.glue import load_task
from _utils.tasks.parts import Head
from _utils.tasks.settings import Settings
from _utils.tasks.synthetic import write_synthetic_glue
from _utils.tasks.tables import table_key
from _utils.tasks.task_names import STARTED_FROM_MNLI
from _utils.tasks.wsc import WSC, load_wsc_task
from _utils.text.special_tokens import templates_of, text_tokenizer
from _utils.training import choose_device, choose_precision

CONFIGURED_SETTINGS = ("size", "max_length", "weight_decay", "adam_bias_correction", "xavier_reinited_outlayer",
                       "schedule", "original_lr_layer_decays", "freeze", "keep", "recipe")


def load_tables(c):
    """{task: TaskData} of the configured tasks."""
    if uses_synthetic_glue(c):
        write_synthetic_glue(c.glue_dir)
    tables = {}
    for name, entry in zip(names_of(c.tasks), c.tasks):
        if isinstance(entry, dict):
            tables[name] = custom_tasks("task_kinds").load_custom_task(entry)
        elif name == WSC.name and c.wsc_trick and c.do_finetune:
            tables[name] = load_wsc_task(c.glue_dir)
        else:
            tables[name] = load_task(name, c.glue_dir)
    return tables


def for_checkpoint(config, pretrained):
    """The configuration with the size and the maximum length of a Pretrained, where they are None.

    Raises UserError for a maximum length that the model or window_stride does not allow.
    """
    config = config.with_defaults({"size": pretrained.size, "max_length": pretrained.default_length})
    check_length(pretrained.model, config.max_length, repr(pretrained.name))
    check_windows(config)
    return config


def seeds_of(c):
    """{run to train: its seed}."""
    return {run: c.seeds[run] if c.seeds else run for run in range(c.start, c.end)}


def plan_runs(c, tables, pretrained, hyperparameters):
    """{task: Settings} of the runs to train, MNLI first if others start from it.

    tables: {task: TaskData}, whose warnings are extended.   hyperparameters: function (task, configuration, number of
    training rows) -> {name: value}.
    Raises UserError for problems that would stop the runs later.
    """
    names, settings = names_of(c.tasks), {}
    if c.start_from_mnli:
        names.sort(key=lambda name: name != "mnli")
    for name in names:
        task, splits, missing, warnings, *_ = tables[name]
        for split in ("train", *task.devs):
            if split in missing:
                raise UserError(f"The task {name} cannot be finetuned: {missing[split]}. Set glue_dir=PATH to a "
                                "complete GLUE download, or leave the task out of tasks.")
        values = hyperparameters(task, c, len(splits["train"]))
        settings[name] = settings_of(task, splits, values, c, pretrained)
        check_first_token(task, settings[name], pretrained)
        warnings += warnings_about(task, settings[name], c, pretrained)
    check_finished_runs(c, settings, pretrained)
    return settings


def settings_of(task, splits, values, c, pretrained):
    """The Settings of a run.

    splits: {name: Dataset} of the task.   values: its hyperparameters.
    """
    return Settings(
        **values,
        **configured(task, c),
        precision=choose_precision(c.precision, choose_device(c.device)),
        own_task=task.as_data(),
        training_table=table_key(splits["train"]),
        dev_table=table_key(splits[task.devs[0]]),
        pretrained_weights=pretrained.digest,
    )


def configured(task, c):
    """{name: value} of the Settings of a Task that are keys of the configuration."""
    values = {key: c[key] for key in (*CONFIGURED_SETTINGS, *task.head.keys)}
    values["double_unordered"] = task.unordered and c.double_unordered
    values["start_from_mnli"] = task.name in STARTED_FROM_MNLI and c.start_from_mnli
    values["wsc_trick"] = task.name == WSC.name and c.wsc_trick
    return values


def check_first_token(task, settings, pretrained):
    """UserError if the classifier of a task would read the first word of a text, because the tokenizer of a Pretrained
    puts no special token there. settings: of a run.
    """
    reads_first = "pooling" in task.head.keys and settings.pooling == "first"
    if reads_first and not templates_of(text_tokenizer(pretrained.hf_tokenizer))[1].special[0]:
        raise UserError(f"The tokenizer of {pretrained.name!r} puts no special token, such as [CLS], before a text, so "
                        "the classifier would read its first word only. Set pooling=mean, or save the tokenizer of the "
                        "model's training in its folder.")


def warnings_about(task, settings, c, pretrained):
    """Yield warnings about keys that have no effect on a task, and a model that cannot be exported."""
    if unused := [key for key in Head.keys if key not in task.head.keys and c.differs(key)]:
        yield f"no effect with this kind of task: {', '.join(unused)}"
    head = task.head.why_not_exported(settings, pretrained.model.config.model_type)
    if head and task.as_data():  # GLUE's models are for the server
        yield f"export_hf cannot write {head}"


def check_finished_runs(c, settings_by_task, pretrained):
    """Raise UserError for finished runs with other settings, a missing MNLI run, and runs in th_run that will not
    exist. settings_by_task: {task: Settings}.
    """
    runs, planned = Runs(), seeds_of(c)
    for name, settings in settings_by_task.items():
        finished = {record.run: record.seed for record in runs.of(c.group_name, name)}
        for run, seed in (finished | planned).items():
            runs.finished(c.group_name, name, run, seed, settings)
        group = settings.start_from_mnli
        if group and not planned.keys() <= finished.keys():
            finished_mnli = {record.run for record in runs.of(group, "mnli")}
            is_planned = group == c.group_name and "mnli" in settings_by_task and not planned.keys() <= finished_mnli
            runs.mnli_run_of(c.group_name, name, group, pretrained, is_planned)
    chosen_runs(c, runs, planned)


def chosen_runs(c, runs, planned=()):
    """{task: records of the runs that predict its test sets}: those in th_run, or the best one; [] without a run.

    planned: numbers of runs that will be trained; their records are None.
    Raises UserError for a run in th_run that is neither planned nor finished with its checkpoint, and, without
    do_finetune, if no task has a run.
    """
    chosen = {}
    for name in names_of(c.tasks):
        of_task = runs.of(c.group_name, name)
        new = {*planned} - {record.run for record in of_task}
        known = {**dict.fromkeys(new), **{record.run: record for record in of_task.with_checkpoints()}}
        of_all = c.th_run if of_task or known else ()  # a list is for the tasks that have runs
        wanted = c.th_run.get(name, ()) if isinstance(c.th_run, dict) else of_all
        if missing := [run for run in wanted if run not in known]:
            path = run_path(c.group_name, name, missing[0])
            raise UserError(f"th_run names run {missing[0]} of {name}, but in the group {c.group_name!r} it is not "
                            f"finished, or '{path}' was deleted. Choose another run, finetune it, or restore the file.")
        chosen[name] = [known[run] for run in wanted] or [*filter(None, [of_task.best()])]
    if not (c.do_finetune or any(chosen.values())):
        raise UserError(f"The group {c.group_name!r} has no finished run of {', '.join(chosen)} with a checkpoint. "
                        "Finetune first (without do_finetune=False), set tasks or group_name, or restore a checkpoint.")
    return chosen
