"""Scoring minimal pairs: the command's table has the accuracies of scores that are computed as directly as possible."""
import json

import pandas as pd
import torch

from _utils.__main__ import main
from _utils.networks import load_with_head, replaced_logits

A, B, C, D = ("The generator replaces some words.", "the words replaces some generator.", "A network.", "A network,")
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
    ids = torch.tensor([[2, *model.hf_tokenizer(sentence, add_special_tokens=False).input_ids, 3]])
    replaced = replaced_logits(model.network.eval()(ids)).sigmoid()[0, 1:-1]
    return (1 - replaced).log().sum().item()


def accuracy(model, pairs):
    """In percent; a tie counts as half a correct pair."""
    scores = [(plain_score(model, good), plain_score(model, bad)) for good, bad in pairs]
    return 100 * sum((good > bad) + (good == bad) / 2 for good, bad in scores) / len(scores)


def test_the_command_prints_a_table_and_writes_the_paradigms(fresh_checkpoint, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    write_pairs(tmp_path / "blimp")
    main(["minimal_pairs", str(fresh_checkpoint), "--untrained", "blimp", "--device", "cpu"])
    names, text = ["fresh_0_100.0%", "fresh_0_100.0%, untrained"], capsys.readouterr().out
    assert all(name in text for name in names)
    table = pd.read_csv("checkpoints/minimal_pairs.csv", index_col=2)
    assert table["pairs"].to_dict() == {paradigm: len(pairs) for (*_, paradigm), pairs in PAIRS.items()}
    model = load_with_head(str(fresh_checkpoint))
    assert table[names[0]].to_dict() == {paradigm: accuracy(model, pairs) for (*_, paradigm), pairs in PAIRS.items()}
