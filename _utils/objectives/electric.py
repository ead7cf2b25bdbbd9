"""Electric (Clark et al. 2020, Pre-Training Transformers as Energy-Based Cloze Models), and ELECTRA's own objective
with Electric's generator (F98-F102).
"""
import math
from typing import NamedTuple

import torch
import torch.nn.functional as F

from _utils.errors import UserError
from _utils.names import find_checkpoint
from _utils.networks.build import share_parameters, shared_modules
from _utils.networks.fast_electra import FastELECTRA
from _utils.networks.pretrained import (
    check_trained_together,
    config_of,
    load_discriminator,
    load_weights,
    with_prefix,
)
from _utils.networks.two_towers import TwoTowers, cross_entropy_everywhere
from _utils.objectives.base import AS_DISCRIMINATOR, DETECTION, Objective, WeightedLoss
from _utils.objectives.keys import ElectricKeys, TwoTowerKeys
from _utils.runs.checkpoints import load_pretraining_checkpoint
from _utils.text import never_masked


class ClozeLoss(NamedTuple):
    """The loss of TwoTowers: its sum, (), over the tokens that may be masked, (B, L), bool."""
    total: torch.Tensor
    may_be_masked: torch.Tensor


class TwoTowerModel(FastELECTRA):
    """ELECTRAModel with TwoTowers as the generator: it predicts each token of the text, in which nothing is hidden.

    never_masked: the ids of special tokens, set by the objective.
    """
    reads_padding = True  # through the shift that wraps around, and what padding sees from the right
    never_masked = ()

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
        """As FastELECTRA; the loss of the generator is that of all tokens that may be masked (F99)."""
        originals = torch.where(is_mlm_applied > 0, labels, masked_inputs)  # (B, L)
        self.is_counted = self.may_be_masked(originals, is_mlm_applied)
        output = super().forward(originals, sentA_lenths, is_mlm_applied, labels)
        return output._replace(of_objective=ClozeLoss(self.cloze_total, self.is_counted))

    def generator_logits(self, originals, attention_mask, token_type_ids, positions):
        """As FastMaskedLM, without gradient: the loss is that of all positions."""
        states = self.generator(originals, attention_mask, token_type_ids).flatten(0, 1)  # (B * L, E)
        output_layer, self.states = self.generator.get_output_embeddings(), states.detach()
        self.cloze_total, self.log_sums = cross_entropy_everywhere(
            states, output_layer.weight, output_layer.bias, originals.flatten(), self.is_counted.flatten().float()
        )
        with torch.no_grad():
            return output_layer(self.states[positions])

    @torch.no_grad()
    def log_q(self, tokens):
        """Log-probabilities, by the generator, of `tokens` (B, L), given the original ones around them, (B, L)."""
        output_layer, ids = self.generator.get_output_embeddings(), tokens.flatten()
        logits = (self.states.float() * output_layer.weight[ids]).sum(-1) + output_layer.bias[ids]
        return (logits - self.log_sums).view(tokens.shape)


class ElectricModel(TwoTowerModel):
    """The discriminator's head is an energy, -log P(token | all other tokens): the logit of "sampled" is the energy
    plus the generator's log-probability of the token that is shown, plus `log_odds` (F100).

    log_odds: of being masked, set by the objective.
    """
    log_odds = 0.

    def discriminate(self, disc_inputs, positions):
        head, _ = super().discriminate(disc_inputs, positions)
        return head + self.log_q(disc_inputs["input_ids"]) + self.log_odds, None

    def forward(self, *inputs):
        """All samples count as such, also those that are the original token (F100)."""
        output = super().forward(*inputs)
        return output._replace(is_replaced=output.is_mlm_applied > 0)


class TwoTowerLoss(WeightedLoss):
    """gen_weight * the cross-entropy of TwoTowers at all tokens that may be masked + disc_weight * that of the
    discriminator at all tokens.
    """

    def terms(self, pred, targ_ids, n_predicted, n_tokens):
        gen_loss = pred.of_objective.total / (n_predicted + 1e-6)  # 1e-6 as in Google's code
        is_sampled = pred.is_replaced.float()
        bce = F.binary_cross_entropy_with_logits(pred.disc_logits.float(), is_sampled, reduction="none")
        return gen_loss, (bce * pred.attention_mask.float()).sum() / (n_tokens + 1e-6)

    def counts(self, pred):
        return pred.of_objective.may_be_masked.sum(), pred.attention_mask.sum()


class TwoTowerGenerator(TwoTowerKeys, Objective):
    drop_in = TwoTowerModel
    training = {"discriminator": f"{DETECTION}, {AS_DISCRIMINATOR} whose generator has two towers"}

    def fresh(self, c, vocab_size, pad_token_id=0):
        generator, discriminator = super().fresh(c, vocab_size, pad_token_id)
        return [TwoTowers(generator.config), discriminator]

    def load_pair(self, c):
        name, towers = c.initial_weights, load_towers(c.initial_weights)
        discriminator = load_discriminator(name, c.size, c.max_length)
        check_trained_together(towers, discriminator, c.tying, name)
        return towers, discriminator

    def make_model(self, c, networks, hf_tokenizer, plain_model, n_slots=None):
        model, towers = super().make_model(c, networks, hf_tokenizer, plain_model, n_slots), networks[0]
        for source, target in shared_modules(towers.ltr, towers.rtl, c.tying):
            share_parameters(source, target)
        model.never_masked = never_masked(hf_tokenizer, c.masking)
        model.log_odds = math.log(c.mask_prob / (1 - c.mask_prob))
        return model

    def make_loss(self, c, electra_loss):
        return TwoTowerLoss((c.gen_weight, c.disc_weight))


class Electric(ElectricKeys, TwoTowerGenerator):
    title = "Electric"
    drop_in = ElectricModel
    minus_logit = "log P(token | all other tokens), which minus the energy of Electric estimates"
    training = {"discriminator": "as the energy-based cloze model [Electric](https://arxiv.org/abs/2012.08561): minus "
                                 "its logit of a token estimates log P(token | all other tokens)"}

    def score_in_pairs(self, logits):
        return -logits


def load_towers(name):
    """The TwoTowers of a checkpoint of pretrain.py. UserError if it has none, as all folders."""
    path = find_checkpoint(name)
    checkpoint = load_pretraining_checkpoint(path)
    if "towers_config" not in checkpoint:
        raise UserError(f"{name!r} has no generator with two towers. Set initial_weights to a checkpoint that was "
                        "trained with objective=electric or two_tower_generator=True.")
    towers = TwoTowers(config_of(checkpoint, "towers", path))
    load_weights(towers, with_prefix(checkpoint["model"], "towers."), path)
    return towers
