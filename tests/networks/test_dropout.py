"""The fast attention with dropout for CPUs."""
import pytest
import torch

from _utils.networks.faster_layers import attention


@pytest.mark.parametrize("query_heads, padding_sees_nothing", [(3, False), (6, False), (3, True)])
def test_mean_of_attention_with_dropout_equals_attention_without(query_heads, padding_sees_nothing):
    """Also of families with fewer heads of keys, and with local attention, where padding may see no token.

    NaN there would spread to the tokens of the next layer.
    """
    torch.manual_seed(0)
    tensors = [torch.randn(2, heads, 7, 4) for heads in (query_heads, 3, 3)]
    mask = torch.ones(2, 1, 7, 7, dtype=torch.bool)
    mask[1, :, :, 5:] = False
    mask[1, :, 5:] &= not padding_sees_nothing
    module = torch.nn.Module()
    module.is_causal, module.num_key_value_groups = False, query_heads // 3
    output = lambda dropout: attention(module, *tensors, mask, scaling=.5, dropout=dropout)[0]
    samples = torch.stack([output(.5) for _ in range(1500)])
    assert samples.isfinite().all() and (samples.std(0)[0] > 0).all()
    torch.testing.assert_close(samples.mean(0)[:, :5], output(0.)[:, :5], atol=.08, rtol=.08)
