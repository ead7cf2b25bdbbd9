"""Masking, sampling and loss against values recorded from Google's code and electra_pytorch (F15, F20-F22, D1, D17)."""
import ast
import json

import numpy as np
import pytest
import torch

from pretrain import ELECTRALoss, ELECTRAOutput, mask_tokens, sample


@pytest.mark.parametrize("setting", ["mlm_probability=0.15,replace_prob=0.0,orginal_prob=0.15",
                                     "mlm_probability=0.25,replace_prob=0.0,orginal_prob=0.15",
                                     "mlm_probability=0.15,replace_prob=1.0,orginal_prob=0.0"])
def test_shares_of_masked_kept_and_random_tokens_match_electra_pytorch(golden, setting):
    recorded = json.loads((golden / "electra_pytorch/mask_tokens_stats.json").read_text())[setting]
    torch.manual_seed(0)
    inputs = torch.randint(5, 2000, (400, 128))
    arguments = {name: float(value) for name, value in (part.split("=") for part in setting.split(","))}
    masked, labels, chosen = mask_tokens(inputs, 4, 2000, [0, 1, 2, 3, 4], **arguments)
    # Both are samples; the tolerance is five standard deviations of the recorded one, which is smaller.
    close = lambda share, n: pytest.approx(share, abs=5 * max(share * (1 - share) / n, 1 / n ** 2) ** .5)
    assert float(chosen.float().mean()) == close(recorded["selected_frac"], recorded["tokens"])
    shown, original = masked[chosen], inputs[chosen]
    for name, share in [("mask_frac_of_selected", shown == 4), ("kept_frac_of_selected", shown == original),
                        ("random_frac_of_selected", (shown != 4) & (shown != original))]:
        assert float(share.float().mean()) == close(recorded[name], recorded["selected"]), name


def test_sampling_frequencies_match_the_recorded_ones_and_the_softmax(golden):
    recorded = json.loads((golden / "official/sampling.json").read_text())
    logits = torch.tensor(recorded["logits"])
    torch.manual_seed(0)
    for temperature in (.5, 1., 2.):
        target = recorded[f"T{temperature:g}"]
        for sampling in ("fp32_gumbel", "fp16_gumbel", "multinomial"):
            drawn = sample(logits.expand(200_000, -1), sampling, temperature)
            frequency = (drawn.bincount(minlength=len(logits)) / len(drawn)).numpy()
            # Tolerances for two samples of 200,000; fp16 noise has few distinct values.
            np.testing.assert_allclose(frequency, target["freq"], atol=.01 if sampling == "fp16_gumbel" else .005)
            np.testing.assert_allclose(frequency, target["softmax"], atol=.01 if sampling == "fp16_gumbel" else .004)


def test_gumbel_noise_adds_both_of_googles_epsilons(monkeypatch):
    """-log(-log(u + 1e-9) + 1e-9) for the smallest and the largest u, where each epsilon matters (F15)."""
    uniform = torch.tensor([[0., 1 - 2 ** -24]])
    monkeypatch.setattr("pretrain.uniform_like", lambda logits: uniform.clone())
    epsilon, largest = np.float32(1e-9), np.float32(1 - 2 ** -24)
    low, high = (-np.log(-np.log(u + epsilon) + epsilon) for u in (np.float32(0), largest))
    assert np.isfinite([low, high]).all() and abs(high + np.log(-np.log(largest))) > .01  # the second epsilon matters
    # Token 0 has the noise `low`, token 1 `high`. The logit of token 0 makes up for the difference, except for the margin.
    for margin, sampled in ((-1e-3, 0), (1e-3, 1)):
        assert sample(torch.tensor([[high - low - margin, 0.]])).item() == sampled


def test_loss_of_recorded_logits_matches_electra_pytorch(golden):
    inputs = {name: torch.tensor(value) for name, value in np.load(golden / "electra_pytorch/loss_inputs.npz").items()}
    pred = ELECTRAOutput(inputs["mlm_gen_logits"], inputs["generated"], inputs["disc_logits"], inputs["is_replaced"],
                         inputs["non_pad"], inputs["is_mlm_applied"])
    for setting, value in json.loads((golden / "electra_pytorch/loss_values.json").read_text()).items():
        assert float(ELECTRALoss(**_arguments(setting))(tuple(pred), inputs["labels"])) == pytest.approx(value, rel=1e-6), setting


def _arguments(setting):
    """Parse 'a=(1.0, 50.0),b=False' to a dictionary of keyword arguments."""
    call = ast.parse(f"f({setting})", mode="eval").body
    return {keyword.arg: ast.literal_eval(keyword.value) for keyword in call.keywords}
