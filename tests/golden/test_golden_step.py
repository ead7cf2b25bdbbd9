"""One pretraining step from Google's weights: recorded inputs, losses, gradients and updated weights (F12-F22, F29,
F33-F35).
"""
import json
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np
import pytest
import torch
from electra_models import Vocabulary, as_googles, by_google_name, masked_batch
from recorded import GOLDEN, recorded

import pretrain
from _utils.commands.convert_tf import convert, convert_tf
from _utils.commands.tf_checkpoint import open_variables
from _utils.config import complete
from _utils.networks import load_pair
from _utils.optim import clip_by_global_norm, restore_moments
from _utils.text import load_tokenizer
from _utils.text.vocabulary import SPECIAL_TOKENS
from _utils.training import Processes
from pretrain import ELECTRALoss, ELECTRAModel, build_optimizer


class Step(NamedTuple):
    """The result of a forward and backward pass on recorded inputs."""
    folder: Path
    model: ELECTRAModel
    pred: pretrain.ELECTRAOutput
    loss: torch.Tensor
    parts: list          # generator loss, discriminator loss
    # indices that sort the recorded predictions by example and position, as the slots of pretrain.py
    order: torch.Tensor
    segments: list       # token type ids passed to the generator and the discriminator

    def recorded(self, file="pretrain_step"):
        return recorded(self.folder / f"{file}.npz")

    def parameter_of(self, name):
        """The parameter for the name of a recorded array, 'grad|...' or 'param|...'."""
        return by_google_name(self.model)[variable_of(name)]


def variable_of(name):
    """Google's name of the variable of a recorded array."""
    return name.partition("|")[2].replace("|", "/")


def load_networks(folder, prefix):
    """[generator, discriminator] converted from a TensorFlow checkpoint."""
    hparams = recorded(folder / "config.json")["pretraining_hparams"]
    return [convert(folder / prefix, part, hparams)[0] for part in ("generator", "discriminator")]


def take_step(folder, prefix, n_spare=0):
    """Run a forward and backward pass on the recorded masks and samples, without dropout.

    n_spare: unused slots, as on a GPU, where the number of slots is fixed.
    """
    model = ELECTRAModel(*load_networks(folder, prefix), Vocabulary()).eval()
    (*inputs, labels), samples, order = masked_batch(recorded(folder / "pretrain_step.npz"))
    segments = []
    for network in (model.generator, model.discriminator):
        network.electra.embeddings.token_type_embeddings.register_forward_hook(
            lambda module, ids, output: segments.append(*ids)
        )
    if n_spare:
        samples = torch.cat([samples, samples[:n_spare]])
        model.n_slots = lambda shape: len(samples)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(pretrain, "sample", lambda *_: samples)
        pred = model(*inputs, labels)
    loss, parts = ELECTRALoss()(pred, labels, return_losses=True)
    loss.backward()
    return Step(folder, model, pred, loss.detach(), [part.detach() for part in parts], order, segments)


MICRO = GOLDEN / "official/micro_ckpt", "model.ckpt-200"


@pytest.fixture(scope="module", params=["micro", "micro, unused slots", "tiny"])
def step(request):
    if request.param != "tiny":
        return take_step(*MICRO, n_spare=20 if "unused" in request.param else 0)
    return take_step(request.getfixturevalue("shared") / "golden/official/tiny_ckpt", "model.ckpt-300")


def test_discriminator_inputs_labels_and_logits_match_google(step):
    expected = step.recorded()
    assert step.pred.generated.numpy().tolist() == expected["fake_input_ids"].tolist()
    tokens = expected["input_mask"] == 1
    assert (step.pred.is_replaced.numpy() == expected["labels"])[tokens].all()
    assert step.pred.attention_mask.numpy().tolist() == tokens.tolist()
    logits = step.pred.disc_logits.detach().numpy()
    np.testing.assert_allclose(logits[tokens], expected["disc_logits"][tokens], atol=1e-4)


def test_token_types_of_both_networks_match_google_also_at_padding(step):
    expected = step.recorded()
    assert len(step.segments) == 2 and (expected["input_mask"] == 0).any()
    for segments in step.segments:
        assert segments.numpy().tolist() == expected["segment_ids"].tolist()  # F4, D6


def test_losses_match_google_in_total_and_for_each_prediction(step):
    expected = step.recorded()
    for part, name in zip(step.parts, ("mlm_loss", "disc_loss")):
        assert float(part) == pytest.approx(float(expected[name]), rel=1e-5), name
    assert float(step.loss) == pytest.approx(float(expected["total_loss"]), rel=1e-5)
    used = expected["masked_lm_weights"] > 0
    labels = torch.tensor(expected["masked_lm_ids"][used]).long()[step.order]
    logits = step.pred.mlm_gen_logits.detach()[:len(labels)]
    nll = torch.nn.functional.cross_entropy(logits, labels, reduction="none")
    np.testing.assert_allclose(nll, expected["mlm_per_example"][used][step.order], atol=1e-4)


def test_every_gradient_matches_google(step):
    gradients = {name: values for name, values in step.recorded("pretrain_grads").items() if name.startswith("grad|")}
    assert len(gradients) >= 75
    for name, expected in gradients.items():
        computed = as_googles(name, step.parameter_of(name).grad)
        # 1e-8 for rounding errors: the gradient of a key bias is zero, because it does not change the attention
        # weights.
        assert np.abs(computed - expected).max() <= max(1e-4 * np.abs(expected).max(), 1e-8), name
    norm = torch.stack([p.grad.double().norm() for p in step.model.parameters()]).norm()
    assert float(norm) == pytest.approx(float(step.recorded()["grad_global_norm"]), rel=1e-5)


def set_recorded_gradients(model):
    """Set the gradients of a model to those of the recorded step, which are not clipped. Returns them as {Google's
    name: array}.
    """
    gradients = {variable_of(name): values for name, values in recorded(MICRO[0] / "pretrain_grads.npz").items()}
    for variable, parameter in by_google_name(model).items():
        # as autograd's, for the fused kernel
        parameter.grad = torch.tensor(as_googles(variable, torch.tensor(gradients[variable]))).contiguous()
    return gradients


@pytest.mark.parametrize("gradients, tolerance", [("recorded", 1e-6), ("computed", 1e-4)])
def test_every_weight_after_one_update_matches_google(gradients, tolerance):
    # Adam's first step divides by the size of the gradient, which magnifies small errors up to a hundredfold.
    step = take_step(*MICRO)
    if gradients == "recorded":
        set_recorded_gradients(step.model)
    optimizer = build_optimizer(step.model, lr=1e-3)
    assert clip_by_global_norm(step.model.parameters()) > 1  # so clipping is tested, too
    optimizer.step()
    after = step.recorded("after_step")
    assert len(after) == len(list(step.model.parameters()))
    for name, expected in after.items():
        if gradients == "computed" and name.endswith("key|bias"):
            continue  # its gradient consists of rounding errors, which the first step magnifies to about 1e-3
        computed = as_googles(name, step.parameter_of(name))
        np.testing.assert_allclose(computed, expected, atol=tolerance, err_msg=name)


def test_training_continues_from_a_converted_checkpoint_with_googles_next_update(tmp_path, capsys):
    """From the weights and moments after 200 steps, with the gradients recorded at these weights; the rule is F33's, in
    float64.
    """
    folder, prefix = MICRO
    config, variables, vocab = recorded(folder / "config.json"), open_variables(folder / prefix), tmp_path / "vocab.txt"
    vocab.write_text("\n".join([*SPECIAL_TOKENS, *(f"word{i}" for i in range(1995))]))
    hparams = json.dumps(config["pretraining_hparams"])
    for part in ("generator", "discriminator"):
        convert_tf(str(folder / prefix), str(tmp_path / part), part=part, hparams=hparams, vocab=str(vocab))
    c = complete(pretrain.c.override(["size=tiny", f"initial_weights={tmp_path}", "steps=9", "warmup_steps=1",
                                      "lr=1e-2", "micro_batch=1", "precision=fp32", "device=cpu"]))
    pair, dls = load_pair(str(tmp_path), "tiny"), SimpleNamespace(device=torch.device("cpu"))
    learn = pretrain.build_learner(c, load_tokenizer(c.vocab), dls, pair, Processes())
    restore_moments(learn.opt.opt, learn.model, str(tmp_path))
    gradients = set_recorded_gradients(learn.model)
    norm = np.sqrt(sum((gradient.astype(float) ** 2).sum() for gradient in gradients.values()))
    assert norm > 1
    clip_by_global_norm(learn.model.parameters())
    learn.opt.opt.step()
    for name, parameter in by_google_name(learn.model).items():
        p, m, v = (variables[name + slot].read().astype(float) for slot in ("", "/adam_m", "/adam_v"))
        g = gradients[name].astype(float) / norm
        m, v = .9 * m + .1 * g, .999 * v + .001 * g ** 2
        decay = .01 if name in config["after_step"]["decayed"] else 0
        expected = p - c.lr * (m / (np.sqrt(v) + 1e-6) + decay * p)
        np.testing.assert_allclose(as_googles(name, parameter), expected, atol=1e-6, err_msg=name)
    assert "warning" not in capsys.readouterr().out
    restore_moments(torch.optim.AdamW(learn.model.parameters()), learn.model, str(tmp_path))
    assert "without bias correction" in capsys.readouterr().out
