"""An output layer whose matrix products have an aligned size."""
import torch.nn.functional as F
from torch import nn

MULTIPLE = 64


class PaddedLinear(nn.Linear):
    """A linear layer that computes with its outputs padded to a multiple of 64, and returns those it has.

    GPUs multiply matrices of aligned sizes faster; 30,522 is not even a multiple of 4. Parameters keep their shape.
    """

    def forward(self, x):
        n_extra = -self.out_features % MULTIPLE
        bias = None if self.bias is None else F.pad(self.bias, (0, n_extra))
        return F.linear(x, F.pad(self.weight, (0, 0, 0, n_extra)), bias)[..., :self.out_features]


def pad_vocabulary(network):
    """Let the output layer of a masked language model compute with a padded vocabulary, if it is a plain linear layer."""
    head = network.get_output_embeddings()
    if type(head) is nn.Linear and head.out_features % MULTIPLE:
        head.__class__ = PaddedLinear
