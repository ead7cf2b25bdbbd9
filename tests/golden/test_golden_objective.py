"""Masking and loss against values recorded from electra_pytorch (F20-F22, D1, D17)."""
import ast

import pytest
import torch
from recorded import recorded

from pretrain import ELECTRALoss, mask_tokens


@pytest.mark.parametrize("setting", ["mlm_probability=0.15,replace_prob=0.0,orginal_prob=0.15",
                                     "mlm_probability=0.25,replace_prob=0.0,orginal_prob=0.15",
                                     "mlm_probability=0.15,replace_prob=1.0,orginal_prob=0.0"])
def test_shares_of_masked_kept_and_random_tokens_match_electra_pytorch(setting):
    expected = recorded("electra_pytorch/mask_tokens_stats.json")[setting]
    torch.manual_seed(0)
    inputs = torch.randint(5, 2000, (400, 128))
    arguments = {name: float(value) for name, value in (part.split("=") for part in setting.split(","))}
    masked, labels, chosen = mask_tokens(inputs, 4, 2000, [0, 1, 2, 3, 4], **arguments)
    # Both are samples; the tolerance is five standard deviations of the recorded one, which is smaller.
    close = lambda share, n: pytest.approx(share, abs=5 * max(share * (1 - share) / n, 1 / n ** 2) ** .5)
    assert float(chosen.float().mean()) == close(expected["selected_frac"], expected["tokens"])
    shown, original = masked[chosen], inputs[chosen]
    for name, share in [("mask_frac_of_selected", shown == 4), ("kept_frac_of_selected", shown == original),
                        ("random_frac_of_selected", (shown != 4) & (shown != original))]:
        assert float(share.float().mean()) == close(expected[name], expected["selected"]), name


def test_loss_of_recorded_logits_matches_electra_pytorch():
    inputs = {name: torch.tensor(value) for name, value in recorded("electra_pytorch/loss_inputs.npz").items()}
    pred = tuple(inputs[name] for name in ("mlm_gen_logits", "generated", "disc_logits", "is_replaced", "non_pad",
                                           "is_mlm_applied"))
    for setting, value in recorded("electra_pytorch/loss_values.json").items():
        keywords = ast.parse(f"f({setting})", mode="eval").body.keywords  # 'a=(1.0, 50.0),b=False'
        loss_func = ELECTRALoss(**{keyword.arg: ast.literal_eval(keyword.value) for keyword in keywords})
        assert float(loss_func(pred, inputs["labels"])) == pytest.approx(value, rel=1e-6), setting
