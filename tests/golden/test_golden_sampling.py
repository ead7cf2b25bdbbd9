"""The generator's samples follow its softmax, at the right temperature and position (chi-square tests)."""
import json
from types import SimpleNamespace

import pytest
import torch
from electra_models import build
from scipy.stats import chisquare

from pretrain import mask_tokens, mask_tokens_official, sample

# fp16 noise has few distinct values, so that its frequencies differ from the softmax by up to .01. With fewer samples, the test does not
# detect that, but it distinguishes only temperatures that differ by a larger factor.
N_SAMPLES = {"fp32_gumbel": 100_000, "multinomial": 100_000, "fp16_gumbel": 4_000}
WRONG_FACTOR = {"fp32_gumbel": 1.15, "multinomial": 1.15, "fp16_gumbel": 1.4}  # of the temperature
VOCAB_SIZE, LENGTH, SPECIAL = 24, 16, [0, 1, 2, 3, 4]


def p_value(drawn, logits):
    """p-value of the chi-square test that the ids `drawn` (n,) are samples from softmax(logits)."""
    expected, order = (logits.double().softmax(-1) * len(drawn)).sort()
    observed = drawn.bincount(minlength=len(logits)).double()[order]
    n_rare = int((expected < 5).sum())  # the test needs an expected count of five or more, so rare tokens are pooled with the next one

    def pool(counts):
        return torch.cat([counts[:n_rare + 1].sum()[None], counts[n_rare + 1:]]).tolist()
    return chisquare(pool(observed), pool(expected)).pvalue


@pytest.mark.parametrize("sampling", N_SAMPLES)
@pytest.mark.parametrize("temperature", [.5, 1., 2.])
def test_samples_follow_the_softmax_at_the_given_temperature_only(golden, sampling, temperature):
    logits = torch.tensor(json.loads((golden / "official/sampling.json").read_text())["logits"])
    torch.manual_seed(0)
    drawn = sample(logits.expand(N_SAMPLES[sampling], -1), sampling, temperature)
    assert p_value(drawn, logits / temperature) > 1e-3
    for wrong in (WRONG_FACTOR[sampling], 1 / WRONG_FACTOR[sampling]):
        assert p_value(drawn, logits / (temperature * wrong)) < 1e-6
    assert p_value(drawn, logits.roll(1) / temperature) == 0


@pytest.mark.parametrize("sampling", N_SAMPLES)
@pytest.mark.parametrize("temperature", [.5, 1.])
def test_disallowed_token_is_never_drawn_and_the_others_keep_their_proportions(golden, sampling, temperature):
    recorded = json.loads((golden / "official/sampling.json").read_text())
    logits = torch.tensor(recorded["logits"])
    torch.manual_seed(0)
    drawn = sample(logits.expand(N_SAMPLES[sampling], -1), sampling, temperature, torch.zeros(N_SAMPLES[sampling], dtype=torch.long))
    assert drawn.min() > 0 and p_value(drawn - 1, logits[1:] / temperature) > 1e-3
    frequencies = drawn.bincount(minlength=len(logits)) / len(drawn)
    recorded_frequencies = torch.tensor(recorded[f"T{temperature:g}_disallow0"]["freq"])
    assert (frequencies - recorded_frequencies).abs().max() < (.03 if sampling == "fp16_gumbel" else .006)


@pytest.fixture(scope="module")
def logits_by_position():
    """(LENGTH, VOCAB_SIZE): a different distribution for each position."""
    return torch.randn(LENGTH, VOCAB_SIZE, generator=torch.Generator().manual_seed(1))


@pytest.fixture
def model(logits_by_position):
    """A model whose generator's logits depend on the position only."""
    model = build("tiny", VOCAB_SIZE)
    model.generator_logits = lambda masked, mask, types, positions: logits_by_position[positions % LENGTH]
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
