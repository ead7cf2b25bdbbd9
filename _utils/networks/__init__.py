"""Generators, discriminators and pretrained encoders of any transformers family."""
from _utils.networks.attention import set_attention
from _utils.networks.build import (
    PARTS,
    build_network,
    check_networks,
    count_parameters,
    inputs_of,
    make_networks,
    max_positions,
    replaced_logits,
)
from _utils.networks.cpu_argmax import argmax
from _utils.networks.dropout import make_dropout_cheap
from _utils.networks.layers import count_layers, layer_groups
from _utils.networks.padded_vocabulary import pad_vocabulary
from _utils.networks.positions import GatheredPositions, first_position_only
from _utils.networks.pretrained import config_of, load_pair, load_pretrained, load_weights, load_with_head, weights_digest
from _utils.networks.random_numbers import uniform_like
from _utils.networks.tying import check_tied_output, check_tying, share_parameters, shared_modules

__all__ = ["PARTS", "GatheredPositions", "argmax", "build_network", "check_networks", "check_tied_output", "check_tying", "config_of",
           "count_layers", "count_parameters", "first_position_only", "inputs_of", "layer_groups", "load_pair", "load_pretrained",
           "load_weights", "load_with_head", "make_dropout_cheap", "make_networks", "max_positions", "pad_vocabulary",
           "replaced_logits", "set_attention", "share_parameters", "shared_modules", "uniform_like", "weights_digest"]
