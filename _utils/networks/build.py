"""Generators and discriminators of any family in transformers: building, initializing, tying, parameters by layer."""
import re
from difflib import get_close_matches

import torch
from torch import nn
from transformers import (
    AutoConfig,
    AutoModelForMaskedLM,
    AutoModelForPreTraining,
    AutoModelForTokenClassification,
    PreTrainedModel,
)

from _utils.errors import UserError, as_user_error
from _utils.recipes import TYINGS

_LAYER_NUMBER = re.compile(r"(?:^|\.)(?:layers?|albert_layer_groups|h|blocks?)\.(\d+)\.")


def count_layers(config):
    """The number of layers with their own parameters: the groups of ALBERT, whose layers share parameters."""
    return getattr(config, "num_hidden_groups", config.num_hidden_layers)


def layer_groups(model):
    """Return the (name, parameter) pairs of an encoder, a list for each layer.

    The lists are [embeddings and their projection, layer 0, ..., last layer].
    Parameters before the layers belong to the embeddings. Those after them, such as a final LayerNorm, belong to the
    last layer.
    Raises UserError for an architecture whose parameter names do not contain the number of the layer.
    """
    groups = [[] for _ in range(count_layers(model.config) + 1)]
    current = 0
    for name, parameter in sorted(model.named_parameters(), key=lambda item: "embedding" not in item[0]):
        if number := _LAYER_NUMBER.search(name):
            current = int(number[1]) + 1
        groups[0 if "embedding" in name else current].append((name, parameter))
    if not all(groups):
        raise UserError(f"Cannot tell the layers of a {model.config.model_type} model apart by their parameter names, "
                        "so they cannot get different learning rates. Choose an ELECTRA, BERT, ALBERT, RoBERTa or "
                        "similar model.")
    return groups


PARTS = ("generator", "discriminator")
LABELS = ("original", "replaced")  # of the discriminator


def network_class(part, model_type):
    """The transformers class of a part: a masked language model, ELECTRA's discriminator or a token classifier."""
    if part == "generator":
        return AutoModelForMaskedLM
    return AutoModelForPreTraining if model_type == "electra" else AutoModelForTokenClassification


def build_network(part, config):
    """Build a float32 network of a transformers configuration with fresh weights.

    part: 'generator' or 'discriminator'.   Raises UserError for a family without the required head.
    """
    if part == "discriminator":
        config.id2label, config.label2id = dict(enumerate(LABELS)), dict(zip(LABELS, range(2)))
    with as_user_error(f"Cannot build the {part} from this {config.model_type} configuration ({{error}}). Choose "
                       "another family or other sizes."):
        # not every family checks this
        if getattr(config, "head_dim", None) is None and config.hidden_size % config.num_attention_heads:
            raise ValueError(f"hidden_size ({config.hidden_size}) is not a multiple of num_attention_heads "
                             f"({config.num_attention_heads})")
        # noticed in the forward pass only
        if config.model_type == "roformer" and config.hidden_size // config.num_attention_heads % 2:
            raise ValueError(f"rotary positions require heads of an even size, not {config.hidden_size} / "
                             f"{config.num_attention_heads}")
        network = network_class(part, config.model_type).from_config(config, trust_remote_code=False).float()
        padding = getattr(network.get_input_embeddings(), "padding_idx", None)  # MPNet's is always 1
        if padding not in (None, config.pad_token_id):
            raise ValueError(f"its padding is token {padding}, that of the vocabulary {config.pad_token_id}")
        return network


def read_config(source, vocab_size, pad_token_id):
    """A transformers configuration for a vocabulary, whatever that of the source is.

    source: a dictionary with model_type and sizes, a folder, or a hub id.   Raises UserError for an invalid one, and
    for unknown keys.
    """
    of_vocabulary = {"vocab_size": vocab_size, "pad_token_id": pad_token_id}
    with as_user_error(f"Invalid network configuration: {source!r} ({{error}}). Pass a dictionary with model_type and "
                       "sizes, a folder with a config.json, or a hub id."):
        if isinstance(source, dict):
            _check_keys(source)
            return AutoConfig.for_model(**source | of_vocabulary)
        return AutoConfig.from_pretrained(source, **of_vocabulary, trust_remote_code=False)


def _check_keys(source):
    """Raise UserError for a key that the family does not have, or that follows from the vocabulary of the data."""
    default, of_vocabulary = AutoConfig.for_model(source["model_type"]), {"vocab_size", "pad_token_id"}
    known = {*default.to_dict(), *default.attribute_map} - of_vocabulary
    for key in set(source) - known:
        if key in of_vocabulary:
            raise UserError(f"{key!r} of a network follows from the vocabulary of the text. Leave it out.")
        similar = ", ".join(get_close_matches(key, known)) or "none"
        raise UserError(f"Unknown key in a {source['model_type']} configuration: {key!r}. Similar keys: {similar}.")


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


# Names of the modules that can be shared, by family; only factorized embeddings have a projection to the hidden size.
_MODULE_NAMES = {"tokens": ("embeddings.word_embeddings",), "embeddings": ("embeddings",),
                 "projection": ("embeddings_project", "encoder.embedding_hidden_mapping_in"),
                 "encoder": ("encoder", "transformer")}


def shared_modules(generator, discriminator, tying):
    """[(module of the generator, module of the discriminator), ...]: the modules whose parameters `tying` shares.

    Raises UserError if a module is missing, or if the names or shapes of its parameters differ.
    """
    modules = [dict(network.base_model.named_modules()) for network in (generator, discriminator)]
    pairs = []
    for part in TYINGS[tying]:
        names = _MODULE_NAMES[part]
        source, target = (next((by_name[name] for name in names if name in by_name), None) for by_name in modules)
        if source is target is None and part not in tying.split("+"):
            continue  # a projection that `tying` only implies
        if source is None or target is None:
            raise UserError(f"tying={tying!r} is not possible: the {PARTS[source is not None]} has no {part} to share. "
                            "Choose another tying, or an encoder such as ELECTRA, BERT, ALBERT, RoBERTa or DistilBERT.")
        source_shapes, target_shapes = map(_shapes, (source, target))
        if differing := source_shapes.items() ^ target_shapes.items():
            name = min(name for name, _ in differing)
            raise UserError(f"tying={tying!r} is not possible: {part}.{name} is {target_shapes.get(name)} in the "
                            f"discriminator and {source_shapes.get(name)} in the generator. Choose another tying or "
                            "networks of the same size and family.")
        pairs.append((source, target))
    return pairs


def _shapes(module):
    """{name: shape} of parameters, and {name: padding_idx} of position embeddings: in RoBERTa positions begin after it.
    """
    shapes = {name: tuple(parameter.shape) for name, parameter in module.named_parameters()}
    tables = {name: table for name, table in module.named_modules() if name.endswith("position_embeddings")}
    return shapes | {f"{name}.padding_idx": getattr(table, "padding_idx", None) for name, table in tables.items()}


def share_parameters(generator, discriminator, tying):
    """Make the parameters of the discriminator that `tying` shares the same objects as the generator's.

    Raises UserError as `shared_modules`.
    """
    for source, target in shared_modules(generator, discriminator, tying):
        for name, parameter in source.named_parameters():
            owner, _, leaf = name.rpartition(".")
            setattr(target.get_submodule(owner), leaf, parameter)


def check_length(network, max_length, name):
    """Raise UserError if a network has fewer than max_length positions; `name` is for the message."""
    positions = max_positions(network)
    if max_length > positions:
        raise UserError(f"max_length={max_length} is more than the {positions} positions of {name}. Lower it or "
                        f"choose another network.")


def max_positions(network):
    """The longest input of a network, in tokens. RoBERTa reserves the first positions for padding."""
    table = getattr(getattr(network.base_model, "embeddings", None), "position_embeddings", None)
    padding = getattr(table, "padding_idx", None)
    n_reserved = 0 if padding is None else padding + 1
    return getattr(network.config, "max_position_embeddings", 1 << 30) - n_reserved


def has_learned_positions(network):
    """Whether a network has a trained embedding of each position or, as DeBERTa's, of each distance.

    RoFormer computes its rotary positions.
    """
    return any(("position" in name or "rel_embeddings" in name) and parameter.requires_grad and "embeddings" in name
               for name, parameter in network.base_model.named_parameters())


def inputs_of(network, input_ids, attention_mask, token_type_ids):
    """Keyword arguments of a forward pass, without token_type_ids for families that have at most one segment."""
    segments = {"token_type_ids": token_type_ids} if getattr(network.config, "type_vocab_size", 0) > 1 else {}
    return {"input_ids": input_ids, "attention_mask": attention_mask, **segments}


def replaced_logits(output):
    """(B, L) logits of "replaced", from the output of ELECTRA's discriminator or of a token classifier with two labels.

    The softmax of two logits is the sigmoid of their difference.
    """
    logits = output.logits
    return logits if logits.dim() == 2 else logits[..., 1] - logits[..., 0]


def transformers_in(module):
    """The outermost networks of transformers in a module: itself, or those of its children."""
    if isinstance(module, PreTrainedModel):
        return [module]
    return [network for child in module.children() for network in transformers_in(child)]


def count_parameters(module):
    """Number of parameters of a module; shared parameters count once."""
    return sum(parameter.numel() for parameter in module.parameters())
