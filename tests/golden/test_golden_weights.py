"""Google's initial weights and checkpoints against transformers' classes: names, shapes, distributions, outputs
(F24-F30).
"""
import json

import numpy as np
import pytest
import torch
from electra_models import build, by_google_name
from transformers import AutoModel, AutoTokenizer

from _utils.commands.convert_tf import convert, convert_tf
from _utils.commands.tf_checkpoint import Variable, open_variables
from _utils.errors import UserError
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


@pytest.fixture(params=["micro", "tiny"])
def released(request):
    """(folder, prefix, hparams) of a recorded checkpoint; the generator of one of them has a projection of its
    embeddings.
    """
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
        ids, mask, segments = (
            torch.tensor(recorded[f"{batch}_{name}"]).long() for name in ("input_ids", "input_mask", "segment_ids")
        )
        tokens = mask.bool().numpy()
        with torch.no_grad():
            logits = generator(ids, mask, segments).logits.double()
            close(discriminator(ids, mask, segments).logits[tokens], recorded[f"{batch}_disc_logits"][tokens])
            close(
                discriminator.electra(ids, mask, segments).last_hidden_state[tokens],
                recorded[f"{batch}_disc_hidden"][tokens],
            )
            close(
                generator.electra(ids, mask, segments).last_hidden_state[tokens],
                recorded[f"{batch}_gen_hidden"][tokens],
            )
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


def test_the_command_writes_a_folder_that_transformers_loads(golden, tmp_path):
    folder = golden / "official/micro_ckpt"
    prefix, hparams, vocab = folder / "model.ckpt-200", tmp_path / "hparams.json", tmp_path / "vocab.txt"
    hparams.write_text(json.dumps(MICRO))
    vocab.write_text("\n".join([*SPECIAL_TOKENS, *(f"word{i}" for i in range(1995))]))
    for part in PARTS:
        out = tmp_path / "pair" / part
        convert_tf(str(prefix), str(out), part=part, hparams=str(hparams), vocab=str(vocab))
        loaded = AutoModel.from_pretrained(out)
        network, step = convert(prefix, part, MICRO)
        assert step == 200
        for name, value in network.electra.state_dict().items():
            assert loaded.state_dict()[name].equal(value), name
        assert AutoTokenizer.from_pretrained(out).convert_tokens_to_ids(["[MASK]", "word0"]) == [4, 5]


@pytest.mark.parametrize("part, lacking", [
    ("discriminator", "electra/encoder/layer_1/output/dense/bias"), ("generator", "generator_predictions/output_bias")])
def test_a_missing_variable_is_named(golden, monkeypatch, part, lacking):
    variables = open_variables(golden / "official/micro_ckpt/model.ckpt-200")
    del variables[lacking]
    monkeypatch.setattr("_utils.commands.convert_tf.open_variables", lambda prefix: variables)
    with pytest.raises(UserError, match=lacking):
        convert("prefix", part, MICRO)
