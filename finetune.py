# %% [markdown]
# # Finetuning on GLUE
#
# [GLUE](https://gluebenchmark.com) is nine tasks of understanding English: is a sentence acceptable, do two mean the same, does
# one follow from the other. This notebook puts a new output layer on a pretrained ELECTRA, trains both on each task, several
# times with different seeds, reports the scores as the papers do, and writes the files that the GLUE server takes.
# `finetune.py` is exported from it; cells that only explore are left out there.
#
# Marks like *F41* number the details of Google's original code that were measured by running it; *D12* are those in which
# electra_pytorch, the replication this one succeeds, differs from it; [docs/facts.md](docs/facts.md) lists them.
# Shapes at the end of a line: B batch, L length, H hidden, C classes.

# %% [markdown]
# ## 1. Configuration

# %%
import _utils  # noqa: F401  first, because it sets how PyTorch's threads wait for each other

import gc
import itertools
import shutil
import sys
import time
from pathlib import Path
from typing import NamedTuple

import torch
from torch import nn
from transformers import AutoModel, ElectraForPreTraining

from _utils.config import MyConfig, each_once
from _utils.errors import PlainError, print_plain_errors
from _utils.glue.batches import EncodedRows, finetuning_dataloaders
from _utils.glue.config import FINETUNE_RULES, QUICKSTART_GLUE, complete_finetuning
from _utils.glue.metrics import glue_metrics
from _utils.glue.results import by_title, losses_of_runs, report, scores_by_task, majority_scores, table_of_runs
from _utils.glue.runs import (
    GLUE_FOLDER,
    append_score,
    best_runs,
    find_run,
    finished_run,
    load_finetuned_checkpoint,
    mnli_run,
    read_scores,
    run_folder,
    run_path,
    runs_of,
    score,
)
from _utils.glue.submission import complete_submission, format_predictions, rows_of, write_tsv
from _utils.glue.synthetic import write_synthetic_glue
from _utils.glue.tables import describe, load_task, table_key
from _utils.glue.tasks import LMTUNERS_SETTINGS, PUBLISHED, TASKS
from _utils.glue.wsc_trick import SchemaPredictor, SchemaRows, find_spacy, load_spacy, load_wsc, wnli_schemas
from _utils.networks import (
    config_of,
    count_layers,
    first_position_only,
    layer_groups,
    load_pretrained,
    load_weights,
    make_dropout_cheap,
    set_attention,
)
from _utils.optim import AdamNoBiasCorrection, decay_groups, group_schedules
from _utils.plots import plot_finetuning_losses, plot_layer_lrs, plot_lengths, plot_scores, save_plot, sortable
from _utils.pretraining_data import tokenizer_from_json
from _utils.recipes import RECIPES
from _utils.run_files import RunLog, check_writable, load_checkpoint, locked, save_checkpoint, versions
from _utils.training import FinetuningLearner, LossProgress, Processes, Schedule, choose_device, choose_precision, set_seed

# %%
# Every key can be changed here, or on the command line: python finetune.py tasks=cola,rte end=3 glue_dir=PATH
c = MyConfig({
    # True: the tiny model of `python pretrain.py quickstart=True` on made-up tables, two runs of each task, minutes on two cores.
    # It replaces size, pretrained_checkpoint, end, glue_dir and group_name, unless they are given on the command line.
    "quickstart": False,

    # 'cpu', 'cuda', 'cuda:1' ...; None: the first GPU, else the CPU.
    "device": None,
    # The runs start, start + 1, ..., end - 1 of each task. A run that is finished is not repeated.
    "start": 0,
    "end": 10,
    # Any of cola, sst2, mrpc, stsb, qqp, mnli, qnli, rte, wnli. The diagnostic set AX is predicted with MNLI's model.
    "tasks": ["cola", "sst2", "mrpc", "stsb", "qqp", "mnli", "qnli", "rte", "wnli"],
    # A checkpoint in checkpoints/pretrain/ or its path (.pth), the folder of a transformers model, or a hub id of any encoder.
    # None: Google's model of that size (of small: ELECTRA-Small++).
    "pretrained_checkpoint": "vanilla_11081_100.0%.pth",
    # One for each run: run i takes the i-th. None: run i has the seed i.
    "seeds": None,

    # 0, as the paper; Google's code has .01 (D10).
    "weight_decay": 0.0,
    # False: Adam without bias correction, as the original. True: with it.
    "adam_bias_correction": False,
    # True: the new output layer starts as Xavier's uniform with bias 0 (F43). False: as PyTorch's.
    "xavier_reinited_outlayer": True,
    # 'original_linear': warmup and decay at the same time, as the original. 'separate_linear': one after the other.
    # 'one_cycle': fastai's. 'adjusted_one_cycle': fastai's with the warmup's length.
    "schedule": "original_linear",
    # True: the last layer has decay ** 2 of the learning rate, as the original's code. False: decay ** 1, as intended (F37).
    "original_lr_layer_decays": True,
    # Train MRPC and STS-B, whose pairs have no order, on both orders (F42).
    "double_unordered": True,
    # Start RTE, STS-B and MRPC from the best MNLI run, as the paper does for its test results. True: of this group; or the name of
    # another group that has MNLI runs.
    "start_from_mnli": False,
    # 'lmtuners': five runs, of which the median counts; RTE and STS-B from MNLI; MNLI is the mean of its two dev sets; no WNLI; and its
    # settings by task. It replaces end, tasks and start_from_mnli unless they are given on the command line. None: the paper's.
    "protocol": None,
    # By task, what differs from the recipe: {'rte': {'lr': 2e-5, 'epochs': 5, 'bs': 16, 'rows': 1000}}; rows: only the first ones.
    "task_overrides": {},

    # False: no training, only the test files, of runs that are finished.
    "do_finetune": True,
    # The runs that predict the test sets. None: the best of each task on its dev set. 3, or [0, 3, 4] (an ensemble: the mean of
    # their probabilities), for all tasks; {'cola': 3, 'rte': [0, 3]} for some, the best for the others.
    "th_run": None,
    # True: files of the submission that no model made get the most frequent label of the training set (STS-B: the mean).
    "majority_for_missing": False,

    # The recipe: learning rate, layer decay and length. It has to be that of the checkpoint.
    "size": "small",
    # Wordpieces of a sentence or a pair; what is longer is cut. None: the recipe's for a checkpoint of ours, 512 for others.
    "max_length": None,
    # True: learn WNLI from the WSC of SuperGLUE, with the discriminator's own head (_utils/wsc_trick.py).
    "wsc_trick": False,
    # A folder in the layout of the GLUE download (CoLA/train.tsv ...). None: nyu-mll/glue on the hub.
    "glue_dir": None,
    # The folder of WSC's train.jsonl and val.jsonl. None: WSC/ in glue_dir if it is there, else aps/super_glue on the hub.
    "wsc_dir": None,

    # 'bf16', 'fp16' (with loss scaling) or 'fp32'; None: bf16 on a GPU, fp32 on the CPU.
    "precision": None,
    # Processes that prepare batches; 0: the training's own, which is the fastest unless the GPU waits for it.
    "num_workers": 0,
    # 'tensorboard', 'neptune' (its offline store), 'wandb' or None. metrics.jsonl is always written.
    "logger": "tensorboard",
    # Name of these runs in the table of runs and of their files. None: that of the checkpoint.
    "group_name": None,
}, FINETUNE_RULES)

# %% tags=["active-ipynb"]
# # In a notebook the command line stands here. Without this cell it is ten runs of all tasks, with downloads from the hub.
# sys.argv = ["finetune.py", "quickstart=True"]
#
# from functools import partial  # from here on: what only the exploring cells need
#
# import pandas as pd
# from IPython.display import display
# from _utils.glue.results import compare_with_published, summarize

# %%
if __name__ == "__main__":
    print_plain_errors()
    c = complete_finetuning(c.override(each_once(sys.argv[1:])))
    processes = Processes(c.device)
    c = c.copy_with({"device": str(processes.device(choose_device(c.device)))})
    check_writable("checkpoints/glue", f"test_outputs/{c.group_name}")
    if c.do_finetune:
        pretrained = load_pretrained(c.pretrained_checkpoint, c.size, c.max_length)
        print(f"{c.group_name}: runs {c.start} to {c.end - 1} of {', '.join(c.tasks)}, from {pretrained.name}")


# %% [markdown]
# ## 2. Data
#
# Which columns, labels and metrics a task has stands in `_utils/glue_tasks.py`. Tables come from the hub or from the files of
# the GLUE download; both give the same rows. A task whose files are not all there says what it lacks, and the others go on.

# %%
def is_synthetic(c):
    """Whether these are the quickstart's tables, whose scores say nothing about GLUE."""
    return c.glue_dir == QUICKSTART_GLUE["glue_dir"]


def load_tables(c):
    """{task: TaskData} of the configured tasks, of AX with MNLI, and with the WSC trick WSC's splits among WNLI's."""
    if is_synthetic(c):
        write_synthetic_glue(c.glue_dir)
    names = [*c.tasks, *["ax"] * ("mnli" in c.tasks)]
    tables = {name: load_task(name, c.glue_dir) for name in names}
    if trains_on_wsc(c):
        for split in ("train", "validation"):
            tables["wnli"].splits[f"wsc_{split}"] = load_wsc(split, c.wsc_dir, load_spacy(find_spacy()))
    return tables


def trains_on_wsc(c):
    """Whether WNLI is learnt from WSC."""
    return c.wsc_trick and c.do_finetune and "wnli" in c.tasks


def print_tables(c, tables):
    """Tell how many rows there are, and what is lacking."""
    if trains_on_wsc(c):
        spacy_model = find_spacy()
        print("WSC: the given candidate competes", f"with the noun chunks of spaCy's {spacy_model}" if spacy_model else
              "with a learnt threshold alone, because no English model of spaCy is installed")
    for name, data in tables.items():
        counts = describe(TASKS[name], data, official=not is_synthetic(c))
        print(f"{TASKS[name].title:6}", ", ".join(f"{split} {rows}" for split, rows in counts.items()))
        for notice in [*data.lacking.values(), *data.notices]:
            print("      ", notice)


# %% tags=["active-ipynb"]
# tables = load_tables(c)

# %% [markdown]
# The first row of each:

# %% tags=["active-ipynb"]
# pd.set_option("display.max_colwidth", 60)
# firsts = []
# for name, data in tables.items():
#     task, row = TASKS[name], next(iter(data.splits.values()))[0]
#     label = row["label"] if task.is_regression else task.labels[row["label"]] if task.devs else "-"
#     firsts.append([task.title, row[task.texts[0]], row[task.texts[1]] if len(task.texts) > 1 else "", label, ", ".join(task.metrics)])
# display(pd.DataFrame(firsts, columns=["task", "first text", "second text", "label", "measured by"]).set_index("task"))

# %% [markdown]
# ## 3. The task: one sentence or two
#
# `[CLS] A [SEP]`, or `[CLS] A [SEP] B [SEP]` with segments 0 and 1. A pair that is too long loses wordpieces one by one from the
# end of the longer text, or of the second if both are equally long (F41). Where the original swaps the texts of MRPC and STS-B
# before it cuts them, electra_pytorch does after (D12), and so does this.

# %%
def truncated_lengths(a, b, room):
    """How many wordpieces two texts of a and b keep when they share `room` (finetune/classification: _truncate_seq_pair, F41)."""
    while a + b > room:
        if a > b:
            a -= 1
        else:
            b -= 1
    return a, b


def tokenize_columns(columns, max_len, swap, hf_tokenizer):
    """A tokenizers.Encoding of at most max_len wordpieces for each row of one or two columns of texts.

    swap: the second text stands first.   Special tokens and segments are those of the tokenizer's own template, so it works for
    other families than BERT's too; "[MASK]" and the like in a text are text (F1). Where the second text is empty there is no
    second [SEP], but one wordpiece less room (in Google's code not, F41).
    """
    tokenizer = hf_tokenizer.backend_tokenizer
    tokenizer.encode_special_tokens = True
    room, encoded = max_len - tokenizer.num_special_tokens_to_add(len(columns) == 2), []
    for texts in zip(*(tokenizer.encode_batch(column, add_special_tokens=False) for column in columns)):
        lengths = truncated_lengths(*map(len, texts), room) if len(texts) == 2 else [min(len(texts[0]), room)]
        for text, length in zip(texts, lengths):
            text.truncate(length)
        first, *second = reversed(texts) if swap else texts
        encoded.append(tokenizer.post_process(first, *(text for text in second if len(text))))
    return encoded


def tokenize_sents_max_len(example, cols, max_len, swap=False, *, hf_tokenizer):
    """`example` with inp_ids, attn_mask and token_type_ids, lists of at most max_len, for the text in cols[0] or the pair in cols."""
    [encoded] = tokenize_columns([[example[col]] for col in cols], max_len, swap, hf_tokenizer)
    return {**example, "inp_ids": encoded.ids, "attn_mask": encoded.attention_mask, "token_type_ids": encoded.type_ids}


def encode(rows, task, max_len, hf_tokenizer, double=False):
    """EncodedRows of a Dataset of one task; double: the swapped pairs come after the others (F42)."""
    orders, block, encoded = (False, True) if double else (False,), 1000, []
    for swap in orders:
        for start in range(0, len(rows), block):
            texts = rows[start:start + block]
            encoded += [{"inp_ids": row.ids, "token_type_ids": row.type_ids}
                        for row in tokenize_columns([texts[col] for col in task.texts], max_len, swap, hf_tokenizer)]
    return EncodedRows(encoded, len(orders) * rows["label"][:], hf_tokenizer.pad_token_id)


def encode_samples(tables, c, hf_tokenizer, n=2000):
    """{task: EncodedRows of its first n training rows}, to look at them; AX has none."""
    return {name: encode(data.splits["train"].select(range(min(n, len(data.splits["train"])))), TASKS[name], c.max_length, hf_tokenizer)
            for name, data in tables.items() if "train" in data.splits}


# %% tags=["active-ipynb"]
# encode_row = partial(tokenize_sents_max_len, max_len=c.max_length, hf_tokenizer=pretrained.hf_tokenizer)
# for name, data in tables.items():
#     row = encode_row(next(iter(data.splits.values()))[0], TASKS[name].texts)
#     print(f"{TASKS[name].title:6}", " ".join(pretrained.hf_tokenizer.convert_ids_to_tokens(row["inp_ids"])))
#     assert len(row["inp_ids"]) == len(row["attn_mask"]) == len(row["token_type_ids"]) <= c.max_length
# for swap in (False, True):
#     row = encode_row(tables["mrpc"].splits["train"][0], TASKS["mrpc"].texts, max_len=14, swap=swap)
#     print(f"cut to 14, swap={swap}:", " ".join(pretrained.hf_tokenizer.convert_ids_to_tokens(row["inp_ids"])), row["token_type_ids"])

# %% [markdown]
# Lengths of the training sets. Batches hold rows of similar length and are padded to their longest, not to the longest of all
# (D11); Google's code pads every row to 128.

# %% tags=["active-ipynb"]
# encoded = encode_samples(tables, c, pretrained.hf_tokenizer)
# plot_lengths({TASKS[name].title: rows.lengths for name, rows in encoded.items()});

# %% tags=["active-ipynb"]
# dls = finetuning_dataloaders(encoded["mrpc"], [encoded["mrpc"]], bs=32, num_workers=0, device="cpu")
# inp_ids, attn_mask, token_type_ids, labels = dls.one_batch()
# print("inp_ids", tuple(inp_ids.shape), " labels", tuple(labels.shape), f" {attn_mask.float().mean():.0%} of the batch are tokens")
# assert inp_ids.shape[1] == encoded["mrpc"].lengths.max()  # the first batch has the longest row

# %% [markdown]
# ## 4. The model
#
# The last layer's vector of `[CLS]`, dropout, one linear layer (F43). There is no hidden layer and no tanh: it is not the
# `ElectraForSequenceClassification` of transformers.

# %%
class SentencePredictor(nn.Module):
    """An encoder with a new output layer; num_class=1 predicts a score.

    model: a transformers encoder.   xavier_reinited_outlayer: Glorot uniform weights and bias 0 as the original (F30), else
    PyTorch's own.
    """

    def __init__(self, model, hidden_size, num_class, xavier_reinited_outlayer=True):
        super().__init__()
        self.base_model = model
        self.dropout = nn.Dropout(.1)
        self.classifier = nn.Linear(hidden_size, num_class)
        if xavier_reinited_outlayer:
            nn.init.xavier_uniform_(self.classifier.weight)
            nn.init.zeros_(self.classifier.bias)

    def forward(self, inp_ids, attn_mask, token_type_ids):
        """inp_ids, attn_mask, token_type_ids (B, L) -> logits (B, C), or scores (B,)."""
        # Some families (DistilBERT) have no segments.
        segments = {"token_type_ids": token_type_ids} if getattr(self.base_model.config, "type_vocab_size", 0) else {}
        with first_position_only(self.base_model):
            hidden = self.base_model(inp_ids, attention_mask=attn_mask, **segments).last_hidden_state[:, 0]  # (B, H)
        with torch.autocast(hidden.device.type, enabled=False):  # scores are given with three decimals, more than bf16 has
            return self.classifier(self.dropout(hidden.float())).squeeze(-1)


def build_predictor(task, pretrained, c):
    """The model of a task on pretrained weights: SentencePredictor, or with the WSC trick for WNLI SchemaPredictor."""
    if c.wsc_trick and task.name == "wnli":
        return SchemaPredictor(pretrained.discriminator())
    encoder = pretrained.encoder()
    return SentencePredictor(encoder, encoder.config.hidden_size, len(task.labels) or 1, c.xavier_reinited_outlayer)


# %% tags=["active-ipynb"]
# model = build_predictor(TASKS["mrpc"], pretrained, c)
# print("logits", tuple(model(inp_ids, attn_mask, token_type_ids).shape), " output layer", tuple(model.classifier.weight.shape))
# assert model(inp_ids, attn_mask, token_type_ids).shape == (32, 2)

# %% [markdown]
# ## 5. Optimisation
#
# ### Learning rates by layer
#
# The output layer learns fastest, each layer below slower by a constant factor. The original's code counts one layer too many
# between the head and the last layer, so the last layer gets the factor squared (F37); the published results were made that way. For
# ELECTRA-Small:

# %%
def get_layer_lrs(lr, decay_rate, num_hidden_layers, original_lr_layer_decays=True):
    """Learning rates, [embeddings, layer 0, ..., last layer, head], num_hidden_layers + 2 numbers.

    lr: of the head.   optimization.py:_get_layer_lrs (F37); original_lr_layer_decays=False leaves out its extra step.
    """
    extra = 1 if original_lr_layer_decays else 0
    return [lr * decay_rate ** (depth + extra) for depth in range(num_hidden_layers + 1, 0, -1)] + [lr]


def parameter_groups(model):
    """(name, parameter) pairs of a predictor in the order of `get_layer_lrs`; its embeddings' projection goes with them."""
    discriminator = getattr(model, "discriminator", None)
    groups = layer_groups(discriminator.electra if discriminator else model.base_model)
    below = {id(parameter) for group in groups for _, parameter in group}
    return [*groups, [(name, parameter) for name, parameter in model.named_parameters() if id(parameter) not in below]]


# %% tags=["active-ipynb"]
# rates_of_small = partial(get_layer_lrs, RECIPES["small"].glue_lr, RECIPES["small"].layer_decay, 12)
# plot_layer_lrs({"as the original's code": rates_of_small(), "without the extra step": rates_of_small(original_lr_layer_decays=False)});

# %% tags=["active-ipynb"]
# rates = get_layer_lrs(RECIPES[c.size].glue_lr, RECIPES[c.size].layer_decay, count_layers(model.base_model.config))
# for lr, group in zip(rates, parameter_groups(model)):
#     print(f"{lr:.2e}  {len(group):3} tensors, from {group[0][0]}")
# assert sum(len(group) for group in parameter_groups(model)) == len(list(model.parameters()))

# %% [markdown]
# ### The learner
#
# Three epochs of batches of 32, ten for RTE and STS-B (F40). The loss is the batch's mean (D9; Google sums it, and clips the sum's
# gradient, F44), of STS-B the squared error of the score from 0 to 5 (Google: from 0 to 1, F45).

# %%
class EncodedTask(NamedTuple):
    """Rows of one task for training and measuring: train, and {split: rows} of the dev sets."""
    train: EncodedRows | SchemaRows
    devs: dict


def settings_of(task, data, c, pretrained):
    """What a run depends on besides its seed, {name: value}; kept with its score, so that other settings are noticed.

    None if the task's tables are not all there.
    """
    wsc_trick = c.wsc_trick and task.name == "wnli"
    if not wsc_trick and data.missing(["train", *(split for split, _ in task.devs)]):
        return None
    recipe, given = RECIPES[c.size], c.task_overrides.get(task.name, {})
    family = "albert" if pretrained.model.config.model_type == "albert" else "others"
    lmtuners = LMTUNERS_SETTINGS[family].get(task.name, {}) if c.protocol == "lmtuners" else {}
    settings = {"lr": recipe.glue_lr, "epochs": 10 if wsc_trick else task.epochs, "bs": 32, "rows": None, **lmtuners, **given}
    settings |= {key: c[key] for key in ("size", "max_length", "weight_decay", "adam_bias_correction", "xavier_reinited_outlayer",
                                         "schedule", "original_lr_layer_decays", "protocol")}
    from_mnli = task.name in (("rte", "stsb") if c.protocol == "lmtuners" else ("rte", "stsb", "mrpc")) and c.start_from_mnli
    return {**settings, "layer_decay": recipe.layer_decay, "precision": choose_precision(c.precision, choose_device(c.device)),
            "double_unordered": c.double_unordered and task.unordered,
            "wsc_trick": wsc_trick, "spacy_model": find_spacy() if wsc_trick else None,
            "start_from_mnli": c.group_name if from_mnli is True else from_mnli,
            "training_table": table_key(data.splits["wsc_train" if wsc_trick else "train"]),
            "pretrained_weights": pretrained.digest}


def encode_task(task, data, settings, c, hf_tokenizer):
    """EncodedTask of a task's tables, or with the WSC trick of WSC's."""
    if settings["wsc_trick"]:
        train, dev = data.splits["wsc_train"][:settings["rows"]], data.splits["wsc_validation"]
        return EncodedTask(SchemaRows(train, hf_tokenizer, c.max_length), {"wsc_validation": SchemaRows(dev, hf_tokenizer, c.max_length)})
    rows = data.splits["train"]
    rows = rows.select(range(min(len(rows), settings["rows"] or len(rows))))
    train = encode(rows, task, c.max_length, hf_tokenizer, settings["double_unordered"])
    return EncodedTask(train, {split: encode(data.splits[split], task, c.max_length, hf_tokenizer) for split, _ in task.devs})


def get_glue_learner(task, run_name=None, inference=False, *, model, data, settings, device, precision, num_workers=0, log=None):
    """FinetuningLearner of a task (a name or a Task): fastai's, ready for `fit(settings["epochs"])`.

    model: from `build_predictor`.   data: EncodedTask.   settings: as from `settings_of`.   run_name: of the progress bar.
    log: RunLog that takes the losses.   inference: the model only predicts, so it gets no optimizer state and no schedule.
    """
    task = TASKS[task] if isinstance(task, str) else task
    model = model.to(device)
    if device.type == "cpu":
        make_dropout_cheap(model)
    else:
        set_attention(model, "sdpa_static")
    dls = finetuning_dataloaders(data.train, data.devs.values(), settings["bs"], num_workers, device)
    loss_func = nn.MSELoss() if task.is_regression else nn.CrossEntropyLoss()
    groups = parameter_groups(model)
    lrs = get_layer_lrs(settings["lr"], settings["layer_decay"], len(groups) - 2, settings["original_lr_layer_decays"])
    pairs = [(lr, group) for lr, members in zip(lrs, groups)
             for group in decay_groups(members, settings["weight_decay"]) if group["params"]]
    adam = torch.optim.AdamW if settings["adam_bias_correction"] else AdamNoBiasCorrection
    optimizer = adam([{**group, "lr": lr} for lr, group in pairs], lr=settings["lr"], betas=(.9, .999), eps=1e-6)
    steps = len(dls.train) * settings["epochs"]
    schedule = Schedule(group_schedules(settings["schedule"], [lr for lr, _ in pairs], steps, int(.1 * steps)), steps)  # D11
    cbs = [] if inference else [schedule, LossProgress(log, steps, run_name or task.title)]
    return FinetuningLearner(dls, model, loss_func, optimizer, precision, cbs=cbs)


def predict_rows(task, model, rows, settings, device=None, precision=None):
    """Probabilities (N, C) of encoded rows by a finetuned model, or scores (N,), on the CPU."""
    device = choose_device(device)
    learn = get_glue_learner(task, inference=True, model=model, data=EncodedTask(rows, {"test": rows}), settings=settings,
                             device=device, precision=choose_precision(precision, device))
    logits = learn.logits(learn.dls.loaders[1])
    del learn
    gc.collect()  # learners refer to themselves, and would keep their memory on the device
    return logits if task.is_regression else logits.softmax(-1)


def measure(learn, task, data):
    """{split: {metric: number}} of a learner on the dev sets; MNLI has two."""
    return {split: glue_metrics(task, learn.logits(dl), rows.labels)
            for (split, rows), dl in zip(data.devs.items(), learn.dls.loaders[1:])}


# %% [markdown]
# ## 6. Run
#
# Each finished run leaves a line in `checkpoints/glue/scores.jsonl`. The same command again goes on with the runs that are not in
# it; an interrupted run starts again.

# %%
def finetune_run(task, run, seed, data, settings, pretrained, c):
    """Finetune one run, write its checkpoint and then its row in the table; returns the row."""
    folder, started = run_folder(c.group_name, task.name, run), time.perf_counter()
    device = choose_device(c.device)
    set_seed(seed)
    model = build_predictor(task, pretrained, c)
    from_mnli = None
    if settings["start_from_mnli"]:
        from_mnli = mnli_run(read_scores(), settings["start_from_mnli"], pretrained)
        load_encoder(model, run_path(settings["start_from_mnli"], "mnli", from_mnli))
    shutil.rmtree(folder, ignore_errors=True)  # of a run that did not finish
    log = RunLog(folder.name, folder, {**c, **settings, "seed": seed})
    learn = get_glue_learner(task, f"{task.title}, run {run}", model=model, data=data, settings=settings, device=device,
                             precision=choose_precision(c.precision, device), num_workers=c.num_workers, log=log)
    try:
        learn.fit(settings["epochs"])
        scores = measure(learn, task, data)
        for split, measured in scores.items():
            log.log(split, learn.loss_progress.steps, measured)
    finally:
        learn.loss_progress.close()
        log.close()
    row = {"group": c.group_name, "task": task.name, "run": run, "seed": seed, "scores": scores, "settings": settings,
           "pretrained_checkpoint": pretrained.name, "synthetic": is_synthetic(c), "mnli_run": from_mnli, "train_rows": len(data.train),
           "seconds": round(time.perf_counter() - started, 1), "device": str(device)}
    save_finetuned(run_path(c.group_name, task.name, run), learn.model.cpu(), pretrained.hf_tokenizer, row)
    append_score(row)
    del learn
    gc.collect()  # as in predict_rows
    return row


def save_finetuned(path, model, hf_tokenizer, row):
    """Write a finetuned checkpoint: weights, the encoder's configuration, the tokenizer, and the row of the table."""
    encoder = model.discriminator if isinstance(model, SchemaPredictor) else model.base_model
    save_checkpoint({
        "model": model.state_dict(), "encoder_config": encoder.config.to_dict(), "tokenizer": hf_tokenizer.backend_tokenizer.to_str(),
        "pad_token": hf_tokenizer.pad_token, "run": row, "versions": versions(),
    }, path)


def load_finetuned(path):
    """(model, hf_tokenizer, row of the table) of a finetuned checkpoint. PlainError if it is none."""
    checkpoint = load_finetuned_checkpoint(path)
    row, config = checkpoint["run"], config_of(checkpoint, "encoder", path)
    if row["settings"]["wsc_trick"]:
        model = SchemaPredictor(ElectraForPreTraining(config))
    else:
        encoder = AutoModel.from_config(config, trust_remote_code=False)
        if not any("pooler." in name for name in checkpoint["model"]):
            encoder.pooler = None  # BERT and ALBERT of our pretraining have none
        model = SentencePredictor(encoder, config.hidden_size, len(TASKS[row["task"]].labels) or 1)
    load_weights(model, checkpoint["model"], path)
    return model.eval(), tokenizer_from_json(checkpoint["tokenizer"], checkpoint["pad_token"]), row


def load_encoder(model, path):
    """Give a predictor the encoder of a finetuned checkpoint; its head stays fresh."""
    weights = load_checkpoint(path)["model"]
    model.base_model.load_state_dict({name.removeprefix("base_model."): value for name, value in weights.items()
                                      if name.startswith("base_model.")})


# %%
def plan_runs(c, pretrained, tables):
    """{task: settings} of the tasks that can be finetuned, in the order of their turn; tells which are left out.

    Finds out before the long work what would end it: raises PlainError for a device that is not there, finished runs of other settings,
    MNLI runs and a discriminator that are needed and not there, and for runs in th_run that will not exist.
    """
    rows, settings = read_scores(), {name: settings_of(TASKS[name], tables[name], c, pretrained) for name in c.tasks}
    for name in c.tasks:
        if settings[name] is None:
            task = TASKS[name]
            print(f"{task.title} is left out: {'; '.join(tables[name].missing(['train', *(split for split, _ in task.devs)]))}")
    for name in sorted(set(c.task_overrides) - set(c.tasks)):
        print(f"task_overrides of {name} are not used, because tasks leaves it out")
    if c.wsc_trick and "wnli" not in c.tasks:
        print("wsc_trick is not used, because tasks leaves out wnli")
    # MNLI comes first where others start from it.
    plan = {name: settings[name] for name in sorted(c.tasks, key=lambda name: bool(c.start_from_mnli) and name != "mnli") if settings[name]}
    if not plan:
        raise PlainError(f"none of the tasks {', '.join(c.tasks)} has all of its tables: give glue_dir=PATH with the whole download.")
    for name, its_settings in plan.items():
        for run in range(c.start, c.end):
            finished_run(rows, c.group_name, name, run, c.seeds[run] if c.seeds else run, its_settings)
        if its_settings["start_from_mnli"] and not (its_settings["start_from_mnli"] == c.group_name and "mnli" in plan):
            mnli_run(rows, its_settings["start_from_mnli"], pretrained)
        if its_settings["wsc_trick"]:
            pretrained.discriminator()
    chosen_runs(c, rows, plan)
    return plan


def finetune(c, pretrained, tables, plan, processes):
    """Finetune the runs start..end - 1 of each planned task, but for those that are finished. plan: from `plan_runs`.

    Several processes divide the unfinished runs, and all wait for MNLI's where others start from them.
    """
    owners = deal_out_runs(c, plan, read_scores(), processes)
    for name, settings in plan.items():
        task, data = TASKS[name], None
        for run in range(c.start, c.end):
            if owners[name, run] != processes.index:
                continue
            seed = c.seeds[run] if c.seeds else run
            with locked(run_folder(c.group_name, name, run), "group_name"):  # another start of this command may be at it, or have been
                row = finished_run(read_scores(), c.group_name, name, run, seed, settings)
                state = "was finished before"
                if row is None:
                    data = data or encode_task(task, tables[name], settings, c, pretrained.hf_tokenizer)
                    row = finetune_run(task, run, seed, data, settings, pretrained, c)
                    state = f"{row['seconds']:.0f} s"
            print(f"{task.title}, run {run}, seed {seed}:", describe_scores(row), f"({state})", flush=True)
        if name == "mnli" and c.start_from_mnli:
            processes.wait()
    processes.wait()


def deal_out_runs(c, plan, rows, processes):
    """{(task, run): index of the process that does it}: unfinished runs in turn, finished ones, which are only printed, the first.

    rows: of the table. It may change while the processes start, so all use the view of the first one.
    """
    runs, turn = [(name, run) for name in plan for run in range(c.start, c.end)], itertools.cycle(range(processes.n))
    is_finished = processes.from_first(lambda: [find_run(rows, c.group_name, name, run) is not None for name, run in runs])
    return {run: 0 if finished else next(turn) for run, finished in zip(runs, is_finished)}


def save_task_plots(c, pretrained, tables, plan):
    """Write what the planned tasks look like to checkpoints/glue/<group>/: lengths.png, and layer_learning_rates.png."""
    folder = GLUE_FOLDER / c.group_name
    folder.mkdir(parents=True, exist_ok=True)
    encoded = encode_samples({name: tables[name] for name in plan if not plan[name]["wsc_trick"]}, c, pretrained.hf_tokenizer)
    if encoded:  # WSC's schemas are no table of GLUE
        save_plot(plot_lengths({TASKS[name].title: rows.lengths for name, rows in encoded.items()}), folder / "lengths.png")
    titles_by_lrs = {}
    for name, settings in plan.items():
        lrs = get_layer_lrs(settings["lr"], settings["layer_decay"], count_layers(pretrained.model.config), c.original_lr_layer_decays)
        titles_by_lrs.setdefault(tuple(lrs), []).append(TASKS[name].title)
    save_plot(plot_layer_lrs({", ".join(titles): lrs for lrs, titles in titles_by_lrs.items()}), folder / "layer_learning_rates.png")


def describe_scores(row):
    """The dev scores of a row in percent, in one line."""
    told = list(row["scores"]) != ["validation"]
    return ", ".join(f"{split + ' ' if told else ''}{name} {100 * value:.2f}"
                     for split, measured in row["scores"].items() for name, value in measured.items())


# %% [markdown]
# ### Test files
#
# The best run of each task by its dev score predicts the test set, or those that `th_run` names; several make an ensemble. The
# files are checked before they are zipped: the server says little about what it does not like. An extra column, as
# electra_pytorch wrote it, is one of those things.

# %%
def chosen_runs(c, rows, plan=()):
    """{task: runs that predict its test set}, empty where there is no finished run.

    plan: tasks whose runs start..end - 1 will be finished by then; without a plan they are those of the table.   Raises PlainError for
    a run in th_run that is neither finished, with its checkpoint there, nor planned, and where there is no run at all.
    """
    chosen = {}
    for name in c.tasks:
        has_runs = name in plan or runs_of(rows, c.group_name, name)
        given = c.th_run.get(name) if isinstance(c.th_run, dict) else c.th_run if has_runs else None
        chosen[name] = best_runs(rows, c.group_name, name) if given is None else [given] if isinstance(given, int) else given
        for run in chosen[name]:
            path = run_path(c.group_name, name, run)
            is_planned = name in plan and c.start <= run < c.end
            if not is_planned and not (find_run(rows, c.group_name, name, run) and path.exists()):
                raise PlainError(f"th_run names run {run} of {name}, but in the group {c.group_name!r} it is not finished or {str(path)!r} "
                                 "is gone: name another, or finetune it.")
    if not plan and not any(chosen.values()):
        raise PlainError(f"the group {c.group_name!r} has no finished run of {', '.join(c.tasks)} whose checkpoint is there: "
                         "finetune first, with do_finetune=True, or say which group_name.")
    return chosen


def predict_test(task, checkpoint, dl_idx=0, *, data, device=None, precision=None):
    """Predictions for the dl_idx-th test set of a task (a name): label numbers or scores (N,), in the order of its rows.

    checkpoint: path of a finetuned one, or a list of them, whose probabilities (scores) are averaged.   data: TaskData.
    """
    checkpoints = checkpoint if isinstance(checkpoint, (list, tuple)) else [checkpoint]
    task, total, encoded = TASKS[task], 0., {}
    rows = data.splits[task.tests[dl_idx].split]
    for path in checkpoints:
        model, hf_tokenizer, run = load_finetuned(path)
        if run["settings"]["wsc_trick"]:
            total = total + predict_schemas(model, hf_tokenizer, rows, run["settings"], device, precision)
        else:
            way = run["settings"]["max_length"], hf_tokenizer.backend_tokenizer.to_str()  # the same for all members, as a rule
            if way not in encoded:
                encoded[way] = encode(rows, task, run["settings"]["max_length"], hf_tokenizer)
            total = total + predict_rows(task, model, encoded[way], run["settings"], device, precision)
    return total / len(checkpoints) if task.is_regression else total.argmax(-1)


def predict_schemas(model, hf_tokenizer, rows, settings, device=None, precision=None):
    """Probabilities (N, 2) of WNLI's rows by the WSC trick; where no pronoun is found it is "not entailment", which is more frequent."""
    schemas = wnli_schemas(rows, load_spacy(settings["spacy_model"]))
    found = [i for i, schema in enumerate(schemas) if schema]
    print(f"WNLI: the pronoun was found in {len(found)} of {len(schemas)} rows")
    probabilities = torch.tensor([[1., 0.]]).repeat(len(schemas), 1)
    if found:
        encoded = SchemaRows([schemas[i] for i in found], hf_tokenizer, settings["max_length"])
        probabilities[found] = predict_rows(TASKS["wnli"], model, encoded, settings, device, precision)
    return probabilities


def write_test_files(c, tables):
    """Write test_outputs/<group_name>/*.tsv, and the zip if all eleven are there; test_outputs/<group_name>.json says what made each.

    Files that an earlier start filled with the most frequent label are not kept.
    """
    folder, rows = Path("test_outputs") / c.group_name, read_scores()
    chosen = chosen_runs(c, rows)
    made_by = {}
    for name, data in tables.items():
        task, source = TASKS[name], "mnli" if name == "ax" else name
        for dl_idx, test in enumerate(task.tests):
            if not chosen[source] or test.split in data.lacking:
                print(f"{test.tsv} is not written: {data.lacking.get(test.split, f'{TASKS[source].title} has no finished run')}")
                continue
            paths = [run_path(c.group_name, source, run) for run in chosen[source]]
            predictions = predict_test(name, paths, dl_idx, data=data, device=c.device, precision=c.precision)
            write_tsv(folder / test.tsv, data.splits[test.split]["index"], format_predictions(task, predictions))
            dev = "MNLI-m dev" if source == "mnli" else "dev"
            made_by[test.tsv] = ", ".join(f"{source} run {run} ({dev} {score(find_run(rows, c.group_name, source, run)):.2f})"
                                          for run in chosen[source])
            print(f"{test.tsv:12} by {made_by[test.tsv]}")
    complete_submission(folder, made_by, c.majority_for_missing, rows_of(c.glue_dir) if is_synthetic(c) else None)


# %%
if __name__ == "__main__":
    if not c.do_finetune:
        chosen_runs(c, read_scores())  # before the tables are loaded
    with processes.main_first():
        tables = load_tables(c)
    print_tables(c, tables)
    if c.do_finetune:
        plan = plan_runs(c, pretrained, tables)
        if processes.is_main:
            save_task_plots(c, pretrained, tables, plan)
        finetune(c, pretrained, tables, plan, processes)

# %% [markdown]
# The test files of these runs:

# %%
if __name__ == "__main__" and processes.is_main:
    write_test_files(c, tables)


# %% [markdown]
# ## 7. A look at the result
#
# Scores on the dev sets. Google's rows are medians over many seeds, electra_pytorch's means of ten runs; compare like with like. A standard
# deviation of two runs says little.

# %%
def plot_group(c, tables):
    """The scores of a group's runs by task, beside those of always the same answer and, unless the tables are made up, of ELECTRA-Small."""
    rows, published = read_scores(), {} if is_synthetic(c) else by_title(PUBLISHED["ELECTRA-Small-OWT (Google, median)"])
    return plot_scores({c.group_name: scores_by_task(rows, c.group_name)}, published, majority_scores(tables, rows, c.group_name))


def save_result_plots(c, tables):
    """Write to checkpoints/glue/<group>/ scores.png, losses.png, and runs.html, a table that a click on a column sorts."""
    folder, rows = GLUE_FOLDER / c.group_name, read_scores()
    folder.mkdir(parents=True, exist_ok=True)
    save_plot(plot_group(c, tables), folder / "scores.png")
    if losses := losses_of_runs(rows, c.group_name):  # their folders may have been deleted
        save_plot(plot_finetuning_losses(losses), folder / "losses.png")
    (folder / "runs.html").write_text("<meta charset='utf-8'>" + sortable(table_of_runs(rows, c.group_name)).data, encoding="utf-8")


# %%
if __name__ == "__main__" and processes.is_main:
    print(report(read_scores(), c.group_name))
    save_result_plots(c, tables)

# %% tags=["active-ipynb"]
# plot_group(c, tables);

# %% [markdown]
# A run whose score is that of always the same answer has learnt nothing: it collapsed, which happens with small models and small
# tasks, or as with WNLI there was nothing to learn. The losses of all runs:

# %% tags=["active-ipynb"]
# plot_finetuning_losses(losses_of_runs(read_scores(), c.group_name));

# %% [markdown]
# All runs, with what they were trained with; a click on the head of a column sorts them, here and in `runs.html` beside the
# checkpoints.

# %% tags=["active-ipynb"]
# display(sortable(table_of_runs(read_scores(), c.group_name)))

# %% [markdown]
# The same summed up. The quickstart's tables are made up: its numbers say that everything works, and nothing about GLUE. On GLUE's
# own tables these results belong beside what was published:

# %% tags=["active-ipynb"]
# display(summarize(read_scores(), c.group_name).round(2))
# published = pd.DataFrame({name: by_title(scores) for name, scores in PUBLISHED.items()}).T
# display(published if is_synthetic(c) else compare_with_published(read_scores(), c.group_name).round(2))

# %% [markdown]
# Three rows of a dev set of each kind, as the best run labels them:

# %% tags=["active-ipynb"]
# for name in ("cola", "mrpc", "stsb", "mnli"):
#     task, [run] = TASKS[name], best_runs(read_scores(), c.group_name, name)
#     model, hf_tokenizer, row = load_finetuned(run_path(c.group_name, name, run))
#     dev = tables[name].splits[task.devs[0][0]].select(range(3))
#     outputs = predict_rows(task, model, encode(dev, task, c.max_length, hf_tokenizer), row["settings"])
#     for example, output in zip(dev, outputs):
#         found, label = (f"{output:.1f}", example["label"]) if task.is_regression else (
#             task.labels[int(output.argmax())], task.labels[example["label"]])
#         print(f"{task.title:6}", " | ".join(example[text] for text in task.texts), "->", found, f"(label: {label})")
