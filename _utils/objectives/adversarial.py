"""Adversarial training: the generator is rewarded for the loss of the discriminator.

It is described in section 3.2 and appendix F of the paper.
"""
import torch
import torch.nn.functional as F
from torch import nn

from _utils.networks.faster_layers import head_positions
from _utils.objectives.base import AS_DISCRIMINATOR, BY_DETECTION, ELECTRA_LINK, Objective, WeightedLoss


class WithBaseline:
    """A baseline of the generator's reward, which does not train the generator's encoder.

    The `extra` of the output has the logits of the expected reward, (M,).
    """

    def __init__(self, *args):
        super().__init__(*args)
        self.baseline = nn.Linear(self.generator.config.hidden_size, 1, bias=False)

    def forward(self, *inputs):
        output = super().forward(*inputs)
        states = head_positions(self.generator).states[0].detach()  # (M, H)
        return output._replace(extra=self.baseline(states).squeeze(-1))


class AdversarialLoss(WeightedLoss):
    """ELECTRA's loss, whose generator is trained by REINFORCE to raise the discriminator's loss.

    electra: ELECTRALoss.   The value of the generator's term is its cross-entropy, for the log; the gradient is that of
    `surrogate`.
    """

    def __init__(self, electra):
        super().__init__(electra.loss_weights)
        self.electra = electra

    def terms(self, pred, targ_ids, n_slots, n_tokens):
        _, losses = self.electra(pred, targ_ids, (n_slots, n_tokens), return_losses=True)
        surrogate = self.surrogate(pred) / (n_slots + 1e-6)
        return losses._replace(gen_loss=losses.gen_loss.detach() + surrogate - surrogate.detach())

    def surrogate(self, pred):
        """A sum over the slots whose gradient is that of REINFORCE and of the baseline's loss, ()."""
        positions, weights = pred.slots
        # Not positions with several samples (masking='official', F12), whose mean was drawn at none of them.
        is_sample = weights * (pred.is_mlm_applied.flatten()[positions] == 1)  # (M,)
        sampled, baseline = pred.generated.flatten()[positions], pred.extra.float()
        with torch.no_grad():
            disc_labels = pred.is_replaced.float()
            disc_loss = F.binary_cross_entropy_with_logits(pred.disc_logits.float(), disc_labels, reduction="none")
            reward = is_sample * disc_loss.flatten()[positions]
            advantage = reward + F.logsigmoid(baseline)
        log_p = -F.cross_entropy(pred.mlm_gen_logits.float(), sampled, reduction="none")
        baseline_loss = F.binary_cross_entropy_with_logits(baseline, torch.exp(-reward), reduction="none")
        return ((baseline_loss - advantage * log_p) * is_sample).sum()


class Adversarial(Objective):
    changes = (WithBaseline,)
    training = {"discriminator": f"{BY_DETECTION}, {AS_DISCRIMINATOR} with an adversarial generator",
                "generator": "by reinforcement learning to replace tokens so that a discriminator does not notice, as "
                             f"the generator of an adversarial {ELECTRA_LINK}"}

    def build_loss(self, c, electra_loss):
        return AdversarialLoss(super().build_loss(c, electra_loss))
