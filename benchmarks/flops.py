"""Floating point operations of training: `python -m benchmarks.flops`.

Of each recipe by the three conventions of counting, and of a step of each objective beside ELECTRA's.
"""
import itertools
from dataclasses import replace
from functools import partial

from _utils.objectives.objective_keys import NAMES, default_name
from _utils.recipes import RECIPES


def forward_flops(network, vocab_size, length, predicted):
    """Floating point operations per token of a forward pass in matrix products, a multiply-add as two operations.

    predicted: share of the tokens for which the network predicts a token; None: it is a discriminator.
    Sharing weights between layers does not save operations.
    """
    h, i, e = network.hidden, network.intermediate, network.embedding
    is_projected = e != h or network.family == "albert"
    head = h * (h + 1 if network.family == "electra" else 2) if predicted is None else predicted * e * (h + vocab_size)
    per_layer = 4 * h ** 2 + 2 * h * i + 2 * length * h
    return 2 * (network.layers * per_layer + is_projected * e * h + head)


def google_flops(network, vocab_size, length, predicted, is_dense=True):
    """Operations per token of a forward pass as Google's flops_computation.py counts them (F103).

    It also counts softmax, dropout and LayerNorm.
    predicted: as in `forward_flops`.   is_dense: count the input embedding as a dense product.
    """
    h, i, e, n = network.hidden, network.intermediate, network.embedding, network.heads
    is_projected = e != h or network.family == "albert"
    per_layer = 8 * h ** 2 + 4 * length * h + 4 * h * i + 9 * i + 10 * length * n + 20 * h + 5
    embedding = 2 * e * (length + 2) + 11 * e + is_projected * (2 * h * e + h) + is_dense * 2 * e * vocab_size
    head = (
        2 * h**2 + 11 * h
        if predicted is None
        else predicted * (2 * e * vocab_size + 2 * h * e + 14 * e + 7 * vocab_size)
    )
    return network.layers * per_layer + embedding + head


# Operations per token of a training step, by objective. The arguments are the recipe, the function `forward` of a
# Network and `predicted`, the share of masked tokens, and the operations of a backward pass in forward passes.


def electra(recipe, forward, mask_prob, backward):
    of_generator = forward(recipe.generator, predicted=mask_prob)
    return (1 + backward) * (of_generator + forward(recipe.discriminator, predicted=None))


def mlm(recipe, forward, mask_prob, backward):
    return (1 + backward) * forward(recipe.encoder, predicted=mask_prob)


def replace_mlm(recipe, forward, mask_prob, backward):
    return two_mlms(recipe, forward, mask_prob, backward, second_share=mask_prob)


def two_mlms(recipe, forward, mask_prob, backward, second_share=1.):
    """second_share: of the tokens that the second network predicts; all of them in All-Tokens MLM."""
    of_generator = forward(recipe.generator, predicted=mask_prob)
    return (1 + backward) * (of_generator + forward(recipe.discriminator, predicted=second_share))


def two_stage(recipe, forward, mask_prob, backward):
    """The second stage, with a frozen generator of the discriminator's size."""
    of_generator = forward(recipe.discriminator, predicted=mask_prob)
    return of_generator + (1 + backward) * forward(recipe.discriminator, predicted=None)


def uniform_generator(recipe, forward, mask_prob, backward):
    return (1 + backward) * forward(recipe.discriminator, predicted=None)


def two_towers(recipe, forward, mask_prob, backward):
    """Two towers at all positions, one of them with the head; its first layer has the width of one tower."""
    of_towers = forward(recipe.generator, predicted=1.) + forward(recipe.generator, predicted=0.)
    return (1 + backward) * (of_towers + forward(recipe.discriminator, predicted=None))


# Other objectives count as ELECTRA.
OF_OBJECTIVES = {"mlm": mlm, "replace_mlm": replace_mlm, "all_tokens_mlm": two_mlms, "two_stage": two_stage,
                 "uniform_generator": uniform_generator, "electric": two_towers, "two_tower_generator": two_towers}


def flops_per_token(recipe, vocab_size, length=None, mask_prob=None, objective=None, count=forward_flops, backward=2):
    """Floating point operations per token of a training step.

    length, mask_prob, objective (a name): None: those of the recipe.
    count: of a forward pass, with the arguments of `forward_flops`.   backward: operations of a backward pass in
    forward passes. Google counts differently (`google_flops`, F103). The generator's head only processes masked
    positions.
    """
    forward = partial(count, vocab_size=vocab_size, length=length or recipe.max_length)
    operations = OF_OBJECTIVES.get(objective or default_name(recipe), electra)
    return operations(recipe, forward, mask_prob or recipe.mask_prob, backward)


def recipe_of_checkpoint(recipe, objective, networks):
    """The recipe with the networks of a checkpoint, {part: Network}. objective: its name."""
    if objective == "mlm":
        return replace(recipe, **networks, discriminator=None)
    if objective in ("replace_mlm", "all_tokens_mlm"):  # the second network is the only one that is saved
        return replace(recipe, discriminator=networks["generator"])
    return replace(recipe, **networks)


# Arguments of `flops_per_token`: its own convention, and Google's, in which a backward pass costs one forward pass.
CONVENTIONS = {"products": {}, "google": dict(count=google_flops, backward=1),
               "google_sparse": dict(count=partial(google_flops, is_dense=False), backward=1)}
VOCAB_SIZE, SMALL = 30_522, 8192


def steps_of_equal_compute(recipe, other, steps, vocab_size, objective=None, **convention):
    """The number of steps in which `other` computes as much as `recipe` in `steps`, with their batch sizes and lengths.

    objective: of `other`, as in `flops_per_token`.   convention: count and backward, as there.
    """
    flops, flops_of_other = (flops_per_token(one, vocab_size, objective=aim, **convention) * one.bs * one.max_length
                             for one, aim in ((recipe, None), (other, objective)))
    return round(steps * flops / flops_of_other)


if __name__ == "__main__":
    print(f"Operations of a training with a vocabulary of {VOCAB_SIZE:,} "
          f"tokens\n{'':24}" + "".join(f"{name:>15}" for name in CONVENTIONS))
    for name, recipe in RECIPES.items():
        n_tokens = recipe.bs * recipe.max_length * recipe.steps
        totals = [flops_per_token(recipe, VOCAB_SIZE, **convention) * n_tokens for convention in CONVENTIONS.values()]
        print(f"{name:24}" + "".join(f"{total:15.3g}" for total in totals))

    sizes = [name for name, recipe in RECIPES.items() if recipe.discriminator]
    print("\nOperations of a step relative to ELECTRA's (products), by size and tokens of the vocabulary"
          f"\n{'':32}" + "".join(f"{name:>16}" for name in NAMES))
    for name, vocab_size in itertools.product(sizes, (VOCAB_SIZE, SMALL)):
        flops = {objective: flops_per_token(RECIPES[name], vocab_size, objective=objective) for objective in NAMES}
        ratios = "".join(f"{of_objective / flops['electra']:16.2f}" for of_objective in flops.values())
        print(f"{name}, {vocab_size:,}".ljust(32) + ratios)
