"""The layers of an encoder, for learning rates that depend on the layer."""
import re

from _utils.errors import PlainError

_LAYER_NUMBER = re.compile(r"(?:^|\.)(?:layers?|albert_layer_groups|h|blocks?)\.(\d+)\.")


def count_layers(config):
    """The number of layers with their own parameters: the groups of ALBERT, whose layers share parameters."""
    return getattr(config, "num_hidden_groups", config.num_hidden_layers)


def layer_groups(model):
    """(name, parameter) pairs of an encoder by layer: [embeddings and their projection, layer 0, ..., last layer], a list each.

    Parameters before the layers belong to the embeddings, parameters after them, such as a final LayerNorm, to the last layer.
    Raises PlainError for an architecture whose parameter names do not contain the number of the layer.
    """
    groups = [[] for _ in range(count_layers(model.config) + 1)]
    current = 0
    for name, parameter in sorted(model.named_parameters(), key=lambda item: "embedding" not in item[0]):
        if found := _LAYER_NUMBER.search(name):
            current = int(found[1]) + 1
        groups[0 if "embedding" in name else current].append((name, parameter))
    if not all(groups):
        raise PlainError(f"Cannot tell the layers of a {model.config.model_type} model apart by their parameter names, so they cannot get "
                         "different learning rates. Choose an ELECTRA, BERT, ALBERT, RoBERTa or similar model.")
    return groups
