"""ELECTRA 15%: the discriminator is trained and measured at the masked positions only (paper, section 3.5)."""
from _utils.objectives.base import AS_DISCRIMINATOR, AS_GENERATOR, BY_DETECTION, Objective


class MaskedPositionsOnly:
    """Only the masked positions count for the second network."""

    def counts(self, masked_inputs, sentA_lenths, is_mlm_applied, labels):
        return is_mlm_applied.sum(), is_mlm_applied.sum()

    def forward(self, *inputs):
        output = super().forward(*inputs)
        return output._replace(attention_mask=output.is_mlm_applied)  # the positions that count, for losses and metrics


class ELECTRA15(Objective):
    changes = (MaskedPositionsOnly,)
    training = {"discriminator": f"{BY_DETECTION} at the masked positions only, {AS_DISCRIMINATOR} 15%",
                "generator": f"{AS_GENERATOR} 15%"}
