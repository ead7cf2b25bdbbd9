"""The objectives, and which one a configuration or a finished run has."""
from _utils.errors import UserError
from _utils.objectives.adversarial import Adversarial
from _utils.objectives.all_tokens_mlm import AllTokensMLM
from _utils.objectives.base import Objective
from _utils.objectives.disentangled import Disentangled
from _utils.objectives.electra_15 import ELECTRA15
from _utils.objectives.electric import Electric, TwoTowerGenerator
from _utils.objectives.keys import selected
from _utils.objectives.mlm import MaskedLM
from _utils.objectives.new_generator import NewGenerator
from _utils.objectives.replace_mlm import ReplaceMLM
from _utils.objectives.two_stage import TwoStage
from _utils.objectives.uniform import UniformGenerator

ELECTRA = Objective()
OBJECTIVES = (ELECTRA, MaskedLM(), ELECTRA15(), ReplaceMLM(), AllTokensMLM(), TwoStage(), Adversarial(),
              UniformGenerator(), NewGenerator(), Disentangled(), Electric(), TwoTowerGenerator())


def objective_of(c):
    """The Objective of a configuration, or of that of a checkpoint."""
    return selected(c, OBJECTIVES)


def named(name):
    """The Objective that is recorded under a name; ELECTRA for an unknown one."""
    return next((one for one in OBJECTIVES if one.name == name), ELECTRA)


def check_fills_masks(name, loaded):
    """UserError for a PretrainedNetwork that predicts tokens but was trained on inputs without [MASK]."""
    objective = objective_of(loaded.run)
    if not objective.fills_masks:
        raise UserError(f"{name!r} was trained with objective={objective.name}, on inputs without [MASK], so it "
                        "cannot predict masked tokens. Choose a checkpoint with a masked language model or a "
                        "discriminator.")
