"""Electric, and ELECTRA's own objective with Electric's generator (F98-F102).

Source: Clark et al. 2020, Pre-Training Transformers as Energy-Based Cloze Models.
"""
import math
from typing import NamedTuple

import torch
import torch.nn.functional as F

from _utils.errors import UserError
from _utils.names import find_checkpoint
from _utils.networks.build import share_parameters
from _utils.networks.pretrained import (
    check_trained_together,
    config_of,
    load_discriminator,
    load_weights,
    with_prefix,
)
from _utils.networks.two_towers import TwoTowers
from _utils.objectives.base import AS_DISCRIMINATOR, BY_DETECTION, Objective, WeightedLoss
from _utils.runs.checkpoints import load_pretraining_checkpoint
from _utils.text import never_masked


class ClozeLoss(NamedTuple):
    """The loss of TwoTowers: its sum, (), over the tokens that may be masked, (B, L), bool."""
    total: torch.Tensor
    may_be_masked: torch.Tensor


class WithTwoTowers:
    """The generator is TwoTowers, which predicts each token of the text, in which nothing is hidden (F99).

    The `extra` of the output has its ClozeLoss.
    """
    # Through the shift that wraps around, and what padding sees from the right. So no batch is cut to its longest row.
    reads_padding = True

    def __init__(self, towers, discriminator, hf_tokenizer, *settings):
        super().__init__(towers, discriminator, hf_tokenizer, *settings)
        share_parameters(towers.ltr, towers.rtl, self.c.tying)
        self.never_masked = never_masked(hf_tokenizer, self.c.masking)  # ids of special tokens

    def saved_networks(self):
        return {"towers": self.generator, "discriminator": self.discriminator}

    def counts(self, masked_inputs, sentA_lenths, is_mlm_applied, labels):
        """(tokens that may be masked, tokens) of a batch, () each."""
        return self.may_be_masked(masked_inputs, is_mlm_applied).sum(), (masked_inputs != self.pad_token_id).sum()

    def may_be_masked(self, tokens, is_mlm_applied):
        """(B, L), bool. tokens: with or without masks."""
        special = torch.stack([tokens == i for i in self.never_masked]).any(0)
        return ~special | (is_mlm_applied > 0)

    def forward(self, masked_inputs, sentA_lenths, is_mlm_applied, labels):
        originals = torch.where(is_mlm_applied > 0, labels, masked_inputs)  # (B, L)
        output = super().forward(originals, sentA_lenths, is_mlm_applied, labels)
        is_counted = self.may_be_masked(originals, is_mlm_applied)
        total, self.log_sums = self.generator.cross_entropy(originals, is_counted)
        return output._replace(extra=ClozeLoss(total, is_counted))


class WithEnergy(WithTwoTowers):
    """The discriminator's head is an energy, -log P(token | all other tokens).

    The logit of "sampled" is the energy plus the generator's log-probability of the token that is shown, plus
    the log-odds of being masked. All samples count as such, also those that are the original token (F100).
    """

    def forward(self, *inputs):
        output = super().forward(*inputs)
        log_q = self.generator.log_probabilities(output.generated, self.log_sums)
        log_odds = math.log(self.c.mask_prob / (1 - self.c.mask_prob))
        return output._replace(disc_logits=output.disc_logits + log_q + log_odds,
                               is_replaced=output.is_mlm_applied > 0)


class TwoTowerLoss(WeightedLoss):
    """gen_weight * the cross-entropy of TwoTowers + disc_weight * that of the discriminator.

    The former is taken at all tokens that may be masked, the latter at all tokens.
    """

    def terms(self, pred, targ_ids, n_predicted, n_tokens):
        gen_loss = pred.extra.total / (n_predicted + 1e-6)  # 1e-6 as in Google's code
        is_sampled = pred.is_replaced.float()
        bce = F.binary_cross_entropy_with_logits(pred.disc_logits.float(), is_sampled, reduction="none")
        return gen_loss, (bce * pred.attention_mask.float()).sum() / (n_tokens + 1e-6)

    def counts(self, pred):
        return pred.extra.may_be_masked.sum(), pred.attention_mask.sum()


class TwoTowerGenerator(Objective):
    changes = (WithTwoTowers,)
    training = {"discriminator": f"{BY_DETECTION}, {AS_DISCRIMINATOR} whose generator has two towers"}

    def fresh(self, c, vocab_size, pad_token_id=0):
        generator, discriminator = super().fresh(c, vocab_size, pad_token_id)
        return [TwoTowers(generator.config), discriminator]

    def load_pair(self, c):
        name, towers = c.initial_weights, load_towers(c.initial_weights)
        discriminator = load_discriminator(name, c.size).network
        check_trained_together(towers, discriminator, c.tying, name)
        return towers, discriminator

    def build_loss(self, c, electra_loss):
        return TwoTowerLoss((c.gen_weight, c.disc_weight))


class Electric(TwoTowerGenerator):
    title = "Electric"
    changes = (WithEnergy,)
    token_score = "log P(token | all other tokens), which minus the energy of Electric estimates"
    training = {"discriminator": "as the energy-based cloze model [Electric](https://arxiv.org/abs/2012.08561): minus "
                                 "its logit of a token estimates log P(token | all other tokens)"}


def load_towers(name):
    """The TwoTowers of a checkpoint of pretrain.py. UserError if it has none."""
    path = find_checkpoint(name)
    checkpoint = load_pretraining_checkpoint(path)
    if "towers_config" not in checkpoint:
        raise UserError(f"{name!r} has no generator with two towers. Set initial_weights to a checkpoint that was "
                        "trained with objective=electric or two_tower_generator=True.")
    towers = TwoTowers(config_of(checkpoint, "towers", path))
    load_weights(towers, with_prefix(checkpoint["model"], "towers."), path)
    return towers
