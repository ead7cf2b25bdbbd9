"""Labels of custom tasks: dev sets, spellings, what an unlabelled test file is, and weights."""
import itertools
import json
from collections import Counter
from pathlib import Path

import datasets
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from custom_tasks import has, labelled, loaded, tagged, write, write_rows

from _utils.errors import UserError
from _utils.tasks.rows import default_epochs, training_rows

pytestmark = pytest.mark.usefixtures("empty_folder")


def test_the_dev_set_has_rows_of_each_class():
    """The only row of a class is for training."""
    labelled(["rare" if i % 40 == 0 else "usual" for i in range(200)] + ["single"])
    splits = loaded().splits
    train, validation = (Counter(splits[split]["label"]) for split in ("train", "validation"))
    assert train == {0: 4, 1: 1, 2: 175} and validation == {0: 1, 2: 20}


def test_the_dev_set_has_texts_with_each_of_several_labels():
    """In the shares of the rarest label of each text."""
    labelled([["usual", f"rare {i % 10}"] for i in range(100)])
    counts = Counter(itertools.chain.from_iterable(loaded(kind="multilabel", dev=.2).splits["validation"]["label"]))
    assert counts == dict.fromkeys(range(10), 2) | {10: 20}


@pytest.mark.parametrize("dev, found", [(.1, "2 of 2"), ("dev.csv", "3 of 4")])
def test_texts_that_are_also_in_the_training_set_are_counted(dev, found):
    write("a.csv", "text,label\n" + "same,a\nsame,b\n" * 10)
    write("dev.csv", "text,label\nsame,a\nother,a\nsame,b\nsame,b\n")
    assert has(loaded("a.csv", dev=dev), f"{found} texts in validation")


def test_texts_are_the_same_up_to_case_and_blanks_also_those_of_questions():
    write("a.csv", "text,label\n" + "One two.,a\nother,b\n" * 5)
    data = loaded("a.csv", dev=write("dev.csv", "text,label\none  two .,a\nonetwo.,b\nothers,b\n"))
    assert has(data, "1 of 3 texts in validation")
    row = {"context": "Alpha beta.", "question": "what?", "id": "q", "answers": {"text": ["beta"], "answer_start": [6]}}
    write_rows("q.jsonl", [row])
    assert has(loaded("q.jsonl", dev="q.jsonl", kind="questions"), "1 of 1 texts in validation")
    write_rows("other.jsonl", [row | {"question": "which?"}])
    assert not has(loaded("q.jsonl", dev="other.jsonl", kind="questions"), "in validation")


@pytest.mark.parametrize("labels, kind, n", [
    ("aabbab", None, 1), ("aabb", None, 0), ([["x", "y"], ["y", "x"], ["x"], ["x"]], "multilabel", 0),
    ([["x", "y"], ["y"], ["x"], ["x"]], "multilabel", 1), ([1.5, 2.5, 3., 4.], "regression", 0)])
def test_texts_with_different_labels_are_counted(labels, kind, n):
    """Labels of the texts one, one, two, two, three and Three. Scores may differ."""
    texts = ["one", "one", "two ", "two", "three", "Three"]
    write_rows("a.jsonl", [{"text": text, "label": label} for text, label in zip(texts, labels)] * 5)
    if len(labels) == 6:
        write_rows("b.jsonl", [{"text": "one", "label": "b"}])
    data = loaded(dev="b.jsonl" if len(labels) == 6 else "a.jsonl", kind=kind)
    assert has(data, f"{n} texts have" if n else "different labels") == bool(n)


def test_the_rows_of_a_group_stay_in_one_split():
    """The classes keep their shares."""
    rows = "".join(f"text {i},{'xy'[i // 10 % 2]},patient {i // 10}\n" for i in range(200))
    write("a.csv", "text,label,patient\n" + rows)
    splits = loaded("a.csv", groups="patient", dev=.2).splits
    patients = {split: set(rows["group"]) for split, rows in splits.items()}
    assert len(patients["train"]) == 16 and len(patients["validation"]) == 4
    assert not patients["train"] & patients["validation"]
    assert Counter(splits["validation"]["label"]) == {0: 20, 1: 20}


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


def test_a_column_of_labels_without_a_1_is_a_label_too():
    write("a.csv", "text,toxic,threat,obscene\n" + "one,1,0,1\ntwo,1,0,0\n" * 10)
    data = loaded("a.csv", kind="multilabel", label=["toxic", "threat", "obscene"], class_weights="balanced")
    assert data.task.labels == ("obscene", "threat", "toxic")


@pytest.mark.parametrize("labels, kind, joint", [
    (["art, law", "law", "art", "law, tax"], "multilabel", ","), (["art#law", "law#tax", "art#tax"], None, "#"),
    (["art; law", "law", "art"], None, ";"), (["a|b", "b|c,d", "c,e", "d", "e"], "multilabel", ",")])
def test_labels_that_another_character_joins_are_asked_for(labels, kind, joint):
    labelled(labels * 5)
    with pytest.raises(UserError, match=f"'{joint}'.*'separator'"):
        loaded(kind=kind)
    data = loaded(kind="multilabel", separator=joint)
    assert all(joint not in name for name in data.task.labels)
    assert len(loaded(kind="multilabel", separator="|").task.labels) >= len(data.task.labels)
    assert not has(loaded(kind="classification", separator="|"), "no effect")  # which the message asks for


@pytest.mark.parametrize("labels", [["Food, Drink", "Home, Garden", "Other"], ["km/h", "mph"], ["C#", "C"],
                                    ["e1,e2", "e2,e1"], ["Cause(e1,e2)", "Cause(e2,e1)", "Part(e1,e2)"]])
def test_a_comma_in_the_name_of_a_label_joins_nothing(labels):
    labelled(labels * 5)
    assert loaded().task.labels == tuple(sorted(labels)) == loaded(kind="multilabel").task.labels


@pytest.mark.parametrize("column, is_noticed", [("Labels", True), ("lable", True), ("label ", False), ("stars", False)])
def test_a_test_file_whose_label_column_is_spelled_otherwise_is_noticed(column, is_noticed):
    """Blanks at the ends do not count."""
    labelled("xy" * 5)
    data = loaded(test=write("b.csv", f"text,{column}\none,x\ntwo,y\n"))
    assert has(data, "b.csv", "not scored", repr(column)) == is_noticed
    assert (data.test_task is not None) == (column == "label ")


@pytest.mark.parametrize("wrong", [1, 2])
def test_macro_f1_is_the_mean_over_the_labels_of_the_set(wrong):
    """A label that only a wrong prediction has does not count."""
    labelled(list("abc") * 5)
    decisions = [0, 1, 0, 1, wrong]
    task = loaded(metrics="macro_f1").task
    precision = 2 / 3 if wrong == 1 else 1
    expected = (.8 + 2 * precision / (precision + 1)) / 2
    assert task.scores.score(torch.eye(3)[decisions], [0, 1, 0, 1, 0])["macro_f1"] == pytest.approx(expected)
    labelled([["a"], ["b"], ["c"]] * 5)
    task = loaded(metrics="macro_f1", kind="multilabel").task
    outputs = torch.tensor([[.9, .1, .1 if wrong == 1 else .9], [.1, .9, .1]])
    assert task.scores.score(outputs.numpy(), [[0], [1]])["macro_f1"] == 1.


@pytest.mark.parametrize("labels, n_by_label", [
    ([0] * 300 + [1] * 300, [100, 100]), ([0] * 540 + [1] * 60, [180, 20]), ([1] * 3 + [0] * 597, [199, 1])])
def test_a_limited_number_of_rows_is_a_sample_with_the_shares_of_the_labels(labels, n_by_label):
    rows = datasets.Dataset.from_dict({"label": labels, "i": list(range(600))})
    chosen = training_rows(rows, 200)
    assert np.bincount(chosen["label"], minlength=2).tolist() == n_by_label
    assert chosen["i"][:] == training_rows(rows, 200)["i"][:] == sorted(chosen["i"])
    assert training_rows(rows, None) is training_rows(rows, 600) is rows


def test_the_default_epochs_are_at_least_the_minimum_of_updates_with_the_rows_that_are_used():
    task = loaded(labelled("xy" * 5)).task
    assert default_epochs(task, 10_000, bs=32) == task.epochs < default_epochs(task, 10_000, bs=32, limit=64)
    assert default_epochs(task, 10_000, bs=32, limit=64) == task.min_updates / 2


def test_a_sample_of_scores_is_from_the_whole_table():
    rows = datasets.Dataset.from_dict({"label": [i / 7 for i in range(600)]})
    halves = np.array(training_rows(rows, 200)["label"]) < 300 / 7
    assert len(halves) == 200 and 70 < halves.sum() < 130


def test_whole_numbers_of_any_size_are_scores():
    labelled([2 ** 24 + 1, 2 ** 40 + 1, 3])
    assert loaded(dev="a.jsonl", kind="regression").splits["train"]["label"][:] == [2. ** 24, 2. ** 40, 3.]


@pytest.mark.parametrize("positive, f1", [("ham", 2 / 3), (None, .8)])
def test_f1_is_that_of_the_positive_label(positive, f1):
    labelled(["ham", "spam"] * 5)
    scores = loaded(metrics="f1", positive=positive).task.scores.score(torch.eye(2)[[0, 1, 1, 1]], [0, 0, 1, 1])
    assert scores["f1"] == pytest.approx(f1)


def test_precision_recall_and_confusion_are_those_of_predictions_by_the_true_labels():
    labelled("xy" * 5)
    evaluation = loaded().task.scores.evaluate(torch.eye(2)[[0, 1, 1]], [0, 0, 1])
    assert evaluation["confusion"] == [[1, 1], [0, 1]]
    assert [*evaluation["classes"].values()] == [pytest.approx([1, .5, 2 / 3, 2]), pytest.approx([.5, 1, 2 / 3, 1])]


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


def test_a_test_file_with_two_columns_of_labels_is_refused():
    write("a.csv", "text,label\n" + "one,x\ntwo,y\n" * 10)
    with pytest.raises(UserError, match="b.csv .*'label'"):
        loaded("a.csv", test=write("b.csv", "text,label,label\none,x,y\n"))


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
    ([["x"], ["y"]], [[], []], False), ([["x"], ["y"]], [[-1], [-1]], False), ([["x"], ["y"]], ["", ""], False)])
def test_minus_one_is_no_label_unless_the_training_file_has_it(labels, of_test, is_labelled):
    labelled(of_test)
    Path("a.jsonl").rename("test.jsonl")
    labelled(list(labels) * 10)
    data = loaded(test="test.jsonl", kind="multilabel" if isinstance(labels[0], list) else None)
    assert (data.test_task is not None) == is_labelled
    assert has(data, "test.jsonl are -1") == ("-1" in str(of_test))


@pytest.mark.parametrize("labels, of_test, are_valid", [
    ("xy", [-1, "x"], False), ([0, .5], [-1, .5], False), ([-2, .5], [-1, .5], True)])
def test_minus_one_beside_other_labels_of_a_test_file_is_refused_unless_numbers_may_be_negative(
    labels, of_test, are_valid
):
    labelled(of_test)
    Path("a.jsonl").rename("test.jsonl")
    labelled(list(labels) * 10)
    if are_valid:
        assert loaded(test="test.jsonl").test_task
        return
    with pytest.raises(UserError, match="test.jsonl.*-1"):
        loaded(test="test.jsonl")


NO_SPAN = '{"text": "Anna left", "label": []}\n' * 2


def test_a_dev_file_may_have_no_span_and_a_test_file_without_any_is_not_labelled():
    """Annotation tools write an empty list for a text that was not annotated."""
    write("a.jsonl", '{"text": "Anna left", "label": [[0, 4, "PER"]]}\n' * 20)
    splits, test_task = loaded(kind="spans", dev=write("b.jsonl", NO_SPAN), test="b.jsonl")[1:5:3]
    assert splits["validation"]["label"][:] == [[1, 1]] * 2 and splits["test"]["label"][:] == [[]] * 2
    assert test_task is None


@pytest.mark.parametrize("columns", ["x,y\none,0,0\ntwo,0,0\n", "x,y\none,,\ntwo,,\n"])
def test_a_test_file_without_any_of_several_labels_is_labelled_unless_its_cells_are_empty(columns):
    write("a.csv", "text,x,y\n" + "one,1,0\ntwo,0,1\n" * 10)
    data = loaded("a.csv", kind="multilabel", label=["x", "y"], test=write("b.csv", f"text,{columns}"))
    assert (data.test_task is not None) == ("0" in columns)


def test_a_test_file_with_some_of_several_columns_of_labels_is_refused():
    write("a.csv", "text,x,y\n" + "one,1,0\ntwo,0,1\n" * 10)
    with pytest.raises(UserError, match="b.csv: .*'y'"):
        loaded("a.csv", kind="multilabel", label=["x", "y"], test=write("b.csv", "text,x\none,1\n"))


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
