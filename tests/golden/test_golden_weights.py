"""Google's initial weights and checkpoints against transformers' classes: names, shapes, distributions, outputs
(F24-F30).
"""
import json
import re
from collections import Counter

import numpy as np
import pytest
import torch
from electra_models import build, by_google_name
from recorded import GOLDEN, recorded
from transformers import AutoModel, AutoTokenizer, ElectraConfig

from _utils.commands.convert_tf import convert, convert_tf, trained_positions
from _utils.commands.tf_checkpoint import Variable, open_variables
from _utils.errors import UserError
from _utils.networks.build import PARTS, build_network, initialize_officially
from _utils.networks.pretrained import SELECTED_BY
from _utils.recipes import RECIPES
from _utils.text.vocabulary import SPECIAL_TOKENS

# The hparams of the checkpoint in golden/official/micro_ckpt.
MICRO = {"vocab_size": 2000, "embedding_size": 16, "generator_hidden_size": .5,
         "model_hparam_overrides": {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}}
SETTINGS = {"num_attention_heads": 2, "hidden_act": "relu"}
PREFIX, VARIABLES = GOLDEN / "official/micro_ckpt/model.ckpt-200", recorded("official/variables.json")


@pytest.mark.parametrize("size", ["small", "base", "large"])
def test_every_variable_of_google_has_a_parameter_of_its_shape(size):
    expected = VARIABLES[size]
    with torch.device("meta"):
        model = build(size, 30522)
    parameters = by_google_name(model)
    assert len(parameters) == len(list(model.parameters()))
    if size == "small":  # the lists of the others are shortened
        assert set(parameters) == {variable["name"] for variable in expected["variables"]}
    assert sum(parameter.numel() for parameter in model.parameters()) == expected["n_total"]
    for variable in expected["variables"]:
        shape = list(parameters[variable["name"]].shape)
        assert (shape[::-1] if variable["name"].endswith("/kernel") else shape) == variable["shape"], variable["name"]


def test_initial_weights_are_drawn_from_googles_distributions():
    model = build("small", 30522)
    torch.manual_seed(0)
    initialize_officially(model)
    parameters, kinds = by_google_name(model), Counter()
    for variable in VARIABLES["small"]["variables"]:
        values, init = parameters[variable["name"]].detach().numpy(), variable["init"]
        kind = re.match("[a-z_]*", init)[0]
        kinds[kind] += 1
        if kind == "constant":
            assert (values == float(init.split()[1])).all(), variable["name"]
            continue
        largest, std = .04, .02 * .8796  # std .02 truncated at two std is .0176, without rescaling
        if kind == "glorot_uniform":
            largest = float(init.rpartition(" ")[2].rstrip("]"))
            std = largest / 3 ** .5
        error = 5 / values.size ** .5  # five standard errors, relative to the width of the distribution
        assert abs(values).max() <= largest and abs(values).max() > largest * (1 - error), variable["name"]
        assert values.std() == pytest.approx(std, rel=error) and abs(values.mean()) < error * std, variable["name"]
    assert kinds["truncated_normal"] == 149 and kinds["glorot_uniform"] == 3 and len(kinds) == 3


@pytest.fixture(params=["micro_ckpt/model.ckpt-200", "tiny_ckpt/model.ckpt-300"])
def released(request):
    """The prefix of a recorded checkpoint; the generator of one of them has a projection of its embeddings."""
    folder = GOLDEN
    if "tiny" in request.param:
        folder = request.getfixturevalue("shared") / "golden"
    return folder / "official" / request.param


@torch.no_grad()
def test_outputs_of_converted_checkpoints_match_googles(released):
    arrays, config = recorded(released.parent / "forward.npz"), recorded(released.parent / "config.json")
    generator, discriminator = (convert(released, part, config["pretraining_hparams"])[0] for part in PARTS)
    for network, name in ((generator, "generator_config"), (discriminator, "bert_config")):
        assert config[name].items() <= network.config.to_dict().items()
    for batch in ("b0", "b1"):
        inputs = [torch.tensor(arrays[f"{batch}_{name}"]).long() for name in ("input_ids", "input_mask", "segment_ids")]
        ids, tokens = inputs[0], inputs[1].bool()
        logits = generator(*inputs).logits.double()
        found = {"disc_logits": discriminator(*inputs).logits, "gen_logsumexp": logits.logsumexp(-1),
                 "disc_hidden": discriminator.electra(*inputs).last_hidden_state,
                 "gen_hidden": generator.electra(*inputs).last_hidden_state,
                 "gen_logit_of_input": logits.gather(2, ids[..., None])[..., 0], "gen_argmax": logits.argmax(-1)}
        for name, values in found.items():
            np.testing.assert_allclose(values[tokens], arrays[f"{batch}_{name}"][tokens], atol=1e-4)
        for name in (name for name in arrays if name.startswith(f"{batch}_gen_logits_row")):
            row = int(name.rpartition("row")[2])
            np.testing.assert_allclose(logits[row][tokens[row]], arrays[name][tokens[row]], atol=1e-4)


@pytest.mark.parametrize("part", PARTS)
def test_sizes_follow_from_shapes_with_heads_of_size_64(monkeypatch, part):
    """With the variables of the released small model and zeros as their values."""
    variables = {variable["name"]: Variable(tuple(variable["shape"]), 1, "", 0)
                 for variable in VARIABLES["small"]["variables"]}
    monkeypatch.setattr(Variable, "read", lambda variable: np.zeros(variable.shape, np.float32))
    monkeypatch.setattr("_utils.commands.convert_tf.open_variables", lambda prefix: variables)
    found = convert("small", part)[0].config
    assert found.to_dict() == build_network(part, getattr(RECIPES["small"], part).config(30522)).config.to_dict()
    assert found.num_attention_heads == (1 if part == "generator" else 4)


@pytest.mark.parametrize("hparams", [{"model_hparam_overrides": SETTINGS}, SETTINGS])
def test_settings_that_shapes_do_not_show_are_read_from_hparams_and_their_overrides(hparams):
    assert convert(PREFIX, "discriminator", hparams)[0].config.to_dict().items() >= SETTINGS.items()


@pytest.mark.parametrize("missing", ["discriminator_predictions/dense/kernel", "electra/embeddings/word_embeddings"])
def test_a_variable_that_a_checkpoint_lacks_is_named(monkeypatch, missing):
    variables = open_variables(PREFIX)
    del variables[missing]
    monkeypatch.setattr("_utils.commands.convert_tf.open_variables", lambda prefix: variables)
    with pytest.raises(UserError, match=f"discriminator.* '{missing}'.*--part"):
        convert(PREFIX, "discriminator", MICRO)


def test_a_generator_with_two_towers_is_refused(monkeypatch):
    """Here their joint width is that of the discriminator."""
    variables = open_variables(PREFIX)
    for name in [name for name in variables if name.startswith("generator/")]:
        variables[name.replace("generator/", "generator_ltr/")] = variables.pop(name)
    variables["generator_predictions/dense/kernel"] = variables["electra/embeddings_project/kernel"]._replace(
        shape=(32, 16))
    monkeypatch.setattr("_utils.commands.convert_tf.open_variables", lambda prefix: variables)
    with pytest.raises(UserError, match="Cannot find the generator"):
        convert(PREFIX, "generator", MICRO)


@pytest.mark.parametrize("part", PARTS)
def test_the_command_writes_a_folder_that_transformers_loads(tmp_path, part):
    hparams, vocab, out = tmp_path / "hparams.json", tmp_path / "vocab.txt", tmp_path / "out"
    hparams.write_text(json.dumps(MICRO))
    vocab.write_text("\n".join([*SPECIAL_TOKENS, *(f"word{i}" for i in range(1995))]))
    convert_tf(str(PREFIX), str(out), part=part, hparams=str(hparams), vocab=str(vocab))
    (network, step), loaded = convert(PREFIX, part, MICRO), AutoModel.from_pretrained(out).state_dict()
    assert step == 200
    for name, value in network.electra.state_dict().items():
        assert loaded[name].equal(value), name
    hf_tokenizer = AutoTokenizer.from_pretrained(out)
    assert hf_tokenizer.convert_tokens_to_ids(["[MASK]", "word0"]) == [4, 5]
    assert hf_tokenizer.model_max_length == 32  # positions that were trained, of 512


def test_a_discriminator_of_electric_is_converted_as_one():
    network, _ = convert(PREFIX, "discriminator", MICRO | {"electric_objective": True})
    assert getattr(network.config, SELECTED_BY) == {"objective": "electric"}
    assert not hasattr(convert(PREFIX, "discriminator", MICRO)[0].config, SELECTED_BY)


@pytest.mark.parametrize("given, length", [(None, 512), ({}, 128), ({"max_seq_length": 256}, 256)])
def test_without_moments_the_trained_length_is_that_of_the_settings(given, length):
    assert trained_positions({}, given, ElectraConfig()) == length
