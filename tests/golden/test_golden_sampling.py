"""The generator's samples follow its softmax, at the right temperature and position, with Google's noise (F15,
chi-square tests).
"""
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from electra_models import build
from recorded import recorded
from scipy.stats import chisquare

from _utils.networks import sampling as random_numbers
from pretrain import mask_tokens, mask_tokens_official, sample

# fp16 noise has few distinct values, so that its frequencies differ from the softmax by up to .01. With fewer samples,
# the test does not detect that, but it distinguishes only temperatures that differ by a larger factor.
N_SAMPLES = {"fp32_gumbel": 100_000, "multinomial": 100_000, "fp16_gumbel": 4_000}
WRONG_FACTOR = {"fp32_gumbel": 1.15, "multinomial": 1.15, "fp16_gumbel": 1.4}  # of the temperature
VOCAB_SIZE, LENGTH, SPECIAL = 24, 16, [0, 1, 2, 3, 4]


def p_value(drawn, logits):
    """p-value of the chi-square test that the ids `drawn` (n,) are samples from softmax(logits)."""
    expected, order = (logits.double().softmax(-1) * len(drawn)).sort()
    observed = drawn.bincount(minlength=len(logits)).double()[order]
    # the test needs an expected count of five or more, so rare tokens are pooled with the next one
    n_rare = int((expected < 5).sum())

    def pool(counts):
        return torch.cat([counts[:n_rare + 1].sum()[None], counts[n_rare + 1:]]).tolist()
    return chisquare(pool(observed), pool(expected)).pvalue


@pytest.mark.parametrize("sampling", N_SAMPLES)
@pytest.mark.parametrize("temperature, disallowed", [(.5, False), (1., False), (2., False), (.5, True), (1., True)])
def test_samples_follow_the_softmax_at_the_given_temperature_only(sampling, temperature, disallowed):
    """As recorded; with token 0 disallowed, the others keep their proportions."""
    google = recorded("official/sampling.json")
    logits, n = torch.tensor(google["logits"]), N_SAMPLES[sampling]
    torch.manual_seed(0)
    drawn = sample(
        logits.expand(200_000, -1),
        sampling,
        temperature,
        torch.zeros(200_000, dtype=torch.long) if disallowed else None,
    )
    # Tolerance for two samples of 200,000
    np.testing.assert_allclose(drawn.bincount(minlength=len(logits)) / len(drawn),
                               google[f"T{temperature:g}{'_disallow0' if disallowed else ''}"]["freq"],
                               atol=.01 if sampling == "fp16_gumbel" else .005)
    possible, drawn = logits[int(disallowed):], drawn[:n] - int(disallowed)
    assert drawn.min() >= 0 and p_value(drawn, possible / temperature) > 1e-3
    for wrong in (WRONG_FACTOR[sampling], 1 / WRONG_FACTOR[sampling]):
        assert p_value(drawn, possible / (temperature * wrong)) < 1e-6
    assert p_value(drawn, possible.roll(1) / temperature) < 1e-6


@pytest.mark.parametrize("sampling", N_SAMPLES)
def test_a_disallowed_token_is_not_sampled_at_low_temperatures(sampling):
    logits = torch.randn(1000, 100)
    assert not (sample(logits, sampling, 1e-3, logits.argmax(1)) == logits.argmax(1)).any()


@pytest.mark.parametrize("is_compiled", [False, True])
def test_gumbel_noise_adds_both_of_googles_epsilons(monkeypatch, is_compiled):
    """-log(-log(u + 1e-9) + 1e-9) for the smallest and the largest u, where each epsilon matters (F15)."""
    uniform = torch.tensor([[0., 1 - 2 ** -24]])
    monkeypatch.setattr(torch, "rand_like", lambda logits: uniform.clone())  # compiled, and on a GPU
    monkeypatch.setattr(random_numbers, "uniform_like", lambda logits: uniform.clone())  # on a CPU
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: is_compiled)
    epsilon, largest = np.float32(1e-9), np.float32(1 - 2 ** -24)
    low, high = (-np.log(-np.log(u + epsilon) + epsilon) for u in (np.float32(0), largest))
    assert np.isfinite([low, high]).all() and abs(high + np.log(-np.log(largest))) > .01  # the second epsilon matters
    # Token 0 has the noise `low`, token 1 `high`. The logit of token 0 makes up for the difference, except for the
    # margin.
    for margin, sampled in ((-1e-3, 0), (1e-3, 1)):
        assert sample(torch.tensor([[high - low - margin, 0.]])).item() == sampled


@pytest.fixture(scope="module")
def logits_by_position():
    """(LENGTH, VOCAB_SIZE): a different distribution for each position."""
    return torch.randn(LENGTH, VOCAB_SIZE, generator=torch.Generator().manual_seed(1))


@pytest.fixture
def model(logits_by_position):
    """A model whose generator's logits depend on the position only."""
    model = build("tiny", VOCAB_SIZE)
    config = model.generator.config
    model.generator = torch.nn.Module()
    model.generator.config = config
    model.generator.logits_at = lambda inputs, positions: logits_by_position[positions % LENGTH]
    model.discriminator.forward = lambda input_ids, **_: SimpleNamespace(logits=input_ids.float())
    return model


@pytest.mark.parametrize("sampling", N_SAMPLES)
@pytest.mark.parametrize("masking", [mask_tokens, mask_tokens_official])
def test_samples_at_each_position_follow_its_own_distribution(model, logits_by_position, sampling, masking):
    torch.manual_seed(0)
    inputs = torch.randint(5, VOCAB_SIZE, (20_000 if sampling != "fp16_gumbel" else 8_000, LENGTH))
    inputs[:, 0], inputs[:, 7], inputs[:, -1] = 2, 3, 3
    masked, labels, times_drawn = masking(inputs, 4, VOCAB_SIZE, SPECIAL, mlm_probability=.3)
    model.sampling = sampling
    pred = model(masked, torch.full((len(inputs),), 8), times_drawn, labels)
    for position in (1, 6, 8, LENGTH - 2):
        drawn = pred.generated[times_drawn[:, position] == 1, position]
        assert len(drawn) > 1000
        assert p_value(drawn, logits_by_position[position]) > 1e-3
        for other in (position - 1, position + 1):
            assert p_value(drawn, logits_by_position[other]) < 1e-6
        assert p_value(drawn, logits_by_position[position] / 1.5) < 1e-6


def test_disallow_correct_makes_every_sample_a_replacement(model):
    torch.manual_seed(0)
    inputs = torch.randint(5, VOCAB_SIZE, (200, LENGTH))
    masked, labels, chosen = mask_tokens(inputs, 4, VOCAB_SIZE, SPECIAL, mlm_probability=.5)
    x = masked, torch.full((200,), 8), chosen, labels
    assert not model(*x).is_replaced.equal(chosen)  # some samples equal the original tokens
    model.disallow_correct = True
    assert model(*x).is_replaced.equal(chosen)
