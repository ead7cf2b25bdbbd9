"""Seeds of the random numbers."""
import random

import numpy as np
import torch
from fastai.torch_core import set_seed  # noqa: F401  seeds Python, NumPy and PyTorch


def seed_step(seed, step, micro_batch=0):
    """Seed Python, NumPy and PyTorch for one micro-batch (1, 2, ...) of a training step, or for the whole batch (0).

    The random numbers of a step then do not depend on earlier steps, so a resumed run draws the same ones. PyTorch's
    are those after torch.manual_seed, which also prepares every kind of device that is not in use, formatting a stack
    trace for each. That takes longer than the rest of seeding.
    """
    number = int(np.random.SeedSequence((seed, step, micro_batch)).generate_state(1)[0])
    random.seed(number)
    np.random.seed(number)
    torch.default_generator.manual_seed(number)
    if torch.cuda.is_initialized():
        torch.cuda.manual_seed_all(number)


def fork_rng(device):
    """Context manager that restores PyTorch's random state, on the CPU and on this device only."""
    return torch.random.fork_rng(devices=[device] * (device.type == "cuda"))
