"""What training costs: floating point operations of the matrix products (FACTS 14), and memory on a GPU."""

# Bytes for each parameter: the weight, its gradient and Adam's two moments in fp32, and a copy in half precision.
BYTES_PER_PARAMETER = 4 * 4 + 2


def flops_per_token(recipe, vocab_size, length=None, mask_prob=None):
    """Of one training step of a recipe, whose length and share of masks stand in the place of None.

    A multiplication and an addition count as two, and the backward pass as twice the forward one. Layers that share their
    weights compute as often as others; the generator's head runs on the masked positions alone.
    """
    length, mask_prob = length or recipe.max_length, mask_prob or recipe.mask_prob
    products = _of_encoder(recipe.generator, length) + mask_prob * recipe.generator.embedding * (recipe.generator.hidden + vocab_size)
    if recipe.discriminator:
        products += _of_encoder(recipe.discriminator, length) + _of_discriminators_head(recipe.discriminator)
    return 6 * products


def steps_of_equal_compute(recipe, other, steps, vocab_size):
    """Steps in which `other` computes as much as `recipe` in `steps`, both with their own batch and length."""
    of_step = lambda one: flops_per_token(one, vocab_size) * one.bs * one.max_length
    return round(steps * of_step(recipe) / of_step(other))


def _of_encoder(network, length):
    """Multiplications per token: projections and feed-forward layers, attention over all positions."""
    of_layer = 4 * network.hidden ** 2 + 2 * network.hidden * network.intermediate + 2 * length * network.hidden
    projection = network.embedding * network.hidden if network.embedding != network.hidden or network.family == "albert" else 0
    return network.layers * of_layer + projection


def _of_discriminators_head(network):
    return network.hidden * (network.hidden + 1) if network.family == "electra" else 2 * network.hidden

def activation_bytes_per_token(configs, mask_prob, precision):
    """Bytes of tensors that one token keeps for the backward pass on a GPU.

    configs: transformers configurations of the networks, the generator first, whose logits at the masked positions count too.
    Fitted to what a forward pass keeps (tests/test_memory.py); fused attention keeps nothing that grows with the square of the length.
    """
    full, half = (42, 7), (38, 4)  # bytes per unit of the hidden and of the feed-forward layer
    of_hidden, of_intermediate = full if precision == "fp32" else half
    layers = sum(config.num_hidden_layers * (of_hidden * config.hidden_size + of_intermediate * intermediate_size(config))
                 for config in configs)
    return layers + 16 * mask_prob * configs[0].vocab_size


def intermediate_size(config):
    """Width of the feed-forward layer, which some families call otherwise."""
    return getattr(config, "intermediate_size", None) or getattr(config, "hidden_dim", None) or 4 * config.hidden_size
