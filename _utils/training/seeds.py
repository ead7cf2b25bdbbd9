"""Random numbers: one seed for all generators, a seed per training step, and forked generators."""
import random

import numpy as np
import torch


def set_seed(seed):
    """Seed Python, NumPy and PyTorch."""
    random.seed(seed)
    np.random.seed(seed % 2 ** 32)
    torch.manual_seed(seed)


def seed_step(seed, step, part=0):
    """Seed PyTorch for one part (1, 2, ...) of a training step, or for what concerns the whole batch (0).

    The random numbers of a step then do not depend on earlier steps, so a resumed run draws the same ones.
    """
    torch.manual_seed(int(np.random.SeedSequence((seed, step, part)).generate_state(1)[0]))


def fork_rng(device):
    """Context manager that restores PyTorch's random state, on the CPU and on this device only."""
    return torch.random.fork_rng(devices=[device] if device.type == "cuda" else [])
