"""Gradients of a step: in one tensor, from weights in half precision, and of parameters that have none."""
from types import SimpleNamespace

import pytest
import torch

import benchmarks.pretraining
import pretrain
from _utils.config import complete
from _utils.text.vocabulary import tokenizer_from_tokens
from _utils.training.device import seed_step
from _utils.training.processes import Processes


def build_learner(*settings):
    c = complete(pretrain.c.override(["bs=4", "micro_batch=2", "max_length=32", *settings]))
    hf_tokenizer = tokenizer_from_tokens(benchmarks.pretraining.VOCABULARY[:500])
    learn = pretrain.build_learner(c, hf_tokenizer, SimpleNamespace(device=torch.device("cpu"), n_inp=2), None, Processes())
    learn.training, learn.train_iter, learn.pct_train, learn.n_iter, learn.n_epoch = True, 0, 0., 1, 1
    return learn


def batch():
    torch.manual_seed(0)
    return torch.randint(5, 500, (4, 32)), torch.full((4,), 10)


def gradients_by_autograd(learn):
    """{name: gradient} of the same step with plain autocast and loss.backward()."""
    x, counts = learn.masks(*batch())
    for number, micro_batch in learn.micro_batches(x):
        seed_step(0, 0, number)
        with learn.autocast():
            learn.loss_func(learn.model(*micro_batch), micro_batch[-1], counts).backward()
    found = {name: p.grad for name, p in learn.model.named_parameters()}
    learn.model.zero_grad(set_to_none=True)
    return x, counts, found


ROBERTA = {"model_type": "roberta", "hidden_size": 64, "num_attention_heads": 2, "num_hidden_layers": 1, "intermediate_size": 64,
           "max_position_embeddings": 64}
PAIR = [f"generator={ROBERTA}", f"discriminator={ROBERTA}"]


@pytest.mark.parametrize("settings", [
    ["size=tiny", "precision=bf16"], ["size=tiny", "precision=fp32"], ["size=albert_tiny", "precision=bf16"],
    ["size=tiny", "precision=bf16", *PAIR], ["size=tiny", "precision=bf16", "tying=embeddings+encoder", *PAIR]])
def test_gradients_equal_those_of_plain_autocast(settings):
    learn = build_learner(*settings)
    x, counts, expected = gradients_by_autograd(learn)
    for number, micro_batch in learn.micro_batches(x):
        seed_step(0, 0, number)
        learn.accumulate(*micro_batch, *counts)
    for name, p in learn.model.named_parameters():
        if expected[name] is None:
            assert p.grad is None, name
        else:
            torch.testing.assert_close(p.grad, expected[name], atol=0., rtol=0., msg=name)
    assert sum(p.numel() for p in learn.model.parameters() if p.grad is not None) == learn.gradients.flat.numel()
    if "precision=bf16" in settings:
        assert len(learn.gradients.half_views) > 10


def test_parameters_without_gradient_are_left_alone():
    """Weight decay skips them, as it skips them in fastai and in torch.optim."""
    learn = build_learner("size=tiny", "precision=bf16")
    learn.model.unused = torch.nn.Linear(3, 3)
    learn.model.frozen = torch.nn.Parameter(torch.ones(2), requires_grad=False)
    learn = pretrain.PretrainingLearner(learn.dls, learn.model, learn.loss_func, pretrain.build_optimizer(learn.model, 1e-2), learn.masking,
                                        2, 0, "bf16", learn.processes)
    learn.training, learn.train_iter, learn.pct_train, learn.n_iter, learn.n_epoch = True, 0, 0., 1, 1
    before = learn.model.unused.weight.detach().clone()
    learn.one_batch(0, batch())
    assert learn.model.unused.weight.equal(before) and learn.model.frozen.equal(torch.ones(2)) and learn.model.unused.weight.grad is None
