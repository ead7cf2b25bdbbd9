"""Configuration of finetuning: the keys and their types, and the values derived from other keys."""
import importlib
from collections import Counter
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, ConfigDict, Field, with_config
from typing_extensions import TypedDict

from _utils.config import check_logger, with_quickstart, without_unused
from _utils.errors import UserError
from _utils.keys import (
    PRETRAIN_KEYS,
    Count,
    Index,
    Key,
    Length,
    Positive,
    Schedule,
    Seed,
    Size,
    Text,
    file_name,
    list_of,
    number,
)
from _utils.names import announce_hub, find_checkpoint
from _utils.tasks.task_names import GLUE_TASKS, GLUE_TEST_FILES, STARTED_FROM_MNLI


def custom_tasks(module="definition"):
    """A module of `_utils/custom`, which only custom tasks need.

    "definition" is imported quickly, "task_kinds" in seconds.
    """
    return importlib.import_module(f"_utils.custom.{module}")


def _complete_entry(entry):
    """An entry of `tasks`; ValueError for an unknown name."""
    if isinstance(entry, dict):
        return custom_tasks().complete_custom_task(entry)
    if entry not in GLUE_TASKS and entry not in custom_tasks().QUESTION_TASKS:
        raise ValueError
    return entry


_Tasks = list_of(Annotated[str | dict, AfterValidator(_complete_entry)], (
    f"a list of different tasks from {', '.join(GLUE_TASKS)} (docs/custom_tasks.md names more), or of dictionaries "
    "such as {'train': 'reviews.csv', 'text': 'review', 'label': 'stars'}, with the quotes"))
_Runs = list_of(Index, "a run or a list of runs")


def names_of(tasks):
    """The names of the entries of `tasks`, in their order: names of GLUE's tasks and dictionaries of custom tasks."""
    return [task if isinstance(task, str) else task["name"] for task in tasks]


def _check_names(tasks):
    """The tasks; UserError if two have the same name."""
    [(name, n)] = Counter(names_of(tasks)).most_common(1)
    if n > 1:
        raise UserError(f"Invalid value for tasks: two tasks are called {name!r}. Remove one, or set 'name'.")
    return tasks


@with_config(ConfigDict(extra="forbid"))
class _TaskSettings(TypedDict, total=False):
    lr: Positive
    epochs: Count
    bs: Count
    rows: Count


_Seeds = list_of(Seed, "a list of integers, one for each run")
_Overrides = Annotated[dict[str, _TaskSettings], Field(description=(
    "{task: {'lr': number, 'epochs': count, 'bs': count, 'rows': count}}, each of the four optional"))]
_RunsByTask = Annotated[dict[str, _Runs], Field(description="{task: a run or a list of runs}")]
_Decay = number("a number in [0, 1)", ge=0, lt=1)

FINETUNE_KEYS = {
    "quickstart": Key(bool, False, (
        "True: compare random weights, the model of `python pretrain.py quickstart=True` and `mini`, which is part "
        "of the repository, on tables of real sentences, and check GLUE's files on synthetic tables; three "
        "minutes on two CPU cores. Sets pretrained_checkpoint, end, glue_dir and group_name, unless you set them "
        "(group_name: or the checkpoint)."),
        heading="What is finetuned"),
    "pretrained_checkpoint": Key(Text | None, "vanilla_11081_100.0%.pth", (
        "A checkpoint in checkpoints/pretrain/ or its path (.pth), a transformers folder, a folder with generator/ and "
        "discriminator/, of which the latter is finetuned, or the hub id of another encoder. None: Google's model of "
        "the size (by default ELECTRA-Small++).")),
    "size": Key(Size | None, None, (
        "Recipe that sets learning rate and layer decay. None: that of the checkpoint, or of its shape.")),
    "tasks": Key(Annotated[_Tasks, AfterValidator(_check_names)], [*GLUE_TEST_FILES], (
        "Tasks of GLUE (MNLI's model also predicts AX), those of question answering in Google's code that are read "
        "from glue_dir (None: datasets/), such as squad, or dictionaries of custom tasks, such as "
        "{'train': 'reviews.csv', 'dev': .1, 'test': 'new.csv', 'text': 'review', 'label': 'stars'}. Only "
        "'train' is required; docs/custom_tasks.md explains all keys.")),
    "glue_dir": Key(Text | None, None, (
        "A folder in the layout of the GLUE download (CoLA/train.tsv ...). None: nyu-mll/glue on the hub.")),
    "wsc_trick": Key(bool, False, (
        "True: train WNLI on SuperGLUE's WSC with the discriminator's own head (_utils/tasks/wsc.py). It is read from "
        "train.jsonl and val.jsonl in WSC/ of glue_dir (None: datasets/) if that exists, else from the hub.")),
    "start": Key(Index, 0, (
        "First run of each task. Runs start, start + 1, ..., end - 1; finished ones are not repeated."),
        heading="Runs"),
    "end": Key(Count, 10, "End of the runs, exclusive."),
    "seeds": Key(_Seeds | None, None, "One seed per run: run i uses the i-th. None: run i uses seed i."),
    "start_from_mnli": Key(bool | Text, False, (
        "Start RTE, STS-B and MRPC from the best MNLI run; the paper does so for RTE and STS. True: an MNLI run of "
        "this group; or the name of another group with MNLI runs.")),
    "group_name": Key(file_name(130) | None, None, (
        "Name of these runs in the table of runs and in file names. None: that of the checkpoint.")),
    "do_finetune": Key(bool, True, "False: no training; only predict the test files, with finished runs."),
    "th_run": Key(_Runs | _RunsByTask | None, None, (
        "Runs that predict the test sets. None: the best of each task on its dev set. 3, or [0, 3, 4] (an ensemble "
        "that averages their probabilities), for all tasks; {'cola': 3, 'rte': [0, 3]} for some tasks, the best "
        "run for the others.")),
    "majority_for_missing": Key(bool, False, (
        "True: in the zip, fill test files that no model predicted with the majority label of the training set (STS-B: "
        "the mean score).")),
    "task_overrides": Key(_Overrides, {}, (
        "Hyperparameters by task that differ from the recipe: {'rte': {'lr': 2e-5, 'epochs': 5, 'bs': 16, 'rows': "
        "1000}}. rows: use a sample of the training rows, with the shares of the labels, the same in all runs."),
        heading="Method"),
    "recipe": Key(Literal["google", None], None, (
        "'google': the training step of Google's code: the loss is summed over the batch, scores of STS-B are divided "
        "by 5, gradients are clipped by the norm of the looked-up rows, warmup is not rounded, and pairs are swapped "
        "before truncation (D9, F35, D11, D12). Hyperparameters stay as they are. None: as in electra_pytorch.")),
    "weight_decay": Key(_Decay, 0., "Weight decay, 0 as in the paper; Google's code uses 0.01 (D10)."),
    "adam_bias_correction": Key(bool, False, (
        "False: Adam without bias correction, as in Google's code. True: with bias correction.")),
    "schedule": Key(Schedule, "original_linear", (
        "'original_linear': warmup and decay multiplied, as in Google's code. 'separate_linear': warmup, then "
        "decay. 'one_cycle': fastai's. 'adjusted_one_cycle': fastai's with the warmup of the linear ones.")),
    "original_lr_layer_decays": Key(bool, True, (
        "True: the last layer's learning rate has decay ** 2, as in Google's code. False: decay ** 1, as "
        "intended (F37).")),
    "double_unordered": Key(bool, True, "Train MRPC and STS-B on both orders of each pair (F42)."),
    "xavier_reinited_outlayer": Key(bool, True, (
        "True: initialize the output layer with Xavier uniform weights and zero bias (F43). False: PyTorch's "
        "default.")),
    "pooling": Key(Literal["first", "mean"], "first", (
        "What the classifier of a sentence or pair reads. 'first': the final hidden state of [CLS], as in the "
        "paper. 'mean': the mean of those of all its tokens. It does not apply to tasks that label words or answer "
        "questions, nor to the WSC trick.")),
    "freeze": Key(bool, False, (
        "True: keep the pretrained encoder as it is and train only the output layer (a linear probe).")),
    "keep": Key(Literal["last", "best"], "last", (
        "'last': the weights after the last epoch, as in Google's code. 'best': those of the epoch with the best "
        "dev score, which is then optimistic; it is measured after each epoch.")),
    "max_length": Key(Length | None, None, (
        "Maximum tokens of a row. Longer sentences and pairs are truncated; sentences to tag and the texts of "
        "questions are divided. None: as many as in pretraining (for rotary positions at least 128); for "
        "models of other origin at most 512.")),
    "window_stride": Key(Count | None, None, (
        "Divide sentences and pairs that are too long into windows that begin every N tokens, instead of "
        "truncating them. Training uses each window, predictions are the mean of their probabilities (not in the "
        "paper). None: off.")),
    **{name: PRETRAIN_KEYS[name] for name in ("device", "precision", "logger")},
    "num_workers": Key(Index, 0, (
        "Worker processes that load batches. 0: load them in the training process, which is fastest unless the GPU "
        "has to wait.")),
}
QUICKSTART_GLUE = {"pretrained_checkpoint": "quickstart_11081_100.0%.pth", "end": 1, "group_name": "quickstart",
                   "glue_dir": "datasets/quickstart_glue"}


def complete_finetuning(config):
    """Fill in what follows from the configuration alone: the quickstart's values, the group, and the group with the
    MNLI runs.

    Raises UserError for values that contradict each other.
    """
    if config.quickstart:
        values = dict(QUICKSTART_GLUE)
        if "pretrained_checkpoint" in config.chosen:  # from which the name follows below
            del values["group_name"]
        config = with_quickstart(config, values)
    config = config.copy_with({"tasks": [_with_files(task, config.glue_dir) for task in config.tasks]})
    model = config.pretrained_checkpoint or f"electra_{config.size or 'small'}_google"
    config = config.with_defaults({"group_name": _group_of(model), "th_run": {}})
    if config.start_from_mnli is True:
        config = config.copy_with({"start_from_mnli": config.group_name})
    config = without_unused(config, _no_effect(config), config)
    _check(config)
    return config


def _no_effect(config):
    """Keys that have no effect, as `config.NO_EFFECT`."""
    rules = [("tasks", lambda tasks: STARTED_FROM_MNLI.isdisjoint(names_of(tasks)), ["start_from_mnli"]),
             ("tasks", lambda tasks: "wnli" not in tasks, ["wsc_trick"])]
    if config.start_from_mnli == config.group_name:  # whose MNLI runs keep the pretrained encoder, too
        rules.append(("freeze", bool, ["start_from_mnli"]))
    return rules


def _with_files(entry, folder):
    """An entry of `tasks`; for a name of others than GLUE's, its dictionary. folder: as the key glue_dir."""
    return entry if isinstance(entry, dict) or entry in GLUE_TASKS else custom_tasks().question_task(entry, folder)


def check_files(config):
    """UserError for a checkpoint, a folder of tables or a file of a custom task that does not exist."""
    if config.do_finetune and (config.pretrained_checkpoint or "").endswith(".pth"):
        find_checkpoint(config.pretrained_checkpoint)
    folder = config.glue_dir
    if not (uses_synthetic_glue(config) or folder is None or Path(folder).is_dir()):
        raise UserError(f"Invalid value for glue_dir: {folder!r} is not a folder. Pass the folder of a GLUE download "
                        "(with CoLA/, SST-2/ ...), or None to read the hub.")
    for task in config.tasks:
        if isinstance(task, dict):
            custom_tasks().files_of(task)
    announce_hub(config.pretrained_checkpoint)


def _group_of(model):
    """Group name for a checkpoint, folder or hub id: the last part of the path; two parts for a network of a pair."""
    path = Path(model.removesuffix(".pth"))
    in_pair = path.name in ("discriminator", "generator", "classifier") and path.parent.name
    return f"{path.parent.name}_{path.name}" if in_pair else path.name or "finetuned"


def _check(config):
    tasks = names_of(config.tasks)
    for key, known in (("task_overrides", (*GLUE_TASKS, *tasks)), ("th_run", tasks)):
        named = config[key] if isinstance(config[key], dict) else ()
        if unknown := [name for name in named if name not in known]:
            raise UserError(f"Invalid value for {key}: there is no task {unknown[0]!r:.60}. Choose from "
                            f"{', '.join(dict.fromkeys(known))}.")
    if config.freeze and config.wsc_trick:
        raise UserError("freeze=True trains only an output layer, and wsc_trick=True has none. Leave one of them out.")
    if config.end <= config.start:
        raise UserError(f"start={config.start} and end={config.end} select no run: the runs are start, start + 1, "
                        "..., end - 1.")
    if config.seeds is not None and len(config.seeds) < config.end:
        raise UserError(f"seeds has {len(config.seeds)} entries, but the last run is {config.end - 1} and run i uses "
                        "the i-th seed. Add seeds, or set seeds=None.")
    check_windows(config)
    check_logger(config)


def check_windows(config):
    """UserError for windows that do not overlap. max_length is None as long as it depends on the checkpoint."""
    length = config.max_length or 512
    if (config.window_stride or 0) >= length:
        raise UserError(f"window_stride={config.window_stride} is not less than max_length={length}, so the windows of "
                        "long texts would not overlap. Set it to half of max_length, or leave it out.")


def uses_synthetic_glue(config):
    """True for the quickstart's tables, which are generated on the fly and whose scores do not carry over to GLUE."""
    return Path(config.glue_dir or "").resolve() == Path(QUICKSTART_GLUE["glue_dir"]).resolve()
