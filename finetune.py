# %% [markdown]
# # Finetuning on GLUE and on custom tasks
#
# [GLUE](https://gluebenchmark.com) is a benchmark of nine language understanding tasks: is a sentence acceptable, do
# two sentences mean the same, does one follow from the other? This notebook adds an output layer to a pretrained
# ELECTRA and finetunes both on each task, several times with different seeds. It reports mean, median and best of the
# runs, and writes the test files for the GLUE server. Custom tasks work the same way: classes or scores of texts and
# pairs, labels of words, or questions about texts.
#
# The notebook runs as a quickstart. It compares three small networks on sentences from seven books. One of them is the
# model of `python pretrain.py quickstart=True`: run that first, or the cells of [Pretrain.ipynb](Pretrain.ipynb).
# `finetune.py` is exported from this notebook, without the cells that only explore.
#
# *F41* and the like refer to facts about [Google's code](https://github.com/google-research/electra), and *D12* to
# differences between it and [electra_pytorch](https://github.com/richarddwang/electra_pytorch), the PyTorch code whose
# structure this repository follows. [docs/facts.md](docs/facts.md) lists both. Shapes in comments: B batch, L length,
# H hidden size, C classes, N rows (for tagging: words).

# %% [markdown]
# ## 1. Configuration

# %%
import _utils  # noqa: F401  first: it sets how long PyTorch's idle threads spin

import sys

from _utils.config import MyConfig, from_command_line
from _utils.errors import print_user_errors
from _utils.finetuning.config import FINETUNE_KEYS, check_files, complete_finetuning

# The most used keys. Edit them here, or on the command line: python finetune.py tasks=cola,rte end=3 glue_dir=PATH
# `python finetune.py --help` explains all keys; those that are not here may be added, or set on the command line, too.
c = MyConfig({
    "quickstart": False,  # True: compare three small networks, after `python pretrain.py quickstart=True`
    "device": None,  # 'cpu', 'cuda', 'cuda:1' ...; None: the first GPU, else the CPU
    "pretrained_checkpoint": "vanilla_11081_100.0%.pth",  # in checkpoints/pretrain/; or a transformers folder or hub id
    "tasks": ["cola", "sst2", "mrpc", "stsb", "qqp", "mnli", "qnli", "rte", "wnli"],  # or docs/custom_tasks.md
    "glue_dir": None,  # a folder of the GLUE download; None: nyu-mll/glue on the hub
    "task_overrides": {},  # {'rte': {'lr': 2e-5, 'epochs': 5, 'bs': 16, 'rows': 1000}}
    "start": 0,  # runs start, start + 1, ..., end - 1 of each task; finished runs are not repeated
    "end": 10,  # exclusive
    "seeds": None,  # one for each run; None: run i uses seed i
    "group_name": None,  # of these runs, in tables and file names; None: derived from the checkpoint
    "start_from_mnli": False,  # True: RTE, STS-B and MRPC start from the best MNLI run
    "do_finetune": True,  # False: only predict the test files
    "th_run": None,  # the run that predicts the test sets, or a list: an ensemble; None: the best on the dev set
    "original_lr_layer_decays": True,  # the last layer has decay ** 2, as in Google's code (F37); False: decay ** 1
    "double_unordered": True,  # train MRPC and STS-B on both orders of each pair (F42)
    "logger": "tensorboard",  # 'tensorboard', 'neptune' (offline store), 'wandb' or None
}, FINETUNE_KEYS)

# %%
if __name__ == "__main__":
    print_user_errors()
    c = complete_finetuning(from_command_line(c, sys.argv))
    check_files(c)

# %%
# The other imports take seconds, so the command line is checked before.
import contextlib
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor, nn
from transformers import PreTrainedTokenizerBase

from _utils.finetuning.group import Group, Results
from _utils.finetuning.model import FinetunedModel, evaluate, keep_best, load_encoder, to_device
from _utils.finetuning.quickstart import quickstart
from _utils.networks import layer_groups
from _utils.optim import AdamNoBiasCorrection, decay_groups, group_schedules
from _utils.recipes import RECIPES
from _utils.tasks.glue import as_task
from _utils.tasks.predictor import Predictor
from _utils.tasks.rows import EncodedRows, Window, default_epochs, finetuning_dataloaders, tokenized
from _utils.tasks.task import Task
from _utils.text import text_tokenizer, with_special_tokens
from _utils.training import FinetuningLearner, LossProgress, Schedule, SummingLearner, set_seed


# %% [markdown]
# ## 2. Data
#
# `_utils/tasks/glue.py` defines the columns, labels and metrics of each task. The tables come from the hub or from the
# files of the GLUE download; both give the same rows. If a training or dev file is missing, nothing is trained. If a
# test file is missing, its task is not predicted.
#
# A task consists of four parts: its inputs, the output layer with its loss, its metrics, and its files of predictions.
# `_utils/tasks/parts.py` has those for the classification of a sentence or pair, which this notebook shows.
# `_utils/tasks/regression.py` replaces what differs for the scores of STS-B. Custom tasks, such as labels of words or
# questions, have a package of their own, `_utils/custom`, which GLUE does not need.

# %% [markdown]
# ## 3. The task
#
# The input is `[CLS] A [SEP]` for one sentence, and `[CLS] A [SEP] B [SEP]` with segment ids 0 and 1 for a pair. If a
# pair is too long, its longer text loses tokens from the end, one at a time; at equal length, the second text does
# (F41). In training, each pair of MRPC and STS-B is also used with its texts swapped (F42). Google's code swaps them
# before truncation. electra_pytorch swaps them after it (D12), and so does this notebook without `recipe=google`.
#
# With `window_stride` (not in the paper), `_utils/tasks/rows.py: tokenized` first divides a text that is too long into
# overlapping windows. Each window is an example in training, and the mean of their probabilities is the prediction.

# %%
def truncated_lengths(a, b, room):
    """Lengths of two texts of a and b tokens, truncated to `room` tokens in all (finetune/classification:
    _truncate_seq_pair, F41).
    """
    while a + b > room:
        if a > b:
            a -= 1
        else:
            b -= 1
    return a, b


def tokenize_sents_max_len(
    example: dict, cols: Sequence[str], max_len: int, swap: bool = False, *, hf_tokenizer: PreTrainedTokenizerBase
) -> dict:
    """`example` with inp_ids, attn_mask and token_type_ids added: lists of at most max_len, for the text or pair in
    `cols`. A text is a string, in which "[MASK]" and the like are plain text (F1), or its token ids.

    swap: reverse the order of a pair, after truncation.
    Special tokens and segment ids are those of the tokenizer, so other families than BERT's work too. An empty second
    text gets no [SEP], but one token of room is reserved for it, unlike in Google's code (F41).
    """
    tokenizer = text_tokenizer(hf_tokenizer)
    texts = [tokenizer.encode(text, add_special_tokens=False).ids if isinstance(text, str) else text
             for text in (example[col] for col in cols)]
    room = max_len - tokenizer.num_special_tokens_to_add(len(texts) == 2)
    lengths = truncated_lengths(len(texts[0]), sum(map(len, texts[1:])), room)
    texts = [text[:length] for text, length in zip(texts, lengths)]
    if swap:
        texts.reverse()
    first, *second = texts
    inp_ids, token_type_ids = with_special_tokens([first, *filter(len, second)], hf_tokenizer)  # [CLS] A [SEP] B [SEP]
    return {**example, "inp_ids": inp_ids, "attn_mask": [1] * len(inp_ids), "token_type_ids": token_type_ids}


# %%
def encode(task, rows, hf_tokenizer, settings, training=False):
    """EncodedRows of a Dataset with the columns of a Task; in training, with every pair in reverse order appended if
    wanted (F42).

    settings: Settings.
    """
    orders = [(task.texts, False)]
    if training and settings.double_unordered:
        swapped_before, swapped_after = (task.texts[::-1], False), (task.texts, True)  # truncation (D12)
        orders.append(swapped_before if settings.recipe == "google" else swapped_after)

    def inputs():
        for names, swap in orders:
            for windows, n_tokens in tokenized(rows, names, settings, hf_tokenizer):
                encoded = (tokenize_sents_max_len(window, names, settings.max_length, swap, hf_tokenizer=hf_tokenizer)
                           for window in windows)
                yield [Window(one["inp_ids"], one["token_type_ids"]) for one in encoded], n_tokens

    labels = task.scores.targets(rows["label"][:] * len(orders))
    return EncodedRows(inputs(), labels, hf_tokenizer.pad_token_id)


# %% [markdown]
# ## 4. The model
#
# The final hidden state of `[CLS]` (with `pooling='mean'`, the mean of those of all tokens), dropout, and one linear
# layer (F43). Unlike the `ElectraForSequenceClassification` of transformers, the head has no hidden layer and no
# activation. `Predictor` holds encoder and output layer, and initializes the latter. All layers are trained, with the
# learning rates of section 5 (n layers, decay d):
#
#     [CLS] the key is on the old table . [SEP]
#       |    |   |   |  |   |   |    |  |   |         learning rate
#     embeddings and their projection                 lr * d ** (n + 2)
#     layer 1                                         lr * d ** (n + 1)
#     ...
#     layer n                                         lr * d ** 2
#       |
#     dropout and linear layer, for C classes         lr

# %%
class SentencePredictor(Predictor):
    """Classification or regression of a sentence or pair.

    model, hidden_size, num_class, xavier_reinited_outlayer, freeze: as for Predictor.   pooling: "mean" reads the mean
    over the tokens, without the padding, instead of the first one (not in the paper).
    """

    def __init__(self, *args, pooling: str = "first", **kwargs):
        super().__init__(*args, **kwargs)
        self.dropout, self.pooling = nn.Dropout(.1), pooling

    @staticmethod
    def encode(*args, **kwargs):
        """How its inputs are made: as `encode` at the time of the call, so its cell can be run again."""
        return encode(*args, **kwargs)

    def forward(self, inp_ids: Tensor, attn_mask: Tensor, token_type_ids: Tensor) -> Tensor:
        """inp_ids, attn_mask, token_type_ids (B, L) -> logits (B, C), or scores (B,)."""
        if self.pooling == "mean":
            # (B, L, H)
            hidden, is_token = self.hidden_states(inp_ids, attn_mask, token_type_ids).float(), attn_mask[:, :, None]
            pooled = (hidden * is_token).sum(1) / is_token.sum(1)
        else:
            pooled = self.first_hidden_state(inp_ids, attn_mask, token_type_ids).float()  # (B, H)
        return self.outputs(self.dropout(pooled)).squeeze(-1)


# %% [markdown]
# ## 5. Optimization
#
# ### Layer-wise learning rates
#
# The output layer has the highest learning rate. Each layer below it has that of the layer above times a constant
# factor, the layer decay. Google's code counts one layer too many between head and last layer, so the last layer's
# factor is squared (F37). The published results were obtained this way.

# %%
def get_layer_lrs(
    lr: float, decay_rate: float, num_hidden_layers: int, original_lr_layer_decays: bool = True
) -> list[float]:
    """Learning rates [embeddings, layer 0, ..., last layer, head], num_hidden_layers + 2 numbers.

    lr: of the head.   original_lr_layer_decays: with the extra factor below the head of optimization.py:_get_layer_lrs
    (F37).
    """
    extra = 1 if original_lr_layer_decays else 0
    return [lr * decay_rate ** (depth + extra) for depth in range(num_hidden_layers + 1, 0, -1)] + [lr]


def parameter_groups(model):
    """(name, parameter) pairs of a predictor, grouped as in `get_layer_lrs`; embeddings include their projection."""
    groups = layer_groups(model.base_model)
    in_encoder = {id(parameter) for group in groups for _, parameter in group}
    return [
        *groups,
        [(name, parameter) for name, parameter in model.named_parameters() if id(parameter) not in in_encoder],
    ]


def build_optimizer(model, settings):
    """Adam with a learning rate for each layer; weight decay spares biases and LayerNorms (F34)."""
    groups = parameter_groups(model)
    lrs = get_layer_lrs(settings.lr, settings.layer_decay, len(groups) - 2, settings.original_lr_layer_decays)
    trained = [
        [(name, parameter) for name, parameter in parameters if parameter.requires_grad] for parameters in groups
    ]
    param_groups = [{**group, "lr": lr} for lr, parameters in zip(lrs, trained, strict=True)
                    for group in decay_groups(parameters, settings.weight_decay) if group["params"]]
    adam = torch.optim.AdamW if settings.adam_bias_correction else AdamNoBiasCorrection
    return adam(param_groups, lr=settings.lr, betas=(.9, .999), eps=1e-6)


# %% [markdown]
# ### Hyperparameters
#
# Training takes three epochs with batch size 32, and ten epochs for RTE and STS-B (F40). Learning rate and layer decay
# depend on the size. Custom tasks train for at least 300 steps by default. RTE, STS-B and MRPC may start from MNLI's
# encoder; in the paper, RTE and STS-B do.
#
# The dev set of WNLI contradicts its training set, so models do not learn it. With `wsc_trick=True`, the discriminator
# resolves its pronouns instead: in "The trophy does not fit into the suitcase because it is too big", each candidate
# (*the trophy*, *the suitcase*) replaces *it*, and is right if it looks original enough. This is trained for ten epochs
# on WSC ([docs/finetuning.md](docs/finetuning.md#wnli)).

# %%
def hyperparameters(task, c, n_rows):
    """{"lr", "epochs", "bs", "rows", "layer_decay"} of a task with n_rows training rows: the recipe's, overridden by
    task_overrides.
    """
    recipe = RECIPES[c.size]
    values = {"lr": recipe.glue_lr, "bs": 32, "rows": None, "layer_decay": recipe.layer_decay}
    values |= c.task_overrides.get(task.name, {})
    return {"epochs": default_epochs(task, n_rows, values["bs"], values["rows"]), **values}


# %% [markdown]
# ### The learner
#
# The loss is the mean of the cross-entropy over the batch (D9), and its gradient is clipped at norm 1. With
# `recipe=google` the step is that of Google's code, with which the paper's results were obtained. It sums the loss over
# the batch (F44), so nearly every gradient is clipped and only its direction counts. In the norm for
# clipping, the gradient of the word embeddings has a row for each token of the batch, not for each word (F35). Scores
# of STS-B are divided by 5 (F45), pairs are swapped before truncation (D12), and the warmup is a tenth of the steps,
# not rounded (D11). The hyperparameters above are the same for both.

# %%
# By recipe: the learner, and the type of the number of warmup steps (D9, D11).
STEPS = {None: (FinetuningLearner, int), "google": (SummingLearner, float)}


def get_glue_learner(
    task: Task | str,
    run_name: str | None = None,
    inference: bool = False,
    *,
    model: nn.Module,
    data,
    settings,
    device: torch.device,
    precision: str,
    num_workers: int = 0,
    log=None,
) -> FinetuningLearner:
    """FinetuningLearner of a Task or its name, ready for `fit(settings.epochs)`.

    model: from `Head.network`.   data: EncodedTask, the rows of training and dev sets.   settings: Settings of the run.
    run_name: title of the progress bar.   log: RunLog for the losses.
    inference: without schedule, progress bar and log.
    """
    task, model = as_task(task).in_recipe(settings.recipe), to_device(model, device)
    learner, number = STEPS[settings.recipe]
    dls = finetuning_dataloaders(data.train, data.devs.values(), settings.bs, num_workers, device)
    optimizer, cbs = build_optimizer(model, settings), []
    if not inference:
        steps, lrs = len(dls.train) * settings.epochs, [group["lr"] for group in optimizer.param_groups]
        schedules = group_schedules(settings.schedule, lrs, steps, number(.1 * steps))
        cbs = [Schedule(schedules, steps), LossProgress(log, steps, run_name or task.title)]
    return learner(dls, model, task.head.loss().to(device), optimizer, precision, cbs=cbs)


# %% [markdown]
# ## 6. Run
#
# ### One run
#
# A run finetunes a copy of the pretrained encoder and a new output layer with one seed, and evaluates them on the dev
# sets.

# %%
def finetune_run(planned, pretrained, device, num_workers=0):
    """Finetune a PlannedRun of a group on a Pretrained.

    Returns (learner, {split: `Metrics.evaluate`} of the dev sets).
    """
    task, data, settings = planned.task, planned.data, planned.settings
    set_seed(planned.seed)
    model = task.head.network(pretrained, settings, SentencePredictor)
    if planned.mnli_run:
        load_encoder(model, planned.mnli_run)
    title = f"{task.title}, run {planned.run}"
    learn = get_glue_learner(task, title, model=model, data=data, settings=settings, device=device,
                             precision=settings.precision, num_workers=num_workers, log=planned.log)
    if settings.keep == "best":
        learn.add_cb(keep_best(task, data))
    with contextlib.closing(learn.loss_progress):
        learn.fit(settings.epochs)
    return learn, evaluate(learn, task, data)


# %% [markdown]
# ### Test files
#
# For each task, the run with the best dev score predicts the test set, or those that `th_run` names, several as an
# ensemble. The GLUE server gives little explanation when it rejects a submission, for example one with an extra column
# as in electra_pytorch's files. Therefore the files are checked before they are zipped.

# %%
def load(path, device=None, precision: str | None = None) -> FinetunedModel:
    """A finetuned checkpoint, given by its path or its name in checkpoints/glue: `load("g_mine_0.pth").predict(["A
    text."])`.
    """
    return FinetunedModel(path, SentencePredictor, device, precision)


def predict_test(task: Task | str, checkpoint, dl_idx: int = 0, *, data, device=None, precision: str | None = None):
    """Decisions of a Task or its name for its dl_idx-th test set: class ids or scores (N,), in the order of its rows,
    words or Answers.

    checkpoint: path of a finetuned checkpoint, one that was loaded, or a list of them, whose probabilities (scores) are
    averaged.
    data: TaskData.   UserError for a model of another task.
    """
    task, checkpoints = as_task(task), checkpoint if isinstance(checkpoint, (list, tuple)) else [checkpoint]
    models = [load(model, device, precision) if isinstance(model, (str, Path)) else model for model in checkpoints]
    for model in models:
        model.check_task(task)
    rows = data.splits[[*task.test_files][dl_idx]]
    return task.scores.decide(task.scores.average([model.outputs(rows) for model in models]))


# %% [markdown]
# ### Everything in one call
#
# Each finished run adds a line to `checkpoints/glue/scores.jsonl`, with its settings, which must be the same for all
# runs of one task in a group. Rerun the same command to resume: finished runs are skipped, and an interrupted run
# starts over. Several processes share the runs.

# %%
def run(c: MyConfig) -> Results:
    """Finetune with a completed configuration, predict the test sets, report the scores, and return Results.

    Writes a checkpoint checkpoints/glue/<group_name>_<task>_<run>.pth and a folder of logs for each run, a line per run
    in checkpoints/glue/scores.jsonl, plots in checkpoints/glue/<group_name>/, and test files in test_outputs/.
    With do_finetune=False it only predicts and reports.
    """
    group = Group(c, run, hyperparameters, SentencePredictor)
    for task, number in group.mine():
        with group.opened(task, number) as planned:
            if planned:
                group.save(planned, *finetune_run(planned, group.pretrained, group.device, c.num_workers))
    return group.finish(load, predict_test)


# %%
if __name__ == "__main__":
    results = quickstart(c, run) if c.quickstart else run(c)
