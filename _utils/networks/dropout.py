"""Dropout whose masks are cheap on a CPU: sixteen random bits for each number, four of them from one draw.

PyTorch draws 32 bits or more for each, one after the other, which is a tenth of a training step on a CPU. With sixteen bits a
dropout of .1 is one of 6554 / 65536 = .100006; what stays is scaled by just that. On other devices PyTorch's own is used.
"""
import torch
from torch import nn
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from _utils.networks.attention import attend

_RANGE = 1 << 16


def cheap_dropout(x, p):
    """x with a share p of its numbers 0 and the others scaled up; any dtype and shape, on the CPU."""
    dropped = round(p * _RANGE)
    n = x.numel()
    bits = torch.empty(-(-n // 4), dtype=torch.int64).random_(-(1 << 63), None).view(torch.int16)[:n].view(x.shape)
    keep = torch.ge(bits, dropped - _RANGE // 2, out=torch.empty(x.shape, dtype=x.dtype))
    return x * keep.mul_(_RANGE / (_RANGE - dropped))


class CheapDropout(nn.Module):
    """nn.Dropout with cheap masks."""

    def __init__(self, p):
        super().__init__()
        self.p = p

    def forward(self, x):
        return cheap_dropout(x, self.p) if self.training and self.p else x


def attention(module, query, key, value, attention_mask, dropout=0., scaling=None, **kwargs):
    """Attention as transformers' sdpa computes it, with cheap masks in training; (B, heads, L, D) each -> ((B, L, heads, D), None)."""
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
    """Let the dropouts of all networks in a model be cheap ones, those of attention too where a family can be told how to attend."""
    for module in list(model.modules()):
        for name, child in module.named_children():
            if type(child) is nn.Dropout:
                setattr(module, name, CheapDropout(child.p).train(child.training))
    attend(model, "cheap_dropout")
