"""Attention implementations, registered with transformers."""
import torch
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask


def _static_mask(*args, dtype=torch.float32, **kwargs):
    """transformers' SDPA mask without its test for padding, for which the CPU would have to wait for the GPU.

    It is additive: SDPA would convert a boolean mask in every layer; this is done once per network. Returns (B, 1, L, L).
    """
    mask = sdpa_mask(*args, **{**kwargs, "allow_is_bidirectional_skip": False})
    if torch.is_autocast_enabled(mask.device.type):
        dtype = torch.get_autocast_dtype(mask.device.type)
    return torch.zeros_like(mask, dtype=dtype).masked_fill(~mask, torch.finfo(dtype).min)


AttentionInterface.register("sdpa_static", sdpa_attention_forward)
AttentionMaskInterface.register("sdpa_static", _static_mask)


def set_attention(model, implementation):
    """Select a registered attention implementation for the networks of a model.

    An encoder without exchangeable attention, such as RoFormer, keeps its own; only its mask is replaced by that of 'sdpa_static', which
    is additive too.
    """
    for network in model.children():
        if isinstance(network, PreTrainedModel):
            config = network.config
            if network._supports_sdpa and network._supports_attention_backend:
                network.set_attn_implementation(implementation)
            elif implementation == "sdpa_static" and config._attn_implementation == "eager" and not config.is_encoder_decoder:
                config._attn_implementation = implementation
