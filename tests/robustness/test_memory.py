"""Micro-batches: networks that do not fit, evaluation, and resumed runs."""
from types import SimpleNamespace

import pytest
import torch
from tiny_pretraining import FOLDER, metrics, run

from _utils.errors import UserError
from _utils.networks.build import build_network
from _utils.objectives.kinds import default_name, named
from _utils.recipes import RECIPES
from _utils.runs.checkpoints import load_checkpoint
from _utils.training.device import micro_batch_size
from _utils.training.metrics import evaluate


def test_gpu_too_small_for_the_networks_is_rejected(monkeypatch):
    recipe, gpu = RECIPES["large"], torch.device("cuda")
    with torch.device("meta"):
        shapes = named(default_name(recipe)).shapes(recipe)
        networks = [build_network(part, network.config(30522)) for part, network in shapes]
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: SimpleNamespace(total_memory=4 * 10 ** 9))
    with pytest.raises(UserError, match="4.0 GB"):
        micro_batch_size(gpu, recipe.bs, recipe.max_length, "bf16", networks, recipe.mask_prob)


def test_held_out_examples_are_evaluated_in_micro_batches(workplace):
    sizes = []
    learn = run("steps=1", "temperature=1e-6")
    learn.model.register_forward_pre_hook(lambda _, inputs: sizes.append(len(inputs[0])))
    metrics_of = {}
    for learn.micro_batch in (1, 8):
        sizes.clear()
        metrics_of[learn.micro_batch] = evaluate(learn, learn.dls.valid)
        assert max(sizes) == learn.micro_batch
    in_parts, whole = metrics_of.values()
    assert in_parts.keys() == whole.keys() and in_parts["gen_loss"] == pytest.approx(whole["gen_loss"], rel=1e-5)
    for name in ("disc_loss", "disc_auc", "replaced_share"):  # rounding swaps a few tokens with nearly equal logits
        assert in_parts[name] == pytest.approx(whole[name], rel=.02)


def test_a_resumed_run_keeps_its_micro_batch_and_precision(workplace, capsys):
    run("steps=2", "micro_batch=2", "precision=bf16")
    assert "cpu, bf16, micro-batches of 2" in capsys.readouterr().out
    (FOLDER / "mini_5_100.0%.pth").unlink()
    learn = run("steps=2", resume=True)
    assert (learn.micro_batch, learn.precision) == (2, "bf16") and len(metrics()) == 2
    assert load_checkpoint(FOLDER / "mini_5/resume.pth")["config"]["micro_batch"] == 2
    with pytest.raises(UserError, match="precision='fp32'"):
        run("steps=2", "precision=fp32", resume=True)
