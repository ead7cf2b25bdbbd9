"""Random numbers: seeds by step, and drawing without side effects."""
import random

import numpy as np
import torch


def set_seed(seed):
    """Seed every source of random numbers."""
    random.seed(seed)
    np.random.seed(seed % 2 ** 32)
    torch.manual_seed(seed)


def seed_step(seed, step, part=0):
    """Seed torch for one part of a step's batch, from 1; 0 is the whole batch.

    What is drawn then depends on nothing that came before, so a run that goes on elsewhere goes on alike.
    """
    torch.manual_seed(int(np.random.SeedSequence((seed, step, part)).generate_state(1)[0]))


def fork_rng(device):
    """Context in which random numbers are drawn without disturbing those outside, on the CPU and on this device alone."""
    return torch.random.fork_rng(devices=[device] if device.type == "cuda" else [])
