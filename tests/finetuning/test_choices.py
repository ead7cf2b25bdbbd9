"""Multiple choice: files, encoded rows, and a run from a file to predictions."""
import random

import pandas as pd
import pytest
from csv_files import write_csv
from custom_tasks import has, loaded, write_rows
from tiny_finetuning import run_own

import finetune
from _utils.commands.predict import predict
from _utils.errors import UserError
from _utils.tasks.settings import Settings
from finetune import load

pytestmark = pytest.mark.usefixtures("empty_folder")

COLORS = "red green blue yellow black white".split()
ENDINGS = ["the first one", "the second one", "another one"]


def which(**given):
    return loaded("train.csv", **{"kind": "choices", **given})


def write_table(path, labels, n=30):
    write_csv(path, ("text", *"abc", "label"), [(f"text {i}", *ENDINGS, labels[i % len(labels)]) for i in range(n)])


@pytest.mark.parametrize("labels, names, ids", [
    ("012", "012", [0, 1, 2]), ("01", "012", [0, 1]), ("123", "123", [0, 1, 2]), ("13", "123", [0, 2]),
    ("ABC", "ABC", [0, 1, 2]), ("ca", "abc", [2, 0]), (["1.0", "2.0", "3.0"], "123", [0, 1, 2])])
def test_a_label_is_a_position_or_a_letter(labels, names, ids):
    write_table("train.csv", labels)
    data = which(dev="train.csv", choices=["a", "b", "c"])
    assert data.task.labels == tuple(names) and data.splits["train"]["label"][:len(ids)] == ids


def test_ambiguous_positions_are_asked_for():
    """The key first_choice says which they are. The dev file may decide, too."""
    write_table("train.csv", "12")
    choices = {"dev": "train.csv", "choices": ["a", "b", "c"]}
    with pytest.raises(UserError, match="'first_choice'.* 0 or 1"):
        which(**choices)
    for first, expected in ((0, [1, 2]), (1, [0, 1])):
        assert which(**choices, first_choice=first).splits["train"]["label"][:2] == expected
    write_table("dev.csv", ["0"])
    assert which(**choices | {"dev": "dev.csv"}).splits["train"]["label"][:2] == [1, 2]


def test_a_wrong_label_among_positions_is_skipped():
    write_table("train.csv", [*"012" * 45, "first"], n=136)
    assert has(which(dev=.2, choices=["a", "b", "c"]), "1 of 136 rows", "'first'")


@pytest.mark.parametrize("given, message", [
    ({}, "'choices'"), ({"choices": ["a", "d"]}, "'d'"), ({"choices": "a"}, "columns"),
    ({"choices": ["a", "b", "c"], "metrics": "f1"}, "metrics='f1'"),
    ({"choices": ["a", "b"]}, "0, 1"), ({"choices": ["a", "b"], "kind": "tagging"}, "'choices'.*'kind'")])
def test_what_does_not_fit_is_an_error(given, message):
    write_table("train.csv", "012")
    with pytest.raises(UserError, match=message):
        which(**{"text": "text", **given})


def test_each_choice_is_a_pair_with_the_text_and_the_second_text_begins_it(small_tokenizer):
    """Too long texts lose their ends."""
    rows = [("a small network", "it", *ENDINGS, "0"), ("the text", "they", "the network", "a text " * 30, "words", "2")]
    write_csv("train.csv", ("context", "begin", *"abc", "label"), rows * 5)
    data = which(dev="train.csv", text=["context", "begin"], choices=["a", "b", "c"])
    encoded = data.task.reading.encode(data.splits["train"], small_tokenizer, Settings(max_length=24), finetune.encode)
    ids, mask, types, labels = encoded.batch([1, 0])
    assert ids.shape == mask.shape == types.shape == (6, 24) and labels.tolist() == [2, 0] and len(encoded) == 10
    assert small_tokenizer.decode(ids[3][mask[3] == 1]) == "[CLS] a small network [SEP] it the first one [SEP]"
    assert small_tokenizer.decode(ids[2][types[2] == 1]) == "they words [SEP]"


def test_choices_are_learned_from_a_file_and_predicted(fresh_checkpoint, capsys):
    """Predictions in a file, by `predict` and in Python agree."""
    rng, rows = random.Random(0), []
    for _ in range(360):
        choices, label = dict(zip("abc", rng.sample(COLORS, 3))), rng.randrange(3)
        rows.append({"text": f"the {choices['abc'[label]]} one", **choices, "label": label})
    train, test = rows[:300], rows[300:]
    write_rows("train.jsonl", train)
    write_rows("test.jsonl", test)
    task = {"name": "which", "kind": "choices", "train": "train.jsonl", "test": "test.jsonl", "choices": [*"abc"]}
    results = run_own(fresh_checkpoint, task, "max_length=16", "window_stride=8", epochs=4, lr=1e-3, bs=16)
    written = pd.read_csv("test_outputs/g/which.tsv", sep="\t", index_col="index", dtype=str)["prediction"]
    found = load("g_which_0.pth").predict([tuple(row[name] for name in ("text", *"abc")) for row in test])
    assert written.tolist() == found.labels and found.probabilities.sum(1) == pytest.approx(1.)
    n_correct = sum(label == str(row["label"]) for label, row in zip(found.labels, test))
    assert results.scores.loc["which (test)", "best"] == pytest.approx(100 * n_correct / 60) and n_correct > 30
    assert "no effect with this kind of task: window_stride" in capsys.readouterr().out
    predict("g_which_0.pth", "test.jsonl")
    header, *lines = capsys.readouterr().out.splitlines()
    assert header.split("\t")[:5] == ["label", "P(0)", "P(1)", "P(2)", "text"]
    assert [line.split("\t")[0] for line in lines] == found.labels
