"""Scoring minimal pairs: the scores of sentences, accuracies, and the command's table."""
import json
from pathlib import Path

import pandas as pd
import pytest
import torch

from _utils.__main__ import main
from _utils.networks import load_with_head
from benchmarks.minimal_pairs import accuracy_by_paradigm, read_pairs, score

CPU = torch.device("cpu")
SENTENCES = ["The generator replaces some "
             "words.", "the words replaces some generator.", "A network.", "A network,", "THE words",
             "Each sentence has been written for this purpose, with common and uncommon "
             "letters.", "In 1843 the ¤ paper was read aloud:"]


def pair(good, bad, paradigm="order_1", phenomenon="order", field="syntax"):
    return {"sentence_good": good, "sentence_bad": bad, "field": field, "linguistics_term": phenomenon, "UID": paradigm,
            "pairID": "0"}


def write(path, pairs):
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_text("\n".join(map(json.dumps, pairs)) + "\n")


@pytest.fixture
def blimp(tmp_path, monkeypatch):
    """A working directory with a folder of four paradigms of three phenomena.

    The last pair has twice the same tokens.
    """
    monkeypatch.chdir(tmp_path)
    a, b, c, d, *_ = SENTENCES
    marks, case = ("marks", "punctuation", "morphology"), ("case", "case", "syntax/semantics")
    write("blimp/order_1.jsonl", [pair(a, b), pair(a, c)])
    write("blimp/order_2.jsonl", [pair(a, d, "order_2"), pair(c, b, "order_2")])
    write("blimp/marks.jsonl", [pair(c, d, *marks), pair(d, b, *marks)])
    write("blimp/case.jsonl", [pair("the words", "THE words", *case)])
    return tmp_path / "blimp"


def scores(name, part=None, sentences=SENTENCES):
    model = load_with_head(str(name), part)
    return score(model, sentences, CPU, "")


def accuracies(pairs, score_of):
    return accuracy_by_paradigm(pairs, {"model": score_of})["model"]


def test_accuracy_counts_correct_pairs_and_half_of_the_ties(blimp):
    pairs = read_pairs(blimp)
    a, b, c, d, *_ = SENTENCES
    found = accuracies(pairs, {a: 4, b: 1, c: 4, d: 2, "the words": 1, "THE words": 1})
    assert found.to_dict() == {("morphology", "punctuation", "marks"): 100, ("syntax", "order", "order_1"): 75,
                               ("syntax", "order", "order_2"): 100, ("syntax_semantics", "case", "case"): 50}


def test_the_command_prints_a_table_and_writes_the_paradigms(fresh_checkpoint, blimp, capsys):
    main(["minimal_pairs", str(fresh_checkpoint), "--untrained", "blimp", "--device", "cpu"])
    names, text = ["fresh_0_100.0%", "fresh_0_100.0%, untrained"], capsys.readouterr().out
    assert all(name in text for name in names)
    table = pd.read_csv("checkpoints/minimal_pairs.csv", index_col=[0, 1, 2])
    assert [*table.columns] == ["pairs", *names] and table["pairs"].tolist() == [2, 2, 2, 1]
    expected = accuracies(read_pairs(blimp), scores(fresh_checkpoint, sentences=[*SENTENCES, "the words"]))
    assert table["fresh_0_100.0%"].tolist() == expected.tolist()
