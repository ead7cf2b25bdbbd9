"""What Replace MLM and All-Tokens MLM share: the second network is a masked language model."""
from dataclasses import replace

from _utils.networks.fast_electra import FastELECTRA
from _utils.networks.faster_layers import GatheredPositions
from _utils.networks.tying import tie_output
from _utils.objectives.base import Objective


class SecondMLMModel(FastELECTRA):
    """The second network is a masked language model, whose input is that of ELECTRA's discriminator."""

    def __init__(self, *args):
        super().__init__(*args)
        tie_output(self.discriminator)
        self.second_positions = GatheredPositions(self.discriminator)

    def saved_networks(self):
        """The second network, which is to be finetuned, as the masked language model that it is."""
        return {"generator": self.discriminator}

    def discriminate(self, disc_inputs, positions):
        """(None, mlm_logits (M, V))."""
        with self.second_positions.only(positions):
            return None, self.discriminator(**disc_inputs).logits[0]


class SecondMLM(Objective):
    """The protocol of both. A subclass has `loss`, a SecondNetworkLoss, and `second_share`, the share of the
    tokens that the second network predicts.
    """
    unused = ("disc_smooth_label", "uniform_generator")
    disc_weight = 1.  # its loss is as large as the generator's
    fills_masks = False
    continues_pairs = False
    finetuned = "generator"

    def shapes(self, recipe):
        return [("generator", recipe.generator), ("generator", recipe.discriminator)]

    def predicted(self, mask_prob):
        return mask_prob + self.second_share(mask_prob)

    def make_loss(self, c):
        return self.loss((c.gen_weight, c.disc_weight), c.gen_smooth_label)

    def recipe_of_checkpoint(self, recipe, networks):
        return replace(recipe, discriminator=networks["generator"])  # the second network is the only one that is saved

    def flops(self, recipe, forward, mask_prob, backward):
        second = forward(recipe.discriminator, predicted=self.second_share(mask_prob))
        return (1 + backward) * (forward(recipe.generator, predicted=mask_prob) + second)
