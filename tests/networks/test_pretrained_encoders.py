"""Loading encoders to finetune: checkpoints of pretrain.py, and transformers folders of several families."""
import contextlib
import copy

import pytest
import torch
from tiny_families import FAMILIES, TINY
from tiny_pretraining import save_fresh
from transformers import (
    AutoModel,
    AutoModelForMaskedLM,
    BertConfig,
    BertForTokenClassification,
    BertTokenizerFast,
    GPT2Config,
)

import finetune
from _utils.errors import UserError
from _utils.finetuning.config import complete_finetuning
from _utils.finetuning.plan import for_checkpoint
from _utils.names import find_checkpoint
from _utils.networks.pretrained import load_pretrained, load_with_head, size_of
from _utils.text.normalization import case_warnings
from finetune import SentencePredictor, parameter_groups, tokenize_sents_max_len


def save(folder, config, tokenizer):
    AutoModel.from_config(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_predicts_and_every_parameter_has_a_learning_rate(family, small_tokenizer, tmp_path):
    pretrained = load_pretrained(save(tmp_path, FAMILIES[family], small_tokenizer), "small")
    model = SentencePredictor(pretrained.encoder(), 16, 3)
    pair = {"a": "The first.", "b": "And the second."}
    row = tokenize_sents_max_len(pair, ["a", "b"], 32, hf_tokenizer=pretrained.hf_tokenizer)
    assert model(*(torch.tensor([row[name]]) for name in ("inp_ids", "attn_mask", "token_type_ids"))).shape == (1, 3)
    groups = parameter_groups(model)
    assert len(groups) == (3 if family == "albert" else 5)  # ALBERT's layers are shared, and so one group
    assert sorted(id(p) for group in groups for _, p in group) == sorted(map(id, model.parameters()))
    assert [name for name, _ in groups[-1]] == ["classifier.weight", "classifier.bias"]
    assert all("embedding" in name for name, _ in groups[0])


@pytest.fixture
def workplace(fresh_checkpoint, empty_folder):
    """A working directory whose checkpoints/pretrain has the fresh checkpoint."""
    (empty_folder / "checkpoints").mkdir()
    (empty_folder / "checkpoints/pretrain").symlink_to(fresh_checkpoint.parent)


def test_a_checkpoint_is_found_by_name_and_by_path(workplace, fresh_checkpoint, small_tokenizer):
    by_name, by_path = (load_pretrained(name, "tiny") for name in (fresh_checkpoint.name, str(fresh_checkpoint)))
    saved = torch.load(fresh_checkpoint, weights_only=True)["model"]
    for name, value in by_name.discriminator().state_dict().items():
        assert value.equal(saved[f"discriminator.{name}"])
    with pytest.raises(UserError, match=fresh_checkpoint.name):
        find_checkpoint(fresh_checkpoint.name, "checkpoints/glue")
    save_fresh(fresh_checkpoint.name, small_tokenizer, seed=1)  # in the working directory
    other = load_pretrained(f"./{fresh_checkpoint.name}", "tiny")
    assert load_pretrained(fresh_checkpoint.name, "tiny").digest == by_name.digest != other.digest
    assert by_name.digest == by_path.digest and by_name.hf_tokenizer.get_vocab() == small_tokenizer.get_vocab()


@pytest.mark.parametrize("part", ["encoder", "discriminator"])
def test_training_one_run_does_not_change_where_the_next_one_begins(fresh_checkpoint, part):
    pretrained = load_pretrained(str(fresh_checkpoint))
    weight_of_run = lambda: next(getattr(pretrained, part)().parameters()).data
    before = weight_of_run().clone()
    weight_of_run().zero_()
    assert weight_of_run().equal(before)


@pytest.mark.parametrize("change", [
    lambda saved: saved["discriminator_config"].update(num_attention_heads=1),
    lambda saved: saved.update(tokenizer=saved["tokenizer"].replace('"lowercase":true', '"lowercase":false'))])
def test_a_pretrained_model_is_another_one_with_other_heads_or_another_tokenizer(fresh_checkpoint, tmp_path, change):
    """The runs of a group have the same one."""
    saved = torch.load(fresh_checkpoint, weights_only=True)
    change(saved)
    torch.save(saved, tmp_path / "changed.pth")
    assert load_pretrained(str(tmp_path / "changed.pth")).digest != load_pretrained(str(fresh_checkpoint)).digest


@pytest.mark.parametrize("layers, hidden, size", [
    (12, 256, "small"), (12, 768, "base"), (24, 1024, "large"), (4, 128, "mini"), (6, 384, "base"), (48, 2048, "large"),
])
def test_the_recipe_of_a_model_follows_from_its_shape(layers, hidden, size):
    assert size_of(BertConfig(num_hidden_layers=layers, hidden_size=hidden)) == size


@pytest.mark.parametrize("config, length, message", [
    (GPT2Config(vocab_size=400, n_embd=16, n_layer=1, n_head=2), 32, "gpt2"), (FAMILIES["bert"], 128, "64"),
    (BertConfig(**TINY, is_decoder=True), 32, "causal bert"),
])
def test_a_model_that_is_not_an_encoder_or_has_too_few_positions_raises(
    config, length, message, small_tokenizer, tmp_path
):
    c = complete_finetuning(finetune.c.override([f"max_length={length}"]))
    with pytest.raises(UserError, match=message):
        for_checkpoint(c, load_pretrained(save(tmp_path, config, small_tokenizer), "small"))


def test_a_folder_without_a_tokenizer_raises(small_tokenizer, tmp_path):
    folder = save(tmp_path, FAMILIES["bert"], small_tokenizer)
    (tmp_path / "tokenizer.json").unlink()
    with pytest.raises(UserError, match="tokenizer"):
        load_pretrained(folder, "small")


def test_missing_layers_raise_instead_of_getting_random_weights(small_tokenizer, tmp_path):
    config = copy.deepcopy(FAMILIES["bert"])
    folder = save(tmp_path, config, small_tokenizer)
    config.num_hidden_layers = 5
    config.save_pretrained(folder)
    with pytest.raises(UserError, match="encoder.layer.3"):
        load_pretrained(folder, "small")


@pytest.mark.parametrize("words, lowercase, is_warned", [
    ("Apple apple May may red", True, True), ("Apple apple May may red", False, False), ("apple may red", True, False)])
def test_a_tokenizer_that_lowers_a_vocabulary_with_capital_letters_is_noticed(words, lowercase, is_warned, tmp_path):
    """As transformers reads an older cased BERT whose files do not say that it is cased."""
    vocab = tmp_path / "vocab.txt"
    vocab.write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words.split()]))
    assert bool(case_warnings(BertTokenizerFast(str(vocab), do_lower_case=lowercase), "old")) == is_warned


def test_a_tagger_is_no_discriminator(small_tokenizer, tmp_path):
    """Also if it has two labels."""
    network = BertForTokenClassification(BertConfig(vocab_size=len(small_tokenizer), hidden_size=16,
                                                    num_hidden_layers=1, num_attention_heads=2, intermediate_size=16))
    small_tokenizer.save_pretrained(tmp_path)
    for names, is_refused in (("original", "replaced"), False), (("NONE", "WRONG"), True):
        network.config.id2label, network.config.label2id = dict(enumerate(names)), {n: i for i, n in enumerate(names)}
        network.save_pretrained(tmp_path)
        with pytest.raises(UserError, match="original and replaced") if is_refused else contextlib.nullcontext():
            load_with_head(str(tmp_path), "discriminator")


def test_a_pooler_may_be_missing(small_tokenizer, tmp_path):
    model = AutoModelForMaskedLM.from_config(FAMILIES["bert"])
    model.save_pretrained(tmp_path)
    small_tokenizer.save_pretrained(tmp_path)
    loaded = load_pretrained(str(tmp_path), "small").encoder().state_dict()
    assert all(loaded.pop(name).equal(value) for name, value in model.base_model.state_dict().items()) and not loaded


def test_a_tokenizer_with_more_tokens_than_the_model_raises_with_both_numbers(small_tokenizer, tmp_path):
    tokenizer = copy.deepcopy(small_tokenizer)
    tokenizer.add_tokens(["<e1>", "</e1>"])
    config = copy.deepcopy(FAMILIES["bert"])
    config.vocab_size = len(small_tokenizer) + 1
    with pytest.raises(UserError, match=f"{len(tokenizer)}.*{config.vocab_size}"):
        load_pretrained(save(tmp_path, config, tokenizer), "small")
