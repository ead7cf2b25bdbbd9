# %% [markdown]
# # Pretraining ELECTRA
#
# [ELECTRA](https://arxiv.org/abs/2003.10555) pretrains a text encoder by *replaced token detection*. A small masked language model, the
# *generator*, replaces some tokens of a text with plausible alternatives. The *discriminator* then predicts for every token whether it is
# original or replaced. It learns from all tokens instead of the masked 15 %, and it is the network that is finetuned later.
#
# This notebook builds the method of the paper step by step on real text: configuration, data, masking, model and loss, optimization, run,
# results. `pretrain.py` is exported from it for long runs, without the cells that only explore.

# %% [markdown]
# ## 1. Configuration
#
# *F12* and the like refer to numbered facts about [Google's code](https://github.com/google-research/electra), and *D3* to differences
# between it and [electra_pytorch](https://github.com/richarddwang/electra_pytorch), the PyTorch code whose structure this repository
# follows. [docs/facts.md](docs/facts.md) lists them, and marks those that were measured by running the code.
# [lmtuners](docs/facts.md#lmtuners) is another PyTorch implementation, with ALBERT's networks. Shapes are given at the end of a line: B
# batch, L length, V vocabulary, M slots (masked positions of a batch that the generator predicts), H hidden size.

# %%
import _utils  # noqa: F401  first, because it sets how PyTorch's threads wait

import copy
import gc
import math
import sys
from contextlib import closing, nullcontext
from functools import partial
from pathlib import Path
from typing import NamedTuple

import torch
import torch.nn.functional as F
from datasets import concatenate_datasets
from safetensors.torch import load_file
from torch import nn

from fastai.callback.core import Callback
from fastai.learner import CancelStepException

from _utils.config import MyConfig, complete, continued_schedule, from_command_line, is_pair, timed_schedule, with_schedule
from _utils.errors import PlainError, print_plain_errors
from _utils.networks import (
    GatheredPositions, add_tokens, argmax, build_network, check_networks, check_tying, count_parameters, inputs_of,
    load_pair, load_with_head, make_dropout_cheap, make_networks, pad_vocabulary, replaced_logits, set_attention,
    share_parameters, shared_modules, uniform_like)
from _utils.optim import MOMENTS_FILE, AdamNoBiasCorrection, Lamb, decay_groups, schedules
from _utils.plots import save_pretraining_plots
from _utils.recipes import RECIPES, recipe_of
from _utils.runs import (
    Run, check_same_data, check_same_vocabulary, check_writable, code_key, is_finished, locked, milestone_steps, open_log, original_code,
    resume, save_pretrained, upload)
from _utils.text import (
    check_sources, extend_tokenizer, load_documents, load_tokenizer, open_examples, prepare_examples,
    pretraining_dataloaders, split_held_out, text_key, unigram_entropy, warn_of_repetition)
from _utils.training import (
    DTYPES, Bookkeeping, ClippingLearner, Gradients, PretrainingMetrics, Processes, Schedule, StaticStep, StopSignals, check_compiler,
    choose_device, choose_precision, fastest_micro_batch, hint_at_bf16, keep_compiled, micro_batch_sizes, seconds_per_step, seed_step,
    set_seed, split_micro_batches)

# %%
# Every key can be changed here, or on the command line: python pretrain.py size=base datas=wikipedia,openwebtext
# `python pretrain.py --help` prints all keys with these comments and the values they accept.
c = MyConfig({
    # True: a tiny model on text that is installed with Python; takes minutes on two CPU cores. Replaces size, datas, vocab and
    # base_run_name unless you set them on the command line.
    "quickstart": False,

    # 'cpu', 'cuda' or 'cuda:1', ...; None: the first GPU, or the CPU if there is none.
    "device": None,
    # The run and its checkpoints are named <base_run_name>_<seed>.
    "base_run_name": "vanilla",
    # Random seed of data order, masks, samples, dropout and initial weights. None: a random seed, which is printed.
    # To resume such a run, set the printed seed.
    "seed": 11081,
    # Random seed of the examples: segment boundaries and short examples. Runs that differ only in `seed` share the prepared examples.
    "data_seed": 11081,

    # False: Adam without bias correction, as in Google's code. True: with bias correction (not in LAMB, which never has it).
    "adam_bias_correction": False,
    # Learning rate schedule. 'original_linear': linear decay that starts together with the warmup, as in Google's code.
    # 'separate_linear': decay starts after the warmup. 'one_cycle': fastai's. 'adjusted_one_cycle': fastai's with warmup_steps.
    # None: the recipe's; for ELECTRA 'original_linear'.
    "schedule": None,
    # Power of the linear schedules' decay (F97).
    "lr_decay_power": 1.,
    # 'adam' or 'lamb' (lmtuners). None: the recipe's.
    "optimizer": None,
    # Weight decay of everything but biases and LayerNorms.
    "weight_decay_rate": .01,
    # Sampling from the generator: 'fp32_gumbel' as in Google's code, 'fp16_gumbel' (electra_pytorch's; draws rare tokens too seldom),
    # 'multinomial', or 'inverse_cdf', which draws one random number per masked token instead of one per logit.
    "sampling": "fp32_gumbel",
    # Sampling temperature: the generator's logits are divided by it.
    "temperature": 1.0,
    # True: the generator never samples the original token (F15).
    "disallow_correct": False,
    # 'bernoulli': each token is chosen independently, as in electra_pytorch (D1). 'official': a fixed number of positions per example,
    # drawn with replacement, including [UNK]; the token ids of positions drawn twice are averaged (F7-F12, F19).
    "masking": "bernoulli",
    # Replacement of the chosen tokens. True: 85 % [MASK], 15 % unchanged. False: BERT's 80 % [MASK], 10 % random, 10 % unchanged.
    # 'always': 100 % [MASK] (lmtuners). None: the recipe's; for ELECTRA True.
    "electra_mask_style": None,
    # Label smoothing of the generator's and the discriminator's loss: a number in [0, 1), or True for .1. The discriminator's smooths only
    # the labels of original tokens, from 0 (D17).
    "gen_smooth_label": False,
    "disc_smooth_label": False,

    # The recipe: 'small', 'base' and 'large' from the paper, 'small++' (Google's released model), 'mini' (overnight on a CPU core, rotary
    # positions), 'tiny' (the quickstart's), or lmtuners' 'alectra_small', 'electra_small_lmtuners', 'bert_small' ... All recipes:
    # _utils/recipes.py.
    "size": "small",
    # 'electra', or 'mlm' for masked language modelling with the discriminator's architecture; of the paper's section 3.2 'two_stage' and
    # 'adversarial', of section 3.5 'electra_15', 'replace_mlm' and 'all_tokens_mlm'. None: the recipe's.
    "objective": None,
    # Steps of the first of two stages, in which the generator is trained alone. None: half of the steps.
    "two_stage_steps": None,
    # Weights of the generator's and the discriminator's loss. disc_weight=None: 50, or 1 where the second network predicts tokens too.
    "gen_weight": 1.,
    "disc_weight": None,
    # Other networks with the same vocabulary. Each is a transformers configuration such as {'model_type': 'roberta', 'hidden_size': 256},
    # a folder with a config.json, or a hub id. None: the recipe's.
    "generator": None,
    "discriminator": None,
    # Hidden size and layers of the generator as fractions of the discriminator's. None: the recipe's.
    "generator_hidden_size": None,
    "generator_layers": None,
    # True: replacements are drawn uniformly from the vocabulary, and no generator is trained (F88).
    "uniform_generator": False,
    # Parameters that both networks share: 'none' (F89), 'tokens', 'embeddings', 'embeddings+projection', 'embeddings+encoder', or 'all',
    # which also makes the generator as large as the discriminator (F91). None: the recipe's, 'embeddings'.
    "tying": None,
    # 'huggingface': normal distribution with std .02 (size=tiny: .05), as in electra_pytorch (D3). 'official': as in Google's code, normal
    # distribution truncated at two standard deviations, and Glorot uniform (F30).
    # For continued pretraining: a checkpoint of this script (.pth), a folder with generator/ and discriminator/, or the hub id of a
    # discriminator such as 'google/electra-small-discriminator'. It replaces vocab; a checkpoint also replaces size, masking,
    # electra_mask_style, mask_prob and tying, and Google's models set masking='official', unless you set them on the command line.
    # None then means for lr a tenth of the recipe's, for steps ten epochs of the text but at most 5 % of the recipe's, for warmup_steps
    # 5 % of the steps (docs/continued_pretraining.md).
    "initial_weights": "huggingface",
    # True: initial_weights is a discriminator whose generator is missing. A new one is trained on the text, with the recipe's lr, while the
    # discriminator, which shares its embeddings, stays as it is. Then continue from the checkpoint of this run.
    "new_generator": False,
    # A list of corpora: 'openwebtext', 'wikipedia', 'bookcorpus', 'docs' (the documentation in this Python installation), or paths:
    # folders, files or globs of .txt (blank line between documents), .jsonl, .parquet or WikiExtractor output, also compressed (.gz,
    # .bz2, .xz, .zst). Google trained ELECTRA-Small-OWT on openwebtext.
    "datas": ["openwebtext"],
    # Encoding of .txt, .jsonl and WikiExtractor files.
    "encoding": "utf-8",
    # Versions of hub corpora: {'openwebtext': 'COMMIT, branch or tag'}. Other hub corpora use the commit in datasets/hub_revisions/:
    # the newest one when the corpus was first used.
    "revisions": {},
    # Documents in .txt files: 'blank_line' between two of them, or each 'file' or each 'line' is one.
    "documents": "blank_line",
    # True: drop lines shorter than 80 characters and every "()". None: as in electra_pytorch for its corpora (D5), no cleaning of others.
    "clean": None,
    # The part of a line that does not fit into an example: 'truncate' drops it, as Google's code does (F2); with 'keep'
    # it begins the next example.
    "long_lines": "truncate",
    # A hub tokenizer, a vocab.txt, a tokenizer.json or its folder, a checkpoint, or a number: train a vocabulary of
    # this size. With a trained pair: a vocab.txt with words to add to its vocabulary, or a number: its size with
    # frequent words of the text.
    "vocab": "google/electra-small-discriminator",
    # Whether a vocabulary that is trained, or a vocab.txt, keeps case. None: a trained one does not; a vocab.txt does
    # if it has capital letters.
    "cased": None,
    # Whether it removes accents and other marks, also those that belong to Japanese or Hindi letters. None: a trained
    # one does unless it is cased, as BERT's; a vocab.txt does if it has none.
    "strip_accents": None,

    # 'bf16', 'fp16' (with loss scaling) or 'fp32'. None: fp32 on the CPU, bf16 on GPUs that support it, fp16 on older ones (compute
    # capability below 8: T4, V100, RTX 20xx).
    "precision": None,
    # Examples per forward and backward pass; gradients are accumulated over the batch. None: as many as fit in free GPU memory, up to
    # 32,768 tokens; on the CPU one of two sizes, which are tried on the first batch.
    "micro_batch": None,
    # True: compile the training step with torch.compile and, on a GPU, replay it as CUDA graphs (not with fp16). ELECTRA-Small is then
    # 5 times as fast on an H200. The first compilation takes minutes; datasets/compiled/ keeps its result for later starts.
    "compile": False,
    # 'tensorboard', 'neptune' (its offline store), 'wandb' or None. metrics.jsonl is always written.
    "logger": "tensorboard",
    # Where to upload the checkpoint of each milestone: a folder, an fsspec URL such as s3://bucket/run (gs, hf ...), or, in the notebook, a
    # function of its path. None: no upload.
    "upload_to": None,
    # Number of processes that load batches; 0: the training process loads them. Data preparation always uses all cores.
    "num_workers": 3,
    # True: rerun the same command to resume a run that was stopped or killed. False: archive the earlier run and start from scratch.
    "resume": True,
    # Minutes between saves of the training state for resuming, which is also saved at Ctrl-C. 0: save whenever metrics are logged.
    "save_minutes": 10.,
    # Milestones, in percent of the steps: the model is evaluated on held-out text and saved as <base_run_name>_<seed>_<percent>%.pth. The
    # last step and stop_at are always milestones.
    "milestones": [6.25, 12.5, 25., 50., 100.],
    # End the run after this step, with the schedule of all steps. The same command with a larger stop_at, or without it, continues the run.
    # With objective=two_stage, a step of the second stage.
    "stop_at": None,

    # The next values belong to the recipe, which is in _utils/recipes.py.

    # Batch size, in examples. None: the recipe's.
    "bs": None,
    # Learning rate by which the schedule is multiplied; the peak of 'original_linear' is lower. None: the recipe's.
    "lr": None,
    # Number of training steps. None: the recipe's.
    "steps": None,
    # Instead of steps: train for about this many minutes. The number of steps is chosen by the time of steps on the first batch, printed,
    # and kept when the run is resumed.
    "minutes": None,
    # Number of warmup steps, or a share of the steps below 1, such as .05. None: the recipe's share.
    "warmup_steps": None,
    # Maximum length of an example, in tokens. None: the recipe's.
    "max_length": None,
    # Fraction of the tokens that are masked. None: the recipe's.
    "mask_prob": None,
})

# %%
if __name__ == "__main__":
    print_plain_errors()
    c = complete(from_command_line(c, sys.argv))


# %% [markdown]
# ## 2. Data
#
# A corpus is a list of documents, and a document is a list of lines. Lines are collected until they fill an example, which is split into
# two segments: `[CLS] A [SEP] B [SEP]`. As in Google's code (F2-F4), 10 % of the examples are meant to have one segment, and 5 % to be
# shorter, with a random length. The part of a line that exceeds the maximum length is dropped (`long_lines='keep'` keeps it); a line that
# fills an example gives one segment of full length, which is common in the quickstart's text of long lines. Unlike in BERT, B always
# follows A in the text: there is no next sentence prediction. The code is in `_utils/text/processors.py`.

# %%
def load_data(c, processes=None):
    """Load tokenizer and DataLoaders of a configuration, preparing the data first if necessary.

    Returns (hf_tokenizer, dls) with fastai DataLoaders of training and held-out examples. A batch is (input_ids (B, L), sentA_length (B,)),
    where sentA_length counts the tokens of [CLS] A [SEP].
    processes: Processes that train together. The main process prepares the data; the others open it.
    """
    processes = processes or Processes(c.device)
    hf_tokenizer, files = processes.broadcast(lambda: prepare_data(c))
    train, held_out = map(concatenate_datasets, zip(*(split_held_out(open_examples(of_corpus)) for of_corpus in files)))
    splits = {"train": train, "held_out": held_out}
    is_on_gpu, steps = choose_device(c.device).type == "cuda", c.steps or 1  # `fit` sets the number of batches
    return hf_tokenizer, pretraining_dataloaders(splits, hf_tokenizer, c.bs, steps, c.max_length, c.seed, c.num_workers, is_on_gpu)


def prepare_data(c):
    """Returns (hf_tokenizer, files): for each corpus, the list of Arrow files with its prepared examples."""
    check_sources(c.datas, "datasets", c.encoding)
    corpora = [load_documents(source, "datasets", c.encoding, c.documents, c.revisions) for source in c.datas]
    hf_tokenizer = build_tokenizer(c, corpora)
    # A vocabulary that is trained has been checked for marks before.
    warn_of_marks = isinstance(c.vocab, str) and c.cased is None and c.strip_accents is None
    options = c.max_length, c.data_seed, "datasets", c.clean, c.long_lines
    prepared = [prepare_examples(corpus, hf_tokenizer, *options, warn_of_marks=warn_of_marks) for corpus in corpora]
    return hf_tokenizer, [[file["filename"] for file in examples.cache_files] for examples in prepared]


def build_tokenizer(c, corpora):
    """The tokenizer of a configuration; in continued pretraining that of the pair, to which `vocab` may add tokens."""
    if adds_tokens(c):
        return extend_tokenizer(load_tokenizer(c.initial_weights), c.vocab, corpora)
    return load_tokenizer(c.vocab, corpora, "datasets", c.cased, c.strip_accents)


def adds_tokens(c):
    """Whether the vocabulary is that of a trained pair with more tokens."""
    return is_pair(c.initial_weights) and c.vocab != c.initial_weights and c.objective != "two_stage"


# %% [markdown]
# ## 3. Masking
#
# Three words for what follows. A token is *masked* if the generator has to predict it: 15 % of the tokens. A masked token is *hidden* if
# the input shows something else in its place, `[MASK]` or a random token. A *slot* is a place in the generator's output: each masked token
# has one.
#
# According to the paper, all masked tokens are replaced with `[MASK]`. BERT replaces 80 % of them with `[MASK]` and 10 % with a random
# token, and keeps 10 %. ELECTRA's code replaces 85 % with `[MASK]` and keeps 15 % (F10), and so does this notebook. Each token is masked
# independently, as in electra_pytorch (D1); `masking='official'` is further below. Special tokens (F9) and `[UNK]` (D2) are never masked.

# %%
# Of the masked tokens, the shares that become a random token and that stay as they are. The others become [MASK].
MASK_STYLES = {
    True: (0., .15),      # ELECTRA's code (F10)
    False: (.1, .1),      # BERT
    "always": (0., 0.),   # the paper, section 2, and lmtuners
}


def mask_tokens(inputs, mask_token_index, vocab_size, special_token_indices, mlm_probability=.15, replace_prob=.1,
                orginal_prob=.1, ignore_index=-100):
    """Mask tokens for masked language modelling (paper, section 2).

    inputs: token ids, (B, L); not modified.   special_token_indices: ids that are never masked, nor used as random tokens.
    mlm_probability: probability that a token is masked.   replace_prob, orginal_prob (spelled as in electra_pytorch): probabilities that a
    masked token becomes a random token, or stays as it is; otherwise it becomes [MASK]. `MASK_STYLES` has ELECTRA's and BERT's.
    Returns (masked inputs, labels, is_mlm_applied), each (B, L): labels are the original ids of masked tokens and ignore_index elsewhere,
    is_mlm_applied is True for masked tokens.
    """
    maskable = ~is_one_of(inputs, special_token_indices)
    is_mlm_applied = (torch.rand(inputs.shape, device=inputs.device) < mlm_probability) & maskable  # (B, L)
    fate = torch.rand(inputs.shape, device=inputs.device)
    shows_random = is_mlm_applied & (fate < replace_prob) if replace_prob else None
    shows_mask = is_mlm_applied & (fate >= replace_prob + orginal_prob)
    masked_inputs = hide(inputs, shows_mask, shows_random, mask_token_index, vocab_size, special_token_indices)
    return masked_inputs, inputs.masked_fill(~is_mlm_applied, ignore_index), is_mlm_applied


# %%
def is_one_of(inputs, ids):
    """Whether each of `inputs` (B, L) is in the list `ids`; bool, (B, L). Unlike torch.isin, it copies nothing to the device."""
    return torch.stack([inputs == i for i in ids]).any(0)


def hide(inputs, shows_mask, shows_random, mask_token_index, vocab_size, special_token_indices):
    """`inputs` with [MASK] and random tokens at the positions of two boolean masks, each (B, L); shows_random may be None."""
    if shows_random is not None:
        inputs = torch.where(shows_random, random_tokens(inputs, vocab_size, special_token_indices), inputs)
    return inputs.masked_fill(shows_mask, mask_token_index)


def random_tokens(inputs, vocab_size, special_token_indices):
    """Token ids drawn uniformly from all but the special tokens, in the shape of `inputs` (B, L)."""
    tokens = torch.randint(vocab_size - len(set(special_token_indices)), inputs.shape, device=inputs.device)
    for special in sorted(set(special_token_indices)):
        tokens = tokens + (tokens >= special)  # skips its id
    return tokens


# %% [markdown]
# `masking='official'` follows Google's code: an example has a fixed number of slots, 15 % of its tokens including [CLS] and [SEP], and the
# position of each slot is drawn independently, with replacement. In three out of four full examples of 128 tokens, a position is drawn more
# than once (F8). It then counts more than once in the generator loss, and is sampled more than once.

# %%
def mask_tokens_official(inputs, mask_token_index, vocab_size, special_token_indices, mlm_probability=.15, replace_prob=0.,
                         orginal_prob=.15, ignore_index=-100, pad_token_index=0):
    """Mask tokens as Google's pretrain_helpers.py:mask does (F7-F11); the default shares are its own.

    Arguments and results as in `mask_tokens`, except that is_mlm_applied counts the slots of a position.
    special_token_indices: for Google [PAD], [CLS], [SEP] and [MASK], but not [UNK]. Each slot shows [MASK] or not independently; where a
    position has several slots, [MASK] wins.
    """
    most = max_slots(inputs.shape[1], mlm_probability)
    candidates = ~is_one_of(inputs, special_token_indices)  # (B, L)
    n_candidates = candidates.sum(1, keepdim=True)  # (B, 1)
    n_tokens = (inputs != pad_token_index).sum(1, keepdim=True)
    wanted = (n_tokens * mlm_probability).round().clamp(1, most)  # rounds half to even, as Google's
    is_used = (torch.arange(most, device=inputs.device) < wanted) & (n_candidates > 0)  # (B, most)

    shape = (len(inputs), most)
    nth = (torch.rand(shape, device=inputs.device) * n_candidates).long()  # a slot gets the position of the nth candidate
    positions = torch.searchsorted(candidates.cumsum(1), nth, right=True).clamp(max=inputs.shape[1] - 1)  # (B, most)
    count = lambda slots: torch.zeros_like(inputs).scatter_add(1, positions, slots.long())  # (B, most) -> (B, L)
    fate = torch.rand(shape, device=inputs.device)
    shows_random = count(is_used & (fate < replace_prob)) > 0 if replace_prob else None
    shows_mask = count(is_used & (fate >= replace_prob + orginal_prob)) > 0
    is_mlm_applied = count(is_used)
    masked_inputs = hide(inputs, shows_mask, shows_random, mask_token_index, vocab_size, special_token_indices)
    return masked_inputs, inputs.masked_fill(is_mlm_applied == 0, ignore_index), is_mlm_applied


def max_slots(length, mlm_probability):
    """Largest number of slots in an example of `length` tokens (configure_pretraining.py:max_predictions_per_seq, F7)."""
    return max(1, int((mlm_probability + .005) * length))


# %%
class MaskedLMCallback(Callback):
    """Masks each batch on its device, with new masks every time, before it goes into the model.

    The model's inputs are x = (masked_inputs, sentA_lenths, is_mlm_applied, labels), and the targets y = (labels,).
    masking: `mask_tokens` or `mask_tokens_official`, with its other arguments as keyword arguments.
    PretrainingLearner calls `mask` itself; as a callback it is for other Learners.
    """

    def __init__(self, mask_tok_id, special_tok_ids, vocab_size, ignore_index=-100, masking=mask_tokens, **kwargs):
        self.mask_tokens = partial(masking, mask_token_index=mask_tok_id, special_token_indices=special_tok_ids,
                                   vocab_size=vocab_size, ignore_index=ignore_index, **kwargs)

    def before_batch(self):
        self.learn.xb, self.learn.yb = self.mask(*self.xb)

    def mask(self, input_ids, sentA_lenths):
        """(x, y) of a batch, input_ids (B, L), sentA_lenths (B,)."""
        masked_inputs, labels, is_mlm_applied = self.mask_tokens(input_ids)
        return (masked_inputs, sentA_lenths, is_mlm_applied, labels), (labels,)


# %% [markdown]
# ## 4. Model and loss
#
# ### Generator and sampling
#
# The generator is a small masked language model. The discriminator does not see its most likely token but a *sample* from its output
# distribution, drawn with the Gumbel-max trick: the argmax of logits plus Gumbel noise is distributed as their softmax (F15). No gradient
# flows back through the sampling (F18).

# %%
def sample(logits, sampling="fp32_gumbel", temperature=1., disallowed=None):
    """Sample one token id per row from softmax(logits / temperature) (pretrain_helpers.py:sample_from_softmax).

    logits: (M, V), any dtype.   sampling: 'fp32_gumbel', 'fp16_gumbel', 'multinomial' or 'inverse_cdf'.
    disallowed: an id for each row that must not be sampled, (M,), or None.   Returns ids, (M,).
    """
    logits = logits.float()
    if temperature != 1.:
        logits = logits / temperature
    if disallowed is not None:
        logits = logits.scatter_add(1, disallowed[:, None], torch.full_like(logits[:, :1], -1000.))
    if sampling == "multinomial":
        weights = logits.softmax(-1)  # as torch.multinomial, which would raise an error for NaN, on a GPU beyond recovery
        return (weights / torch.empty_like(weights).exponential_()).argmax(-1)
    if sampling == "inverse_cdf":
        return sample_by_inversion(logits)
    if sampling == "fp16_gumbel":
        smallest = torch.finfo(torch.float16).tiny  # keeps both logarithms finite
        uniform = torch.rand_like(logits, dtype=torch.float16).clamp(smallest, 1 - 2 ** -11)
        return (logits.half() - torch.log(-torch.log(uniform))).argmax(-1)
    if sampling != "fp32_gumbel":
        raise ValueError(f"Invalid value for sampling: {sampling!r}")
    # logits - log(-log(uniform + 1e-9) + 1e-9), both 1e-9 as in Google's code (F15); in place, because new tensors of this size take longer
    noise = uniform_like(logits).add_(1e-9).log_().neg_().add_(1e-9).log_()
    return argmax(torch.sub(logits, noise, out=noise))


# %% [markdown]
# Gumbel noise takes a random number for each of the V logits. The same distribution needs one number $u$ per row: the sample is the first
# token at which the cumulative probability exceeds $u$. To keep it exact without a cumulative sum over the whole vocabulary, a block of
# tokens is found first, from the sums of the blocks, and then the token in it.

# %%
BLOCK = 256  # tokens


def sample_by_inversion(logits):
    """Sample one token id per row by inverting the cumulative distribution. logits: (M, V), float32. Returns ids, (M,).

    Sums are float64, in which a token of probability 1e-9 is not lost beside the others. Exponentials are computed twice rather than kept.
    """
    size, highest = logits.shape[1], logits.amax(1, keepdim=True)
    weights = torch.exp(logits - highest)  # (M, V)
    whole = size // BLOCK * BLOCK
    sums = weights[:, :whole].unflatten(1, (-1, BLOCK)).sum(2, dtype=torch.float64)  # (M, V / BLOCK)
    rest = weights[:, whole:].sum(1, keepdim=True, dtype=torch.float64)
    ends = torch.cat([sums, rest], 1).cumsum(1)  # cumulative up to the end of each block
    u = torch.rand(len(ends), 1, dtype=torch.float64, device=ends.device) * ends[:, -1:]
    block = first_above(ends, u)  # (M, 1)
    start = torch.where(block > 0, ends.gather(1, (block - 1).clamp(min=0)), 0.)

    tokens = block * BLOCK + torch.arange(BLOCK, device=block.device)  # (M, BLOCK)
    chosen = torch.exp(logits.gather(1, tokens.clamp(max=size - 1)) - highest).double()
    inside = torch.where(tokens < size, chosen, 0.).cumsum(1)
    token = block * BLOCK + first_above(inside, u - start)  # (M, 1)
    return token.squeeze(1).clamp(max=size - 1)  # only NaN exceeds it


def first_above(cumulative, u):
    """Index, (M, 1), of the first of `cumulative` (M, N), ascending, that exceeds u (M, 1). Rounding may have moved u beyond its ends."""
    u = torch.minimum(u.clamp(min=0.), cumulative[:, -1:] * (1 - 2. ** -40))
    return torch.searchsorted(cumulative, u, right=True).clamp(max=cumulative.shape[1] - 1)


# %% [markdown]
# Logits for a vocabulary of 30,522 tokens cost more operations than four layers of the small discriminator. The generator's head therefore
# runs on the masked positions only, gathered into M slots (D16). Their number varies from batch to batch. On a GPU, where a new shape
# or a number read from the device costs time, M is fixed with room to spare, and unused slots have weight 0. With official masking, a
# position that was drawn twice has two slots. If their samples differ, Google's code puts in neither, but the token whose id is
# the floor of the mean of their ids (F12, F19), and so does `fill_slots`.

# %%
def masked_slots(is_mlm_applied, n_slots):
    """Assign masked positions to slots. Returns (positions in the flattened batch (M,), weights (M,): 1 for used slots, 0 for others).

    is_mlm_applied: (B, L), bool, or the number of slots of each position.   n_slots: M. Masks beyond it get no slot.
    The positions of unused slots do not matter, but differ, because a GPU is slow when many write to one place.
    """
    used_so_far = is_mlm_applied.flatten().cumsum(0)  # slots up to and including each position
    slot = torch.arange(n_slots, device=used_so_far.device)
    is_used = slot < used_so_far[-1]
    positions = torch.where(is_used, torch.searchsorted(used_so_far, slot, right=True), slot)
    return positions, is_used.float()


def fill_slots(tokens, positions, weights, sampled):
    """`tokens` (B, L) with the ids `sampled` (M,) at the positions of used slots (pretrain_helpers.py:scatter_update, F12).

    positions, weights: (M,), from `masked_slots`. Several samples at one position are averaged to the floor of their mean.
    """
    tokens, shape, is_used = tokens.flatten(), tokens.shape, weights.long()
    times = torch.zeros_like(tokens).scatter_add(0, positions, is_used)
    total = torch.zeros_like(tokens).scatter_add(0, positions, sampled * is_used)
    return torch.where(times > 0, total // times.clamp(min=1), tokens).view(shape)


def slot_capacity(shape, mlm_probability, masking="bernoulli"):
    """Fixed number of slots for a batch of `shape` (B, L): Google's, or the mean number of masks plus 8 standard deviations.

    It is rounded up to a multiple of 64, for which GPUs multiply matrices faster.
    """
    n_tokens = shape[0] * shape[1]
    if masking == "official":
        capacity = shape[0] * max_slots(shape[1], mlm_probability)
    else:
        mean = n_tokens * mlm_probability
        capacity = mean + 8 * (mean * (1 - mlm_probability)) ** .5
    return min(n_tokens, 64 * math.ceil(capacity / 64))


# %% [markdown]
# ### Weight sharing
#
# Generator and discriminator share their embeddings: tokens, positions, token types, and the LayerNorm after them. The generator's output
# layer is its token embedding matrix again (paper, section 3.2; F24). Nothing else is shared. The generator is smaller than the
# discriminator: a quarter as wide in ELECTRA-Small and Large, a third in Base (`_utils/recipes.py: electra`, F26).

# %%
def tie(generator, discriminator=None, tying="embeddings"):
    """Tie the generator's output layer to its token embeddings, and the discriminator's parameters to the generator's.

    tying: 'none'; 'tokens'; 'embeddings'; 'embeddings+projection': also the projection from embedding to hidden size;
    'embeddings+encoder': also all layers; 'all'.
    Raises PlainError if the parameters of the two networks do not correspond.
    """
    generator.get_output_embeddings().weight = generator.get_input_embeddings().weight
    if discriminator is not None:
        check_tying(generator, discriminator, tying)
        source, target = shared_modules(generator, tying), shared_modules(discriminator, tying)
        for part in source:  # 'embeddings', ...
            share_parameters(source[part], target[part])


# %% [markdown]
# ### Both networks
#
# Each network may be of any family in transformers: the generator a masked language model; the discriminator ELECTRA's, or a token
# classifier with two labels. Masked language modelling alone is the first half of the method.

# %%
class ELECTRAOutput(NamedTuple):
    """Output of ELECTRAModel."""
    mlm_gen_logits: torch.Tensor  # (M, V): of the slots, in the order of the batch
    generated: torch.Tensor       # (B, L): input ids of the discriminator
    disc_logits: torch.Tensor     # (B, L): positive for "replaced"
    is_replaced: torch.Tensor     # (B, L), bool
    attention_mask: torch.Tensor  # (B, L), bool: True for tokens, False for padding
    is_mlm_applied: torch.Tensor  # (B, L), bool, or the number of slots of each position
    slots: tuple | None = None    # from `masked_slots`; None: found again from is_mlm_applied
    mlm_logits: torch.Tensor | None = None  # (M, V), or (B * L, V): of a second masked language model
    baseline: torch.Tensor | None = None    # (M,): logits of the expected reward

    def gather(self, *tokens):
        """What each of `tokens` (B, L) has at the slots, (M,) each, and the weights of the slots, (M,)."""
        positions, weights = self.slots or masked_slots(self.is_mlm_applied, len(self.mlm_gen_logits))
        return *(ids.flatten()[positions] for ids in tokens), weights


class MaskedLMOutput(NamedTuple):
    """Output of MaskedLMModel; fields as in ELECTRAOutput."""
    mlm_gen_logits: torch.Tensor
    attention_mask: torch.Tensor
    is_mlm_applied: torch.Tensor
    slots: tuple | None = None
    gather = ELECTRAOutput.gather


# %%
class MaskedLMModel(nn.Module):
    """A masked language model that computes vocabulary logits at masked positions only: BERT's objective, and ELECTRA's first half.

    generator: any ...ForMaskedLM.   n_slots: function of the shape (B, L) that fixes the number of slots; None: as many as masks.
    """

    def __init__(self, generator, hf_tokenizer, n_slots=None):
        super().__init__()
        self.generator, self.pad_token_id, self.n_slots = generator, hf_tokenizer.pad_token_id, n_slots
        self.at_positions = GatheredPositions(generator)
        tie(generator)

    def counts(self, masked_inputs, sentA_lenths, is_mlm_applied, labels):
        """(slots, tokens) of a batch, () each: the denominators of the mean losses."""
        return is_mlm_applied.sum(), (masked_inputs != self.pad_token_id).sum()

    def forward(self, masked_inputs, sentA_lenths, is_mlm_applied, labels):
        """masked_inputs (B, L), sentA_lenths (B,), is_mlm_applied (B, L), labels (B, L) -> MaskedLMOutput."""
        attention_mask, token_type_ids = self.masks_and_segments(masked_inputs, sentA_lenths)
        positions, weights = self.slots(is_mlm_applied)  # (M,), (M,)
        mlm_gen_logits = self.generator_logits(masked_inputs, attention_mask, token_type_ids, positions)  # (M, V)
        return MaskedLMOutput(mlm_gen_logits, attention_mask, is_mlm_applied, (positions, weights))

    def masks_and_segments(self, masked_inputs, sentA_lenths):
        """(attention mask, bool; token type ids), (B, L) each. Segment B has type 1; [CLS] A [SEP] and padding have type 0 (F4)."""
        attention_mask = masked_inputs != self.pad_token_id
        position = torch.arange(masked_inputs.shape[1], device=masked_inputs.device)
        return attention_mask, ((position >= sentA_lenths[:, None]) & attention_mask).long()

    def saved_networks(self):
        """{'generator': network, 'discriminator': network}, or one of them alone: the networks in a checkpoint."""
        return {part: network for part, network in self.named_children() if hasattr(network, "config")}

    def slots(self, is_mlm_applied):
        """(positions (M,), weights (M,)) of a batch, as `masked_slots` returns them."""
        return masked_slots(is_mlm_applied, self.n_slots(is_mlm_applied.shape) if self.n_slots else int(is_mlm_applied.sum()))

    def generator_logits(self, masked_inputs, attention_mask, token_type_ids, positions):
        """The generator's vocabulary logits at `positions` (M,) of the flattened batch, (M, V)."""
        with self.at_positions.only(positions):
            return self.generator(**inputs_of(self.generator, masked_inputs, attention_mask, token_type_ids)).logits[0]


# %%
class ELECTRAModel(MaskedLMModel):
    """Generator and discriminator with tied embeddings; one forward pass of replaced token detection.

    generator, n_slots: as in MaskedLMModel.   discriminator: ElectraForPreTraining or any ...ForTokenClassification with two labels, of the
    same vocabulary.   tying: what the networks share, as in `tie`.
    sampling, temperature: as in `sample`.   disallow_correct: never sample the original token.
    """

    def __init__(self, generator, discriminator, hf_tokenizer, sampling="fp32_gumbel", temperature=1., disallow_correct=False,
                 n_slots=None, tying="embeddings"):
        super().__init__(generator, hf_tokenizer, n_slots)
        self.discriminator = discriminator
        self.sampling, self.temperature, self.disallow_correct = sampling, temperature, disallow_correct
        tie(generator, discriminator, tying)

    def forward(self, masked_inputs, sentA_lenths, is_mlm_applied, labels):
        """masked_inputs (B, L), sentA_lenths (B,), is_mlm_applied (B, L), labels (B, L) -> ELECTRAOutput."""
        attention_mask, token_type_ids = self.masks_and_segments(masked_inputs, sentA_lenths)  # (B, L), (B, L)
        positions, weights = self.slots(is_mlm_applied)  # (M,), (M,)
        mlm_gen_logits = self.generator_logits(masked_inputs, attention_mask, token_type_ids, positions)  # (M, V)

        with torch.no_grad():
            # The discriminator never sees [MASK]: its input is the original text with samples at the masked positions (F14).
            originals = torch.where(is_mlm_applied > 0, labels, masked_inputs)  # (B, L)
            disallowed = originals.flatten()[positions] if self.disallow_correct else None
            sampled = sample(mlm_gen_logits, self.sampling, self.temperature, disallowed)  # (M,)
            generated = fill_slots(originals, positions, weights, sampled)  # (B, L)
            # A sample that equals the original token counts as original (F17).
            is_replaced = generated != originals

        disc_inputs = inputs_of(self.discriminator, generated, attention_mask, token_type_ids)
        disc_logits, mlm_logits = self.discriminate(disc_inputs, positions)
        return ELECTRAOutput(mlm_gen_logits, generated, disc_logits, is_replaced, attention_mask, is_mlm_applied, (positions, weights),
                             mlm_logits)

    def discriminate(self, disc_inputs, positions):
        """(disc_logits (B, L), None). Other objectives predict tokens from the same input."""
        return replaced_logits(self.discriminator(**disc_inputs)), None


# %% [markdown]
# ### Loss
#
# The generator loss is the mean cross-entropy over the masked tokens, including those that stayed visible (F21). The discriminator loss
# is the mean binary cross-entropy over all tokens, including [CLS] and [SEP] (F22). Their sum, the latter times 50, is minimized (F20).
# Unlike in a GAN, the generator is trained by maximum likelihood, not to deceive the discriminator, whose gradient reaches it only through
# the shared embeddings (F18). A sample that equals the original counts as original (F17).

# %%
def masked_lm_loss(pred, targ_ids, n_slots, smooth=0., logits=None):
    """Cross-entropy of the generator's logits, or of `logits` (M, V), summed over the used slots and divided by `n_slots`, ()."""
    slot_labels, slot_weights = pred.gather(targ_ids)
    slot_labels = torch.where(slot_weights.bool(), slot_labels, 0)
    logits = pred.mlm_gen_logits if logits is None else logits
    nll = F.cross_entropy(logits.float(), slot_labels, reduction="none", label_smoothing=smooth)
    return (nll * slot_weights).sum() / (n_slots + 1e-6)  # 1e-6 as in Google's code


def smoothing(value):
    """The number that a setting of label smoothing stands for: True is .1, False 0."""
    return .1 if value is True else float(value)


class MaskedLMLoss(nn.Module):
    """The generator loss alone, of MaskedLMOutput, times gen_weight (F92); arguments as in ELECTRALoss."""

    def __init__(self, gen_label_smooth=False, gen_weight=1.):
        super().__init__()
        self.gen_smooth, self.gen_weight = smoothing(gen_label_smooth), gen_weight

    def forward(self, pred, targ_ids, counts=None, return_losses=False):
        n_slots = counts[0] if counts else pred.is_mlm_applied.sum()
        gen_loss = masked_lm_loss(pred, targ_ids, n_slots, self.gen_smooth)
        loss = self.gen_weight * gen_loss
        return (loss, (gen_loss,)) if return_losses else loss


# %%
class ELECTRALoss(nn.Module):
    """loss_weights[0] * generator loss + loss_weights[1] * discriminator loss (run_pretraining.py, F20-F22).

    gen_label_smooth, disc_label_smooth: False, a number, or True for .1. The former is the usual label smoothing; the latter raises the
    labels of original tokens from 0 to that number and leaves those of replaced tokens at 1 (D17).
    """

    def __init__(self, loss_weights=(1., 50.), gen_label_smooth=False, disc_label_smooth=False):
        super().__init__()
        self.loss_weights = loss_weights
        self.gen_smooth, self.disc_smooth = smoothing(gen_label_smooth), smoothing(disc_label_smooth)

    def forward(self, pred, targ_ids, counts=None, return_losses=False):
        """The loss, (), of a batch or of a micro-batch.

        pred: ELECTRAOutput or its first six fields.   targ_ids: original ids of the masked tokens, (B, L).
        counts: (slots, tokens) of the whole batch, if `pred` is that of a micro-batch: the losses of its micro-batches then add up.
        return_losses: return (loss, (generator loss, discriminator loss)) instead.
        """
        pred = ELECTRAOutput(*pred)
        n_slots, n_tokens = counts or (pred.is_mlm_applied.sum(), pred.attention_mask.sum())
        gen_loss = self.generator_loss(pred, targ_ids, n_slots)
        disc_loss = self.discriminator_loss(pred, targ_ids, n_tokens)
        loss = self.loss_weights[0] * gen_loss + self.loss_weights[1] * disc_loss
        return (loss, (gen_loss, disc_loss)) if return_losses else loss

    def generator_loss(self, pred, targ_ids, n_slots):
        """(): summed over the used slots, divided by n_slots."""
        return masked_lm_loss(pred, targ_ids, n_slots, self.gen_smooth)

    def discriminator_loss(self, pred, targ_ids, n_tokens):
        """(): summed over the tokens, divided by n_tokens."""
        disc_labels = pred.is_replaced.float().clamp(min=self.disc_smooth)
        disc_bce = F.binary_cross_entropy_with_logits(pred.disc_logits.float(), disc_labels, reduction="none")
        return (disc_bce * pred.attention_mask.float()).sum() / (n_tokens + 1e-6)


# %% [markdown]
# ### The paper's other objectives
#
# The paper compares ELECTRA with other ways to train the same networks; `objective` selects them. $x_t$ is the original token at position
# $t$, $\hat x_t$ what the second network sees there, $m$ the set of masked positions, $D_t$ the probability that $\hat x_t$ is original.
#
# Section 3.5 asks what ELECTRA gains from, with objectives between masked language modelling and replaced token detection:
#
# * `electra_15`: the discriminator's loss covers $m$ only.
# * `replace_mlm`: the second network predicts $x_t$ for $t \in m$, from the discriminator's input, which contains no `[MASK]`.
# * `all_tokens_mlm`: it predicts $x_t$ at every position, as a mixture of copying and writing:
#   $p(x) = D_t\,[x = \hat x_t] + (1 - D_t)\,\mathrm{softmax}(x)$.
#
# Section 3.2 compares ways to train the generator:
#
# * `two_stage`: the generator is trained alone; then the discriminator starts from its weights and is trained while they stay fixed. Both
#   have the same size and share no parameters.
# * `adversarial`: the generator is rewarded for what the discriminator loses, $R_t = -\log$ of the probability that the discriminator gives
#   to the correct answer at $t \in m$. Samples have no gradient, so it follows REINFORCE (appendix F), where
#   $b_t = -\log \sigma(w^\top h_t)$ is a baseline on the generator's hidden states $h_t$, which learns by cross-entropy to predict
#   $e^{-R_t}$ and does not train them. Positions drawn more than once (official masking) are left out. This gradient is ascended:
#   $$\nabla_{\theta_G}\, \mathbb E \Big[ \frac{1}{|m|} \sum_{t \in m} R_t \Big] \approx
#   \frac{1}{|m|} \sum_{t \in m} (R_t - b_t)\, \nabla_{\theta_G} \log p_G(\hat x_t \mid x^\mathrm{masked})$$

# %%
class ELECTRA15Model(ELECTRAModel):
    """ELECTRA 15 %: the discriminator is trained and measured at the masked positions only."""

    def counts(self, masked_inputs, sentA_lenths, is_mlm_applied, labels):
        return is_mlm_applied.sum(), is_mlm_applied.sum()

    def forward(self, *inputs):
        output = super().forward(*inputs)
        return output._replace(attention_mask=output.is_mlm_applied)  # which tells losses and metrics the positions that count


class SecondMLMModel(ELECTRAModel):
    """The second network is a masked language model, whose input is that of ELECTRA's discriminator."""

    def __init__(self, generator, discriminator, *args, **kwargs):
        super().__init__(generator, discriminator, *args, **kwargs)
        tie(discriminator)
        self.second_positions = GatheredPositions(discriminator)

    def saved_networks(self):
        """The second network, which is to be finetuned, as the masked language model that it is."""
        return {"generator": self.discriminator}

    def discriminate(self, disc_inputs, positions):
        """(None, mlm_logits (M, V))."""
        with self.second_positions.only(positions):
            return None, self.discriminator(**disc_inputs).logits[0]


class ReplaceMLMModel(ELECTRA15Model, SecondMLMModel):
    """Replace MLM: the second network predicts the masked tokens, in whose places it sees samples of the generator instead of [MASK]."""


class ReplaceMLMLoss(ELECTRALoss):
    """ELECTRALoss with the cross-entropy of the second network at the masked positions instead of the discriminator's loss."""

    def discriminator_loss(self, pred, targ_ids, n_tokens):
        return masked_lm_loss(pred, targ_ids, n_tokens, logits=pred.mlm_logits)  # n_tokens: slots, from `counts` of the model


# %%
class AllTokensMLMModel(SecondMLMModel):
    """All-Tokens MLM: it predicts every token, with a copy mechanism, whose logits are the negative of disc_logits."""

    def __init__(self, generator, discriminator, *args, **kwargs):
        super().__init__(generator, discriminator, *args, **kwargs)
        self.copy = nn.Linear(discriminator.config.hidden_size, 1)

    def discriminate(self, disc_inputs, positions):
        """(disc_logits (B, L), mlm_logits (B * L, V))."""
        tokens = disc_inputs["input_ids"]
        _, mlm_logits = super().discriminate(disc_inputs, torch.arange(tokens.numel(), device=tokens.device))
        return -self.copy(self.second_positions.selected).view(tokens.shape), mlm_logits


class AllTokensMLMLoss(ELECTRALoss):
    """ELECTRALoss with the cross-entropy of the mixture of copying and writing at all tokens instead of the discriminator's loss."""

    def discriminator_loss(self, pred, targ_ids, n_tokens):
        originals = torch.where(pred.is_mlm_applied > 0, targ_ids, pred.generated)  # (B, L)
        log_softmax = -F.cross_entropy(pred.mlm_logits.float(), originals.flatten(), reduction="none").view(originals.shape)
        log_copy, log_write = F.logsigmoid(-pred.disc_logits.float()), F.logsigmoid(pred.disc_logits.float()) + log_softmax
        nll = -torch.where(pred.is_replaced, log_write, torch.logaddexp(log_copy, log_write))
        return (nll * pred.attention_mask.float()).sum() / (n_tokens + 1e-6)


# %%
class AdversarialModel(ELECTRAModel):
    """ELECTRAModel with a baseline of the generator's reward. The baseline does not train the generator's encoder."""

    def __init__(self, generator, *args, **kwargs):
        super().__init__(generator, *args, **kwargs)
        self.baseline = nn.Linear(generator.config.hidden_size, 1, bias=False)

    def forward(self, *inputs):
        output = super().forward(*inputs)
        return output._replace(baseline=self.baseline(self.at_positions.selected[0].detach()).squeeze(-1))


class AdversarialLoss(ELECTRALoss):
    """ELECTRALoss whose generator is trained by REINFORCE to raise the discriminator's loss (paper, appendix F)."""

    def generator_loss(self, pred, targ_ids, n_slots):
        """The value is the generator's cross-entropy, for the log; the gradient is that of REINFORCE and of the baseline's loss."""
        sampled, disc_logits, is_replaced, n_samples, weights = pred.gather(
            pred.generated, pred.disc_logits, pred.is_replaced, pred.is_mlm_applied)  # (M,) each
        weights = weights * (n_samples == 1)  # the mean of several samples (masking='official', F12) was drawn at none of the slots
        with torch.no_grad():
            value = masked_lm_loss(pred, targ_ids, n_slots)
            reward = F.binary_cross_entropy_with_logits(disc_logits.float(), is_replaced.float(), reduction="none")
            advantage = reward + F.logsigmoid(pred.baseline.float())
        log_p = -F.cross_entropy(pred.mlm_gen_logits.float(), sampled, reduction="none")
        baseline_loss = F.binary_cross_entropy_with_logits(pred.baseline.float(), torch.exp(-reward), reduction="none")
        surrogate = ((baseline_loss - advantage * log_p) * weights).sum() / (n_slots + 1e-6)
        return value + surrogate - surrogate.detach()


# %%
class UniformModel(ELECTRAModel):
    """ELECTRAModel without a generator: its logits are zeros, so replacements are drawn uniformly from the vocabulary (F88)."""

    def __init__(self, generator, *args, **kwargs):
        super().__init__(generator, *args, **kwargs)
        self.vocab_size = generator.config.vocab_size
        del self.generator

    def generator_logits(self, masked_inputs, attention_mask, token_type_ids, positions):
        return torch.zeros(len(positions), self.vocab_size, device=positions.device)


OBJECTIVES = {
    "electra": (ELECTRAModel, ELECTRALoss),
    "electra_15": (ELECTRA15Model, ELECTRALoss),
    "replace_mlm": (ReplaceMLMModel, ReplaceMLMLoss),
    "all_tokens_mlm": (AllTokensMLMModel, AllTokensMLMLoss),
    "two_stage": (ELECTRAModel, ELECTRALoss),
    "adversarial": (AdversarialModel, AdversarialLoss),
}


# %% [markdown]
# ### From a configuration
#
# The networks come from a recipe with fresh weights, or from a trained pair to continue from. ELECTRA-Small with a vocabulary of 30,522
# tokens has 14,196,219 parameters, as many as Google's (F27).

# %%
def build_model(c, hf_tokenizer, fixed_slots=False, pair=None):
    """The model of a configuration: ELECTRAModel, MaskedLMModel if objective is 'mlm', or that of another objective.

    fixed_slots: fix the number of slots, so that all batches have the same shapes and no number is read from the device; for GPUs.
    pair: trained (generator, discriminator) to continue from; None: fresh weights of normal(0, .02) as Hugging Face (D3; tiny .05), or
    Google's.
    """
    generator, discriminator = pair or fresh_pair(c, hf_tokenizer)
    n_slots = partial(slot_capacity, mlm_probability=c.mask_prob, masking=c.masking) if fixed_slots else None
    if discriminator is None:
        model = MaskedLMModel(generator, hf_tokenizer, n_slots)
    else:
        kind = UniformModel if c.uniform_generator else OBJECTIVES[c.objective][0]
        model = kind(generator, discriminator, hf_tokenizer, c.sampling, c.temperature, c.disallow_correct, n_slots, c.tying)
    if fixed_slots:
        set_attention(model, "sdpa_static")
        for network in (generator, discriminator):
            if network and network.get_output_embeddings():
                pad_vocabulary(network)
    if pair is None and c.initial_weights == "official":
        initialize_officially(model, RECIPES[c.size].initializer_range)
    return model


def fresh_pair(c, hf_tokenizer):
    """(generator, discriminator) of a configuration, initialized by transformers; (network, None) if objective is 'mlm'."""
    return make_networks(recipe_of(c), c.objective, (c.generator, c.discriminator), len(hf_tokenizer), hf_tokenizer.pad_token_id)


# %%
def second_stage_pair(name):
    """(generator, discriminator) of the second stage of two-stage training: the generator is frozen, the discriminator starts from its
    weights (paper, section 3.2).

    name: a checkpoint with a masked language model.
    """
    generator = load_with_head(name, "generator").network.requires_grad_(False)
    discriminator = build_network("discriminator", copy.deepcopy(generator.config))
    discriminator.base_model.load_state_dict(generator.base_model.state_dict())
    return generator, discriminator


def new_generator(c, discriminator):
    """A fresh generator for a trained discriminator, with its weights where `tying` shares them.

    Neither these nor the discriminator's others require gradients: it stays as it is while the generator is trained.
    """
    recipe, config = recipe_of(c), discriminator.requires_grad_(False).config
    generator = build_network("generator", recipe.generator.config(config.vocab_size, config.pad_token_id, recipe.initializer_range))
    check_tying(generator, discriminator, c.tying)
    shared = shared_modules(discriminator, c.tying)
    for part, module in shared_modules(generator, c.tying).items():
        module.requires_grad_(False).load_state_dict(shared[part].state_dict())
    return generator


# %%
@torch.no_grad()
def initialize_officially(model, std=.02):
    """Initialize as Google's create_initializer: a normal distribution truncated at two standard deviations (F30).

    The projection of the embeddings and the last layer of the discriminator's head use Glorot uniform, the default of tf.layers.dense.
    """
    glorot = ("embeddings_project", "embedding_hidden_mapping_in", "dense_prediction", "classifier")
    trained = [(name, parameter) for name, parameter in model.named_parameters() if parameter.requires_grad]
    for name, parameter in trained:  # not RoFormer's table of angles
        if parameter.dim() == 1:
            parameter.fill_(1. if name.endswith("weight") else 0.)  # a LayerNorm's weight, or a bias
        elif any(layer in name for layer in glorot):
            nn.init.xavier_uniform_(parameter)
        else:
            nn.init.trunc_normal_(parameter, std=std, a=-2 * std, b=2 * std)


# %% [markdown]
# ## 5. Optimization
#
# ELECTRA clips gradients at global norm 1 (F35), warms up and decays the learning rate *at the same time* (F31), and uses Adam without
# bias correction (F33), with weight decay $\lambda$ on everything but biases and LayerNorms (F34). For the gradient $g$ of a parameter $p$:
#
# $$m \leftarrow .9\,m + .1\,g \qquad v \leftarrow .999\,v + .001\,g^2 \qquad
# p \leftarrow p - \eta \left( \frac{m}{\sqrt v + 10^{-6}} + \lambda\,p \right)$$
#
# Without the correction, $m / \sqrt v$ of constant gradients is three times as large at the first step and 6.6 times at the twelfth, so the
# warmup matters more. The code in `_utils/optim.py` calls PyTorch's fused kernel.

# %%
def build_optimizer(model, lr, bias_correction=False, kind="adam", weight_decay=.01):
    """Adam, or lmtuners' LAMB, with ELECTRA's settings; the schedule sets lr before each step."""
    adam = partial(torch.optim.AdamW, fused=True) if bias_correction else AdamNoBiasCorrection
    optimizer = {"adam": adam, "lamb": Lamb}[kind]
    return optimizer(decay_groups(model.named_parameters(), weight_decay), lr=lr, betas=(.9, .999), eps=1e-6)


def restore_moments(optimizer, model, pair):
    """Set Adam's moments to those that `convert_tf` found in a TensorFlow checkpoint and wrote beside the weights, if it did.

    pair: a folder with generator/ and discriminator/, or another value of initial_weights.
    """
    moments = {f"{file.parent.name}.{name}": value
               for file in Path(pair).glob(f"*/{MOMENTS_FILE}") for name, value in load_file(file).items()}
    if moments and not optimizer.state:  # AdamW and Lamb create theirs in the first step
        print(f"warning: the moments of Adam in {pair} are for Adam without bias correction; this run starts with zeros.")
    for name, parameter in model.named_parameters():
        for key, moment in optimizer.state[parameter].items():
            if (stored := moments.get(f"{name}.{key}")) is not None:
                moment[:len(stored)] = stored  # without the rows of added tokens


# %% [markdown]
# ## 6. Run
#
# ### The training step
#
# A batch is masked as a whole and goes through both networks in micro-batches. Each loss is divided by the counts of the whole batch, so
# losses, gradients and metrics of the micro-batches add up to those of the batch, in whatever number of processes. `Gradients` holds the
# half-precision copies of the weights and adds up the gradients of the micro-batches, which `Processes` sums over the processes. With
# `compile=True` the step is compiled and, on a GPU, `masks`, `accumulate` and `update` are replayed as CUDA graphs
# (`_utils/training/cuda_graph.py` has the exceptions). Masks, dropout and samples depend only on the seed and the numbers of the step and
# the micro-batch, so a resumed run, which keeps its micro-batches, draws the same ones.

# %%
class TrainingStep:
    """The training step of ELECTRA: a mixin of PretrainingLearner, which has the attributes."""

    def _do_one_batch(self):
        seed_step(self.seed, self.train_iter)
        masked, counts = self.masks(*self.xb)
        for number, micro_batch in self.processes.own(self.micro_batches(masked)):
            seed_step(self.seed, self.train_iter, number)
            self.accumulate(*micro_batch, *counts)
        self._with_events(self._step, "step", CancelStepException)

    def masks(self, input_ids, sentA_lenths):
        """The model's inputs (B, ...) with new masks at every step, and the counts of slots and tokens of the batch."""
        self.gradients.begin()
        masked, _ = self.masking.mask(input_ids, sentA_lenths)
        return masked, self.model.counts(*masked)

    def accumulate(self, *micro_batch_and_counts):
        """Add the gradients of a micro-batch to those of the step."""
        *micro_batch, n_slots, n_tokens = micro_batch_and_counts
        loss = self.forward(micro_batch, (n_slots, n_tokens))
        self.gradients.add(self.scaler.scale(loss))

    def forward(self, micro_batch, counts):
        """The loss of a micro-batch, (), whose metrics are added to `train_metrics`."""
        with self.autocast():
            output = self.gradients.network(*micro_batch)
            loss, losses = self.loss_func(output, micro_batch[-1], counts, return_losses=True)
        self.train_metrics.add(output, micro_batch, loss, losses, counts)
        return loss

    def _step(self):
        self.processes.sum(self.gradients.flat)
        self.gradient_norm = self.update()

    def update(self):
        """Clip the gradients of the batch at global norm 1 (F35), update the weights unless it is not finite, and return the norm, ()."""
        norm = self.clip_and_update(self.gradients.views, only_finite=True)
        self.gradients.zero()
        return norm


# %%
class PretrainingLearner(TrainingStep, ClippingLearner):
    """fastai's Learner with the training step of ELECTRA.

    masking: MaskedLMCallback.   micro_batch: examples per forward and backward pass.   seed: of all random numbers of the training.
    processes: Processes that train together. Each has the whole batch and its masks, and trains on every n-th micro-batch.
    is_static: all micro-batches have the same shape, also on a CPU, so that the step can be compiled.
    train_metrics: of the training steps since they were last reset.
    """

    def __init__(self, dls, model, loss_func, optimizer, masking, micro_batch, seed, precision, processes, is_static=False, cbs=()):
        super().__init__(dls, model, loss_func, optimizer, precision, init_scale=2. ** 11, cbs=cbs)
        self.masking, self.micro_batch, self.seed, self.processes = masking, micro_batch, seed, processes
        self.pad_token_id = model.pad_token_id if self.device.type == "cpu" and not is_static else None
        self.gradients = Gradients(model, DTYPES[precision])
        self.train_metrics = PretrainingMetrics(self.device, only_finite=precision != "fp32")

    def micro_batches(self, masked):
        """(1, inputs), (2, inputs) ...: on a CPU without unnecessary padding, on a GPU all of the same shape."""
        return enumerate(split_micro_batches(masked, self.micro_batch, self.pad_token_id), start=1)

    def one_batch(self, i, b):
        super().one_batch(i, self.on_device(b))

    def on_device(self, batch):
        """A batch on the learner's device, without waiting for the copy."""
        return tuple(tensor.to(self.device, non_blocking=True) for tensor in batch)


# %%
def build_masking(c, hf_tokenizer):
    """MaskedLMCallback of a configuration."""
    special_ids, kwargs = hf_tokenizer.all_special_ids, dict(masking=mask_tokens)
    if c.masking == "official":  # [UNK] may be masked (F9, D2)
        special_ids = [i for i in special_ids if i != hf_tokenizer.unk_token_id]
        kwargs = dict(masking=mask_tokens_official, pad_token_index=hf_tokenizer.pad_token_id)
    replace_prob, orginal_prob = MASK_STYLES[c.electra_mask_style]
    return MaskedLMCallback(hf_tokenizer.mask_token_id, special_ids, len(hf_tokenizer), mlm_probability=c.mask_prob,
                            replace_prob=replace_prob, orginal_prob=orginal_prob, **kwargs)


def build_loss(c):
    """The loss function of a configuration."""
    if c.objective == "mlm":
        return MaskedLMLoss(c.gen_smooth_label, c.gen_weight)
    return OBJECTIVES[c.objective][1]((c.gen_weight, c.disc_weight), c.gen_smooth_label, c.disc_smooth_label)


def build_learner(c, hf_tokenizer, dls, pair, processes):
    """PretrainingLearner of a configuration whose device, precision and micro_batch are set.

    dls: on the device.   pair: trained (generator, discriminator), or None for fresh weights.
    """
    set_seed(c.seed)
    model = build_model(c, hf_tokenizer, fixed_slots=c.compile or dls.device.type != "cpu", pair=pair).to(dls.device)
    if dls.device.type == "cpu" and not c.compile:
        make_dropout_cheap(model)
    optimizer = build_optimizer(model, c.lr, c.adam_bias_correction, c.optimizer, c.weight_decay_rate)
    restore_moments(optimizer, model, c.initial_weights)
    schedule = build_schedule(with_schedule(c, steps=1))  # of one step until `fit_to_minutes` knows the number
    static_step = [StaticStep(with_update="mom" not in schedule.functions)] if c.compile else []
    return PretrainingLearner(dls, model, build_loss(c), optimizer, build_masking(c, hf_tokenizer), c.micro_batch, c.seed, c.precision,
                              processes, is_static=c.compile, cbs=[schedule, *static_step])


def build_schedule(c):
    """The callback that sets the learning rate of each step."""
    return Schedule(schedules(c.schedule, c.lr, c.steps, c.warmup_steps, c.lr_decay_power), c.steps)


# %% [markdown]
# `pretrain` checks the configuration, prepares the data, resumes an interrupted run or starts a new one, trains, and saves the plots.

# %%
def pretrain(c, processes=None):
    """Pretrain as described by a completed configuration, or resume that run. Returns the learner.

    Writes checkpoints/pretrain/<run>_<percent>%.pth at the milestones, and to the folder checkpoints/pretrain/<run>/ the configuration,
    metrics.jsonl, the logger's files, plots, and the checkpoint to resume from.
    Raises PlainError before any long work if the configuration, the files or the hardware do not allow the run.
    """
    if processes is None:
        processes = Processes(c.device)
        learn = pretrain(c, processes)
        processes.close()
        return learn
    if c.objective == "two_stage":
        c = after_first_stage(c, processes)
    run = Run(c.base_run_name, c.seed)
    device = processes.device(choose_device(c.device))
    if device.type == "cuda":
        torch.cuda.set_device(device)  # streams and CUDA graphs belong to the current device
    c = c.copy_with({"device": str(device)})
    c, _ = resume(c, run)  # takes over the steps and the micro-batch of an earlier start
    pair = check_start(c, run, processes)
    hf_tokenizer, dls = load_data(c, processes)
    if adds_tokens(c):
        add_tokens(pair, load_tokenizer(c.initial_weights), hf_tokenizer)
    if c.objective == "two_stage":
        check_same_vocabulary(c.initial_weights, hf_tokenizer)
    with locked(run.folder) if processes.is_main else nullcontext():
        c, checkpoint = resume(c, run)  # again, because another process may have trained the run in the meantime
        c = continued_schedule(c, len(dls.train_ds))  # after `resume`, because a changed text must not change the steps of a run
        dls = dls.to(torch.device(c.device))
        c = fit_to_hardware(c, pair, hf_tokenizer, dls, processes)
        learn = build_learner(c, hf_tokenizer, dls, pair, processes)
        if c.steps is None:
            c = fit_to_minutes(c, learn)
        warn_of_repetition(len(dls.train_ds), c.bs, c.steps)
        entropy = unigram_entropy(dls.train_ds.hf_dset, hf_tokenizer.all_special_ids)
        print_summary(c, run, learn, entropy, checkpoint["step"] if checkpoint else 0)
        fit(learn, c, run, hf_tokenizer, entropy, checkpoint)
    return learn


# %%
def print_summary(c, run, learn, entropy, first_step):
    """Print what a run trains and with what, before its first step; of a complete run, only that it is complete."""
    if first_step == c.steps:
        print(f"The run {run.name} is complete. Set resume=False to train it again.")
        return
    n, n_held_out = len(learn.dls.train_ds), len(learn.dls.valid_ds) if len(learn.dls.loaders) > 1 else 0
    name = f"Resuming the run {run.name} after step {first_step:,}" if first_step else run.name
    usual = {"objective": "electra", "masking": "bernoulli", "initial_weights": "huggingface", "new_generator": False}
    differing = "".join(f", {key}={c[key]}" for key, value in usual.items() if c[key] != value)
    print(f"{name}: {c.size}{differing}, {count_parameters(learn.model):,} parameters; {c.steps:,} steps "
          f"({c.warmup_steps:,} warmup) of {c.bs} x {c.max_length} tokens, learning rate {c.lr:.2g}; {c.device}, "
          f"{c.precision}, micro-batches of {c.micro_batch}")
    print(f"{', '.join(c.datas)}: {n:,} training examples ({c.steps * c.bs / n:.3g} epochs), {n_held_out:,} held out, "
          f"unigram entropy {entropy:.2f} nats per token")


# %%
def after_first_stage(c, processes):
    """The configuration of the second stage of two-stage training, after the first, a run of its own, which may also be resumed."""
    warmup = lambda steps: round(c.warmup_steps * steps / c.steps)
    name, steps = f"{c.base_run_name}_generator", c.two_stage_steps
    first = c.copy_with({"objective": "mlm", "base_run_name": name, "steps": steps, "warmup_steps": warmup(steps),
                         "stop_at": None})
    if not is_finished(first, Run(name, c.seed)):
        pretrain(first, processes)
    gc.collect()  # the learner is part of a reference cycle
    torch.cuda.empty_cache()  # the second stage measures the free memory
    processes.wait()  # until the main process has saved the generator
    rest = c.steps - steps
    return c.copy_with({"initial_weights": str(Run(name, c.seed).milestone(100.)), "steps": rest, "warmup_steps": warmup(rest)})


# %%
def check_start(c, run, processes):
    """Raise PlainError for what would fail later. Returns the trained pair of networks to start from, or None."""
    check_writable("datasets", run.folder)
    if c.compile:
        check_compiler()
        keep_compiled("datasets/compiled")
    processes.share(1, c.bs)  # at least one example for each process
    set_seed(c.seed)  # of what is new beside trained weights: a generator, or a discriminator's head
    if c.objective == "two_stage":
        return second_stage_pair(c.initial_weights)
    if is_pair(c.initial_weights):
        if Path(c.initial_weights).stem.rpartition("_")[0] == run.name:
            raise PlainError(f"initial_weights={c.initial_weights!r} is a checkpoint of the run {run.name}, which would be replaced by the "
                             "new one. Set another base_run_name.")
        return load_pair(c.initial_weights, c.size, c.max_length, c.tying, partial(new_generator, c) if c.new_generator else None)
    if isinstance(c.vocab, str):
        load_tokenizer(c.vocab)
    check_networks(recipe_of(c), c.objective, (c.generator, c.discriminator), c.tying, c.max_length)


# %%
def fit_to_hardware(c, pair, hf_tokenizer, dls, processes):
    """The configuration with precision and micro_batch chosen for the hardware where they are None.

    On a CPU, two sizes of micro-batches are tried on the first batch, because CPUs differ. A resumed run keeps its size.
    """
    device = torch.device(c.device)
    c = c.copy_with({"precision": choose_precision(c.precision, device)})
    if c.micro_batch is None:
        with torch.device("meta"):
            networks = [network for network in pair or fresh_pair(c, hf_tokenizer) if network]
        second = {"replace_mlm": c.mask_prob, "all_tokens_mlm": 1.}.get(c.objective, 0.)
        predicted = c.mask_prob + second  # positions at which the two networks predict a token, as a share of the tokens
        size, *larger = micro_batch_sizes(device, c.bs, c.max_length, c.precision, networks, predicted, processes.n)
        if larger:
            trial = c.copy_with({"micro_batch": size, "compile": False})  # with a copy of the pair: an eager CPU has its own dropout
            learn = build_learner(trial, hf_tokenizer, dls, copy.deepcopy(pair), processes)
            size = fastest_micro_batch(learn, dls.train.batch_of_step(0), (size, *larger))
            if c.precision == "fp32":
                hint_at_bf16()
        c = c.copy_with({"micro_batch": min(processes.gather(size))})
    return c.copy_with({"micro_batch": processes.share(c.micro_batch, c.bs)})


def fit_to_minutes(c, learn):
    """The configuration with as many steps as fit into `minutes`, by the time of steps on the first batch that change nothing."""
    seconds = seconds_per_step(learn, learn.on_device(learn.dls.train.batch_of_step(0)))
    c = timed_schedule(c, max(learn.processes.gather(seconds)))
    learn.remove_cb(learn.schedule)
    learn.add_cb(build_schedule(c))
    return c


# %%
def fit(learn, c, run, hf_tokenizer, entropy, checkpoint=None):
    """Train to the last step or to stop_at, from the start or from a checkpoint to resume from, with log, milestones and uploads.

    entropy: of the text's unigrams, for the log.
    """
    is_main, first_step = learn.processes.is_main, checkpoint["step"] if checkpoint else 0
    identity = identity_of(learn, c, run, hf_tokenizer, checkpoint)
    stop_at = min(c.stop_at, c.steps) if c.stop_at else None  # the second of two stages, and continued pretraining, have fewer steps
    last_step = max(first_step, stop_at or c.steps)
    learn.dls.train.start, learn.dls.train.n = first_step * c.bs, last_step * c.bs

    def save_milestone(percent):
        save_pretrained(run.milestone(percent), learn.model, c, hf_tokenizer, learn.train_iter)
        upload(run.milestone(percent), c.upload_to)

    log = open_log(run, c, checkpoint, {"unigram_entropy": entropy}) if is_main else None
    with StopSignals() as signals, closing(log) if log else nullcontext():
        bookkeeping = Bookkeeping(c.steps, c.bs * c.max_length, last_step, log=log, folder=run.folder, save_milestone=save_milestone,
                                  milestones=milestone_steps(c.steps, c.milestones, stop_at), save_minutes=c.save_minutes,
                                  identity=identity, signals=signals,
                                  checkpoint=checkpoint)
        with closing(bookkeeping):
            learn.add_cb(bookkeeping)
            learn.fit(1)
    if is_main:
        save_pretraining_plots(learn, hf_tokenizer, run.folder, c.steps)
    if last_step < c.steps:
        print(f"Stopped after step {last_step:,} of {c.steps:,}. Rerun the command with a larger stop_at, or without it, and "
              "without resume=False, to continue.")


# %%
def identity_of(learn, c, run, hf_tokenizer, checkpoint):
    """{"config", "data", "code"}: what identifies a run in the checkpoint to resume from. The code is that with which the run began.

    PlainError if the run cannot resume from `checkpoint`: its data differ, or other processes found another one.
    """
    if len(set(learn.processes.gather(checkpoint["step"] if checkpoint else 0))) > 1:
        raise PlainError(f"The processes found different checkpoints to resume from in {str(run.folder)!r}. Start them in a folder that "
                         "all machines share.")
    data = {"vocabulary": hf_tokenizer.backend_tokenizer.to_str(), "text": text_key(learn.dls.train_ds.hf_dset)}
    code = code_key(globals().get("__file__", "Pretrain.ipynb"))
    if checkpoint:
        check_same_data(checkpoint, data, run.folder)
        code = original_code(checkpoint, code)
    return {"config": c.as_data(), "data": data, "code": code}


# %%
if __name__ == "__main__":
    learn = pretrain(c)

# %% [markdown]
# ## 7. Results
#
# The log has losses, the generator's accuracy, and the discriminator's AUC, which is the probability that a replaced token has a higher
# logit than an original one. In the plots, dots are held-out text, and dotted lines the values of a constant prediction: for the
# generator's loss on hidden tokens the unigram entropy of the text, the loss of a model that only knows how frequent each token is.

# %%
if __name__ == "__main__":
    run = Run(c.base_run_name, c.seed)
    print(f"Checkpoints: {run.folder}_*.pth, metrics and plots: {run.folder}/")
