"""Generator, discriminator and pretrained encoders, of any family of transformers."""
from _utils.networks.attention import attend
from _utils.networks.build import (
    PARTS,
    build_network,
    check_networks,
    count_parameters,
    inputs_of,
    make_networks,
    replaced_logits,
    usable_positions,
)
from _utils.networks.dropout import make_dropout_cheap
from _utils.networks.positions import GatheredPositions, first_position_only
from _utils.networks.pretrained import config_of, count_layers, layer_groups, load_pair, load_pretrained, load_weights
from _utils.networks.tying import tie

__all__ = ["PARTS", "GatheredPositions", "attend", "build_network", "check_networks", "config_of", "count_layers", "count_parameters",
           "first_position_only", "inputs_of", "layer_groups", "load_pair", "load_pretrained", "load_weights", "make_dropout_cheap",
           "make_networks", "replaced_logits", "tie", "usable_positions"]
