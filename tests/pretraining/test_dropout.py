"""The fast random numbers and dropout for CPUs: their distributions, and where dropout is replaced."""
import pytest
import torch
from scipy.stats import kstest

from _utils.networks.faster_layers import attention, uniform_like


def test_uniform_numbers_are_uniform_also_in_the_tails():
    torch.manual_seed(0)
    n = 4_000_000
    x = uniform_like(torch.empty(n)).double()
    assert kstest(x[::10].numpy(), "uniform").pvalue > 1e-3
    for tail in (x < 1e-5, x > 1 - 1e-5):
        assert 10 < int(tail.sum()) < 90  # 40 on average
    for lag in (1, 2):  # the two numbers from one random integer, and neighbours, are independent
        a, b = x[:n - 2:2], x[lag::2][:n // 2 - 1]
        assert abs(float(torch.corrcoef(torch.stack([a, b]))[0, 1])) < 5 * (2 / n) ** .5


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
