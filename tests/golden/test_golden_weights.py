"""Google's initial weights and checkpoints against transformers' classes: names, shapes, distributions, outputs (F24-F30)."""
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from electra_models import build, by_google_name
from transformers import AutoModel, AutoTokenizer

from _utils.commands.convert_tf import convert, convert_tf
from _utils.commands.tf_checkpoint import Variable, open_variables
from _utils.errors import PlainError
from _utils.networks.build import PARTS, build_network
from _utils.recipes import RECIPES
from _utils.text.vocabulary import SPECIAL_TOKENS
from pretrain import initialize_officially

# The hparams of the checkpoint in golden/official/micro_ckpt.
MICRO = {"vocab_size": 2000, "embedding_size": 16, "generator_hidden_size": .5,
         "model_hparam_overrides": {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}}


@pytest.mark.parametrize("size", ["small", "base", "large"])
def test_every_variable_of_google_has_a_parameter_of_its_shape(golden, size):
    recorded = json.loads((golden / "official/variables.json").read_text())[size]
    with torch.device("meta"):
        model = build(size, 30522)
    parameters = by_google_name(model)
    assert len(parameters) == len(list(model.parameters()))
    if size == "small":  # the lists of the others are shortened
        assert set(parameters) == {variable["name"] for variable in recorded["variables"]}
    assert sum(parameter.numel() for parameter in model.parameters()) == recorded["n_total"]
    for variable in recorded["variables"]:
        shape = list(parameters[variable["name"]].shape)
        assert (shape[::-1] if variable["name"].endswith("/kernel") else shape) == variable["shape"], variable["name"]


def test_initial_weights_are_drawn_from_googles_distributions(golden):
    recorded = json.loads((golden / "official/variables.json").read_text())["small"]["variables"]
    model = build("small", 30522)
    torch.manual_seed(0)
    initialize_officially(model)
    parameters = by_google_name(model)
    kinds = {"truncated_normal": 0, "glorot_uniform": 0, "constant": 0}
    for variable in recorded:
        values, init = parameters[variable["name"]].detach().numpy(), variable["init"]
        kinds[next(kind for kind in kinds if init.startswith(kind))] += 1
        error = 5 / values.size ** .5  # five standard errors, relative to the width of the distribution
        if init.startswith("constant"):
            assert (values == float(init.split()[1])).all(), variable["name"]
            continue
        if init.startswith("truncated_normal"):  # std .02 truncated at two std is .0176, without rescaling
            largest, std = .04, .02 * .8796
        else:
            largest = float(init.rpartition(" ")[2].rstrip("]"))
            std = largest / 3 ** .5
        assert abs(values).max() <= largest and abs(values).max() > largest * (1 - error), variable["name"]
        assert values.std() == pytest.approx(std, rel=error) and abs(values.mean()) < error * std, variable["name"]
    assert kinds == {"truncated_normal": 149, "glorot_uniform": 3, "constant": len(recorded) - 152}


def test_initial_weights_of_transformers_are_not_truncated():
    torch.manual_seed(0)
    model = build("small", 1000)
    tokens = model.generator.electra.embeddings.word_embeddings.weight.detach()
    assert float(tokens[1:].std()) == pytest.approx(.02, rel=.02) and tokens.abs().max() > .06 and not tokens[0].any()  # D3


@pytest.fixture(params=["micro", "tiny"])
def released(request):
    """(folder, prefix, hparams) of a recorded checkpoint; the generator of one of them has a projection of its embeddings."""
    if request.param == "micro":
        folder, prefix = request.getfixturevalue("golden") / "official/micro_ckpt", "model.ckpt-200"
    else:
        folder, prefix = request.getfixturevalue("shared") / "golden/official/tiny_ckpt", "model.ckpt-300"
    return folder, folder / prefix, json.loads((folder / "config.json").read_text())["pretraining_hparams"]


def test_outputs_of_converted_checkpoints_match_googles(released):
    folder, prefix, hparams = released
    recorded = np.load(folder / "forward.npz")
    generator, discriminator = (convert(prefix, part, hparams)[0] for part in PARTS)
    config = json.loads((folder / "config.json").read_text())
    for network, name in ((generator, "generator_config"), (discriminator, "bert_config")):
        assert {key: getattr(network.config, key) for key in config[name]} == config[name]
    close = lambda actual, expected: np.testing.assert_allclose(actual, expected, atol=1e-4)
    for batch in ("b0", "b1"):
        ids, mask, segments = (torch.tensor(recorded[f"{batch}_{name}"]).long() for name in ("input_ids", "input_mask", "segment_ids"))
        tokens = mask.bool().numpy()
        with torch.no_grad():
            logits = generator(ids, mask, segments).logits.double()
            close(discriminator(ids, mask, segments).logits[tokens], recorded[f"{batch}_disc_logits"][tokens])
            close(discriminator.electra(ids, mask, segments).last_hidden_state[tokens], recorded[f"{batch}_disc_hidden"][tokens])
            close(generator.electra(ids, mask, segments).last_hidden_state[tokens], recorded[f"{batch}_gen_hidden"][tokens])
        close(logits.logsumexp(-1)[tokens], recorded[f"{batch}_gen_logsumexp"][tokens])
        close(logits.gather(2, ids[..., None])[..., 0][tokens], recorded[f"{batch}_gen_logit_of_input"][tokens])
        assert (logits.argmax(-1).numpy() == recorded[f"{batch}_gen_argmax"])[tokens].all()
        for name in recorded.files:
            if name.startswith(f"{batch}_gen_logits_row"):
                row = int(name.rpartition("row")[2])
                close(logits[row][tokens[row]], recorded[name][tokens[row]])


@pytest.mark.parametrize("part", PARTS)
def test_sizes_follow_from_shapes_with_heads_of_size_64(golden, monkeypatch, part):
    """With the variables of the released small model and zeros as their values."""
    recorded = json.loads((golden / "official/variables.json").read_text())["small"]["variables"]
    monkeypatch.setattr(Variable, "read", lambda variable: np.zeros(variable.shape, np.float32))
    monkeypatch.setattr("_utils.commands.convert_tf.open_variables", lambda prefix: {
        variable["name"]: Variable(tuple(variable["shape"]), 1, "", 0) for variable in recorded})
    found = convert("small", part)[0].config
    assert found.to_dict() == build_network(part, getattr(RECIPES["small"], part).config(30522)).config.to_dict()
    assert found.num_attention_heads == (1 if part == "generator" else 4)


def test_the_command_writes_a_folder_that_transformers_loads(golden, tmp_path, capsys):
    folder = golden / "official/micro_ckpt"
    prefix, hparams, vocab = folder / "model.ckpt-200", tmp_path / "hparams.json", tmp_path / "vocab.txt"
    hparams.write_text(json.dumps(MICRO))
    vocab.write_text("\n".join([*SPECIAL_TOKENS, *(f"word{i}" for i in range(1995))]))
    for part in PARTS:
        out = tmp_path / "pair" / part
        convert_tf(str(prefix), str(out), part=part, hparams=str(hparams), vocab=str(vocab))
        loaded = AutoModel.from_pretrained(out)
        network, step = convert(prefix, part, MICRO)
        assert step == 200 and "200" in (out / "README.md").read_text()
        for name, value in network.electra.state_dict().items():
            assert loaded.state_dict()[name].equal(value), name
        assert AutoTokenizer.from_pretrained(out).convert_tokens_to_ids(["[MASK]", "word0"]) == [4, 5]
    assert "2 layers x 32, 2 heads" in capsys.readouterr().out
    without = tmp_path / "alone"
    convert_tf(f"{prefix}.index", str(without), part="generator", hparams=json.dumps(MICRO))
    assert "no vocab.txt" in capsys.readouterr().out and AutoModel.from_pretrained(without).config.hidden_size == 16
    assert "AutoTokenizer" not in (without / "README.md").read_text()


@pytest.mark.parametrize("hparams, part, removed, text", [
    ({}, "generator", (), "by masked language modelling, as the generator of an"),
    ({}, "discriminator", (), "by replaced token detection, as the discriminator of an"),
    ({"electra_objective": False}, "generator", ("discriminator_predictions/", "generator/"), "by masked language modelling."),
    ({"uniform_generator": True}, "discriminator", ("generator/", "generator_predictions/"), "with uniformly drawn replacements"),
    ({"electric_objective": True}, "discriminator", (), "with the objective 'electric_objective'")])
def test_the_card_names_the_objective(golden, tmp_path, monkeypatch, hparams, part, removed, text):
    """Without discriminator, the network has the name of the generator's and the encoder of the discriminator."""
    prefix = golden / "official/micro_ckpt/model.ckpt-200"
    variables = {name: value for name, value in open_variables(prefix).items() if not name.startswith(removed)}
    if not hparams.get("electra_objective", True):  # its head has the size of its encoder
        monkeypatch.setattr(Variable, "read", lambda variable: np.zeros(variable.shape, np.float32))
        variables["generator_predictions/dense/kernel"] = Variable((32, 16), 1, "", 0)
    monkeypatch.setattr("_utils.commands.convert_tf.open_variables", lambda prefix: variables)
    convert_tf(str(prefix), str(tmp_path / "out"), part=part, hparams=json.dumps(MICRO | hparams))
    assert text in (tmp_path / "out/README.md").read_text()


@pytest.mark.parametrize("part, hparams, lacking, message", [
    ("discriminator", MICRO, "electra/encoder/layer_1/output/dense/bias", "lacks the variable .*electra/encoder/layer_1/output/dense/bias"),
    ("generator", MICRO, "generator_predictions/output_bias", "lacks the variable .*generator_predictions/output_bias"),
    ("discriminator", None, "global_step", "the discriminator is 32, not a multiple of 64.* Pass --hparams")])
def test_what_cannot_be_converted_is_named(golden, monkeypatch, part, hparams, lacking, message):
    variables = open_variables(golden / "official/micro_ckpt/model.ckpt-200")
    del variables[lacking]
    monkeypatch.setattr("_utils.commands.convert_tf.open_variables", lambda prefix: variables)
    with pytest.raises(PlainError, match=message):
        convert("prefix", part, hparams)


def test_heads_count_also_outside_of_the_overrides_and_other_json_is_rejected(golden, tmp_path):
    prefix = golden / "official/micro_ckpt/model.ckpt-200"
    assert convert(prefix, "discriminator", {"num_attention_heads": 4})[0].config.num_attention_heads == 4
    (tmp_path / "hparams.json").write_text('["num_attention_heads", 4]')
    with pytest.raises(PlainError, match="hparams.json"):
        convert_tf(str(prefix), str(tmp_path / "out"), part="discriminator", hparams=str(tmp_path / "hparams.json"))


@pytest.mark.parametrize("damage", [lambda whole: b"", lambda whole: whole[:-9], lambda whole: whole[9:], lambda whole: b"x" * len(whole)])
def test_a_damaged_index_raises(golden, tmp_path, damage):
    (tmp_path / "x.index").write_bytes(damage((golden / "official/micro_ckpt/model.ckpt-200.index").read_bytes()))
    with pytest.raises(PlainError, match="x.index"):
        open_variables(tmp_path / "x")


def test_missing_and_truncated_files_raise(golden, tmp_path):
    source = golden / "official/micro_ckpt/model.ckpt-200"
    data = "x.data-00000-of-00001"
    for name, content, message in [("vocab.txt", b"", "x.index"), ("x.index", Path(f"{source}.index").read_bytes(), data),
                                   (data, Path(f"{source}.data-00000-of-00001").read_bytes()[:50_000], f"{data}.*Download it again")]:
        (tmp_path / name).write_bytes(content)
        with pytest.raises(PlainError, match=message):
            convert(tmp_path / "x", "generator", MICRO)
    for vocab, message in (("none.txt", "cannot be read"), ("vocab.txt", "has 0 tokens, but the checkpoint has 2000|lacks")):
        with pytest.raises(PlainError, match=message):
            convert_tf(str(source), str(tmp_path / "out"), part="generator", hparams=json.dumps(MICRO), vocab=str(tmp_path / vocab))
    assert not list(tmp_path.glob("*out*"))
