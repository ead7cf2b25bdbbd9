"""Generators, discriminators and pretrained encoders of any transformers family."""
from _utils.networks.build import (
    PARTS,
    build_network,
    count_parameters,
    inputs_of,
    layer_groups,
    replaced_logits,
    share_parameters,
)
from _utils.networks.faster_layers import (
    first_position_only,
    fit_to_cpu,
    fit_to_device,
    logits_at,
    set_attention,
)
from _utils.networks.pretrained import (
    add_tokens,
    check_tied_output,
    config_of,
    load_pair,
    load_pretrained,
    load_weights,
    load_with_head,
)
from _utils.networks.sampling import SAMPLERS, argmax, gumbel_like
from _utils.networks.slots import fill_slots, masked_slots, max_slots, slot_capacity
