"""Electric and its generator of two towers, beside the steps recorded from Google's code (test_golden_variants.py)."""
import pytest
import torch
import torch.nn.functional as F
from tiny_families import FAMILIES
from tiny_pretraining import run, weights
from transformers import RoFormerConfig

from _utils.errors import UserError
from _utils.networks import fit_to_cpu, two_towers
from _utils.networks.two_towers import TwoTowers, cross_entropy_everywhere

TINY = {**FAMILIES, "roformer": RoFormerConfig(embedding_size=8, **{
    key: value for key, value in FAMILIES["electra"].to_dict().items()
    if key in ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size")})}


@pytest.mark.parametrize("family", two_towers.FAMILIES)
def test_towers_predict_a_token_from_all_others_but_not_from_itself(family):
    torch.manual_seed(0)
    towers = TwoTowers(TINY[family]).eval()
    ids, mask = torch.randint(5, 400, (2, 12)), torch.ones(2, 12, dtype=torch.bool)
    mask[1, 9:] = False
    changed = ids.clone()
    changed[:, 5] += 1
    x = ids.masked_fill(~mask, TINY[family].pad_token_id or 0), mask, torch.zeros_like(ids)
    with torch.no_grad():
        states = towers(*x)
        differs = (states - towers(changed.where(mask, x[0]), *x[1:])).abs().amax(-1) > 1e-6  # (2, 12)
        fit_to_cpu(towers.train())  # with it, a CPU has attention of its own
        for module in towers.modules():
            if isinstance(module, torch.nn.Dropout):
                module.p = 1e-9
        torch.testing.assert_close(towers(*x)[mask], states[mask], atol=1e-5, rtol=1e-4)
    assert not differs[:, 5].any() and differs[mask].sum() == mask.sum() - 2


def test_a_family_whose_attention_cannot_be_causal_is_rejected():
    with pytest.raises(UserError, match="deberta.*electra"):
        TwoTowers(FAMILIES["deberta"])


@pytest.mark.parametrize("dtype, tolerance", [(torch.float32, 1e-5), (torch.bfloat16, 3e-2)])
def test_the_loss_in_blocks_and_its_gradients_are_those_of_cross_entropy(monkeypatch, dtype, tolerance):
    monkeypatch.setattr(two_towers, "LOGITS_AT_ONCE", 1000)  # eight of the 50 positions
    torch.manual_seed(0)
    shapes = (50, 16), (100, 16), (100,)
    arguments = [torch.randn(shape, requires_grad=True) for shape in shapes]
    targets, counted = torch.randint(100, (50,)), (torch.rand(50) < .8).float()
    with torch.autocast("cpu", dtype, enabled=dtype != torch.float32):
        loss, log_sums = cross_entropy_everywhere(*arguments, targets, counted)
        logits = F.linear(*arguments)
        expected = (F.cross_entropy(logits.float(), targets, reduction="none") * counted).sum()
    torch.testing.assert_close(loss, expected, rtol=tolerance, atol=0)
    torch.testing.assert_close(log_sums, logits.float().logsumexp(1), rtol=tolerance, atol=tolerance)
    pairs = zip(*(torch.autograd.grad(3 * one, arguments) for one in (loss, expected)))
    for found, gradient in pairs:
        assert (found - gradient).norm() <= tolerance * gradient.norm()


def test_training_continues_with_the_towers_of_a_checkpoint(workplace):
    pair = ["initial_weights=checkpoints/pretrain/mini_5_100.0%.pth", "base_run_name=further", "steps=2", "lr=1e-9"]
    run("objective=electric", "steps=2", "lr=1e-2")
    run(*pair, vocab=None)  # the checkpoint says which objective it was trained with
    before, after = weights(), weights("further_5")
    assert before.keys() == after.keys() and any(name.startswith("towers.rtl.encoder") for name in before)
    for name, value in before.items():
        torch.testing.assert_close(after[name], value, atol=1e-6, rtol=0)
    for other in ("two_tower_generator=True", "objective=electric"):  # may be chosen
        run(other, *pair, "base_run_name=other", vocab=None)
    with pytest.raises(UserError, match="scores of tokens"):  # to which no generator of masks belongs
        run("new_generator=True", *pair, vocab=None)
    run("steps=2")
    with pytest.raises(UserError, match="mini_5_100.*objective=electric"):
        run("two_tower_generator=True", *pair, vocab=None)
