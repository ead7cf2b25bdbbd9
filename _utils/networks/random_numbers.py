"""Random numbers for CPUs, drawn two to three times as fast as by PyTorch's generator (docs/speed.md)."""
import numpy as np
import torch


def random_bits(n):
    """n random 64-bit integers on the CPU, from NumPy's SFC64, which is seeded with a number from PyTorch's generator."""
    seed = int(torch.empty((), dtype=torch.int64).random_())
    return torch.from_numpy(np.random.SFC64(seed).random_raw(n).view(np.int64))


def uniform_like(x):
    """torch.rand_like of a float32 tensor: multiples of 2 ** -24 in [0, 1); on a CPU two of them from each random 64-bit integer."""
    if x.device.type != "cpu" or torch.compiler.is_compiling():
        return torch.rand_like(x)
    bits = random_bits(x.numel() // 2 + 1).view(torch.int32)[:x.numel()].view(x.shape)
    return bits.bitwise_right_shift_(8).float().mul_(2. ** -24).add_(.5)
