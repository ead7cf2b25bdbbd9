"""Attention implementations that are registered with transformers."""
from transformers import (
    AttentionInterface,
    AttentionMaskInterface,
    PreTrainedModel,
)
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask


def _mask_without_looking(*args, **kwargs):
    """transformers' mask for sdpa, which otherwise looks whether there is padding at all, and has to wait for a GPU to know."""
    return sdpa_mask(*args, **{**kwargs, "allow_is_bidirectional_skip": False})


AttentionInterface.register("sdpa_static", sdpa_attention_forward)
AttentionMaskInterface.register("sdpa_static", _mask_without_looking)


def attend(model, implementation):
    """Let all networks in a model attend in a registered way, where their family can be told how to."""
    for network in model.children():
        if isinstance(network, PreTrainedModel) and network._supports_sdpa and network._supports_attention_backend:
            network.set_attn_implementation(implementation)
