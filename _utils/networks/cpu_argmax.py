"""Argmax for CPUs, ten times as fast as PyTorch's (docs/speed.md)."""
import torch


def argmax(x):
    """x.argmax(-1), (N,), of logits (N, V) in any dtype: the first of several largest values. Has no gradient."""
    if type(x) is not torch.Tensor or x.device.type != "cpu" or torch.compiler.is_compiling():
        return x.argmax(-1)
    x = x.detach()
    return torch.from_numpy((x.float() if x.dtype == torch.bfloat16 else x).numpy().argmax(-1))
