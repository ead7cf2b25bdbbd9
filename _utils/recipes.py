"""The recipes: the networks and training settings of each system.

Sources: the paper's appendix and Google's configure_pretraining.py (F24-F31) for small, base and large; Google's
released model for small++; lmtuners (facts.md#lmtuners) for the systems with ALBERT and BERT. The learning rates of
finetuning are those of the papers; the default of Google's code is 1e-4, for small too (F40).
"""
import itertools
import os
from contextlib import suppress
from dataclasses import dataclass, replace

from _utils.names import is_hub_id

HEAD_SIZE = 64  # of attention heads in all models of Google

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


# The values of the key `masking`, whose functions are in Pretrain.ipynb, and whether [UNK] may be masked (F9, D2).
MAY_MASK_UNKNOWN = {"bernoulli": False, "official": True}
FRESH_WEIGHTS = ("huggingface", "official")  # values of the key `initial_weights`


def is_pair(initial_weights):
    """Whether these are a trained generator and discriminator (.pth checkpoint, folder, hub id), not fresh weights."""
    is_named = initial_weights.endswith(".pth") or "discriminator" in initial_weights or is_hub_id(initial_weights)
    return initial_weights not in FRESH_WEIGHTS and (is_named or os.path.isdir(initial_weights))


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


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """The networks and settings of one system.

    Lengths are in tokens, `bs` in examples; the schedule is multiplied by `lr`. Without a discriminator, the generator
    is trained by masked language modelling alone.
    """
    generator: Network
    discriminator: Network | None = None
    max_length: int
    mask_prob: float
    bs: int
    steps: int
    warmup_steps: int
    lr: float
    glue_lr: float  # finetuning: learning rate of the output layer
    layer_decay: float = .8  # finetuning: learning rate of each layer relative to the one above (F37)
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


def electra_networks(generator_size, family="electra", **sizes):
    """{'generator': Network, 'discriminator': Network} of an ELECTRA, whose discriminator has these sizes.

    The generator's hidden size is that of the discriminator times `generator_size`.
    """
    discriminator = Network(family=family, **sizes)
    return {"generator": with_width(discriminator, discriminator.hidden * generator_size),
            "discriminator": discriminator}


def with_width(network, hidden):
    """A Network with another hidden size, rounded, in the proportions of Google's generators.

    Feed-forward layers are four times as wide, attention heads have HEAD_SIZE (run_pretraining.py:get_generator_config,
    F26).
    """
    hidden = round(hidden)
    return replace(network, hidden=hidden, heads=max(1, hidden // HEAD_SIZE), intermediate=4 * hidden)


# Sizes that several systems have.
_SMALL = dict(layers=12, hidden=256, heads=4, intermediate=1024, embedding=128)
_NARROW = dict(hidden=128, heads=2, intermediate=512, embedding=128)
# lmtuners (facts.md#lmtuners); all networks have 128 positions.
_ALBERT = Network("albert", **_SMALL, positions=128)
_BERT = replace(_ALBERT, family="bert", embedding=256)
_BASELINE = dict(
    max_length=128, mask_prob=.15, bs=128, steps=1_500_000, warmup_steps=10_000, lr=5e-4,
    glue_lr=3e-4,
    electra_mask_style=False, optimizer="lamb", schedule="separate_linear",
)
_LMTUNERS = _BASELINE | dict(bs=512, steps=500_000, warmup_steps=40_000, lr=2e-3, electra_mask_style="always")
# Settings of an ELECTRA for tests and comparisons in minutes. In so few steps the discriminator only gets better than
# chance with short examples, a low learning rate and larger initial weights: .02 * sqrt(768 / 128) scales those of
# BERT-Base to the smaller width.
_TINY = dict(
    max_length=32, mask_prob=.15, bs=64, steps=3_000, warmup_steps=300, lr=3e-4,
    glue_lr=1e-3,
    initializer_range=.05,
)
_TINY_BERT = Network("bert", layers=2, **_NARROW)
_TINY_ALBERT = replace(_TINY_BERT, family="albert")

RECIPES = {
    # The paper's, and Google's released model.
    "small": Recipe(
        **electra_networks(1 / 4, **_SMALL),
        max_length=128, mask_prob=.15, bs=128, steps=1_000_000, warmup_steps=10_000, lr=5e-4,
        glue_lr=3e-4,
    ),
    "base": Recipe(
        **electra_networks(1 / 3, layers=12, hidden=768, heads=12, intermediate=3072, embedding=768),
        max_length=512, mask_prob=.15, bs=256, steps=766_000, warmup_steps=10_000, lr=2e-4,
        glue_lr=1e-4,
    ),
    "large": Recipe(
        **electra_networks(1 / 4, layers=24, hidden=1024, heads=16, intermediate=4096, embedding=1024),
        max_length=512, mask_prob=.25, bs=2048, steps=400_000, warmup_steps=10_000, lr=2e-4,
        glue_lr=5e-5, layer_decay=.9,
    ),
    "small++": Recipe(
        **electra_networks(1, **_SMALL),
        max_length=512, mask_prob=.15, bs=128, steps=4_000_000, warmup_steps=10_000, lr=5e-4,
        glue_lr=3e-4,
    ),
    "tiny": Recipe(**electra_networks(1 / 4, layers=2, **_NARROW), **_TINY),
    # An ELECTRA to train overnight on a laptop, or in three hours with bf16 arithmetic. Its rotary positions (Su et
    # al., 2021) are not in the paper: with learned ones, networks of this size spend thousands of steps on the
    # frequencies of tokens alone (docs/log.md).
    "mini": Recipe(
        **electra_networks(1 / 2, "roformer", layers=4, **_NARROW),
        max_length=64, mask_prob=.15, bs=64, steps=37_000, warmup_steps=1_000, lr=5e-4,
        glue_lr=3e-4,
    ),
    # Minutes on two CPU cores, which the paper's method does not fit into. A discriminator only learns once its
    # generator knows more than the frequencies of tokens, and with two networks and weight 50 that takes longer: an AUC
    # of .525 on text with random replacements (`_utils/training/corrupted_text.py`), and .58 with a generator that was
    # trained first. With one encoder for both, as Google's untied_generator=False, and weight 5 it is above .8.
    "quickstart": Recipe(
        **electra_networks(1, "roformer", layers=4, **_NARROW, dropout=0.),
        max_length=48, mask_prob=.25, bs=32, steps=1_500, warmup_steps=60, lr=2e-3,
        glue_lr=1e-3,
        initializer_range=.05, tying="all", disc_weight=5.,
    ),
    # The baselines of lmtuners, with the settings of its script.
    "bert_small": Recipe(generator=_BERT, **_BASELINE),
    "albert_small": Recipe(generator=_ALBERT, **_BASELINE),
    # The published systems of lmtuners: ALECTRA with 4M parameters and ELECTRA with 17M.
    "alectra_small": Recipe(generator=replace(_ALBERT, layers=3, heads=1), discriminator=_ALBERT, **_LMTUNERS),
    "electra_small_lmtuners": Recipe(
        generator=replace(_BERT, layers=3, heads=1, intermediate=256), discriminator=_BERT, **_LMTUNERS
    ),
    # For comparing families in minutes.
    "bert_tiny": Recipe(generator=_TINY_BERT, **_TINY, electra_mask_style=False),
    "albert_tiny": Recipe(generator=_TINY_ALBERT, **_TINY, electra_mask_style=False),
    "alectra_tiny": Recipe(
        generator=replace(_TINY_ALBERT, layers=1, heads=1), discriminator=_TINY_ALBERT, **_TINY
    ),
}


def recipe_of(c):
    """The recipe of a configuration, with the generator that its keys select (F89, F91, F93)."""
    recipe = RECIPES[c.size]
    generator, encoder = recipe.generator, recipe.encoder
    if c.generator_hidden_size:
        generator = with_width(generator, encoder.hidden * c.generator_hidden_size)
    if c.generator_layers:
        generator = replace(generator, layers=max(1, round(encoder.layers * c.generator_layers)))
    if c.tying == "none":
        generator = replace(generator, embedding=generator.hidden)
    return replace(recipe, generator=encoder if c.tying == "all" else generator)


def config_from_shapes(shape_of):
    """The ElectraConfig of trained weights, from their shapes.

    shape_of: from the name of a parameter of ElectraForMaskedLM or ElectraForPreTraining to its shape; KeyError if it
    is missing. Attention heads have HEAD_SIZE. Settings that do not affect shapes are those of
    `Network.config`.
    """
    vocab_size, embedding = shape_of("electra.embeddings.word_embeddings.weight")
    positions = shape_of("electra.embeddings.position_embeddings.weight")[0]
    intermediate = shape_of("electra.encoder.layer.0.intermediate.dense.weight")[0]
    with suppress(KeyError):
        for layers in itertools.count():
            hidden = shape_of(f"electra.encoder.layer.{layers}.attention.self.query.weight")[0]
    heads = max(1, hidden // HEAD_SIZE)
    return Network("electra", layers, hidden, heads, intermediate, embedding, positions).config(vocab_size)


def warmup_in_steps(warmup, steps):
    """A number of warmup steps, which may be given as a share of the steps (a float or a fraction)."""
    return warmup if isinstance(warmup, int) else round(warmup * steps)
