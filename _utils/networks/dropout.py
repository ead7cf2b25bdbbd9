"""Fast dropout on the CPU: 16 random bits per element, four elements per random integer.

PyTorch draws at least 32 bits per element, which takes a tenth of a training step on a CPU. With 16 bits, a dropout probability of .1
becomes 6554 / 65536 = .100006; the remaining elements are scaled accordingly. Other devices use PyTorch's dropout.
"""
import torch
from torch import nn
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from _utils.networks.attention import set_attention
from _utils.networks.random_numbers import random_bits

_RANGE = 1 << 16


def cheap_dropout(x, p):
    """Zero the elements of x with probability p and scale up the others; any dtype and shape, on the CPU."""
    dropped = round(p * _RANGE)
    n = x.numel()
    bits = random_bits(n // 4 + 1).view(torch.int16)[:n].view(x.shape)
    keep = torch.ge(bits, dropped - _RANGE // 2, out=torch.empty(x.shape, dtype=x.dtype))
    return x * keep.mul_(_RANGE / (_RANGE - dropped))


class CheapDropout(nn.Module):
    """Like nn.Dropout, with `cheap_dropout`."""

    def __init__(self, p):
        super().__init__()
        self.p = p

    def forward(self, x):
        return cheap_dropout(x, self.p) if self.training and self.p else x


def attention(module, query, key, value, attention_mask, dropout=0., scaling=None, **kwargs):
    """Attention as in transformers' SDPA implementation, with cheap dropout; (B, heads, L, D) each -> ((B, L, heads, D), None)."""
    if not dropout:
        return sdpa_attention_forward(module, query, key, value, attention_mask, dropout=0., scaling=scaling, **kwargs)
    scores = torch.matmul(query, key.transpose(2, 3)) * (query.shape[-1] ** -.5 if scaling is None else scaling)
    if attention_mask is not None:
        scores = scores.masked_fill(~attention_mask, float("-inf")) if attention_mask.dtype == torch.bool else scores + attention_mask
    weights = cheap_dropout(scores.softmax(-1, dtype=torch.float32).to(query.dtype), dropout)
    return torch.matmul(weights, value).transpose(1, 2).contiguous(), None


AttentionInterface.register("cheap_dropout", attention)
AttentionMaskInterface.register("cheap_dropout", sdpa_mask)


def make_dropout_cheap(model):
    """Replace the dropout of all networks in a model, and of their attention if the family supports it, by cheap dropout."""
    for module in list(model.modules()):
        for name, child in module.named_children():
            if type(child) is nn.Dropout:
                setattr(module, name, CheapDropout(child.p).train(child.training))
    set_attention(model, "cheap_dropout")
