"""The objectives, and which one a configuration or a finished run has."""
from _utils.errors import UserError
from _utils.objectives.adversarial import Adversarial
from _utils.objectives.all_tokens_mlm import AllTokensMLM
from _utils.objectives.base import Objective
from _utils.objectives.disentangled import Disentangled
from _utils.objectives.electra_15 import ELECTRA15
from _utils.objectives.electric import Electric, TwoTowerGenerator
from _utils.objectives.mlm import MaskedLM
from _utils.objectives.new_generator import NewGenerator
from _utils.objectives.objective_keys import selected
from _utils.objectives.replace_mlm import ReplaceMLM
from _utils.objectives.two_stage import TwoStage
from _utils.objectives.uniform import UniformGenerator

# By the names of KEYS.
OBJECTIVES = {
    "electra": Objective(),
    "mlm": MaskedLM(),
    "electra_15": ELECTRA15(),
    "replace_mlm": ReplaceMLM(),
    "all_tokens_mlm": AllTokensMLM(),
    "two_stage": TwoStage(),
    "adversarial": Adversarial(),
    "uniform_generator": UniformGenerator(),
    "new_generator": NewGenerator(),
    "disentangled": Disentangled(),
    "electric": Electric(),
    "two_tower_generator": TwoTowerGenerator(),
}


def objective_of(c):
    """The Objective of a configuration, or of that of a checkpoint."""
    return OBJECTIVES[selected(c)]


def check_fills_masks(name, loaded):
    """Raise UserError for a PretrainedNetwork that predicts tokens but was trained on inputs without [MASK]."""
    if not objective_of(loaded.run).fills_masks:
        raise UserError(f"{name!r} was trained with objective={selected(loaded.run)}, on inputs without [MASK], so it "
                        "cannot predict masked tokens. Choose a checkpoint with a masked language model or a "
                        "discriminator.")
