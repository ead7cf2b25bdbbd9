"""The baseline of TF-IDF and logistic regression beside a network, and its cost on large tables."""
import random

import datasets
import pytest
from custom_tasks import loaded, tagged, write_csv
from tiny_finetuning import run, run_own

from _utils.custom import word_baseline
from _utils.custom.task import Classification
from _utils.custom.word_baseline import word_scores
from _utils.finetuning.results import format_scores, report
from _utils.finetuning.runs import Runs
from _utils.tasks.glue import load_task
from _utils.tasks.settings import Settings

TOPICS = {"a": "red blue green".split(), "b": "one two three".split()}
OWN = {"name": "mine", "train": "train.csv", "dev": "dev.csv"}


def write_table(path, n, columns=("text",), seed=0):
    """Texts of random words, of which one shows the label."""
    rng, rows = random.Random(seed), []
    for i in range(n):
        label = "ab"[i % 2]
        texts = [" ".join(rng.choices("the of a word text".split(), k=5)) for _ in columns]
        texts[-1] += f" {rng.choice(TOPICS[label])}"
        rows.append((*texts, label))
    write_csv(path, (*columns, "label"), rows)


@pytest.mark.parametrize("columns", [("text",), ("first", "second")])
def test_a_run_reports_the_baseline_on_its_dev_and_test_set(fresh_checkpoint, empty_folder, capsys, columns):
    """In its line, its record and the table. GLUE's tasks have none."""
    for seed, (name, n) in enumerate({"train.csv": 240, "dev.csv": 20, "test.csv": 20}.items()):
        write_table(name, n, columns, seed)
    results = run_own(fresh_checkpoint, OWN | {"test": "test.csv", "text": list(columns)}, epochs=1)
    printed, [record] = capsys.readouterr().out, Runs()
    assert record.words == {split: {"accuracy": 1., "macro_f1": 1.} for split in ("validation", "test")}
    assert results.scores["TF-IDF"].tolist() == [100., 100.] and "TF-IDF" in report(Runs())
    assert "(majority 50.00, TF-IDF 100.00)" in printed and "TF-IDF 100.00" in format_scores(record)


def test_tasks_of_glue_and_kinds_without_a_class_for_each_text_have_none(
        fresh_checkpoint, glue, empty_folder):
    run(fresh_checkpoint, "tasks=rte", f"glue_dir={glue}", "task_overrides={'rte': {'epochs': 1, 'rows': 32}}")
    [record] = Runs()
    assert not record.words and "TF-IDF" not in report(Runs())
    assert load_task("rte", glue).baseline is None and loaded(tagged("A B", "t.conll")).baseline is None


def evaluated(texts, labels, **fields):
    task = Classification("mine", "mine", ("text",), ("a", "b"), **fields)
    rows = datasets.Dataset.from_dict({"text": texts, "label": labels})
    return word_scores(task, {"train": rows, "validation": rows}, Settings(), ["validation"])


@pytest.mark.parametrize("texts, accuracy", [
    (["天気がいい", "電車が遅い"], 1.), (["อากาศดี", "รถช้า"], 1.), (["GOOD", "bad"], 1.), (["!", "?"], None),
    (["", ""], None)])
def test_texts_in_any_script(texts, accuracy):
    """In scripts without spaces each character is a word. Without words there is no baseline."""
    found = evaluated([f"{text}{'。' * (i % 3)}" for i in range(10) for text in texts], [0, 1] * 10)
    assert found == ({"validation": {"accuracy": accuracy}} if accuracy else {})


def test_one_class_has_no_baseline():
    assert evaluated(["good", "bad"], [0, 0]) == {}


def test_weights_of_the_classes_are_those_of_the_loss():
    """A word that 3 rows of 10 with a class have is enough if this class has a high weight."""
    texts, labels = ["maybe"] * 10, [0] * 7 + [1] * 3
    assert evaluated(texts, labels)["validation"]["accuracy"] == pytest.approx(.7)
    assert evaluated(texts, labels, class_weights=(1., 9.))["validation"]["accuracy"] == pytest.approx(.3)


def test_of_large_tables_it_reads_a_sample(monkeypatch):
    """With rows of both classes, although those of the second one are at the end."""
    monkeypatch.setattr(word_baseline, "MAX_ROWS", 20)
    found = evaluated(["good"] * 80 + ["bad"] * 20, [0] * 80 + [1] * 20)
    assert found == {"validation": {"accuracy": 1.}}
