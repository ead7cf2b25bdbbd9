"""An edit of the notebook is trained, with every objective that it concerns, and with a fixed number of slots, too."""
from functools import cache

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import pretrain
from _utils.config import complete
from _utils.networks import argmax, fit_to_device, gumbel_like
from _utils.seeds import set_seed

OBJECTIVES = {
    "electra": "objective=electra", "official": "masking=official", "electra_15": "objective=electra_15",
    "adversarial": "objective=adversarial", "disentangled": "tying=disentangled", "uniform": "uniform_generator=True",
    "two_towers": "two_tower_generator=True", "electric": "objective=electric", "replace_mlm": "objective=replace_mlm",
    "all_tokens_mlm": "objective=all_tokens_mlm", "mlm": "objective=mlm",
}
TWO_NETWORKS = set(OBJECTIVES) - {"mlm"}
TWO_TOWERS = {"two_towers", "electric"}
WITH_ELECTRA_LOSS = {"electra", "official", "electra_15", "adversarial", "disentangled", "uniform"}


class OtherSegments(pretrain.ELECTRAModel):
    def forward(self, masked, sentA_lenths, *others):
        return super().forward(masked, sentA_lenths + 100, *others)


class AGain(pretrain.ELECTRAModel):
    """A new parameter that has no effect before it is trained."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.gain = nn.Parameter(torch.ones(self.generator.config.vocab_size))

    def forward(self, *x):
        output = super().forward(*x)
        return output._replace(mlm_gen_logits=output.mlm_gen_logits * self.gain)


class EverySampleIsReplaced(pretrain.ELECTRAModel):
    """A sample that equals the original counts as replaced."""

    def forward(self, *x):
        output = super().forward(*x)
        return output._replace(is_replaced=output.is_mlm_applied > 0)


class SharperDiscriminator(pretrain.ELECTRAModel):
    def discriminate(self, *x):
        return 2 * super().discriminate(*x)


class OtherCounts(pretrain.ELECTRAModel):
    def counts(self, *x):
        n_masked, n_tokens = super().counts(*x)
        return 2 * n_masked, 2 * n_tokens


class LossOfLikelihoods(pretrain.ELECTRALoss):
    """An edited loss that reads the labels: each must be a token, also those of unused slots."""

    def forward(self, pred, targ_ids, counts=None, return_losses=False):
        labels = targ_ids.flatten()[pred.slots.positions]  # (M,)
        p = pred.mlm_gen_logits.softmax(-1).gather(1, labels[:, None]).squeeze(1)
        gen_loss = ((1 - p) * pred.slots.weights).sum() / pred.slots.weights.sum()
        bce = F.binary_cross_entropy_with_logits(pred.disc_logits, pred.is_replaced.float())
        return (gen_loss + bce, pretrain.ELECTRALosses(gen_loss, bce)) if return_losses else gen_loss + bce


def without_special_tokens(logits, *_):
    return argmax(logits.index_fill(1, torch.arange(5), -1e9) + gumbel_like(logits))


def of_the_top_90_percent(logits, *_):
    values, ids = logits.sort(descending=True)
    total = values.softmax(-1).cumsum(-1)
    return ids.gather(1, argmax(values.masked_fill(total > .9, -1e9) + gumbel_like(logits))[:, None]).squeeze(1)


def at_temperature_2(logits, *_, sample=pretrain.sample):
    return sample(logits, temperature=2.)


def never_the_original(logits, sampling, temperature, disallowed, sample=pretrain.sample):
    return sample(logits, sampling, temperature, logits.argmax(-1))  # of this network, whose guesses are often right


def without_masks(inputs, *_):
    return inputs


def without_decay(model, lr, *_, build_optimizer=pretrain.build_optimizer):
    return build_optimizer(model, lr, weight_decay=0.)


def ties_nothing(generator, discriminator=None, tying=None, tie=pretrain.tie):
    tie(generator, None)


EDITS = {  # what is edited, its replacement, the objectives that it concerns
    "other segments": ("ELECTRAModel", OtherSegments, set(OBJECTIVES)),
    "a new parameter": ("ELECTRAModel", AGain, set(OBJECTIVES) - TWO_TOWERS - {"uniform"}),
    "labels of correct samples": ("ELECTRAModel", EverySampleIsReplaced,
                                  WITH_ELECTRA_LOSS - {"uniform"} | {"two_towers"}),
    "the discriminator's output": ("ELECTRAModel", SharperDiscriminator, WITH_ELECTRA_LOSS | TWO_TOWERS),
    "the denominators": ("ELECTRAModel", OtherCounts, set(OBJECTIVES) - TWO_TOWERS - {"electra_15", "replace_mlm"}),
    "the loss": ("ELECTRALoss", LossOfLikelihoods, WITH_ELECTRA_LOSS - {"adversarial"}),
    "no special tokens": ("sample", without_special_tokens, TWO_NETWORKS),
    "the top 90%": ("sample", of_the_top_90_percent, TWO_NETWORKS),
    "temperature 2": ("sample", at_temperature_2, TWO_NETWORKS - {"uniform"}),
    "never the best guess": ("sample", never_the_original, TWO_NETWORKS - {"uniform"}),
    "no [MASK]": ("apply_masks", without_masks, set(OBJECTIVES) - TWO_TOWERS - {"uniform"}),
    "the optimizer": ("build_optimizer", without_decay, set(OBJECTIVES)),
    "what is tied": ("tie", ties_nothing, set(OBJECTIVES) - {"mlm", "uniform", "disentangled"}),
}


def trained(name, tokenizer, fixed_slots, steps=3):
    """The weights after some steps of an objective, in fp32 on a CPU, as the notebook's definitions have them now."""
    c = complete(pretrain.c.override(["size=tiny", OBJECTIVES[name]]))
    set_seed(0)
    model = pretrain.build_model(c, tokenizer)
    if fixed_slots:
        fit_to_device(model, c.copy_with({"compile": True, "device": "cpu"}))
    loss_func, masking = pretrain.build_loss(c), pretrain.build_masking(c, tokenizer)
    optimizer = pretrain.build_optimizer(model, 1e-3)
    ids = torch.randint(5, len(tokenizer), (32, 32))
    ids[:, 0], ids[:, 9], ids[:, 25:] = 2, 3, 0
    for _ in range(steps):
        x, (labels,) = masking.mask(ids, torch.full((32,), 10))
        loss, _ = loss_func(model(*x), labels, model.counts(*x), return_losses=True)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model.state_dict()


@cache
def unedited(name, tokenizer, fixed_slots):
    return trained(name, tokenizer, fixed_slots)


@pytest.mark.parametrize("fixed_slots", [False, True])
@pytest.mark.parametrize("edit", EDITS)
def test_an_edit_is_trained_with_every_objective_that_it_concerns(monkeypatch, small_tokenizer, edit, fixed_slots):
    name, replacement, concerned = EDITS[edit]
    before = {objective: unedited(objective, small_tokenizer, fixed_slots) for objective in concerned}
    monkeypatch.setattr(pretrain, name, replacement)
    for objective, weights in before.items():
        after = trained(objective, small_tokenizer, fixed_slots)
        assert any(not value.equal(weights.get(key, torch.ones_like(value))) for key, value in after.items()), objective


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_unused_slots_change_nothing(monkeypatch, small_tokenizer, objective):
    """The samples are the most likely tokens, because random numbers depend on the number of slots."""
    monkeypatch.setattr(pretrain, "sample", lambda logits, *_: argmax(logits))
    monkeypatch.setattr(nn.Dropout, "forward", lambda module, x: x)
    plain, fixed = (trained(objective, small_tokenizer, fixed_slots, steps=1) for fixed_slots in (False, True))
    for name, weight in plain.items():
        torch.testing.assert_close(fixed[name], weight, atol=2e-3, rtol=0, msg=name)
