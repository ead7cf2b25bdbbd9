"""A new generator for a trained discriminator, which stays as it is, to continue their training afterwards."""
from _utils.errors import UserError
from _utils.networks.build import build_network, shared_modules
from _utils.networks.pretrained import load_discriminator
from _utils.objectives.base import Objective
from _utils.recipes import recipe_of


class NewGenerator(Objective):
    def load_pair(self, c):
        from _utils.objectives.registry import objective_of  # which imports this file
        name, loaded = c.initial_weights, load_discriminator(c.initial_weights, c.size)
        if objective_of(loaded.run).token_score:
            raise UserError(f"The outputs of {name!r} are scores of tokens, not the logits of replaced ones. Choose "
                            "another discriminator.")
        if c.max_length > loaded.length:
            raise UserError(f"max_length={c.max_length} is more than the {loaded.length} tokens for which {name!r} was "
                            f"trained, and new_generator=True trains no positions. Set max_length={loaded.length}.")
        return fresh_generator(c, loaded.network), loaded.network


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
