"""Metrics of pretraining, and the warning of a discriminator that does not learn."""
import math

import datasets
import numpy as np
import pytest
import torch
from sklearn.metrics import accuracy_score, log_loss, precision_score, recall_score, roc_auc_score

import pretrain
from _utils.networks import masked_slots
from _utils.text import unigram_entropy
from _utils.training.metrics import PretrainingMetrics, warning_of_collapse

LOSSES = torch.tensor(27.), (torch.tensor(2.), torch.tensor(.5), torch.tensor(.3))  # total, its terms


def test_metrics_match_scikit_learn():
    """The generator's loss is a mean over 100 positions, of which 24 are masked: an objective may predict others."""
    torch.manual_seed(0)
    metrics, chosen = PretrainingMetrics(), torch.arange(64).expand(40, -1) < 3
    is_replaced, is_token = torch.rand(40, 64) < .15, torch.rand(40, 64) < .9
    disc_logits = (torch.randn(40, 64) * 2 + is_replaced * 1.5 - 2).round(decimals=1)  # many are equal
    labels, gen_logits = torch.randint(10, (40, 64)), torch.randn(40, 3, 10)
    seen = labels.where(torch.rand(40, 64) < .3, 10)  # [MASK]
    for rows in torch.arange(40).split(8):
        pred = pretrain.ELECTRAOutput(gen_logits[rows].flatten(0, 1), None, disc_logits[rows], is_replaced[rows],
                                      is_token[rows], chosen[rows], masked_slots(chosen[rows]))
        metrics.add(pred, (seen[rows], labels[rows]), *LOSSES, (torch.tensor(100), is_token[rows].sum()))
    computed, truth, scores = metrics.compute(), is_replaced[is_token].numpy(), disc_logits[is_token].numpy()
    assert computed["disc_auc"] == pytest.approx(roc_auc_score(truth, scores), abs=1e-3)
    originals, hidden = labels[:, :3].numpy(), (seen != labels)[:, :3].numpy()
    correct, p = gen_logits.argmax(-1).numpy() == originals, gen_logits.softmax(-1).numpy()
    expected = {"gen_accuracy": correct.mean(), "gen_accuracy_hidden": correct[hidden].mean(),
                "gen_loss_hidden": log_loss(originals[hidden], p[hidden]),
                "disc_precision": precision_score(truth, scores > 0), "disc_recall": recall_score(truth, scores > 0),
                "disc_accuracy": accuracy_score(truth, scores > 0), "replaced_share": np.mean(truth),
                "loss": 27, "gen_loss": 2, "disc_loss": .5, "term3_loss": .3, "masks_dropped": 0}
    assert {name: computed[name] for name in expected} == pytest.approx(expected)


def test_the_unigram_entropy_leaves_out_special_tokens():
    examples = datasets.Dataset.from_dict({"input_ids": [[2, 5, 5, 3], [2, 6, 7, 3], [2, 3]]})
    assert unigram_entropy(examples, [2, 3, 99]) == pytest.approx(-.5 * math.log(.5) - 2 * .25 * math.log(.25))


@pytest.mark.parametrize("auc, share_done, is_warned",
                         [(.51, .25, False), (.53, .5, True), (.6, .5, False), (None, 1., False)])
def test_discriminator_that_does_not_learn_causes_a_warning(auc, share_done, is_warned):
    assert bool(warning_of_collapse(auc, share_done)) == is_warned
