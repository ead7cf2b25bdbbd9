"""Gumbel noise and argmax that are fast on a CPU, for `sample` in Pretrain.ipynb, and the other samplers."""
import torch

from _utils.networks.faster_layers import random_bits


def gumbel_like(logits):
    """Gumbel noise in the shape of `logits` (M, V), float32: -log(-log(u + 1e-9) + 1e-9) of uniform u.

    Both 1e-9 as in Google's code (F15).
    """
    if logits.device.type != "cpu" or torch.compiler.is_compiling():
        uniform = torch.rand_like(logits)
        return -torch.log(-torch.log(uniform + 1e-9) + 1e-9)
    noise = uniform_like(logits).add_(1e-9).log_()  # in place, because new tensors of this size take longer
    return torch.sub(torch.tensor(1e-9), noise, out=noise).log_().neg_()


def uniform_like(x):
    """Uniform random numbers in the shape of a tensor on the CPU: float32 multiples of 2 ** -24 in [0, 1).

    Two of them are made from each random 64-bit integer.
    """
    bits = random_bits(x.numel() // 2 + 1).view(torch.int32)[:x.numel()].view(x.shape)
    return bits.bitwise_right_shift_(8).float().mul_(2. ** -24).add_(.5)


def argmax(x):
    """Return x.argmax(-1), (N,), of logits (N, V) in any dtype: the first of several largest, without gradient."""
    if type(x) is not torch.Tensor or x.device.type != "cpu" or torch.compiler.is_compiling():
        return x.argmax(-1)
    x = x.detach()
    return torch.from_numpy((x.float() if x.dtype == torch.bfloat16 else x).numpy().argmax(-1))


def sample_multinomial(logits):
    """torch.multinomial of the softmax of logits (M, V). NaN does not raise an error, which a GPU would not survive."""
    weights = logits.softmax(-1)
    return (weights / torch.empty_like(weights).exponential_()).argmax(-1)


def sample_fp16_gumbel(logits):
    """Samples of logits (M, V) with noise in half precision, which is at most 7.6 and has few distinct values."""
    smallest = torch.finfo(torch.float16).tiny  # keeps both logarithms finite
    uniform = torch.rand_like(logits, dtype=torch.float16).clamp(smallest, 1 - 2 ** -11)
    return (logits.half() - torch.log(-torch.log(uniform))).argmax(-1)


# The values of the key `sampling` beside 'fp32_gumbel': functions of float32 logits (M, V) that return ids (M,).
SAMPLERS = {"fp16_gumbel": sample_fp16_gumbel, "multinomial": sample_multinomial}
