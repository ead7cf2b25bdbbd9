"""Networks with trained weights, from pretraining checkpoints and from transformers folders or the hub."""
import contextlib
import os

import torch
import transformers
from transformers import AutoConfig

from _utils.errors import PlainError, as_plain_error
from _utils.networks.build import PARTS, build_network
from _utils.recipes import RECIPES


def parts_of(checkpoint):
    """The networks in a pretraining checkpoint: generator and discriminator, or the generator alone. Finetuning uses the last one."""
    return [part for part in PARTS if f"{part}_config" in checkpoint]


def network_of(checkpoint, part, path):
    """The 'generator' or 'discriminator' of a pretraining checkpoint, with its trained weights.

    path: of the checkpoint, for the message of a PlainError.
    """
    network = build_network(part, config_of(checkpoint, part, path))
    load_weights(network, with_prefix(checkpoint["model"], f"{part}."), path)
    return network


def with_prefix(weights, prefix):
    """The entries of a state_dict whose names start with a prefix, without the prefix."""
    return {name.removeprefix(prefix): value for name, value in weights.items() if name.startswith(prefix)}


def config_of(checkpoint, part, path):
    """The transformers configuration of the 'generator', 'discriminator' or finetuned 'encoder' of a checkpoint."""
    with as_plain_error(f"Cannot read the configuration of the {part} in {str(path)!r} ({{error}}). Use another checkpoint."):
        return AutoConfig.for_model(**checkpoint[f"{part}_config"])


def load_weights(network, weights, path):
    """Load a state_dict; PlainError with the path of the checkpoint if it does not fit the network."""
    with as_plain_error(f"The weights in {str(path)!r} do not fit their configuration ({{error}}). Use another checkpoint.", RuntimeError):
        network.load_state_dict(weights)


def load_from_transformers(kind, name):
    """(network in float32, loading report) of a class of transformers, from a folder or a hub id.

    Checkpoints may be stored in half precision, in which Adam's small updates would be lost. Code that comes with a model never runs.
    """
    with quiet_transformers():
        return kind.from_pretrained(name, dtype=torch.float32, output_loading_info=True, trust_remote_code=False)


@contextlib.contextmanager
def quiet_transformers():
    """Silence transformers' report of unused weights, which reads like an error."""
    before = transformers.utils.logging.get_verbosity()
    transformers.utils.logging.set_verbosity_error()
    try:
        yield
    finally:
        transformers.utils.logging.set_verbosity(before)


def folder_or_hub(name):
    """'folder' or 'hub', where transformers looks for a name; for messages."""
    return "folder" if os.path.isdir(name) else "hub"


def check_size(name, config, size):
    """PlainError for a model with the shape of another recipe, whose learning rates would be wrong."""
    shape = (config.num_hidden_layers, config.hidden_size)
    fitting = [other for other, recipe in RECIPES.items() if (recipe.encoder.layers, recipe.encoder.hidden) == shape]
    if fitting and size not in fitting:
        raise PlainError(f"{name!r} has {shape[0]} layers and hidden size {shape[1]}, the shape of size={fitting[0]}, not of size={size}. "
                         f"Set size={fitting[0]}.")
