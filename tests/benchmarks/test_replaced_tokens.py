"""The command replaced_tokens: its table, and scores on the tokens of many examples."""

import numpy as np
import pytest
from sklearn.metrics import log_loss, roc_auc_score
from tiny_pretraining import FOLDER, save_fresh

from _utils.__main__ import main
from _utils.errors import UserError
from benchmarks.replaced_tokens import replaced_scores


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


def test_the_command_prints_one_table(workplace, small_tokenizer, capsys):
    for seed, name in enumerate(("a.pth", "b.pth")):
        save_fresh(FOLDER / name, small_tokenizer, "datas=text.txt", "vocab=vocab.txt", seed=seed)
    main(["replaced_tokens", *"a.pth b.pth --generator b.pth --text text.txt --rows 9".split()])
    *_, a, b, constant = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in (a, b, constant)] == ["a.pth", "b.pth", "constant"]


def test_outputs_that_are_not_logits_of_replaced_are_refused(workplace, small_tokenizer):
    save_fresh(FOLDER / "a.pth", small_tokenizer)
    save_fresh(FOLDER / "electric.pth", small_tokenizer, "objective=electric")
    with pytest.raises(UserError, match="objective=electric"):
        main(["replaced_tokens", *"a.pth electric.pth --generator a.pth --text text.txt --rows 9".split()])


def test_examples_have_no_more_tokens_than_each_network_was_trained_for(workplace, exported, small_tokenizer, capsys):
    """Also by default, which for a folder is not that of a run."""
    save_fresh(FOLDER / "short.pth", small_tokenizer, "max_length=16")
    command = f"replaced_tokens {exported} --generator {exported} --text text.txt --rows 9".split()
    capsys.readouterr()
    main(command)
    by_default = capsys.readouterr().out
    main([*command, "--max_length", "32"])
    assert capsys.readouterr().out == by_default
    for longer in ([*command, "--max_length", "64"], [*command[:2], "short.pth", *command[2:], "--max_length", "32"]):
        with pytest.raises(UserError, match="--max_length"):
            main(longer)


def test_the_text_is_divided_as_in_the_run_of_a_checkpoint_if_the_generator_has_none(
    workplace, exported, small_tokenizer, capsys
):
    """After continued pretraining of a folder: what that run held out."""
    save_fresh(FOLDER / "further.pth", small_tokenizer, "datas=text.txt", "vocab=vocab.txt", "data_seed=3")
    command = f"replaced_tokens {exported} further.pth --generator {exported} --text text.txt --rows 9".split()
    main(command)
    assert "Warning" not in capsys.readouterr().out
    main([*command, "--data_seed", "4"])
    assert "data_seed=3" in capsys.readouterr().out
