"""Sampling from the generator: samplers beside the one of Pretrain.ipynb, and a faster drop-in for that."""
import torch

from _utils.networks.faster_layers import random_bits


def adjusted(logits, temperature=1., disallowed=None):
    """The logits (M, V) to sample from, float32: divided by the temperature, and 1000 lower for the id that is
    disallowed in each row, (M,) (pretrain_helpers.py:sample_from_softmax, F15).
    """
    logits = logits.float()
    if temperature != 1.:
        logits = logits / temperature
    if disallowed is None:
        return logits
    return logits.scatter_add(1, disallowed[:, None], torch.full_like(logits[:, :1], -1000.))


def fast_sample(logits, sampling="fp32_gumbel", temperature=1., disallowed=None, uniform=None):
    """The same as `sample` of Pretrain.ipynb in less time, with other random numbers on a CPU.

    uniform: function that draws random numbers like a tensor; None: `uniform_like`. With torch.rand_like, the samples
    are those of `sample`.
    """
    logits = adjusted(logits, temperature, disallowed)
    if sampling in SAMPLERS:
        return SAMPLERS[sampling](logits)
    # In place, because new tensors of this size take longer.
    noise = (uniform or uniform_like)(logits).add_(1e-9).log_().neg_().add_(1e-9).log_()
    return argmax(torch.sub(logits, noise, out=noise))


def sample_multinomial(logits):
    """torch.multinomial of the softmax of logits (M, V). NaN does not raise an error, which a GPU would not survive."""
    weights = logits.softmax(-1)
    return (weights / torch.empty_like(weights).exponential_()).argmax(-1)


def sample_fp16_gumbel(logits):
    """electra_pytorch's samples of logits (M, V). Half-precision noise is at most 7.6 and has few distinct values."""
    smallest = torch.finfo(torch.float16).tiny  # keeps both logarithms finite
    uniform = torch.rand_like(logits, dtype=torch.float16).clamp(smallest, 1 - 2 ** -11)
    return (logits.half() - torch.log(-torch.log(uniform))).argmax(-1)


def argmax(x):
    """x.argmax(-1), (N,), of logits (N, V) in any dtype: the first of several largest values. Has no gradient."""
    if type(x) is not torch.Tensor or x.device.type != "cpu" or torch.compiler.is_compiling():
        return x.argmax(-1)
    x = x.detach()
    return torch.from_numpy((x.float() if x.dtype == torch.bfloat16 else x).numpy().argmax(-1))


def uniform_like(x):
    """torch.rand_like of a float32 tensor: multiples of 2 ** -24 in [0, 1); on a CPU two of them from each random
    64-bit integer.
    """
    if x.device.type != "cpu" or torch.compiler.is_compiling():
        return torch.rand_like(x)
    bits = random_bits(x.numel() // 2 + 1).view(torch.int32)[:x.numel()].view(x.shape)
    return bits.bitwise_right_shift_(8).float().mul_(2. ** -24).add_(.5)


BLOCK = 256  # tokens, for `sample_by_inversion`


def sample_by_inversion(logits):
    """Sample one token id per row by inverting the cumulative distribution. logits: (M, V), float32. Returns ids, (M,).

    The sample is the first token at which the cumulative probability exceeds one random number per row, instead of one
    per logit. A block of tokens is found first, from the sums of the blocks, and then the token in it, so that no
    cumulative sum over the whole vocabulary is needed. Sums are float64, in which a token of probability 1e-9 is not
    lost beside the others. Exponentials are computed twice rather than kept.
    """
    size, highest = logits.shape[1], logits.amax(1, keepdim=True)
    weights = torch.exp(logits - highest)  # (M, V)
    whole = size // BLOCK * BLOCK
    sums = weights[:, :whole].unflatten(1, (-1, BLOCK)).sum(2, dtype=torch.float64)  # (M, V / BLOCK)
    rest = weights[:, whole:].sum(1, keepdim=True, dtype=torch.float64)
    ends = torch.cat([sums, rest], 1).cumsum(1)  # cumulative up to the end of each block
    u = torch.rand(len(ends), 1, dtype=torch.float64, device=ends.device) * ends[:, -1:]
    block = first_above(ends, u)  # (M, 1)
    start = torch.where(block > 0, ends.gather(1, (block - 1).clamp(min=0)), 0.)

    tokens = block * BLOCK + torch.arange(BLOCK, device=block.device)  # (M, BLOCK)
    chosen = torch.exp(logits.gather(1, tokens.clamp(max=size - 1)) - highest).double()
    inside = torch.where(tokens < size, chosen, 0.).cumsum(1)
    token = block * BLOCK + first_above(inside, u - start)  # (M, 1)
    return token.squeeze(1).clamp(max=size - 1)  # only NaN exceeds it


def first_above(cumulative, u):
    """Index, (M, 1), of the first of `cumulative` (M, N), ascending, that exceeds u (M, 1). Rounding may have moved u
    beyond its ends.
    """
    u = torch.minimum(u.clamp(min=0.), cumulative[:, -1:] * (1 - 2. ** -40))
    return torch.searchsorted(cumulative, u, right=True).clamp(max=cumulative.shape[1] - 1)


# The values of the key `sampling` beside 'fp32_gumbel': functions of float32 logits (M, V) that return ids (M,).
SAMPLERS = {
    "fp16_gumbel": sample_fp16_gumbel,
    "multinomial": sample_multinomial,
    "inverse_cdf": sample_by_inversion,
}
