"""Recipes other than ELECTRA's: objectives, tying, networks of any family, LAMB."""
import json
import pydoc_data.topics
from functools import partial
from pathlib import Path

import fsspec
import pytest
import tiny_pretraining
import torch
from tiny_pretraining import metrics
from transformers import AutoModel, AutoModelForSequenceClassification

import pretrain
from _utils.commands.export_hf import export_hf
from _utils.config import complete
from _utils.errors import PlainError
from _utils.networks.build import PARTS, build_network, count_layers, count_parameters, layer_groups
from _utils.networks.pretrained import load_pretrained
from _utils.optim import Lamb, decay_groups
from _utils.objectives.kinds import flops_per_token
from _utils.recipes import RECIPES
from _utils.runs.checkpoints import load_checkpoint
from benchmarks.flops import steps_of_equal_compute
from finetune import SentencePredictor

ROBERTA = "{'model_type': 'roberta', 'hidden_size': 32, 'num_hidden_layers': 1, 'num_attention_heads': 2, 'intermediate_size': 32}"
DISTILBERT = "{'model_type': 'distilbert', 'dim': 32, 'n_layers': 2, 'n_heads': 2, 'hidden_dim': 64}"
BERT = "{'model_type': 'bert', 'hidden_size': 32, 'num_hidden_layers': 1, 'num_attention_heads': 2, 'intermediate_size': 32}"
ELECTRA = "{'model_type': 'electra', 'embedding_size': 32, 'hidden_size': 48, 'num_hidden_layers': 1, 'num_attention_heads': 2}"

run = partial(tiny_pretraining.run, "steps=10", "bs=4", resume=True)


@pytest.fixture
def workplace(workplace):
    """A working directory with real text: the documentation of Python."""
    Path("text.txt").write_text("\n\n".join(topic for _, topic in sorted(pydoc_data.topics.topics.items())[:60]))


def networks(name, vocab_size=30522):
    recipe = RECIPES[name]
    with torch.device("meta"):
        return {part: build_network(part, getattr(recipe, part).config(vocab_size)) for part in PARTS if getattr(recipe, part)}


# facts.md#lmtuners; the counts of ELECTRA are tested in test_model.py.
@pytest.mark.parametrize("name, part, parameters", [
    ("alectra_small", "discriminator", 4_747_010), ("electra_small_lmtuners", "discriminator", 17_325_058),
    ("bert_small", "generator", 17_421_370), ("albert_small", "generator", 4_810_170)])
def test_parameter_counts_are_those_of_lmtuners(name, part, parameters):
    network = networks(name)
    pretrain.tie(network["generator"], network.get("discriminator"))
    assert count_parameters(network[part]) == parameters


def assert_exported_and_loaded(name, model):
    """transformers and finetuning load the exported encoder."""
    part = "discriminator" if RECIPES[name].discriminator else "generator"
    export_hf("checkpoints/pretrain/mini_5_100.0%.pth", "out")
    assert {path.name for path in Path("out").iterdir()} == {"generator", part}
    encoder = getattr(model, part).base_model.state_dict()
    from_checkpoint, from_folder = (load_pretrained(where, name, 32) for where in ("mini_5_100.0%.pth", f"out/{part}"))
    for loaded in (*(kind.from_pretrained(f"out/{part}").base_model for kind in (AutoModel, AutoModelForSequenceClassification)),
                   from_checkpoint.encoder(), from_folder.encoder()):
        weights = loaded.state_dict()
        assert all(weights[key].equal(value) for key, value in encoder.items())
    groups = layer_groups(from_checkpoint.encoder())
    assert len(groups) == 1 + count_layers(from_checkpoint.model.config) == (2 if "al" in name[:2] else 3)
    kind = "replaced token detection" if part == "discriminator" else "Pretrained by masked language modelling."
    assert kind in Path("out", part, "README.md").read_text()


@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_trains_on_real_text(workplace, shallow, name):
    """A family of each kind is also exported. LAMB scales the learning rate by the norm of the weights."""
    recipe = RECIPES[name]
    steps = 2 if name in ("base", "large") else 10
    learn = run(f"size={name}", f"steps={steps}", "warmup_steps=1", "milestones=100", f"lr={1e-3 if recipe.optimizer == 'adam' else 2e-2}")
    rows = metrics()
    assert len(rows) == steps and (steps == 2 or rows[-1]["gen_loss"] < rows[0]["gen_loss"])
    assert ("disc_loss" in rows[0]) == (recipe.discriminator is not None)
    assert metrics("held_out")[-1]["gen_perplexity"] > 1
    assert isinstance(learn.opt.opt, Lamb) == (recipe.optimizer == "lamb")
    if name in ("alectra_small", "electra_small_lmtuners", "bert_small", "albert_small"):
        assert_exported_and_loaded(name, learn.model)


@pytest.mark.parametrize("initial_weights", ["huggingface", "official"])
def test_mini_keeps_its_rotary_positions(small_tokenizer, initial_weights):
    """RoFormer's table of angles is no weight: it is neither initialized nor trained, before and after finetuning begins."""
    c = complete(pretrain.c.override(["size=mini", f"initial_weights={initial_weights}"]))
    model = pretrain.build_model(c, small_tokenizer)
    for network in (model.generator, model.discriminator):
        angles = network.base_model.encoder.embed_positions.weight
        torch.testing.assert_close(angles[3, :2], torch.tensor([3., 3 / 10_000 ** (1 / 32)]).sin())
        assert not angles.requires_grad
    predictor = SentencePredictor(model.discriminator.base_model, 128, 2)
    assert not predictor.base_model.encoder.embed_positions.weight.requires_grad


@pytest.mark.plots
def test_objective_mlm_trains_the_network_of_the_discriminator(workplace):
    """Like electra_objective=False in Google's code."""
    learn = run("size=tiny", "objective=mlm", "steps=4")
    assert learn.model.generator.config.hidden_size == 128 and "disc_loss" not in metrics()[0]
    checkpoint = load_checkpoint("checkpoints/pretrain/mini_5_100.0%.pth")
    assert "discriminator_config" not in checkpoint and not any(key.startswith("discriminator.") for key in checkpoint["model"])
    assert Path("checkpoints/pretrain/mini_5/training.png").exists()


def test_the_recipe_selects_the_mask_style(small_tokenizer):
    inputs = torch.full((500, 32), 9)
    shown = {}
    for name in ("small", "bert_small", "alectra_small"):
        c = complete(pretrain.c.override([f"size={name}"]))
        torch.manual_seed(0)
        masked, _, chosen = pretrain.build_masking(c, small_tokenizer).mask_tokens(inputs)
        shown[name] = float((masked[chosen] == small_tokenizer.mask_token_id).float().mean())
    assert shown["alectra_small"] == 1
    assert shown["small"] == pytest.approx(.85, abs=.03) and shown["bert_small"] == pytest.approx(.8, abs=.03)


@pytest.mark.parametrize("tying, shared", [
    ("none", 0), ("tokens", 1), ("embeddings", 5), ("embeddings+projection", 7), ("embeddings+encoder", 23)])
def test_tied_parameters_are_the_same_objects(tying, shared):
    pair = networks("alectra_small", 100)
    alone = [{id(p) for p in network.parameters()} for network in pair.values()]
    assert not alone[0] & alone[1]
    pretrain.tie(*pair.values(), tying)
    generator, discriminator = ({id(p) for p in network.parameters()} for network in pair.values())
    assert len(generator & discriminator) == shared
    words = pair["generator"].get_input_embeddings().weight
    assert pair["generator"].get_output_embeddings().weight is words
    assert (pair["discriminator"].get_input_embeddings().weight is words) == (tying != "none")


@pytest.mark.parametrize("generator_of, discriminator_of, tying, fragment", [
    ("small", "small", "embeddings+projection", "projection.bias is (256,) in the discriminator and (64,) in the generator"),
    ("electra_small_lmtuners", "electra_small_lmtuners", "embeddings+encoder", "encoder.layer.0.intermediate.dense.bias is (1024,)"),
    ("bert_tiny", "alectra_tiny", "embeddings+encoder", "the generator has no projection"),
])
def test_tying_networks_that_do_not_match_raises(generator_of, discriminator_of, tying, fragment):
    with pytest.raises(PlainError) as error:
        pretrain.tie(networks(generator_of, 100)["generator"], networks(discriminator_of, 100)["discriminator"], tying)
    assert fragment in str(error.value) and tying in str(error.value)


@pytest.mark.parametrize("generator, discriminator", [
    (ROBERTA, ROBERTA), (DISTILBERT, DISTILBERT), (BERT, ELECTRA), (ELECTRA, ELECTRA), ("folder_of_bert", "folder_of_bert")])
def test_any_pair_of_families_trains(workplace, small_tokenizer, generator, discriminator):
    """In float32 and with the padding of the tokenizer, whatever a folder says."""
    config = RECIPES["bert_tiny"].generator.config(len(small_tokenizer), pad_token_id=7)
    config.dtype = "float16"
    config.save_pretrained("folder_of_bert")
    learn = run("size=tiny", f"generator={generator}", f"discriminator={discriminator}", "steps=6", "lr=3e-3", "warmup_steps=1")
    assert metrics()[-1]["gen_loss"] < metrics()[0]["gen_loss"]
    pair = learn.model.generator, learn.model.discriminator
    assert pair[0].get_input_embeddings().weight is pair[1].get_input_embeddings().weight
    for network, given in zip(pair, (generator, discriminator)):
        assert network.config.model_type in given and network.config.pad_token_id == small_tokenizer.pad_token_id
        assert {p.dtype for p in network.parameters()} == {torch.float32}


@pytest.mark.parametrize("model_type", ["megatron-bert", "modernbert", "nomic_bert"])
def test_layernorms_of_other_families_are_recognized(model_type, small_tokenizer):
    """They start with weights 1 and are not decayed, whatever they are called."""
    own = f"{{'model_type': '{model_type}', 'hidden_size': 32, 'num_hidden_layers': 2, 'num_attention_heads': 2, 'intermediate_size': 32}}"
    c = complete(pretrain.c.override(["size=tiny", f"generator={own}", f"discriminator={own}", "initial_weights=official"]))
    model = pretrain.build_model(c, small_tokenizer)
    weights = [p for name, p in model.named_parameters() if p.dim() == 1 and name.endswith("weight")]
    assert len(weights) >= 10 and all((weight == 1).all() for weight in weights)
    decayed = {id(p) for p in decay_groups(model.named_parameters())[0]["params"]}
    assert decayed and not decayed & set(map(id, weights))


@pytest.mark.parametrize("overrides, message", [
    (["size=bert_small", "objective=electra"], "size=bert_small has no discriminator"),
    (["objective=mlm", "discriminator={'model_type': 'bert'}"], "is not used with objective='mlm'"),
    (["discriminator={'model_type': 'bert', 'hidden_size': 30, 'num_attention_heads': 4}"], "Cannot build the discriminator"),
    (["size=mini", "generator_hidden_size=.6"], "heads of an even size"),
    (["generator={'model_type': 'bert', 'hidden_size': 36}"], "tying='embeddings' is not possible"),
    (["generator={'model_type': 'bert', 'hiden_size': 32}"], "Unknown key .*: 'hiden_size'"),
    (["size=alectra_small", "max_length=256"], "max_length=256 is more than the 128 positions"),
    (["size=bert_small", "temperature=2"], "temperature=2.0 is not used with objective='mlm'"),
])
def test_invalid_networks_raise_before_data_is_prepared(workplace, overrides, message):
    with pytest.raises(PlainError, match=message):
        run("size=tiny", *overrides)
    assert not Path("datasets").exists()


def test_a_token_classifier_has_the_loss_of_two_labels():
    """The cross-entropy of two logits, used by lmtuners, is the binary cross-entropy of their difference."""
    logits, labels = torch.randn(5, 7, 2), torch.rand(5, 7) < .3
    output = type("Output", (), {"logits": logits})
    loss = torch.nn.functional.binary_cross_entropy_with_logits(pretrain.replaced_logits(output), labels.float())
    torch.testing.assert_close(loss, torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten().long()))


def test_flops_per_token_and_steps_of_equal_compute():
    flops = lambda name, *settings, **changes: flops_per_token(RECIPES[name], *settings, **changes)
    assert flops("small", 30522) == pytest.approx(70.2e6, rel=.001)  # facts.md#compute
    assert flops("small", 30522, mask_prob=1.) == pytest.approx(90.2e6, rel=.001)  # the head at all positions
    for name in ("bert_tiny", "albert_tiny", "alectra_tiny"):
        steps = steps_of_equal_compute(RECIPES["tiny"], RECIPES[name], 3000, 8192)
        assert steps * flops(name, 8192) == pytest.approx(3000 * flops("tiny", 8192), rel=.001)
    assert flops("albert_small", 30522) > .9 * flops("bert_small", 30522)  # sharing weights between layers does not reduce their compute


@pytest.mark.parametrize("shape, scale, decay", [((5, 3), 1, .01), ((3,), 1, 0.), ((200, 64), 1, .01), ((2, 2), 0, .01)])
def test_lamb_matches_pytorch_lamb(shape, scale, decay):
    """Three steps against the formula: no bias correction, weight norm clamped to 10, weight decay inside it (facts.md#lmtuners)."""
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


def test_checkpoints_are_uploaded(workplace):
    run("size=tiny", "steps=4", "upload_to=sent/here")
    for path in Path("checkpoints/pretrain").glob("*.pth"):
        assert Path("sent/here", path.name).read_bytes() == path.read_bytes()
    run("size=tiny", "steps=2", "upload_to=memory://bucket/run", "resume=False")
    assert "/bucket/run/mini_5_100.0%.pth" in fsspec.filesystem("memory").ls("/bucket/run", detail=False)


def test_training_continues_if_an_upload_function_fails(workplace, monkeypatch, capsys):
    taken = []

    def send(path):
        taken.append(path.name)
        raise OSError("no network")

    monkeypatch.setattr(pretrain, "c", pretrain.c.copy_with({"upload_to": send}))
    run("steps=4")
    assert len(taken) == 2 and len(metrics()) == 4
    printed = capsys.readouterr().out
    assert "Could not upload mini_5_100.0%.pth (OSError: no network)" in printed
    assert json.loads(Path("checkpoints/pretrain/mini_5/config.json").read_text())["config"]["upload_to"] == "send"
