"""The recipes: one row per system, with its networks and the settings it is trained with.

Sources: the paper's appendix and Google's configure_pretraining.py (F24-F31) for small, base and large; small++ is Google's released
model; lmtuners (facts.md#lmtuners) for the ALBERT and BERT systems. The learning rates of finetuning are the papers'; Google's code has
1e-4 for small too unless told otherwise (F40). Nothing is fetched to build a model: `Network.config` makes its configuration.
"""
import itertools
from dataclasses import dataclass

from transformers import AlbertConfig, BertConfig, ElectraConfig

# Of every network here (F23, F29).
_SHARED = dict(layer_norm_eps=1e-12, hidden_dropout_prob=.1, attention_probs_dropout_prob=.1)

# What is tied, by the choice in the configuration.
TYINGS = {"embeddings": ("embeddings",), "embeddings+projection": ("embeddings", "projection"),
          "embeddings+encoder": ("embeddings", "projection", "encoder")}


@dataclass(frozen=True)
class Network:
    """The shape of one network. `family` is a model_type of transformers: 'electra', 'bert' or 'albert'."""
    family: str
    layers: int
    hidden: int
    heads: int
    intermediate: int
    embedding: int  # projected where the hidden size differs (F25); BERT has no projection
    positions: int = 512

    def config(self, vocab_size, pad_token_id=0, initializer_range=.02):
        """Its configuration in transformers. ALBERT's layers share their weights, as one group."""
        shape = dict(vocab_size=vocab_size, pad_token_id=pad_token_id, hidden_size=self.hidden, num_hidden_layers=self.layers,
                     num_attention_heads=self.heads, intermediate_size=self.intermediate, max_position_embeddings=self.positions,
                     type_vocab_size=2, initializer_range=initializer_range, **_SHARED)
        if self.family == "electra":
            return ElectraConfig(embedding_size=self.embedding, **shape)
        if self.family == "albert":
            return AlbertConfig(embedding_size=self.embedding, num_hidden_groups=1, classifier_dropout_prob=.1, **shape)
        return BertConfig(**shape)


@dataclass(frozen=True)
class Recipe:
    """One system. Lengths in wordpieces, `bs` in examples, `lr` the peak of the schedule.

    Where a recipe has no discriminator, its generator is trained by masked language modelling alone.
    """
    generator: Network
    discriminator: Network | None
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
    tying: str = "embeddings"       # of generator and discriminator
    electra_mask_style: bool | str = True  # what a masked token shows, as the key of the configuration
    optimizer: str = "adam"
    schedule: str = "original_linear"

    @property
    def objective(self):
        return "electra" if self.discriminator else "mlm"

    @property
    def encoder(self):
        """The network that is kept for finetuning."""
        return self.discriminator or self.generator


def electra(layers, hidden, heads, intermediate, embedding, generator_size, generator_layers=None):
    """(generator, discriminator) of an ELECTRA.

    The generator's width is a share of the discriminator's, its feed-forward layer four times as wide as that, its heads 64 wide
    each (run_pretraining.py:get_generator_config, F26).
    """
    width = round(hidden * generator_size)
    return (Network("electra", generator_layers or layers, width, max(1, width // 64), 4 * width, embedding),
            Network("electra", layers, hidden, heads, intermediate, embedding))


# lmtuners' (facts.md#lmtuners): all of 128 positions.
_BERT = Network("bert", 12, 256, 4, 1024, 256, 128)
_ALBERT = Network("albert", 12, 256, 4, 1024, 128, 128)
_BASELINE = dict(electra_mask_style=False, schedule="separate_linear")
_LMTUNERS = dict(electra_mask_style="always", optimizer="lamb", schedule="separate_linear")
_LMTUNERS_SETTINGS = (128, .15, 512, 500_000, 40_000, 2e-3, 3e-4, .8, 128)
# Ours, for the quickstart: minutes on two CPU cores. In so few steps the discriminator leaves chance only with short examples, a
# low learning rate, and weights that are larger because it is narrow: .02 * sqrt(768 / 128), as BERT-Base's to its width.
_TINY = (32, .15, 64, 3_000, 300, 3e-4, 1e-3, .8, 128, .05)
_MINI = (64, .15, 64, 5_000, 500, 3e-4, 1e-3, .8, 128, .05)
_TINY_BERT = Network("bert", 2, 128, 2, 512, 128)
_TINY_ALBERT = Network("albert", 2, 128, 2, 512, 128)

RECIPES = {
    #                     layers hidden heads interm. embed. gen.   length mask  bs   steps      warmup  lr    GLUE: lr decay length
    "small":   Recipe(*electra(12, 256,  4,   1024,   128,   1/4),  128,   .15,  128, 1_000_000, 10_000, 5e-4, 3e-4, .8, 128),
    "base":    Recipe(*electra(12, 768,  12,  3072,   768,   1/3),  512,   .15,  256, 766_000,   10_000, 2e-4, 1e-4, .8, 512),
    "large":   Recipe(*electra(24, 1024, 16,  4096,   1024,  1/4),  512,   .25, 2048, 400_000,   10_000, 2e-4, 5e-5, .9, 512),
    "small++": Recipe(*electra(12, 256,  4,   1024,   128,   1.0),  512,   .15,  128, 4_000_000, 10_000, 5e-4, 3e-4, .8, 512),
    "tiny":    Recipe(*electra(2,  128,  2,   512,    128,   1/4),  *_TINY),
    "mini":    Recipe(*electra(4,  128,  2,   512,    128,   1/4),  *_MINI),

    # lmtuners' baselines, with its script's settings.
    "bert_small":   Recipe(_BERT, None,   128, .15, 128, 1_500_000, 10_000, 5e-4, 3e-4, .8, 128, **_BASELINE),
    "albert_small": Recipe(_ALBERT, None, 128, .15, 128, 1_500_000, 10_000, 5e-4, 3e-4, .8, 128, **_BASELINE),
    # Its published systems: the 4M ALECTRA and the 17M ELECTRA.
    "alectra_small":          Recipe(Network("albert", 3, 256, 1, 1024, 128, 128), _ALBERT, *_LMTUNERS_SETTINGS, **_LMTUNERS),
    "electra_small_lmtuners": Recipe(Network("bert", 3, 256, 1, 256, 256, 128), _BERT, *_LMTUNERS_SETTINGS, **_LMTUNERS),
    # Its mixes of both families; the second is its earlier ELECTRA.
    "bert_albert_small": Recipe(Network("bert", 3, 128, 1, 256, 128, 128), _ALBERT, *_LMTUNERS_SETTINGS, **_LMTUNERS),
    "albert_bert_small": Recipe(Network("albert", 2, 256, 2, 256, 256, 128), _BERT, *_LMTUNERS_SETTINGS, **_LMTUNERS),

    # Ours, to compare families in minutes: the quickstart's settings.
    "bert_tiny":    Recipe(_TINY_BERT, None, *_TINY, electra_mask_style=False),
    "albert_tiny":  Recipe(_TINY_ALBERT, None, *_TINY, electra_mask_style=False),
    "alectra_tiny": Recipe(Network("albert", 1, 128, 1, 512, 128), _TINY_ALBERT, *_TINY),
}


def config_from_shapes(shape_of):
    """ElectraConfig of trained weights, told from their shapes.

    shape_of: the name of a parameter of ElectraForMaskedLM or ElectraForPreTraining -> its shape, None where it is not there.
    Heads are 64 wide each, as in all models of Google. What leaves no trace in shapes is as in `Network.config`.
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
        type_vocab_size=known("embeddings.token_type_embeddings.weight")[0], hidden_act="gelu", **_SHARED)


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
