"""Uniform replacements: they are drawn from the vocabulary, and no generator is trained (F88)."""
import torch

from _utils.networks.fast_electra import FastELECTRA
from _utils.objectives.base import AS_DISCRIMINATOR, DETECTION, Objective
from _utils.objectives.keys import UniformGeneratorKeys


class UniformModel(FastELECTRA):
    """ELECTRAModel without a generator: its logits are zeros."""

    def __init__(self, *args):
        super().__init__(*args)
        self.vocab_size = self.generator.config.vocab_size
        del self.generator

    def generator_logits(self, masked_inputs, attention_mask, token_type_ids, positions):
        return torch.zeros(len(positions), self.vocab_size, device=positions.device)


class UniformGenerator(UniformGeneratorKeys, Objective):
    drop_in = UniformModel
    training = {"discriminator": f"{DETECTION} with uniformly drawn replacements, {AS_DISCRIMINATOR} without a "
                                 "generator"}
