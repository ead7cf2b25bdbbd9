"""Scoring minimal pairs: the accuracies of the command's table. The scores: test_score.py."""
import json

import pandas as pd
import pytest

from _utils.__main__ import main
from _utils.errors import UserError
from _utils.training.pseudo_likelihood import load

A, B, C, D = "The generator replaces some words.", "the words replaces some generator.", "A network.", "A network,"
# {(field, phenomenon, paradigm): pairs}; the last pair has twice the same tokens.
PAIRS = {("morphology", "punctuation", "marks"): [(C, D), (D, B)], ("syntax", "order", "order_1"): [(A, B), (A, C)],
         ("syntax", "order", "order_2"): [(A, D), (C, B)], ("syntax/semantics", "case", "case"): [("the", "THE")]}
SENTENCES = [A, B, C, D, "the", "THE"]


def write_pairs(folder):
    folder.mkdir()
    for (field, phenomenon, paradigm), pairs in PAIRS.items():
        rows = [{"sentence_good": good, "sentence_bad": bad, "field": field, "linguistics_term": phenomenon,
                 "UID": paradigm, "pairID": "0"} for good, bad in pairs]
        (folder / f"{paradigm}.jsonl").write_text("\n".join(map(json.dumps, rows)) + "\n")


def test_a_sentence_beyond_the_trained_positions_is_refused(fresh_checkpoint, empty_folder):
    (empty_folder / "a.txt").write_text(" ".join([A] * 9) + "\n")
    with pytest.raises(UserError, match="32"):
        main(["minimal_pairs", str(fresh_checkpoint), "a.txt", "--device", "cpu"])


def test_a_pair_with_an_empty_sentence_is_refused(fresh_checkpoint, empty_folder):
    """It would have the highest of all scores."""
    pairs = [{"sentence_good": A, "sentence_bad": B}, {"sentence_good": " ", "sentence_bad": B}]
    (empty_folder / "pairs.jsonl").write_text("\n".join(map(json.dumps, pairs)))
    with pytest.raises(UserError, match="line 2 .*'sentence_good'"):
        main(["minimal_pairs", str(fresh_checkpoint), "pairs.jsonl", "--device", "cpu"])


def test_the_command_prints_a_table_and_writes_the_paradigms(fresh_checkpoint, empty_folder, capsys):
    write_pairs(empty_folder / "blimp")
    main(["minimal_pairs", str(fresh_checkpoint), "--untrained", "blimp", "--device", "cpu"])
    names, text = ["fresh_0_100.0%", "fresh_0_100.0%, untrained"], capsys.readouterr().out
    assert all(name in text for name in names)
    table = pd.read_csv("checkpoints/minimal_pairs.csv", index_col=[0, 1, 2])
    table.index = table.index.map(lambda key: (key[0].replace("syntax_s", "syntax/s"), *key[1:]))
    assert table["pairs"].to_dict() == {key: len(pairs) for key, pairs in PAIRS.items()}
    score = {text: found.score for text, found in zip(SENTENCES, load(fresh_checkpoint).score(SENTENCES))}
    correct = {key: [(score[good] > score[bad]) + (score[good] == score[bad]) / 2 for good, bad in pairs]
               for key, pairs in PAIRS.items()}  # a tie counts as half a correct pair
    assert table[names[0]].to_dict() == {key: 100 * sum(found) / len(found) for key, found in correct.items()}
