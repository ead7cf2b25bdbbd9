"""A step of pretraining equals one that predicts all positions, with the optimizer of benchmarks/reference.py."""
import copy
from functools import partial

import pytest
import torch
import torch.nn.functional as F

import pretrain
from _utils.config import complete
from _utils.networks import first_position_only, fit_to_cpu, slot_capacity
from _utils.networks.build import build_network
from _utils.recipes import RECIPES
from benchmarks.reference import OneByOneAdam, PredictsEverywhere
from pretrain import ELECTRALoss, build_masking, build_model, build_optimizer


@pytest.fixture(params=["bernoulli", "official"])
def models(request, small_tokenizer):
    """(model, its copy, inputs): without dropout. The most likely tokens are sampled."""
    c = complete(pretrain.c.override(["size=tiny", f"masking={request.param}"]))
    torch.manual_seed(0)
    model = build_model(c, small_tokenizer).eval()
    model.temperature = 1e-6
    inputs = torch.randint(5, len(small_tokenizer), (8, 32))
    inputs[:, 0], inputs[:, 9], inputs[:, 25:] = 2, 3, 0
    masked, labels, chosen = build_masking(c, small_tokenizer).mask_tokens(inputs)
    assert request.param == "bernoulli" or chosen.max() > 1
    return model, copy.deepcopy(model), (masked, torch.full((8,), 10), chosen, labels)


def everywhere(model, masked, sentA_lenths, is_mlm_applied, labels):
    """The losses of electra_pytorch, whose generator predicts all positions (D16)."""
    mask = masked != 0
    types = ((torch.arange(masked.shape[1]) >= sentA_lenths[:, None]) & mask).long()
    logits = model.generator(input_ids=masked, attention_mask=mask, token_type_ids=types).logits  # (B, L, V)
    shown = torch.where(is_mlm_applied > 0, logits.argmax(-1), masked)
    originals = torch.where(is_mlm_applied > 0, labels, masked)
    disc_logits = model.discriminator(input_ids=shown, attention_mask=mask, token_type_ids=types).logits
    nll = F.cross_entropy(logits.flatten(0, 1), originals.flatten(), reduction="none").view(masked.shape)
    bce = F.binary_cross_entropy_with_logits(disc_logits, (shown != originals).float(), reduction="none")
    return (nll * is_mlm_applied).sum() / is_mlm_applied.sum() + 50 * (bce * mask).sum() / mask.sum()


@pytest.mark.parametrize("fixed_slots", [False, True])
def test_loss_gradients_and_update_match_the_reference(models, fixed_slots):
    """Also with a fixed number of slots for the masked positions, of which some are unused."""
    model, reference, x = models
    fit_to_cpu(model)
    if fixed_slots:
        model.n_slots = partial(slot_capacity, mlm_probability=.15)
        assert len(model(*x).mlm_gen_logits) > x[2].sum()
    losses = [ELECTRALoss()(model(*x), x[3]), everywhere(reference, *x)]
    torch.testing.assert_close(*losses, atol=1e-5, rtol=1e-5)
    for loss in losses:
        loss.backward()
    pairs = list(zip(model.named_parameters(), reference.parameters(), strict=True))
    for (name, a), b in pairs:
        torch.testing.assert_close(a.grad, b.grad, atol=2e-6, rtol=1e-3, msg=name)
        # Adam's first step divides by the size of the gradient, which would magnify rounding errors
        b.grad = a.grad.clone()
    for optimizer in build_optimizer(model, 1e-3), OneByOneAdam(reference.named_parameters(), 1e-3):
        optimizer.step()
    for (name, a), b in pairs:
        torch.testing.assert_close(a, b, atol=1e-6, rtol=1e-5, msg=name)


def test_the_reference_of_the_benchmarks_predicts_all_positions(models):
    """And has the same loss."""
    model, reference, x = models
    rows = []
    reference.generator = PredictsEverywhere(reference.generator)
    reference.generator.network.get_output_embeddings().register_forward_hook(
        lambda layer, inputs, logits: rows.append(logits.numel() // logits.shape[-1]))
    torch.testing.assert_close(*(ELECTRALoss()(one(*x), x[3]) for one in (model, reference)), atol=1e-5, rtol=1e-5)
    assert rows == [x[0].numel()]


@pytest.mark.parametrize("size, n_positions", [("tiny", 1), ("bert_tiny", 1), ("mini", 1), ("albert_tiny", 20)])
def test_computing_only_the_first_position_gives_the_same_vector(size, n_positions):
    torch.manual_seed(0)
    encoder = build_network("generator", RECIPES[size].encoder.config(100)).base_model.eval()
    ids, mask = torch.randint(5, 100, (3, 20)), torch.ones(3, 20).long()
    mask[1, 10:] = 0
    states = lambda: encoder(ids, attention_mask=mask).last_hidden_state
    all_positions = states()
    with first_position_only(encoder):
        first_position = states()
    assert first_position.shape[1] == n_positions and states().equal(all_positions)
    torch.testing.assert_close(first_position[:, 0], all_positions[:, 0], atol=1e-6, rtol=1e-5)
