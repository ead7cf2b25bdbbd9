"""The fast random numbers and dropout for CPUs: their distributions, and where dropout is replaced."""
import pytest
import torch

from _utils.networks.faster_layers import attention, cheap_dropout, uniform_like


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
        assert (
            abs(float(torch.corrcoef(torch.stack([x[:-lag:2], x[lag::2][: len(x[:-lag:2])]]))[0, 1]))
            < 5 * (2 / n) ** 0.5
        )


@pytest.mark.parametrize("p", [.1, .5])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_cheap_dropout_drops_its_share_and_keeps_the_mean(p, dtype):
    torch.manual_seed(0)
    x = torch.ones(1001, 999, dtype=dtype, requires_grad=True)  # the number of elements is not a multiple of four
    y = cheap_dropout(x, p)
    y.sum().backward()
    y = y.detach()
    assert x.grad.equal(y)  # dropped elements have no gradient
    deviation = lambda n: (p * (1 - p) / n) ** .5
    dropped = (y == 0).double()
    assert y.dtype == dtype and float(dropped.mean()) == pytest.approx(p, abs=5 * deviation(x.numel()))
    # the same share for all four values of one random number
    assert (dropped.mean(0) - p).abs().max() < 7 * deviation(len(x))
    assert float(y.double().mean()) == pytest.approx(1, abs=.005) and len(y.unique()) == 2


@pytest.mark.parametrize("query_heads, padding_sees_nothing", [(3, False), (6, False), (3, True)])
def test_mean_of_attention_with_dropout_equals_attention_without(query_heads, padding_sees_nothing):
    """Also of families with fewer heads of keys, and with local attention, where padding may see no token.

    NaN there would spread to the tokens of the next layer.
    """
    torch.manual_seed(0)
    query, key, value = (torch.randn(2, heads, 7, 4) for heads in (query_heads, 3, 3))
    mask = torch.ones(2, 1, 7, 7, dtype=torch.bool)
    mask[1, :, :, 5:] = False
    if padding_sees_nothing:
        mask[1, :, 5:] = False
    module = torch.nn.Module()
    module.is_causal, module.num_key_value_groups = False, query_heads // 3
    without, *samples = (attention(module, query, key, value, mask, scaling=.5, dropout=p)[0]
                         for p in [0.] + [.5] * 1500)
    samples = torch.stack(samples)
    assert samples.isfinite().all() and (samples.std(0)[0] > 0).all()
    torch.testing.assert_close(samples.mean(0)[:, :5], without[:, :5], atol=.08, rtol=.08)
