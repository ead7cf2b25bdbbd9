"""All-Tokens MLM: the second network predicts every token, as a mixture of copying and writing (paper, section 3.5)."""
import torch
import torch.nn.functional as F
from torch import nn

from _utils.networks.faster_layers import head_positions
from _utils.objectives.base import ELECTRA_LINK
from _utils.objectives.second_mlm import PredictsTokens, SecondMLM, SecondNetworkLoss


class CopiesOrPredicts(PredictsTokens):
    """The second network predicts all tokens, (B * L, V), with a copy mechanism, whose logits are minus disc_logits."""

    def __init__(self, *args):
        super().__init__(*args)
        self.copy = nn.Linear(self.discriminator.config.hidden_size, 1)

    def discriminate(self, disc_inputs, slots):
        tokens = disc_inputs["input_ids"]  # (B, L)
        everywhere = slots._replace(positions=torch.arange(tokens.numel(), device=tokens.device))
        super().discriminate(disc_inputs, everywhere)
        return -self.copy(head_positions(self.discriminator).states).view(tokens.shape)


class AllTokensMLMLoss(SecondNetworkLoss):
    """The loss of All-Tokens MLM, weighted by `loss_weights`.

    Its terms are the generator's cross-entropy, and, at all tokens, that of the mixture
    p(x) = D [x = input] + (1 - D) softmax(x).
    """

    def second_loss(self, pred, targ_ids, n_tokens):
        originals = torch.where(pred.is_mlm_applied > 0, targ_ids, pred.generated)  # (B, L)
        nll_of_softmax = F.cross_entropy(pred.extra.float(), originals.flatten(), reduction="none")
        log_softmax = -nll_of_softmax.view(originals.shape)  # (B, L)
        log_copy = F.logsigmoid(-pred.disc_logits.float())
        log_write = F.logsigmoid(pred.disc_logits.float()) + log_softmax
        nll = -torch.where(pred.is_replaced, log_write, torch.logaddexp(log_copy, log_write))
        return (nll * pred.attention_mask.float()).sum() / (n_tokens + 1e-6)


class AllTokensMLM(SecondMLM):
    title = "All-Tokens MLM"
    changes = (CopiesOrPredicts,)
    loss = AllTokensMLMLoss
    training = {"generator": f"by All-Tokens MLM, a variant of {ELECTRA_LINK}: to predict all original tokens of a "
                             "text in which a generator replaced some, with a copy mechanism that is not part of this "
                             "model. Its inputs contained no [MASK]"}

    def predicted(self, mask_prob):
        return mask_prob + 1.
