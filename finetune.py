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
import itertools
import shutil
import sys
import time
from pathlib import Path
from typing import NamedTuple

import pandas as pd
import torch
from torch import nn
from transformers import AutoModel, ElectraForPreTraining

# %%
from _utils.config import MyConfig, from_command_line
from _utils.errors import PlainError, print_plain_errors
from _utils.tasks.answers import ensemble, find_answers
from _utils.tasks.rows import IGNORED, EncodedRows, finetuning_dataloaders, inference_dataloader
from _utils.tasks.rows import truncation_notice, unknown_notice
from _utils.finetuning.config import FINETUNE_KEYS, complete_finetuning, names_of, uses_synthetic_glue
from _utils.finetuning.evaluation import KeepBest, evaluation, with_evaluations
from _utils.tasks.custom import load_own_task
from _utils.finetuning.plan import RunProcesses, check_plan, chosen_runs, default_epochs, print_tables, seed_of, trainable_tasks
from _utils.tasks.questions import QuestionHead, QuestionLoss, QuestionOptions, QuestionRows
from _utils.finetuning.results import format_scores, notices_of, report, save_result_plots, summarize, table_of_runs
from _utils.finetuning.runs import GLUE_FOLDER, Runs, add_run, load_finetuned_checkpoint, path_of, run_path, score
from _utils.tasks.spans import spans_of_tags
from _utils.tasks.submission import complete_submission, rows_of, write_predictions
from _utils.tasks.synthetic import write_synthetic_glue
from _utils.tasks.table_files import Table, check_columns
from _utils.tasks.tables import load_task, table_key, to_dataset
from _utils.tasks.tagging import WordLoss, WordRows
from _utils.tasks.glue import TASKS, as_task, decide, predictions_of, probabilities_of, targets_of, task_of
from _utils.tasks.wsc import SchemaPredictor, encode_schemas, load_wsc, wnli_schemas
from _utils.networks import config_of, count_layers, first_position_only, inputs_of, layer_groups, load_pretrained, load_weights
from _utils.networks import make_dropout_cheap, max_positions, set_attention
from _utils.optim import AdamNoBiasCorrection, decay_groups, group_schedules
from _utils.plots import plot_layer_lrs, plot_lengths, save_plot
from _utils.recipes import RECIPES
from _utils.runs import RunLog, check_writable, code_key, load_checkpoint, locked, save_checkpoint, tokenizer_record
from _utils.runs import versions
from _utils.text import text_tokenizer, tokenizer_of
from _utils.training import DTYPES, FinetuningLearner, LossProgress, Schedule, choose_device, choose_precision, set_seed
from _utils.training.device import avoid_cudnn_attention

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

# %%
def load_tables(c):
    """{task: TaskData} of the configured tasks, and of AX if MNLI is among them. With the WSC trick, WNLI's splits include WSC's."""
    if uses_synthetic_glue(c):
        write_synthetic_glue(c.glue_dir)
    names = names_of(c.tasks)
    tables = {name: load_task(given, c.glue_dir) if name in TASKS else load_own_task(given) for name, given in zip(names, c.tasks)}
    if "mnli" in names:
        tables["ax"] = load_task("ax", c.glue_dir)
    if c.wsc_trick and c.do_finetune and "wnli" in names:
        for split in ("train", "validation"):
            tables["wnli"].splits[f"wsc_{split}"] = load_wsc(split, c.wsc_dir)
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
#
# To label words, each is encoded on its own, and the first of its tokens gets the label (F51, `_utils/tasks/tagging.py`). Unlike a sentence
# or pair, a long list of words is divided instead of truncated, because every word needs a prediction. The text of a question is divided
# into overlapping spans (F57, `_utils/tasks/questions.py`).

# %%
def truncated_lengths(a, b, room):
    """Lengths of two texts of a and b tokens, truncated to `room` tokens in all (finetune/classification: _truncate_seq_pair, F41)."""
    while a + b > room:
        if a > b:
            a -= 1
        else:
            b -= 1
    return a, b


def divided(texts, room, stride):
    """The Encodings of one or two texts in windows of `room` tokens in all, which begin every `stride` tokens: a list of lists of them.

    Of a pair, the shorter text has at most half the room, and is divided too if it is longer than that. If one text has fewer windows
    than the other, each of them is beside several.
    """
    rooms = [room]
    if len(texts) == 2:
        shorter = 0 if len(texts[0]) < len(texts[1]) else 1
        used = min(len(texts[shorter]), room // 2)
        rooms = [used, room - used] if shorter == 0 else [room - used, used]
    parts = []
    for text, space in zip(texts, rooms):
        text.truncate(space, stride=space - min(stride, space))  # transformers' stride is the overlap
        parts.append([text, *text.overflowing])
    n = max(map(len, parts))
    return [[windows[i * len(windows) // n] for windows in parts] for i in range(n)]


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


def encode(rows, task, max_len, hf_tokenizer, double=False, standardize=False, stride=None):
    """EncodedRows of a Dataset with the columns of a Task, WordRows for tagging, or QuestionRows.

    double: append every pair in reverse order (F42).   standardize: scores, if the Task has a scale.   stride: of windows, or None.
    """
    if task.questions:
        return QuestionRows(rows, hf_tokenizer, max_len, task.questions)
    if task.is_tagging:
        return WordRows(rows[task.texts[0]][:], rows["label"][:], hf_tokenizer, max_len)
    orders, encoded, full_lengths, n_windows = [False, True] if double else [False], [], [], []
    for swap in orders:
        for start in range(0, len(rows), 1000):
            columns = rows[start:start + 1000]
            texts = [columns[text] for text in task.texts]
            for windows, full_length in tokenize_in_windows(texts, max_len, swap, stride, hf_tokenizer):
                full_lengths.append(full_length)
                n_windows.append(len(windows))
                encoded += [{"inp_ids": window.ids, "token_type_ids": window.type_ids} for window in windows]
    labels = targets_of(task, rows["label"][:] * len(orders))[0]
    if task.scale and standardize:
        mean, std = task.scale
        labels = (labels - mean) / std
    if task.is_regression:
        labels = labels.astype("float32")  # a GPU rejects the gradient of a float64 loss
    return EncodedRows(encoded, labels, hf_tokenizer.pad_token_id, full_lengths, n_windows if stride else None)


def sample_of(task, rows, n=1000):
    """The texts of the first n rows of a Dataset; of tagging, lists of words."""
    columns = rows[:n]
    return [text for name in task.texts for text in columns[name]]


def encode_samples(tables, max_length, hf_tokenizer, n=2000):
    """{task: EncodedRows of its first n training rows}, for exploration and plots; AX has none."""
    samples = {}
    for name, data in tables.items():
        if "train" in data.splits:
            rows = data.splits["train"]
            samples[name] = encode(rows.select(range(min(n, len(rows)))), data.task, max_length, hf_tokenizer)
    return samples


# %% [markdown]
# ## 4. The model
#
# The final hidden state of `[CLS]` (with `pooling='mean'`, the mean of those of all tokens), dropout, and one linear layer (F43).
# Unlike the `ElectraForSequenceClassification` of transformers, the head has no hidden layer and no activation. To label words, the
# linear layer is applied to each token, without dropout (F51).

# %%
class Predictor(nn.Module):
    """An encoder with a linear output layer.

    model: a transformers encoder.   num_class: outputs of the layer; 1 for regression; the options of questions.
    xavier_reinited_outlayer: Glorot uniform weights and zero bias as in Google's code (F30), else PyTorch's default initialization.
    freeze: keep the encoder as it is, also without its dropout.
    """

    def __init__(self, model, hidden_size, num_class, xavier_reinited_outlayer=True, freeze=False):
        super().__init__()
        self.base_model = model.requires_grad_(False) if freeze else model
        self.freeze = freeze
        self.classifier = (QuestionHead if isinstance(num_class, QuestionOptions) else nn.Linear)(hidden_size, num_class)
        if xavier_reinited_outlayer:
            for name, parameter in self.classifier.named_parameters():
                (nn.init.zeros_ if name.endswith("bias") else nn.init.xavier_uniform_)(parameter)

    def train(self, mode=True):
        super().train(mode)
        if self.freeze:
            self.base_model.eval()
        return self

    def hidden_states(self, inp_ids, attn_mask, token_type_ids):
        """inp_ids, attn_mask, token_type_ids (B, L) -> the encoder's final hidden states (B, L, H)."""
        return self.base_model(**inputs_of(self.base_model, inp_ids, attn_mask, token_type_ids)).last_hidden_state

    def outputs(self, hidden, *inputs):
        """Outputs (..., C) in fp32: bf16 has fewer digits than the three decimals of a submitted score."""
        with torch.autocast(hidden.device.type, enabled=False):
            return self.classifier(hidden.float(), *inputs)


# %%
class SentencePredictor(Predictor):
    """Classification or regression of a sentence or pair; arguments as for Predictor."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.dropout = nn.Dropout(.1)

    def forward(self, inp_ids, attn_mask, token_type_ids):
        """inp_ids, attn_mask, token_type_ids (B, L) -> logits (B, C), or scores (B,)."""
        pooled = self.pool(inp_ids, attn_mask, token_type_ids)  # (B, H)
        return self.outputs(self.dropout(pooled)).squeeze(-1)

    def pool(self, inp_ids, attn_mask, token_type_ids):
        """The final hidden state of `[CLS]`, (B, H)."""
        with first_position_only(self.base_model):
            return self.hidden_states(inp_ids, attn_mask, token_type_ids)[:, 0].float()


class MeanPredictor(SentencePredictor):
    """A SentencePredictor on the mean over the tokens (pooling=mean; not in the paper)."""

    def pool(self, inp_ids, attn_mask, token_type_ids):
        """The mean of the final hidden states of all tokens, `[CLS]` and `[SEP]` included, without the padding: (B, H)."""
        hidden, is_token = self.hidden_states(inp_ids, attn_mask, token_type_ids).float(), attn_mask[:, :, None]  # (B, L, H), (B, L, 1)
        return (hidden * is_token).sum(1) / is_token.sum(1)


class WordPredictor(Predictor):
    """Classification of every token, of which training and evaluation use the first of each word; or answers (F65-F71)."""

    def forward(self, inp_ids, attn_mask, token_type_ids, *inputs):
        """inp_ids, attn_mask, token_type_ids (B, L) -> logits (B, L, C). inputs: other ones of QuestionHead, which has its own outputs."""
        return self.outputs(self.hidden_states(inp_ids, attn_mask, token_type_ids), *inputs)


def predictor_of(task, pooling=None):
    """The class of predictor of a Task."""
    if task.is_tagging or task.questions:
        return WordPredictor
    return MeanPredictor if pooling == "mean" else SentencePredictor


def build_predictor(task, pretrained, wsc_trick=False, xavier_reinited_outlayer=True, freeze=False, pooling=None):
    """The model of a Task on pretrained weights: a Predictor, or SchemaPredictor with the WSC trick."""
    if wsc_trick:
        return SchemaPredictor(pretrained.discriminator())
    encoder = pretrained.encoder()
    return predictor_of(task, pooling)(encoder, encoder.config.hidden_size, task.questions or task.n_outputs, xavier_reinited_outlayer,
                                       freeze)


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
    discriminator = getattr(model, "discriminator", None)
    groups = layer_groups(discriminator.electra if discriminator else model.base_model)
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
    epochs = None if task.is_own else 10 if c.wsc_trick and task.name == "wnli" else task.epochs  # None: by the number of updates
    values = {"lr": recipe.glue_lr, "epochs": epochs, "bs": 32, "rows": None, "layer_decay": recipe.layer_decay}
    values |= c.task_overrides.get(task.name, {})
    return values | {"epochs": values["epochs"] or default_epochs(n_rows, values, task.epochs)}


def mnli_group(task, c):
    """The group whose best MNLI run a task starts from, or False."""
    if task.name not in ("mrpc", "stsb", "rte"):
        return False
    return c.group_name if c.start_from_mnli is True else c.start_from_mnli


def settings_of(task, data, c, pretrained):
    """{name: value} of all settings of a run except its seed. They are stored with the scores to detect changes within a group."""
    wsc_trick = c.wsc_trick and task.name == "wnli"
    train = data.splits["wsc_train" if wsc_trick else "train"]
    return {**hyperparameters(task, c, len(train)), **{key: c[key] for key in CONFIGURED_SETTINGS},
            "precision": choose_precision(c.precision, choose_device(c.device)),
            "double_unordered": c.double_unordered and task.unordered,
            "own_task": task.as_record() if task.is_own else None,
            "keep": None if c.keep == "last" else c.keep,
            "pooling": "mean" if predictor_of(task, c.pooling) is MeanPredictor and not wsc_trick else None,
            "window_stride": c.window_stride if predictor_of(task) is SentencePredictor and not wsc_trick else None,
            "wsc_trick": wsc_trick, "start_from_mnli": mnli_group(task, c),
            "training_table": table_key(train),
            "dev_table": table_key(data.splits["validation"]) if task.is_own else None,
            "pretrained_weights": pretrained.digest}


# %% [markdown]
# ### The learner
#
# The loss is the mean over the batch (D9); Google sums it, and clips the gradient of the sum (F44). For STS-B it is the squared error of
# the score from 0 to 5 (Google: from 0 to 1, F45); own scores are standardized. The loss of a sentence of labelled words is the sum over
# the words (F51).

# %%
class EncodedTask(NamedTuple):
    """Encoded rows of a task: the training set, and {split: rows} of the dev sets."""
    train: EncodedRows | WordRows
    devs: dict


def encode_task(task, data, settings, hf_tokenizer):
    """EncodedTask of a task's TaskData; with the WSC trick, of WSC's tables."""
    max_length, n_rows, stride = settings["max_length"], settings["rows"], settings["window_stride"]
    if settings["wsc_trick"]:
        train = encode_schemas(data.splits["wsc_train"][:n_rows], hf_tokenizer, max_length)
        return EncodedTask(train, {"wsc_validation": encode_schemas(data.splits["wsc_validation"], hf_tokenizer, max_length)})
    rows = data.splits["train"]
    rows = rows.select(range(min(len(rows), n_rows or len(rows))))
    train = encode(rows, task, max_length, hf_tokenizer, settings["double_unordered"], standardize=True, stride=stride)
    devs = {split: encode(data.splits[split], task, max_length, hf_tokenizer, stride=stride) for split in task.devs}
    return EncodedTask(train, devs)


def build_loss(task):
    """The mean over the batch: squared error for regression, else cross-entropy (binary for several labels; of tags F51, answers F67)."""
    if task.questions:
        return QuestionLoss(task.questions)
    if task.is_regression:
        return nn.MSELoss()
    weight = torch.tensor(task.class_weights) if task.class_weights else None
    if task.is_multilabel:
        return nn.BCEWithLogitsLoss(pos_weight=weight)
    return WordLoss(weight) if task.is_tagging else nn.CrossEntropyLoss(weight)


def to_device(model, device):
    """The model on a torch.device, with the implementations of attention and dropout that are fastest there."""
    if device.type == "cpu":
        make_dropout_cheap(model)
    else:
        set_attention(model, "sdpa_static")
    return model.to(device)


# %%
def get_glue_learner(task, run_name=None, inference=False, *, model, data, settings, device, precision, num_workers=0, log=None):
    """FinetuningLearner of a Task or its name, ready for `fit(settings["epochs"])`.

    model: from `build_predictor`.   data: EncodedTask.   settings: from `settings_of`.   run_name: title of the progress bar.
    log: RunLog for the losses.   inference: without schedule, progress bar and log.
    """
    task, model = as_task(task), to_device(model, device)
    dls = finetuning_dataloaders(data.train, data.devs.values(), settings["bs"], num_workers, device)
    optimizer, cbs = build_optimizer(model, settings), []
    if not inference:
        steps, lrs = len(dls.train) * settings["epochs"], [group["lr"] for group in optimizer.param_groups]
        schedules = group_schedules(settings["schedule"], lrs, steps, int(.1 * steps))  # warmup: D11
        cbs = [Schedule(schedules, steps), LossProgress(log, steps, run_name or task.title)]
    return FinetuningLearner(dls, model, build_loss(task).to(device), optimizer, precision, cbs=cbs)


# %%
@torch.no_grad()
def predict_logits(model, dl, precision):
    """Outputs of a model for an unshuffled PaddedBatchDL on its device: (N, C) or (N,), on the CPU, in the order of the rows.

    For tagging N counts the words of all rows.
    """
    dtype = DTYPES[precision]
    model.eval()
    avoid_cudnn_attention()
    with torch.autocast(dl.destination.type, dtype, enabled=dtype is not None):
        batches = [(model(*xb).float(), labels) for *xb, labels in dl]
    # Waits for the GPU only here, at the end.
    outputs = torch.cat([output.cpu()[labels.cpu() != IGNORED] if output.dim() == 3 else output.cpu() for output, labels in batches])
    in_rows = torch.empty_like(outputs)
    in_rows[torch.as_tensor(dl.dataset.positions(dl.get_idxs()))] = outputs
    return in_rows


def outputs_of(task, rows, logits):
    """Probabilities (N, C) or scores (N,) of EncodedRows from their logits, the mean of those of a text's windows; or the Answers."""
    if task.questions:
        return find_answers(rows, logits)
    outputs = probabilities_of(task, logits)
    return outputs if task.is_tagging else rows.mean(outputs)


def evaluate(learn, task, data):
    """{split: `evaluation`} of a learner on the dev sets of an EncodedTask."""
    (mean, std), found = task.scale or (0., 1.), {}
    for (split, rows), dl in zip(data.devs.items(), learn.dls.loaders[1:]):
        logits = predict_logits(learn.model, dl, learn.precision)
        if not logits.isfinite().all():
            raise PlainError(f"{task.title}: the outputs of the trained model are not finite numbers. Lower the learning rate of the task "
                             "with task_overrides, or set precision=fp32.")
        outputs = outputs_of(task, rows, logits)
        outputs = outputs if task.questions else outputs * std + mean
        found[split] = evaluation(task, outputs, rows.labels, rows.sentence_lengths)
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
    own = list(processes.own(itertools.product(plan, range(c.start, c.end))))
    for name, settings in plan.items():
        task, data = tables[name].task, None
        for run in (run for of_task, run in own if of_task == name):
            seed, status = seed_of(c, run), "already finished"
            folder = run_path(c.group_name, name, run).with_suffix("")
            with locked(folder, "group_name"):  # another command may train this run, or have finished it
                row = Runs().finished(c.group_name, name, run, seed, settings)
                if row and row.get("code", finetuning_code()) != finetuning_code():
                    status += ", with code that changed since"
                if row is None:
                    if data is None:
                        data = encode_task(task, tables[name], settings, pretrained.hf_tokenizer)
                        if text := truncation_notice(data.train, settings["max_length"]):
                            limit = min(512, max_positions(pretrained.model))
                            advice = "" if data.train.n_windows else f" Set max_length (at most {limit}) or window_stride, or shorten them."
                            processes.report(f"{task.title}: {text}.{advice}")
                        texts = sample_of(task, tables[name].splits["train"])
                        if text := unknown_notice(data.train, pretrained.hf_tokenizer, texts):
                            processes.report(f"{task.title}: {text}. Choose a model for their language.")
                    row = finetune_run(task, run, seed, data, settings, pretrained, c)
                    status = f"{row['seconds']:.0f} s" + (f", weights of epoch {row['best_epoch']}" if row["best_epoch"] else "")
            result = f"{task.title}, run {run}, seed {seed}: {format_scores(row)} ({status})"
            processes.report("; ".join([result, *notices_of(row)]))
        if name == "mnli" and c.start_from_mnli:
            processes.wait()
    processes.wait()


# %%
def score_test_files(c, tables):
    """Add scores on the labelled test files of own tasks to all finished runs, also to those that this command does not train.

    A test file may get labels, or change, after a run: then the scores are computed again, or removed.
    """
    for name, data in tables.items():
        current = table_key(data.splits["test"]) if data.test_task else None
        for row in Runs().of(c.group_name, name) if data.task.is_own else ():
            path = path_of(row)
            key = current if path.exists() else None  # without its checkpoint, a run cannot be scored again
            if row.get("test_table") in (current, key) or row["settings"]["own_task"] != data.task.as_record():
                continue
            found = {}
            if key:
                outputs = load(path, c.device, c.precision).outputs(data.splits["test"])
                found["test"] = evaluation(data.test_task, outputs, *targets_of(data.test_task, data.splits["test"]["label"][:]))
            add_run({**with_evaluations(row, found), "test_table": key})


# %%
def finetune_run(task, run, seed, data, settings, pretrained, c):
    """Finetune one run, save its checkpoint, append its row to the table, and return the row."""
    started, device, path = time.perf_counter(), choose_device(c.device), run_path(c.group_name, task.name, run)
    set_seed(seed)
    model = build_predictor(task, pretrained, *map(settings.get, ("wsc_trick", "xavier_reinited_outlayer", "freeze", "pooling")))
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
    if task.scale:
        rescale(learn.model.classifier, *task.scale)
    row = {"group": c.group_name, "task": task.name, "run": run, "seed": seed, "settings": settings,
           "pretrained_checkpoint": pretrained.name, "objective": pretrained.objective,
           "synthetic": uses_synthetic_glue(c) and not task.is_own,
           "mnli_run": from_mnli and from_mnli["run"], "train_rows": len(data.train.sentence_lengths or data.train),
           "best_epoch": settings["keep"] and learn.keep_best.best_epoch,
           "seconds": round(time.perf_counter() - started, 1), "device": str(device), "code": finetuning_code()}
    row = with_evaluations(row, found)
    save_finetuned(path, learn.model.cpu(), pretrained.hf_tokenizer, row)
    add_run(row)
    del learn
    gc.collect()  # learners contain reference cycles, which would keep their GPU memory allocated
    return row


@torch.no_grad()
def rescale(layer, mean, std):
    """Make an output layer that was trained on standardized scores predict the scores themselves."""
    layer.weight.mul_(std)
    layer.bias.mul_(std).add_(mean)


# %% [markdown]
# ### Checkpoints

# %%
def save_finetuned(path, model, hf_tokenizer, row):
    """Save a finetuned checkpoint: weights, the encoder's configuration, the tokenizer, and the row of the table of runs."""
    encoder = model.discriminator if isinstance(model, SchemaPredictor) else model.base_model
    save_checkpoint({
        "model": model.state_dict(), "encoder_config": encoder.config.to_dict(), **tokenizer_record(hf_tokenizer),
        "run": row, "versions": versions(),
    }, path)


def load_finetuned(path):
    """(model, hf_tokenizer, row of the table of runs) of a finetuned checkpoint. PlainError if it is not one."""
    checkpoint = load_finetuned_checkpoint(path)
    row, config = checkpoint["run"], config_of(checkpoint, "encoder", path)
    if row["settings"]["wsc_trick"]:
        model = SchemaPredictor(ElectraForPreTraining(config))
    else:
        encoder = AutoModel.from_config(config, trust_remote_code=False)
        if not any("pooler." in name for name in checkpoint["model"]):
            encoder.pooler = None  # pretrain.py builds BERT and ALBERT without a pooler
        task = task_of(row)
        model = predictor_of(task, row["settings"].get("pooling"))(encoder, config.hidden_size, task.questions or task.n_outputs)
    load_weights(model, checkpoint["model"], path)
    return model.eval(), tokenizer_of(checkpoint), row


# %%
class FinetunedModel:
    """A finetuned checkpoint, given by its path or its name in checkpoints/glue: `load("g_mine_0.pth").predict(["A text."])`.

    task: its Task.   labels: in the order of the probabilities.   run: its row of the table of runs.
    """

    def __init__(self, path, device=None, precision=None):
        self.network, self.hf_tokenizer, self.run = load_finetuned(path)
        self.task, self.settings, self.device, self.precision = task_of(self.run), self.run["settings"], device, precision
        self.labels = list(self.task.labels)

    def predict(self, texts):
        """Predictions for a list of texts, of pairs, or of sentences to tag, which are lists of words or strings with spaces.

        Of a task whose labels are character spans, the labels of a text are its spans [start, end, label].
        """
        names = self.task.texts
        rows = [texts] if isinstance(texts, str) else list(texts)
        if len(names) == 2 and any(isinstance(pair, str) or len(pair) != 2 for pair in rows):
            raise PlainError(f"{rows!r:.100} is not a list of pairs. Pass one such as [('First text.', 'Second text.')].")
        columns = [rows] if len(names) == 1 else zip(*rows)
        predicted = self.predict_table(Table("texts", pd.DataFrame(dict(zip(names, columns)), dtype=object), {}), names)
        if self.task.spans:
            return predicted._replace(labels=[spans_of_tags(text, tags) for text, tags in zip(rows, predicted.labels)])
        return predicted

    def predict_table(self, table, columns):
        """Predictions for the rows of a Table. columns: of the texts."""
        check_columns(table, columns, f"These are the columns of the texts of the task {self.task.name!r}.")
        rows = to_dataset(table, dict(zip(self.task.texts, columns)), self.task, "test", [])
        outputs = self.outputs(rows).numpy()
        lengths = list(map(len, rows["text"])) if self.task.is_tagging else None
        return predictions_of(self.task, outputs, lengths)

    def outputs(self, rows):
        """Probabilities (N, C), or scores (N,), for a Dataset with the columns of the task; N counts words for tagging."""
        if self.settings["wsc_trick"]:
            return predict_schemas(self.network, self.hf_tokenizer, rows, self.settings, self.device, self.precision)
        encoded = encode(rows, self.task, self.settings["max_length"], self.hf_tokenizer, stride=self.settings.get("window_stride"))
        if (text := truncation_notice(encoded, self.settings["max_length"])) and not encoded.n_windows:
            print(f"{text}. Finetune with a larger max_length or with window_stride, or shorten the texts.", file=sys.stderr)
        if text := unknown_notice(encoded, self.hf_tokenizer, sample_of(self.task, rows), many=.3):
            print(f"{text}. The model was trained on other texts.", file=sys.stderr)
        return predict_rows(self.task, self.network, encoded, self.settings, self.device, self.precision)


load = FinetunedModel


# %%
def load_encoder(model, path):
    """Load the encoder of a finetuned checkpoint into a predictor, and keep the predictor's head."""
    weights = load_checkpoint(path)["model"]
    model.base_model.load_state_dict({name.removeprefix("base_model."): value for name, value in weights.items()
                                      if name.startswith("base_model.")})


# %% [markdown]
# ### Test files
#
# For each task, the run with the best dev score predicts the test set, or those that `th_run` names, several as an ensemble. The
# GLUE server gives little explanation when it rejects a submission, for example one with an extra column as in electra_pytorch's files, so
# the files are checked before they are zipped.

# %%
def predict_test(task, checkpoint, dl_idx=0, *, data, device=None, precision=None):
    """Predictions for the dl_idx-th test set of a Task or its name: class ids or scores (N,), in the order of its rows, words or Answers.

    checkpoint: path of a finetuned checkpoint, or a list of paths, whose probabilities (scores) are averaged.   data: TaskData.
    """
    task, checkpoints = as_task(task), checkpoint if isinstance(checkpoint, (list, tuple)) else [checkpoint]
    rows, found = data.splits[[*task.outputs][dl_idx]], []
    for path in checkpoints:
        model = load(path, device, precision)
        if task.is_own and model.settings.get("own_task") != task.as_record():
            raise PlainError(f"{str(path)!r} was trained for another task than {task.name!r} is now: its files have other labels, or "
                             "'kind' or 'metrics' changed. Restore them, or finetune with another group_name.")
        found.append(model.outputs(rows))
    return ensemble(found) if task.questions else decide(task, sum(found) / len(found))


def predict_rows(task, model, rows, settings, device=None, precision=None):
    """Probabilities (N, C) for encoded rows, scores (N,) of a regression task, or the Answers to questions, on the CPU.

    settings: of the run; only the batch size is used.   device, precision: as in the configuration.
    """
    device = choose_device(device)
    dl = inference_dataloader(rows, settings["bs"], device)
    logits = predict_logits(to_device(model, device), dl, choose_precision(precision, device))
    return outputs_of(task, rows, logits)


def predict_schemas(model, hf_tokenizer, rows, settings, device=None, precision=None):
    """Probabilities (N, 2) for WNLI's rows with the WSC trick; rows without a recognized pronoun get the majority class."""
    schemas = wnli_schemas(rows)
    found = [i for i, schema in enumerate(schemas) if schema]
    print(f"WNLI: found the pronoun in {len(found)} of {len(schemas)} rows")
    probabilities = torch.tensor([[1., 0.]]).repeat(len(schemas), 1)
    if found:
        encoded = encode_schemas([schemas[i] for i in found], hf_tokenizer, settings["max_length"])
        probabilities[found] = predict_rows(TASKS["wnli"], model, encoded, settings, device, precision)
    return probabilities


# %%
def write_test_files(c, tables):
    """Write test_outputs/<group_name>/*.tsv, what made each to <group_name>.json, and <group_name>.zip if all eleven files exist.

    The file of an own task has the columns and the format of its test file, and the predictions as one more column.
    Returns the path of the zip, or None.   Majority baselines of an earlier command are deleted or rewritten.
    """
    folder, chosen, made_by, skipped = Path("test_outputs") / c.group_name, chosen_runs(c, Runs()), {}, []
    for name, data in tables.items():
        source = "mnli" if name == "ax" else name
        for dl_idx, (split, file) in enumerate(data.task.outputs.items()):
            if not chosen[source] or split in data.missing:
                reason = data.missing.get(split, f"{tables[source].task.title} has no finished run")
                skipped.append(f"{file} ({reason})")
                continue
            paths = [path_of(row) for row in chosen[source]]
            predictions = predict_test(data.task, paths, dl_idx, data=data, device=c.device, precision=c.precision)
            write_predictions(folder / file, data, split, predictions)
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
        check_plan(c, plan, pretrained)
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
    from_glue = {name: tables[name] for name in plan if not plan[name]["wsc_trick"]}
    if samples := encode_samples(from_glue, c.max_length, pretrained.hf_tokenizer):
        save_plot(plot_lengths({tables[name].task.title: rows.lengths for name, rows in samples.items()}), folder / "lengths.png")
    titles_by_lrs = {}
    for name, settings in plan.items():
        lrs = get_layer_lrs(settings["lr"], settings["layer_decay"], count_layers(pretrained.model.config), c.original_lr_layer_decays)
        titles_by_lrs.setdefault(tuple(lrs), []).append(tables[name].task.title)
    save_plot(plot_layer_lrs({", ".join(titles): lrs for lrs, titles in titles_by_lrs.items()}), folder / "layer_learning_rates.png")


# %%
if __name__ == "__main__":
    results = run(c)
