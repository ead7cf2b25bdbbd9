"""Labels of custom tasks: dev sets, spellings, what an unlabelled test file is, and weights."""
import json
from collections import Counter
from pathlib import Path

import datasets
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from custom_tasks import has, labelled, loaded, tagged, write

pytestmark = pytest.mark.usefixtures("empty_folder")


def test_the_dev_set_has_rows_of_each_class():
    """The only row of a class is for training."""
    labelled(["rare" if i % 40 == 0 else "usual" for i in range(200)] + ["single"])
    splits = loaded().splits
    train, validation = (Counter(splits[split]["label"]) for split in ("train", "validation"))
    assert train == {0: 4, 1: 1, 2: 175} and validation == {0: 1, 2: 20}


@pytest.mark.parametrize("dev, found", [(.1, "2 of 2"), ("dev.csv", "3 of 4")])
def test_texts_that_are_also_in_the_training_set_are_counted(dev, found):
    write("a.csv", "text,label\n" + "same,a\nsame,b\n" * 10)
    write("dev.csv", "text,label\nsame,a\nother,a\nsame,b\nsame,b\n")
    assert has(loaded("a.csv", dev=dev), f"{found} texts in validation")


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
    ("contract,tax\none,1,1\ntwo,0,1\nthree,0, 0\n", {"label": COLUMNS}),
    ("contract,tax\none,TRUE,True\ntwo,FALSE,true\nthree,False,0\n", {"label": COLUMNS}),
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


@pytest.mark.parametrize("content", ["text,label\none,\ntwo,\n", "text,label\none,-1\ntwo,-1\n", "text\none\ntwo\n"])
def test_a_test_file_without_labels_is_only_predicted(content):
    labelled("xy" * 5)
    data = loaded(test=write("b.csv", content))
    assert data.task.labels == ("x", "y") and data.splits["test"]["label"][:] == [-1, -1]


# Spellings

@pytest.mark.parametrize("labels, names, ids", [
    (["0", "0.0", "1"], "01", [0, 0, 1]), (["0 ", " 0", "1\u00a0"], "01", [0, 0, 1]), ([0, "0.0", 1.], "01", [0, 0, 1]),
    ([" x", "x", "y\t"], "xy", [0, 0, 1]), ([["x ", "y"], [" x"], ["y "]], "xy", [[0, 1], [0], [1]]),
    (["01", "1", "01"], ["01", "1"], [0, 1, 0])])
def test_blanks_at_the_ends_and_a_fraction_of_zero_do_not_make_another_label(labels, names, ids):
    """Leading zeros do: they are those of codes."""
    labelled(labels * 10)
    kind = "multilabel" if isinstance(labels[0], list) else None
    data = loaded(dev="a.jsonl", kind=kind)
    assert data.task.labels == tuple(names)
    assert data.splits["validation"]["label"][:3] == ids


@pytest.mark.parametrize("labels", [["3.0", "3.1", "3.10"], ["1.0", "x", "1"]])
def test_labels_that_are_not_all_whole_numbers_keep_their_spelling(labels):
    labelled(labels * 10)
    assert loaded(kind="classification").task.labels == tuple(sorted(labels))


def test_a_test_file_may_spell_whole_numbers_with_a_fraction_of_zero():
    """As pandas does if a label is missing in a file."""
    write("a.csv", "text,label\n" + "one,1\ntwo,2\n" * 10)
    data = loaded("a.csv", test=write("b.csv", "text,label\none,2.0\ntwo,1.0\n"))
    assert data.splits["test"]["label"][:] == [1, 0]


def test_tags_in_lists_have_no_blanks_at_their_ends():
    write("a.jsonl", json.dumps({"text": ["Anna", "left"], "label": ["B-PER ", " O"]}) + "\n")
    write("b.jsonl", json.dumps({"text": ["Anna", "left"], "label": ["B-PER", "O"]}) + "\n")
    data = loaded(kind="tagging", dev="b.jsonl", test="a.jsonl")
    assert data.task.labels == ("B-PER", "O") and data.splits["test"]["label"][:] == [[0, 1]]


CLASSES = datasets.ClassLabel(names=["O", "B-PER"])


@pytest.mark.parametrize("kind, feature, labels, found", [
    (None, CLASSES, [1, 0], [0, 1]), ("tagging", datasets.List(CLASSES), [[1, 0], [0, 0]], [[0, 1], [1, 1]]),
    ("spans", [{"start": datasets.Value("int64"), "end": datasets.Value("int64"), "label": CLASSES}],
     [[{"start": 0, "end": 4, "label": 1}], []], [[0, 1], [1, 1]])])
def test_classes_have_the_names_that_datasets_stores_in_a_parquet_file(kind, feature, labels, found):
    features = datasets.Features({"text": datasets.Value("string"), "label": feature})
    rows = {"text": ["Anna left", "who left"] * 10, "label": labels * 10}
    datasets.Dataset.from_dict(rows, features=features).to_parquet("a.parquet")
    data = loaded("a.parquet", dev="a.parquet", kind=kind)
    assert set(data.task.labels) <= {"O", "B-PER", "B-B-PER"} and data.splits["train"]["label"][:2] == found


def test_minus_one_is_no_class_in_a_parquet_file_that_names_its_classes():
    features = datasets.Features({"text": datasets.Value("string"), "label": CLASSES})
    rows = {"text": ["one", "two"] * 60, "label": [-1, *[0, 1] * 59, 0]}
    datasets.Dataset.from_dict(rows, features=features).to_parquet("a.parquet")
    datasets.Dataset.from_dict(rows | {"label": [-1] * 120}, features=features).to_parquet("b.parquet")
    data = loaded("a.parquet", dev="a.parquet", test="b.parquet", kind="classification")
    assert set(data.task.labels) == {"O", "B-PER"} and data.test_task is None
    assert len(data.splits["train"]) == 119 and has(data, "skipped rows", "1 of 120 rows", "row 0")


# Test files with and without labels

@pytest.mark.parametrize("labels, of_test, is_labelled", [
    ("xy", [-1, -1], False), ([-1, 1], [-1, -1], True), (["-1", "1"], ["-1.0", "-1"], True),
    ([-1, .5], [-1, -1.], True), ([0, .5], [-1., -1.], False), ("xy", ["", None], False),
    ([["x"], ["y"]], [[], []], True), ([["x"], ["y"]], [[-1], [-1]], False), ([["x"], ["y"]], ["", ""], False)])
def test_minus_one_is_no_label_unless_the_training_file_has_it(labels, of_test, is_labelled):
    labelled(of_test)
    Path("a.jsonl").rename("test.jsonl")
    labelled(list(labels) * 10)
    data = loaded(test="test.jsonl", kind="multilabel" if isinstance(labels[0], list) else None)
    assert (data.test_task is not None) == is_labelled
    assert has(data, "test.jsonl are -1") == ("-1" in str(of_test))


NO_SPAN = '{"text": "Anna left", "label": []}\n' * 2


@pytest.mark.parametrize("split", ["dev", "test"])
def test_dev_and_test_files_may_have_no_span(split):
    write("a.jsonl", '{"text": "Anna left", "label": [[0, 4, "PER"]]}\n' * 20)
    data = loaded(kind="spans", **{"dev": "a.jsonl", split: write("b.jsonl", NO_SPAN)})
    rows = data.splits["validation" if split == "dev" else "test"]
    assert rows["label"][:] == [[1, 1]] * 2 and (data.test_task is not None) == (split == "test")


@pytest.mark.parametrize("columns", ["x,y\none,0,0\ntwo,0,0\n", "x,y\none,,\ntwo,,\n"])
def test_a_test_file_without_any_of_several_labels_is_labelled_unless_its_cells_are_empty(columns):
    write("a.csv", "text,x,y\n" + "one,1,0\ntwo,0,1\n" * 10)
    data = loaded("a.csv", kind="multilabel", label=["x", "y"], test=write("b.csv", f"text,{columns}"))
    assert (data.test_task is not None) == ("0" in columns)


# Weights and scales

def test_balanced_weights_of_several_labels_are_negatives_by_positives():
    """A label of all rows counts as missing in one."""
    labelled([["often", "always"], ["often", "always"], ["often", "rare", "always"], ["other", "always"]] * 10)
    task = loaded(dev="a.jsonl", kind="multilabel", class_weights="balanced").task
    assert task.labels == ("always", "often", "other", "rare")
    assert task.class_weights == pytest.approx((1 / 40, 10 / 30, 30 / 10, 30 / 10))
    logits, targets = torch.randn(2, 4), torch.tensor([[1., 0, 0, 1], [1, 1, 0, 0]])
    losses = F.binary_cross_entropy_with_logits(logits, targets, reduction="none")
    weights = torch.where(targets == 1, torch.tensor(task.class_weights), 1.)
    torch.testing.assert_close(task.head.loss()(logits, targets), (losses * weights).mean())


def test_weights_and_scales_follow_from_the_training_rows_without_the_dev_share():
    labelled(["rare"] * 5 + ["usual"] * 15)
    data = loaded(dev=.4, class_weights="balanced")
    counts = Counter(data.splits["train"]["label"])
    assert counts == {0: 3, 1: 9} and data.task.class_weights == pytest.approx((2., 2 / 3))
    labelled([i ** 2 + .5 for i in range(40)])
    data = loaded(dev=.4, test="a.jsonl")
    scores = np.array(data.splits["train"]["label"])
    assert len(scores) == 24 and data.task.scale == data.test_task.scale == pytest.approx((scores.mean(), scores.std()))


def test_a_tag_that_only_the_dev_file_has_counts_as_one_word_in_balanced_weights():
    task = loaded(tagged("A A A B"), dev=tagged("A C", "dev.conll"), class_weights="balanced").task
    assert task.class_weights == pytest.approx((9 / 18, 9 / 6, 9 / 3))  # words / (labels * words of it)
