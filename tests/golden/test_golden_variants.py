"""Google's flags: one step of each variant of the model, the power of the learning rate's decay, operation counts
(F88-F93, F98-F103).
"""
from dataclasses import replace

import numpy as np
import pytest
import torch
from electra_models import as_googles, by_google_name, masked_batch
from recorded import GOLDEN, recorded

import pretrain
from _utils.commands.tf_checkpoint import open_variables
from _utils.config import complete
from _utils.recipes import RECIPES, electra_networks
from _utils.schedules import schedules
from benchmarks.flops import CONVENTIONS, flops_per_token

VARIANTS = recorded("official/variants/variants.json")
SETTINGS = {
    "uniform_generator": ["uniform_generator=True"],
    "untied_generator_embeddings": ["tying=none"],
    "tied_generator": ["tying=all"],
    "half_generator": ["generator_hidden_size=.5", "generator_layers=.5"],
    "masked_lm": ["objective=mlm"],
    "loss_weights": ["gen_weight=.5", "disc_weight=10"],
    "electric": ["objective=electric", "masking=official"],
    "two_tower": ["two_tower_generator=True", "masking=official"],
}


class Vocabulary:
    """A tokenizer as far as build_model uses it."""
    pad_token_id, unk_token_id, all_special_ids = 0, 1, [0, 1, 2, 3, 4]

    def __len__(self):
        return 2000


@pytest.fixture(params=SETTINGS)
def variant(request, monkeypatch):
    return request.param, *take_step(request.param, monkeypatch)


def take_step(name, monkeypatch):
    """(model, output, loss, losses) of a forward and backward pass on the recorded weights, masks and samples of a
    variant.
    """
    values = recorded(f"official/variants/{name}.npz")
    micro = electra_networks(1 / 2, layers=2, hidden=32, heads=2, intermediate=128, embedding=16)
    monkeypatch.setitem(RECIPES, "tiny", replace(RECIPES["tiny"], **micro))
    c = complete(pretrain.c.override(["size=tiny", *SETTINGS[name]]))
    model = pretrain.build_model(c, Vocabulary()).eval()
    load_recorded_weights(model, name, values)
    batch = recorded("official/micro_ckpt/pretrain_step.npz")
    inputs, samples, _ = masked_batch(
        {**{key: batch[key] for key in ("input_ids", "input_mask", "segment_ids")}, **values}
    )
    monkeypatch.setattr(pretrain, "sample", lambda *_: samples)
    output = model(*inputs)
    loss, losses = pretrain.build_loss(c)(output, inputs[-1], return_losses=True)
    loss.backward()
    return model, output, loss.detach(), losses


@torch.no_grad()
def load_recorded_weights(model, name, values):
    """Those recorded with the variant, and otherwise those of the checkpoint."""
    own = {key.partition("|")[2].replace("|", "/"): value for key, value in values.items() if key.startswith("param|")}
    checkpoint = open_variables(GOLDEN / "official/micro_ckpt/model.ckpt-200")
    parameters = by_google_name(model, VARIANTS[name]["grad_stats"])
    for variable in VARIANTS[name]["grad_stats"]:
        value = torch.tensor(own[variable] if variable in own else checkpoint[variable].read()).float()
        parameters[variable].copy_(value.T if variable.endswith("/kernel") else value)


def test_losses_and_logits_match_google(variant):
    name, _, output, loss, losses = variant
    expected = recorded(f"official/variants/{name}.npz")
    assert float(loss) == pytest.approx(float(expected["total_loss"]), rel=1e-5)
    of_generator = expected["cloze_loss" if "cloze_loss" in expected else "mlm_loss"]
    assert losses[0].item() == pytest.approx(float(of_generator), rel=1e-5)
    if name == "masked_lm":
        assert len(losses) == 1
        return
    assert losses[1].item() == pytest.approx(float(expected["disc_loss"]), rel=1e-5)
    tokens = output.attention_mask.numpy()
    assert output.generated.tolist() == expected["fake_input_ids"].tolist()
    assert (output.is_replaced.numpy() == expected["labels"])[tokens].all()
    np.testing.assert_allclose(output.disc_logits.detach().numpy()[tokens], expected["disc_logits"][tokens], atol=1e-4)


@pytest.mark.parametrize("name", ["electric", "two_tower"])
def test_predictions_of_two_towers_match_google(name, monkeypatch):
    """At all tokens, also where the shift wraps around or padding is seen."""
    model, output, *_ = take_step(name, monkeypatch)
    expected, tokens = recorded(f"official/variants/{name}.npz"), output.attention_mask
    ids = torch.tensor(recorded("official/micro_ckpt/pretrain_step.npz")["input_ids"]).long()
    assert (output.extra.may_be_masked.numpy() == expected["cloze_weights"]).all()
    found = {
        "cloze_logsumexp": model.log_sums.view(tokens.shape),
        "cloze_per_token": -model.generator.log_probabilities(ids, model.log_sums),
        "log_q": model.generator.log_probabilities(output.generated, model.log_sums),
    }
    for key in found.keys() & expected.keys():
        np.testing.assert_allclose(found[key][tokens], expected[key][tokens], atol=1e-4)
    of_slots = torch.nn.functional.cross_entropy(output.mlm_gen_logits, ids.flatten()[output.slots.positions])
    assert of_slots.item() == pytest.approx(float(expected["mlm_loss"]), rel=1e-5)


def test_parameters_and_their_gradients_match_google(variant):
    """Their number, and of each gradient the norm, the sum, and a sum with different weights."""
    name, model, *_ = variant
    expected = VARIANTS[name]
    assert sum(p.numel() for p in model.parameters()) == expected["n_parameters"]
    parameters = by_google_name(model, expected["grad_stats"])
    for variable, stats in expected["grad_stats"].items():
        g = as_googles(variable, parameters[variable].grad).astype(float).flatten()
        computed = [np.linalg.norm(g), g.sum(), (g * np.cos(np.arange(len(g)))).sum()]
        assert computed == pytest.approx(stats, abs=max(2e-4 * stats[0], 1e-6)), variable
    norm = torch.stack([p.grad.double().norm() for p in model.parameters()]).norm()
    assert float(norm) == pytest.approx(expected["grad_global_norm"], rel=1e-4)


def test_learning_rates_with_a_power_match_google():
    runs = [run for run in recorded("official/variants/lr_decay_power.json").values() if isinstance(run, dict)]
    for run in runs:
        n = run["num_train_steps"]
        lr = schedules("original_linear", run["learning_rate"], n, run["num_warmup_steps"], run["lr_decay_power"])["lr"]
        # Up to the last step but one, at which 1 - step / steps has few digits left in TensorFlow's float32.
        within = [(step, value) for step, value in zip(run["steps"], run["lr"]) if step < n - 1]
        assert len(within) >= 6
        assert [lr(step / n) for step, _ in within] == pytest.approx([value for _, value in within], rel=1e-5)


def google_flops(networks, length, mask_prob, bs, steps):
    recipe = replace(RECIPES["small"], **networks, max_length=length, mask_prob=mask_prob, bs=bs, steps=steps)
    return flops_per_token(recipe, 30522, **CONVENTIONS["google"]) * bs * length * steps


def test_operation_counts_match_google():
    """Everything that flops_computation.py prints for BERT and ELECTRA; its masked positions are 15.625% of the
    tokens.
    """
    flops = recorded("official/variants/flops.json")
    for name, run in flops["electra_options"].items():
        hidden, layers, generator_hidden, _, bs, steps, is_tied = run["args"]
        options = {"s": 512, "e": hidden, "output_frac": .15625, **run["kwargs"]}
        networks = electra_networks(generator_hidden / hidden, layers=layers, hidden=hidden, heads=max(1, hidden // 64),
                                    intermediate=4 * hidden, embedding=options["e"])
        if not is_tied:
            networks["generator"] = replace(networks["generator"], embedding=generator_hidden)
        total = google_flops(networks, options["s"], options["output_frac"], bs, steps)
        assert total == pytest.approx(run["flops"], rel=1e-9), name
    alone = {"generator": RECIPES["small"].discriminator, "discriminator": None}
    bert_small = google_flops(alone, 128, .15625, 128, 1_450_000)
    assert bert_small == pytest.approx(flops["printed"]["bert_small"], rel=1e-9)
