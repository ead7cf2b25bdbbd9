"""The order of the training examples: permutations that can start anywhere and need little memory."""
import tracemalloc

import numpy as np
import pytest

from _utils.text.batches import EndlessPermutations


@pytest.mark.parametrize("start", [0, 5, 10, 23])
def test_order_can_start_at_any_example(start):
    from_beginning = list(EndlessPermutations(10, 37, seed=3))
    from_start = EndlessPermutations(10, 37, 3, start)
    assert list(from_start) == from_beginning[start:] and len(from_start) == 37 - start


def test_order_matches_numpy_permutations():
    size, n = 25_003, 60_000
    expected = np.concatenate([np.random.default_rng((7, epoch)).permutation(size) for epoch in range(3)])
    for start in (0, 9_999, 25_003, 40_000):
        assert list(EndlessPermutations(size, n, 7, start)) == expected[start:n].tolist()


@pytest.mark.parametrize("start", [0, 1_500_000])
def test_order_needs_little_memory(start):
    size = 1_000_000
    tracemalloc.start()
    iterator = iter(EndlessPermutations(size, 3 * size, seed=0, start=start))
    for _ in range(20_000):
        next(iterator)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 6 * size  # bytes; a list of integers would need about 40 per example
