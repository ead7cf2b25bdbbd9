"""The floating point operations of each recipe's training by the three conventions of counting, and of a step of each
objective beside ELECTRA's: `python -m benchmarks.flops`.
"""
import itertools
from functools import partial

from _utils.objectives.keys import NAMES
from _utils.objectives.kinds import flops_per_token
from _utils.recipes import RECIPES


def google_flops(network, vocab_size, length, predicted, is_dense=True):
    """Operations per token of a forward pass as Google's flops_computation.py counts them (F103): also softmax, dropout
    and LayerNorm.

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
