"""New tokens for the vocabulary of a trained pair: which ones, and the rows that they start from."""
import copy
from functools import partial
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from tiny_families import FAMILIES
from tiny_pretraining import equal_weights, run, weights
from tokenizer_kinds import sentences
from transformers import AutoModelForMaskedLM

from _utils.networks import add_tokens
from _utils.networks.build import build_network
from _utils.optim import MOMENTS_FILE, AdamNoBiasCorrection, restore_moments
from _utils.runs.checkpoints import saved_networks
from _utils.text import extend_tokenizer, load_tokenizer

WORDS = ["coronavirus", "antibody", "generators"]


@pytest.fixture
def words_file(tmp_path):
    """A function that writes lines to a file and returns its path."""
    def write(*lines):
        (tmp_path / "words.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
        return str(tmp_path / "words.txt")
    return write


def test_words_of_a_file_become_tokens_after_the_present_ones(small_tokenizer, words_file):
    new = extend_tokenizer(
        small_tokenizer, words_file("[PAD]", "the", "Coronavirus", "antibody", "##virus", "", "antibody")
    )
    n = len(small_tokenizer)
    assert new.convert_ids_to_tokens(range(n, len(new))) == ["coronavirus", "antibody", "##virus"]
    assert {token: new.get_vocab()[token] for token in small_tokenizer.get_vocab()} == small_tokenizer.get_vocab()
    assert new.tokenize("The CORONAVIRUS antibody") == ["the", "coronavirus", "antibody"]
    assert type(new) is type(small_tokenizer) and new.all_special_ids == small_tokenizer.all_special_ids


@pytest.mark.parametrize("family, spare", [("electra", 0), ("electra", 7), ("bert", 7), ("deberta", 0)])
def test_rows_start_as_the_means_of_their_pieces(small_tokenizer, words_file, family, spare):
    """spare: rows of the old embeddings that no token has, as in vocabularies that are padded to a multiple of 64."""
    config = copy.deepcopy(FAMILIES[family])
    n, config.vocab_size = len(small_tokenizer), len(small_tokenizer) + spare
    networks = [AutoModelForMaskedLM.from_config(config), build_network("discriminator", copy.deepcopy(config))]
    torch.nn.init.normal_(networks[0].get_output_embeddings().bias)
    before, new = copy.deepcopy(networks), extend_tokenizer(small_tokenizer, words_file(*WORDS, "##virus"))
    add_tokens(networks, small_tokenizer, new)
    first, *rest = small_tokenizer.tokenize("virus")
    pieces_of = {"coronavirus": small_tokenizer.tokenize("coronavirus"), "##virus": [f"##{first}", *rest]}
    tables = [[one.get_input_embeddings().weight for one in pair] for pair in zip(networks, before)]
    heads = [one.eval()(torch.tensor([[2, 6, 9, 3]])).logits[0].T for one in (networks[0], before[0])]
    for table, old in (*tables, heads):
        assert len(table) == max(len(new), len(old))
        for token, pieces in pieces_of.items():
            mean = old[small_tokenizer.convert_tokens_to_ids(pieces)].mean(0)
            torch.testing.assert_close(table[new.convert_tokens_to_ids(token)], mean, atol=1e-3, rtol=1e-3)
        torch.testing.assert_close(table[:n], old[:n], atol=1e-3, rtol=1e-3)


def test_moments_of_adam_are_loaded_although_tokens_were_added(tmp_path):
    (tmp_path / "generator").mkdir()
    save_file({"weight.exp_avg": torch.ones(3, 2)}, tmp_path / "generator" / MOMENTS_FILE)
    model = torch.nn.ModuleDict({"generator": torch.nn.Embedding(5, 2)})
    optimizer = AdamNoBiasCorrection(model.parameters(), lr=1.)
    restore_moments(optimizer, model, tmp_path)
    assert optimizer.state[model["generator"].weight]["exp_avg"].sum(1).tolist() == [2, 2, 2, 0, 0]


def test_continued_pretraining_with_new_words(workplace):
    """It resumes bit for bit, and its checkpoint has the larger vocabulary, with which it can be continued again."""
    run("steps=4")
    Path("text.txt").write_text("\n".join(f"{line} antibody coronavirus lymphocyte" for line in sentences()))
    Path("words.txt").write_text("\n".join(WORDS))
    further = partial(run, "initial_weights=mini_5_100.0%.pth", "base_run_name=further", "steps=8", "save_minutes=0",
                      "lr=1e-3", vocab="vocab=words.txt")
    examples = further().dls.train_ds.hf_dset.with_format("numpy")[:200]["input_ids"]
    assert (examples[0] == load_tokenizer("further_5_100.0%.pth").convert_tokens_to_ids("antibody")).any()
    whole = weights("further_5")
    further("stop_at=5")
    further(resume=True)
    assert equal_weights(whole, weights("further_5"))
    learn = run("initial_weights=further_5_100.0%.pth", "base_run_name=again", "steps=2", vocab=None)
    assert {network.config.vocab_size for network in saved_networks(learn.model).values()} == {251}
