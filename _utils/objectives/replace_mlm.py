"""Replace MLM: the second network predicts the masked tokens, where it sees samples instead of [MASK].

It is described in section 3.5 of the paper.
"""
from _utils.objectives.base import ELECTRA_LINK
from _utils.objectives.electra_15 import MaskedPositionsOnly
from _utils.objectives.mlm import masked_lm_loss
from _utils.objectives.second_mlm import PredictsTokens, SecondMLM, SecondNetworkLoss


class ReplaceMLMLoss(SecondNetworkLoss):
    """The cross-entropy of both networks at the masked positions."""

    def second_loss(self, pred, targ_ids, n_tokens):
        n_slots = n_tokens  # from `counts` of the model
        return masked_lm_loss(pred.extra, pred, targ_ids, n_slots)


class ReplaceMLM(SecondMLM):
    title = "Replace MLM"
    changes = (MaskedPositionsOnly, PredictsTokens)
    loss = ReplaceMLMLoss
    training = {"generator": f"by Replace MLM, a variant of {ELECTRA_LINK}: to predict the original tokens at "
                             "positions at which a generator replaced some. Its inputs contained no [MASK]"}

    def predicted(self, mask_prob):
        return 2 * mask_prob
