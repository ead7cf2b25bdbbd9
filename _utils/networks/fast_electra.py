"""Drop-ins for the model of Pretrain.ipynb: the same losses and gradients in less time.

Logits for a vocabulary of 30,522 tokens cost more operations than four layers of the small discriminator. The
generator's head therefore runs on the masked positions only, gathered into M slots (D16). Their number varies from
batch to batch. On a GPU, where a new shape or a number read from the device costs time, M is fixed with room to spare,
and the labels of unused slots are IGNORED.
"""
import math
from typing import NamedTuple

import torch
from torch import nn

from _utils.networks.build import inputs_of, replaced_logits
from _utils.networks.faster_layers import GatheredPositions, pad_vocabulary, set_attention
from _utils.networks.sampling import fast_sample

IGNORED = -100  # F.cross_entropy's ignore_index


def masked_slots(is_mlm_applied, n_slots):
    """Assign masked positions to slots. Returns (positions in the flattened batch (M,), weights (M,): 1 for used slots,
    0 for others).

    is_mlm_applied: (B, L), bool, or the number of slots of each position.   n_slots: M. Masks beyond it get no slot.
    The positions of unused slots do not matter, but differ, because a GPU is slow when many write to one place.
    """
    used_so_far = is_mlm_applied.flatten().cumsum(0)  # slots up to and including each position
    slot = torch.arange(n_slots, device=used_so_far.device)
    is_used = slot < used_so_far[-1]
    positions = torch.where(is_used, torch.searchsorted(used_so_far, slot, right=True), slot)
    return positions, is_used.float()


def fill_slots(tokens, positions, weights, sampled):
    """`tokens` (B, L) with the ids `sampled` (M,) at the positions of used slots (pretrain_helpers.py:scatter_update,
    F12).

    positions, weights: (M,), from `masked_slots`. Several samples at one position are averaged to the floor of their
    mean.
    """
    tokens, shape, is_used = tokens.flatten(), tokens.shape, weights.long()
    times = torch.zeros_like(tokens).scatter_add(0, positions, is_used)
    total = torch.zeros_like(tokens).scatter_add(0, positions, sampled * is_used)
    return torch.where(times > 0, total // times.clamp(min=1), tokens).view(shape)


def slot_capacity(shape, mlm_probability, max_slots=None):
    """Fixed number of slots for a batch of `shape` (B, L): the mean number of masks plus 8 standard deviations.

    max_slots: function of (L, mlm_probability), the largest number in an example; None: masks are independent.
    It is rounded up to a multiple of 64, for which GPUs multiply matrices faster.
    """
    n_tokens = shape[0] * shape[1]
    if max_slots:
        capacity = shape[0] * max_slots(shape[1], mlm_probability)
    else:
        mean = n_tokens * mlm_probability
        capacity = mean + 8 * (mean * (1 - mlm_probability)) ** .5
    return min(n_tokens, 64 * math.ceil(capacity / 64))


class FastOutput(NamedTuple):
    """Output of the drop-ins; the first six fields are those of ELECTRAOutput."""
    mlm_gen_logits: torch.Tensor      # (M, V): of the slots, in the order of the batch
    generated: torch.Tensor | None    # (B, L); None, and the next two: without a discriminator
    disc_logits: torch.Tensor | None  # (B, L); None: the second network predicts tokens only
    is_replaced: torch.Tensor | None  # (B, L), bool
    attention_mask: torch.Tensor      # (B, L), bool, or the positions that count
    is_mlm_applied: torch.Tensor      # (B, L), bool, or the number of slots of each position
    slots: tuple                      # from `masked_slots`
    mlm_logits: torch.Tensor | None = None  # (M, V), or (B * L, V): of a second masked language model
    token_type_ids: torch.Tensor | None = None  # (B, L)
    of_objective: torch.Tensor | tuple | None = None  # what else its loss needs

    def at_masked(self, tokens):
        """The `tokens` (B, L) at the slots, (M,); IGNORED at unused ones."""
        positions, weights = self.slots
        return torch.where(weights.bool(), tokens.flatten()[positions], IGNORED)


class FastMaskedLM(nn.Module):
    """A masked language model that computes vocabulary logits at masked positions only: BERT's objective, and ELECTRA's
    first half.

    generator: any ...ForMaskedLM.   n_slots: function of the shape (B, L) that fixes the number of slots; None: as many
    as masks.
    """

    def __init__(self, generator, hf_tokenizer, n_slots=None):
        super().__init__()
        self.generator, self.pad_token_id, self.n_slots = generator, hf_tokenizer.pad_token_id, n_slots
        self.at_positions = GatheredPositions(generator)
        generator.get_output_embeddings().weight = generator.get_input_embeddings().weight

    def counts(self, masked_inputs, sentA_lenths, is_mlm_applied, labels):
        """(slots, tokens) of a batch, () each: the denominators of the mean losses."""
        return is_mlm_applied.sum(), (masked_inputs != self.pad_token_id).sum()

    def forward(self, masked_inputs, sentA_lenths, is_mlm_applied, labels):
        """masked_inputs (B, L), sentA_lenths (B,), is_mlm_applied (B, L), labels (B, L) -> FastOutput."""
        attention_mask = masked_inputs != self.pad_token_id  # (B, L)
        position = torch.arange(masked_inputs.shape[1], device=masked_inputs.device)  # (L,)
        # [CLS] A [SEP] and padding have type 0 (F4)
        token_type_ids = ((position >= sentA_lenths[:, None]) & attention_mask).long()  # (B, L)
        n_slots = self.n_slots(is_mlm_applied.shape) if self.n_slots else int(is_mlm_applied.sum())
        slots = masked_slots(is_mlm_applied, n_slots)
        mlm_gen_logits = self.generator_logits(masked_inputs, attention_mask, token_type_ids, slots[0])  # (M, V)
        return FastOutput(mlm_gen_logits, None, None, None, attention_mask, is_mlm_applied, slots,
                          token_type_ids=token_type_ids)

    def generator_logits(self, masked_inputs, attention_mask, token_type_ids, positions):
        """The generator's vocabulary logits at `positions` (M,) of the flattened batch, (M, V)."""
        with self.at_positions.only(positions):
            return self.generator(**inputs_of(self.generator, masked_inputs, attention_mask, token_type_ids)).logits[0]


class FastELECTRA(FastMaskedLM):
    """A drop-in for ELECTRAModel, whose networks and settings it takes over.

    electra: ELECTRAModel.   n_slots: as in FastMaskedLM.
    """

    def __init__(self, electra, n_slots=None):
        super().__init__(electra.generator, electra, n_slots)
        self.discriminator, self.sample = electra.discriminator, fast_sample
        vars(self)["plain"] = electra  # not as a submodule, which would list its networks twice
        self.sampling, self.temperature = electra.sampling, electra.temperature
        self.disallow_correct = electra.disallow_correct

    def forward(self, masked_inputs, sentA_lenths, is_mlm_applied, labels):
        """masked_inputs (B, L), sentA_lenths (B,), is_mlm_applied (B, L), labels (B, L) -> FastOutput."""
        output = super().forward(masked_inputs, sentA_lenths, is_mlm_applied, labels)
        positions, weights = output.slots  # (M,), (M,)
        with torch.no_grad():
            originals = torch.where(is_mlm_applied > 0, labels, masked_inputs)  # (B, L)
            disallowed = originals.flatten()[positions] if self.disallow_correct else None
            sampled = self.sample(output.mlm_gen_logits, self.sampling, self.temperature, disallowed)  # (M,)
            generated = fill_slots(originals, positions, weights, sampled)  # (B, L)
            is_replaced = generated != originals
        disc_inputs = inputs_of(self.discriminator, generated, output.attention_mask, output.token_type_ids)
        disc_logits, mlm_logits = self.discriminate(disc_inputs, positions)
        return output._replace(generated=generated, disc_logits=disc_logits, is_replaced=is_replaced,
                               mlm_logits=mlm_logits)

    def discriminate(self, disc_inputs, positions):
        """(disc_logits (B, L), None). Other objectives predict tokens from the same input."""
        return replaced_logits(self.discriminator(**disc_inputs)), None


def prepare_for_gpu(model, networks):
    """Let the networks of a model compute in shapes that are fast on a GPU, without waiting for it."""
    set_attention(model, "sdpa_static")
    for network in networks:
        if network.get_output_embeddings():
            pad_vocabulary(network)
