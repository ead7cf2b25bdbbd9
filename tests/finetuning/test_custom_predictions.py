"""Predictions of custom tasks: from tables in Python, for test files with empty rows, and with a threshold."""
import json
import random

import datasets
import numpy as np
import pandas as pd
import pytest
from csv_files import write_csv
from custom_tasks import write
from sklearn.metrics import f1_score
from tiny_finetuning import run_own

import finetune
from _utils.custom.multilabel import MultiLabel
from _utils.errors import UserError
from _utils.finetuning.runs import Runs

WORDS = "the generator replaces some words of text and discriminator finds every replaced word".split()
OWN = {"name": "mine", "train": "train.csv"}
TEXTS = [" ".join(random.Random(i).choices(WORDS, k=3 + i % 5)) for i in range(40)]


@pytest.fixture
def start(fresh_checkpoint, tmp_path, monkeypatch):
    """`start(task, "key=value", ..., epochs=1)` finetunes one custom task; the Results."""
    monkeypatch.chdir(tmp_path)
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
    for texts, message in (([], "empty"), (table[["id"]], "'review'.*id"), (None, "contains None"),
                           (pd.DataFrame({"review": ["a", None]}), "row 1: .*'review' contains")):
        with pytest.raises(UserError, match=message):
            model.predict(texts)


# Test files with labels and empty rows

ROWS = {  # kind: (training rows, rows without a text)
    "classification": ([("a", "x"), ("b", "y")], [("", "x"), (" ", "y")]),
    "regression": ([("a", 1.5), ("b", 2.)], [("", 1.), (" ", 2.5)]),
    "multilabel": ([("a", ["x"]), ("b", ["y"])], [("", ["x"]), (" ", [])]),
    "tagging": ([(["a", "b"], ["B-X", "O"]), (["b"], ["O"])], [([], []), ("", "")]),
    "spans": ([("Anna left", [[0, 4, "PER"]]), ("who left", [])], [("", []), (" ", [])]),
}


@pytest.mark.parametrize("kind", ROWS)
def test_a_labelled_test_file_may_have_rows_without_a_text(start, kind):
    """At the beginning, inside and at the end."""
    rows, empty = ROWS[kind]
    lines = lambda rows: "\n".join(json.dumps(dict(zip(("text", "label"), row))) for row in rows)
    write("train.jsonl", lines(rows * 20))
    write("test.jsonl", lines([*empty, *rows, *empty, *rows, *empty]))
    start(OWN | {"train": "train.jsonl", "test": "test.jsonl", "kind": kind})
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


def test_the_threshold_of_a_run_is_stored_reported_and_used(start, capsys):
    found = lambda text: [label for label in ("generator", "word", "text") if label in text.split()]
    for name in ("train", "test"):
        write(f"{name}.jsonl", "\n".join(json.dumps({"text": text, "label": found(text)}) for text in TEXTS * 3))
    start(OWN | {"train": "train.jsonl", "dev": "train.jsonl", "test": "test.jsonl", "kind": "multilabel",
                 "threshold": "best"}, epochs=3)
    [row], model = Runs(), finetune.load("g_mine_0.pth")
    threshold, (labels, probabilities) = model.task.scores.threshold, model.predict(TEXTS)
    assert [np.array(model.labels)[of_text].tolist() for of_text in probabilities >= threshold] == labels
    assert f"threshold {threshold:g}" in capsys.readouterr().out
    assert row.scores["test"] == pytest.approx(row.scores["validation"])  # of the same rows
    written = pd.read_csv("test_outputs/g/mine.tsv", sep="\t", index_col="index", keep_default_na=False)["prediction"]
    assert written[:40].tolist() == list(map("|".join, labels))
