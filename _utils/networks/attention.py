"""Attention implementations, registered with transformers."""
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask


def _static_mask(*args, **kwargs):
    """transformers' SDPA mask without its test for padding, for which the CPU would have to wait for the GPU."""
    return sdpa_mask(*args, **{**kwargs, "allow_is_bidirectional_skip": False})


AttentionInterface.register("sdpa_static", sdpa_attention_forward)
AttentionMaskInterface.register("sdpa_static", _static_mask)


def set_attention(model, implementation):
    """Select a registered attention implementation for the networks of a model whose family supports it."""
    for network in model.children():
        if isinstance(network, PreTrainedModel) and network._supports_sdpa and network._supports_attention_backend:
            network.set_attn_implementation(implementation)
