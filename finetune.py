# %% [markdown]
# # Finetuning on GLUE and on your own tasks
#
# [GLUE](https://gluebenchmark.com) is a benchmark of nine language understanding tasks: is a sentence acceptable, do two sentences
# mean the same, does one follow from the other? This notebook adds an output layer to a pretrained ELECTRA and finetunes both on each
# task, several times with different seeds. It reports mean, median and best of the runs, and writes the test files for the GLUE server.
# Tasks of your own work the same way: labels or scores of sentences and pairs, labels of words, or questions about texts.
# `finetune.py` is exported from this notebook, without the cells that only explore.
# The cells finetune the model of the quickstart: run `python pretrain.py quickstart=True` or the cells of Pretrain.ipynb first.
#
# *F41* and the like refer to facts about [Google's code](https://github.com/google-research/electra), and *D12* to differences between it
# and [electra_pytorch](https://github.com/richarddwang/electra_pytorch), the PyTorch code whose structure this repository follows;
# [docs/facts.md](docs/facts.md) lists both, and describes lmtuners, another PyTorch implementation, with ALBERT's networks. Shapes in
# comments: B batch, L length, H hidden size, C classes, N rows (for tagging: words).

# %% [markdown]
# ## 1. Configuration

# %%
import _utils  # noqa: F401  first: it sets how long PyTorch's idle threads spin

import contextlib
import gc
import shutil
import sys
import time
from pathlib import Path
from typing import NamedTuple

import pandas as pd
import torch
from torch import nn

# %%
from _utils.config import MyConfig, from_command_line
from _utils.errors import PlainError, print_plain_errors
from _utils.finetuning.config import FINETUNE_KEYS, complete_finetuning, names_of, uses_synthetic_glue
from _utils.finetuning.evaluation import KeepBest, score_test_files, with_evaluations
from _utils.finetuning.model import load, load_encoder, predict_logits, save_finetuned, to_device
from _utils.finetuning.plan import RunProcesses, check_plan, chosen_runs, print_tables, report_run, runs_to_train, trainable_tasks
from _utils.finetuning.results import report, save_result_plots, summarize, table_of_runs
from _utils.finetuning.runs import GLUE_FOLDER, Runs, add_run, path_of, run_path, score
from _utils.networks import count_layers, first_position_only, layer_groups, load_pretrained, max_positions
from _utils.optim import AdamNoBiasCorrection, decay_groups, group_schedules
from _utils.plots import plot_layer_lrs, plot_lengths, save_plot
from _utils.recipes import RECIPES
from _utils.runs import RunLog, check_writable, code_key
from _utils.tasks.base import base_case
from _utils.tasks.glue import as_task, load_task
from _utils.tasks.heads import Predictor, head_options
from _utils.tasks.load import load_data
from _utils.tasks.rows import EncodedRows, finetuning_dataloaders, text_notices
from _utils.tasks.submission import complete_submission, rows_of
from _utils.tasks.synthetic import write_synthetic_glue
from _utils.tasks.tables import table_key
from _utils.tasks.windows import divided
from _utils.text import text_tokenizer
from _utils.training import FinetuningLearner, LossProgress, Schedule, choose_device, choose_precision, set_seed

# %%
# Edit any key here, or override it on the command line: python finetune.py tasks=cola,rte end=3 glue_dir=PATH
# `python finetune.py --help` prints all keys with these comments and the values they accept.
c = MyConfig({
    # True: the tiny model of `python pretrain.py quickstart=True` on synthetic tables, two runs per task, minutes on two cores.
    # Replaces size, pretrained_checkpoint, end, glue_dir and group_name, unless they are set on the command line.
    "quickstart": False,

    # 'cpu', 'cuda', 'cuda:1' ...; None: the first GPU, else the CPU.
    "device": None,
    # Runs start, start + 1, ..., end - 1 of each task. Finished runs are not repeated.
    "start": 0,
    "end": 10,
    # Any of cola, sst2, mrpc, stsb, qqp, mnli, qnli, rte, wnli (MNLI's model also predicts AX), and, from files in glue_dir (None:
    # datasets/), squad, squadv1, newsqa, naturalqs, triviaqa, searchqa. Your own tasks are dictionaries such as
    # {'train': 'reviews.csv', 'dev': .1, 'test': 'new.csv', 'text': 'review', 'label': 'stars'}. Only 'train' is required;
    # docs/own_tasks.md explains all keys.
    "tasks": ["cola", "sst2", "mrpc", "stsb", "qqp", "mnli", "qnli", "rte", "wnli"],
    # A checkpoint in checkpoints/pretrain/ or its path (.pth), a transformers folder, or the hub id of any encoder.
    # None: Google's model of this size (for small: ELECTRA-Small++).
    "pretrained_checkpoint": "vanilla_11081_100.0%.pth",
    # One seed per run: run i uses the i-th. None: run i uses seed i.
    "seeds": None,

    # 0 as in the paper; Google's code uses .01 (D10).
    "weight_decay": 0.0,
    # False: Adam without bias correction, as in Google's code. True: with bias correction.
    "adam_bias_correction": False,
    # True: initialize the output layer with Xavier uniform weights and zero bias (F43). False: PyTorch's default.
    "xavier_reinited_outlayer": True,
    # 'original_linear': warmup and decay multiplied, as in Google's code. 'separate_linear': warmup, then decay.
    # 'one_cycle': fastai's. 'adjusted_one_cycle': fastai's with the same warmup length as the others.
    "schedule": "original_linear",
    # True: the last layer's learning rate has decay ** 2, as in Google's code. False: decay ** 1, as intended (F37).
    "original_lr_layer_decays": True,
    # Train MRPC and STS-B on both orders of each pair (F42).
    "double_unordered": True,
    # Start RTE, STS-B and MRPC from the best MNLI run; the paper does so for RTE and STS. True: an MNLI run of this group; or the
    # name of another group with MNLI runs.
    "start_from_mnli": False,
    # Hyperparameters by task that differ from the recipe: {'rte': {'lr': 2e-5, 'epochs': 5, 'bs': 16, 'rows': 1000}}. rows: use only the
    # first training rows.
    "task_overrides": {},

    # False: no training; only predict the test files, with finished runs.
    "do_finetune": True,
    # Runs that predict the test sets. None: the best of each task on its dev set. 3, or [0, 3, 4] (an ensemble that averages their
    # probabilities), for all tasks; {'cola': 3, 'rte': [0, 3]} for some tasks, the best run for the others.
    "th_run": None,
    # True: fill test files that no model predicted with the majority label of the training set (STS-B: the mean score).
    "majority_for_missing": False,

    # Recipe of the checkpoint; sets learning rate, layer decay and maximum length.
    "size": "small",
    # Maximum tokens of a row. Longer sentences and pairs are truncated; sentences to tag and the texts of questions are divided. None: 512,
    # but for a checkpoint of pretrain.py the recipe's, or, if all tasks are questions, all its positions.
    "max_length": None,
    # Divide sentences and pairs that are too long into windows that begin every N tokens, instead of truncating them. Training uses each
    # window, predictions are the mean of their probabilities (not in the paper). None: off.
    "window_stride": None,
    # True: train WNLI on SuperGLUE's WSC with the discriminator's own head (_utils/tasks/wsc.py).
    "wsc_trick": False,
    # True: keep the pretrained encoder as it is and train only the output layer (a linear probe).
    "freeze": False,
    # What the classifier of a sentence or pair reads. 'first': the final hidden state of [CLS], as in the paper. 'mean': the mean of those
    # of all its tokens. It does not apply to tasks that label words or answer questions, nor to the WSC trick.
    "pooling": "first",
    # 'last': the weights after the last epoch, as in Google's code. 'best': those of the epoch with the best dev score, which is then
    # optimistic; it is measured after each epoch.
    "keep": "last",
    # A folder in the layout of the GLUE download (CoLA/train.tsv ...). None: nyu-mll/glue on the hub.
    "glue_dir": None,
    # Folder of WSC's train.jsonl and val.jsonl. None: WSC/ in glue_dir if it exists, else aps/super_glue on the hub.
    "wsc_dir": None,

    # 'bf16', 'fp16' (with loss scaling) or 'fp32'. None: fp32 on the CPU, bf16 on GPUs that support it, fp16 on older ones (compute
    # capability below 8: T4, V100, RTX 20xx).
    "precision": None,
    # Worker processes that load batches. 0: load them in the training process, which is fastest unless the GPU has to wait.
    "num_workers": 0,
    # 'tensorboard', 'neptune' (offline mode), 'wandb' or None. metrics.jsonl is always written.
    "logger": "tensorboard",
    # Name of these runs in the table of runs and in file names. None: derived from the checkpoint.
    "group_name": None,
}, FINETUNE_KEYS)

# %%
if __name__ == "__main__":
    print_plain_errors()
    c = complete_finetuning(from_command_line(c, sys.argv))


# %% [markdown]
# ## 2. Data
#
# `_utils/tasks/glue.py` defines the columns, labels and metrics of each task. The tables come from the hub or from the files of the GLUE
# download, which give the same rows. If a file of a task is missing, the task is skipped with a message. The tables of own tasks are CSV,
# TSV, JSON lines, parquet or CoNLL files, from which the kind of the task and its labels follow.
#
# This notebook shows the classification of a sentence or a pair. Other kinds of tasks, such as scores, labels of words or questions, are
# a file each in `_utils/tasks`, which defines only what differs (`_utils/tasks/base.py` lists the methods).

# %%
def load_tables(c):
    """{task: TaskData} of the configured tasks, and of AX if MNLI is among them."""
    if uses_synthetic_glue(c):
        write_synthetic_glue(c.glue_dir)
    tables = {name: load_data(entry, c) for name, entry in zip(names_of(c.tasks), c.tasks)}
    if "mnli" in tables:
        tables["ax"] = load_task("ax", c.glue_dir)
    return tables


# %% [markdown]
# ## 3. The task
#
# The input is `[CLS] A [SEP]` for one sentence, and `[CLS] A [SEP] B [SEP]` with segment ids 0 and 1 for a pair. If a pair is too long, its
# longer text loses tokens from the end, one at a time; at equal length, the second text does (F41). Google's code swaps the texts of
# MRPC and STS-B before truncation; electra_pytorch swaps them after it (D12), and so does this notebook.
#
# With `window_stride` (not in the paper), a text that is too long is divided into overlapping windows instead; each is an example in
# training, and the mean of their probabilities is the prediction.

# %%
def truncated_lengths(a, b, room):
    """Lengths of two texts of a and b tokens, truncated to `room` tokens in all (finetune/classification: _truncate_seq_pair, F41)."""
    while a + b > room:
        if a > b:
            a -= 1
        else:
            b -= 1
    return a, b


def tokenize_in_windows(columns, max_len, swap, stride, hf_tokenizer):
    """[([tokenizers.Encoding of at most max_len tokens], tokens of the whole texts)] of each row, for one or two columns of texts.

    stride: tokens between the beginnings of windows; None: one window, in which the texts are truncated.
    swap: reverse the order of a pair, after truncation.
    The tokenizer's own template adds special tokens and segment ids, so other families than BERT's work too. "[MASK]" and the like in a
    text are encoded as plain text (F1). An empty second text gets no [SEP], but one token of room is reserved for it, unlike in Google's
    code (F41).
    """
    tokenizer = text_tokenizer(hf_tokenizer)
    room = max_len - tokenizer.num_special_tokens_to_add(len(columns) == 2)
    encoded = []
    for texts in zip(*(tokenizer.encode_batch(column, add_special_tokens=False) for column in columns)):
        lengths = list(map(len, texts))
        if stride and sum(lengths) > room:
            windows = divided(texts, room, stride)
        else:
            for text, length in zip(texts, truncated_lengths(lengths[0], sum(lengths[1:]), room)):  # a single text: beside one of length 0
                text.truncate(length)
            windows = [texts]
        pairs = [reversed(window) if swap else window for window in windows]
        inputs = [tokenizer.post_process(first, *filter(len, second)) for first, *second in pairs]
        encoded.append((inputs, sum(lengths) + max_len - room))
    return encoded


def tokenize_columns(columns, max_len, swap, hf_tokenizer):
    """[(tokenizers.Encoding of at most max_len tokens, tokens before truncation)] of each row; arguments as above."""
    return [(encoded, length) for [encoded], length in tokenize_in_windows(columns, max_len, swap, None, hf_tokenizer)]


# %%
def tokenize_sents_max_len(example, cols, max_len, swap=False, *, hf_tokenizer):
    """`example` with inp_ids, attn_mask and token_type_ids added: lists of at most max_len, for the text or pair in `cols`."""
    [(encoded, _)] = tokenize_columns([[example[col]] for col in cols], max_len, swap, hf_tokenizer)
    return {**example, "inp_ids": encoded.ids, "attn_mask": encoded.attention_mask, "token_type_ids": encoded.type_ids}


@base_case
def encode(task, rows, hf_tokenizer, settings, training=False):
    """EncodedRows of a Dataset with the columns of a Task; in training, with every pair in reverse order appended if wanted (F42).

    settings: "max_length", "double_unordered" and "window_stride", as in the configuration.
    """
    orders, encoded, full_lengths, n_windows = [False], [], [], []
    if training and settings["double_unordered"]:
        orders = [False, True]
    stride = settings.get("window_stride")
    for swap in orders:
        for start in range(0, len(rows), 1000):
            columns = rows[start:start + 1000]
            texts = [columns[text] for text in task.texts]
            for windows, full_length in tokenize_in_windows(texts, settings["max_length"], swap, stride, hf_tokenizer):
                full_lengths.append(full_length)
                n_windows.append(len(windows))
                encoded += [{"inp_ids": window.ids, "token_type_ids": window.type_ids} for window in windows]
    labels = task.loss_targets(rows["label"][:] * len(orders))
    return EncodedRows(encoded, labels, hf_tokenizer.pad_token_id, full_lengths, n_windows if stride else None)


def encode_samples(tables, settings, hf_tokenizer, n=2000):
    """{task: EncodedRows of its first n training rows}, for exploration and plots; AX has none."""
    return {name: data.task.encode(data.splits["train"].select(range(min(n, len(data.splits["train"])))), hf_tokenizer, settings)
            for name, data in tables.items() if "train" in data.splits}


# %% [markdown]
# ## 4. The model
#
# The final hidden state of `[CLS]` (with `pooling='mean'`, the mean of those of all tokens), dropout, and one linear layer (F43).
# Unlike the `ElectraForSequenceClassification` of transformers, the head has no hidden layer and no activation. `Predictor` holds
# encoder and layer, and initializes the latter.

# %%
class SentencePredictor(Predictor):
    """Classification or regression of a sentence or pair.

    model, hidden_size, num_class, xavier_reinited_outlayer, freeze: as for Predictor.   pooling: "mean" reads the mean over the tokens,
    without the padding, instead of the first one (not in the paper).
    """

    def __init__(self, *args, pooling=None, **kwargs):
        super().__init__(*args, **kwargs)
        self.dropout, self.pooling = nn.Dropout(.1), pooling

    def forward(self, inp_ids, attn_mask, token_type_ids):
        """inp_ids, attn_mask, token_type_ids (B, L) -> logits (B, C), or scores (B,)."""
        if self.pooling == "mean":
            hidden, is_token = self.hidden_states(inp_ids, attn_mask, token_type_ids).float(), attn_mask[:, :, None]  # (B, L, H)
            pooled = (hidden * is_token).sum(1) / is_token.sum(1)
        else:
            with first_position_only(self.base_model):
                pooled = self.hidden_states(inp_ids, attn_mask, token_type_ids)[:, 0].float()  # (B, H)
        return self.outputs(self.dropout(pooled)).squeeze(-1)


@base_case
def network(task, pretrained, settings):
    """The network of a Task on pretrained weights. settings: "xavier_reinited_outlayer", "freeze", "pooling" of the configuration."""
    encoder = pretrained.encoder()
    return SentencePredictor(encoder, encoder.config.hidden_size, task.n_outputs, pooling=settings.get("pooling"),
                             **head_options(settings))


# %% [markdown]
# ## 5. Optimization
#
# ### Layer-wise learning rates
#
# The output layer has the highest learning rate; each layer below it has that of the layer above times a constant factor. Google's
# code counts one layer too many between head and last layer, so the last layer's factor is squared (F37). The published results
# were obtained this way.

# %%
def get_layer_lrs(lr, decay_rate, num_hidden_layers, original_lr_layer_decays=True):
    """Learning rates [embeddings, layer 0, ..., last layer, head], num_hidden_layers + 2 numbers.

    lr: of the head.   original_lr_layer_decays: with the extra factor below the head of optimization.py:_get_layer_lrs (F37).
    """
    extra = 1 if original_lr_layer_decays else 0
    return [lr * decay_rate ** (depth + extra) for depth in range(num_hidden_layers + 1, 0, -1)] + [lr]


def parameter_groups(model):
    """(name, parameter) pairs of a predictor, grouped as in `get_layer_lrs`; the embeddings include their projection."""
    groups = layer_groups(model.base_model)
    in_encoder = {id(parameter) for group in groups for _, parameter in group}
    return [*groups, [(name, parameter) for name, parameter in model.named_parameters() if id(parameter) not in in_encoder]]


def build_optimizer(model, settings):
    """Adam with a learning rate for each layer; weight decay spares biases and LayerNorms (F34)."""
    groups = parameter_groups(model)
    lrs = get_layer_lrs(settings["lr"], settings["layer_decay"], len(groups) - 2, settings["original_lr_layer_decays"])
    trained = [[(name, parameter) for name, parameter in parameters if parameter.requires_grad] for parameters in groups]
    param_groups = [{**group, "lr": lr} for lr, parameters in zip(lrs, trained)
                    for group in decay_groups(parameters, settings["weight_decay"]) if group["params"]]
    adam = torch.optim.AdamW if settings["adam_bias_correction"] else AdamNoBiasCorrection
    return adam(param_groups, lr=settings["lr"], betas=(.9, .999), eps=1e-6)


# %% [markdown]
# ### Hyperparameters
#
# Three epochs with batch size 32, and ten epochs for RTE and STS-B (F40), and for WNLI with the WSC trick; learning rate and layer decay
# depend on the size. Own tasks have at least 300 updates. RTE, STS-B and MRPC may start from MNLI's encoder; in the paper, RTE and STS-B
# do.

# %%
CONFIGURED_SETTINGS = ("size", "max_length", "weight_decay", "adam_bias_correction", "xavier_reinited_outlayer", "schedule",
                       "original_lr_layer_decays", "freeze")


def hyperparameters(task, c, n_rows):
    """{"lr", "epochs", "bs", "rows", "layer_decay"} of a task with n_rows training rows: the recipe's, overridden by task_overrides."""
    recipe = RECIPES[c.size]
    values = {"lr": recipe.glue_lr, "epochs": None, "bs": 32, "rows": None, "layer_decay": recipe.layer_decay}
    values |= c.task_overrides.get(task.name, {})
    return values | {"epochs": values["epochs"] or task.default_epochs(n_rows, values)}


def mnli_group(task, c):
    """The group whose best MNLI run a task starts from, or False."""
    if task.name not in ("mrpc", "stsb", "rte"):
        return False
    return c.group_name if c.start_from_mnli is True else c.start_from_mnli


def settings_of(task, data, c, pretrained):
    """{name: value} of all settings of a run except its seed. They are stored with the scores to detect changes within a group."""
    train = data.splits["train"]
    return {**hyperparameters(task, c, len(train)), **{key: c[key] for key in CONFIGURED_SETTINGS}, **task.settings(c),
            "precision": choose_precision(c.precision, choose_device(c.device)),
            "own_task": task.record(),
            "keep": None if c.keep == "last" else c.keep,
            "start_from_mnli": mnli_group(task, c),
            "training_table": table_key(train),
            "dev_table": table_key(data.splits["validation"]) if task.record() else None,
            "pretrained_weights": pretrained.digest}


# %% [markdown]
# ### The learner
#
# The loss is the mean of the cross-entropy over the batch (D9); Google sums it, and clips the gradient of the sum (F44).

# %%
class EncodedTask(NamedTuple):
    """Encoded rows of a task: the training set, and {split: rows} and {split: labels} of the dev sets."""
    train: EncodedRows
    devs: dict
    labels: dict = {}


def encode_task(task, data, settings, hf_tokenizer):
    """EncodedTask of a task's TaskData."""
    rows = data.splits["train"]
    rows = rows.select(range(min(len(rows), settings["rows"] or len(rows))))
    train = task.encode(rows, hf_tokenizer, settings, training=True)
    devs = {split: task.encode(data.splits[split], hf_tokenizer, settings) for split in task.devs}
    return EncodedTask(train, devs, {split: data.splits[split]["label"][:] for split in devs})


# %%
def get_glue_learner(task, run_name=None, inference=False, *, model, data, settings, device, precision, num_workers=0, log=None):
    """FinetuningLearner of a Task or its name, ready for `fit(settings["epochs"])`.

    model: from `network`.   data: EncodedTask.   settings: from `settings_of`.   run_name: title of the progress bar.
    log: RunLog for the losses.   inference: without schedule, progress bar and log.
    """
    task, model = as_task(task), to_device(model, device)
    dls = finetuning_dataloaders(data.train, data.devs.values(), settings["bs"], num_workers, device)
    optimizer, cbs = build_optimizer(model, settings), []
    if not inference:
        steps, lrs = len(dls.train) * settings["epochs"], [group["lr"] for group in optimizer.param_groups]
        schedules = group_schedules(settings["schedule"], lrs, steps, int(.1 * steps))  # warmup: D11
        cbs = [Schedule(schedules, steps), LossProgress(log, steps, run_name or task.title)]
    return FinetuningLearner(dls, model, task.loss().to(device), optimizer, precision, cbs=cbs)


# %%
def evaluate(learn, task, data):
    """{split: `Task.evaluation`} of a learner on the dev sets of an EncodedTask."""
    found = {}
    for (split, rows), dl in zip(data.devs.items(), learn.dls.loaders[1:]):
        logits = predict_logits(learn.model, dl, learn.precision)
        if not logits.isfinite().all():
            raise PlainError(f"{task.title}: the outputs of the trained model are not finite numbers. Lower the learning rate of the task "
                             "with task_overrides, or set precision=fp32.")
        found[split] = task.evaluation(task.in_units(task.outputs(rows, logits)), data.labels[split])
    return found


# %% [markdown]
# ## 6. Run
#
# Each finished run adds a line to `checkpoints/glue/scores.jsonl`, with its settings, which must be the same for all runs of one task in a
# group. Rerun the same command to resume: finished runs are skipped, and an interrupted run starts over.

# %%
def finetuning_code():
    """Hash of the present code, for the row of each run."""
    return code_key(globals().get("__file__", "Finetune_GLUE.ipynb"))


def finetune(c, pretrained, tables, plan, processes):
    """Finetune the unfinished runs of each planned task. plan: {task: settings}, MNLI first if others start from it.

    Several processes share the runs, and may share a GPU. All wait for the MNLI runs if other tasks start from one.
    """
    encoded = {}
    for task, run, seed in runs_to_train(c, plan, tables, processes, finetuning_code()):
        data, settings = tables[task.name], plan[task.name]
        if task.name not in encoded:
            encoded = {task.name: encode_task(task, data, settings, pretrained.hf_tokenizer)}  # in place of the last task's
            limit, texts = min(512, max_positions(pretrained.model)), task.sample(data.splits["train"])
            for text in text_notices(encoded[task.name].train, settings["max_length"], limit, pretrained.hf_tokenizer, texts):
                processes.report(f"{task.title}: {text}")
        row = finetune_run(task, run, seed, encoded[task.name], settings, pretrained, c)
        report_run(row, f"{row['seconds']:.0f} s" + (f", weights of epoch {row['best_epoch']}" if row["best_epoch"] else ""), processes)


# %%
def finetune_run(task, run, seed, data, settings, pretrained, c):
    """Finetune one run, save its checkpoint, append its row to the table, and return the row."""
    started, device, path = time.perf_counter(), choose_device(c.device), run_path(c.group_name, task.name, run)
    set_seed(seed)
    model = task.network(pretrained, settings)
    from_mnli = Runs().best_mnli(settings["start_from_mnli"], pretrained) if settings["start_from_mnli"] else None
    if from_mnli:
        load_encoder(model, path_of(from_mnli))
    folder = path.with_suffix("")
    shutil.rmtree(folder, ignore_errors=True)  # of an interrupted run
    log = RunLog(folder.name, folder, {**c, **settings, "seed": seed})
    learn = get_glue_learner(task, f"{task.title}, run {run}", model=model, data=data, settings=settings, device=device,
                             precision=settings["precision"], num_workers=c.num_workers, log=log)
    if settings["keep"]:
        learn.add_cb(KeepBest(lambda learn: score(with_evaluations({}, evaluate(learn, task, data)))))
    with contextlib.closing(log), contextlib.closing(learn.loss_progress):
        learn.fit(settings["epochs"])
        found = evaluate(learn, task, data)
        for split in found:
            log.log(split, learn.loss_progress.steps, found[split]["scores"])
    task.finish(learn.model)
    row = {"group": c.group_name, "task": task.name, "run": run, "seed": seed, "settings": settings,
           "pretrained_checkpoint": pretrained.name, "objective": pretrained.objective,
           "synthetic": uses_synthetic_glue(c) and not task.record(),
           "mnli_run": from_mnli and from_mnli["run"], "train_rows": data.train.n_examples,
           "best_epoch": settings["keep"] and learn.keep_best.best_epoch,
           "seconds": round(time.perf_counter() - started, 1), "device": str(device), "code": finetuning_code()}
    row = with_evaluations(row, found)
    save_finetuned(path, learn.model.cpu(), pretrained.hf_tokenizer, row)
    add_run(row)
    del learn
    gc.collect()  # learners contain reference cycles, which would keep their GPU memory allocated
    return row


# %% [markdown]
# ### Test files
#
# For each task, the run with the best dev score predicts the test set, or those that `th_run` names, several as an ensemble. The
# GLUE server gives little explanation when it rejects a submission, for example one with an extra column as in electra_pytorch's files, so
# the files are checked before they are zipped.

# %%
def predict_test(task, checkpoint, dl_idx=0, *, data, device=None, precision=None):
    """Decisions of a Task or its name for its dl_idx-th test set: class ids or scores (N,), in the order of its rows, words or Answers.

    checkpoint: path of a finetuned checkpoint, or a list of paths, whose probabilities (scores) are averaged.   data: TaskData.
    """
    task, checkpoints = as_task(task), checkpoint if isinstance(checkpoint, (list, tuple)) else [checkpoint]
    rows, found = data.splits[[*task.test_files][dl_idx]], []
    for path in checkpoints:
        model = load(path, device, precision)
        if model.settings.get("own_task") != task.record():
            raise PlainError(f"{str(path)!r} was trained for another task than {task.name!r} is now: its files have other labels, or "
                             "'kind' or 'metrics' changed. Restore them, or finetune with another group_name.")
        found.append(model.outputs(rows))
    return task.decide(task.average(found))


# %%
def write_test_files(c, tables):
    """Write test_outputs/<group_name>/*.tsv, what made each to <group_name>.json, and <group_name>.zip if all eleven files exist.

    Returns the path of the zip, or None.   Majority baselines of an earlier command are deleted or rewritten.
    """
    folder, chosen, made_by, skipped = Path("test_outputs") / c.group_name, chosen_runs(c, Runs()), {}, []
    for name, data in tables.items():
        source = "mnli" if name == "ax" else name
        for dl_idx, (split, file) in enumerate(data.task.test_files.items()):
            if not chosen[source] or split in data.missing:
                reason = data.missing.get(split, f"{tables[source].task.title} has no finished run")
                skipped.append(f"{file} ({reason})")
                continue
            paths = [path_of(row) for row in chosen[source]]
            predictions = predict_test(data.task, paths, dl_idx, data=data, device=c.device, precision=c.precision)
            data.task.write(folder / file, data.splits[split], predictions)
            made_by[file] = ", ".join(f"{source} run {row['run']} (dev {score(row):.2f})" for row in chosen[source])
    if made_by:
        print(f"Predictions in {folder}/: {', '.join(made_by)} ({folder}.json names the runs)")
    if skipped:
        print(f"Without predictions: {', '.join(skipped)}")
    return complete_submission(folder, made_by, c.majority_for_missing, rows_of(c.glue_dir) if uses_synthetic_glue(c) else None)


# %% [markdown]
# ### Everything in one call

# %%
class Results(NamedTuple):
    """What `run` returns: the group's scores by task and its finished runs as DataFrames, {task: TaskData}, and the zip's path or None."""
    scores: pd.DataFrame
    runs: pd.DataFrame
    tables: dict
    submission: Path | None


# %%
def run(c):
    """Finetune with a completed configuration, predict the test sets, report the scores, and return Results.

    Writes a checkpoint checkpoints/glue/<group_name>_<task>_<run>.pth and a folder of logs for each run, a line per run in
    checkpoints/glue/scores.jsonl, plots in checkpoints/glue/<group_name>/, and test files in test_outputs/.
    With do_finetune=False it only predicts and reports.
    """
    processes = RunProcesses(c.device)
    c = c.copy_with({"device": str(processes.device(choose_device(c.device)))})
    check_writable(GLUE_FOLDER, Path("test_outputs", c.group_name))
    if c.do_finetune:
        pretrained = load_pretrained(c.pretrained_checkpoint, c.size, c.max_length)
        runs = f"runs {c.start} to {c.end - 1}" if c.end - c.start > 1 else f"run {c.start}"
        print(f"{c.group_name}: {runs} of {', '.join(names_of(c.tasks))}, from {pretrained.name}")
    else:
        chosen_runs(c, Runs())  # fail before loading the tables
    with processes.main_first():
        tables = load_tables(c)
    plan, family = {}, None  # without training
    if c.do_finetune:
        plan = {name: settings_of(tables[name].task, tables[name], c, pretrained) for name in trainable_tasks(c, tables)}
        check_plan(c, plan, pretrained, tables)
        family = pretrained.model.config.model_type
    print_tables(tables, plan, not uses_synthetic_glue(c), family)
    if c.do_finetune:
        if processes.is_main:
            save_task_plots(c, pretrained, tables, plan)
        finetune(c, pretrained, tables, plan, processes)
    if processes.is_main:
        score_test_files(c, tables)
    runs, submission = Runs().of(c.group_name), None
    if processes.is_main:
        print(report(runs))
        submission = write_test_files(c, tables)
        save_result_plots(runs)
    processes.close()
    return Results(summarize(runs), table_of_runs(runs), tables, submission)


# %%
def save_task_plots(c, pretrained, tables, plan):
    """Write lengths.png and layer_learning_rates.png of the planned tasks to checkpoints/glue/<group_name>/."""
    folder = GLUE_FOLDER / c.group_name
    samples = encode_samples({name: tables[name] for name in plan}, {"max_length": c.max_length}, pretrained.hf_tokenizer)
    save_plot(plot_lengths({tables[name].task.title: rows.lengths for name, rows in samples.items()}), folder / "lengths.png")
    titles_by_lrs = {}
    for name, settings in plan.items():
        lrs = get_layer_lrs(settings["lr"], settings["layer_decay"], count_layers(pretrained.model.config), c.original_lr_layer_decays)
        titles_by_lrs.setdefault(tuple(lrs), []).append(tables[name].task.title)
    save_plot(plot_layer_lrs({", ".join(titles): lrs for lrs, titles in titles_by_lrs.items()}), folder / "layer_learning_rates.png")


# %%
if __name__ == "__main__":
    results = run(c)
