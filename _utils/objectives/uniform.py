"""Uniform replacements: they are drawn from the vocabulary, and no generator is trained (F88)."""
import torch
from torch import nn

from _utils.objectives.base import AS_DISCRIMINATOR, BY_DETECTION, Objective


class EqualLogits(nn.Module):
    """Stands in for a generator: its logits are zeros."""

    def __init__(self, config):
        super().__init__()
        self.config = config

    def logits_at(self, inputs, positions):
        return torch.zeros(len(positions), self.config.vocab_size, device=positions.device)


class WithoutGenerator:
    """Samples are drawn from equal logits."""

    def __init__(self, *args):
        super().__init__(*args)
        self.generator = EqualLogits(self.generator.config)

    def saved_networks(self):
        return {"discriminator": self.discriminator}


class UniformGenerator(Objective):
    changes = (WithoutGenerator,)
    training = {"discriminator": f"{BY_DETECTION} with uniformly drawn replacements, {AS_DISCRIMINATOR} without a "
                                 "generator"}
