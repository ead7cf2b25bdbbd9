"""The floating point operations of each recipe's training by the three conventions of counting: `python -m benchmarks.flops`."""
from _utils.recipes import RECIPES, flops_per_token

CONVENTIONS = ("products", "google", "google_sparse")
VOCAB_SIZE = 30_522

if __name__ == "__main__":
    print(f"Operations of a training with a vocabulary of {VOCAB_SIZE:,} tokens\n{'':24}" + "".join(f"{name:>15}" for name in CONVENTIONS))
    for name, recipe in RECIPES.items():
        n_tokens = recipe.bs * recipe.max_length * recipe.steps
        totals = [flops_per_token(recipe, VOCAB_SIZE, convention=convention) * n_tokens for convention in CONVENTIONS]
        print(f"{name:24}" + "".join(f"{total:15.3g}" for total in totals))
