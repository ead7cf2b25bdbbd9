"""Loss functions of objectives with one or two masked language models. Pretrain.ipynb has ELECTRA's, whose arguments
these share.
"""
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import nn


def smoothing(value):
    """The number that a setting of label smoothing stands for: True is .1, False 0."""
    return .1 if value is True else float(value)


def masked_lm_loss(pred, targ_ids, n_slots, smooth=0., logits=None):
    """Cross-entropy of the generator's logits, or of `logits` (M, V), summed over the used slots and divided by
    `n_slots`, ().
    """
    logits = pred.mlm_gen_logits if logits is None else logits
    nll = F.cross_entropy(logits.float(), pred.at_slots(targ_ids), reduction="none", label_smoothing=smooth)
    return nll.sum() / (n_slots + 1e-6)  # 1e-6 as in Google's code


class GeneratorLoss(NamedTuple):
    """The term of the loss of a masked language model."""
    gen_loss: torch.Tensor


class TwoLosses(NamedTuple):
    """The terms of the loss of a generator and a second masked language model."""
    gen_loss: torch.Tensor
    second_mlm_loss: torch.Tensor


class SecondNetworkLoss(nn.Module):
    """loss_weights[0] * masked_lm_loss of the generator + loss_weights[1] * `second_loss`, which subclasses define."""

    def __init__(self, loss_weights=(1., 1.), gen_label_smooth=False):
        super().__init__()
        self.loss_weights, self.gen_smooth = loss_weights, smoothing(gen_label_smooth)

    def forward(self, pred, targ_ids, counts=None, return_losses=False):
        n_slots, n_tokens = counts or (pred.is_mlm_applied.sum(), pred.attention_mask.sum())
        gen_loss = masked_lm_loss(pred, targ_ids, n_slots, self.gen_smooth)
        second_loss = self.second_loss(pred, targ_ids, n_tokens)
        loss = self.loss_weights[0] * gen_loss + self.loss_weights[1] * second_loss
        return (loss, TwoLosses(gen_loss, second_loss)) if return_losses else loss
