"""Multiple choice: files, encoded rows, and a run from a file to transformers."""
import json
import random
from pathlib import Path

import pandas as pd
import pytest
import torch
from csv_files import write_csv
from tiny_finetuning import run_own
from transformers import AutoModelForMultipleChoice, AutoTokenizer

import finetune
from _utils.commands.export_hf import export_hf
from _utils.commands.predict import predict
from _utils.custom.definition import complete_custom_task
from _utils.custom.kinds import load_custom_task
from _utils.errors import UserError
from _utils.tasks.settings import Settings
from finetune import load

COLORS = "red green blue yellow black white".split()
ENDINGS = ["the first one", "the second one", "another one"]


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def loaded(**given):
    return load_custom_task(complete_custom_task({"name": "which", "kind": "choices", **given}))


def write_table(path, labels, endings=ENDINGS):
    write_csv(path, ("text", *"abc", "label"), [(f"text {i}", *endings, labels[i % len(labels)]) for i in range(30)])


def write_json(path, rows):
    Path(path).write_text("\n".join(map(json.dumps, rows)))


@pytest.mark.parametrize("labels, names, ids", [
    ("012", "012", [0, 1, 2]), ("01", "012", [0, 1]), ("123", "123", [0, 1, 2]), ("13", "123", [0, 2]),
    ("ABC", "ABC", [0, 1, 2]), ("ca", "abc", [2, 0])])
def test_a_label_is_a_position_or_a_letter(labels, names, ids):
    write_table("train.csv", labels)
    data = loaded(train="train.csv", dev="train.csv", choices=["a", "b", "c"])
    assert data.task.labels == tuple(names) and data.splits["train"]["label"][:len(ids)] == ids


def test_ambiguous_positions_are_asked_for():
    """The key first_choice says which they are. The dev file may decide, too."""
    write_table("train.csv", "12")
    choices = {"train": "train.csv", "dev": "train.csv", "choices": ["a", "b", "c"]}
    with pytest.raises(UserError, match="'first_choice'.* 0 or 1"):
        loaded(**choices)
    for first, expected in ((0, [1, 2]), (1, [0, 1])):
        assert loaded(**choices, first_choice=first).splits["train"]["label"][:2] == expected
    write_table("dev.csv", ["0"])
    assert loaded(**choices | {"dev": "dev.csv"}).splits["train"]["label"][:2] == [1, 2]


def test_positions_may_have_a_fraction_of_zero():
    write_table("train.csv", ["1.0", "2.0", "3.0"])
    assert loaded(train="train.csv", choices=["a", "b", "c"]).task.labels == ("1", "2", "3")


def test_a_wrong_label_among_positions_is_skipped():
    write_table("train.csv", [*"012" * 9, "first"])
    rows = pd.read_csv("train.csv")
    pd.concat([rows.iloc[:27]] * 5 + [rows.iloc[27:28]]).to_csv("train.csv", index=False)
    data = loaded(train="train.csv", dev=.2, choices=["a", "b", "c"])
    assert any("1 of 136 rows" in notice and "'first'" in notice for notice in data.notices)


@pytest.mark.parametrize("given, message", [
    ({}, "'choices'"), ({"choices": ["a", "d"]}, "'d'"), ({"choices": "a"}, "columns"),
    ({"choices": ["a", "b", "c"], "metrics": "f1"}, "metrics='f1'"),
    ({"choices": ["a", "b"]}, "0, 1"), ({"choices": ["a", "b"], "kind": "tagging"}, "'choices'.*'kind'")])
def test_what_does_not_fit_is_an_error(given, message):
    write_table("train.csv", "012")
    with pytest.raises(UserError, match=message):
        loaded(**{"train": "train.csv", "text": "text", **given})


def test_each_choice_is_a_pair_with_the_text_and_the_second_text_begins_it(small_tokenizer):
    """Too long texts lose their ends."""
    rows = [("a small network", "it", *ENDINGS, "0"), ("the text", "they", "the network", "a text " * 30, "words", "2")]
    write_csv("train.csv", ("context", "begin", *"abc", "label"), rows * 5)
    data = loaded(train="train.csv", dev="train.csv", text=["context", "begin"], choices=["a", "b", "c"])
    encoded = data.task.reading.encode(data.splits["train"], small_tokenizer, Settings(max_length=24), finetune.encode)
    ids, mask, types, labels = encoded.batch([1, 0])
    assert ids.shape == mask.shape == types.shape == (6, 24) and labels.tolist() == [2, 0] and len(encoded) == 10
    assert small_tokenizer.decode(ids[3][mask[3] == 1]) == "[CLS] a small network [SEP] it the first one [SEP]"
    assert small_tokenizer.decode(ids[2][types[2] == 1]) == "they words [SEP]"


def test_from_a_file_to_a_model_of_transformers(fresh_checkpoint, capsys):
    """Predictions in a file, by `predict`, in Python and by transformers agree."""
    rng, rows = random.Random(0), []
    for _ in range(400):
        choices, label = dict(zip("abc", rng.sample(COLORS, 3))), rng.randrange(3)
        rows.append({"text": f"the {choices['abc'[label]]} one", **choices, "label": label})
    write_json("train.jsonl", rows[:300])
    write_json("test.jsonl", rows[300:])
    which = {"name": "which", "kind": "choices", "train": "train.jsonl", "test": "test.jsonl", "choices": [*"abc"]}
    results = run_own(fresh_checkpoint, which, "max_length=16", epochs=4, lr=1e-3, bs=16)
    written = pd.read_csv("test_outputs/g/which.tsv", sep="\t", index_col="index", dtype=str)["prediction"]
    found = load("g_which_0.pth").predict([tuple(row[name] for name in ("text", *"abc")) for row in rows[300:]])
    assert written.tolist() == found.labels and found.probabilities.sum(1) == pytest.approx(1.)
    n_correct = sum(label == str(row["label"]) for label, row in zip(found.labels, rows[300:]))
    assert results.scores.loc["which (test)", "best"] == pytest.approx(n_correct) and n_correct > 50  # of 100
    capsys.readouterr()
    predict("g_which_0.pth", "test.jsonl")
    header, *lines = capsys.readouterr().out.splitlines()
    assert header.split("\t")[:5] == ["label", "P(0)", "P(1)", "P(2)", "text"]
    assert [line.split("\t")[0] for line in lines] == found.labels
    export_hf("g_which_0.pth", "exported")
    exported = AutoModelForMultipleChoice.from_pretrained("exported/classifier")
    tokenizer = AutoTokenizer.from_pretrained("exported/classifier")
    inputs = tokenizer([rows[300]["text"]] * 3, [rows[300][name] for name in "abc"], return_tensors="pt", padding=True)
    with torch.no_grad():
        logits = exported(**{name: tensor[None] for name, tensor in inputs.items()}).logits
    torch.testing.assert_close(logits.softmax(-1)[0], torch.tensor(found.probabilities[0]), atol=1e-4, rtol=1e-3)
