"""Loading encoders to finetune: checkpoints of pretrain.py, transformers folders of several families, and invalid ones."""
import copy

import pytest
import torch
from tiny_families import FAMILIES, TINY
from tokenizers import Tokenizer, models
from transformers import (
    AutoModel,
    AutoModelForMaskedLM,
    BertConfig,
    ElectraConfig,
    ElectraForPreTraining,
    GPT2Config,
    RoFormerConfig,
    T5Config,
)

from _utils.errors import PlainError
from _utils.networks.build import layer_groups
from _utils.networks.pretrained import GOOGLE_MODELS, load_pretrained, load_with_head, size_of
from _utils.text import tokenizer_from_json
from finetune import SentencePredictor, parameter_groups, tokenize_sents_max_len


def save(folder, config, tokenizer):
    AutoModel.from_config(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_predicts_and_every_parameter_has_a_learning_rate(family, small_tokenizer, tmp_path):
    pretrained = load_pretrained(save(tmp_path, FAMILIES[family], small_tokenizer), "small", 32)
    model = SentencePredictor(pretrained.encoder(), 16, 3)
    row = tokenize_sents_max_len({"a": "The first.", "b": "And the second."}, ["a", "b"], 32, hf_tokenizer=pretrained.hf_tokenizer)
    assert model(*(torch.tensor([row[name]]) for name in ("inp_ids", "attn_mask", "token_type_ids"))).shape == (1, 3)
    groups = parameter_groups(model)
    assert len(groups) == (3 if family == "albert" else 5)  # ALBERT's layers are shared, and so one group
    assert sorted(id(p) for group in groups for _, p in group) == sorted(map(id, model.parameters()))
    assert [name for name, _ in groups[-1]] == ["classifier.weight", "classifier.bias"]
    assert all("embedding" in name for name, _ in groups[0])


def test_unknown_layer_names_raise():
    model = torch.nn.Linear(2, 2)
    model.config = BertConfig(**TINY)
    with pytest.raises(PlainError, match="Cannot tell the layers of a bert model apart"):
        layer_groups(model)


@pytest.fixture
def workplace(fresh_checkpoint, tmp_path, monkeypatch):
    """A working directory whose checkpoints/pretrain has the fresh checkpoint."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints/pretrain").symlink_to(fresh_checkpoint.parent)


def test_a_checkpoint_is_found_by_name_and_by_path(workplace, fresh_checkpoint, small_tokenizer):
    by_name = load_pretrained(fresh_checkpoint.name, "tiny", 128)
    by_path = load_pretrained(str(fresh_checkpoint), "tiny", 128)
    saved = torch.load(fresh_checkpoint, weights_only=True)["model"]
    for name, value in by_name.discriminator().state_dict().items():
        assert value.equal(saved[f"discriminator.{name}"])
    with torch.no_grad():
        by_name.encoder().embeddings.word_embeddings.weight.zero_()  # each run gets a copy
    assert by_name.encoder().embeddings.word_embeddings.weight.any()
    assert by_name.digest == by_path.digest
    text = "The generator replaces [MASK] words."
    assert by_name.hf_tokenizer(text, add_special_tokens=False).input_ids == small_tokenizer(text, add_special_tokens=False).input_ids
    assert by_name.hf_tokenizer.pad_token_id == small_tokenizer.pad_token_id


def test_an_electra_folder_keeps_the_head_of_the_discriminator_and_is_loaded_in_float32(small_tokenizer, tmp_path):
    model = ElectraForPreTraining(FAMILIES["electra"]).half()
    model.save_pretrained(tmp_path)
    small_tokenizer.save_pretrained(tmp_path)
    found, expected = load_pretrained(str(tmp_path), "small", 32).discriminator(), model.float().state_dict()
    assert all(value.dtype == torch.float32 and value.equal(expected[name]) for name, value in found.state_dict().items())


@pytest.mark.parametrize("name, size, message", [
    ("vanilla_11081_100.0%.pth", "small",
     "Checkpoint not found: 'vanilla_11081_100.0%.pth' in .*fresh_0_100.0%.pth.*python pretrain.py"),
    ("fresh_0_100.0%.pth", "base", "was pretrained with size=tiny, not size=base"),
    (None, "tiny", "None means Google's model, but there is none with size=tiny"),
    ("no/such/folder", "small", "'no/such/folder' from the hub, and there is no such folder"),
    ("no-such/model", "small",
     "Cannot load the model 'no-such/model' from the hub, and there is no such folder .* Pass a transformers folder"),
])
def test_a_missing_checkpoint_or_one_of_another_size_raises(workplace, name, size, message):
    with pytest.raises(PlainError, match=message) as error:
        load_pretrained(name, size, 128)
    assert "\n" not in str(error.value)


def test_size_selects_googles_model(monkeypatch):
    asked = []

    def fail(name, **_):
        asked.append(name)
        raise OSError("offline")
    monkeypatch.setattr("_utils.networks.pretrained.AutoConfig.from_pretrained", fail)
    for size in ("small", "base", "large"):
        with pytest.raises(PlainError, match=GOOGLE_MODELS[size]):
            load_pretrained(None, size, 512)
    assert asked == [f"google/electra-{size}-discriminator" for size in ("small", "base", "large")]


@pytest.mark.parametrize("layers, hidden, size", [
    (12, 256, "small"), (12, 768, "base"), (24, 1024, "large"), (4, 128, "mini"),
    (6, 768, "base"), (6, 384, "base"), (2, 64, "small"), (48, 2048, "large"),
])
def test_the_recipe_of_a_model_follows_from_its_shape(layers, hidden, size):
    assert size_of(BertConfig(num_hidden_layers=layers, hidden_size=hidden)) == size


@pytest.mark.parametrize("config", [ElectraConfig(embedding_size=128, intermediate_size=8), BertConfig(intermediate_size=8)])
def test_a_folder_of_another_size_raises(config, small_tokenizer, tmp_path):
    config.update({"vocab_size": 400, "hidden_size": 256, "num_hidden_layers": 12, "num_attention_heads": 4})
    folder = save(tmp_path, config, small_tokenizer)
    assert load_pretrained(folder, "small", 32)
    with pytest.raises(PlainError, match="has 12 layers and hidden size 256, the shape of size=small, not of size=base"):
        load_pretrained(folder, "base", 32)


def test_saved_padding_and_truncation_of_a_tokenizer_are_disabled(small_tokenizer, tmp_path):
    tokenizer = copy.deepcopy(small_tokenizer)
    tokenizer("some text", padding="max_length", truncation=True, max_length=8)
    pretrained = load_pretrained(save(tmp_path, FAMILIES["bert"], tokenizer), "small", 32)
    assert '"padding":null' not in (tmp_path / "tokenizer.json").read_text().replace(" ", "")  # the settings were saved
    text = {"a": "The first text is not long.", "b": "The second."}
    row, expected = (tokenize_sents_max_len(text, ["a", "b"], 32, hf_tokenizer=of) for of in (pretrained.hf_tokenizer, small_tokenizer))
    assert row == expected


@pytest.mark.parametrize("config, length, message", [
    (GPT2Config(vocab_size=400, n_embd=16, n_layer=1, n_head=2), 32, "is a gpt2 model, which is not an encoder"),
    (T5Config(vocab_size=400, d_model=16, d_ff=16, num_layers=1, num_heads=2, d_kv=8), 32, "is a t5 model, which is not an encoder"),
    (FAMILIES["bert"], 128, "max_length=128 is more than the 64 positions"),
])
def test_a_model_that_is_not_an_encoder_or_has_too_few_positions_raises(config, length, message, small_tokenizer, tmp_path):
    with pytest.raises(PlainError, match=message):
        load_pretrained(save(tmp_path, config, small_tokenizer), "small", length)


def test_a_folder_without_weights_or_tokenizer_raises(small_tokenizer, tmp_path):
    FAMILIES["bert"].save_pretrained(tmp_path)
    with pytest.raises(PlainError, match="Cannot load the weights"):
        load_pretrained(str(tmp_path), "small", 32)
    folder = save(tmp_path, FAMILIES["bert"], small_tokenizer)
    (tmp_path / "tokenizer.json").unlink()
    with pytest.raises(PlainError, match="has no tokenizer"):
        load_pretrained(folder, "small", 32)


@pytest.mark.parametrize("family", ["bert", "electra", "deberta"])
def test_missing_layers_raise_instead_of_getting_random_weights(family, small_tokenizer, tmp_path):
    config = copy.deepcopy(FAMILIES[family])
    folder = save(tmp_path, config, small_tokenizer)
    config.num_hidden_layers = 5
    config.save_pretrained(folder)
    with pytest.raises(PlainError, match=r"The weights of .* lack .*encoder.layer.3.*, which its config.json requires"):
        load_pretrained(folder, "small", 32)


@pytest.mark.parametrize("config, kind, left_out", [(FAMILIES["bert"], AutoModelForMaskedLM, "pooler"),
                                                    (RoFormerConfig(**TINY), AutoModel, "embed_positions")])
def test_poolers_and_computed_tables_may_be_missing(config, kind, left_out, small_tokenizer, tmp_path):
    model = kind.from_config(config)
    model.save_pretrained(tmp_path, state_dict={name: value for name, value in model.state_dict().items() if left_out not in name})
    small_tokenizer.save_pretrained(tmp_path)
    expected, loaded = (network.state_dict() for network in (model.base_model, load_pretrained(str(tmp_path), "small", 32).encoder()))
    assert loaded.keys() == expected.keys() and all(loaded[name].equal(value) for name, value in expected.items())


def test_weights_that_do_not_fit_the_configuration_raise(fresh_checkpoint, tmp_path):
    checkpoint = torch.load(fresh_checkpoint, weights_only=True)
    checkpoint["discriminator_config"]["hidden_size"] = 64
    torch.save(checkpoint, tmp_path / "mixed.pth")
    with pytest.raises(PlainError, match="The weights in .*mixed.pth' do not fit their configuration"):
        load_pretrained(str(tmp_path / "mixed.pth"), "tiny", 128)


@pytest.mark.parametrize("family", ["electra", "bert"])
def test_a_tokenizer_with_more_tokens_than_the_model_raises_with_both_numbers(small_tokenizer, tmp_path, family):
    config, tokenizer = copy.deepcopy(FAMILIES[family]), copy.deepcopy(small_tokenizer)
    config.vocab_size = len(tokenizer) + 1
    for added in (["<e1>"], ["<e1>", "</e1>"]):  # the first fits
        tokenizer.add_tokens(added)
        AutoModelForMaskedLM.from_config(config).save_pretrained(tmp_path / "model")
        tokenizer.save_pretrained(tmp_path / "model")
        loads = [lambda: load_pretrained(str(tmp_path / "model"), "small", 32),
                 lambda: load_with_head(str(tmp_path / "model"), "generator")]
        for load in loads:
            if len(tokenizer) <= config.vocab_size:
                load()
            else:
                with pytest.raises(PlainError, match=f"{len(tokenizer)} tokens.*{config.vocab_size}.*resize_token_embeddings"):
                    load()


def test_the_wsc_trick_requires_electra(small_tokenizer, tmp_path):
    pretrained = load_pretrained(save(tmp_path, FAMILIES["bert"], small_tokenizer), "small", 32)
    with pytest.raises(PlainError, match="wsc_trick=True requires a discriminator of the family ELECTRA"):
        pretrained.discriminator()


def test_the_unknown_token_of_other_tokenizers_survives_a_checkpoint(small_tokenizer):
    """A word that the tokenizer drops, such as a zero-width space, becomes the unknown token of its model."""
    unigram = Tokenizer(models.Unigram([("<pad>", 0.), ("<unk>", 0.), ("a", -1.)], unk_id=1))
    bpe = Tokenizer(models.BPE({"<pad>": 0, "?": 1}, [], unk_token="?"))
    for tokenizer, unknown in ((unigram, "<unk>"), (bpe, "?"), (small_tokenizer.backend_tokenizer, "[UNK]")):
        pad = "<pad>" if unknown != "[UNK]" else "[PAD]"
        assert tokenizer_from_json(tokenizer.to_str(), {"pad_token": pad}).unk_token == unknown
