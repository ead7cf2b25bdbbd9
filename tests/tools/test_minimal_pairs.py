"""Scoring minimal pairs: scores of sentences, and the accuracies of the command's table."""
import json

import pandas as pd
import pytest
import torch

from _utils.__main__ import main
from _utils.networks import load_with_head, replaced_logits
from benchmarks.minimal_pairs import score

A, B, C, D = "The generator replaces some words.", "the words replaces some generator.", "A network.", "A network,"
# {(field, phenomenon, paradigm): pairs}; the last pair has twice the same tokens.
PAIRS = {("morphology", "punctuation", "marks"): [(C, D), (D, B)], ("syntax", "order", "order_1"): [(A, B), (A, C)],
         ("syntax", "order", "order_2"): [(A, D), (C, B)], ("syntax/semantics", "case", "case"): [("the", "THE")]}


def write_pairs(folder):
    folder.mkdir()
    for (field, phenomenon, paradigm), pairs in PAIRS.items():
        rows = [{"sentence_good": good, "sentence_bad": bad, "field": field, "linguistics_term": phenomenon,
                 "UID": paradigm, "pairID": "0"} for good, bad in pairs]
        (folder / f"{paradigm}.jsonl").write_text("\n".join(map(json.dumps, rows)) + "\n")


@torch.no_grad()
def plain_score(model, sentence):
    """The score of one sentence, computed as directly as possible."""
    ids = torch.tensor([[2, *model.hf_tokenizer(sentence, add_special_tokens=False).input_ids, 3]])
    network, inner = model.network.eval(), range(1, ids.shape[1] - 1)
    if model.part == "discriminator":
        return (1 - replaced_logits(network(ids)).sigmoid()[0, 1:-1]).log().sum().item()
    total = 0
    for i in inner:
        masked = ids.clone()
        masked[0, i] = 4
        total += network(masked).logits[0, i].log_softmax(-1)[ids[0, i]].item()
    return total


@pytest.mark.parametrize("part", ["discriminator", "generator"])
def test_scores_equal_a_plain_computation(fresh_checkpoint, part, monkeypatch):
    # several batches, also within one sentence
    monkeypatch.setattr("_utils.training.pseudo_likelihood.TOKENS_PER_BATCH", {"cpu": 40})
    sentences = [A, B, C, D, "THE words", "Each sentence has been written for this purpose, with common letters.",
                 "In 1843 the ¤ paper was read aloud:", ""]
    model = load_with_head(str(fresh_checkpoint), part)
    found = score(model, sentences, torch.device("cpu"), "")
    assert found == pytest.approx({sentence: plain_score(model, sentence) for sentence in sentences}, rel=1e-5)
    assert len(set(found.values())) == len(sentences)


def accuracy(model, pairs):
    """In percent; a tie counts as half a correct pair."""
    scores = [(plain_score(model, good), plain_score(model, bad)) for good, bad in pairs]
    return 100 * sum((good > bad) + (good == bad) / 2 for good, bad in scores) / len(scores)


def test_the_command_prints_a_table_and_writes_the_paradigms(fresh_checkpoint, empty_folder, capsys):
    write_pairs(empty_folder / "blimp")
    main(["minimal_pairs", str(fresh_checkpoint), "--untrained", "blimp", "--device", "cpu"])
    names, text = ["fresh_0_100.0%", "fresh_0_100.0%, untrained"], capsys.readouterr().out
    assert all(name in text for name in names)
    table = pd.read_csv("checkpoints/minimal_pairs.csv", index_col=[0, 1, 2])
    table.index = table.index.map(lambda key: (key[0].replace("syntax_s", "syntax/s"), *key[1:]))
    assert table["pairs"].to_dict() == {key: len(pairs) for key, pairs in PAIRS.items()}
    model = load_with_head(str(fresh_checkpoint))
    assert table[names[0]].to_dict() == {key: accuracy(model, pairs) for key, pairs in PAIRS.items()}
