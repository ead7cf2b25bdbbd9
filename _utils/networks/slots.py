"""The masked positions of a batch as slots, whose number M may be fixed.

On a GPU a new shape, or a number read from the device, costs time, so M is fixed with room to spare. A slot that is not
used repeats one that is, with the weight 0, so that every slot has a valid position, label and sample.
"""
import math
from typing import NamedTuple

import torch


class Slots(NamedTuple):
    """Masked positions, in the order of the batch; twice where a position was drawn twice (F8)."""
    positions: torch.Tensor  # (M,): in the flattened batch
    weights: torch.Tensor    # (M,): 1, or 0 for an unused slot


def masked_slots(is_mlm_applied, n_slots=None):
    """The Slots of a batch.

    is_mlm_applied: (B, L), bool, or how often each position was drawn.   n_slots: function of the shape (B, L) that
    fixes M; masks beyond it get no slot. None: as many slots as masks.
    """
    used_so_far = is_mlm_applied.flatten().cumsum(0)  # slots up to and including each position
    n_used = used_so_far[-1]
    slot = torch.arange(n_slots(is_mlm_applied.shape) if n_slots else int(n_used), device=used_so_far.device)
    if not n_slots:
        return Slots(torch.searchsorted(used_so_far, slot, right=True), torch.ones(len(slot), device=slot.device))
    repeated = slot % n_used.clamp(min=1)
    # A batch without masks has no position to repeat: the last one, then.
    positions = torch.searchsorted(used_so_far, repeated, right=True).clamp(max=len(used_so_far) - 1)
    return Slots(positions, (slot < n_used).float())


def fill_slots(tokens, slots, sampled):
    """`tokens` (B, L) with the ids `sampled` (M,) at the positions of the slots.

    Several samples at one position become the floor of the mean of their ids (pretrain_helpers.py:scatter_update, F12).
    """
    tokens, shape, is_used = tokens.flatten(), tokens.shape, slots.weights.long()
    times = torch.zeros_like(tokens).scatter_add(0, slots.positions, is_used)
    total = torch.zeros_like(tokens).scatter_add(0, slots.positions, sampled * is_used)
    return torch.where(times > 0, total // times.clamp(min=1), tokens).view(shape)


def max_slots(length, mlm_probability):
    """Largest number of slots in an example of `length` tokens with masking='official'.

    Source: configure_pretraining.py:max_predictions_per_seq (F7).
    """
    return max(1, int((mlm_probability + .005) * length))


def slot_capacity(shape, mlm_probability, masking="bernoulli"):
    """A number of slots that a batch of `shape` (B, L) does not exceed, rounded up to a multiple of 64.

    GPUs multiply matrices of such sizes faster. With independent masks it is their mean plus 8 standard deviations.
    """
    n_tokens = shape[0] * shape[1]
    if masking == "official":
        capacity = shape[0] * max_slots(shape[1], mlm_probability)
    else:
        mean = n_tokens * mlm_probability
        capacity = mean + 8 * (mean * (1 - mlm_probability)) ** .5
    return min(n_tokens, 64 * math.ceil(capacity / 64))
