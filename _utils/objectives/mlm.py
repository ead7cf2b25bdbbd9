"""Masked language modelling alone, with the discriminator's architecture.

It is BERT's objective, and the first half of ELECTRA (F92).
"""
from typing import NamedTuple

import torch
import torch.nn.functional as F

from _utils.objectives.base import BY_MASKED_LM, GENERATOR, Objective, WeightedLoss, smoothing


def masked_lm_loss(logits, pred, targ_ids, n_slots, smooth=0.):
    """Cross-entropy of `logits` (M, V), summed over the slots of `pred` and divided by `n_slots`, ()."""
    labels = targ_ids.flatten()[pred.slots.positions]  # (M,)
    nll = F.cross_entropy(logits.float(), labels, reduction="none", label_smoothing=smooth)
    return (nll * pred.slots.weights).sum() / (n_slots + 1e-6)  # 1e-6 as in Google's code


class GeneratorLoss(NamedTuple):
    """The term of the loss of a masked language model."""
    gen_loss: torch.Tensor


class MaskedLMLoss(WeightedLoss):
    """gen_weight * the cross-entropy at the masked positions."""

    def __init__(self, gen_label_smooth=False, gen_weight=1.):
        super().__init__((gen_weight,))
        self.gen_smooth = smoothing(gen_label_smooth)

    def terms(self, pred, targ_ids, n_slots, n_tokens):
        return GeneratorLoss(masked_lm_loss(pred.mlm_gen_logits, pred, targ_ids, n_slots, self.gen_smooth))


class MaskedLM(Objective):
    networks = (GENERATOR._replace(shape="encoder"),)
    title = "masked language model"
    training = {"generator": BY_MASKED_LM}

    def build_loss(self, c, electra_loss):
        return MaskedLMLoss(c.gen_smooth_label, c.gen_weight)
