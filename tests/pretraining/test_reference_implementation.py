"""Fast steps of pretraining equal the plain ones of the notebook and of benchmarks/reference.py."""
import copy
from functools import partial
from operator import attrgetter

import pytest
import torch
from tiny_pretraining import rows, run, weights

import pretrain
from _utils.config import complete
from _utils.errors import UserError
from _utils.networks import fast_sample, first_position_only, make_dropout_cheap
from _utils.networks.build import build_network
from _utils.recipes import RECIPES
from benchmarks.reference import OneByOneAdam
from pretrain import ELECTRALoss, ELECTRAModel, build_masking, build_model, build_optimizer, slot_capacity


@pytest.fixture(params=["bernoulli", "official"])
def models(request, small_tokenizer):
    """(drop-in, ELECTRAModel, inputs): the same weights, no dropout. The most likely tokens are sampled."""
    c = complete(pretrain.c.override(["size=tiny", f"masking={request.param}"]))
    torch.manual_seed(0)
    model = build_model(c, small_tokenizer).eval()
    plain = ELECTRAModel(*copy.deepcopy([model.generator, model.discriminator]), small_tokenizer).eval()
    plain.generator.base_model._forward_hooks.clear()  # of the drop-in
    model.temperature = plain.temperature = 1e-6
    inputs = torch.randint(5, len(small_tokenizer), (8, 32))
    inputs[:, 0], inputs[:, 9], inputs[:, 25:] = 2, 3, 0
    masked, labels, chosen = build_masking(c, small_tokenizer).mask_tokens(inputs)
    assert request.param == "bernoulli" or chosen.max() > 1
    return model, plain, (masked, torch.full((8,), 10), chosen, labels)


@pytest.mark.parametrize("settings", [{}, {"sampling": "inverse_cdf", "temperature": 2.}, {"disallow_correct": True}])
def test_the_drop_in_draws_what_the_plain_model_draws(models, settings):
    """With the same random numbers, every output is the same."""
    *networks, x = models
    networks[0].sample = partial(fast_sample, uniform=torch.rand_like)
    outputs = []
    for network in networks:
        vars(network).update({"temperature": 1., **settings})
        torch.manual_seed(1)
        outputs.append(network(*x))
    fast, expected = outputs
    assert fast.generated.equal(expected.generated) and fast.is_replaced.equal(expected.is_replaced)
    assert expected.is_replaced.sum() > 10
    for name in ("mlm_gen_logits", "disc_logits"):
        torch.testing.assert_close(getattr(fast, name), getattr(expected, name), atol=1e-5, rtol=1e-5)
    assert fast.at_masked(x[3]).equal(expected.at_masked(x[3])) and networks[0].counts(*x) == networks[1].counts(*x)


@pytest.mark.parametrize("masking", ["bernoulli", "official"])
def test_a_run_with_the_plain_model_has_the_same_losses(workplace, monkeypatch, masking):
    settings = [f"masking={masking}", "steps=4", "lr=1e-3", "micro_batch=3", "milestones=100"]
    monkeypatch.setattr("_utils.networks.sampling.uniform_like", torch.rand_like)
    run(*settings, "base_run_name=fast")
    learn = run(*settings, "fast=False")
    assert type(learn.model) is ELECTRAModel
    for row, expected in zip(rows(), rows("fast_5"), strict=True):
        for name in ("loss", "gen_loss", "gen_loss_hidden", "disc_loss", "disc_auc"):
            assert row[name] == pytest.approx(expected[name], rel=1e-3)
    assert weights().keys() == weights("fast_5").keys()


@pytest.mark.parametrize("fixed_slots", [False, True])
def test_loss_gradients_and_update_match_the_reference(models, fixed_slots):
    """Also with a fixed number of slots for the masked positions, of which some are unused."""
    model, reference, x = models
    make_dropout_cheap(model)
    if fixed_slots:
        model.n_slots = partial(slot_capacity, mlm_probability=.15)
        assert len(model(*x).mlm_gen_logits) > len(reference(*x).mlm_gen_logits)
    losses = [ELECTRALoss()(network(*x), x[3]) for network in (model, reference)]
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


def with_other_segments(forward):
    return lambda model, masked, sentA_lenths, *others: forward(model, masked, sentA_lenths + 100, *others)


def with_a_weight(forward):
    return lambda model, *x: forward(model, *x)._replace(disc_logits=2 * forward(model, *x).disc_logits)


def with_a_loss_of_padding(forward):
    return lambda model, masked, *x: forward(model, masked, *x)._replace(
        attention_mask=torch.ones_like(masked, dtype=torch.bool))


def with_other_counts(counts):
    return lambda *x: (counts(*x)[0] + 1, counts(*x)[1])


EDITS = {
    "the input of the networks": ("ELECTRAModel.forward", with_other_segments),
    "the output": ("ELECTRAModel.forward", with_a_weight),
    "padding": ("ELECTRAModel.forward", with_a_loss_of_padding),
    "the denominators of the losses": ("ELECTRAModel.counts", with_other_counts),
    "the sampling": ("sample", lambda sample: lambda logits, *_: logits.argmax(-1)),
    "other random numbers": ("sample", lambda sample: lambda logits, *_: logits.softmax(-1).multinomial(1)[:, 0]),
}


@pytest.mark.parametrize("edit", EDITS)
@pytest.mark.parametrize("settings", [[], ["recipe=google", "disallow_correct=True"]])
def test_an_edited_model_is_not_ignored(workplace, monkeypatch, edit, settings):
    """A run with the drop-in stops before its first step; fast=False trains the edited model."""
    settings = [*settings, "steps=2", "milestones=100"]
    name, change = EDITS[edit]
    owner, _, attribute = f"pretrain.{name}".rpartition(".")
    original = attrgetter(name)(pretrain)
    monkeypatch.setattr(f"{owner}.{attribute}", change(original))
    with pytest.raises(UserError, match="fast=False"):
        run(*settings)
    assert not list(workplace.rglob("*.pth"))
    assert run(*settings, "fast=False").train_iter == 2


def test_an_error_in_an_edited_model_stops_the_run(workplace, monkeypatch):
    monkeypatch.setattr(pretrain.ELECTRAModel, "forward", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        run("steps=2", "milestones=100")


def test_an_edited_loss_is_trained(workplace, monkeypatch):
    forward = ELECTRALoss.forward

    def weighted(loss, *arguments, **options):
        total, losses = forward(loss, *arguments, **options)
        return 2 * total, losses
    run("steps=2", "milestones=100", "base_run_name=before")
    monkeypatch.setattr(ELECTRALoss, "forward", weighted)
    run("steps=2", "milestones=100")
    assert rows()[0]["loss"] == pytest.approx(2 * rows("before_5")[0]["loss"])


def test_the_plain_model_is_not_compiled():
    with pytest.raises(UserError, match="fast"):
        complete(pretrain.c.override(["size=tiny", "compile=True", "fast=False"]))
