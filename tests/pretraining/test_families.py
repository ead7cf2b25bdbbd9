"""Recipes other than ELECTRA's: objectives, tying, networks of any family, LAMB, the data of lmtuners."""
import json
import pydoc_data.topics
from dataclasses import replace
from functools import partial
from pathlib import Path

import fsspec
import pytest
import tiny_pretraining
import torch
from tiny_pretraining import metrics
from transformers import AutoModel, AutoModelForSequenceClassification, AutoTokenizer, BertTokenizer

import pretrain
from _utils.commands.export_hf import export_hf
from _utils.config import complete
from _utils.errors import PlainError
from _utils.networks.build import PARTS, build_network, count_layers, count_parameters, layer_groups
from _utils.networks.pretrained import load_pretrained
from _utils.networks.tying import share_parameters, shared_modules
from _utils.optim import Lamb, decay_groups
from _utils.recipes import RECIPES, flops_per_token, steps_of_equal_compute
from _utils.runs.checkpoints import load_checkpoint
from _utils.text import examples
from _utils.text.processors import LinePairsProcessor
from finetune import SentencePredictor

OTHERS = ["bert_small", "albert_small", "alectra_small", "electra_small_lmtuners", "bert_albert_small", "albert_bert_small"]
ROBERTA = "{'model_type': 'roberta', 'hidden_size': 32, 'num_hidden_layers': 1, 'num_attention_heads': 2, 'intermediate_size': 32}"
DISTILBERT = "{'model_type': 'distilbert', 'dim': 32, 'n_layers': 2, 'n_heads': 2, 'hidden_dim': 64}"
BERT = "{'model_type': 'bert', 'hidden_size': 32, 'num_hidden_layers': 1, 'num_attention_heads': 2, 'intermediate_size': 32}"
BERT_128 = BERT.replace("'hidden_size': 32", "'hidden_size': 128")
ELECTRA = "{'model_type': 'electra', 'embedding_size': 32, 'hidden_size': 48, 'num_hidden_layers': 1, 'num_attention_heads': 2}"

REMBERT = "{'model_type': 'rembert', 'hidden_size': 32, 'num_hidden_layers': 1, 'num_attention_heads': 2, 'input_embedding_size': 32}"
XLM = "{'model_type': 'xlm', 'emb_dim': 32, 'n_layers': 1, 'n_heads': 2}"

run = partial(tiny_pretraining.run, "steps=10", "bs=4", resume=True)


@pytest.fixture
def workplace(workplace):
    """A working directory with real text: the documentation of Python."""
    Path("text.txt").write_text("\n\n".join(topic for _, topic in sorted(pydoc_data.topics.topics.items())[:60]))


@pytest.fixture
def shallow(monkeypatch):
    """Limit the networks of every recipe to two layers."""
    for name, recipe in RECIPES.items():
        parts = {part: replace(network, layers=min(2, network.layers)) for part in PARTS if (network := getattr(recipe, part))}
        monkeypatch.setitem(RECIPES, name, replace(recipe, **parts))


def networks(name, vocab_size=30522):
    recipe = RECIPES[name]
    with torch.device("meta"):
        return {part: build_network(part, getattr(recipe, part).config(vocab_size)) for part in PARTS if getattr(recipe, part)}


# facts.md#lmtuners; the counts of ELECTRA are tested in test_model.py.
@pytest.mark.parametrize("name, part, parameters", [
    ("alectra_small", "discriminator", 4_747_010), ("electra_small_lmtuners", "discriminator", 17_325_058),
    ("bert_albert_small", "discriminator", 4_747_010), ("albert_bert_small", "discriminator", 17_325_058),
    ("bert_small", "generator", 17_421_370), ("albert_small", "generator", 4_810_170)])
def test_parameter_counts_are_those_of_lmtuners(name, part, parameters):
    network = networks(name)
    pretrain.tie(network["generator"], network.get("discriminator"))
    assert count_parameters(network[part]) == parameters


@pytest.mark.parametrize("name", OTHERS)
def test_settings_of_the_other_recipes_are_those_of_lmtuners(name):
    c = complete(pretrain.c.override([f"size={name}"]))
    baseline = name in ("bert_small", "albert_small")
    assert (c.bs, c.steps, c.warmup_steps, c.lr) == ((128, 1_500_000, 10_000, 5e-4) if baseline else (512, 500_000, 40_000, 2e-3))
    assert (c.objective, c.optimizer) == (("mlm", "adam") if baseline else ("electra", "lamb"))
    assert c.electra_mask_style == (False if baseline else "always") and c.schedule == "separate_linear"
    assert (c.max_length, c.mask_prob) == (128, .15)


@pytest.mark.parametrize("name", [name for name in RECIPES if name not in ("base", "large")])
def test_every_recipe_trains_ten_steps_on_real_text(workplace, shallow, name):
    lr = 1e-3 if RECIPES[name].optimizer == "adam" else 2e-2  # LAMB scales it by the norm of the weights
    learn = run(f"size={name}", "warmup_steps=2", f"lr={lr}")
    rows = metrics()
    assert len(rows) == 10 and rows[-1]["gen_loss"] < rows[0]["gen_loss"]
    assert ("disc_loss" in rows[0]) == (RECIPES[name].discriminator is not None)
    assert metrics("held_out")[-1]["gen_perplexity"] > 1
    assert isinstance(learn.opt.opt, Lamb) == (RECIPES[name].optimizer == "lamb")


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


@pytest.mark.parametrize("name", ["base", "large"])
def test_the_large_recipes_train_two_steps(workplace, shallow, name):
    run(f"size={name}", "steps=2", "bs=2", "warmup_steps=1", "lr=1e-3")
    assert len(metrics()) == 2


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


@pytest.mark.parametrize("tying, shared", [("embeddings", 5), ("embeddings+projection", 7), ("embeddings+encoder", 23)])
def test_tied_parameters_are_the_same_objects(tying, shared):
    pair = networks("alectra_small", 100)
    alone = [{id(p) for p in network.parameters()} for network in pair.values()]
    assert not alone[0] & alone[1]
    pretrain.tie(*pair.values(), tying)
    generator, discriminator = ({id(p) for p in network.parameters()} for network in pair.values())
    assert len(generator & discriminator) == shared
    words = pair["generator"].get_input_embeddings().weight
    assert pair["generator"].get_output_embeddings().weight is words is pair["discriminator"].get_input_embeddings().weight


def test_shared_modules_can_share_their_parameters():
    embeddings = [shared_modules(network)["embeddings"] for network in networks("small", 100).values()]
    share_parameters(*embeddings)
    assert all(a is b for a, b in zip(*(module.parameters() for module in embeddings)))


@pytest.mark.parametrize("name, tying, fragment", [
    ("small", "embeddings+projection", "projection.weight is (256, 128) in the discriminator and (64, 128) in the generator"),
    ("small", "embeddings+encoder", "(64, 128)"),
    ("electra_small_lmtuners", "embeddings+projection", "the generator has no projection"),
    ("electra_small_lmtuners", "embeddings+encoder", "encoder.layer.0.intermediate.dense.weight is (1024, 256)"),
    ("bert_albert_small", "embeddings+encoder", "the generator has no projection"),
])
def test_tying_networks_that_do_not_match_raises(name, tying, fragment):
    with pytest.raises(PlainError) as error:
        pretrain.tie(*networks(name, 100).values(), tying)
    assert fragment in str(error.value) and tying in str(error.value)


@pytest.mark.parametrize("generator, discriminator", [(ROBERTA, ROBERTA), (DISTILBERT, DISTILBERT), (BERT, ELECTRA), (ELECTRA, ELECTRA)])
def test_any_pair_of_families_trains(workplace, generator, discriminator):
    learn = run("size=tiny", f"generator={generator}", f"discriminator={discriminator}", "steps=6", "lr=3e-3", "warmup_steps=1")
    assert metrics()[-1]["gen_loss"] < metrics()[0]["gen_loss"]
    shared, other = (network.get_input_embeddings().weight for network in (learn.model.generator, learn.model.discriminator))
    assert shared is other and learn.model.discriminator.config.hidden_size in (32, 48)


def test_a_network_from_a_folder_trains_with_one_of_the_recipe_or_a_dictionary(workplace, small_tokenizer):
    for part in PARTS:
        getattr(RECIPES["tiny"], part).config(len(small_tokenizer)).save_pretrained(part)
    run("size=tiny", "generator=generator", "steps=1", "base_run_name=recipe")
    learn = run("size=tiny", f"generator={BERT_128}", "discriminator=discriminator", "steps=1", "base_run_name=dictionary")
    assert learn.model.generator.config.model_type == "bert" and learn.model.discriminator.config.model_type == "electra"


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
    (["objective=mlm", "discriminator={'model_type': 'bert'}"], "no effect with objective='mlm'"),
    (["generator={'hidden_size': 3}"], "model_type"),
    (["generator={'model_type': 'nothing'}"], "Invalid network configuration: .*nothing"),
    (["discriminator={'model_type': 'bert', 'hidden_size': 30, 'num_attention_heads': 4}"], "Cannot build the discriminator"),
    (["generator={'model_type': 'bert', 'hidden_size': 36}"], "tying='embeddings' is not possible"),
    (["generator={'model_type': 'bert', 'hiden_size': 32}"], "Unknown key .*: 'hiden_size'"),
    ([f"generator={REMBERT}"], "The output layer of the rembert network is not its token embeddings"),
    ([f"generator={XLM}", f"discriminator={XLM}"], "tying='embeddings' is not possible: the generator has no embeddings to share"),
    (["generator=no/such/folder"], "Invalid network configuration: 'no/such/folder'"),
    (["size=alectra_small", "max_length=256"], "max_length=256 is more than the 128 positions"),
    (["size=bert_small", "temperature=2"], "temperature=2.0 has no effect with objective='mlm'"),
    (["size=bert_small", "initial_weights=x.pth"], "contains a generator, a discriminator .*, which objective='mlm' contradicts"),
    ([f"generator={ROBERTA[:-1]}, 'max_position_embeddings': 32}}", f"discriminator={ROBERTA[:-1]}, 'max_position_embeddings': 32}}"],
     "max_length=32 is more than the 31 positions"),
])
def test_invalid_networks_raise_before_data_is_prepared(workplace, overrides, message):
    with pytest.raises(PlainError, match=message):
        run("size=tiny", *overrides)
    assert not Path("datasets").exists()


def test_setting_a_discriminator_implies_objective_electra():
    c = complete(pretrain.c.override(["size=bert_small", f"discriminator={BERT}"]))
    assert c.objective == "electra"


def test_logits_at_gathered_positions_are_those_of_the_full_head():
    """For BERT and ALBERT; ELECTRA is tested in test_model.py."""
    torch.manual_seed(0)
    ids = torch.randint(5, 100, (3, 12))
    for name in ("bert_tiny", "albert_tiny"):
        generator = build_network("generator", RECIPES[name].generator.config(100)).eval()
        model = pretrain.MaskedLMModel(generator, type("Vocabulary", (), {"pad_token_id": 0}))
        chosen = torch.rand(ids.shape) < .3
        pred = model(ids, torch.full((3,), 6), chosen, ids)
        types = (torch.arange(12) >= 6).long().expand(3, -1)
        everywhere = generator(input_ids=ids, attention_mask=ids > 0, token_type_ids=types).logits
        torch.testing.assert_close(pred.mlm_gen_logits, everywhere[chosen], atol=1e-5, rtol=1e-5)


def test_a_token_classifier_has_the_loss_of_two_labels():
    """The cross-entropy of two logits, used by lmtuners, is the binary cross-entropy of their difference."""
    logits, labels = torch.randn(5, 7, 2), torch.rand(5, 7) < .3
    output = type("Output", (), {"logits": logits})
    loss = torch.nn.functional.binary_cross_entropy_with_logits(pretrain.replaced_logits(output), labels.float())
    torch.testing.assert_close(loss, torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten().long()))


def test_flops_per_token_and_steps_of_equal_compute():
    assert flops_per_token(RECIPES["small"], 30522) == pytest.approx(70.2e6, rel=.001)  # facts.md#compute
    assert flops_per_token(RECIPES["small"], 30522, mask_prob=1.) == pytest.approx(90.2e6, rel=.001)  # the head at all positions
    for name in ("bert_tiny", "albert_tiny", "alectra_tiny"):
        steps = steps_of_equal_compute(RECIPES["tiny"], RECIPES[name], 3000, 8192)
        ratio = steps * flops_per_token(RECIPES[name], 8192) / (3000 * flops_per_token(RECIPES["tiny"], 8192))
        assert ratio == pytest.approx(1, abs=.001)
    # Sharing weights between layers does not reduce their compute.
    assert flops_per_token(RECIPES["albert_small"], 30522) > .9 * flops_per_token(RECIPES["bert_small"], 30522)


def test_lamb_matches_pytorch_lamb():
    """Three steps against the formula: no bias correction, weight norm clamped to 10, weight decay inside it (facts.md#lmtuners)."""
    torch.manual_seed(0)
    shapes = {"layer.weight": (5, 3), "layer.bias": (3,), "LayerNorm.weight": (3,), "words.weight": (200, 64), "zero.weight": (2, 2)}
    parameters = {name: torch.nn.Parameter(torch.randn(shape) * (name != "zero.weight")) for name, shape in shapes.items()}
    expected = {name: parameter.detach().double() for name, parameter in parameters.items()}
    m, v = ({name: torch.zeros(shape, dtype=torch.double) for name, shape in shapes.items()} for _ in range(2))
    optimizer = Lamb(decay_groups(parameters.items(), .01), lr=.1)
    assert expected["words.weight"].norm() > 10
    for _ in range(3):
        for name, parameter in parameters.items():
            parameter.grad = torch.randn_like(parameter)
            g = parameter.grad.double()
            m[name], v[name] = .9 * m[name] + .1 * g, .999 * v[name] + .001 * g ** 2
            update = m[name] / (v[name].sqrt() + 1e-6) + (.01 * expected[name] if name.split(".")[0] in ("layer", "words", "zero")
                                                        and "bias" not in name else 0)
            length = expected[name].norm().clamp(max=10)
            expected[name] = expected[name] - .1 * (length / update.norm() if length > 0 else 1) * update
        optimizer.step()
    for name, parameter in parameters.items():
        torch.testing.assert_close(parameter.detach().double(), expected[name], atol=2e-5, rtol=1e-5, msg=name)


@pytest.mark.parametrize("name", ["alectra_small", "electra_small_lmtuners", "bert_small", "albert_small"])
def test_every_family_can_be_exported_and_finetuned(workplace, shallow, name):
    learn = run(f"size={name}", "steps=1")
    export_hf("checkpoints/pretrain/mini_5_100.0%.pth", "out")
    part = "discriminator" if RECIPES[name].discriminator else "generator"
    assert {path.name for path in Path("out").iterdir()} == ({"generator", "discriminator"} if part == "discriminator" else {"generator"})
    encoder = getattr(learn.model, part).base_model.state_dict()
    for kind in (AutoModel, AutoModelForSequenceClassification):
        loaded = kind.from_pretrained(f"out/{part}").base_model.state_dict()
        assert all(loaded[key].equal(value) for key, value in encoder.items())
    tokenizer = AutoTokenizer.from_pretrained(f"out/{part}")
    assert isinstance(tokenizer, BertTokenizer) and tokenizer.tokenize("the word") == ["the", "word"]
    from_checkpoint, from_folder = (load_pretrained(where, name, 32) for where in ("mini_5_100.0%.pth", f"out/{part}"))
    groups = layer_groups(from_checkpoint.encoder())
    assert len(groups) == 1 + count_layers(from_checkpoint.model.config) == (2 if "al" in name[:2] else 3)
    torch.manual_seed(99)  # no weight of the encoder may be random
    assert load_pretrained(f"out/{part}", name, 32).digest == from_folder.digest
    card = Path("out", part, "README.md").read_text()
    assert name in card and ("replaced token detection" if part == "discriminator" else "Pretrained by masked language modelling.") in card
    weights = from_folder.encoder().state_dict()
    assert all(weights[key].equal(value) for key, value in encoder.items())


def test_a_masked_language_model_of_electra_has_no_discriminator_for_the_wsc_trick(workplace):
    run("size=tiny", "objective=mlm", "steps=1")
    export_hf("checkpoints/pretrain/mini_5_100.0%.pth", "out")
    for where in ("mini_5_100.0%.pth", "out/generator"):
        with pytest.raises(PlainError, match="requires a discriminator of the family ELECTRA"):
            load_pretrained(where, "tiny", 32).discriminator()


def test_a_pair_must_share_the_parameters_that_tying_shares(workplace):
    run("size=alectra_tiny", "steps=1")
    with pytest.raises(PlainError, match="were not trained together"):
        run("size=alectra_tiny", "initial_weights=mini_5_100.0%.pth", "tying=embeddings+encoder", "lr=1e-3", "warmup_steps=1",
            "base_run_name=other", vocab=None)


def test_other_configurations_train_in_float32_with_the_padding_of_the_tokenizer(workplace, small_tokenizer):
    config = RECIPES["bert_tiny"].generator.config(len(small_tokenizer), pad_token_id=7)
    config.dtype = "float16"
    config.save_pretrained("half")
    learn = run("size=tiny", "generator=half", "discriminator=half", "steps=1")
    assert {p.dtype for p in learn.model.parameters()} == {torch.float32}
    assert learn.model.generator.config.pad_token_id == small_tokenizer.pad_token_id


def test_a_text_of_one_document_cannot_be_split(workplace):
    Path("text.txt").write_text("the text\nthe word\n" * 50)
    with pytest.raises(PlainError, match="has 1 documents, but examples='line_pairs'"):
        run("size=alectra_tiny", "examples=line_pairs")


def test_line_pairs_come_from_one_document(small_tokenizer):
    documents = ["the text\nthe word\nthe network", "every word", "time " * 50 + "\nthe paper"]
    processor = LinePairsProcessor(None, small_tokenizer, 32, apply_cleaning=False, drop_parentheses=False, seed=3)
    examples = processor(documents)
    assert len(examples["input_ids"]) == 3 + 1 + 2 and processor(documents) == examples
    texts = [small_tokenizer.convert_ids_to_tokens(ids) for ids in examples["input_ids"]]
    for ids, length, tokens in zip(examples["input_ids"], examples["sentA_length"], texts):
        assert tokens[0] == "[CLS]" and tokens[length - 1] == "[SEP]" and tokens[-1] == "[SEP]" and len(ids) <= 31 and length <= 16
    first, *_ = texts
    assert first[1:3] == ["the", "text"] and first[4:6] in (["the", "word"], ["the", "network"])
    assert texts[3] == ["[CLS]", "every", "word", "[SEP]"]
    assert examples["sentA_length"][4] == 16 and "paper" in texts[4]


def test_line_pairs_are_evaluated_on_held_out_documents(workplace, monkeypatch):
    monkeypatch.setattr(examples, "HELD_OUT", 10)
    learn = run("size=alectra_tiny", "examples=line_pairs", "steps=4")
    sizes = [len(loader.dataset) for loader in learn.dls.loaders]
    assert sizes[0] > 100 and sizes[1:] == [10, 10]
    assert set(metrics("test")[0]) >= {"gen_loss", "gen_perplexity", "gen_accuracy", "disc_loss", "disc_accuracy", "disc_auc"}
    parts = [set(map(tuple, loader.dataset.hf_dset["input_ids"])) for loader in learn.dls.loaders]
    assert len(parts[0] & parts[1]) < len(parts[1]) / 10  # only boilerplate lines are in both


def test_checkpoints_are_uploaded_during_training(workplace):
    run("size=tiny", "steps=4", "upload_to=sent/here")
    assert {path.name for path in Path("sent/here").iterdir()} == {path.name for path in Path("checkpoints/pretrain").glob("*.pth")}
    a, b = (load_checkpoint(folder / "mini_5_100.0%.pth") for folder in (Path("sent/here"), Path("checkpoints/pretrain")))
    assert a["step"] == b["step"] == 4
    run("size=tiny", "steps=2", "upload_to=memory://bucket/run", "resume=False")
    assert "/bucket/run/mini_5_100.0%.pth" in fsspec.filesystem("memory").ls("/bucket/run", detail=False)


def test_a_resumed_run_uploads_what_is_missing_at_the_destination(workplace):
    run("size=tiny", "steps=4", "upload_to=sent")
    missing, incomplete, *kept = sorted(Path("sent").iterdir())
    times = [path.stat().st_mtime_ns for path in kept]
    missing.unlink()
    incomplete.write_bytes(b"x")
    run("size=tiny", "steps=4", "upload_to=sent")
    assert [path.stat().st_mtime_ns for path in kept] == times
    for path in (missing, incomplete):
        assert path.read_bytes() == Path("checkpoints/pretrain", path.name).read_bytes()


def test_training_continues_if_an_upload_function_fails(workplace, capsys):
    taken = []

    def send(path):
        taken.append(path.name)
        raise OSError("no network")

    c = complete(pretrain.c.override(["size=tiny", "datas=text.txt", "vocab=vocab.txt", "base_run_name=mini", "seed=5", "steps=4", "bs=4",
                                      "num_workers=0", "logger=None"]).copy_with({"upload_to": send}))
    pretrain.pretrain(c)
    assert len(taken) == 5 and len(metrics()) == 4
    printed = capsys.readouterr().out
    pretrain.pretrain(c)
    assert len(taken) == 5  # a function is not called again
    assert "Could not upload mini_5_100.0%.pth (OSError: no network)" in printed and "5 of 5 checkpoints were not uploaded" in printed
    assert json.loads(Path("checkpoints/pretrain/mini_5/config.json").read_text())["config"]["upload_to"] == "send"


def test_an_unknown_upload_address_raises_before_training(workplace):
    with pytest.raises(PlainError, match="Invalid value for upload_to: 'nowhere://x'"):
        run("upload_to=nowhere://x")
    with pytest.raises(PlainError, match="Invalid value for upload_to: 'text.txt' is a file"):
        run("upload_to=text.txt")
    assert not Path("datasets").exists()
