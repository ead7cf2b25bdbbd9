"""The benchmarks for the first minutes and the first run on a GPU, in miniature on the CPU."""

import pytest
import torch

import benchmarks.gpu
from benchmarks.gpu import exceeded


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_captured_steps_are_right_on_a_real_gpu():
    found = {}
    for more in benchmarks.gpu.replay(device="cuda", miniature=True):
        found |= more
    assert not exceeded(found)
