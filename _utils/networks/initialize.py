"""Initial weights as in Google's code."""
import torch
from torch import nn


@torch.no_grad()
def initialize_officially(model, std=.02):
    """Initialize as Google's create_initializer: a normal distribution truncated at two standard deviations (F30).

    The projection of the embeddings and the last layer of the discriminator's head use Glorot uniform, the default of
    tf.layers.dense.
    """
    glorot = ("embeddings_project", "embedding_hidden_mapping_in", "dense_prediction", "classifier")
    trained = [(name, parameter) for name, parameter in model.named_parameters() if parameter.requires_grad]
    for name, parameter in trained:  # not RoFormer's table of angles
        if parameter.dim() == 1:
            parameter.fill_(1. if name.endswith("weight") else 0.)  # a LayerNorm's weight, or a bias
        elif not parameter.any():
            continue  # a table that starts at zero
        elif any(layer in name for layer in glorot):
            nn.init.xavier_uniform_(parameter)
        else:
            nn.init.trunc_normal_(parameter, std=std, a=-2 * std, b=2 * std)
