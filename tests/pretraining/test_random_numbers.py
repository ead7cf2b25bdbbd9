"""Random numbers on the CPU: uniform, independent, and determined by PyTorch's seed. Argmax on the CPU."""
import pytest
import torch

from _utils.networks import argmax
from _utils.networks.fast import random_bits, uniform_like


@pytest.mark.parametrize("shape", [(1001, 999), (7,), (2, 3, 5), (0, 5)])
def test_uniform_numbers_are_multiples_of_2_to_the_minus_24_below_1(shape):
    torch.manual_seed(0)
    x = uniform_like(torch.empty(shape))
    assert x.shape == shape and x.dtype == torch.float32
    assert ((0 <= x) & (x < 1)).all()
    assert (x.double() * 2 ** 24).frac().eq(0).all()


def test_uniform_numbers_have_the_moments_and_the_tails_of_a_uniform_distribution():
    torch.manual_seed(0)
    n = 4_000_000
    x = uniform_like(torch.empty(n)).double()
    assert float(x.mean()) == pytest.approx(.5, abs=5 * (1 / 12 / n) ** .5)
    assert float(x.var()) == pytest.approx(1 / 12, abs=5 * (1 / 180 / n) ** .5)
    counts = torch.histc(x.float(), 100, 0, 1).double()
    assert float(((counts - n / 100) ** 2 / (n / 100)).sum()) < 160  # chi-squared with 99 degrees of freedom: p < 1e-4
    for tail in (x < 1e-5, x > 1 - 1e-5):
        assert 10 < int(tail.sum()) < 90  # 40 on average
    # The two numbers from one random integer, and neighbours, are independent.
    for lag in (1, 2):
        assert abs(float(torch.corrcoef(torch.stack([x[:-lag:2], x[lag::2][:len(x[:-lag:2])]]))[0, 1])) < 5 * (2 / n) ** .5


def test_numbers_follow_from_the_seed_and_differ_between_calls():
    def draw():
        return uniform_like(torch.empty(10)), random_bits(10)
    torch.manual_seed(1)
    first, second = draw(), draw()
    torch.manual_seed(1)
    for a, b, other in zip(first, draw(), second):
        assert a.equal(b) and not a.equal(other)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_argmax_is_that_of_pytorch_also_for_ties_and_nan(dtype):
    torch.manual_seed(0)
    x = torch.randn(500, 300).to(dtype).requires_grad_()  # many ties in bf16
    with torch.no_grad():
        x[3, [7, 9]] = float("nan")
        x[4] = -float("inf")
    assert argmax(x).equal(x.argmax(-1)) and argmax(x[:0]).shape == (0,)
