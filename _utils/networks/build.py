"""Generators and discriminators of any family of transformers: how they are made, called and tied."""
import torch
from transformers import (
    AutoConfig,
    AutoModelForMaskedLM,
    AutoModelForTokenClassification,
    ElectraForPreTraining,
)

from _utils.errors import PlainError, first_line
from _utils.networks.tying import ANY_SIZE, tie

PARTS = ("generator", "discriminator")


def network_class(part, model_type):
    """The class of transformers for a part: a masked language model, ELECTRA's discriminator, or a classifier of tokens."""
    if part == "generator":
        return AutoModelForMaskedLM
    return ElectraForPreTraining if model_type == "electra" else AutoModelForTokenClassification


def build_network(part, config):
    """A network of a transformers configuration with fresh weights; raises PlainError for a family without the head it needs."""
    config.num_labels = 2
    kind = network_class(part, config.model_type)
    try:
        network = kind(config) if kind is ElectraForPreTraining else kind.from_config(config, trust_remote_code=False)
        _check_heads(config)
        return network.float()  # a configuration from elsewhere may ask for half precision
    except Exception as error:  # of many kinds: what the families check
        raise PlainError(f"no {part} can be made of this {config.model_type} configuration ({first_line(error)}): choose another family "
                         "or other sizes.") from error


def _check_heads(config):
    """ValueError for heads that do not divide the width, which some families notice in the first step only."""
    if getattr(config, "head_dim", None) is None and config.hidden_size % config.num_attention_heads:
        raise ValueError(f"its hidden size ({config.hidden_size}) is not a multiple of its attention heads ({config.num_attention_heads})")


def read_config(given, vocab_size, pad_token_id):
    """A transformers configuration for the vocabulary: of a dictionary with model_type, or of a folder or hub id.

    vocab_size: None: not known yet, so any will do.
    Raises PlainError for one that cannot be, that has unknown keys, or that is of another vocabulary.
    """
    try:
        if isinstance(given, dict):
            _check_keys(given)
            return AutoConfig.for_model(**{**given, "vocab_size": vocab_size or ANY_SIZE, "pad_token_id": pad_token_id})
        config = AutoConfig.from_pretrained(given, trust_remote_code=False)
    except PlainError:
        raise
    except Exception as error:  # of many kinds, from the hub and from the families' checks
        raise PlainError(f"{given!r} is no configuration of transformers ({first_line(error)}): give a dictionary with model_type and "
                         "sizes, a folder with a config.json, or a hub id.") from error
    config.pad_token_id = pad_token_id
    if vocab_size not in (None, config.vocab_size):
        raise PlainError(f"{given!r} has a vocabulary of {config.vocab_size} words, and the text's has {vocab_size}: give vocab={given!r}, "
                         "or a dictionary instead.")
    return config


def _check_keys(given):
    """PlainError for a key that the family does not have, or that the text's vocabulary decides."""
    usual = AutoConfig.for_model(given["model_type"])
    known = {*usual.to_dict(), *usual.attribute_map} - {"vocab_size", "pad_token_id"}
    if unknown := sorted(set(given) - known):
        sizes = sorted(key for key in known if "size" in key or "num_" in key or key in usual.attribute_map)
        raise PlainError(f"the key {unknown[0]!r} has no place in a configuration of {given['model_type']} here: it takes "
                         f"{', '.join(sizes)} and others.")


def make_networks(recipe, objective, given, vocab_size=None, pad_token_id=0):
    """(generator, discriminator) with fresh weights; (network, None) where objective is 'mlm'.

    given: (generator, discriminator), each a configuration as `read_config` takes it, or None for the recipe's.
    vocab_size: None: not known yet, to see whether the networks can be made at all.
    """
    def make(part, network, configuration):
        if configuration:
            return build_network(part, read_config(configuration, vocab_size, pad_token_id))
        return build_network(part, network.config(vocab_size or ANY_SIZE, pad_token_id, recipe.initializer_range))

    if objective == "mlm":
        return make("generator", recipe.encoder, given[0]), None
    return make("generator", recipe.generator, given[0]), make("discriminator", recipe.discriminator, given[1])


def check_networks(recipe, objective, given, tying, max_length):
    """PlainError, without making any weights, if the networks cannot be made, tied, or read max_length tokens."""
    with torch.device("meta"):
        generator, discriminator = make_networks(recipe, objective, given)
        tie(generator, discriminator, tying)
    for network in filter(None, (generator, discriminator)):
        positions = usable_positions(network)
        if max_length > positions:
            raise PlainError(f"max_length={max_length} is more than the {positions} positions of the {network.config.model_type} network: "
                             "lower it, or give another with more.")


def usable_positions(network):
    """Tokens that a network can read. RoBERTa's positions begin behind that of padding."""
    table = getattr(getattr(network.base_model, "embeddings", None), "position_embeddings", None)
    if table is None:
        return getattr(network.config, "max_position_embeddings", 1 << 30)
    return table.num_embeddings - (0 if table.padding_idx is None else table.padding_idx + 1)


def inputs_of(network, input_ids, attention_mask, token_type_ids):
    """Keyword arguments of a forward pass; families without segments, or with one kind of them, get none."""
    segments = {"token_type_ids": token_type_ids} if getattr(network.config, "type_vocab_size", 0) > 1 else {}
    return {"input_ids": input_ids, "attention_mask": attention_mask, **segments}



def replaced_logits(output):
    """(B, L): above 0 for "replaced", from ELECTRA's head or from a classifier of tokens with two labels.

    The sigmoid of the difference of two logits is their softmax.
    """
    logits = output.logits
    return logits if logits.dim() == 2 else logits[..., 1] - logits[..., 0]


def count_parameters(module):
    """Parameters of a module, tied ones once."""
    return sum(parameter.numel() for parameter in module.parameters())
