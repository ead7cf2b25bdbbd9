"""The command replaced_tokens: its table, and scores on the tokens of many examples."""
from pathlib import Path

import numpy as np
import pytest
from sklearn.metrics import log_loss, roc_auc_score

import pretrain
from _utils.__main__ import main
from _utils.config import complete
from _utils.runs.checkpoints import save_pretrained
from benchmarks.replaced_tokens import replaced_scores


def checkpoint(name, hf_tokenizer, seed, *overrides):
    """Write the checkpoint of an untrained ELECTRA to checkpoints/pretrain/ and return its configuration."""
    settings = ["size=tiny", "datas=text.txt", "vocab=vocab.txt", "max_length=32", "bs=8", "num_workers=0",
                f"seed={seed}", "data_seed=3"]
    c = complete(pretrain.c.override([*settings, *overrides]))
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


def test_the_command_prints_one_table(two_runs, capsys):
    main(["replaced_tokens", *"a.pth b.pth --generator b.pth --text text.txt --rows 9".split()])
    *_, a, b, constant = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in (a, b, constant)] == ["a.pth", "b.pth", "constant"]
