"""A new generator for a trained discriminator, which stays as it is, to continue their training afterwards."""
from _utils.networks.build import build_network, shared_modules
from _utils.networks.pretrained import load_discriminator
from _utils.objectives.base import Objective
from _utils.recipes import recipe_of


class NewGenerator(Objective):
    def load_pair(self, c):
        discriminator = load_discriminator(c.initial_weights, c.size, c.max_length)
        return fresh_generator(c, discriminator), discriminator


def fresh_generator(c, discriminator):
    """A fresh generator for a trained discriminator, with its weights where `tying` shares them.

    Neither these nor the discriminator's others require gradients: it stays as it is while the generator is trained.
    """
    recipe, config = recipe_of(c), discriminator.requires_grad_(False).config
    shape = recipe.generator.config(config.vocab_size, config.pad_token_id, recipe.initializer_range)
    generator = build_network("generator", shape)
    for source, target in shared_modules(generator, discriminator, c.tying):
        source.requires_grad_(False).load_state_dict(target.state_dict())
    return generator
