"""Metrics of pretraining, and the warning of a discriminator that does not learn."""
import math

import datasets
import numpy as np
import pytest
import torch
from sklearn.metrics import accuracy_score, precision_score, recall_score, roc_auc_score

import pretrain
from _utils.networks.fast_electra import FastOutput, masked_slots
from _utils.objectives.losses import GeneratorLoss
from _utils.text import unigram_entropy
from _utils.training.metrics import PretrainingMetrics, warning_of_collapse

LOSSES = torch.tensor(27.), pretrain.ELECTRALosses(torch.tensor(2.), torch.tensor(.5))


def test_metrics_match_scikit_learn():
    torch.manual_seed(0)
    metrics, logits, replaced = PretrainingMetrics(), [], []
    for _ in range(5):
        is_replaced = torch.rand(8, 64) < .15
        attention_mask = torch.rand(8, 64) < .9
        disc_logits = torch.randn(8, 64) * 2 + is_replaced * 1.5 - 2
        chosen = torch.zeros(8, 64, dtype=torch.bool)
        chosen[:, :3] = True
        pred = pretrain.ELECTRAOutput(torch.randn(24, 10), None, disc_logits, is_replaced, attention_mask, chosen)
        labels = torch.randint(10, (8, 64))
        metrics.add(pred, (labels, labels), *LOSSES, (chosen.sum(), attention_mask.sum()))
        logits.append(disc_logits[attention_mask])
        replaced.append(is_replaced[attention_mask])
    computed = metrics.compute()
    truth, scores = torch.cat(replaced).numpy(), torch.cat(logits).numpy()
    assert computed.pop("disc_auc") == pytest.approx(roc_auc_score(truth, scores), abs=1e-3)
    expected = {"disc_precision": precision_score(truth, scores > 0), "disc_recall": recall_score(truth, scores > 0),
                "disc_accuracy": accuracy_score(truth, scores > 0), "replaced_share": np.mean(truth),
                "loss": 27, "gen_loss": 2, "disc_loss": .5, "masks_dropped": 0}
    assert {name: computed[name] for name in expected} == pytest.approx(expected)


@pytest.mark.parametrize("n_chosen, n_slots, expected", [
    (4, 3, {"masks_dropped": 1}),
    (0, 0, dict.fromkeys(["gen_loss", "gen_accuracy", "gen_loss_hidden", "gen_accuracy_hidden", "disc_auc", "disc_precision",
                          "disc_recall"])),
])
def test_masks_beyond_the_slots_are_counted_and_undefined_metrics_are_none(n_chosen, n_slots, expected):
    chosen = torch.arange(4)[None] < n_chosen
    pred = FastOutput(torch.zeros(n_slots, 10), None, torch.zeros(1, 4) - 1, chosen, torch.ones(1, 4, dtype=torch.bool), chosen,
                      masked_slots(chosen, n_slots))
    metrics = PretrainingMetrics()
    metrics.add(pred, torch.zeros(2, 1, 4, dtype=torch.long), *LOSSES, (chosen.sum(), torch.tensor(4)))
    computed = metrics.compute()
    assert {name: computed[name] for name in expected} == expected


def test_a_batch_without_masked_tokens_has_no_loss_where_only_those_count():
    nothing, zero = torch.zeros(1, 4, dtype=torch.bool), torch.tensor(0.)
    pred = pretrain.ELECTRAOutput(torch.zeros(0, 10), None, torch.zeros(1, 4), nothing, nothing, nothing)
    metrics = PretrainingMetrics()
    metrics.add(pred, torch.zeros(2, 1, 4, dtype=torch.long), zero, pretrain.ELECTRALosses(zero, zero), (torch.tensor(0), torch.tensor(0)))
    assert metrics.compute()["loss"] is None and metrics.compute()["disc_loss"] is None


def test_hidden_tokens_are_those_whose_input_is_not_the_original():
    """Of five masked positions, two are [MASK] (4), one shows another token and two the original; one slot is
    unused.
    """
    labels, inputs = torch.tensor([[1, 2, 3, 1, 2, 0]]), torch.tensor([[4, 2, 4, 2, 2, 0]])
    chosen = torch.tensor([[True] * 5 + [False]])
    logits = torch.randn(6, 6)
    metrics = PretrainingMetrics()
    pred = FastOutput(logits, None, None, None, chosen, chosen, masked_slots(chosen, len(logits)))
    metrics.add(pred, (inputs, labels), torch.tensor(2.), GeneratorLoss(torch.tensor(2.)),
                (chosen.sum(), chosen.sum()))
    computed, hidden = metrics.compute(), [0, 2, 3]
    nll = torch.nn.functional.cross_entropy(logits[hidden], labels[0, hidden])
    assert computed["gen_loss_hidden"] == pytest.approx(nll.item())
    assert computed["gen_accuracy_hidden"] == pytest.approx((logits[hidden].argmax(-1) == labels[0, hidden]).double().mean().item())


def test_the_unigram_entropy_leaves_out_special_tokens():
    examples = datasets.Dataset.from_dict({"input_ids": [[2, 5, 5, 3], [2, 6, 7, 3], [2, 3]]})
    assert unigram_entropy(examples, [2, 3, 99]) == pytest.approx(-.5 * math.log(.5) - 2 * .25 * math.log(.25))


@pytest.mark.parametrize("auc, share_done, is_warned", [(.51, .25, False), (.53, .5, True), (.6, .5, False), (None, 1., False)])
def test_discriminator_that_does_not_learn_causes_a_warning(auc, share_done, is_warned):
    warning = warning_of_collapse(auc, share_done)
    assert all(cause in warning for cause in ("0.530 after 50%", "more steps", "replaced_share")) if is_warned else warning is None
