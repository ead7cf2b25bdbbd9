"""The fast dropout for CPUs: the share it drops, where it replaces torch's dropout, and attention weights."""
import pytest
import torch

from _utils.networks.build import build_network
from _utils.networks.fast import CheapDropout, attention, cheap_dropout, make_dropout_cheap
from _utils.recipes import RECIPES


@pytest.mark.parametrize("p", [.1, .5])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_cheap_dropout_drops_its_share_and_keeps_the_mean(p, dtype):
    torch.manual_seed(0)
    x = torch.ones(1001, 999, dtype=dtype, requires_grad=True)  # the number of elements is not a multiple of four
    y = cheap_dropout(x, p)
    dropped_share = (y == 0).double().mean()
    assert y.dtype == dtype and float(dropped_share) == pytest.approx(p, abs=5 * (p * (1 - p) / x.numel()) ** .5)
    assert float(y.detach().double().mean()) == pytest.approx(1, abs=.005)
    assert len(y.detach().unique()) == 2
    y.sum().backward()
    assert x.grad.equal(y.detach())  # dropped elements have no gradient
    by_column = (y.detach() == 0).double().mean(0)
    assert abs(by_column - p).max() < 7 * (p * (1 - p) / len(x)) ** .5  # the same share for all four values of one random number
    assert not cheap_dropout(x, p).equal(y)
    assert cheap_dropout(x[:0], p).shape == (0, 999)


@pytest.mark.parametrize("size", ["tiny", "bert_tiny", "albert_tiny"])
def test_every_dropout_is_replaced_and_inactive_in_evaluation(size):
    torch.manual_seed(0)
    network = build_network("generator", RECIPES[size].encoder.config(100)).eval()
    ids = torch.randint(5, 100, (4, 20))
    mask = torch.ones_like(ids).bool()
    mask[1, 10:] = False

    def logits():
        return network(input_ids=ids, attention_mask=mask).logits[mask]
    before = logits()
    make_dropout_cheap(torch.nn.ModuleList([network]))
    assert logits().equal(before)
    kinds = {type(module) for module in network.modules()}
    assert CheapDropout in kinds and torch.nn.Dropout not in kinds and network.config._attn_implementation == "cheap_dropout"
    network.train()
    assert not logits().equal(before) and not logits().equal(logits()) and torch.isfinite(logits()).all()


def test_mean_of_attention_with_dropout_equals_attention_without():
    torch.manual_seed(0)
    query, key, value = (torch.randn(2, 3, 7, 4) for _ in range(3))
    mask = torch.ones(2, 1, 7, 7, dtype=torch.bool)
    mask[1, :, :, 5:] = False
    module = torch.nn.Module()
    module.is_causal = False
    without_dropout, with_tiny_dropout = (attention(module, query, key, value, mask, dropout=p)[0] for p in (0., 1e-9))
    torch.testing.assert_close(without_dropout, with_tiny_dropout)
    samples = torch.stack([attention(module, query, key, value, mask, dropout=.1)[0] for _ in range(4000)])
    torch.testing.assert_close(samples.mean(0), without_dropout, atol=.05, rtol=.05)
    assert (samples.std(0) > 0).all()
