"""Sampling tokens with one random number for each, instead of one for each logit.

The sample is the first token at which the cumulative probability exceeds the random number u. To keep it exact without
a cumulative sum over the whole vocabulary, a block of tokens is found first, from the sums of the blocks, and then the
token in it.
"""
import torch

BLOCK = 256  # tokens


def sample_by_inversion(logits):
    """Sample one token id per row by inverting the cumulative distribution. logits: (M, V), float32. Returns ids, (M,).

    Sums are float64, in which a token of probability 1e-9 is not lost beside the others. Exponentials are computed
    twice rather than kept.
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
