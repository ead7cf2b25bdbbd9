"""Generators, discriminators and pretrained encoders of any transformers family."""
from _utils.networks.build import (
    PARTS,
    build_network,
    count_layers,
    count_parameters,
    inputs_of,
    layer_groups,
    make_networks,
    max_positions,
    replaced_logits,
)
from _utils.networks.faster_layers import (
    GatheredPositions,
    argmax,
    first_position_only,
    make_dropout_cheap,
    pad_vocabulary,
    set_attention,
    uniform_like,
)
from _utils.networks.initialize import initialize_officially
from _utils.networks.new_tokens import add_tokens
from _utils.networks.pretrained import (
    config_of,
    is_pair,
    load_pair,
    load_pretrained,
    load_weights,
    load_with_head,
)
from _utils.networks.tying import check_tied_output, check_tying, share_parameters, shared_modules, tie_output
