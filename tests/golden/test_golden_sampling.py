"""The generator's draws are distributed as its softmax says: at the right temperature, at the right position."""
import json
from types import SimpleNamespace

import pytest
import torch
from electra_models import build
from scipy.stats import chisquare

from pretrain import mask_tokens, mask_tokens_official, sample

# Half floats have noise of few values, whose frequencies differ from the softmax by up to .01: fewer draws do not see that, and
# tell apart only temperatures that differ more.
DRAWS = {"fp32_gumbel": 100_000, "multinomial": 100_000, "fp16_gumbel": 4_000}
WRONG = {"fp32_gumbel": 1.15, "multinomial": 1.15, "fp16_gumbel": 1.4}
WORDS, LENGTH, SPECIAL = 24, 16, [0, 1, 2, 3, 4]


def p_value(drawn, logits):
    """Chance of frequencies as far off as those of `drawn` (n,) if they came from softmax(logits), by the chi-square test."""
    expected, order = (logits.double().softmax(-1) * len(drawn)).sort()
    observed = drawn.bincount(minlength=len(logits)).double()[order]
    rare = int((expected < 5).sum())  # the test wants at least five of each: these are counted with the next
    pool = lambda counts: torch.cat([counts[:rare + 1].sum()[None], counts[rare + 1:]]).tolist()
    return chisquare(pool(observed), pool(expected)).pvalue


@pytest.mark.parametrize("sampling", DRAWS)
@pytest.mark.parametrize("temperature", [.5, 1., 2.])
def test_draws_follow_the_softmax_and_not_that_of_another_temperature(golden, sampling, temperature):
    logits = torch.tensor(json.loads((golden / "official/sampling.json").read_text())["logits"])
    torch.manual_seed(0)
    drawn = sample(logits.expand(DRAWS[sampling], -1), sampling, temperature)
    assert p_value(drawn, logits / temperature) > 1e-3
    for wrong in (WRONG[sampling], 1 / WRONG[sampling]):
        assert p_value(drawn, logits / (temperature * wrong)) < 1e-6
    assert p_value(drawn, logits.roll(1) / temperature) == 0


@pytest.mark.parametrize("sampling", DRAWS)
@pytest.mark.parametrize("temperature", [.5, 1.])
def test_a_disallowed_word_is_never_drawn_and_the_others_share_its_part(golden, sampling, temperature):
    recorded = json.loads((golden / "official/sampling.json").read_text())
    logits = torch.tensor(recorded["logits"])
    torch.manual_seed(0)
    drawn = sample(logits.expand(DRAWS[sampling], -1), sampling, temperature, torch.zeros(DRAWS[sampling], dtype=torch.long))
    assert drawn.min() > 0 and p_value(drawn - 1, logits[1:] / temperature) > 1e-3
    theirs = torch.tensor(recorded[f"T{temperature:g}_disallow0"]["freq"])
    assert (drawn.bincount(minlength=len(logits)) / len(drawn) - theirs).abs().max() < (.03 if sampling == "fp16_gumbel" else .006)


@pytest.fixture(scope="module")
def logits_by_position():
    """(LENGTH, WORDS): every position has a favourite of its own."""
    return torch.randn(LENGTH, WORDS, generator=torch.Generator().manual_seed(1))


@pytest.fixture
def model(logits_by_position):
    """A model whose generator's logits depend on the position alone."""
    model = build("tiny", WORDS)
    model.generator_logits = lambda masked, mask, types, positions: logits_by_position[positions % LENGTH]
    model.discriminator.forward = lambda input_ids, **_: SimpleNamespace(logits=input_ids.float())
    return model


@pytest.mark.parametrize("sampling", DRAWS)
@pytest.mark.parametrize("masking", [mask_tokens, mask_tokens_official])
def test_every_position_gets_words_of_its_own_distribution(model, logits_by_position, sampling, masking):
    torch.manual_seed(0)
    inputs = torch.randint(5, WORDS, (20_000 if sampling != "fp16_gumbel" else 8_000, LENGTH))
    inputs[:, 0], inputs[:, 7], inputs[:, -1] = 2, 3, 3
    masked, labels, times_drawn = masking(inputs, 4, WORDS, SPECIAL, mlm_probability=.3)
    model.sampling = sampling
    pred = model(masked, torch.full((len(inputs),), 8), times_drawn, labels)
    for position in (1, 6, 8, LENGTH - 2):
        drawn = pred.generated[times_drawn[:, position] == 1, position]
        assert len(drawn) > 1000
        assert p_value(drawn, logits_by_position[position]) > 1e-3
        for other in (position - 1, position + 1):
            assert p_value(drawn, logits_by_position[other]) < 1e-6
        assert p_value(drawn, logits_by_position[position] / 1.5) < 1e-6


def test_with_disallow_correct_every_word_drawn_is_replaced(model):
    torch.manual_seed(0)
    inputs = torch.randint(5, WORDS, (200, LENGTH))
    masked, labels, chosen = mask_tokens(inputs, 4, WORDS, SPECIAL, mlm_probability=.5)
    x = masked, torch.full((200,), 8), chosen, labels
    assert not model(*x).is_replaced.equal(chosen)  # some words are guessed right
    model.disallow_correct = True
    assert model(*x).is_replaced.equal(chosen)
