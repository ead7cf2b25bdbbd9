"""The command replaced_tokens: corrupted text, and scores of discriminators on it."""
import contextlib
import io
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.metrics import log_loss, roc_auc_score
from transformers import BertConfig, BertForMaskedLM, BertForTokenClassification

import pretrain
from _utils.__main__ import main
from _utils.commands.export_hf import export_hf
from _utils.config import complete
from _utils.errors import PlainError
from _utils.networks import inputs_of, load_with_head, replaced_logits
from _utils.runs.checkpoints import load_checkpoint, save_pretrained
from _utils.text.vocabulary import tokenizer_from_tokens
from benchmarks.replaced_tokens import (
    auc,
    compare,
    corrupt,
    examples_of,
    load_discriminator,
    load_generator,
    replaced_scores,
    with_error,
)


def checkpoint(name, hf_tokenizer, seed, *overrides):
    """Write the checkpoint of an untrained ELECTRA to checkpoints/pretrain/ and return its configuration."""
    c = complete(pretrain.c.override(["size=tiny", "datas=text.txt", "vocab=vocab.txt", "max_length=32", "bs=8", "num_workers=0",
                                      f"seed={seed}", "data_seed=3", *overrides]))
    pretrain.set_seed(seed)
    model = pretrain.build_model(c, hf_tokenizer)
    for weight in model.parameters():  # logits of untrained networks hardly differ
        weight.data *= 2.
    save_pretrained(Path("checkpoints/pretrain", name), model, c, hf_tokenizer, step=0)
    return c


@pytest.fixture
def two_runs(workplace, small_tokenizer):
    """The configuration of a.pth; a.pth and b.pth have different generators and discriminators."""
    checkpoint("b.pth", small_tokenizer, 2)
    return checkpoint("a.pth", small_tokenizer, 1)


def corrupted(generator="a.pth", held_out=True, rows=None, mask_prob=.15, seed=0, **settings):
    """The CorruptedText of text.txt, as the command makes it."""
    c, network, hf_tokenizer = load_generator(generator, ["text.txt"], mask_prob, seed, **settings)
    return corrupt(examples_of(c, held_out, rows), network, hf_tokenizer, c)


def scores(text, *names):
    return compare(text, {name: load_with_head(name, "discriminator").network for name in names})


def logits_one_by_one(text, name):
    """The discriminator's logits of all tokens, without batches or padding."""
    network = load_with_head(name, "discriminator").network
    logits = []
    with torch.no_grad():
        for ids, segments, length in zip(text.input_ids, text.token_type_ids, text.is_token.sum(1)):
            ids, segments = ids[None, :length].long(), segments[None, :length].long()
            logits.append(replaced_logits(network(**inputs_of(network, ids, torch.ones_like(ids), segments)))[0])
    return torch.cat(logits).numpy()


def shown(text):
    """The two numbers of a value and its standard error, such as '0.6448 (0.0076)'."""
    return [float(number) for number in re.findall(r"-?[\d.]+", text)]


# Scores

@pytest.fixture
def tokens():
    """(logits, labels, is_masked, block) of 40 blocks. The tokens of a block are correlated, and some logits are equal."""
    rng = np.random.default_rng(0)
    block = np.repeat(np.arange(40), rng.integers(20, 60, 40))
    is_masked = rng.random(len(block)) < .3
    labels = is_masked & (rng.random(len(block)) < .8)
    logits = np.round(rng.normal(size=len(block)) + 1.5 * rng.normal(size=40)[block] + labels - 1, 1)
    return logits, labels, is_masked, block


def test_scores_equal_those_of_sklearn_on_the_concatenated_tokens(tokens):
    logits, labels, is_masked, _ = tokens
    scores = replaced_scores(*tokens)
    assert scores["AUC"].sum() == pytest.approx(roc_auc_score(labels, logits))
    assert scores["AUC at masks"].sum() == pytest.approx(roc_auc_score(labels[is_masked], logits[is_masked]))
    assert scores["loss"] == pytest.approx(log_loss(labels, 1 / (1 + np.exp(-logits))))
    assert (scores["precision"], scores["recall"]) == (labels[logits > 0].mean(), (logits[labels] > 0).mean())


@pytest.mark.parametrize("best, value", [(True, 1.), (False, .5)])
def test_a_perfect_discriminator_has_auc_1_and_a_constant_one_a_half(tokens, best, value):
    _, labels, is_masked, block = tokens
    logits = np.where(labels, 3., -3.) if best else np.full(len(labels), -2.)
    scores = replaced_scores(logits, labels, is_masked, block)
    assert with_error(scores["AUC"]) == with_error(scores["AUC at masks"]) == f"{value:.4f} (0.0000)"
    assert scores["recall"] == best and scores["precision"] == pytest.approx(1. if best else np.nan, nan_ok=True)


def test_the_standard_errors_equal_those_of_a_bootstrap_over_blocks(tokens):
    logits, labels, _, block = tokens
    rng = np.random.default_rng(1)
    other = logits + rng.normal(size=len(logits))
    a, b = auc(logits, labels, block), auc(other, labels, block)
    rows, drawn = [np.flatnonzero(block == i) for i in range(40)], []
    for _ in range(400):
        sample = np.concatenate([rows[i] for i in rng.integers(40, size=40)])
        drawn.append([roc_auc_score(labels[sample], x[sample]) for x in (logits, other)])
    drawn = np.array(drawn)
    (_, error), (_, error_of_difference) = shown(with_error(a)), shown(with_error(a - b))
    assert error == pytest.approx(drawn[:, 0].std(), rel=.15)
    assert error_of_difference == pytest.approx((drawn[:, 0] - drawn[:, 1]).std(), rel=.15) and error_of_difference < error


def test_a_single_example_has_no_standard_error(two_runs):
    text = corrupted(rows=1, mask_prob=.5)
    row = scores(text._replace(is_masked=text.is_replaced), "a.pth").loc["a.pth"]  # no correct sample
    assert "(nan)" in row["AUC"] and np.isnan(row["AUC at masks"])


# The corrupted text

def test_the_text_is_what_pretraining_holds_out(two_runs):
    text = corrupted()
    _, dls = pretrain.load_data(two_runs)
    held_out = torch.cat([ids for ids, _ in dls.valid])
    assert 10 < len(held_out) and held_out[:, :text.original_ids.shape[1]].equal(text.original_ids)
    segments = [[0] * a + [1] * (length - a) + [0] * (text.original_ids.shape[1] - length)
                for a, length in zip(torch.cat([lengths for _, lengths in dls.valid]).tolist(), text.is_token.sum(1).tolist())]
    assert text.token_type_ids.tolist() == segments and text.is_token.equal(text.original_ids != 0)
    whole, few = corrupted(held_out=False, rows=999, max_length=16), corrupted(rows=5, max_length=16)
    assert (len(whole.is_token), len(few.is_token)) == (999, 5) and few.original_ids.shape[1] <= 16


def test_samples_replace_only_masked_tokens_as_in_pretraining(two_runs):
    text = corrupted(held_out=False, rows=60, seed=4)
    network, _, hf_tokenizer, _ = load_with_head("a.pth", "generator")
    torch.manual_seed(4)
    originals, attention_mask = text.original_ids, text.is_token
    masked_ids, _, is_masked = pretrain.mask_tokens(originals, hf_tokenizer.mask_token_id, len(hf_tokenizer), hf_tokenizer.all_special_ids,
                                                    .15, replace_prob=0., orginal_prob=.15)
    with torch.no_grad():
        logits = network(masked_ids, attention_mask=attention_mask, token_type_ids=text.token_type_ids).logits
    samples = pretrain.sample(logits[is_masked])
    assert text.is_masked.equal(is_masked) and text.input_ids[is_masked].equal(samples)
    assert text.input_ids[~is_masked].equal(text.original_ids[~is_masked])
    assert text.is_replaced.equal(text.input_ids != text.original_ids)
    assert (text.is_masked & ~text.is_replaced).any()  # correct samples count as original
    assert not (text.is_masked & ~attention_mask).any() and .1 < is_masked.sum() / text.is_token.sum() < .2


def test_the_same_arguments_give_the_same_text_with_any_number_of_threads(two_runs):
    n_threads, texts = torch.get_num_threads(), []
    for threads in (1, 2):
        torch.set_num_threads(threads)
        torch.rand(threads)  # the state of the random numbers before has no influence
        texts.append(corrupted(mask_prob=.3, seed=9))
        assert torch.get_num_threads() == threads
    torch.set_num_threads(n_threads)
    assert all(map(torch.equal, *texts))
    other = corrupted(mask_prob=.3, seed=1)
    assert texts[0].original_ids.equal(other.original_ids) and not texts[0].is_masked.equal(other.is_masked)


# Comparing discriminators

def test_discriminators_are_scored_on_the_same_inputs(two_runs):
    text = corrupted()
    table, labels = scores(text, "a.pth", "b.pth"), text.is_replaced[text.is_token].numpy()
    a, b = (logits_one_by_one(text, name) for name in ("a.pth", "b.pth"))
    n = len(text.is_token)
    blocks = np.repeat(np.arange(n) * 16 // n, text.is_token.sum(1))
    for name, column, terms in (("a.pth", "AUC", auc(a, labels, blocks)), ("b.pth", "AUC", auc(b, labels, blocks)),
                                ("b.pth", "AUC difference", auc(b, labels, blocks) - auc(a, labels, blocks))):
        assert shown(table.loc[name, column]) == pytest.approx(shown(with_error(terms)), abs=1e-3)
    assert n >= 16 and table.loc["a.pth", "loss"] == pytest.approx(log_loss(labels, 1 / (1 + np.exp(-a.astype(float)))), abs=1e-5)
    share = labels.mean()
    assert table.loc["constant prediction", "loss"] == pytest.approx(log_loss(labels, np.full(len(labels), share)))
    assert table.loc["constant prediction", ["AUC", "average precision"]].tolist() == ["0.5000 (0.0000)", pytest.approx(share)]


def test_the_command_prints_one_table(two_runs, capsys):
    main(["replaced_tokens", *"a.pth b.pth --generator b.pth --text text.txt --rows 9".split()])
    first, *_, a, b, constant = capsys.readouterr().out.splitlines()
    assert first.startswith("9 examples of held-out part of text.txt, ")
    assert [line.split()[0] for line in (a, b, constant)] == ["a.pth", "b.pth", "constant"]


def save_bert(kind, hf_tokenizer, folder, **kwargs):
    """Write a small BERT with a head and its tokenizer to a folder."""
    torch.manual_seed(0)
    kind(BertConfig(vocab_size=len(hf_tokenizer), hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16,
                    **kwargs)).save_pretrained(folder)
    hf_tokenizer.save_pretrained(folder)


def test_folders_and_other_families_are_scored(two_runs, small_tokenizer):
    export_hf("a.pth", "exported")
    save_bert(BertForTokenClassification, small_tokenizer, "bert", num_labels=2)
    text, same = corrupted("exported", max_length=32, data_seed=3), corrupted()
    assert all(map(torch.equal, text, same))
    table = scores(text, "a.pth", "exported", "exported/discriminator", "bert").drop(columns="AUC difference")
    assert table.iloc[0].equals(table.iloc[1]) and table.iloc[0].equals(table.iloc[2])
    labels, logits = text.is_replaced[text.is_token].numpy(), logits_one_by_one(text, "bert")
    assert table.loc["bert", "AUC"].startswith(f"{roc_auc_score(labels, logits):.4f} (")


def test_a_discriminator_that_may_have_seen_the_text_is_reported(two_runs, small_tokenizer, capsys):
    checkpoint("longer.pth", small_tokenizer, 3, "max_length=64")
    c, _, hf_tokenizer = load_generator("a.pth", [str(Path("text.txt").resolve())], .15, 0)
    for held_out, name, warning in ((True, "a.pth", None), (True, "longer.pth", "text.txt with max_length=64 instead of 32"),
                                    (False, "b.pth", "text.txt and --all")):
        load_discriminator(name, hf_tokenizer, c, held_out)
        printed = capsys.readouterr().out
        assert f"'{name}' was trained on {warning}" in printed if warning else not printed


# The first cell of pretrain.py, which users edit for other runs

EDITED = {"encoding": "latin-1", "documents": "line", "clean": True, "max_length": 16, "data_seed": 7, "cased": True, "seed": 1,
          "masking": "official", "electra_mask_style": "always", "mask_prob": .4, "sampling": "multinomial", "temperature": 3.,
          "size": "large", "quickstart": True, "vocab": 300, "datas": ["docs"]}


@pytest.mark.parametrize("generator", ["a.pth", "old.pth", "exported/generator"])
def test_the_values_in_the_first_cell_of_pretrain_do_not_count(two_runs, monkeypatch, generator):
    """For a generator with its run, with that of a version before a key existed, and without a run."""
    export_hf("a.pth", "exported")
    content = load_checkpoint("checkpoints/pretrain/a.pth")
    for key in ("clean", "encoding", "data_seed"):
        del content["config"][key]
    torch.save(content, "checkpoints/pretrain/old.pth")
    text, warnings = corrupted(generator), []
    for edited in ({}, EDITED):
        for key, value in edited.items():
            monkeypatch.setitem(pretrain.c, key, value)
        assert all(map(torch.equal, text, corrupted(generator)))
        c, _, hf_tokenizer = load_generator(generator, ["text.txt"], .15, 0)
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            load_discriminator("b.pth", hf_tokenizer, c, held_out=True)
        warnings.append(printed.getvalue())
    assert warnings[0] == warnings[1]
    assert text.is_masked.sum() / text.is_token.sum() == pytest.approx(.15, abs=.05)


# Errors

@pytest.mark.parametrize("arguments, message", [
    ("--generator a.pth --text text.txt", "CHECKPOINTS"),
    ("a.pth --text text.txt", "--generator"),
    ("a.pth --generator a.pth --text none.txt", "none.txt"),
    ("a.pth --generator a.pth --text few.txt", "rows: 0. The text yields 0 examples.*or pass --all"),
    ("a.pth --generator a.pth --text text.txt --rows 99999", "Invalid value for rows: 99999"),
    ("a.pth --generator a.pth --text text.txt --mask_prob 2", "Invalid value for mask_prob: 2"),
    ("a.pth --generator a.pth --text text.txt --max_length 4", "Invalid value for max_length: 4"),
    ("a.pth --generator second.pth --text text.txt", "'second.pth' was trained with objective=replace_mlm.*without .MASK"),
    ("a.pth --generator short --text text.txt", "max_length=128 is more than the 16 positions of 'short'")])
def test_wrong_arguments_raise(two_runs, small_tokenizer, arguments, message):
    save_bert(BertForMaskedLM, small_tokenizer, "short", max_position_embeddings=16)
    checkpoint("second.pth", small_tokenizer, 1, "objective=replace_mlm")
    Path("few.txt").write_text("\n\n".join(["a small network makes good guesses ."] * 3))
    with pytest.raises(PlainError, match=message):
        main(["replaced_tokens", *arguments.split()])


def test_discriminators_that_do_not_fit_raise(two_runs, small_tokenizer):
    c, _, hf_tokenizer = load_generator("a.pth", ["text.txt"], .15, 0)
    ids = small_tokenizer.get_vocab()
    tokens = sorted(ids, key=ids.get)
    checkpoint("larger.pth", tokenizer_from_tokens([*tokens, "onemore"]), 1)
    tokens[10], tokens[11] = tokens[11], tokens[10]
    checkpoint("swapped.pth", tokenizer_from_tokens(tokens), 1)
    save_bert(BertForTokenClassification, small_tokenizer, "short", num_labels=2, max_position_embeddings=16)
    for name, message in {"swapped.pth": "has another vocabulary .*; the first difference is",
                          "larger.pth": "has another vocabulary .* is 'onemore'", "short": "the 16 positions of 'short'"}.items():
        with pytest.raises(PlainError, match=message):
            load_discriminator(name, hf_tokenizer, c, held_out=True)
