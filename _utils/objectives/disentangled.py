"""DeBERTaV3's gradient-disentangled embedding sharing (He et al. 2021, section 3.3); not part of ELECTRA.

With `tying='disentangled'`, the discriminator's token embeddings are the generator's, without gradient, plus a table.
"""
import copy

import torch.nn.functional as F

from _utils.networks.build import shared_modules
from _utils.objectives.base import Objective


class DisentangledEmbeddings:
    """The discriminator's token embeddings are those of the generator, without gradient, plus a table of its own."""

    def __init__(self, *args):
        super().__init__(*args)
        own, shared = self.discriminator.get_input_embeddings(), self.generator.get_input_embeddings()
        own.weight.data -= shared.weight.data  # zero, or the difference of trained networks
        own.register_forward_hook(lambda _, inputs, output: output + F.embedding(inputs[0], shared.weight.detach()))

    def saved_networks(self):
        merged = copy.deepcopy(self.discriminator)
        table = merged.get_input_embeddings()
        table._forward_hooks.clear()
        table.weight.data += self.generator.get_input_embeddings().weight.data
        return {"generator": self.generator, "discriminator": merged}


class Disentangled(Objective):
    changes = (DisentangledEmbeddings,)

    def fresh(self, c, vocab_size, pad_token_id=0):
        generator, discriminator = super().fresh(c, vocab_size, pad_token_id)
        shared_modules(generator, discriminator, "tokens")  # tables of the same size
        discriminator.get_input_embeddings().load_state_dict(generator.get_input_embeddings().state_dict())
        return [generator, discriminator]
