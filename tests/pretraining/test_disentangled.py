"""Gradient-disentangled embedding sharing of DeBERTaV3, which is not part of ELECTRA: tying='disentangled'."""
import pytest
import torch
from tiny_pretraining import equal_weights, metrics, run, weights

import pretrain
from _utils.commands.export_hf import export_hf
from _utils.config import complete
from _utils.errors import UserError
from _utils.networks import load_with_head, replaced_logits

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


def test_each_loss_trains_one_table(batch, small_tokenizer):
    model = build(small_tokenizer)
    of_generator, own = tables(model)
    _, (gen_loss, disc_loss) = pretrain.ELECTRALoss()(model(*batch), batch[-1], return_losses=True)
    of_discriminator_loss = torch.autograd.grad(disc_loss, [of_generator, own], allow_unused=True)
    of_generator_loss = torch.autograd.grad(gen_loss, [of_generator, own], allow_unused=True)
    assert of_discriminator_loss[0] is None and of_discriminator_loss[1].abs().sum() > 0
    assert of_generator_loss[0].abs().sum() > 0 and of_generator_loss[1] is None


BERT = "generator={'model_type': 'bert', 'hidden_size': 128, 'num_attention_heads': 2, 'num_hidden_layers': 1}"


def test_a_run_resumes_and_exports_the_sum(workplace, batch):
    settings = ["tying=disentangled", "steps=6", "micro_batch=3", "lr=1e-2", "save_minutes=0"]
    learn = run(*settings, resume=True)
    whole = weights()
    run(*settings, "base_run_name=again", "stop_at=3", resume=True)
    run(*settings, "base_run_name=again", resume=True)
    assert equal_weights(whole, weights("again_5")) and metrics()[-1]["disc_auc"] > 0
    of_generator, own = tables(learn.model)
    assert own.abs().max() > 1e-3
    assert whole[f"generator.{TABLE}"].equal(of_generator) and whole[f"discriminator.{TABLE}"].equal(own + of_generator)

    export_hf("checkpoints/pretrain/mini_5_100.0%.pth", "out")
    ids, mask = batch[0].clamp(max=len(own) - 1), torch.ones_like(batch[0])
    expected = replaced_logits(learn.model.eval().discriminator(ids, attention_mask=mask))
    for name in ("mini_5_100.0%.pth", "out/discriminator"):
        loaded = load_with_head(name, "discriminator").network.eval()
        torch.testing.assert_close(replaced_logits(loaded(ids, attention_mask=mask)), expected, atol=1e-6, rtol=1e-5)

    further = run("initial_weights=mini_5_100.0%.pth", "base_run_name=further", "steps=1", "lr=1e-9", vocab=None)
    for table, continued in zip((of_generator, own), tables(further.model)):  # tying is that of the checkpoint
        torch.testing.assert_close(continued, table, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("settings, message", [
    (["objective=adversarial"], "tying='disentangled'"), (["objective=replace_mlm"], "tying='disentangled'"),
    (["uniform_generator=True"], "tying='disentangled'"),
    ([BERT.replace("128", "64")], "64"),
])
def test_what_it_cannot_be_combined_with_is_rejected_before_any_work(workplace, settings, message):
    with pytest.raises(UserError, match=message):
        run("tying=disentangled", *settings)
