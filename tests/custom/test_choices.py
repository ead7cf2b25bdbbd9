"""Multiple choice: files, encoded rows, and a run from a file to predictions."""
import random

import pytest
from custom_tasks import has, loaded, predictions, write_csv, write_rows
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


@pytest.mark.parametrize("labels, first, ids", [
    ("012", None, [0, 1, 2]), ("01", None, [0, 1]), ("12", 0, [1, 2]), ("12", 1, [0, 1]), ("13", 1, [0, 2]),
    ("ABC", "A", [0, 1, 2]), ("ca", "a", [2, 0]), (["1.0", "2.0", "3.0"], 1, [0, 1, 2])])
def test_a_label_is_a_position_from_0_or_counts_from_the_first_choice(labels, first, ids):
    write_table("train.csv", labels)
    data = which(dev="train.csv", choices=["a", "b", "c"], first_choice=first)
    assert data.splits["train"]["label"][:len(ids)] == ids


@pytest.mark.parametrize("labels", ["12", "123", "ABC"])
def test_labels_without_a_0_need_the_first_choice(labels):
    """1 and 2 of three choices may be positions from 0 or from 1."""
    write_table("train.csv", labels)
    with pytest.raises(UserError, match="'first_choice': 1"):
        which(dev="train.csv", choices=["a", "b", "c"])


def test_a_wrong_label_among_positions_is_skipped():
    write_table("train.csv", [*"012" * 45, "first"], n=136)
    assert has(which(dev=.2, choices=["a", "b", "c"]), "1 of 136 rows", "'first'")


@pytest.mark.parametrize("given, message", [
    ({}, "'choices'"), ({"choices": ["a", "d"]}, "'d'"), ({"choices": "a"}, "columns"),
    ({"choices": ["a", "b", "c"], "metrics": "f1"}, "metrics='f1'"),
    ({"choices": ["a", "b"]}, "0, 1")])
def test_what_does_not_fit_is_an_error(given, message):
    write_table("train.csv", "012")
    with pytest.raises(UserError, match=message):
        which(**{"text": "text", **given})


def test_each_choice_is_a_pair_with_the_text_and_the_second_text_begins_it(small_tokenizer):
    """Too long texts lose their ends."""
    rows = [("a small network", "it", *ENDINGS, "0"), ("the text", "they", "the network", "a text " * 30, "words", "2")]
    write_csv("train.csv", ("context", "begin", *"abc", "label"), rows * 5)
    data = which(dev="train.csv", text=["context", "begin"], choices=["a", "b", "c"])
    settings = Settings(max_length=24)
    encoded = data.task.inputs.encode(data.splits["train"], small_tokenizer, settings, finetune.SentencePredictor)
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
    found = load("g_which_0.pth").predict([tuple(row[name] for name in ("text", *"abc")) for row in test])
    assert predictions("which").astype(str).tolist() == found.labels and found.probabilities.sum(1) == pytest.approx(1.)
    n_correct = sum(label == str(row["label"]) for label, row in zip(found.labels, test))
    assert results.scores.loc["which (test)", "best"] == pytest.approx(100 * n_correct / 60) and n_correct > 30
    assert "window_stride" in capsys.readouterr().out
    predict("g_which_0.pth", "test.jsonl")
    header, *lines = capsys.readouterr().out.splitlines()
    assert header.split("\t")[:5] == ["label", "P(0)", "P(1)", "P(2)", "text"]
    assert [line.split("\t")[0] for line in lines] == found.labels
