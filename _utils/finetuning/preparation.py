"""Which tasks and runs to finetune, and which runs predict the test sets."""
import os
import sys

import torch

from _utils.errors import UserError
from _utils.finetuning.config import check_windows, names_of
from _utils.finetuning.results import format_scores, notices_of
from _utils.finetuning.runs import Runs, run_path, task_of
from _utils.networks.build import check_length, has_learned_positions
from _utils.progress import counted
from _utils.recipes import RECIPES
from _utils.tasks.parts import Head
from _utils.tasks.settings import Settings
from _utils.tasks.tables import table_key
from _utils.text.special_tokens import template_of, text_tokenizer
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

    def report(self, line):
        """Print a line of any process, although only the first one of a machine prints otherwise."""
        is_silent = getattr(sys.stdout, "name", None) == os.devnull
        # One write for text and newline, so that the lines of several processes do not mix.
        print(f"{line}\n", end="", file=sys.__stdout__ if is_silent else sys.stdout, flush=True)


def default_length(pretrained):
    """Maximum tokens of a row for a Pretrained.

    Of a checkpoint of pretrain.py, as many as in pretraining. Rotary positions, which have no embeddings to train, also
    work for longer texts: then at least as many as in the recipe. Of others, all positions, but at most 512.
    """
    if not pretrained.run:
        return min(512, pretrained.length)
    if has_learned_positions(pretrained.model):
        return pretrained.length
    return max(RECIPES[pretrained.size].glue_length, pretrained.run["max_length"])


def length_warnings(config, pretrained):
    """[A warning] if the maximum length is more than the positions that were trained, or []."""
    if config.max_length <= pretrained.length or not has_learned_positions(pretrained.model):
        return []
    return [f"warning: max_length={config.max_length}, but {pretrained.name!r} was made for texts of at most "
            f"{pretrained.length} tokens, so the embeddings of later positions were not trained. Set "
            f"max_length={pretrained.length}, for longer texts with window_stride={pretrained.length // 2}."]


def case_warnings(pretrained):
    """[A warning] if the tokenizer lowers all texts, but many tokens of its vocabulary have capital letters, or []."""
    hf_tokenizer = pretrained.hf_tokenizer
    normalizer = hf_tokenizer.backend_tokenizer.normalizer
    tokens = hf_tokenizer.get_vocab().keys() - {*hf_tokenizer.all_special_tokens}
    n = sum(token != token.lower() for token in tokens)
    if not normalizer or not normalizer.normalize_str("A").endswith("a") or n < .05 * len(tokens):
        return []
    return [f"warning: the tokenizer of {pretrained.name!r} lowers all texts, but {n:,} of its {len(tokens):,} tokens "
            "have capital letters. If the model is cased, set \"do_lower_case\": false in its tokenizer_config.json."]


def advice_about_length(settings, longest, keys):
    """What to do about texts that are too long.

    settings: of a run.   longest: tokens that the model allows.   keys: settings of the head.
    """
    limit = f" (at most {longest})" if longest < 1 << 30 else ""  # some networks have no limit
    ways = [f"max_length{limit}"] if settings.max_length < longest else []
    ways += ["window_stride"] if "window_stride" in keys else []
    return f"Set {' or '.join(ways)}, or shorten the texts." if ways else "Shorten the texts."


def for_checkpoint(config, pretrained):
    """The configuration with the size and the maximum length of a Pretrained, where they are None.

    Raises UserError for a maximum length that the model or window_stride does not allow.
    """
    config = config.with_defaults({"size": pretrained.size, "max_length": default_length(pretrained)})
    check_length(pretrained.model, config.max_length, repr(pretrained.name))
    check_windows(config)
    return config


def seeds_of(c):
    """{run to train: its seed}."""
    return {run: c.seeds[run] if c.seeds else run for run in range(c.start, c.end)}


CONFIGURED_SETTINGS = ("size", "max_length", "weight_decay", "adam_bias_correction", "xavier_reinited_outlayer",
                       "schedule", "original_lr_layer_decays", "freeze", "keep", "recipe")
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


def check_first_token(task, settings, pretrained):
    """UserError if the classifier of a task would read the first word of a text, because the tokenizer of a Pretrained
    puts no special token there. settings: of a run.
    """
    reads_first = "pooling" in task.head.keys and settings.pooling == "first"
    if reads_first and not template_of(text_tokenizer(pretrained.hf_tokenizer)).before:
        raise UserError(f"The tokenizer of {pretrained.name!r} puts no special token, such as [CLS], before a text, so "
                        "the classifier would read its first word only. Set pooling=mean, or save the tokenizer of the "
                        "model's training in its folder.")


def unused_keys(task, c):
    """[A notice with the keys of sentences and pairs that have no effect on a task], or []."""
    unused = [key for key in Head.keys if key not in task.head.keys and c.differs(key)]
    return [f"no effect with this kind of task: {', '.join(unused)}"] if unused else []


def print_tables(tables, settings_by_task=None, are_official=True):
    """Print for each task the rows of its tables, the epochs of a run, and below them notices.

    tables: {task: TaskData}.   settings_by_task: {task: settings} of the tasks to finetune.
    are_official: an incomplete table of GLUE reads '10,471 of 392,702'.
    """
    for name, data in tables.items():
        parts = []
        for split, rows in data.splits.items():
            n_official = data.task.official_rows.get(split, 0) if are_official else 0
            missing = f" of {n_official:,}" if len(rows) < n_official else ""
            parts.append(f"{split} {len(rows):,}{missing}")
        text = ", ".join(parts)
        if settings_by_task:
            settings = settings_by_task[name]
            text += f"; {counted(settings.epochs, 'epoch')} with batch size {settings.bs}"
        print(f"{data.task.title:6} {text}", *data.missing.values(), *data.messages, sep="\n       ")


def check_settings(c, settings_by_task, pretrained):
    """Raise UserError for problems that would stop the planned runs later. settings_by_task: {task: settings}.

    Such problems are finished runs with other settings, a missing MNLI run, and runs in th_run that will not exist.
    """
    runs = Runs()
    for name, settings in settings_by_task.items():
        finished = {record.run: record.seed for record in runs.of(c.group_name, name)}
        for run, seed in (finished | seeds_of(c)).items():
            runs.finished(c.group_name, name, run, seed, settings)
        group = settings.start_from_mnli
        if group and not seeds_of(c).keys() <= finished.keys():
            is_planned = group == c.group_name and "mnli" in settings_by_task
            runs.mnli_run_of(c.group_name, name, group, pretrained, is_planned)
    chosen_runs(c, runs, planned=seeds_of(c))


def chosen_runs(c, runs, planned=()):
    """{task: records of the runs that predict its test sets}: those in th_run, or the best one; [] without a run.

    planned: numbers of runs that will be trained; their records are None.
    Raises UserError for a run in th_run that is neither planned nor finished with its checkpoint, and if no task has a
    run.
    """
    chosen = {}
    for name in names_of(c.tasks):
        of_task = runs.of(c.group_name, name)
        finished = sorted(of_task.with_checkpoints(), key=lambda run: run.rank, reverse=True)
        known = {**dict.fromkeys(planned), **{record.run: record for record in finished}}
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
    start = [f"from MNLI run {record.mnli_run}"] if record.mnli_run is not None else []
    status = ", ".join([status, *start, *dict.fromkeys(record.remarks.values())])
    result = f"{task.title}, run {record.run}, seed {record.seed}: {format_scores(record)} ({status})"
    processes.report("; ".join([result, *(f"warning, {notice}" for notice in notices_of(record))]))
