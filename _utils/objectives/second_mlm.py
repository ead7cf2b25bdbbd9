"""Base classes of Replace MLM and All-Tokens MLM, whose second network is a masked language model."""
from typing import NamedTuple

import torch

from _utils.networks.faster_layers import logits_at
from _utils.objectives.base import DISCRIMINATOR, GENERATOR, Objective, WeightedLoss
from _utils.objectives.mlm import masked_lm_loss


class PredictsTokens:
    """The second network is a masked language model, whose input is that of ELECTRA's discriminator.

    The `extra` of the output has its logits, (M, V).
    """

    def __init__(self, *args):
        super().__init__(*args)
        self.discriminator.get_output_embeddings().weight = self.discriminator.get_input_embeddings().weight

    def saved_networks(self):
        """The second network, which is to be finetuned, as the masked language model that it is."""
        return {"generator": self.discriminator}

    def discriminate(self, disc_inputs, slots):
        """None: there is no discriminator."""
        self.mlm_logits = logits_at(self.discriminator, disc_inputs, slots.positions)

    def forward(self, *inputs):
        output = super().forward(*inputs)
        logits, self.mlm_logits = self.mlm_logits, None  # not kept until the next step: up to (B * L, V)
        return output._replace(extra=logits)


class TwoLosses(NamedTuple):
    """The terms of the loss of a generator and a second masked language model."""
    gen_loss: torch.Tensor
    second_mlm_loss: torch.Tensor


class SecondNetworkLoss(WeightedLoss):
    """loss_weights[0] * masked_lm_loss of the generator + loss_weights[1] * `second_loss`, which subclasses define."""

    def terms(self, pred, targ_ids, n_slots, n_tokens):
        gen_loss = masked_lm_loss(pred.mlm_gen_logits, pred, targ_ids, n_slots, self.gen_smooth)
        return TwoLosses(gen_loss, self.second_loss(pred, targ_ids, n_tokens))


class SecondMLM(Objective):
    """The base class of both objectives. A subclass has `loss`, a SecondNetworkLoss."""
    fills_masks = False
    networks = (GENERATOR, DISCRIMINATOR._replace(part="generator"))

    def build_loss(self, c, electra_loss):
        return self.loss((c.gen_weight, c.disc_weight), c.gen_smooth_label)
