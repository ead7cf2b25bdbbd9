"""Predictions of custom tasks: from tables in Python, for test files with empty rows, and with a threshold."""
import random

import datasets
import numpy as np
import pandas as pd
import pytest
import torch
from custom_tasks import predictions, write_csv, write_rows
from sklearn.metrics import f1_score
from tiny_finetuning import run_own

import finetune
from _utils.commands.predict import predict
from _utils.custom.multilabel import MultiLabel
from _utils.errors import UserError
from _utils.finetuning.runs import Runs

WORDS = "the generator replaces some words of text and discriminator finds every replaced word".split()
OWN = {"name": "mine", "train": "train.csv"}
TEXTS = [" ".join(random.Random(i).choices(WORDS, k=3 + i % 5)) for i in range(40)]


@pytest.fixture
def start(fresh_checkpoint, empty_folder):
    """`start(task, "key=value", ..., epochs=1)` finetunes one custom task; the Results."""
    return lambda task, *overrides, epochs=1: run_own(fresh_checkpoint, task, *overrides, epochs=epochs)


# Tables in Python

def test_predict_reads_the_columns_of_tables_by_name(start):
    """Also of one row. Names are those of the training file, or `text`."""
    write_csv("train.csv", ("review", "id", "label"), [(text, i, "ab"[i % 2]) for i, text in enumerate(TEXTS)])
    start(OWN | {"text": "review"})
    model, table = finetune.load("g_mine_0.pth"), pd.read_csv("train.csv")[["id", "label", "review"]]
    labels, probabilities = model.predict(TEXTS)
    for texts in (table, table.rename(columns={"review": "text"}), table["review"], table.to_dict("list"),
                  table.to_dict("records"), datasets.Dataset.from_pandas(table), iter(TEXTS)):
        found = model.predict(texts)
        assert found.labels == labels and np.array_equal(found.probabilities, probabilities)
    for row in (TEXTS[3], table.iloc[3], {"review": TEXTS[3]}):
        assert np.allclose(model.predict(row).probabilities, probabilities[3:4], atol=1e-5)
    for texts, message in (([], "empty"), (table[:0], "empty"), ({}, "empty"), (table[["id"]], "'review'.*id"),
                           ({"id": [1]}, "'review'.*id"), (5, "contains 5"), (None, "contains None"),
                           ({"review": ["a"], "id": [1, 2]}, "equal length"),
                           (pd.DataFrame({"review": ["a", None]}), "row 1: .*'review' contains")):
        with pytest.raises(UserError, match=message):
            model.predict(texts)


def test_each_row_of_a_table_has_a_line_of_predictions(start, capsys):
    """Also one without text, whose prediction is that of Python."""
    write_csv("train.csv", ("text", "label"), [(text, "ab"[i % 2]) for i, text in enumerate(TEXTS)])
    start(OWN)
    write_csv("new.csv", ("id", "text"), [(1, "some words"), (2, ""), (3, "the text")])
    capsys.readouterr()
    predict("g_mine_0.pth", "new.csv")
    _, *lines = [line.split("\t")[0] for line in capsys.readouterr().out.split("\n")]
    assert lines == [*finetune.load("g_mine_0.pth").predict(["some words", "", "the text"]).labels, ""]


@pytest.mark.parametrize("kind", ["classification", "tagging"])
def test_predictions_have_the_columns_of_their_header(start, capsys, kind):
    """Although names of columns, labels, texts and words have tabs and line breaks, as from spreadsheets."""
    labels = {"classification": ["New\nYork", "a\tb"], "tagging": [["O", "a\tb"], ["a\tb", "c\nd"]]}[kind]
    text = {"classification": "a\r\nb\tc", "tagging": ["a\tb", "c\nd"]}[kind]
    write_rows("train.jsonl", [{"Your\ntext": text, "label": label} for label in labels * 20])
    start(OWN | {"train": "train.jsonl", "text": "Your\ntext", "kind": kind})
    capsys.readouterr()
    predict("g_mine_0.pth", "train.jsonl")
    lines = [line.count("\t") for line in capsys.readouterr().out.split("\n") if line]
    assert lines == ([3] * 41 if kind == "classification" else [2] * 80)


def test_a_table_with_a_word_in_each_row_has_the_predictions_of_its_sentences(start, capsys):
    rows = [(i, word, "ab"[j % 2]) for i, text in enumerate(TEXTS) for j, word in enumerate(text.split())]
    write_csv("train.csv", ("n", "word", "tag"), rows)
    start(OWN | {"text": "word", "label": "tag", "sentence": "n"})
    model, table = finetune.load("g_mine_0.pth"), pd.read_csv("train.csv")
    expected = model.predict(TEXTS)
    assert model.predict(table).labels == model.predict(table[["n", "word"]]).labels == expected.labels
    capsys.readouterr()
    predict("g_mine_0.pth", "train.csv")
    lines = [line.split("\t") for line in capsys.readouterr().out.splitlines() if line]
    assert [line[:2] for line in lines] == [
        [word, tag] for text, tags in zip(TEXTS, expected.labels) for word, tag in zip(text.split(), tags)]
    assert [float(p) for *_, p in lines] == pytest.approx(expected.probabilities.max(-1), abs=1e-4)
    assert "'n'" not in capsys.readouterr().err
    for alone in (table[["word"]], table.rename(columns={"n": "N"})):  # each word is a sentence
        model.predict(alone)
        assert "the column 'n'" in capsys.readouterr().err


def test_sentences_of_predictions_do_not_cross_groups(start):
    """As those of the training."""
    write_csv("train.csv", ("doc", "n", "word", "tag"), [(i // 3, 1, "word", "ab"[i % 2]) for i in range(60)])
    start(OWN | {"text": "word", "label": "tag", "sentence": "n", "groups": "doc"})
    labels = finetune.load("g_mine_0.pth").predict(pd.read_csv("train.csv")).labels
    assert [len(tags) for tags in labels] == [3] * 20


def test_outputs_that_are_not_finite_are_no_predictions(start):
    """The first label would be predicted."""
    write_csv("train.csv", ("text", "label"), [(text, "ab"[i % 2]) for i, text in enumerate(TEXTS)])
    start(OWN)
    model = finetune.load("g_mine_0.pth")
    torch.nn.init.constant_(model.network.classifier.bias, torch.nan)
    with pytest.raises(UserError, match="g_mine_0.pth"):
        model.predict(TEXTS)


def test_predict_reads_pairs_by_name(start):
    rows = [(first, second, "ab"[i % 2]) for i, (first, second) in enumerate(zip(TEXTS, TEXTS[::-1]))]
    write_csv("train.csv", ("q", "a", "label"), rows)
    start(OWN | {"text": ["q", "a"]})
    model, table = finetune.load("g_mine_0.pth"), pd.read_csv("train.csv")
    expected = model.predict(list(zip(table["q"], table["a"]))).probabilities
    renamed = table.set_axis(["text1", "text2", "label"], axis=1)
    for texts in (table[["label", "a", "q"]], table.to_dict("records"), renamed):
        assert np.array_equal(model.predict(texts).probabilities, expected)
    for texts in (table[["q"]], ["a text", "another"], [1, 2]):
        with pytest.raises(UserError, match="'a'|2 texts"):
            model.predict(texts)


# Test files with labels and empty rows

ROWS = {  # kind: (training rows, rows without a text) of the columns text and label, or of those in COLUMNS
    "classification": ([("a", "x"), ("b", "y")], [("", "x"), (" ", "y")]),
    "regression": ([("a", 1.5), ("b", 2.)], [("", 1.), (" ", 2.5)]),
    "multilabel": ([("a", ["x"]), ("b", ["y"])], [("", ["x"]), (" ", [])]),
    "tagging": ([(["a", "b"], ["B-X", "O"]), (["b"], ["O"])], [([], []), ("", "")]),
    "spans": ([("Anna left", [[0, 4, "PER"]]), ("who left", [])], [("", []), (" ", [])]),
    "choices": ([("which", "one", "two", 0), ("which", "one", "two", 1)],
                [("", "one", "two", 0), ("which", "", "", 1), ("", "", "", 1)]),
    "questions": ([("Anna left Oslo.", "Who left?", [{"text": "Anna", "answer_start": 0}])],
                  [("", "Who?", []), ("Anna left.", "", [{"text": "Anna", "answer_start": 0}]), (" ", "Who?", [])]),
}
COLUMNS = {"choices": ("text", "a", "b", "label"), "questions": ("context", "question", "answers")}


@pytest.mark.parametrize("kind", ROWS)
def test_a_labelled_test_file_may_have_rows_without_a_text(start, kind):
    """At the beginning, inside and at the end."""
    (rows, empty), columns = ROWS[kind], COLUMNS.get(kind, ("text", "label"))
    for name, of_split in ("train", rows * 20), ("test", [*empty, *rows, *empty, *rows, *empty]):
        write_rows(f"{name}.jsonl", [{"id": str(i), **dict(zip(columns, row))} for i, row in enumerate(of_split)])
    given = {"questions": {}, "choices": {"text": "text", "choices": ["a", "b"]}}.get(kind, {"text": "text"})
    start(OWN | {"train": "train.jsonl", "dev": "train.jsonl", "test": "test.jsonl", "kind": kind, **given})
    [row] = Runs()
    metric = next(iter(row.scores["test"]))
    assert row.scores["test"].keys() == row.scores["validation"].keys() and metric in row.baselines["test"]


# The threshold of several labels

OUTPUTS = np.array([[.3, .1, .2], [.28, .6, .1], [.05, .35, .2], [.1, .1, .31]])
LABELS = [[0], [0, 1], [1], [2]]


@pytest.mark.parametrize("threshold, applied, f1", [
    (.5, .5, 1 / 3), (.25, .25, 1.), ("best", .28, 1.), (.02, .02, 10 / 17)])
def test_a_label_applies_from_the_threshold(threshold, applied, f1):
    """The best one of a dev set is in hundredths, and the nearest to 0.5 of equal ones."""
    task = MultiLabel("t", "t", ("text",), tuple("abc"), metrics=("micro_f1",), threshold=threshold)
    evaluation = task.scores.evaluate(OUTPUTS, LABELS)
    assert evaluation["thresholds"] == applied and evaluation["scores"]["micro_f1"] == pytest.approx(f1)
    assert f1 == pytest.approx(f1_score(task.scores.targets(LABELS), OUTPUTS >= applied, average="micro"))


def test_the_constant_prediction_is_the_most_frequent_label_if_none_applies_to_half_of_the_texts():
    task = MultiLabel("t", "t", ("text",), tuple("abc"), metrics=("micro_f1",))
    baselines = task.scores.evaluate(np.zeros((5, 3)), [[0], [0], [1], [2], []])["baselines"]
    assert baselines["micro_f1"] == pytest.approx(4 / 9)


@pytest.mark.parametrize("threshold", ["best", .2])
def test_the_threshold_of_a_run_is_stored_reported_and_used_everywhere(start, capsys, threshold):
    found = lambda text: [label for label in ("generator", "word", "text") if label in text.split()]
    for name in ("train", "test"):
        write_rows(f"{name}.jsonl", [{"text": text, "label": found(text)} for text in TEXTS * 3])
    task = OWN | {"train": "train.jsonl", "dev": "train.jsonl", "test": "test.jsonl", "kind": "multilabel",
                  "threshold": threshold}
    start(task, "end=2", epochs=3)
    printed, applied = capsys.readouterr().out, {}
    for row in Runs():
        model = finetune.load(f"g_mine_{row.run}.pth")
        applied[row.run] = model.task.scores.threshold
        labels, probabilities = model.predict(TEXTS)
        applies = probabilities >= applied[row.run]
        assert [np.array(model.labels)[of_text].tolist() for of_text in applies] == labels
        assert f"threshold {applied[row.run]:g}" in printed
        assert row.scores["test"] == pytest.approx(row.scores["validation"])  # of the same rows
    assert len(applied) == 2 and (threshold == "best" or set(applied.values()) == {.2})
    start(task, "end=2", "do_finetune=False", "th_run=[0, 1]", epochs=3)  # an ensemble, with the mean of the thresholds
    models = [finetune.load(f"g_mine_{run}.pth") for run in (0, 1)]
    mean = sum(model.predict(TEXTS).probabilities for model in models) / 2 >= sum(applied.values()) / 2
    assert predictions()[:40].tolist() == ["|".join(np.array(models[0].labels)[row]) for row in mean]
