"""Masked language modelling alone, with the discriminator's architecture.

It is BERT's objective, and the first half of ELECTRA (F92).
"""
import torch.nn.functional as F

from _utils.objectives.base import BY_MASKED_LM, GENERATOR, Objective, WeightedLoss


def masked_lm_loss(logits, pred, targ_ids, n_slots, smooth=0.):
    """Cross-entropy of `logits` (M, V), summed over the slots of `pred` and divided by `n_slots`, ()."""
    labels = targ_ids.flatten()[pred.slots.positions]  # (M,)
    nll = F.cross_entropy(logits.float(), labels, reduction="none", label_smoothing=smooth)
    return (nll * pred.slots.weights).sum() / (n_slots + 1e-6)  # 1e-6 as in Google's code


class MaskedLMLoss(WeightedLoss):
    """gen_weight * the cross-entropy at the masked positions."""

    def terms(self, pred, targ_ids, n_slots, n_tokens):
        return (masked_lm_loss(pred.mlm_gen_logits, pred, targ_ids, n_slots, self.gen_smooth),)


class MaskedLM(Objective):
    networks = (GENERATOR._replace(shape="encoder"),)
    title = "masked language model"
    training = {"generator": BY_MASKED_LM}

    def build_loss(self, c, electra_loss):
        return MaskedLMLoss((c.gen_weight,), c.gen_smooth_label)
