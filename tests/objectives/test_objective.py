"""Masking and sampling."""
import pytest
import torch
from fastai.data.core import DataLoaders
from fastai.data.load import DataLoader
from fastai.learner import Learner
from torch import nn

from _utils.networks import slot_capacity
from pretrain import (
    MaskedLMCallback,
    mask_tokens,
    sample,
)

SPECIAL = [0, 1, 2, 3, 4]


def batch(rows=64, length=128, vocab_size=500, seed=0):
    torch.manual_seed(seed)
    inputs = torch.randint(5, vocab_size, (rows, length))
    inputs[:, 0], inputs[:, length // 2], inputs[:, length - 20:] = 2, 3, 0
    inputs[:, 10] = 1  # [UNK]
    return inputs


def test_special_tokens_are_never_masked_and_random_tokens_are_from_the_whole_vocabulary():
    inputs = batch(rows=600)
    before = inputs.clone()
    masked, labels, chosen = mask_tokens(inputs, 4, 500, SPECIAL, replace_prob=.1, orginal_prob=.1)
    assert inputs.equal(before) and not chosen[torch.isin(inputs, torch.tensor(SPECIAL))].any()
    assert masked[~chosen].equal(inputs[~chosen]) and labels.equal(inputs.masked_fill(~chosen, -100))
    shown, original = masked[chosen], inputs[chosen]
    is_random = (shown != 4) & (shown != original)
    assert len(shown[is_random].unique()) > 350 and shown[is_random].min() >= 5  # from the whole vocabulary


def test_a_fixed_number_of_slots_has_room_for_more_masks_than_the_mean():
    """Five standard deviations more, which one of three million batches exceeds."""
    mean = 128 * 128 * .15
    assert mean + 5 * (mean * .85) ** .5 < slot_capacity((128, 128), .15) < 1.2 * mean


@pytest.mark.parametrize("sampling", ["fp32_gumbel", "fp16_gumbel", "multinomial"])
def test_sampling_accepts_half_precision_and_never_draws_impossible_tokens(sampling):
    torch.manual_seed(0)
    logits = torch.zeros(1000, 50, dtype=torch.bfloat16)
    logits[:, 25:] = -60000
    drawn = sample(logits, sampling)
    assert drawn.shape == (1000,) and drawn.max() < 25
    logits[0] = float("nan")  # the loss will be NaN, which ends the run with a message of its own
    assert sample(logits, sampling).shape == (1000,)


def test_the_callback_masks_the_batches_of_any_learner():
    seen, network = [], nn.Linear(1, 1)
    network.forward = lambda *x: seen.append(x) or network.weight.sum()
    dl = DataLoader([(row, torch.tensor(32), 0) for row in batch(16, 32, 50)], bs=8)  # the target is replaced
    loss_func = lambda output, labels: output + (labels != -100).sum()
    learn = Learner(DataLoaders(dl, dl, device="cpu"), network, loss_func, cbs=[MaskedLMCallback(4, SPECIAL, 50)])
    with learn.no_bar(), learn.no_logging():
        learn.fit(1)
    assert len(seen) == 4 and all(len(x) == 4 and (x[0] == 4).any() for x in seen)  # [MASK]
