"""Gradient-disentangled embedding sharing of DeBERTaV3, which is not part of ELECTRA: tying='disentangled'."""
import pytest
import torch
from tiny_pretraining import run, weights

import pretrain
from _utils.commands.export_hf import export_hf
from _utils.config import complete
from _utils.networks import load_with_head, replaced_logits
from _utils.runs.checkpoints import saved_networks

TABLE = "electra.embeddings.word_embeddings.weight"


def build(hf_tokenizer, *settings):
    torch.manual_seed(0)
    c = complete(pretrain.c.override(["size=tiny", "tying=disentangled", *settings]))
    return pretrain.build_model(c, hf_tokenizer).eval()


def tables(model):
    """The token embeddings of the generator, and what the discriminator adds to them."""
    return [network.get_input_embeddings().weight for network in (model.generator, model.discriminator)]


@pytest.fixture
def batch(small_tokenizer):
    torch.manual_seed(0)
    originals = torch.randint(10, len(small_tokenizer), (4, 24))
    chosen = torch.rand(4, 24) < .2
    masked = originals.masked_fill(chosen, small_tokenizer.mask_token_id)
    return masked, torch.full((4,), 24), chosen, originals.masked_fill(~chosen, -100)


@pytest.mark.parametrize("initial_weights", ["huggingface", "official"])
def test_each_loss_trains_one_table(batch, small_tokenizer, initial_weights):
    model = build(small_tokenizer, f"initial_weights={initial_weights}")
    assert not tables(model)[1].any()  # before training
    losses = pretrain.ELECTRALoss()(model(*batch), batch[-1], return_losses=True)[1]
    gradients = [torch.autograd.grad(loss, tables(model), allow_unused=True) for loss in losses]
    assert [[gradient is not None for gradient in of_loss] for of_loss in gradients] == [[True, False], [False, True]]


def test_a_run_saves_and_exports_the_sum(workplace, batch):
    learn = run("tying=disentangled", "steps=6", "lr=1e-2")
    saved, (of_generator, own) = weights(), tables(learn.model)
    assert own.abs().max() > 1e-3
    networks = saved_networks(learn.model.eval())["discriminator"], learn.model.discriminator
    torch.testing.assert_close(*(network(batch[0]).logits for network in networks), atol=1e-6, rtol=1e-5)
    assert saved[f"generator.{TABLE}"].equal(of_generator) and saved[f"discriminator.{TABLE}"].equal(own + of_generator)

    export_hf("checkpoints/pretrain/mini_5_100.0%.pth", "out")
    ids, mask = batch[0].clamp(max=len(own) - 1), torch.ones_like(batch[0])
    expected = replaced_logits(learn.model.eval().discriminator(ids, attention_mask=mask))
    loaded = load_with_head("out/discriminator", "discriminator").network.eval()
    torch.testing.assert_close(replaced_logits(loaded(ids, attention_mask=mask)), expected, atol=1e-6, rtol=1e-5)
