"""The layers that are faster on a CPU."""
import pytest
import torch
from transformers import RoFormerConfig, RoFormerModel

from _utils.networks import fit_to_cpu
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


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("rotary_value", [False, True])
def test_rotary_positions_have_the_outputs_and_gradients_of_transformers(precision, rotary_value):
    config = RoFormerConfig(vocab_size=50, hidden_size=24, num_attention_heads=2, num_hidden_layers=2,
                            intermediate_size=32, embedding_size=24, hidden_dropout_prob=0.,
                            attention_probs_dropout_prob=0., rotary_value=rotary_value)
    ids = torch.randint(50, (3, 9), generator=torch.Generator().manual_seed(0))

    def run(prepare):
        torch.manual_seed(0)
        model = RoFormerModel(config)
        prepare(model)
        with torch.inference_mode():
            model(ids)
        with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16"):
            output = model(ids).last_hidden_state
        output.float().square().sum().backward()
        return [output, *(p.grad for p in model.parameters() if p.grad is not None)]

    results, expected = run(fit_to_cpu), run(lambda model: None)
    assert len(results) == len(expected) > 30
    assert all(map(torch.equal, results, expected))
