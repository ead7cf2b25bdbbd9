"""Recipes other than ELECTRA's: networks of any family, LAMB; uploads."""
import pydoc_data.topics
from functools import partial
from pathlib import Path

import fsspec
import pytest
import tiny_pretraining
import torch
from tiny_pretraining import metrics
from transformers import AutoModelForSequenceClassification, DebertaV2Config

import pretrain
from _utils.commands.export_hf import export_hf
from _utils.config import complete
from _utils.errors import UserError
from _utils.networks.build import build_network, count_layers, layer_groups
from _utils.networks.pretrained import load_pretrained, load_with_head, usable_length
from _utils.optim import Lamb
from _utils.recipes import RECIPES
from finetune import SentencePredictor

ROBERTA = "{'model_type': 'roberta', 'hidden_size': 32, 'num_hidden_layers': 1, " \
          "'num_attention_heads': 2, 'intermediate_size': 32}"
DISTILBERT = "{'model_type': 'distilbert', 'dim': 32, 'n_layers': 2, 'n_heads': 2, 'hidden_dim': 64}"
BERT = "{'model_type': 'bert', 'hidden_size': 32, 'num_hidden_layers': 1, " \
       "'num_attention_heads': 2, 'intermediate_size': 32}"
ELECTRA = "{'model_type': 'electra', 'embedding_size': 32, 'hidden_size': 48, " \
          "'num_hidden_layers': 1, 'num_attention_heads': 2}"

run = partial(tiny_pretraining.run, "steps=10", "bs=4", resume=True)


@pytest.fixture
def workplace(workplace):
    """A working directory with real text: the documentation of Python."""
    Path("text.txt").write_text("\n\n".join(topic for _, topic in sorted(pydoc_data.topics.topics.items())[:60]))


def assert_exported_and_loaded(name, model):
    """transformers and finetuning load the exported encoder."""
    part = "discriminator" if RECIPES[name].discriminator else "generator"
    export_hf("checkpoints/pretrain/mini_5_100.0%.pth", "out")
    assert {path.name for path in Path("out").iterdir()} == {"generator", part}
    encoder = getattr(model, part).base_model.state_dict()
    from_checkpoint, from_folder = (load_pretrained(where, name) for where in ("mini_5_100.0%.pth", "out"))
    plain = AutoModelForSequenceClassification.from_pretrained(f"out/{part}").base_model
    for loaded in (plain, from_checkpoint.encoder(), from_folder.encoder()):
        weights = loaded.state_dict()
        assert all(weights[key].equal(value) for key, value in encoder.items())
    groups = layer_groups(from_checkpoint.encoder())
    assert len(groups) == 1 + count_layers(from_checkpoint.model.config) == (2 if "al" in name[:2] else 3)


@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_trains_on_real_text(workplace, shallow, name):
    """A family of each kind is also exported. LAMB scales the learning rate by the norm of the weights."""
    recipe = RECIPES[name]
    steps, lr = 2 if name in ("base", "large") else 10, 1e-3 if recipe.optimizer == "adam" else 2e-2
    learn = run(f"size={name}", f"steps={steps}", "warmup_steps=1", "milestones=100", f"lr={lr}")
    rows = metrics()
    assert len(rows) == steps and (steps == 2 or rows[-1]["gen_loss"] < rows[0]["gen_loss"])
    assert ("disc_loss" in rows[0]) == (recipe.discriminator is not None)
    assert isinstance(learn.opt.opt, Lamb) == (recipe.optimizer == "lamb")
    if name in ("alectra_small", "electra_small_lmtuners", "bert_small", "albert_small"):
        assert_exported_and_loaded(name, learn.model)


def test_mini_keeps_its_rotary_positions(small_tokenizer, tmp_path):
    """RoFormer's table of angles is not a weight: it is neither initialized nor trained, also in finetuning."""
    c = complete(pretrain.c.override(["size=mini", "initial_weights=official"]))
    discriminator = pretrain.build_model(c, small_tokenizer).discriminator
    encoder = discriminator.base_model
    for part in (discriminator, small_tokenizer):
        part.save_pretrained(tmp_path)
    from_folder = load_pretrained(str(tmp_path)).encoder(), load_with_head(str(tmp_path)).network.base_model
    for network in (encoder, SentencePredictor(encoder, 128, 2).base_model, *from_folder):
        angles = network.encoder.embed_positions.weight
        torch.testing.assert_close(angles[3, :2], torch.tensor([3., 3 / 10_000 ** (1 / 32)]).sin())
        assert not angles.requires_grad


@pytest.mark.parametrize("generator, discriminator", [
    (ROBERTA, ROBERTA), (DISTILBERT, DISTILBERT), (BERT, ELECTRA), ("folder_of_bert", "folder_of_bert")])
def test_any_pair_of_families_trains(workplace, small_tokenizer, generator, discriminator):
    """In float32 and with the padding of the tokenizer, whatever a folder says."""
    config = RECIPES["bert_tiny"].generator.config(len(small_tokenizer), pad_token_id=7)
    config.dtype = "float16"
    config.save_pretrained("folder_of_bert")
    pair = f"generator={generator}", f"discriminator={discriminator}"
    model = run("size=tiny", *pair, "steps=6", "lr=3e-3", "warmup_steps=1").model
    assert metrics()[-1]["gen_loss"] < metrics()[0]["gen_loss"]
    for network, given in ((model.generator, generator), (model.discriminator, discriminator)):
        assert network.get_input_embeddings().weight is model.generator.get_input_embeddings().weight
        assert network.config.model_type in given and network.config.pad_token_id == small_tokenizer.pad_token_id
        assert {p.dtype for p in network.parameters()} == {torch.float32}


@pytest.mark.parametrize("overrides, message", [
    ("tying=disentangled generator={'model_type':'bert','hidden_size':64,'num_attention_heads':2}", "64"),
    ("size=bert_small objective=electra", "size=bert_small"), ("size=mini generator_hidden_size=.6", "77"),
    ("generator={'model_type':'bert','hidden_size':36}", "tying"),
    ("generator={'model_type':'bert','hiden_size':32}", "'hiden_size'"),
    (f"generator={ROBERTA} discriminator={BERT}".replace(": ", ":").replace(", ", ","), "padding_idx"),  # of positions
    ("generator={'model_type':'mpnet'}", "padding is token 1"),
    ("size=alectra_small max_length=256", "128")])
def test_invalid_networks_raise_before_data_is_prepared(workplace, overrides, message):
    with pytest.raises(UserError, match=message):
        run("size=tiny", *overrides.split())
    assert not Path("datasets").exists()


@pytest.mark.parametrize("short", ["generator", "discriminator"])
def test_a_trained_pair_with_too_few_positions_raises_before_data_is_prepared(workplace, small_tokenizer, short):
    """In either network."""
    for part in ("generator", "discriminator"):
        config = RECIPES["tiny"].generator.config(len(small_tokenizer))
        config.max_position_embeddings = 32 if part == short else 64
        network = build_network(part, config)
        network.save_pretrained(f"pair/{part}")
        small_tokenizer.save_pretrained(f"pair/{part}")
    with pytest.raises(UserError, match="32"):
        run("size=tiny", "initial_weights=pair", "tying=none", "max_length=64")
    assert not Path("datasets").exists()


def test_the_trained_length_of_deberta_is_that_of_its_distances():
    config = DebertaV2Config(vocab_size=9, hidden_size=4, num_hidden_layers=1, num_attention_heads=1,
                             intermediate_size=4, relative_attention=True, position_biased_input=False)
    assert usable_length(build_network("discriminator", config), None, {"max_length": 32}) == 32


@pytest.mark.parametrize("shape, scale, decay", [((3,), 1, 0.), ((200, 64), 1, .01), ((2, 2), 0, .01)])
def test_lamb_matches_its_formula(shape, scale, decay):
    """Three steps against the formula: no bias correction, weight norm clamped to 10, weight decay inside it
    (facts.md#lmtuners).
    """
    torch.manual_seed(0)
    weight, m, v = torch.nn.Parameter(scale * torch.randn(shape)), 0, 0
    expected = weight.detach().double()
    optimizer = Lamb([{"params": [weight], "weight_decay": decay}], lr=.1)
    for _ in range(3):
        weight.grad = torch.randn(shape)
        g = weight.grad.double()
        m, v = .9 * m + .1 * g, .999 * v + .001 * g ** 2
        update = m / (v.sqrt() + 1e-6) + decay * expected
        length = expected.norm().clamp(max=10)
        expected = expected - .1 * (length / update.norm() if length > 0 else 1) * update
        optimizer.step()
    torch.testing.assert_close(weight.detach().double(), expected, atol=2e-5, rtol=1e-5)


def send(path):
    raise OSError("no network")


def test_checkpoints_are_uploaded_and_training_continues_if_that_fails(workplace, monkeypatch, capsys):
    run("size=tiny", "steps=4", "upload_to=sent/here")
    for path in Path("checkpoints/pretrain").glob("*.pth"):
        assert Path("sent/here", path.name).read_bytes() == path.read_bytes()
    run("size=tiny", "steps=2", "upload_to=memory://bucket/run", "resume=False")
    assert "/bucket/run/mini_5_100.0%.pth" in fsspec.filesystem("memory").ls("/bucket/run", detail=False)
    monkeypatch.setattr(pretrain, "c", pretrain.c.copy_with({"upload_to": send}))
    run("steps=3", "resume=False")
    assert len(metrics()) == 3 and "no network" in capsys.readouterr().out
