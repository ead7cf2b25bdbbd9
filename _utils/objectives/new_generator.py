"""A new generator for a trained discriminator, which stays as it is, to continue their training afterwards."""
from _utils.errors import UserError
from _utils.networks.build import build_network, shared_modules
from _utils.networks.pretrained import load_discriminator
from _utils.objectives.base import Objective
from _utils.recipes import is_pair, recipe_of


class NewGenerator(Objective):
    selected_by = "new_generator", True
    pair_lr_divisor = 1
    of_pair = ("generator", "discriminator")  # a new generator may have another size than the recipe's

    def check(self, c):
        super().check(c)
        if not is_pair(c.initial_weights):
            raise UserError("new_generator=True trains a generator for a trained discriminator, but "
                            f"initial_weights={c.initial_weights!r} is not one. Set initial_weights to one, or leave "
                            "new_generator out.")
        if c.vocab != c.initial_weights:
            raise UserError(f"new_generator=True keeps the vocabulary of initial_weights={c.initial_weights!r}, which "
                            f"vocab={c.vocab!r} contradicts. Remove vocab.")

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
