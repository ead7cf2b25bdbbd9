"""Metrics of pretraining, and the warning of a discriminator that does not learn."""
import numpy as np
import pytest
import torch
from sklearn.metrics import accuracy_score, precision_score, recall_score, roc_auc_score

import pretrain
from _utils.training.metrics import PretrainingMetrics, warning_of_collapse

LOSSES = torch.tensor(27.), (torch.tensor(2.), torch.tensor(.5))  # total, (generator, discriminator)


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
        metrics.update(pred, torch.randint(10, (8, 64)), *LOSSES, (chosen.sum(), attention_mask.sum()))
        logits.append(disc_logits[attention_mask])
        replaced.append(is_replaced[attention_mask])
    computed = metrics.compute()
    truth, scores = torch.cat(replaced).numpy(), torch.cat(logits).numpy()
    assert computed["disc_auc"] == pytest.approx(roc_auc_score(truth, scores), abs=1e-3)
    assert computed["disc_precision"] == pytest.approx(precision_score(truth, scores > 0))
    assert computed["disc_recall"] == pytest.approx(recall_score(truth, scores > 0))
    assert computed["disc_accuracy"] == pytest.approx(accuracy_score(truth, scores > 0))
    assert computed["replaced_share"] == pytest.approx(np.mean(truth))
    assert [computed[name] for name in ("loss", "gen_loss", "disc_loss")] == pytest.approx([27, 2, .5])
    assert computed["masks_dropped"] == 0


def test_masks_beyond_the_slot_capacity_are_counted():
    chosen = torch.ones(2, 4, dtype=torch.bool)
    pred = pretrain.ELECTRAOutput(torch.zeros(5, 10), None, torch.zeros(2, 4), chosen, chosen, chosen)
    metrics = PretrainingMetrics()
    metrics.update(pred, torch.zeros(2, 4, dtype=torch.long), *LOSSES, (torch.tensor(8), torch.tensor(8)))
    assert metrics.compute()["masks_dropped"] == 3


def test_undefined_metrics_are_none():
    nowhere, everywhere = torch.zeros(1, 4, dtype=torch.bool), torch.ones(1, 4, dtype=torch.bool)
    pred = pretrain.ELECTRAOutput(torch.zeros(0, 10), None, torch.zeros(1, 4) - 1, nowhere, everywhere, nowhere)
    metrics = PretrainingMetrics()
    metrics.update(pred, torch.zeros(1, 4, dtype=torch.long), *LOSSES, (torch.tensor(0), torch.tensor(4)))
    computed = metrics.compute()
    assert [computed[name] for name in ("gen_loss", "gen_accuracy", "disc_auc", "disc_precision", "disc_recall")] == [None] * 5


@pytest.mark.parametrize("aucs, share_done, message", [
    ([.51], .25, None), ([.51, .53], .5, "AUC on held-out text is 0.530 after 50% of the training"), ([.58, .6], .5, None),
    ([.8, .69], .5, "dropped from 0.800 to 0.690"), ([.8, .75], 1., None), ([], 1., None)])
def test_discriminator_that_does_not_learn_causes_a_warning(aucs, share_done, message):
    warning = warning_of_collapse(aucs, share_done)
    if message is None:
        assert warning is None
    else:
        assert message in warning and "replaced_share" in warning
