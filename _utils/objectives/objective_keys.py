"""What each objective means for the keys of a configuration: a table, which is read before PyTorch is imported."""
from collections.abc import Callable
from dataclasses import dataclass

from _utils.errors import UserError
from _utils.recipes import RECIPES, TYINGS, is_pair

# Checks of a complete configuration, c, which raise UserError.


def has_discriminator(c):
    """Check that there is a second network to train."""
    if not (c.discriminator or RECIPES[c.size].discriminator):
        raise UserError(f"size={c.size} has no discriminator, but objective={c.objective!r} requires one. "
                        "Choose another size or, for fresh weights, set discriminator.")


def has_second_stage(c):
    """Check that the first of two stages does not take all steps."""
    if c.two_stage_steps >= c.steps:
        raise UserError(f"two_stage_steps={c.two_stage_steps} requires more steps in all (steps={c.steps}).")


def keeps_vocabulary(c):
    """Check that trained networks to continue from keep their vocabulary."""
    if is_pair(c.initial_weights) and c.vocab != c.initial_weights:
        raise UserError(f"A new generator and two towers keep the vocabulary of initial_weights={c.initial_weights!r}, "
                        f"which vocab={c.vocab!r} contradicts. Remove vocab.")


def keeps_discriminator(c):
    """Check that there is a trained discriminator for a new generator."""
    if not is_pair(c.initial_weights):
        raise UserError("new_generator=True trains a generator for a trained discriminator, but "
                        f"initial_weights={c.initial_weights!r} is not one. Set initial_weights to one, or leave "
                        "new_generator out.")


def samples_exactly(c):
    """Check that samples are of the generator's own distribution."""
    if c.sampling == "fp16_gumbel":
        raise UserError("sampling='fp16_gumbel' does not draw from the generator's distribution, as "
                        f"objective={c.objective!r} requires. Leave it out, or set sampling=multinomial.")


def keeps_towers(c):
    """Check that no encoder is shared, and that initial_weights can have two towers."""
    if "encoder" in TYINGS[c.tying]:
        raise UserError(f"tying={c.tying!r} shares an encoder, but each of the two towers reads in one direction "
                        "only. Set tying to embeddings, tokens or none.")
    if is_pair(c.initial_weights) and not c.initial_weights.endswith(".pth"):
        raise UserError(f"initial_weights={c.initial_weights!r} has no generator with two towers, which only "
                        "checkpoints (.pth) of pretrain.py contain. Set it to one that was trained with "
                        "objective=electric or two_tower_generator=True.")


@dataclass(frozen=True)
class ObjectiveKeys:
    """What an objective means for the keys of a configuration, c."""
    selected_by: tuple  # the key and its value that select it
    unused: tuple = ()  # keys that have no effect
    own_keys: tuple = ()  # keys that have no effect with any other objective
    contradicting: tuple = ()  # keys whose other values would change what the objective is
    # {key: value for None} where it is not the recipe's; a trained pair sets tying, masking and mask_prob before
    defaults: Callable = lambda c: {}
    checks: tuple = (has_discriminator,)
    # Continued pretraining
    continues_pairs: bool = False  # whether it trains a generator and a discriminator that are trained already
    has_new_generator: bool = False  # of the size that the keys say, with the recipe's learning rate


# Keys that have no effect without a generator of the usual kind.
_OF_NETWORKS = ("generator_hidden_size", "generator_layers", "tying")
_SAMPLING = ("temperature", "disallow_correct")
# The loss of the second masked language model is as large as the generator's.
_SECOND_MLM = dict(unused=("disc_smooth_label",), defaults=lambda c: {"disc_weight": 1.})
# The towers read the text without masks.
_TWO_TOWERS = dict(unused=("gen_smooth_label", "disc_smooth_label", "electra_mask_style"),
                   continues_pairs=True)

ELECTRA, MASKED_LM = "electra", "mlm"
# By name. If keys select several, ELECTRA is not meant.
KEYS = {
    ELECTRA: ObjectiveKeys(("objective", ELECTRA), continues_pairs=True),
    MASKED_LM: ObjectiveKeys(
        ("objective", MASKED_LM),
        unused=("sampling", *_SAMPLING, "disc_smooth_label", "disc_weight", *_OF_NETWORKS),
        contradicting=("discriminator",),  # the network that is trained is `generator`
        checks=(),  # every recipe has an encoder
    ),
    "electra_15": ObjectiveKeys(("objective", "electra_15"), continues_pairs=True),
    "replace_mlm": ObjectiveKeys(("objective", "replace_mlm"), **_SECOND_MLM),
    "all_tokens_mlm": ObjectiveKeys(("objective", "all_tokens_mlm"), **_SECOND_MLM),
    "two_stage": ObjectiveKeys(
        ("objective", "two_stage"),
        unused=("gen_weight", *_OF_NETWORKS),
        own_keys=("two_stage_steps",),
        contradicting=("generator", "discriminator"),  # both have the same architecture
        defaults=lambda c: {"tying": "none", "two_stage_steps": max(1, (c.steps or RECIPES[c.size].steps) // 2)},
        checks=(has_discriminator, has_second_stage),
    ),
    "adversarial": ObjectiveKeys(
        ("objective", "adversarial"),
        unused=("gen_smooth_label",),
        contradicting=_SAMPLING,  # REINFORCE requires samples of the generator's distribution
        checks=(has_discriminator, samples_exactly),
    ),
    "uniform_generator": ObjectiveKeys(
        ("uniform_generator", True),
        unused=("generator", "gen_weight", "gen_smooth_label", "electra_mask_style", "sampling", "temperature",
                *_OF_NETWORKS),
        defaults=lambda c: {"tying": "none"},
    ),
    "new_generator": ObjectiveKeys(
        ("new_generator", True),
        # the discriminator is not trained
        unused=("disc_weight", "disc_smooth_label", "sampling", *_SAMPLING),
        checks=(has_discriminator, keeps_discriminator, keeps_vocabulary),
        continues_pairs=True,
        has_new_generator=True,
    ),
    "disentangled": ObjectiveKeys(("tying", "disentangled"), continues_pairs=True),
    "electric": ObjectiveKeys(
        ("objective", "electric"),
        contradicting=_SAMPLING,  # its energies require samples of the generator's own distribution (F100)
        checks=(has_discriminator, keeps_towers, keeps_vocabulary, samples_exactly),
        **_TWO_TOWERS,
    ),
    "two_tower_generator": ObjectiveKeys(
        ("two_tower_generator", True), checks=(has_discriminator, keeps_towers, keeps_vocabulary), **_TWO_TOWERS
    ),
}
# Values of the key `objective`.
NAMES = tuple(keys.selected_by[1] for keys in KEYS.values() if keys.selected_by[0] == "objective")


def selecting(c):
    """Names of the objectives other than ELECTRA that the keys of a configuration select; the first one is meant."""
    return [name for name, keys in KEYS.items() if name != ELECTRA and keys.selected_by in c.items()]


def selected(c):
    """The name of the objective of a configuration, or of that of a checkpoint."""
    return next(iter(selecting(c)), ELECTRA)


def default_name(recipe, has_discriminator=False):
    """The value of `objective` for None. has_discriminator: whether the configuration names a network for it."""
    return ELECTRA if recipe.discriminator or has_discriminator else MASKED_LM


def conflicting_keys(c):
    """Keys of a configuration that select another objective than the one that is meant, or contradict this one."""
    others = [KEYS[name].selected_by[0] for name in selecting(c)[1:]]
    return others + [*filter(c.differs, KEYS[selected(c)].contradicting)]


def keys_without_effect(objective):
    """Keys that have no effect with an objective, given by its ObjectiveKeys."""
    of_others = [key for keys in KEYS.values() for key in keys.own_keys if key not in objective.own_keys]
    return [*objective.unused, *of_others]
