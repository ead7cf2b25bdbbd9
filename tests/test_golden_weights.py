"""Google's initial weights and its checkpoints in transformers' classes: names, shapes, distributions, outputs (F24-F30)."""
import json

import numpy as np
import pytest
import torch
from transformers import AutoModel, AutoTokenizer, ElectraForMaskedLM, ElectraForPreTraining

from _utils.convert_tf import Names, convert, main
from _utils.errors import PlainError
from _utils.recipes import RECIPES, electra_configs
from _utils.tf_checkpoint import TFCheckpoint
from pretrain import ELECTRAModel, initialize_officially


class Vocabulary:
    pad_token_id = 0


def by_google_name(model):
    """{Google's name: our parameter} of both networks."""
    return {Names(part, ["generator/"]).google(name): parameter
            for part, network in (("generator", model.generator), ("discriminator", model.discriminator))
            for name, parameter in network.named_parameters()}


@pytest.mark.parametrize("size", ["small", "base", "large"])
def test_every_variable_of_google_has_its_parameter_of_that_shape(golden, size):
    recorded = json.loads((golden / "official/variables.json").read_text())[size]
    with torch.device("meta"):
        generator, discriminator = electra_configs(RECIPES[size], 30522)
        model = ELECTRAModel(ElectraForMaskedLM(generator), ElectraForPreTraining(discriminator), Vocabulary())
    ours = by_google_name(model)
    assert len(ours) == len(list(model.parameters()))
    if size == "small":  # of the others the list is shortened
        assert set(ours) == {variable["name"] for variable in recorded["variables"]}
    assert sum(parameter.numel() for parameter in model.parameters()) == recorded["n_total"]
    for variable in recorded["variables"]:
        shape = list(ours[variable["name"]].shape)
        assert (shape[::-1] if variable["name"].endswith("/kernel") else shape) == variable["shape"], variable["name"]


def test_initial_weights_are_drawn_from_googles_distributions(golden):
    recorded = json.loads((golden / "official/variables.json").read_text())["small"]["variables"]
    generator, discriminator = electra_configs(RECIPES["small"], 30522)
    model = ELECTRAModel(ElectraForMaskedLM(generator), ElectraForPreTraining(discriminator), Vocabulary())
    torch.manual_seed(0)
    initialize_officially(model)
    ours = by_google_name(model)
    kinds = {"truncated_normal": 0, "glorot_uniform": 0, "constant": 0}
    for variable in recorded:
        values, init = ours[variable["name"]].detach().numpy(), variable["init"]
        kinds[next(kind for kind in kinds if init.startswith(kind))] += 1
        error = 5 / values.size ** .5  # five standard deviations, relative to the distribution's width
        if init.startswith("constant"):
            assert (values == float(init.split()[1])).all(), variable["name"]
            continue
        if init.startswith("truncated_normal"):  # std .02 cut at 2 std has .0176, and is never rescaled
            largest, std = .04, .02 * .8796
        else:
            largest = float(init.rpartition(" ")[2].rstrip("]"))
            std = largest / 3 ** .5
        assert abs(values).max() <= largest and abs(values).max() > largest * (1 - error), variable["name"]
        assert values.std() == pytest.approx(std, rel=error) and abs(values.mean()) < error * std, variable["name"]
    assert kinds == {"truncated_normal": 149, "glorot_uniform": 3, "constant": len(recorded) - 152}


def test_hugging_faces_initial_weights_are_others():
    generator, discriminator = electra_configs(RECIPES["small"], 1000)
    torch.manual_seed(0)
    model = ELECTRAModel(ElectraForMaskedLM(generator), ElectraForPreTraining(discriminator), Vocabulary())
    words = model.generator.electra.embeddings.word_embeddings.weight.detach()
    assert float(words[1:].std()) == pytest.approx(.02, rel=.02) and words.abs().max() > .06 and not words[0].any()  # D3


@pytest.fixture(params=["micro", "tiny"])
def released(request):
    """(folder, prefix, hparams) of a recorded checkpoint: with and without a projection of the generator's embeddings."""
    if request.param == "micro":
        folder, prefix = request.getfixturevalue("golden") / "official/micro_ckpt", "model.ckpt-200"
    else:
        folder, prefix = request.getfixturevalue("shared") / "golden/official/tiny_ckpt", "model.ckpt-300"
    return folder, folder / prefix, json.loads((folder / "config.json").read_text())["pretraining_hparams"]


def test_outputs_of_converted_checkpoints_are_googles(released):
    folder, prefix, hparams = released
    recorded = np.load(folder / "forward.npz")
    generator, discriminator = (convert(prefix, part, hparams)[0] for part in ("generator", "discriminator"))
    close = lambda ours, theirs: np.testing.assert_allclose(ours, theirs, atol=1e-4)
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


def test_sizes_are_told_from_shapes_and_heads_are_sixty_four_wide(golden):
    prefix = golden / "official/micro_ckpt/model.ckpt-200"
    with_hparams = {"vocab_size": 2000, "embedding_size": 16, "generator_hidden_size": .5,
                    "model_hparam_overrides": {"hidden_size": 32, "num_hidden_layers": 2}}
    for part in ("generator", "discriminator"):
        guessed, told = (convert(prefix, part, hparams)[0].config.to_dict() for hparams in (None, with_hparams))
        assert guessed == told


def test_the_command_makes_a_folder_that_transformers_loads(golden, tmp_path, capsys):
    folder = golden / "official/micro_ckpt"
    hparams, vocab = tmp_path / "hparams.json", tmp_path / "vocab.txt"
    hparams.write_text(json.dumps(json.loads((folder / "config.json").read_text())["pretraining_hparams"]))
    vocab.write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"word{i}" for i in range(1995))]))
    for part in ("generator", "discriminator"):
        out = tmp_path / "pair" / part
        main([str(folder / "model.ckpt-200"), "--part", part, str(out), "--hparams", str(hparams), "--vocab", str(vocab)])
        loaded = AutoModel.from_pretrained(out)
        network, step = convert(folder / "model.ckpt-200", part, json.loads(hparams.read_text()))
        assert step == 200 and "200" in (out / "README.md").read_text()
        for name, value in network.electra.state_dict().items():
            assert loaded.state_dict()[name].equal(value), name
        assert AutoTokenizer.from_pretrained(out).convert_tokens_to_ids(["[MASK]", "word0"]) == [4, 5]
    assert "2 layers x 32, 2 heads" in capsys.readouterr().out
    without = tmp_path / "alone"
    main([str(folder / "model.ckpt-200"), "--part", "generator", str(without)])
    assert "no vocab.txt" in capsys.readouterr().out and AutoModel.from_pretrained(without).config.hidden_size == 16


@pytest.mark.parametrize("part, change, name", [
    ("discriminator", "pop", "electra/encoder/layer_1/output/dense/bias"),
    ("generator", "pop", "generator_predictions/output_bias"),
    ("generator", "pop", "electra/embeddings/word_embeddings"),
    ("discriminator", "setdefault", "electra/encoder/layer_1/adapter/kernel"),
    ("generator", "setdefault", "task_specific/cola/dense/kernel"),
])
def test_a_missing_or_unexpected_variable_is_named(golden, tmp_path, monkeypatch, part, change, name):
    class Changed(TFCheckpoint):
        def __init__(self, prefix):
            super().__init__(prefix)
            getattr(self.entries, change)(name, None)

    prefix = golden / "official/micro_ckpt/model.ckpt-200"
    monkeypatch.setattr("_utils.convert_tf.TFCheckpoint", Changed)
    with pytest.raises(PlainError, match=f"{'lacks' if change == 'pop' else 'has'} the variable {name}"):
        main([str(prefix), "--part", part, str(tmp_path / "out")])
    assert list(tmp_path.iterdir()) == []


def test_hparams_of_another_model_are_told_by_the_variable(golden, tmp_path):
    prefix = str(golden / "official/micro_ckpt/model.ckpt-200")
    with pytest.raises(PlainError, match="electra/embeddings/word_embeddings .* shape \\(2000, 16\\), which does not fit --hparams"):
        main([prefix, "--part", "discriminator", str(tmp_path / "out"), "--hparams", '{"model_size": "small"}'])
    for hparams in ("none.json", "[1]", '{"model_size": "huge"}', '{"embedding_size": "wide"}'):
        with pytest.raises(PlainError, match="--hparams"):
            main([prefix, "--part", "discriminator", str(tmp_path / "out"), "--hparams", hparams])
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("damage", [lambda b: b"", lambda b: b[:-9], lambda b: b[:200] + b[300:], lambda b: b"x" * len(b)])
def test_a_damaged_index_is_one_sentence(golden, tmp_path, damage):
    folder = golden / "official/micro_ckpt"
    (tmp_path / "x.index").write_bytes(damage((folder / "model.ckpt-200.index").read_bytes()))
    with pytest.raises(PlainError, match="x.index"):
        convert(tmp_path / "x", "generator")


def test_missing_and_short_files_are_named(golden, tmp_path):
    folder = golden / "official/micro_ckpt"
    with pytest.raises(PlainError, match="none.index"):
        convert(tmp_path / "none", "generator")
    (tmp_path / "x.index").write_bytes((folder / "model.ckpt-200.index").read_bytes())
    with pytest.raises(PlainError, match="x.data-00000-of-00001"):
        convert(tmp_path / "x", "generator")
    (tmp_path / "x.data-00000-of-00001").write_bytes((folder / "model.ckpt-200.data-00000-of-00001").read_bytes()[:500_000])
    with pytest.raises(PlainError, match="ends before the variable generator"):
        convert(tmp_path / "x", "generator")
