# %% [markdown]
# # Pretraining ELECTRA
#
# [ELECTRA](https://arxiv.org/abs/2003.10555) pretrains a text encoder by *replaced token detection*. A small masked
# language model, the *generator*, replaces some tokens of a text with plausible alternatives. The *discriminator* then
# predicts for every token whether it is original or replaced. It learns from all tokens instead of the masked 15%, and
# it is the network that is finetuned later.
#
# This notebook builds the method of the paper step by step on real text: configuration, data, masking, model and loss,
# optimization, run, results. `pretrain.py` is exported from it for long runs, without the cells that only explore.

# %% [markdown]
# ## 1. Configuration
#
# *F12* and the like refer to numbered facts about [Google's code](https://github.com/google-research/electra), and *D3*
# to differences between it and [electra_pytorch](https://github.com/richarddwang/electra_pytorch), the PyTorch code
# whose structure this repository follows. [docs/facts.md](docs/facts.md) lists them, and marks those that were measured
# by running the code. [lmtuners](docs/facts.md#lmtuners) is another PyTorch implementation, with ALBERT's networks.
# Shapes are given at the end of a line: B batch, L length, V vocabulary, M masked tokens of a batch, H hidden size.

# %%
import _utils  # noqa: F401  first, because it sets how PyTorch's threads wait

import sys

from _utils.config import MyConfig, complete, from_command_line
from _utils.errors import print_user_errors

# The most used keys. Edit them here, or on the command line: python pretrain.py size=base datas=wikipedia,openwebtext
# `python pretrain.py --help` explains all keys; those that are not here may be added, or set on the command line, too.
c = MyConfig({
    "quickstart": False,  # True: a small model on books in this repository, minutes on two CPU cores
    "device": None,  # 'cpu', 'cuda', 'cuda:1' ...; None: the first GPU, else the CPU
    "base_run_name": "vanilla",  # the run and its checkpoints are named <base_run_name>_<seed>
    "seed": 11081,  # of data order, masks, samples, dropout and initial weights
    "size": "small",  # 'small', 'base', 'large' of the paper, 'small++', 'mini' ...: _utils/recipes.py
    "objective": None,  # 'electra', 'mlm' or one of the paper's ablations: _utils/objectives; None: the recipe's
    "datas": ["openwebtext"],  # 'wikipedia', 'prose' ..., paths of text files, or hub ids: owner/name:configuration
    "vocab": "google/electra-small-discriminator",  # a hub tokenizer, a vocab.txt, or the size of one to train
    "masking": "bernoulli",  # each token independently (D1); 'official': a fixed number of positions (F7-F12)
    "electra_mask_style": None,  # True: 85% [MASK], 15% unchanged; False: BERT's; None: the recipe's, True
    "sampling": "fp32_gumbel",  # as in Google's code; 'fp16_gumbel', 'multinomial'
    "gen_smooth_label": False,  # label smoothing of the generator's loss: a number, or True for 0.1
    "disc_smooth_label": False,  # the same of the discriminator's loss (D17)
    "initial_weights": "huggingface",  # 'official': Google's (F30); or trained networks to continue from
    "adam_bias_correction": False,  # False: Adam as in Google's code
    "schedule": None,  # 'original_linear', 'separate_linear', 'one_cycle' ...; None: the recipe's
    "steps": None,  # None: the recipe's
    "precision": None,  # 'bf16', 'fp16', 'fp32'; None: bf16 or fp16 on a GPU, else fp32
    "compile": False,  # True: torch.compile and CUDA graphs, 5 times as fast on a GPU
    "num_workers": 3,  # processes that load batches
    "logger": "tensorboard",  # 'tensorboard', 'neptune' (offline store), 'wandb' or None
})

# %%
if __name__ == "__main__":
    print_user_errors()
    c = complete(from_command_line(c, sys.argv))

# %%
# The other imports take seconds, so the command line is checked before.
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fastai.callback.core import Callback
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from _utils.networks import (
    SAMPLERS, argmax, fill_slots, fit_to_device, gumbel_like, inputs_of, logits_at, masked_slots, max_slots,
    replaced_logits, share_parameters)
from _utils.objectives.registry import objective_of
from _utils.optim import AdamNoBiasCorrection, Lamb, decay_groups
from _utils.runs import RunFolder
from _utils.text import load_data, never_masked
from _utils.training import MicroBatchLearner, seed_step, set_seed
from _utils.training.pretraining_run import pretraining_run


# %% [markdown]
# ## 2. Data
#
# A corpus is a list of documents, and a document is a list of lines. Lines are collected until they fill an example,
# which is split into two segments: `[CLS] A [SEP] B [SEP]`. As in Google's code (F2-F4), 10% of the examples are meant
# to have one segment, and 5% to be shorter, with a random length. A line that fills an example gives one segment of
# full length. The part of a line that exceeds the maximum length is dropped in `openwebtext`, `wikipedia` and
# `bookcorpus`, as in Google's code. In other text it begins the next example (`long_lines`). Unlike in BERT, A
# and B always come from one place of the text: there is no next sentence prediction. `ELECTRADataProcessor` does this,
# in several processes. `load_data` keeps the examples in files and returns the batches.

# %% [markdown]
# ## 3. Masking
#
# 15% of the tokens are *masked* (25% in ELECTRA-Large and in the quickstart): the generator has to predict them.
# According to the paper, its input shows `[MASK]` in their place. BERT shows `[MASK]` for 80% of them and a random
# token for 10%, and leaves 10% as they are. ELECTRA's code shows `[MASK]` for 85% and leaves 15% (F10), and so does
# this notebook. A masked token is *hidden* if the input does not show it.
#
# Each token is masked independently, as in electra_pytorch (D1); `masking='official'` is further below. Special tokens
# (F9) and `[UNK]` (D2) are never masked.
#
# Two helpers come first. `is_one_of` finds the tokens that must not be masked. `apply_masks` puts `[MASK]` at the
# positions where the input shows it, and random tokens, drawn by `random_tokens`, where BERT shows them.

# %%
def is_one_of(inputs, ids):
    """Whether each of `inputs` (B, L) is in the list `ids`; bool, (B, L).

    Unlike torch.isin, it copies nothing to the device.
    """
    return torch.stack([inputs == i for i in ids]).any(0)


def apply_masks(inputs, shows_mask, shows_random, mask_token_index, vocab_size, special_token_indices):
    """`inputs` (B, L) with [MASK] and random tokens at the positions of two boolean masks.

    shows_mask, shows_random: (B, L) each; the latter may be None.
    """
    if shows_random is not None:
        inputs = torch.where(shows_random, random_tokens(inputs, vocab_size, special_token_indices), inputs)
    return inputs.masked_fill(shows_mask, mask_token_index)


def random_tokens(inputs, vocab_size, special_token_indices):
    """Token ids drawn uniformly from all but the special tokens, in the shape of `inputs` (B, L)."""
    tokens = torch.randint(vocab_size - len(set(special_token_indices)), inputs.shape, device=inputs.device)
    for special in sorted(set(special_token_indices)):
        tokens = tokens + (tokens >= special)  # skips its id
    return tokens


# %%
# Of the masked tokens, the shares that become a random token and that stay as they are. The others become [MASK].
MASK_STYLES = {
    True: (0., .15),      # ELECTRA's code (F10)
    False: (.1, .1),      # BERT
    "always": (0., 0.),   # the paper, section 2, and lmtuners
}


def mask_tokens(
    inputs: Tensor,
    mask_token_index: int,
    vocab_size: int,
    special_token_indices: Sequence[int],
    mlm_probability: float = .15,
    replace_prob: float = .1,
    orginal_prob: float = .1,
    ignore_index: int = -100,
) -> tuple[Tensor, Tensor, Tensor]:
    """Mask tokens for masked language modelling (paper, section 2).

    inputs: token ids, (B, L); not modified.
    special_token_indices: ids that are never masked, nor used as random tokens.
    mlm_probability: probability that a token is masked.   replace_prob, orginal_prob (spelled as in electra_pytorch):
    probabilities that a masked token becomes a random token, or stays as it is; otherwise it becomes [MASK].
    `MASK_STYLES` has ELECTRA's and BERT's.
    Returns (masked inputs, labels, is_mlm_applied), each (B, L): labels are the original ids of masked tokens and
    ignore_index elsewhere, is_mlm_applied is True for masked tokens.
    """
    maskable = ~is_one_of(inputs, special_token_indices)
    is_mlm_applied = (torch.rand(inputs.shape, device=inputs.device) < mlm_probability) & maskable  # (B, L)
    uniform = torch.rand(inputs.shape, device=inputs.device)
    shows_random = is_mlm_applied & (uniform < replace_prob) if replace_prob else None
    shows_mask = is_mlm_applied & (uniform >= replace_prob + orginal_prob)
    masked_inputs = apply_masks(inputs, shows_mask, shows_random, mask_token_index, vocab_size, special_token_indices)
    return masked_inputs, inputs.masked_fill(~is_mlm_applied, ignore_index), is_mlm_applied


# %% [markdown]
# `masking='official'` follows Google's code: an example has a fixed number of *slots*, 15% of its tokens including
# [CLS] and [SEP], and the position of each slot is drawn independently, with replacement. In three out of four full
# examples of 128 tokens, a position is drawn more than once (F8). Such a token counts more than once in the generator
# loss, and is sampled more than once: the M masked tokens of a batch are then its slots.

# %%
def mask_tokens_official(inputs, mask_token_index, vocab_size, special_token_indices, mlm_probability=.15,
                         replace_prob=0., orginal_prob=.15, ignore_index=-100, pad_token_index=0):
    """Mask tokens as Google's pretrain_helpers.py:mask does (F7-F11); the default shares are its own.

    Arguments and results as in `mask_tokens`, except that is_mlm_applied counts the slots of a position.
    pad_token_index: the id of [PAD], which is not counted as a token.
    special_token_indices: for Google [PAD], [CLS], [SEP] and [MASK], but not [UNK]. Each slot shows [MASK] or not
    independently; where a position has several slots, [MASK] wins.
    """
    most = max_slots(inputs.shape[1], mlm_probability)  # F7
    candidates = ~is_one_of(inputs, special_token_indices)  # (B, L)
    n_candidates = candidates.sum(1, keepdim=True)  # (B, 1)
    n_tokens = (inputs != pad_token_index).sum(1, keepdim=True)
    wanted = (n_tokens * mlm_probability).round().clamp(1, most)  # rounds half to even, as Google's
    is_used = (torch.arange(most, device=inputs.device) < wanted) & (n_candidates > 0)  # (B, most)

    shape = (len(inputs), most)
    # Each slot gets the position of the nth candidate.
    nth = (torch.rand(shape, device=inputs.device) * n_candidates).long()
    positions = torch.searchsorted(candidates.cumsum(1), nth, right=True).clamp(max=inputs.shape[1] - 1)  # (B, most)
    count = lambda slots: torch.zeros_like(inputs).scatter_add(1, positions, slots.long())  # (B, most) -> (B, L)
    uniform = torch.rand(shape, device=inputs.device)
    shows_random = count(is_used & (uniform < replace_prob)) > 0 if replace_prob else None
    shows_mask = count(is_used & (uniform >= replace_prob + orginal_prob)) > 0
    is_mlm_applied = count(is_used)
    masked_inputs = apply_masks(inputs, shows_mask, shows_random, mask_token_index, vocab_size, special_token_indices)
    return masked_inputs, inputs.masked_fill(is_mlm_applied == 0, ignore_index), is_mlm_applied


# %% [markdown]
# `MaskedLMCallback` masks batches in either way, and `build_masking` builds it from a configuration.

# %%
class MaskedLMCallback(Callback):
    """Masks each batch on its device, with new masks every time, before it goes into the model.

    The model's inputs are x = (masked_inputs, sentA_lenths, is_mlm_applied, labels), and the targets y = (labels,).
    masking: `mask_tokens` or `mask_tokens_official`, with its other arguments as keyword arguments.
    PretrainingLearner calls `mask` itself; as a callback it is for other Learners.
    """

    def __init__(
        self,
        mask_tok_id: int,
        special_tok_ids: Sequence[int],
        vocab_size: int,
        ignore_index: int = -100,
        masking: Callable = mask_tokens,
        **kwargs,
    ):
        self.mask_tokens = partial(masking, mask_token_index=mask_tok_id, special_token_indices=special_tok_ids,
                                   vocab_size=vocab_size, ignore_index=ignore_index, **kwargs)

    def before_batch(self):
        self.learn.xb, self.learn.yb = self.mask(*self.xb)

    def mask(self, input_ids, sentA_lenths):
        """(x, y) of a batch, input_ids (B, L), sentA_lenths (B,)."""
        masked_inputs, labels, is_mlm_applied = self.mask_tokens(input_ids)
        return (masked_inputs, sentA_lenths, is_mlm_applied, labels), (labels,)


# %%
def build_masking(c, hf_tokenizer):
    """MaskedLMCallback of a configuration."""
    masking = {"bernoulli": mask_tokens,
               "official": partial(mask_tokens_official, pad_token_index=hf_tokenizer.pad_token_id)}[c.masking]
    replace_prob, orginal_prob = MASK_STYLES[c.electra_mask_style]
    return MaskedLMCallback(hf_tokenizer.mask_token_id, never_masked(hf_tokenizer, c.masking), len(hf_tokenizer),
                            masking=masking, mlm_probability=c.mask_prob, replace_prob=replace_prob,
                            orginal_prob=orginal_prob)


# %% [markdown]
# ## 4. Model and loss
#
# ### Sampling
#
# The generator is a small masked language model. The discriminator does not see its most likely token but a *sample*
# from its output distribution, drawn with the Gumbel-max trick: the argmax of logits plus Gumbel noise is distributed
# as their softmax (F15). The noise is $-\log(-\log u)$ for uniform $u$; `gumbel_like` adds Google's 1e-9 to the
# arguments of both logarithms. No gradient flows back through the sampling (F18).

# %%
def sample(
    logits: Tensor, sampling: str = "fp32_gumbel", temperature: float = 1., disallowed: Tensor | None = None
) -> Tensor:
    """Sample one token id per row from softmax(logits / temperature) (pretrain_helpers.py:sample_from_softmax).

    logits: (M, V), any dtype.   sampling: 'fp32_gumbel', or one of SAMPLERS: 'fp16_gumbel', 'multinomial'.
    disallowed: an id for each row that must not be sampled, (M,), or None.   Returns ids, (M,).
    """
    logits = logits.float()
    if temperature != 1.:
        logits = logits / temperature
    if disallowed is not None:  # Google's code subtracts 1000, which a low temperature would undo
        logits = logits.scatter(1, disallowed[:, None], -torch.inf)
    if sampling == "fp32_gumbel":
        return argmax(logits + gumbel_like(logits))  # as torch.argmax, but faster on a CPU
    return SAMPLERS[sampling](logits)


# %% [markdown]
# ### Weight sharing
#
# Generator and discriminator share their embeddings: tokens, positions, token types, and the LayerNorm after them. The
# generator's output layer is its token embedding matrix again (paper, section 3.2; F24). Nothing else is shared. The
# generator is smaller than the discriminator: a quarter as wide in ELECTRA-Small and Large, a third in Base
# (`_utils/recipes.py: electra_networks`, F26).

# %%
def tie(generator, discriminator=None, tying="embeddings"):
    """Tie the generator's output layer to its token embeddings, and the discriminator's parameters to the generator's.

    tying: 'none'; 'tokens'; 'embeddings'; 'embeddings+projection': also the projection from embedding to hidden size;
    'embeddings+encoder': also all layers; 'all'.
    Raises UserError if the parameters of the two networks do not correspond.
    """
    generator.get_output_embeddings().weight = generator.get_input_embeddings().weight
    if discriminator is not None:
        share_parameters(generator, discriminator, tying)


# %% [markdown]
# ### Both networks
#
# Each network may be of nearly any family in transformers: the generator a masked language model; the discriminator
# ELECTRA's, or a token classifier with two labels.
#
# The generator's output layer is as wide as the vocabulary, and is computed for the masked tokens only, as in Google's
# code (unlike electra_pytorch, D16). The M masked tokens of a batch are its *slots*: each has a position in the
# flattened batch, and a weight, which is 1. On a GPU, or compiled, M is fixed with room to spare so that all batches
# have the same shapes; spare slots have the weight 0.
#
# With official masking, a position that was drawn twice has two slots, so it is predicted and sampled twice. If its
# samples differ, Google's code puts in neither, but the token whose id is the floor of the mean of their ids (F12,
# F19), and so does `fill_slots`.
#
# The model below is the one that trains. `fit_to_device` later exchanges some of its layers, such as attention and
# dropout, for ones that are faster on a device.

# %%
class ELECTRAOutput(NamedTuple):
    """Output of ELECTRAModel. Without a discriminator, `generated`, `disc_logits` and `is_replaced` are None."""
    mlm_gen_logits: Tensor        # (M, V): of the masked tokens, in the order of the batch
    generated: Tensor | None      # (B, L): input ids of the discriminator
    disc_logits: Tensor | None    # (B, L): positive for "replaced"
    is_replaced: Tensor | None    # (B, L), bool
    attention_mask: Tensor        # (B, L), bool: True for tokens, False for padding
    is_mlm_applied: Tensor        # (B, L), bool, or how often each position was drawn
    slots: tuple[Tensor, Tensor]  # `positions` of the masked tokens in the flattened batch, and `weights`, (M,) each
    extra: object = None          # what the loss of another objective needs


# %%
class ELECTRAModel(nn.Module):
    """Generator and discriminator with tied embeddings; one forward pass of replaced token detection.

    generator: any ...ForMaskedLM.
    discriminator: ElectraForPreTraining or any ...ForTokenClassification with two labels, of the same vocabulary. None:
    masked language modelling alone.
    sampling, temperature: as in `sample`.   disallow_correct: never sample the original token.
    tying: what the networks share, as in `tie`.
    """

    def __init__(
        self,
        generator: PreTrainedModel,
        discriminator: PreTrainedModel | None,
        hf_tokenizer: PreTrainedTokenizerBase,
        sampling: str = "fp32_gumbel",
        temperature: float = 1.,
        disallow_correct: bool = False,
        tying: str = "embeddings",
    ):
        super().__init__()
        self.generator, self.discriminator, self.pad_token_id = generator, discriminator, hf_tokenizer.pad_token_id
        self.sampling, self.temperature, self.disallow_correct = sampling, temperature, disallow_correct
        self.n_slots = None  # M is the number of masked tokens; or a function of (B, L), by `fit_to_device`
        tie(generator, discriminator, tying)

    def forward(self, masked_inputs, sentA_lenths, is_mlm_applied, labels):
        """masked_inputs (B, L), sentA_lenths (B,), is_mlm_applied (B, L), labels (B, L) -> ELECTRAOutput."""
        attention_mask = masked_inputs != self.pad_token_id  # (B, L)
        position = torch.arange(masked_inputs.shape[1], device=masked_inputs.device)  # (L,)
        is_in_segment_b = (position >= sentA_lenths[:, None]) & attention_mask  # (B, L)
        token_type_ids = is_in_segment_b.long()  # [CLS] A [SEP] and padding have type 0 (F4)

        slots = masked_slots(is_mlm_applied, self.n_slots)  # M of them
        gen_inputs = inputs_of(self.generator, masked_inputs, attention_mask, token_type_ids)
        # The encoder reads all tokens, the output layer computes the slots only.
        mlm_gen_logits = logits_at(self.generator, gen_inputs, slots.positions)  # (M, V)
        if self.discriminator is None:
            return ELECTRAOutput(mlm_gen_logits, None, None, None, attention_mask, is_mlm_applied, slots)

        with torch.no_grad():
            # The discriminator does not see the masks: its input is the original text with samples at the masked
            # positions (F14).
            originals = torch.where(is_mlm_applied > 0, labels, masked_inputs)  # (B, L)
            disallowed = originals.flatten()[slots.positions] if self.disallow_correct else None  # (M,)
            sampled = sample(mlm_gen_logits, self.sampling, self.temperature, disallowed)  # (M,)
            generated = fill_slots(originals, slots, sampled)  # (B, L)
            # A sample that equals the original token counts as original (F17).
            is_replaced = generated != originals  # (B, L)

        disc_inputs = inputs_of(self.discriminator, generated, attention_mask, token_type_ids)
        disc_logits = self.discriminate(disc_inputs, slots)  # (B, L)
        return ELECTRAOutput(mlm_gen_logits, generated, disc_logits, is_replaced, attention_mask, is_mlm_applied, slots)

    def discriminate(self, disc_inputs, slots):
        """The discriminator's logits of "replaced", (B, L), for its inputs by name. slots: for other objectives."""
        return replaced_logits(self.discriminator(**disc_inputs))

    def counts(self, masked_inputs, sentA_lenths, is_mlm_applied, labels):
        """(masked tokens, tokens) of a batch, () each: the denominators of the two losses."""
        return is_mlm_applied.sum(), (masked_inputs != self.pad_token_id).sum()


# %% [markdown]
# ### Loss
#
# The generator loss is the mean cross-entropy over the masked tokens, including those that stayed visible (F21). The
# discriminator loss is the mean binary cross-entropy over all tokens, including [CLS] and [SEP] (F22). Their sum, the
# latter times 50, is minimized (F20). Unlike in a GAN, the generator is trained by maximum likelihood, not to deceive
# the discriminator, whose gradient reaches it only through the shared embeddings (F18). A sample that equals the
# original counts as original (F17).

# %%
class ELECTRALosses(NamedTuple):
    """The terms of ELECTRALoss, () each, which are logged under these names."""
    gen_loss: torch.Tensor
    disc_loss: torch.Tensor


class ELECTRALoss(nn.Module):
    """loss_weights[0] * generator loss + loss_weights[1] * discriminator loss (run_pretraining.py, F20-F22).

    gen_label_smooth, disc_label_smooth: False, a number, or True for .1. The former is the usual label smoothing; the
    latter raises the labels of original tokens from 0 to that number and leaves those of replaced tokens at 1 (D17).
    """

    def __init__(
        self,
        loss_weights: tuple[float, float] = (1., 50.),
        gen_label_smooth: bool | float = False,
        disc_label_smooth: bool | float = False,
    ):
        super().__init__()
        self.loss_weights = loss_weights
        self.gen_smooth, self.disc_smooth = (
            .1 if smooth is True else float(smooth) for smooth in (gen_label_smooth, disc_label_smooth))

    def forward(self, pred, targ_ids, counts=None, return_losses=False):
        """The loss, (), of a batch or of a micro-batch.

        pred: ELECTRAOutput, or a tuple of its first six fields.   targ_ids: original ids of the masked tokens, (B, L).
        counts: (masked tokens, tokens) of the whole batch, if `pred` is that of a micro-batch: the losses of its
        micro-batches then add up.
        return_losses: return (loss, ELECTRALosses) instead.
        """
        if type(pred) is tuple:
            pred = ELECTRAOutput(*pred, slots=masked_slots(pred[-1]))
        n_masked, n_tokens = counts or (pred.is_mlm_applied.sum(), pred.attention_mask.sum())

        gen_logits, gen_labels = pred.mlm_gen_logits.float(), targ_ids.flatten()[pred.slots.positions]  # (M, V), (M,)
        gen_nll = F.cross_entropy(gen_logits, gen_labels, reduction="none", label_smoothing=self.gen_smooth)  # (M,)
        gen_loss = (gen_nll * pred.slots.weights).sum() / (n_masked + 1e-6)  # 1e-6 as in Google's code

        disc_labels = pred.is_replaced.float().clamp(min=self.disc_smooth)  # (B, L)
        disc_bce = F.binary_cross_entropy_with_logits(pred.disc_logits.float(), disc_labels, reduction="none")  # (B, L)
        disc_loss = (disc_bce * pred.attention_mask.float()).sum() / (n_tokens + 1e-6)

        loss = self.loss_weights[0] * gen_loss + self.loss_weights[1] * disc_loss
        return (loss, ELECTRALosses(gen_loss, disc_loss)) if return_losses else loss


# %% [markdown]
# ### From a configuration
#
# The networks come from a recipe with fresh weights, or from trained networks to continue from. ELECTRA-Small with a
# vocabulary of 30,522 tokens has 14,196,219 parameters, as many as Google's (F27). The models of the paper's other
# objectives derive from `ELECTRAModel` and override what differs (see the appendix); what they do not override, they
# inherit with your edits. Several have losses of their own. Give an edited run another `base_run_name`.

# %%
def build_model(c, hf_tokenizer, trained=None):
    """The model of a configuration: ELECTRAModel, or one that its objective derives from it.

    trained: networks to continue from, or None for fresh weights.
    Fresh weights are Google's, or of normal(0, .02) as Hugging Face's (D3; quickstart and names that end in tiny .05).
    """
    return objective_of(c).build_model(c, hf_tokenizer, ELECTRAModel, trained)


def build_loss(c):
    """The loss function of a configuration, for its objective."""
    return objective_of(c).build_loss(c, ELECTRALoss)


# %% [markdown]
# ## 5. Optimization
#
# ELECTRA clips gradients at global norm 1 (F35), warms up and decays the learning rate *at the same time* (F31), and
# uses Adam without bias correction (F33), with weight decay $\lambda$ on everything but biases and LayerNorms (F34).
# For the gradient $g$ of a parameter $p$:
#
# $$m \leftarrow .9\,m + .1\,g \qquad v \leftarrow .999\,v + .001\,g^2 \qquad
# p \leftarrow p - \eta \left( \frac{m}{\sqrt v + 10^{-6}} + \lambda\,p \right)$$
#
# Without the correction, $m / \sqrt v$ of constant gradients is three times as large at the first step and 6.6 times at
# the twelfth, so the warmup matters more. The code in `_utils/optim.py` calls PyTorch's fused kernel.

# %%
def build_optimizer(
    model: nn.Module, lr: float, bias_correction: bool = False, kind: str = "adam", weight_decay: float = .01
) -> torch.optim.Optimizer:
    """Adam, or lmtuners' LAMB, with ELECTRA's settings.

    The schedule sets lr before each step; the groups keep the proportions of their rates here.
    """
    adam = partial(torch.optim.AdamW, fused=True) if bias_correction else AdamNoBiasCorrection
    optimizer = {"adam": adam, "lamb": Lamb}[kind]
    return optimizer(decay_groups(model.named_parameters(), weight_decay), lr=lr, betas=(.9, .999), eps=1e-6)


# %% [markdown]
# ## 6. Run

# %% [markdown]
# ### The training step
#
# A batch is masked as a whole and goes through both networks in micro-batches. Each loss is divided by the numbers of
# masked tokens and tokens of the whole batch, so losses, gradients and metrics of the micro-batches add up to those of
# the batch, in whatever number of processes. `Gradients` holds the half-precision copies of the weights and adds up the
# gradients of the micro-batches, which `Processes` sums over the processes. With `compile=True` the step is compiled
# and, on a GPU, `masks`, `accumulate` and `update` are replayed as CUDA graphs (`_utils/training/cuda_graph.py` has the
# exceptions). A number of your own that changes between steps, such as a temperature, must then be a tensor that is
# filled in place, because a graph keeps plain numbers. Held-out text goes through `masks` and `forward`, too, in the
# main process only. Masks, dropout and samples depend only on the seed and the numbers of the step and the micro-batch,
# so a resumed run, which keeps its micro-batches, draws the same ones.

# %%
class PretrainingLearner(MicroBatchLearner):
    """fastai's Learner with the training step of ELECTRA. Its attributes are those of MicroBatchLearner."""

    def _do_one_batch(self):
        seed_step(self.seed, self.train_iter)
        masked, counts = self.masks(*self.xb)
        for number, micro_batch in self.processes.own(self.micro_batches(masked)):
            seed_step(self.seed, self.train_iter, number)
            self.accumulate(*micro_batch, *counts)
        self.processes.sum(self.gradients.flat)
        self.gradient_norm = self.update()

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

    def update(self):
        """Clip the gradients of the batch at global norm 1 (F35), and update the weights.

        The weights are not updated if the norm is not finite. Returns the norm, ().
        """
        norm = self.clip_and_update(self.gradients.views, only_finite=True)
        self.gradients.flat.zero_()
        return norm


# %%
def build_learner(c, hf_tokenizer, dls, trained, processes):
    """PretrainingLearner of a configuration whose device, precision and micro_batch are set.

    dls: with the device.   trained: trained networks to continue from, or None for fresh weights.
    """
    set_seed(c.seed)
    model = fit_to_device(build_model(c, hf_tokenizer, trained), c)
    optimizer = build_optimizer(model, c.lr, c.adam_bias_correction, c.optimizer, c.weight_decay_rate)
    return PretrainingLearner(dls, model, build_loss(c), optimizer, build_masking(c, hf_tokenizer), c, processes)


# %% [markdown]
# ### A run
#
# `pretraining_run` checks the configuration first, keeps a second process away from the files, and resumes an
# interrupted run. In `run.training`, metrics are logged, and checkpoints are saved, every few minutes and at the
# milestones.

# %%
def pretrain(c: MyConfig, processes=None) -> PretrainingLearner:
    """Pretrain as described by a completed configuration, or resume that run. Returns the learner.

    Writes checkpoints/pretrain/<run>_<percent>%.pth at the milestones, and to the folder checkpoints/pretrain/<run>/
    the configuration, metrics.jsonl, the logger's files, plots, and the checkpoint to resume from.
    processes: the Processes that train together; None: those that a launcher started.
    Raises UserError before any long work if the configuration, the files or the hardware do not allow the run.
    """
    with pretraining_run(c, pretrain, processes) as run:
        hf_tokenizer, dls = load_data(run.c, run.processes)
        c = run.start(hf_tokenizer, dls)
        learn = build_learner(c, hf_tokenizer, dls, run.networks, run.processes)
        with run.training(learn):
            learn.fit(1)
    return learn


# %%
if __name__ == "__main__":
    learn = pretrain(c)

# %% [markdown]
# ## 7. Results
#
# In the plots, lines are training, and dots held-out text. Dotted lines are the best constant prediction, the same for
# every token. For the generator's loss on hidden tokens, this is the unigram entropy of the text.

# %%
if __name__ == "__main__":
    run = RunFolder(c.base_run_name, c.seed)
    run.report()

# %% [markdown]
# ## Appendix: other objectives
#
# The paper compares ELECTRA with other ways to train the same networks. Each is a file that says in what it differs
# from ELECTRA (`_utils/objectives/base.py: Objective`). $x_t$ is the original token at position $t$ of $n$, $\hat x_t$
# what the second network sees there, $m$ the set of masked positions, $D_t$ the probability that $\hat x_t$ is
# original, and $p_t$ the distribution over tokens of a second masked language model, whose loss has weight 1.
#
# | objective | loss beside $\mathcal L_\mathrm{MLM}$ of the generator | paper |
# |---|---|---|
# | [mlm] | none; the network has the discriminator's architecture | |
# | [electra_15] | $\mathcal L_\mathrm{Disc}$, as a mean over $t \in m$ | 3.5 |
# | [replace_mlm] | $-\frac{1}{\lvert m \rvert} \sum_{t \in m} \log p_t(x_t)$, on samples instead of `[MASK]` | 3.5 |
# | [all_tokens_mlm] | $-\frac1n \sum_t \log \big( D_t [x_t = \hat x_t] + (1 - D_t)\, p_t(x_t) \big)$ | 3.5 |
# | [two_stage] | first none, then only $\mathcal L_\mathrm{Disc}$, from the generator's weights | 3.2 |
# | [adversarial] | $\mathcal L_\mathrm{Disc}$, whose terms at $t \in m$ the generator maximizes | 3.2, F |
# | [electric] | $\mathcal L_\mathrm{Disc}$ of an energy, after a generator of two towers (below) | |
# | [uniform_generator=True] | only $\mathcal L_\mathrm{Disc}$, with replacements drawn uniformly (F88) | |
# | [two_tower_generator=True] | $\mathcal L_\mathrm{Disc}$, after Electric's generator (F101) | |
# | [tying=disentangled] | $\mathcal L_\mathrm{Disc}$ does not train the generator's embeddings (DeBERTaV3) | |
# | [new_generator=True] | none; the generator of a trained discriminator, which stays as it is | |
#
# The first seven are values of the key `objective`. In the adversarial setting the generator does not minimize
# $\mathcal L_\mathrm{MLM}$. The last two are not part of ELECTRA.
#
# Samples have no gradient, so adversarial training follows REINFORCE. With the reward $R_t = -\log$ of the probability
# that the discriminator gives to the correct answer, and a baseline $b_t = -\log \sigma(w^\top h_t)$ on the generator's
# hidden states, which learns by cross-entropy to predict $e^{-R_t}$ and does not train them, this gradient is ascended:
# $$\nabla_{\theta_G}\, \mathbb E \Big[ \frac{1}{\lvert m \rvert} \sum_{t \in m} R_t \Big] \approx
# \frac{1}{\lvert m \rvert} \sum_{t \in m} (R_t - b_t)\, \nabla_{\theta_G} \log p_G(\hat x_t \mid x^\mathrm{masked})$$
#
# Electric ([Clark et al. 2020](https://arxiv.org/abs/2012.08561)) is ELECTRA with a score for texts. Its generator
# needs no `[MASK]`: of two causal transformers, one reads the tokens before $t$ and the other those after it. Together
# they predict $q_t$, trained with $-\log q_t(x_t)$ at all tokens that may be masked. Given the other tokens, $x$ is
# sampled at $t$ with probability $\mu\, q_t(x)$, where $\mu$ is the share of masked tokens, and original with
# probability $(1 - \mu)\, p_t(x)$. The best discriminator therefore has the logit
# $$\log P(\mathrm{sampled} \mid x) - \log P(\mathrm{original} \mid x) =
# -\log p_t(x) + \log q_t(x) + \log \frac{\mu}{1 - \mu}.$$
# Electric's logit is the head's output $E_t(x)$ plus the last two terms, without gradient (F100), so $E_t(x)$ estimates
# $-\log p_t(x)$. This requires that a sample counts as one also if it is the original token. The pseudo-log-likelihood
# of a text follows from one forward pass of the discriminator (`python -m _utils score`):
# $$\sum_t \log p_t(x_t) \approx -\sum_t E_t(x_t)$$
#
# [mlm]: _utils/objectives/mlm.py
# [electra_15]: _utils/objectives/electra_15.py
# [replace_mlm]: _utils/objectives/replace_mlm.py
# [all_tokens_mlm]: _utils/objectives/all_tokens_mlm.py
# [two_stage]: _utils/objectives/two_stage.py
# [adversarial]: _utils/objectives/adversarial.py
# [electric]: _utils/objectives/electric.py
# [uniform_generator=True]: _utils/objectives/uniform.py
# [two_tower_generator=True]: _utils/objectives/electric.py
# [tying=disentangled]: _utils/objectives/disentangled.py
# [new_generator=True]: _utils/objectives/new_generator.py
