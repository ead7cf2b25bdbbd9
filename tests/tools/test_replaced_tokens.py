"""The command replaced_tokens: corrupted text, and scores of discriminators on it."""
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.metrics import log_loss, roc_auc_score

import pretrain
from _utils.__main__ import main
from _utils.config import complete
from _utils.errors import UserError
from _utils.networks import inputs_of, load_with_head, replaced_logits
from _utils.runs.checkpoints import save_pretrained
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
    c = complete(
        pretrain.c.override(
            [
                "size=tiny",
                "datas=text.txt",
                "vocab=vocab.txt",
                "max_length=32",
                "bs=8",
                "num_workers=0",
                f"seed={seed}",
                "data_seed=3",
                *overrides,
            ]
        )
    )
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
    """(logits, labels, is_masked, block) of 40 blocks.

    The tokens of a block are correlated, and some logits are equal.
    """
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
    assert (
        error_of_difference == pytest.approx((drawn[:, 0] - drawn[:, 1]).std(), rel=0.15)
        and error_of_difference < error
    )


# The corrupted text

def test_the_text_is_what_pretraining_holds_out(two_runs):
    text = corrupted()
    _, dls = pretrain.load_data(two_runs)
    held_out = torch.cat([ids for ids, _ in dls.valid])
    assert 10 < len(held_out) and held_out[:, :text.original_ids.shape[1]].equal(text.original_ids)
    assert text.is_token.equal(text.original_ids != 0)
    few = corrupted(rows=5, max_length=16)
    assert len(few.is_token) == 5 and few.original_ids.shape[1] <= 16


def test_samples_replace_only_masked_tokens(two_runs):
    text = corrupted(held_out=False, rows=60, seed=4)
    assert text.input_ids[~text.is_masked].equal(text.original_ids[~text.is_masked])
    assert text.is_replaced.equal(text.input_ids != text.original_ids)
    assert (text.is_masked & ~text.is_replaced).any()  # correct samples count as original
    assert not (text.is_masked & ~text.is_token).any() and .1 < text.is_masked.sum() / text.is_token.sum() < .2
    other = corrupted("b.pth", held_out=False, rows=60, seed=4)
    assert other.is_masked.equal(text.is_masked)
    assert not other.input_ids.equal(text.input_ids)  # the generator draws them


# Comparing discriminators

def test_discriminators_are_scored_on_the_same_inputs(two_runs):
    text = corrupted()
    table, labels = scores(text, "a.pth", "b.pth"), text.is_replaced[text.is_token].numpy()
    for name in ("a.pth", "b.pth"):
        logits = logits_one_by_one(text, name)
        assert shown(table.loc[name, "AUC"])[0] == pytest.approx(roc_auc_score(labels, logits), abs=1e-3)
        probabilities = 1 / (1 + np.exp(-logits.astype(float)))
        assert table.loc[name, "loss"] == pytest.approx(log_loss(labels, probabilities), abs=1e-5)
    difference, error = shown(table.loc["b.pth", "AUC difference"])
    a, b = (shown(table.loc[name, "AUC"])[0] for name in ("a.pth", "b.pth"))
    assert difference == pytest.approx(b - a, abs=2e-4) and error > 0
    share = labels.mean()
    assert table.loc["constant prediction", "loss"] == pytest.approx(log_loss(labels, np.full(len(labels), share)))


def test_the_command_prints_one_table(two_runs, capsys):
    main(["replaced_tokens", *"a.pth b.pth --generator b.pth --text text.txt --rows 9".split()])
    first, *_, a, b, constant = capsys.readouterr().out.splitlines()
    assert first.startswith("9 examples of held-out part of text.txt, ")
    assert [line.split()[0] for line in (a, b, constant)] == ["a.pth", "b.pth", "constant"]


# Errors

@pytest.mark.parametrize("arguments, message", [
    ("a.pth --generator a.pth --text none.txt", "none.txt"),
    ("a.pth --generator a.pth --text text.txt --rows 99999", "rows: 99999"),
    ("a.pth --generator a.pth --text text.txt --mask_prob 2", "mask_prob: 2"),
    ("a.pth --generator second.pth --text text.txt", "replace_mlm")])
def test_wrong_arguments_raise(two_runs, small_tokenizer, arguments, message):
    checkpoint("second.pth", small_tokenizer, 1, "objective=replace_mlm")
    with pytest.raises(UserError, match=message):
        main(["replaced_tokens", *arguments.split()])


def test_a_discriminator_with_another_vocabulary_raises(two_runs, small_tokenizer):
    c, _, hf_tokenizer = load_generator("a.pth", ["text.txt"], .15, 0)
    ids = small_tokenizer.get_vocab()
    tokens = sorted(ids, key=ids.get)
    tokens[10], tokens[11] = tokens[11], tokens[10]
    checkpoint("swapped.pth", tokenizer_from_tokens(tokens), 1)
    with pytest.raises(UserError, match="another vocabulary"):
        load_discriminator("swapped.pth", hf_tokenizer, c, held_out=True)
