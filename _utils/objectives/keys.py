"""What each objective means for the keys of a configuration, which is checked before PyTorch is imported.

The classes are the first part of the protocol in base.py: the class of an objective inherits from its class here.
"""
from _utils.errors import UserError
from _utils.recipes import RECIPES, TYINGS, is_pair


class ObjectiveKeys:
    """The keys of an objective, here ELECTRA's. c: a configuration, which is not complete yet in `defaults`."""
    name = "electra"
    selected_by = "objective", "electra"  # the key and its value that select it
    unused = ()  # keys that have no effect
    own_keys = ()  # keys that have no effect with any other objective
    contradicting = ()  # keys whose other values would change what the objective is
    implied = {}  # values of unused keys
    disc_weight = None  # the recipe's

    @property
    def no_effect(self):
        """Keys that have no effect, as `config.NO_EFFECT`."""
        of_others = (key for one in OF_OBJECTIVES if one.own_keys != self.own_keys for key in one.own_keys)
        return [(self.selected_by[0], lambda _: True, [*self.unused, *of_others])]

    def defaults(self, c):
        """{key: value for None}, once the steps are known."""
        return {"disc_weight": self.disc_weight or RECIPES[c.size].disc_weight}

    def check(self, c):
        """UserError for values that contradict each other."""
        if not (c.discriminator or RECIPES[c.size].discriminator):
            raise UserError(f"size={c.size} has no discriminator, but objective={c.objective!r} requires one. Set "
                            "discriminator or choose another size.")

    # Continued pretraining

    continues_pairs = True
    is_kept = False  # whether continuing a checkpoint of this objective selects it again
    pair_lr_divisor = 10  # of the recipe's learning rate
    # Keys that trained networks determine.
    of_pair = ("generator", "discriminator", "generator_hidden_size", "generator_layers")


# Keys that have no effect without a generator of the usual kind.
_OF_NETWORKS = ("generator_hidden_size", "generator_layers", "tying")


class MaskedLMKeys(ObjectiveKeys):
    name = "mlm"
    selected_by = "objective", "mlm"
    unused = ("sampling", "temperature", "disallow_correct", "disc_smooth_label", "disc_weight", *_OF_NETWORKS)
    contradicting = ("discriminator",)  # the network that is trained is `generator`
    continues_pairs = False

    def check(self, c):
        pass  # every recipe has an encoder


class ELECTRA15Keys(ObjectiveKeys):
    name = "electra_15"
    selected_by = "objective", "electra_15"
    continues_pairs = False


class SecondMLMKeys(ObjectiveKeys):
    """Those of Replace MLM and All-Tokens MLM."""
    unused = ("disc_smooth_label",)
    disc_weight = 1.  # its loss is as large as the generator's
    continues_pairs = False


class ReplaceMLMKeys(SecondMLMKeys):
    name = "replace_mlm"
    selected_by = "objective", "replace_mlm"


class AllTokensMLMKeys(SecondMLMKeys):
    name = "all_tokens_mlm"
    selected_by = "objective", "all_tokens_mlm"


class TwoStageKeys(ObjectiveKeys):
    name = "two_stage"
    selected_by = "objective", "two_stage"
    unused = ("gen_weight", *_OF_NETWORKS)
    contradicting = ("generator", "discriminator")  # both have the same architecture
    own_keys = ("two_stage_steps",)
    implied = {"tying": "none"}
    continues_pairs = False

    def defaults(self, c):
        return super().defaults(c) | {"two_stage_steps": max(1, (c.steps or 0) // 2)}

    def check(self, c):
        super().check(c)
        if c.two_stage_steps >= c.steps:
            raise UserError(f"two_stage_steps={c.two_stage_steps} requires more steps in all (steps={c.steps}).")


class AdversarialKeys(ObjectiveKeys):
    name = "adversarial"
    selected_by = "objective", "adversarial"
    unused = ("gen_smooth_label",)
    contradicting = ("temperature", "disallow_correct")  # REINFORCE needs samples of the generator's distribution
    continues_pairs = False


class UniformGeneratorKeys(ObjectiveKeys):
    name = "uniform_generator"
    selected_by = "uniform_generator", True
    unused = ("generator", "gen_weight", "gen_smooth_label", "temperature", *_OF_NETWORKS)
    continues_pairs = False


class NewGeneratorKeys(ObjectiveKeys):
    selected_by = "new_generator", True
    unused = "disc_weight", "disc_smooth_label"  # the discriminator is not trained
    pair_lr_divisor = 1
    of_pair = ("generator", "discriminator")  # a new generator may have another size than the recipe's

    def check(self, c):
        super().check(c)
        if not is_pair(c.initial_weights):
            raise UserError("new_generator=True trains a generator for a trained discriminator, but "
                            f"initial_weights={c.initial_weights!r} is not one. Set initial_weights to one, or leave "
                            "new_generator out.")
        if c.vocab != c.initial_weights:
            raise UserError(f"new_generator=True keeps the vocabulary of initial_weights={c.initial_weights!r}, which "
                            f"vocab={c.vocab!r} contradicts. Remove vocab.")


class DisentangledKeys(ObjectiveKeys):
    selected_by = "tying", "disentangled"


class TwoTowerKeys(ObjectiveKeys):
    name = "two_tower_generator"
    selected_by = "two_tower_generator", True
    is_kept = True  # no other objective can load the towers
    # The towers read the text without masks.
    unused = ("gen_smooth_label", "disc_smooth_label", "electra_mask_style")

    def check(self, c):
        super().check(c)
        if "encoder" in TYINGS[c.tying]:
            raise UserError(f"tying={c.tying!r} shares an encoder, but each of the two towers reads in one direction "
                            "only. Set tying to embeddings, tokens or none.")
        if is_pair(c.initial_weights) and c.vocab != c.initial_weights:
            raise UserError(f"Two towers keep the vocabulary of initial_weights={c.initial_weights!r}, which "
                            f"vocab={c.vocab!r} contradicts. Remove vocab.")


class ElectricKeys(TwoTowerKeys):
    name = "electric"
    selected_by = "objective", "electric"
    # Its energies require that tokens are sampled from the generator's own distribution (F100).
    contradicting = ("temperature", "disallow_correct")


ELECTRA = ObjectiveKeys()
OF_OBJECTIVES = (ELECTRA, MaskedLMKeys(), ELECTRA15Keys(), ReplaceMLMKeys(), AllTokensMLMKeys(), TwoStageKeys(),
                 AdversarialKeys(), UniformGeneratorKeys(), NewGeneratorKeys(), DisentangledKeys(), ElectricKeys(),
                 TwoTowerKeys())
NAMES = tuple(one.name for one in OF_OBJECTIVES if "objective" in one.selected_by)  # values of the key `objective`


def selected(c, objectives=OF_OBJECTIVES):
    """Return the objective that a configuration selects.

    c: a configuration, or that of a checkpoint.   objectives: to choose from, ELECTRA first.
    Keys that select another one than ELECTRA take precedence.
    """
    return next((one for one in objectives[1:] if one.selected_by in c.items()), objectives[0])


def is_chosen(c):
    """Whether a configuration names an objective."""
    return c.objective is not None or any(one.selected_by in c.items() for one in OF_OBJECTIVES)


def default_name(recipe, has_discriminator=False):
    """The value of `objective` for None. has_discriminator: whether the configuration names a network for it."""
    return ELECTRA.name if recipe.discriminator or has_discriminator else MaskedLMKeys.name


def conflicting_keys(c, objective):
    """Keys of a configuration that select another objective, or contradict its own."""
    others = [other for other in OF_OBJECTIVES[1:] if other is not objective]
    selecting = [other.selected_by[0] for other in others if other.selected_by in c.items()]
    return selecting + [*filter(c.differs, objective.contradicting)]
