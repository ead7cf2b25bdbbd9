# %% [markdown]
# # Pretraining ELECTRA
#
# [ELECTRA](https://arxiv.org/abs/2003.10555) trains a text encoder to find the words that another, smaller network has
# replaced. A small *generator* fills masked positions with plausible words; the *discriminator* then decides for every token whether it
# is the original. So it learns from all tokens and not only from the masked 15 %, and it is the network that is kept.
#
# This notebook does what the paper does, step by step, on real data: configuration, data, the objective, the
# model, optimisation, the run, and a look at the result. `pretrain.py` is exported from it and is what one runs for long
# trainings; cells that only explore are left out there.
#
# Marks like *F12* number the details of Google's original code that were measured by running it; *D3* are those in which
# electra_pytorch, the replication this one succeeds, differs from it;
# [docs/facts.md](docs/facts.md) lists them. Shapes at the end of a line: B batch, L length,
# V vocabulary, M masked positions of a batch, N slots for masks in an example, H hidden.

# %% [markdown]
# ## 1. Configuration

# %%
import _utils  # noqa: F401  first, because it sets how PyTorch's threads wait for each other

import sys
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import NamedTuple

import torch
import torch.nn.functional as F
from datasets import concatenate_datasets
from torch import nn

from fastai.callback.core import Callback

from _utils.config import MyConfig, complete, each_once
from _utils.config_rules import is_pair
from _utils.errors import PlainError, print_plain_errors
from _utils.networks import (
    GatheredPositions,
    attend,
    check_networks,
    count_parameters,
    inputs_of,
    load_pair,
    make_dropout_cheap,
    make_networks,
    replaced_logits,
    tie,
)
from _utils.optim import AdamNoBiasCorrection, Lamb, decay_groups, schedules
from _utils.plots import save_pretraining_plots
from _utils.pretraining_data import (
    check_sources,
    load_documents,
    load_tokenizer,
    open_examples,
    prepare_examples,
    pretraining_dataloaders,
    split_documents,
    split_held_out,
    text_key,
)
from _utils.recipes import RECIPES
from _utils.run_files import NoLog, RunLog, Uploads, check_writable, checkpoint_path, locked, save_pretrained, archive_run
from _utils.run_files.resume import SavedState, StopSignals, check_same_data, check_same_run, find_state, inherited
from _utils.training import (
    Milestones,
    PretrainingLearner,
    Processes,
    Progress,
    Schedule,
    choose_device,
    choose_micro_batch,
    choose_precision,
    compile_networks,
    set_seed,
)
from _utils.training.callbacks import describe

# %%
# Every key can be changed here, or on the command line: python pretrain.py size=base datas=wikipedia,openwebtext
c = MyConfig({
    # True: a tiny model on text that is already on this machine, minutes on two cores. It replaces size, datas, vocab and
    # base_run_name, unless they are given on the command line.
    "quickstart": False,

    # 'cpu', 'cuda', 'cuda:1' ...; None: the first GPU, else the CPU.
    "device": None,
    # A run is named <base_run_name>_<seed>; so are its checkpoints.
    "base_run_name": "vanilla",
    # Seed of data order, masks, samples, dropout and initial weights; None: a new one is drawn and printed.
    "seed": 11081,
    # Seed of what the examples are drawn from: where segments end, which examples are short; of line_pairs also the partners of lines and
    # which documents are for training. Runs that differ only in `seed` share the prepared examples.
    "data_seed": 11081,

    # False: Adam without bias correction, as the original. True: with it.
    "adam_bias_correction": False,
    # 'original_linear': warmup and decay at the same time, as the original. 'separate_linear': one after the other.
    # 'one_cycle': fastai's. 'adjusted_one_cycle': fastai's with the warmup of the recipe. None: the recipe's, of ELECTRA the first.
    "schedule": None,
    # 'adam', or 'lamb' as lmtuners; None: the recipe's.
    "optimizer": None,
    # How the generator's words are drawn: 'fp32_gumbel' as the original, 'fp16_gumbel' or 'multinomial'.
    "sampling": "fp32_gumbel",
    # Divides the generator's logits before drawing: below 1 likelier words, above 1 stranger ones.
    "temperature": 1.0,
    # True: the generator never draws the original word (F15).
    "disallow_correct": False,
    # 'bernoulli': a coin for each token, as electra_pytorch (D1). 'official': Google's fixed number of masks per example, drawn
    # with replacement, [UNK] among them; where two words are drawn for one position, their ids are averaged (F7-F12, F19).
    "masking": "bernoulli",
    # True: 85 % of the chosen tokens show [MASK], the others stay. False: BERT's 80 % [MASK], 10 % random, 10 % stay.
    # 'always': all show it, as in lmtuners. None: the recipe's, of ELECTRA True.
    "electra_mask_style": None,
    # Label smoothing of each loss; True means .1. The discriminator's lifts only the labels of originals, from 0 (D17).
    "gen_smooth_label": False,
    "disc_smooth_label": False,

    # A recipe: 'small', 'base' and 'large' of the paper, 'small++' as Google released it, 'tiny' for trying things; lmtuners'
    # 'alectra_small', 'electra_small_lmtuners', 'bert_small' and others: all stand in _utils/recipes.py.
    "size": "small",
    # 'electra', or 'mlm': masked language modelling alone, of the network that would be the discriminator. None: the recipe's.
    "objective": None,
    # Another pair of one vocabulary: for each a transformers configuration, as {'model_type': 'roberta', 'hidden_size': 256, ...},
    # a folder with a config.json, or a hub id. None: the recipe's.
    "generator": None,
    "discriminator": None,
    # What both share: 'embeddings', 'embeddings+projection' or 'embeddings+encoder'; None: the recipe's, which is 'embeddings'.
    "tying": None,
    # 'huggingface': normal, std .02 (size tiny .05), as electra_pytorch (D3). 'official': Google's, the normal cut at two standard
    # deviations, and Glorot uniform (F30).
    # Or a trained pair to go on from: a checkpoint of this script (.pth), a folder with generator/ and discriminator/, or
    # 'google/electra-small-discriminator' (base, large). It brings its vocabulary; lr, steps and warmup_steps must be given.
    "initial_weights": "huggingface",
    # Names ('openwebtext', 'wikipedia', 'bookcorpus', 'docs': the documentation inside this Python installation) or paths:
    # folders, files or globs of .txt (blank line between documents), .jsonl, .parquet or WikiExtractor's output, also .gz,
    # .bz2, .xz, .zst. Several are mixed. Google's ELECTRA-Small-OWT read openwebtext.
    "datas": ["openwebtext"],
    # Encoding of .txt, .jsonl and WikiExtractor's files.
    "encoding": "utf-8",
    # Which version of a hub corpus is read: {'openwebtext': 'COMMIT, branch or tag'}. One that is not named here keeps the commit that was
    # the newest when it was first used, as datasets/hub_revisions.json has it.
    "revisions": {},
    # True: each .txt file is one document, whatever its blank lines.
    "one_document_per_file": False,
    # 'electra': Google's examples. 'line_pairs': lmtuners', two lines of a document side by side, of which .8, .1 and .1 are for
    # training, validation and test.
    "examples": "electra",
    # Drop lines under 80 characters and every "()"? None: as electra_pytorch, for its corpora (D5); own text stays as it is.
    "clean": None,
    # A tokenizer on the hub, a vocab.txt, a tokenizer's folder, a checkpoint that has one, or a number: train that many words.
    "vocab": "google/electra-small-discriminator",

    # 'bf16', 'fp16' (with loss scaling) or 'fp32'. None: fp32 on the CPU, bf16 on a GPU, fp16 on one that only emulates bf16 (compute
    # capability below 8: T4, V100, RTX 20xx).
    "precision": None,
    # Examples per forward and backward pass; gradients accumulate to those of the full batch. A divisor of the batch size.
    # None: what fits into the GPU's free memory, up to 32,768 tokens; on the CPU what fits into its caches.
    "micro_batch": None,
    # True: the networks through torch.compile, which takes a minute or two at the start.
    "compile": False,
    # 'tensorboard', 'neptune' (its offline store), 'wandb' or None. metrics.jsonl is always written.
    "logger": "tensorboard",
    # Where each checkpoint is sent while training goes on: a folder, an address such as s3://bucket/run (gs, hf ...; whatever fsspec
    # knows), or here a function of its path; None: nowhere.
    "upload_to": None,
    # Processes that load batches while training runs; 0: the training process does it. Preparing the data always uses all cores.
    "num_workers": 3,
    # True: the same command goes on with a run that was killed or stopped. False: it begins anew, and the earlier run is kept aside.
    "resume": True,
    # About how often the state to go on from is saved; 0: whenever measures are logged. It is saved at Ctrl-C too.
    "save_minutes": 10.,

    # The recipe's values stand in _utils/recipes.py; None keeps them.
    # Examples of a batch.
    "bs": None,
    # The learning rate that the schedule rises to.
    "lr": None,
    # Batches of the whole training.
    "steps": None,
    # Steps of rising learning rate; None with steps changed: the recipe's share of them.
    "warmup_steps": None,
    # Wordpieces of an example.
    "max_length": None,
    # Share of the tokens that are masked.
    "mask_prob": None,
})

# %% tags=["active-ipynb"]
# # In a notebook the command line stands here. Without this cell it is the paper's run: a million steps of 128 examples.
# sys.argv = ["pretrain.py", "quickstart=True"]
#
# import numpy as np  # from here on: what only the exploring cells need
# from _utils.plots import plot_example_lengths, plot_schedules, plot_training, sentences_in_color, show_masks, show_segments

# %%
if __name__ == "__main__":
    print_plain_errors()
    c = complete(c.override(each_once(sys.argv[1:])))
    print(f"{c.size}, objective {c.objective}: {c.steps:,} steps of {c.bs} x {c.max_length} tokens on {', '.join(c.datas)}, seed {c.seed}, "
          f"{c.masking} masking, " + ("going on from " if is_pair(c.initial_weights) else "initial weights ") + c.initial_weights)


# %% [markdown]
# ## 2. Data
#
# A corpus is a list of documents, a document a list of lines. Lines are gathered until they fill an example, and divided
# into two segments: `[CLS] A [SEP] B [SEP]`. As in the original (F2-F4) a tenth of the examples has only one segment, one in
# twenty a random shorter length, and the part of a line that no longer fits is thrown away. Unlike BERT, B always follows A: there is no
# next sentence prediction.

# %%
def load_data(c, processes=None):
    """(hf_tokenizer, dls) of a configuration: the vocabulary, and fastai DataLoaders of training and held-out examples.

    A batch is (input_ids (B, L), sentA_length (B,)); sentA_length counts the tokens of [CLS] A [SEP]. lmtuners' line pairs have a
    third loader, of test examples.
    processes: Processes that train together, of which the first one prepares the data.
    """
    processes = processes or Processes(c.device)
    hf_tokenizer, files = processes.from_first(lambda: prepare_data(c))
    if c.examples == "line_pairs":
        parts = [map(open_examples, of_corpus) for of_corpus in files]
    else:
        parts = [split_held_out(open_examples(of_corpus)) for [of_corpus] in files]
    splits = dict(zip(("train", "held_out", "test"), map(concatenate_datasets, zip(*parts))))
    is_on_gpu = choose_device(c.device).type == "cuda"
    return hf_tokenizer, pretraining_dataloaders(splits, hf_tokenizer, c.bs, c.steps, c.max_length, c.seed, c.num_workers, is_on_gpu)


def prepare_data(c):
    """(hf_tokenizer, files): the Arrow files of prepared examples, a list of them for each part of each corpus."""
    corpora = [load_documents(source, "datasets", c.encoding, c.one_document_per_file, c.revisions) for source in c.datas]
    hf_tokenizer = load_tokenizer(c.vocab, corpora, "datasets")
    files = []
    for corpus in corpora:
        parts = split_documents(corpus, c.data_seed) if c.examples == "line_pairs" else [corpus]
        prepared = [prepare_examples(part, hf_tokenizer, c.max_length, c.data_seed, "datasets", c.clean, kind=c.examples)
                    for part in parts]
        files.append([[file["filename"] for file in examples.cache_files] for examples in prepared])
    return hf_tokenizer, files


# %% [markdown]
# The first lines of one document:

# %% tags=["active-ipynb"]
# corpus = load_documents(c.datas[0], "datasets")
# print(f"{len(corpus.documents):,} documents")
# for line in corpus.documents[1000]["text"].split("\n")[:4]:
#     print("-", line[:150])

# %% [markdown]
# Examples and their lengths. Most fill the length of the model; the short ones are ends of documents and the one in twenty.

# %% tags=["active-ipynb"]
# hf_tokenizer, dls = load_data(c)
# print(f"{len(dls.train_ds):,} examples for training, {len(dls.valid_ds):,} held out, {len(hf_tokenizer):,} words")
# plot_example_lengths([len(row) for row in dls.train_ds.hf_dset[:20_000]["input_ids"]], c.max_length);

# %% [markdown]
# A batch, with segment A in blue and segment B in orange. Whole batches are fetched from the Arrow file at once and padded
# to one length.

# %% tags=["active-ipynb"]
# input_ids, sentA_lenths = dls.one_batch()
# print("input_ids", tuple(input_ids.shape), " sentA_length", tuple(sentA_lenths.shape))
# show_segments(input_ids[:4], sentA_lenths[:4], hf_tokenizer)
# assert (input_ids[:, 0] == hf_tokenizer.cls_token_id).all()
# assert (input_ids[torch.arange(c.bs), sentA_lenths - 1] == hf_tokenizer.sep_token_id).all()

# %% [markdown]
# ## 3. The objective
#
# ### Masking
#
# 15 % of the tokens are chosen, and the generator has to guess them. The paper writes that all of them are replaced with
# `[MASK]`; BERT masks 80 %, puts a random token in the place of 10 % and keeps 10 %; the original's code masks 85 % and keeps
# 15 % as they are, with no random token (F10), and so does this notebook. Unless `masking='official'` each token is chosen by a coin
# of its own, as in electra_pytorch (D1). Special tokens are never chosen (F9), and neither is [UNK] (D2).

# %%
def mask_tokens(inputs, mask_token_index, vocab_size, special_token_indices, mlm_probability=.15, replace_prob=.1,
                orginal_prob=.1, ignore_index=-100):
    """Choose tokens for masked language modelling.

    inputs: ids, (B, L).   special_token_indices: ids that are never chosen, nor drawn as random tokens.
    mlm_probability: chance of a token to be chosen; of those, replace_prob become a random token, orginal_prob (so spelled in
    electra_pytorch) stay, the others become [MASK].
    Returns (masked inputs, labels: the original ids of chosen tokens and ignore_index elsewhere, is_mlm_applied: bool),
    each (B, L); `inputs` is not changed. Paper, section 3.1; the shares of ELECTRA's code are replace_prob=0, orginal_prob=.15.
    """
    maskable = ~is_one_of(inputs, special_token_indices)
    is_mlm_applied = (torch.rand(inputs.shape, device=inputs.device) < mlm_probability) & maskable  # (B, L)
    fate = torch.rand(inputs.shape, device=inputs.device)
    shows_random = is_mlm_applied & (fate < replace_prob) if replace_prob else None
    shows_mask = is_mlm_applied & (fate >= replace_prob + orginal_prob)
    masked_inputs = hide(inputs, shows_mask, shows_random, mask_token_index, vocab_size, special_token_indices)
    return masked_inputs, inputs.masked_fill(~is_mlm_applied, ignore_index), is_mlm_applied


def is_one_of(inputs, ids):
    """Which of `inputs` (B, L) are in the list `ids`; bool, (B, L). Nothing is copied to the device, which would wait for it."""
    return torch.stack([inputs == i for i in ids]).any(0)


def hide(inputs, shows_mask, shows_random, mask_token_index, vocab_size, special_token_indices):
    """`inputs` with [MASK] or random tokens at the positions of the two bool masks, each (B, L); shows_random may be None."""
    if shows_random is not None:
        inputs = torch.where(shows_random, random_tokens(inputs, vocab_size, special_token_indices), inputs)
    return inputs.masked_fill(shows_mask, mask_token_index)


def random_tokens(inputs, vocab_size, special_token_indices):
    """Ids drawn uniformly from all but the special tokens, in the shape of `inputs` (B, L)."""
    tokens = torch.randint(vocab_size - len(set(special_token_indices)), inputs.shape, device=inputs.device)
    for special in sorted(set(special_token_indices)):
        tokens = tokens + (tokens >= special)  # skips its id
    return tokens


# %% [markdown]
# Orange tokens were chosen; the original stands below where `[MASK]` hides it.

# %% tags=["active-ipynb"]
# special_ids = hf_tokenizer.all_special_ids
# masked_inputs, labels, is_mlm_applied = mask_tokens(input_ids, hf_tokenizer.mask_token_id, len(hf_tokenizer), special_ids,
#                                                     replace_prob=0., orginal_prob=.15)
# show_masks(input_ids[:3], masked_inputs[:3], is_mlm_applied[:3], hf_tokenizer)
# maskable = ~torch.isin(input_ids, torch.tensor(special_ids))
# hidden = masked_inputs[is_mlm_applied] == hf_tokenizer.mask_token_id
# print(f"{is_mlm_applied.sum() / maskable.sum():.1%} of the tokens chosen, {hidden.float().mean():.0%} of them hidden")
# assert not is_mlm_applied[~maskable].any() and (masked_inputs[~is_mlm_applied] == input_ids[~is_mlm_applied]).all()

# %% [markdown]
# With `masking='official'` it is Google's: each example has a fixed number of *slots*, 15 % of its tokens with [CLS] and [SEP] counted, and
# the position of each slot is drawn anew from all words. So a position may be drawn twice, as happens in three of four full examples
# of 128 wordpieces (F8). It then counts twice in the generator's loss, and two words are drawn for it.

# %%
def mask_official_slots(inputs, mask_token_index, vocab_size, special_token_indices, mlm_probability=.15, replace_prob=0.,
                        orginal_prob=.15, ignore_index=-100, pad_token_index=0):
    """Choose tokens as Google's pretrain_helpers.py:mask does (F7-F11), whose shares of replaced and kept ones are the defaults here.

    Arguments and results as in `mask_tokens`, except that is_mlm_applied counts how often a position was drawn.
    special_token_indices: Google's are [PAD], [CLS], [SEP] and [MASK], not [UNK]. Each slot has a fate of its own; at a position that
    was drawn twice a slot that shows [MASK] wins.
    """
    n_slots = official_slots(inputs.shape[1], mlm_probability)
    candidates = ~is_one_of(inputs, special_token_indices)  # (B, L)
    n_candidates = candidates.sum(1, keepdim=True)  # (B, 1)
    n_tokens = (inputs != pad_token_index).sum(1, keepdim=True)
    wanted = (n_tokens * mlm_probability).round().clamp(1, n_slots)  # half to even, as in the original
    is_used = (torch.arange(n_slots, device=inputs.device) < wanted) & (n_candidates > 0)  # (B, N)

    shape = (len(inputs), n_slots)
    nth = (torch.rand(shape, device=inputs.device) * n_candidates).long()  # the position is that of the nth candidate
    positions = torch.searchsorted(candidates.cumsum(1), nth, right=True).clamp(max=inputs.shape[1] - 1)  # (B, N)
    count = lambda slots: torch.zeros_like(inputs).scatter_add(1, positions, slots.long())  # (B, N) -> (B, L)
    fate = torch.rand(shape, device=inputs.device)
    shows_random = count(is_used & (fate < replace_prob)) > 0 if replace_prob else None
    shows_mask = count(is_used & (fate >= replace_prob + orginal_prob)) > 0
    is_mlm_applied = count(is_used)
    masked_inputs = hide(inputs, shows_mask, shows_random, mask_token_index, vocab_size, special_token_indices)
    return masked_inputs, inputs.masked_fill(is_mlm_applied == 0, ignore_index), is_mlm_applied


def official_slots(length, mlm_probability):
    """The largest number of masks in an example of `length` wordpieces (configure_pretraining.py:max_predictions_per_seq, F7)."""
    return int((mlm_probability + .005) * length)


# %% tags=["active-ipynb"]
# without_unk = [i for i in special_ids if i != hf_tokenizer.unk_token_id]
# _, _, times_drawn = mask_official_slots(input_ids, hf_tokenizer.mask_token_id, len(hf_tokenizer), without_unk)
# wanted = ((input_ids != hf_tokenizer.pad_token_id).sum(1) * .15).round()
# assert (times_drawn.sum(1) == wanted.clamp(1, official_slots(input_ids.shape[1], .15))).all()
# print(f"official slots: {times_drawn.sum()} in {len(input_ids)} examples, {(times_drawn > 0).sum()} positions, "
#       f"{(times_drawn > 1).sum()} of them drawn more than once")

# %%
class MaskedLMCallback(Callback):
    """Masks each batch anew, on its device, before it goes into the model.

    for_electra: the model also gets what was masked, and the labels, x = (masked_inputs, sentA_lenths, is_mlm_applied,
    labels); otherwise x = (masked_inputs, sentA_lenths). y = (labels,).   masking: `mask_tokens` or `mask_official_slots`;
    the other arguments are its own.
    """

    def __init__(self, mask_tok_id, special_tok_ids, vocab_size, ignore_index=-100, for_electra=False, masking=mask_tokens,
                 **kwargs):
        self.ignore_index, self.for_electra = ignore_index, for_electra
        self.mask_tokens = partial(masking, mask_token_index=mask_tok_id, special_token_indices=special_tok_ids,
                                   vocab_size=vocab_size, ignore_index=ignore_index, **kwargs)

    def before_batch(self):
        input_ids, sentA_lenths = self.xb
        masked_inputs, labels, is_mlm_applied = self.mask_tokens(input_ids)
        x = (masked_inputs, sentA_lenths)
        self.learn.xb = (*x, is_mlm_applied, labels) if self.for_electra else x
        self.learn.yb = (labels,)


# %% [markdown]
# ## 4. The model
#
# ### Generator and sampling
#
# The generator is a small masked language model. What the discriminator gets to see is not its best guess but a word
# *drawn* from its distribution, by the Gumbel trick: the largest of logits plus Gumbel noise is a draw from their softmax
# (F15). No gradient flows back through the draw (F18).

# %%
def sample(logits, sampling="fp32_gumbel", temperature=1., disallowed=None):
    """Draw one token id per row from softmax(logits / temperature); logits (M, V) of any dtype, result (M,).

    disallowed: an id for each row that must not be drawn, (M,) (pretrain_helpers.py:sample_from_softmax).
    """
    logits = logits.float() / temperature
    if disallowed is not None:
        logits = logits.scatter_add(1, disallowed[:, None], torch.full_like(logits[:, :1], -1000.))
    if sampling == "multinomial":
        return torch.multinomial(logits.softmax(-1), 1).squeeze(-1)
    if sampling == "fp16_gumbel":
        smallest = torch.finfo(torch.float16).tiny  # of the uniform numbers, so that neither logarithm is infinite
        uniform = torch.rand_like(logits, dtype=torch.float16).clamp(smallest, 1 - 2 ** -11)
        return (logits.half() - torch.log(-torch.log(uniform))).argmax(-1)
    uniform = torch.rand_like(logits)
    return (logits - torch.log(-torch.log(uniform + 1e-9) + 1e-9)).argmax(-1)  # 1e-9 twice: F15


# %% [markdown]
# Does it draw from the softmax? Frequencies of 100,000 draws against it:

# %% tags=["active-ipynb"]
# logits = torch.linspace(3, -3, 10)
# for sampling in ("fp32_gumbel", "fp16_gumbel", "multinomial"):
#     drawn = sample(logits.expand(100_000, -1), sampling)
#     frequency = drawn.bincount(minlength=10) / len(drawn)
#     print(f"{sampling:12}", *(f"{share:.4f}" for share in frequency))
#     assert (frequency - logits.softmax(-1)).abs().max() < .01
# print(f"{'softmax':12}", *(f"{share:.4f}" for share in logits.softmax(-1)))

# %% [markdown]
# Logits for a vocabulary of 30,522 words cost more operations than four layers of the small discriminator. So the generator's
# head runs on the masked positions alone, gathered into M slots (D16). Their number differs from batch to batch; on a GPU, where
# every new shape and every look at a number on the device costs time, M is fixed with room to spare and unused slots get weight 0.
# A position that was drawn twice has two slots; if the words drawn for them differ, the original puts in neither but the word whose
# id is the floor of their mean, some unrelated one (F12, F19).

# %%
def masked_slots(is_mlm_applied, n_slots):
    """Gather masked positions into slots: (positions in the flattened batch (M,), weights (M,): 1 for a used slot, else 0).

    is_mlm_applied: (B, L), bool, or how many slots a position has.   n_slots: M. What is beyond the M-th gets no slot.
    """
    filled = is_mlm_applied.flatten().cumsum(0)  # slots up to each position
    slot = torch.arange(n_slots, device=filled.device)
    is_used = slot < filled[-1]
    positions = torch.searchsorted(filled, slot, right=True) * is_used
    return positions, is_used.float()


def fill_slots(tokens, positions, weights, drawn):
    """`tokens` (B, L) with the ids `drawn` (M,) at their positions, several of one position averaged to the floor of their mean.

    Unused slots change nothing (pretrain_helpers.py:scatter_update, F12).
    """
    tokens, shape, is_used = tokens.flatten(), tokens.shape, weights.long()
    times = torch.zeros_like(tokens).scatter_add(0, positions, is_used)
    total = torch.zeros_like(tokens).scatter_add(0, positions, drawn * is_used)
    return torch.where(times > 0, total // times.clamp(min=1), tokens).view(shape)


def slot_capacity(shape, mlm_probability, masking="bernoulli"):
    """Slots that a batch of `shape` (B, L) is given: Google's fixed ones, or the mean number of masks and 8 standard deviations."""
    if masking == "official":
        return shape[0] * official_slots(shape[1], mlm_probability)
    n_tokens = shape[0] * shape[1]
    mean = n_tokens * mlm_probability
    return min(n_tokens, int(mean + 8 * (mean * (1 - mlm_probability)) ** .5))


# %% [markdown]
# ### The two networks together
#
# Both networks use the same embeddings (words, positions, token types and their LayerNorm), and the generator's output
# layer is the table of word embeddings once more (F24). Everything else is their own.
# Both may be of any family in transformers: a masked language model as generator; as discriminator ELECTRA's, or a classifier that gives
# each token one of two labels. A masked language model alone is the first half of it.

# %%
class ELECTRAOutput(NamedTuple):
    """What one forward pass of ELECTRAModel gives."""
    mlm_gen_logits: torch.Tensor  # (M, V): of the masked positions, in the order of the batch
    generated: torch.Tensor       # (B, L): the input of the discriminator
    disc_logits: torch.Tensor     # (B, L): above 0 for "replaced"
    is_replaced: torch.Tensor     # (B, L), bool
    attention_mask: torch.Tensor  # (B, L), bool: True for tokens, False for padding
    is_mlm_applied: torch.Tensor  # (B, L), bool, or how many slots a position has

    def slots(self, labels):
        """(labels (M,), weights (M,)) of the slots whose logits are here, from labels (B, L)."""
        positions, weights = masked_slots(self.is_mlm_applied, len(self.mlm_gen_logits))
        return labels.flatten()[positions], weights


class MaskedLMOutput(NamedTuple):
    """What one forward pass of MaskedLMModel gives, fields and `slots` as in ELECTRAOutput."""
    mlm_gen_logits: torch.Tensor
    attention_mask: torch.Tensor
    is_mlm_applied: torch.Tensor
    slots = ELECTRAOutput.slots


# %%
class MaskedLMModel(nn.Module):
    """A masked language model that computes vocabulary logits at masked positions only; BERT's objective, and ELECTRA's first half.

    generator: any ...ForMaskedLM of transformers.
    n_slots: function of a batch's shape (B, L), which fixes the number of slots in advance; None: as many as there are masks.
    """

    def __init__(self, generator, hf_tokenizer, n_slots=None):
        super().__init__()
        self.generator, self.pad_token_id, self.n_slots = generator, hf_tokenizer.pad_token_id, n_slots
        self.at_positions = GatheredPositions(generator)
        tie(generator)

    def totals(self, masked_inputs, sentA_lenths, is_mlm_applied, labels):
        """(masked positions, tokens) of a batch, each (): what the mean losses are divided by."""
        return is_mlm_applied.sum(), (masked_inputs != self.pad_token_id).sum()

    def forward(self, masked_inputs, sentA_lenths, is_mlm_applied, labels):
        """masked_inputs (B, L), sentA_lenths (B,), is_mlm_applied (B, L), labels (B, L) -> MaskedLMOutput."""
        attention_mask, token_type_ids = self.masks_and_segments(masked_inputs, sentA_lenths)
        positions, _ = self.slots(is_mlm_applied)
        mlm_gen_logits = self.generator_logits(masked_inputs, attention_mask, token_type_ids, positions)  # (M, V)
        return MaskedLMOutput(mlm_gen_logits, attention_mask, is_mlm_applied)

    def masks_and_segments(self, masked_inputs, sentA_lenths):
        """(attention mask, bool; token types), each (B, L). Segment B is 1; [CLS] A [SEP] and padding are 0 (F4)."""
        attention_mask = masked_inputs != self.pad_token_id
        position = torch.arange(masked_inputs.shape[1], device=masked_inputs.device)
        return attention_mask, ((position >= sentA_lenths[:, None]) & attention_mask).long()

    def slots(self, is_mlm_applied):
        """(positions (M,), weights (M,)) of the masks, as `masked_slots`."""
        n_slots = self.n_slots(is_mlm_applied.shape) if self.n_slots else int(is_mlm_applied.sum())
        return masked_slots(is_mlm_applied, n_slots)

    def generator_logits(self, masked_inputs, attention_mask, token_type_ids, positions):
        """The generator's vocabulary logits at `positions` (M,) of the flattened batch, (M, V)."""
        with self.at_positions.only(positions):
            return self.generator(**inputs_of(self.generator, masked_inputs, attention_mask, token_type_ids)).logits[0]


# %%
class ELECTRAModel(MaskedLMModel):
    """Generator and discriminator with tied embeddings; one forward pass of replaced token detection.

    generator, n_slots: as in MaskedLMModel.   discriminator: ElectraForPreTraining or any ...ForTokenClassification with two
    labels, of the same vocabulary.   tying: what both share, as in `tie`.
    sampling, temperature: as in `sample`.   disallow_correct: never draw the original word.
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
            # [MASK] never reaches the discriminator: originals everywhere but where a word was drawn (F14).
            originals = torch.where(is_mlm_applied > 0, labels, masked_inputs)  # (B, L)
            disallowed = originals.flatten()[positions] if self.disallow_correct else None
            drawn = sample(mlm_gen_logits, self.sampling, self.temperature, disallowed)  # (M,)
            generated = fill_slots(originals, positions, weights, drawn)  # (B, L)
            # A word that was guessed right is an original (F17).
            is_replaced = generated != originals

        disc_logits = replaced_logits(self.discriminator(**inputs_of(self.discriminator, generated, attention_mask, token_type_ids)))
        return ELECTRAOutput(mlm_gen_logits, generated, disc_logits, is_replaced, attention_mask, is_mlm_applied)


# %% [markdown]
# The networks of a recipe, with fresh weights, or a trained pair to go on from. ELECTRA-Small with a vocabulary of 30,522 words
# has the 14,196,219 parameters of the original (F27).

# %%
def build_model(c, hf_tokenizer, fixed_slots=False, pair=None):
    """ELECTRAModel of a configuration, or MaskedLMModel where objective is 'mlm'.

    fixed_slots: the number of masked positions is fixed in advance, so that every batch has the same shapes and nothing waits for a
    number on the device.
    pair: trained (generator, discriminator) to go on from; None: fresh ones, Hugging Face's normal(0, .02) (D3; tiny .05) or Google's.
    """
    generator, discriminator = pair or fresh_pair(c, hf_tokenizer)
    n_slots = partial(slot_capacity, mlm_probability=c.mask_prob, masking=c.masking) if fixed_slots else None
    if discriminator is None:
        model = MaskedLMModel(generator, hf_tokenizer, n_slots)
    else:
        model = ELECTRAModel(generator, discriminator, hf_tokenizer, c.sampling, c.temperature, c.disallow_correct, n_slots, c.tying)
    if fixed_slots:
        attend(model, "sdpa_static")
    if pair is None and c.initial_weights == "official":
        initialize_officially(model, RECIPES[c.size].initializer_range)
    return model


def fresh_pair(c, hf_tokenizer):
    """(generator, discriminator) of a configuration, initialised by transformers; (network, None) where objective is 'mlm'."""
    return make_networks(RECIPES[c.size], c.objective, (c.generator, c.discriminator), len(hf_tokenizer), hf_tokenizer.pad_token_id)


@torch.no_grad()
def initialize_officially(model, std=.02):
    """Fresh weights as Google's create_initializer gives them: a normal distribution cut at two standard deviations (F30).

    Glorot uniform, which is tf.layers.dense's default, for the projections of the embeddings and the discriminator's last layer.
    """
    glorot = ("embeddings_project", "embedding_hidden_mapping_in", "dense_prediction", "classifier")
    for name, parameter in model.named_parameters():
        if parameter.dim() == 1:
            parameter.fill_(1. if "norm" in name.lower() and name.endswith("weight") else 0.)
        elif any(layer in name for layer in glorot):
            nn.init.xavier_uniform_(parameter)
        else:
            nn.init.trunc_normal_(parameter, std=std, a=-2 * std, b=2 * std)


# %% tags=["active-ipynb"]
# torch.manual_seed(c.seed)
# model = build_model(c, hf_tokenizer)
# count = lambda module: f"{sum(p.numel() for p in module.parameters()):,}"
# print("parameters: generator", count(model.generator), " discriminator", count(model.discriminator), " together", count(model))
# words, others = (network.get_input_embeddings().weight for network in (model.generator, model.discriminator))
# assert words is others and words is model.generator.get_output_embeddings().weight
# with torch.no_grad():
#     pred = model(masked_inputs, sentA_lenths, is_mlm_applied, labels)
# for name, value in pred._asdict().items():
#     print(f"{name:15} {tuple(value.shape)}")
# assert not (pred.generated == hf_tokenizer.mask_token_id)[~pred.is_replaced].any()

# %% [markdown]
# ### The loss
#
# The generator's loss is the mean cross-entropy over the masked tokens, those included that stayed visible (F21); the
# discriminator's is the mean binary cross-entropy over all tokens, [CLS] and [SEP] included (F22), times 50 (F20).

# %%
class ELECTRALoss(nn.Module):
    """loss_weights[0] * generator's loss + loss_weights[1] * discriminator's (run_pretraining.py, F20-F22).

    gen_label_smooth, disc_label_smooth: False, a number, or True for .1. The first spreads that share over the vocabulary;
    the second lifts the labels of original tokens from 0 to it and leaves those of replaced ones at 1 (D17).
    """

    def __init__(self, loss_weights=(1., 50.), gen_label_smooth=False, disc_label_smooth=False):
        super().__init__()
        self.loss_weights = loss_weights
        self.gen_smooth, self.disc_smooth = (.1 if smooth is True else float(smooth)
                                             for smooth in (gen_label_smooth, disc_label_smooth))

    def forward(self, pred, targ_ids):
        """pred: ELECTRAOutput or its six fields; targ_ids: original ids of the masked tokens, (B, L). Returns the loss, ()."""
        pred = ELECTRAOutput(*pred)
        return self.weigh(self.parts(pred, targ_ids, (pred.is_mlm_applied.sum(), pred.attention_mask.sum())))

    def weigh(self, parts):
        """The total of (generator's loss, discriminator's loss)."""
        return self.loss_weights[0] * parts[0] + self.loss_weights[1] * parts[1]

    def parts(self, pred, targ_ids, totals):
        """Both losses of a batch, or of a part of one, divided by the masked positions and tokens in `totals`."""
        tokens = pred.attention_mask.float()
        disc_labels = pred.is_replaced.float().clamp(min=self.disc_smooth)
        disc_bce = F.binary_cross_entropy_with_logits(pred.disc_logits.float(), disc_labels, reduction="none")
        return masked_lm_loss(pred, targ_ids, totals[0], self.gen_smooth), (disc_bce * tokens).sum() / (totals[1] + 1e-6)


def masked_lm_loss(pred, targ_ids, total, smooth=0.):
    """Cross-entropy at the masked positions, summed over the used slots and divided by `total`, ()."""
    slot_labels, slot_weights = pred.slots(targ_ids)
    slot_labels = torch.where(slot_weights.bool(), slot_labels, 0)
    nll = F.cross_entropy(pred.mlm_gen_logits.float(), slot_labels, reduction="none", label_smoothing=smooth)
    return (nll * slot_weights).sum() / (total + 1e-6)


class MaskedLMLoss(ELECTRALoss):
    """The generator's loss alone, of MaskedLMOutput; methods and smoothing as in ELECTRALoss."""

    def __init__(self, gen_label_smooth=False):
        super().__init__((1.,), gen_label_smooth)

    def forward(self, pred, targ_ids):
        return masked_lm_loss(pred, targ_ids, pred.is_mlm_applied.sum(), self.gen_smooth)

    def weigh(self, parts):
        return parts[0]

    def parts(self, pred, targ_ids, totals):
        return (masked_lm_loss(pred, targ_ids, totals[0], self.gen_smooth),)


# %% [markdown]
# Before it has learnt anything, the generator finds all words alike, which costs ln V; the discriminator, in two minds about
# every token, pays 50 ln 2.

# %% tags=["active-ipynb"]
# loss_func = ELECTRALoss()
# totals = model.totals(masked_inputs, sentA_lenths, is_mlm_applied, labels)
# gen_loss, disc_loss = (float(part) for part in loss_func.parts(pred, labels, totals))
# print(f"generator {gen_loss:.2f} (ln V = {np.log(len(hf_tokenizer)):.2f}), "
#       f"discriminator {50 * disc_loss:.2f} (50 ln 2 = {50 * np.log(2):.2f}), loss {float(loss_func(pred, labels)):.2f}")
# assert abs(gen_loss - np.log(len(hf_tokenizer))) < .3 and abs(50 * disc_loss - 50 * np.log(2)) < 3

# %% [markdown]
# ## 5. Optimisation
#
# Adam without bias correction (F33), weight decay on all but biases and LayerNorms (F34), gradients clipped at global norm 1
# (F35), and a learning rate that warms up and decays *at the same time* (F31).

# %%
def build_optimizer(model, lr, bias_correction=False, kind="adam"):
    """Adam, or lmtuners' LAMB, over the model's parameters with ELECTRA's settings; the schedule sets lr before each step."""
    optimizer = Lamb if kind == "lamb" else torch.optim.AdamW if bias_correction else AdamNoBiasCorrection
    return optimizer(decay_groups(model.named_parameters(), weight_decay=.01), lr=lr, betas=(.9, .999), eps=1e-6)


# %% [markdown]
# The four schedules. The original's is the product of warmup and decay, so its peak stays below the learning rate: by a tenth in the
# quickstart, which warms up for a tenth of its steps, and by 1 % with ELECTRA-Small's 10,000 of a million.

# %% tags=["active-ipynb"]
# names = ("original_linear", "separate_linear", "one_cycle", "adjusted_one_cycle")
# plot_schedules({name: schedules(name, c.lr, c.steps, c.warmup_steps)["lr"] for name in names}, c.steps);

# %% [markdown]
# All of it together, in the plainest form: one batch again and again, which even a small network soon knows by heart.

# %% tags=["active-ipynb"]
# optimizer = build_optimizer(model, c.lr)
# for step in range(21):
#     loss = loss_func(model(masked_inputs, sentA_lenths, is_mlm_applied, labels), labels)
#     optimizer.zero_grad()
#     loss.backward()
#     nn.utils.clip_grad_norm_(model.parameters(), 1.)
#     optimizer.step()
#     if step % 5 == 0:
#         print(f"step {step:2}: loss {loss.item():.2f}")
# assert loss < 25

# %% [markdown]
# ## 6. Run

# %%
def build_masking(c, hf_tokenizer):
    """MaskedLMCallback of a configuration."""
    special_ids, kwargs = hf_tokenizer.all_special_ids, dict(masking=mask_tokens)
    if c.masking == "official":  # [UNK] may be masked (F9, D2)
        special_ids = [i for i in special_ids if i != hf_tokenizer.unk_token_id]
        kwargs = dict(masking=mask_official_slots, pad_token_index=hf_tokenizer.pad_token_id)
    replace_prob, orginal_prob = {True: (0., .15), False: (.1, .1), "always": (0., 0.)}[c.electra_mask_style]
    return MaskedLMCallback(hf_tokenizer.mask_token_id, special_ids, len(hf_tokenizer), for_electra=True,
                            mlm_probability=c.mask_prob, replace_prob=replace_prob, orginal_prob=orginal_prob, **kwargs)


# %% [markdown]
# `pretrain` checks what can be checked at once, prepares the data, builds model and optimizer, and trains; the steps
# themselves, which add precision, gradient accumulation and several processes to the loop above, are `PretrainingLearner` in
# `_utils/training.py`. What is printed below is the quickstart's run.

# %%
def pretrain(c):
    """Pretrain as a completed configuration says, or go on with it, and return the learner.

    Writes checkpoints/pretrain/<run>_<percent>%.pth at 6.25, 12.5, 25, 50 and 100 % of the steps, and beside them in
    checkpoints/pretrain/<run>/ the configuration, metrics.jsonl, the curves, what the logger writes, and the state to go on from.
    """
    processes, run_folder = Processes(c.device), Path("checkpoints/pretrain", f"{c.base_run_name}_{c.seed}")
    c = c.copy_with({"device": str(processes.device(choose_device(c.device)))})
    pair = check_start(c, run_folder, processes.is_main)
    hf_tokenizer, dls = load_data(c, processes)
    with locked(run_folder) if processes.is_main else nullcontext():
        learn = train(c, hf_tokenizer, dls, pair, processes)
    processes.close()
    return learn


def check_start(c, run_folder, is_main):
    """The trained pair to begin with, or None. PlainError for what cannot work, before the long work starts.

    is_main: of several processes the first one looks for the text.
    """
    check_writable("datasets", run_folder)
    if is_main:
        check_sources(c.datas)
    state_of_run(c, run_folder)
    if is_pair(c.initial_weights):
        return load_pair(c.initial_weights, c.size, c.max_length, c.tying)
    if isinstance(c.vocab, str):
        load_tokenizer(c.vocab)
    check_networks(RECIPES[c.size], c.objective, (c.generator, c.discriminator), c.tying, c.max_length)


def state_of_run(c, run_folder):
    """(c, state): the checkpoint to resume from, None for a new run, and the configuration with what that run chose for it.

    Raises PlainError for a run of another configuration, or a complete one whose checkpoint was deleted.
    """
    state = find_state(run_folder) if c.resume else None
    if state:
        c = c.copy_with(inherited(c, state["config"]))
        check_same_run(state, c.as_data(), run_folder, defaults=c.with_defaults().as_data())
    elif c.resume and (last := checkpoint_path(run_folder.name, 100., run_folder.parent)).exists():
        raise PlainError(f"the run {run_folder.name} is complete ({str(last)!r} exists), but its resume.pth was deleted: set resume=False "
                         "to train it again and archive the earlier run, or give another base_run_name.")
    return c, state


def settle(c, pair, hf_tokenizer, processes):
    """The configuration with what depends on the hardware filled in: precision, and examples per micro-batch."""
    device = torch.device(c.device)
    c = c.copy_with({"precision": choose_precision(c.precision, device)})
    if c.micro_batch is None:
        with torch.device("meta"):
            networks = [network for network in pair or fresh_pair(c, hf_tokenizer) if network]
        fitting = choose_micro_batch(device, c.bs, c.max_length, c.precision, networks, c.mask_prob)
        c = c.copy_with({"micro_batch": processes.smallest(fitting)})
    return c.copy_with({"micro_batch": processes.share(c.micro_batch, c.bs)})


def build_learner(c, hf_tokenizer, dls, pair, processes):
    """PretrainingLearner of a configuration whose device, precision and micro_batch are said, with its masking and schedule.

    dls: on the device.   pair: trained (generator, discriminator), or None for fresh ones.
    """
    set_seed(c.seed)
    model = build_model(c, hf_tokenizer, fixed_slots=c.compile or dls.device.type != "cpu", pair=pair).to(dls.device)
    if dls.device.type == "cpu":
        make_dropout_cheap(model)
    if c.compile:
        compile_networks(model, dls.device)
    is_mlm = c.objective == "mlm"
    loss = MaskedLMLoss(c.gen_smooth_label) if is_mlm else ELECTRALoss((1., 50.), c.gen_smooth_label, c.disc_smooth_label)
    optimizer = build_optimizer(model, c.lr, c.adam_bias_correction, c.optimizer)
    schedule = Schedule(schedules(c.schedule, c.lr, c.steps, c.warmup_steps), c.steps)
    return PretrainingLearner(dls, model, loss, optimizer, c.micro_batch, c.seed, c.precision, processes,
                              cbs=[build_masking(c, hf_tokenizer), schedule])


def train(c, hf_tokenizer, dls, pair, processes):
    """Train on the data, from fresh weights or a `pair`, from the start or where the run was stopped; a learner."""
    run_name, folder = f"{c.base_run_name}_{c.seed}", Path("checkpoints/pretrain")
    made_of = {"vocabulary": hf_tokenizer.backend_tokenizer.to_str(), "text": text_key(dls.train_ds.hf_dset)}
    c, state = state_of_run(c, folder / run_name)  # again: another process may have trained it meanwhile
    c = settle(c, pair, hf_tokenizer, processes)
    processes.check_alike(state["step"] if state else -1, f"the processes do not all find the same state in {str(folder / run_name)!r}: "
                          "start them in a folder that all machines share.")
    if state:
        check_same_data(state, made_of, folder / run_name)
        dls.train.start = state["step"] * c.bs
    learn = build_learner(c, hf_tokenizer, dls.to(torch.device(c.device)), pair, processes)
    print(f"{len(dls.train_ds):,} examples for training ({c.steps * c.bs / len(dls.train_ds):.3g} epochs), "
          f"{len(dls.valid_ds) if len(dls.loaders) > 1 else 0:,} held out; "
          f"{count_parameters(learn.model):,} parameters; {c.device}, {c.precision}, micro-batches of {c.micro_batch} examples")
    log, uploads = open_log(run_name, folder, c, state) if processes.is_main else NoLog(), Uploads(c.upload_to)

    def save(percent):
        path = checkpoint_path(run_name, percent, folder)
        save_pretrained(path, learn.model, c, hf_tokenizer, learn.train_iter)
        uploads.add(path)

    learn.add_cbs([Progress(log, c.steps, c.bs * c.max_length), Milestones(log, c.steps, save)])
    was_complete = state is not None and state["step"] == c.steps
    try:
        with StopSignals() as signals:
            identity = {"config": c.as_data(), "made_of": made_of}
            learn.add_cb(SavedState(folder / run_name, identity, log, c.steps, c.save_minutes, signals, state))
            del state  # three times the size of the model; the callback lets go of it when it is loaded
            learn.fit(1)
        if processes.is_main and not was_complete and (measured := learn.evaluate_held_out(split=2)):
            log.log("test", c.steps, measured)
            print("test:", describe(measured))
    finally:
        learn.progress.close()
        log.close()
        uploads.close()
    if processes.is_main:
        save_pretraining_plots(learn, hf_tokenizer, folder / run_name, c.steps, c.max_length)
    return learn


def open_log(run_name, folder, c, state):
    """The RunLog of a run that begins, or goes on from a state; what an earlier one of its name left is then kept aside."""
    if state is None:
        archive_run(run_name, folder)
        return RunLog(run_name, folder / run_name, c.as_data())
    print(f"The run {run_name} is complete; resume=False would train it anew." if state["step"] == c.steps else
          f"Going on with the run {run_name} after step {state['step']:,}.")
    return RunLog(run_name, folder / run_name, c.as_data(), state["log_place"], state["step"])


# %%
if __name__ == "__main__":
    learn = pretrain(c)

# %% [markdown]
# ## 7. A look at the result
#
# Losses and the discriminator's AUC, the chance that it gives a replaced token a higher logit than an original one. The dots are held-out
# text; dotted lines are what needs no learning.

# %%
if __name__ == "__main__":
    run_folder = Path("checkpoints/pretrain", f"{c.base_run_name}_{c.seed}")
    print(f"Checkpoints: {run_folder}_*.pth, metrics and curves: {run_folder}/")

# %% tags=["active-ipynb"]
# plot_training(run_folder / "metrics.jsonl");

# %% [markdown]
# A healthy start looks like this. The AUC leaps up while the generator still puts in words at random, falls as it learns to put in
# likely ones, and then climbs again, slowly. The discriminator's loss is hardly below that of one answer for all tokens: so early
# it calls almost no token replaced with more than 50 %, and precision and recall at that threshold say little. [CLS] and [SEP] are
# never replaced, and knowing that alone lifts the AUC a little above .5. A run whose AUC is still at .5 in its second half is not
# healthy, and is told so.

# %% [markdown]
# Held-out sentences as the discriminator sees them: `original→word` is what the generator put in, a tick a word that it
# guessed right, the percentage and the shade (darkest from 50 %) how sure the discriminator is that a token is replaced.

# %% tags=["active-ipynb"]
# sentences_in_color(learn, hf_tokenizer);

# %% [markdown]
# ### Other families at equal compute
#
# Replaced token detection is not tied to one architecture. Here four tiny systems spend the same number of floating point operations
# on the same text: ELECTRA, ALECTRA (ALBERT for both networks), and masked language models of BERT's and ALBERT's architecture.

# %% tags=["active-ipynb"]
# import io
# from contextlib import redirect_stderr, redirect_stdout
# from IPython.display import display
# from _utils.config import with_recipe
# from _utils.plots import plot_families
# from _utils.recipes import flops_per_token, steps_of_equal_compute
# from _utils.run_files import read_metrics
# import pandas as pd
#
# budget, rows, curves, held_out = max(10, c.steps // 10), {}, {}, {}
# for size, name in {"tiny": "ELECTRA", "alectra_tiny": "ALECTRA", "bert_tiny": "BERT", "albert_tiny": "ALBERT"}.items():
#     steps = steps_of_equal_compute(RECIPES["tiny"], RECIPES[size], budget, len(hf_tokenizer))
#     other = with_recipe(c, size, base_run_name=f"{c.base_run_name}_{size}", steps=steps, logger=None)
#     with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):  # the same messages four times more
#         network = pretrain(other).model
#     metrics = Path("checkpoints/pretrain", f"{other.base_run_name}_{other.seed}", "metrics.jsonl")
#     curves[name], held_out[name] = read_metrics(metrics, "train"), read_metrics(metrics, "held_out")
#     last = held_out[name][-1]
#     encoder = getattr(network, "discriminator", network.generator)
#     rows[name] = {"parameters of the encoder": sum(p.numel() for p in encoder.parameters()),
#                   "MFLOP per token": flops_per_token(RECIPES[size], len(hf_tokenizer)) / 1e6, "steps": steps,
#                   "tokens/s": curves[name][-1]["tokens_per_second"], "masked LM loss": last["gen_loss"],
#                   "masked LM accuracy": last["gen_accuracy"], "discriminator's AUC": last.get("disc_auc")}
# whole = dict.fromkeys(("parameters of the encoder", "steps", "tokens/s"), "{:,.0f}".format)
# as_text = lambda column: column.map(whole.get(column.name, "{:.3f}".format)).replace("nan", "-")
# display(pd.DataFrame(rows).T.astype(float).apply(as_text))
# plot_families(curves, held_out);

# %% [markdown]
# What so small a run can show: what each system costs, how many parameters are kept, and that all of them learn. What it cannot: which
# encoder is better. The masked language models' losses are those of the network that is kept, ELECTRA's that of its generator, a
# quarter as wide, which is thrown away; its discriminator has barely begun. Only finetuning compares them, after trainings a thousand
# times as long: docs/results.md has the measurements.
