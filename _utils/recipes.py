"""The recipes: one row per system, with its two architectures and the settings it is trained with.

Sources: the paper's appendix and Google's configure_pretraining.py (F24-F31); small++ is Google's released model. The learning
rates of finetuning are the paper's; Google's code has 1e-4 for small too unless told otherwise (F40).
Nothing is fetched to build a model: `electra_configs` makes both configurations from the row.
"""
import itertools
from dataclasses import dataclass

from transformers import ElectraConfig


@dataclass(frozen=True)
class Recipe:
    """Widths and depths in units, lengths in wordpieces, `bs` in examples, `lr` the peak of the schedule."""
    layers: int           # of discriminator and generator alike
    hidden: int           # of the discriminator
    heads: int
    intermediate: int
    embedding: int        # shared by both networks; projected where a network's hidden size differs (F25)
    generator_size: float  # the generator's width as a share of the discriminator's
    max_length: int
    mask_prob: float
    bs: int
    steps: int
    warmup_steps: int
    lr: float
    glue_lr: float        # of finetuning: the peak of its schedule, at the new output layer
    layer_decay: float    # of finetuning: from each layer to the one below (F37)
    glue_length: int      # of finetuning: wordpieces of a sentence or a pair
    initializer_range: float = .02  # standard deviation of fresh weights


RECIPES = {
    #                 layers hidden heads interm. embed. gen.  length mask  bs    steps     warmup  lr    GLUE: lr decay length
    "small":   Recipe(12,    256,   4,    1024,   128,   1/4,  128,   .15,  128,  1_000_000, 10_000, 5e-4, 3e-4, .8, 128),
    "base":    Recipe(12,    768,   12,   3072,   768,   1/3,  512,   .15,  256,    766_000, 10_000, 2e-4, 1e-4, .8, 512),
    "large":   Recipe(24,    1024,  16,   4096,   1024,  1/4,  512,   .25,  2048,   400_000, 10_000, 2e-4, 5e-5, .9, 512),
    "small++": Recipe(12,    256,   4,    1024,   128,   1.0,  512,   .15,  128,  4_000_000, 10_000, 5e-4, 3e-4, .8, 512),
    # Ours, for the quickstart: minutes on two CPU cores. In so few steps the discriminator leaves chance only with short examples,
    # a low learning rate, and weights that are larger because it is narrow: .02 * sqrt(768 / 128), as BERT-Base's to its width.
    "tiny":    Recipe(2,     128,   2,    512,    128,   1/4,  32,    .15,  64,       3_000,    300, 3e-4, 1e-3, .8, 128, .05),
}

# Of every ELECTRA of Google (F23, F29).
_SHARED = dict(layer_norm_eps=1e-12, hidden_dropout_prob=.1, attention_probs_dropout_prob=.1, hidden_act="gelu")


def electra_configs(recipe, vocab_size, pad_token_id=0):
    """Configurations of the generator and the discriminator of a recipe (F24-F29), as transformers.ElectraConfig.

    The generator's width is a share of the discriminator's, its feed-forward layer four times as wide as that,
    its heads 64 wide each (run_pretraining.py:get_generator_config, F26). LayerNorm eps is 1e-12 throughout (F29).
    """
    width = round(recipe.hidden * recipe.generator_size)
    shared = dict(vocab_size=vocab_size, pad_token_id=pad_token_id, embedding_size=recipe.embedding,
                  num_hidden_layers=recipe.layers, max_position_embeddings=512, type_vocab_size=2,
                  initializer_range=recipe.initializer_range, **_SHARED)
    generator = ElectraConfig(hidden_size=width, num_attention_heads=max(1, width // 64), intermediate_size=4 * width, **shared)
    discriminator = ElectraConfig(hidden_size=recipe.hidden, num_attention_heads=recipe.heads,
                                  intermediate_size=recipe.intermediate, **shared)
    return generator, discriminator


def config_from_shapes(shape_of):
    """ElectraConfig of trained weights, told from their shapes.

    shape_of: the name of a parameter of ElectraForMaskedLM or ElectraForPreTraining -> its shape, None where it is not there.
    Heads are 64 wide each, as in all models of Google. What leaves no trace in shapes is as in `electra_configs`.
    Raises KeyError with the name of a parameter that is missing.
    """
    def known(name):
        shape = shape_of(f"electra.{name}")
        if shape is None:
            raise KeyError(f"electra.{name}")
        return shape

    words, width = known("embeddings.word_embeddings.weight")
    hidden = known("encoder.layer.0.attention.self.query.weight")[0]
    layers = next(i for i in itertools.count() if shape_of(f"electra.encoder.layer.{i}.attention.self.query.weight") is None)
    return ElectraConfig(
        vocab_size=words, embedding_size=width, hidden_size=hidden, num_hidden_layers=layers,
        intermediate_size=known("encoder.layer.0.intermediate.dense.weight")[0], num_attention_heads=max(1, hidden // 64),
        max_position_embeddings=known("embeddings.position_embeddings.weight")[0],
        type_vocab_size=known("embeddings.token_type_embeddings.weight")[0], **_SHARED)
