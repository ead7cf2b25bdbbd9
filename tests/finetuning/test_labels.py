"""Labels of custom tasks: dev sets, spellings, what an unlabelled test file is, and weights."""
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from custom_tasks import has, labelled, loaded, write


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_the_dev_set_has_rows_of_each_class():
    """The only row of a class is for training."""
    labelled(["rare" if i % 40 == 0 else "usual" for i in range(200)] + ["single"])
    splits = loaded().splits
    train, validation = (Counter(splits[split]["label"]) for split in ("train", "validation"))
    assert train == {0: 4, 1: 1, 2: 175} and validation == {0: 1, 2: 20}


def test_texts_that_are_also_in_the_training_set_are_counted():
    write("a.csv", "text,label\n" + "same,a\nsame,b\n" * 10)
    write("dev.csv", "text,label\nsame,a\nother,a\nsame,b\nsame,b\n")
    assert has(loaded("a.csv", dev="dev.csv"), "3 of 4 texts in validation")


def test_the_rows_of_a_group_stay_in_one_split():
    """The classes keep their shares."""
    rows = "".join(f"text {i},{'xyy'[i % 3]},patient {i // 10}\n" for i in range(200))
    write("a.csv", "text,label,patient\n" + rows)
    splits = loaded("a.csv", groups="patient", dev=.2).splits
    patients = {split: set(rows["group"]) for split, rows in splits.items()}
    assert len(patients["train"]) == 16 and len(patients["validation"]) == 4
    assert not patients["train"] & patients["validation"]
    assert abs(Counter(splits["validation"]["label"])[0] - 67 / 5) < 2


COLUMNS = ["contract", "tax"]


@pytest.mark.parametrize("rows, given", [
    ("label\none,tax| contract\ntwo,tax\nthree,\n", {}),
    ("label\none,tax;contract\ntwo,tax\nthree,\n", {"separator": ";"}),
    ("label\none,\"['contract', 'tax']\"\ntwo,['tax']\nthree,[]\n", {}),  # pandas' lists
    ('label\none,"[""contract"", ""tax""]"\ntwo,"[""tax""]"\nthree,[]\n', {}),
    ("label\none,['contract' 'tax']\ntwo,['tax']\nthree,[]\n", {}),  # its arrays
    ("contract,tax\none,1.0,1.\ntwo,0.0,1\nthree,, 0\n", {"label": COLUMNS}),
    ("contract,tax\none,TRUE,True\ntwo,FALSE,true\nthree,False,\n", {"label": COLUMNS}),
])
def test_several_labels_per_text(rows, given):
    """Strings with a separator, lists, or a column of 1 and 0 for each label."""
    header, _, rows = rows.partition("\n")
    write("a.csv", f"text,{header}\n" + rows * 10)
    data = loaded("a.csv", test="a.csv", kind="multilabel", **given)
    assert data.task.labels == ("contract", "tax")
    assert data.task.metrics == ("micro_f1", "macro_f1")
    assert list(map(sorted, data.splits["test"]["label"][:3])) == [[0, 1], [1], []]


@pytest.mark.parametrize("positive, f1", [("ham", 2 / 3), (None, .8)])
def test_f1_is_that_of_the_positive_label(positive, f1):
    labelled(["ham", "spam"] * 5)
    scores = loaded(metrics="f1", positive=positive).task.scores.score(torch.eye(2)[[0, 1, 1, 1]], [0, 0, 1, 1])
    assert scores["f1"] == pytest.approx(f1)


# Spellings

@pytest.mark.parametrize("labels, names, ids", [
    (["0", "0.0", "1"], "01", [0, 0, 1]), (["0 ", " 0", "1\u00a0"], "01", [0, 0, 1]), ([0, "0.0", 1.], "01", [0, 0, 1]),
    ([" x", "x", "y\t"], "xy", [0, 0, 1]), ([["x ", "y"], [" x"], ["y "]], "xy", [[0, 1], [0], [1]]),
    (["01", "1", "01"], ["01", "1"], [0, 1, 0])])
def test_blanks_at_the_ends_and_a_fraction_of_zero_do_not_make_another_label(labels, names, ids):
    """Leading zeros do: they are those of codes."""
    labelled(labels * 10)
    kind = "multilabel" if isinstance(labels[0], list) else None
    data = loaded(dev="a.jsonl", kind=kind, class_weights={names[1]: 5})
    assert data.task.labels == tuple(names) and data.task.class_weights == (1., 5.)
    assert data.splits["validation"]["label"][:3] == ids


def test_a_test_file_may_spell_whole_numbers_with_a_fraction_of_zero():
    """As pandas does if a label is missing in a file."""
    write("a.csv", "text,label\n" + "one,1\ntwo,2\n" * 10)
    data = loaded("a.csv", test=write("b.csv", "text,label\none,2.0\ntwo,1.0\n"))
    assert data.splits["test"]["label"][:] == [1, 0]


def test_scores_with_a_decimal_comma_are_read_if_the_kind_is_regression():
    rows = "text;label\n" + "one;1,5\ntwo;-2\nthree;,25\n" * 10
    data = loaded(write("a.csv", rows), dev="a.csv", test="a.csv", kind="regression")
    assert data.splits["test"]["label"][:3] == data.splits["train"]["label"][:3] == [1.5, -2, .25]
    assert has(data, "'1,5'", "decimal comma")


# Test files with and without labels

@pytest.mark.parametrize("labels, of_test, is_labelled", [
    ("xy", [-1, -1], False), ([-1, 1], [-1, -1], True), ([-1, .5], [-1, -1.], True), ("xy", ["", None], False),
    ([["x"], ["y"]], [[], []], True), ([["x"], ["y"]], [[-1], [-1]], False)])
def test_minus_one_is_no_label_unless_the_training_file_has_it(labels, of_test, is_labelled):
    labelled(of_test)
    Path("a.jsonl").rename("test.jsonl")
    labelled(list(labels) * 10)
    data = loaded(test="test.jsonl", kind="multilabel" if isinstance(labels[0], list) else None)
    assert (data.test_task is not None) == is_labelled
    assert has(data, "test.jsonl are -1") == ("-1" in str(of_test))


# Weights and scales


def test_balanced_weights_of_several_labels_are_negatives_by_positives():
    """A label of all rows counts as missing in one."""
    labelled([["often", "always"], ["often", "always"], ["often", "rare", "always"], ["other", "always"]] * 10)
    task = loaded(dev="a.jsonl", kind="multilabel", class_weights="balanced").task
    assert dict(zip(task.labels, task.class_weights)) == pytest.approx(
        {"always": 1 / 40, "often": 10 / 30, "other": 30 / 10, "rare": 30 / 10})
    assert task.head.loss().pos_weight.tolist() == pytest.approx(task.class_weights)


def test_weights_and_scales_follow_from_the_training_rows_without_the_dev_share():
    labelled(["rare"] * 5 + ["usual"] * 15)
    data = loaded(dev=.4, class_weights="balanced")
    counts = Counter(data.splits["train"]["label"])
    assert counts == {0: 3, 1: 9} and data.task.class_weights == pytest.approx((2., 2 / 3))
    labelled([i ** 2 + .5 for i in range(40)])
    data = loaded(dev=.4, test="a.jsonl")
    scores = np.array(data.splits["train"]["label"])
    assert len(scores) == 24 and data.task.scale == data.test_task.scale == pytest.approx((scores.mean(), scores.std()))
