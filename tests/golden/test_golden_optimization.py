"""Optimizer, weight decay, clipping and schedules against values recorded from Google's code and electra_pytorch
(F31-F35), and against fastai.
"""
import fastai.callback.schedule  # noqa: F401  fit_one_cycle
import numpy as np
import pytest
import torch
from fastai.test_utils import synth_learner
from recorded import recorded
from torch import nn

from _utils.optim import (
    AdamNoBiasCorrection,
    clip_by_global_norm,
    decay_groups,
    linear_warmup_and_decay,
    linear_warmup_and_then_decay,
)
from _utils.schedules import schedules


@pytest.mark.parametrize(
    "run, clip", [("direct_lr1e-2_wd.01_noclip", False), ("create_optimizer_lr1e-2_N100_warm5_wd.01_clip1", True)]
)
def test_twenty_updates_match_google(run, clip):
    trajectory = recorded("official/adam_trajectory.npz")
    keys = [name.replace("/", "|") for name in recorded("official/adam_rule.json")["names"]]
    parameters = {key: nn.Parameter(torch.tensor(trajectory[f"{run}/param/{key}"][0])) for key in keys}
    optimizer = AdamNoBiasCorrection(decay_groups(parameters.items()), lr=1e-2)
    for step in range(20):
        for key, parameter in parameters.items():
            parameter.grad = torch.tensor(trajectory[f"grads/{key}"][step])
        if clip:  # this run also has a schedule and clipping; step n uses the learning rate of step n + 1 (F32)
            clip_by_global_norm(list(parameters.values()))
            for group in optimizer.param_groups:
                group["lr"] = linear_warmup_and_decay((step + 1) / 100, 1e-2, 100, warmup_steps=5)
        optimizer.step()
        for key, parameter in parameters.items():
            np.testing.assert_allclose(parameter.detach(), trajectory[f"{run}/param/{key}"][step + 1], atol=1e-6)
            np.testing.assert_allclose(
                optimizer.state[parameter]["exp_avg_sq"], trajectory[f"{run}/v/{key}"][step], rtol=1e-4, atol=1e-9
            )


@pytest.mark.parametrize("optimizer_class, is_equal", [(AdamNoBiasCorrection, True), (torch.optim.AdamW, False)])
def test_twenty_updates_match_electra_pytorch(optimizer_class, is_equal):
    """The tolerance is small enough to detect the bias correction and another place of eps in PyTorch's AdamW."""
    expected = recorded("electra_pytorch/adam_no_bias_correction.json")
    parameters = [nn.Parameter(torch.tensor(value)) for value in expected["init"]]
    optimizer = optimizer_class(
        [
            {"params": [p], "weight_decay": 0.0 if i in expected["no_wd_params"] else expected["wd"]}
            for i, p in enumerate(parameters)
        ],
        lr=expected["lr"],
        eps=expected["eps"],
    )
    for grads, after in zip(expected["grads"], expected["params_after_step"]):
        for parameter, grad in zip(parameters, grads):
            parameter.grad = torch.tensor(grad)
        optimizer.step()
        for parameter, value in zip(parameters, after):
            assert np.allclose(parameter.detach(), value, rtol=0, atol=2e-6) == is_equal


def test_clipping_keeps_a_gradient_of_norm_1():
    """electra_pytorch divides it by the norm plus 1e-6 (D8)."""
    parameter = nn.Parameter(torch.zeros(2, dtype=torch.float64))
    parameter.grad = torch.tensor([1., 0.], dtype=torch.float64)
    clip_by_global_norm([parameter])
    assert parameter.grad.tolist() == [1., 0.]
    parameter.grad = torch.tensor([1.001, 0.], dtype=torch.float64)
    clip_by_global_norm([parameter])
    assert parameter.grad[0].item() == pytest.approx(1., abs=1e-9)


@pytest.mark.parametrize("run", ["pretrain", "finetune_600", "finetune_345", "finetune_1150"])
def test_learning_rates_match_google(run):
    expected = recorded("official/lr_schedule.json")[run]
    arguments = expected["args"]
    steps = arguments["num_train_steps"]
    warmup = arguments.get("warmup_steps", steps * arguments.get("warmup_proportion", 0))
    for step, lr in zip(expected["global_step"], expected["lr"]):
        computed = linear_warmup_and_decay(min(1, step / steps), arguments["learning_rate"], steps, warmup_steps=warmup)
        assert computed == pytest.approx(lr, rel=1e-4, abs=1e-10)  # Google computes in float32


@pytest.mark.parametrize("function", [linear_warmup_and_decay, linear_warmup_and_then_decay])
def test_learning_rates_match_electra_pytorch(function):
    runs = {
        key: points
        for key, points in recorded("electra_pytorch/schedules.json").items()
        if key.split("|")[0] == function.__name__
    }
    assert len(runs) == 3
    for key, points in runs.items():
        settings = {name: float(value) for name, value in (part.split("=") for part in key.split("|")[1].split(","))}
        steps, lr = int(settings.pop("total")), settings.pop("lr")
        for step, value in points:
            assert function(step / steps, lr, steps, **settings) == pytest.approx(value, rel=1e-9, abs=1e-15)


@pytest.mark.parametrize("name, options", [("one_cycle", {}), ("adjusted_one_cycle", {"div": 1e5, "pct_start": .3})])
def test_one_cycle_has_the_learning_rates_and_momentums_of_fastai(name, options):
    learn = synth_learner(n_trn=10)
    with learn.no_bar(), learn.no_logging():
        learn.fit_one_cycle(1, 1e-2, **options)
    functions = schedules(name, 1e-2, steps=10, warmup_steps=3)
    assert functions.keys() == learn.recorder.hps.keys()
    for key, values in learn.recorder.hps.items():
        assert [functions[key](step / 10) for step in range(10)] == pytest.approx(values)
