"""The recipes: the networks and training settings of each system.

Sources: the paper's appendix and Google's configure_pretraining.py (F24-F31) for small, base and large; Google's
released model for small++; lmtuners (facts.md#lmtuners) for the systems with ALBERT and BERT. The learning rates of
finetuning are those of the papers; the default of Google's code is 1e-4, for small too (F40).
"""
import itertools
import os
from contextlib import suppress
from dataclasses import dataclass, replace

# The values of the key `tying`, and the modules that they share.
TYINGS = {
    "none": (),
    "tokens": ("tokens",),
    "embeddings": ("embeddings",),
    "embeddings+projection": ("embeddings", "projection"),
    "embeddings+encoder": ("embeddings", "projection", "encoder"),
    "all": ("embeddings", "projection", "encoder"),
    "disentangled": (),  # objectives/disentangled.py: no parameter is the same object in both networks
}


# The values of the key `masking`, and whether [UNK] may be masked (F9, D2). Their functions are in Pretrain.ipynb.
MASKINGS = {"bernoulli": False, "official": True}
FRESH_WEIGHTS = ("huggingface", "official")  # values of the key `initial_weights`


def is_pair(initial_weights):
    """True for a trained generator and discriminator: a .pth checkpoint, a folder or a hub id. False for fresh
    weights.
    """
    names_a_pair = initial_weights.endswith(".pth") or "discriminator" in initial_weights
    return initial_weights not in FRESH_WEIGHTS and (names_a_pair or os.path.isdir(initial_weights))


@dataclass(frozen=True)
class Network:
    """The shape of one network. `family` is a model_type of transformers: 'electra', 'bert', 'albert' or 'roformer'."""
    family: str
    layers: int
    hidden: int
    heads: int
    intermediate: int
    embedding: int  # projected to `hidden` if it differs (F25); BERT has no projection
    positions: int = 512
    dropout: float = .1

    def config(self, vocab_size, pad_token_id=0, initializer_range=.02):
        """The transformers configuration. All layers of an ALBERT share their weights."""
        from transformers import AutoConfig  # not to read the command line, for which the recipes are needed
        of_family = {} if self.family == "bert" else {"embedding_size": self.embedding}
        return AutoConfig.for_model(
            self.family,
            vocab_size=vocab_size,
            pad_token_id=pad_token_id,
            hidden_size=self.hidden,
            num_hidden_layers=self.layers,
            num_attention_heads=self.heads,
            intermediate_size=self.intermediate,
            max_position_embeddings=self.positions,
            initializer_range=initializer_range,
            hidden_dropout_prob=self.dropout,  # F23
            attention_probs_dropout_prob=self.dropout,
            layer_norm_eps=1e-12,  # F29
            **of_family,
        )


def network_from(config):
    """The Network of a transformers configuration of any family."""
    intermediate = config.hidden_dim if config.model_type == "distilbert" else config.intermediate_size
    return Network(
        config.model_type,
        config.num_hidden_layers,
        config.hidden_size,
        config.num_attention_heads,
        intermediate,
        getattr(config, "embedding_size", config.hidden_size),
    )


@dataclass(frozen=True)
class Recipe:
    """The networks and settings of one system. Lengths are in tokens, `bs` in examples, `lr` is the peak of the
    schedule.

    Without a discriminator, the generator is trained by masked language modelling alone.
    """
    generator: Network
    discriminator: Network | None
    max_length: int
    mask_prob: float
    bs: int
    steps: int
    warmup_steps: int
    lr: float
    glue_lr: float        # finetuning: peak learning rate of the output layer
    layer_decay: float    # finetuning: learning rate of each layer relative to the one above (F37)
    glue_length: int      # finetuning: maximum length
    initializer_range: float = .02  # standard deviation of initial weights
    tying: str = "embeddings"
    electra_mask_style: bool | str = True  # as the configuration key
    disc_weight: float = 50.  # of the discriminator's loss, which is small (F20)
    optimizer: str = "adam"
    schedule: str = "original_linear"

    @property
    def encoder(self):
        """The network to finetune."""
        return self.discriminator or self.generator


def electra(layers, hidden, heads, intermediate, embedding, generator_size, family="electra", dropout=.1):
    """(generator, discriminator) of an ELECTRA.

    The generator's hidden size is that of the discriminator times `generator_size`; its feed-forward layers are four
    times as wide, its attention heads have size 64 (run_pretraining.py:get_generator_config, F26).
    """
    width = round(hidden * generator_size)
    return (Network(family, layers, width, max(1, width // 64), 4 * width, embedding, dropout=dropout),
            Network(family, layers, hidden, heads, intermediate, embedding, dropout=dropout))


# lmtuners (facts.md#lmtuners); all networks have 128 positions.
_BERT = Network("bert", 12, 256, 4, 1024, 256, 128)
_ALBERT = Network("albert", 12, 256, 4, 1024, 128, 128)
_BASELINE = dict(electra_mask_style=False, schedule="separate_linear")
_LMTUNERS = dict(electra_mask_style="always", optimizer="lamb", schedule="separate_linear")
_LMTUNERS_SETTINGS = (128, .15, 512, 500_000, 40_000, 2e-3, 3e-4, .8, 128)
# The quickstart's: minutes on two CPU cores, which the paper's method does not fit into. A discriminator only
# learns once its generator knows more than the frequencies of tokens, and with two networks and weight 50 that takes
# longer: an AUC of .525 on text with random replacements (`_utils/training/damaged_text.py`), and .58 with a generator
# that was trained first. With one encoder for both, as Google's untied_generator=False, and weight 5 it is above .8.
_QUICKSTART = (48, .25, 32, 1_500, 60, 2e-3, 1e-3, .8, 128)
# An ELECTRA for tests and comparisons in minutes. In so few steps the discriminator only gets better than chance with
# short examples, a low learning rate and larger initial weights: .02 * sqrt(768 / 128) scales those of BERT-Base to the
# smaller width.
_TINY = (32, .15, 64, 3_000, 300, 3e-4, 1e-3, .8, 128, .05)
# An ELECTRA to train overnight on a laptop, or in three hours with bf16 arithmetic. Its rotary positions (Su et al.,
# 2021) are not in the paper: with learned ones, networks of this size spend thousands of steps on the frequencies of
# tokens alone (docs/results.md).
_MINI = (64, .15, 64, 37_000, 1_000, 5e-4, 3e-4, .8, 128)
_TINY_BERT = Network("bert", 2, 128, 2, 512, 128)
_TINY_ALBERT = Network("albert", 2, 128, 2, 512, 128)

RECIPES = {
    #                     layers hidden heads interm. embed. gen.   length mask  bs   steps      warmup  lr    GLUE: lr
    # decay length
    "small": Recipe(*electra(12, 256, 4, 1024, 128, 1 / 4), 128, 0.15, 128, 1_000_000, 10_000, 5e-4, 3e-4, 0.8, 128),
    "base": Recipe(*electra(12, 768, 12, 3072, 768, 1 / 3), 512, 0.15, 256, 766_000, 10_000, 2e-4, 1e-4, 0.8, 512),
    "large": Recipe(*electra(24, 1024, 16, 4096, 1024, 1 / 4), 512, 0.25, 2048, 400_000, 10_000, 2e-4, 5e-5, 0.9, 512),
    "small++": Recipe(*electra(12, 256, 4, 1024, 128, 1.0), 512, 0.15, 128, 4_000_000, 10_000, 5e-4, 3e-4, 0.8, 512),
    "tiny": Recipe(*electra(2, 128, 2, 512, 128, 1 / 4), *_TINY),
    "mini": Recipe(*electra(4, 128, 2, 512, 128, 1 / 2, family="roformer"), *_MINI),
    "quickstart": Recipe(
        *electra(4, 128, 2, 512, 128, 1.0, family="roformer", dropout=0.0),
        *_QUICKSTART,
        0.05,
        tying="all",
        disc_weight=5.0,
    ),
    # The baselines of lmtuners, with the settings of its script.
    "bert_small": Recipe(_BERT, None, 128, 0.15, 128, 1_500_000, 10_000, 5e-4, 3e-4, 0.8, 128, **_BASELINE),
    "albert_small": Recipe(_ALBERT, None, 128, 0.15, 128, 1_500_000, 10_000, 5e-4, 3e-4, 0.8, 128, **_BASELINE),
    # The published systems of lmtuners: ALECTRA with 4M parameters and ELECTRA with 17M.
    "alectra_small": Recipe(Network("albert", 3, 256, 1, 1024, 128, 128), _ALBERT, *_LMTUNERS_SETTINGS, **_LMTUNERS),
    "electra_small_lmtuners": Recipe(
        Network("bert", 3, 256, 1, 256, 256, 128), _BERT, *_LMTUNERS_SETTINGS, **_LMTUNERS
    ),
    # For comparing families in minutes, with the settings of tiny.
    "bert_tiny": Recipe(_TINY_BERT, None, *_TINY, electra_mask_style=False),
    "albert_tiny": Recipe(_TINY_ALBERT, None, *_TINY, electra_mask_style=False),
    "alectra_tiny": Recipe(Network("albert", 1, 128, 1, 512, 128), _TINY_ALBERT, *_TINY),
}


def recipe_of(c):
    """The recipe of a configuration, with the generator that generator_hidden_size, generator_layers and tying select
    (F89, F91, F93).
    """
    recipe = RECIPES[c.size]
    generator, encoder = recipe.generator, recipe.encoder
    if c.generator_hidden_size:
        width = round(encoder.hidden * c.generator_hidden_size)
        generator = replace(generator, hidden=width, heads=max(1, width // 64), intermediate=4 * width)
    if c.generator_layers:
        generator = replace(generator, layers=round(encoder.layers * c.generator_layers))
    if c.tying == "none":
        generator = replace(generator, embedding=generator.hidden)
    return replace(recipe, generator=encoder if c.tying == "all" else generator)


def config_from_shapes(shape_of):
    """The ElectraConfig of trained weights, from their shapes.

    shape_of: a function from the name of a parameter of ElectraForMaskedLM or ElectraForPreTraining to its shape;
    KeyError if missing. Attention heads have size 64, as in all models of Google. Settings that do not affect shapes
    are those of `Network.config`.
    """
    vocab_size, embedding = shape_of("electra.embeddings.word_embeddings.weight")
    positions = shape_of("electra.embeddings.position_embeddings.weight")[0]
    intermediate = shape_of("electra.encoder.layer.0.intermediate.dense.weight")[0]
    with suppress(KeyError):
        for layers in itertools.count():
            hidden = shape_of(f"electra.encoder.layer.{layers}.attention.self.query.weight")[0]
    return Network("electra", layers, hidden, max(1, hidden // 64), intermediate, embedding, positions).config(
        vocab_size
    )


def warmup_in_steps(warmup, steps):
    """A number of warmup steps, which may be given as a share of the steps (a float or a fraction)."""
    return warmup if isinstance(warmup, int) else round(warmup * steps)
