"""The files of own tasks: kinds, labels, formats, test files that change, and errors."""
import itertools
import json
from collections import Counter

import pandas as pd
import pytest
import torch
from csv_files import write_csv

import finetune
from _utils.errors import PlainError
from _utils.finetuning.config import complete_finetuning
from _utils.tasks.custom import complete_own_task, load_own_task
from _utils.tasks.table_files import read_table, write_with_column


def loaded(name="t", **given):
    return load_own_task(complete_own_task({"name": name, **given}))


@pytest.mark.parametrize("labels, kind, found", [
    (["b", "a", "b"], "classification", ("a", "b")),
    (["10", 9., "10"], "classification", ("9", "10")),
    ([1, 1., 0], "classification", ("0", "1")),  # equal numbers are one label
    (["1.5", "2", "3"], "regression", ()),
    (["1|2", "2", "1"], "multilabel", ("1", "2")),
])
def test_the_kind_and_the_labels_follow_from_the_file(tmp_path, labels, kind, found):
    rows = [{"text": f"text {i}", "label": label} for i, label in enumerate(labels * 5)]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, rows)))
    data = loaded(train=f"{tmp_path}/a.jsonl", dev=.2)
    assert (data.task.kind, data.task.labels) == (kind, found) and data.notices[0].startswith(kind)
    assert loaded(train=f"{tmp_path}/a.jsonl", dev=.2).splits["validation"]["text"][:] == data.splits["validation"]["text"][:]
    if "10" in labels:
        assert "'kind': 'regression'" in data.notices[0]
        assert loaded(train=f"{tmp_path}/a.jsonl", kind="regression").task.kind == "regression"


def test_a_mistake_in_one_row_does_not_change_the_kind(tmp_path):
    """A separator in a score, and a sentence without words."""
    write_csv(tmp_path / "a.csv", ("text", "label"), [(f"text {i}", i / 10) for i in range(150)] + [("text", "3|4")])
    data = loaded(train=f"{tmp_path}/a.csv")
    assert data.task.kind == "regression" and any(notice.startswith("skipped 1 of 151 rows") for notice in data.notices)
    rows = [{"text": ["a", "cat"], "label": ["O", "B-X"]}] * 150 + [{"text": [], "label": []}]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, rows)))
    data = loaded(train=f"{tmp_path}/a.jsonl")
    assert data.task.labels == ("B-X", "O") and any(notice.startswith("skipped 1 of 151 rows") for notice in data.notices)


@pytest.mark.parametrize("labels, kind", [
    (["a"] * 39 + ["a|b"], "multilabel"), (["1", "2"] * 30 + ["2.5"], "regression"), (["a"] * 39 + [["a", "b"]], "multilabel"),
    (["a"] * 39 + ["['a', 'b']"], "multilabel")])
def test_one_row_in_twenty_does_not_decide_on_the_kind(tmp_path, labels, kind):
    """The rows that would are named, and `kind` is asked for."""
    rows = [{"text": f"text {i}", "label": label} for i, label in enumerate(labels)]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, rows)))
    with pytest.raises(PlainError, match=rf"1 of {len(labels)} labels.*line {len(labels)}\b.*'kind'.*{kind}"):
        loaded(train=f"{tmp_path}/a.jsonl")
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, rows[:20] + rows[-3:] * 2)))
    notice = loaded(train=f"{tmp_path}/a.jsonl", dev=.2).notices[0]
    assert notice.startswith(kind) and "2 of 26 labels" in notice


@pytest.mark.parametrize("written", [
    "['B-PER', 'I-PER', 'O']", '["B-PER", "I-PER", "O"]', "['B-PER' 'I-PER'\n 'O']", "('B-PER', 'I-PER', 'O')"])
@pytest.mark.parametrize("words", ["['Anna', \"d'Arc\", 'went']", "Anna d'Arc went"])
def test_lists_that_are_written_as_strings_are_lists(tmp_path, written, words):
    write_csv(tmp_path / "a.csv", ("words", "tags"), [(words, written)] * 20)
    task = loaded(train=f"{tmp_path}/a.csv", text="words", label="tags", kind="tagging")
    assert task.task.labels == ("B-PER", "I-PER", "O") and task.splits["train"]["text"][0] == ["Anna", "d'Arc", "went"]


def test_labels_of_texts_may_be_written_lists_and_a_cell_that_is_none_is_named(tmp_path):
    cells = ["['art', 'news']", "['art']", "[]"] * 10
    write_csv(tmp_path / "a.csv", ("text", "labels"), [(f"text {i}", cell) for i, cell in enumerate(cells)])
    task = loaded(train=f"{tmp_path}/a.csv", label="labels").task
    assert (task.kind, task.labels) == ("multilabel", ("art", "news"))
    write_csv(tmp_path / "a.csv", ("text", "labels"), [(f"text {i}", cell) for i, cell in enumerate([*cells, "['art', 'news"])])
    with pytest.raises(PlainError, match="a.csv, line 32: .*'labels'"):
        loaded(train=f"{tmp_path}/a.csv", label="labels")


@pytest.mark.parametrize("several, one", [("{'news', 'art'}", "{'art'}"), ("['art' 'news']", "['art']"), ('["art", "news"]', "art")])
def test_sets_arrays_and_lists_beside_single_labels_are_several_labels(tmp_path, several, one):
    write_csv(tmp_path / "a.csv", ("text", "label"), [(f"text {i}", one if i % 3 else several) for i in range(30)])
    task = loaded(train=f"{tmp_path}/a.csv").task
    assert (task.kind, task.labels) == ("multilabel", ("art", "news"))


def test_labels_in_brackets_that_look_like_several_are_named(tmp_path):
    write_csv(tmp_path / "a.csv", ("text", "label"), [(f"text {i}", "[art]" if i % 3 else "[art, news]") for i in range(30)])
    assert any("look like several" in notice and "[art, news]" in notice for notice in loaded(train=f"{tmp_path}/a.csv").notices)


@pytest.mark.parametrize("cell, given", [
    ("['O' 'O' ... 'O' 'O']", {"kind": "tagging"}), ("[0 1 ... 0 1]", {}), ("[0, 1, 0]", {}), ("[1. 0. 0.]", {})])
def test_shortened_arrays_and_vectors_of_ones_and_zeros_are_named(tmp_path, cell, given):
    write_csv(tmp_path / "a.csv", ("text", "label"), [(f"a text of six words {i}", cell) for i in range(30)])
    with pytest.raises(PlainError, match="a.csv, line 2: .*label"):
        loaded(train=f"{tmp_path}/a.csv", **given)


def test_texts_in_brackets_are_texts(tmp_path):
    write_csv(tmp_path / "a.csv", ("text", "label"), [(f"[laughs] no {i}", "a") for i in range(10)] + [("[ ok ]", "b")] * 10)
    assert loaded(train=f"{tmp_path}/a.csv").splits["train"]["text"][0].startswith("[")


@pytest.mark.parametrize("comments", [["# sent_id = 5"], ["# id 0-abc\tdomain=en"], ["# newdoc", "# text = Anna went"], ["# text = a # b"],
                                      ["# doc 5"], ["# x = O"]])
def test_comments_before_a_sentence_are_no_words_and_stay_in_the_predictions(tmp_path, comments):
    sentence = [*comments, "# NN O", "Anna NN B-PER", "# NN O", ""]
    (tmp_path / "a.conll").write_text("\n".join(sentence * 20))
    data = loaded(train=f"{tmp_path}/a.conll", test=f"{tmp_path}/a.conll")
    assert data.task.labels == ("B-PER", "O") and set(map(tuple, data.splits["train"]["text"][:])) == {("#", "Anna", "#")}
    write_with_column(data.test_table, tmp_path / "b.conll", [["O", "B-PER", "O"]] * 20)
    assert (tmp_path / "b.conll").read_text().split("\n")[:len(comments) + 2] == [*comments, "# NN O O", "Anna NN B-PER B-PER"]


def test_the_line_with_other_columns_than_most_is_named(tmp_path):
    (tmp_path / "a.conll").write_text("% a comment of this file\nAnna NN B-PER\nleft VB O\n\n" * 3)
    with pytest.raises(PlainError, match="a.conll, line 1: 6 columns instead of 3"):
        loaded(train=f"{tmp_path}/a.conll")
    (tmp_path / "a.conll").write_text("# #\n4 CD\n\n" * 20)  # PTB's tag of this word
    assert loaded(train=f"{tmp_path}/a.conll").task.labels == ("#", "CD")


@pytest.mark.parametrize("tags, read", [
    ("B:PER I:PER O", "B-PER I-PER O"), ("PER-B PER-I o", "B-PER I-PER O"), ("B I 0", "B-entity I-entity O"),
    ("B-PER M-PER E-PER", "B-PER I-PER E-PER"), ("B-PER I-PER OTHER", "B-PER I-PER O"), ("B_A_B I_A_B _", "B-A_B I-A_B O")])
def test_entities_are_recognized_however_their_tags_are_written(tmp_path, tags, read):
    """Also tags that only the dev file has."""
    sentence = [f"w{i} {tag}\n" for i, tag in enumerate(tags.split())]
    (tmp_path / "a.conll").write_text("".join([*sentence[:1], *sentence[2:], "\n"] * 9))
    (tmp_path / "b.conll").write_text("".join(sentence))
    data = loaded(train=f"{tmp_path}/a.conll", dev=f"{tmp_path}/b.conll")
    assert [data.task.labels[i] for i in data.splits["validation"]["label"][0]] == read.split() and data.task.metrics[0] == "entity_f1"


@pytest.mark.parametrize("tags", ["NN VB -", "S M L", "0 1 2", "B-PER ORG O X", "N_B V_E O_X"])
def test_other_tags_stay_as_they_are(tmp_path, tags):
    (tmp_path / "a.conll").write_text("".join(f"word {tag}\n" for tag in tags.split()) + "\n")
    data = loaded(train=f"{tmp_path}/a.conll", dev=f"{tmp_path}/a.conll")
    assert set(data.task.labels) == set(tags.split()) and "entity_f1" not in data.task.metrics


def test_a_few_tags_that_are_not_like_the_others_are_named(tmp_path):
    (tmp_path / "a.conll").write_text("Anna B-PER\nLee I-PER\nleft O\nOslo LOC\n\n" * 9)
    assert any("entity_f1" in notice and "LOC" in notice for notice in loaded(train=f"{tmp_path}/a.conll").notices)


def test_entities_in_other_spellings_are_entities(tmp_path):
    """B_PER, and 0 for O; a set of tags that only begin alike is left as it is."""
    (tmp_path / "a.conll").write_text("Anna B_PER\nLee i_PER\nleft 0\n\n" * 20)
    data = loaded(train=f"{tmp_path}/a.conll")
    assert data.task.labels == ("B-PER", "I-PER", "O") and data.task.metrics[0] == "entity_f1" and "B_PER" in data.notices[1]
    (tmp_path / "a.conll").write_text("Anna B_PER\nLee X\nleft 0\n\n" * 20)
    assert set(loaded(train=f"{tmp_path}/a.conll").task.labels) == {"0", "B_PER", "X"}


TEXT, SPANS = "Anna Lee (Oslo) left.", [[0, 8, "PER"], [10, 14, "LOC"]]
TAGS = ["B-PER", "I-PER", "O", "B-LOC", "O", "O", "O"]
KEYS = {"label studio": ("start", "end", "labels"), "doccano": ("start_offset", "end_offset", "label"),
        "pipeline": ("start", "end", "entity_group")}


def as_spans(tool):
    if tool == "spacy":
        return {"entities": SPANS}
    return [dict(zip(KEYS[tool], span)) | {"id": 7} for span in SPANS] if tool in KEYS else SPANS


@pytest.mark.parametrize("tool, suffix", [("spacy", "jsonl"), *itertools.product(["lists", *KEYS], ["jsonl", "csv", "parquet"])])
def test_character_spans_are_tags_of_words_and_are_predicted_as_spans(tmp_path, tool, suffix):
    """In CSV they are strings, as pandas or JSON write them; a text without spans has an empty list."""
    cells = [as_spans(tool), as_spans(tool), []]
    if suffix == "csv" or suffix == "parquet" and tool == "lists":  # a column of parquet has one type
        cells = [repr(cell) if tool == "lists" else json.dumps(cell) for cell in cells]
    table = pd.DataFrame({"text": [TEXT, TEXT, "None here."], "entities": cells}).loc[[0, 1, 2] * 10]
    write = {"jsonl": lambda path: table.to_json(path, orient="records", lines=True), "csv": lambda path: table.to_csv(path, index=False),
             "parquet": table.to_parquet}[suffix]
    write(tmp_path / f"a.{suffix}")
    data = loaded(train=f"{tmp_path}/a.{suffix}", test=f"{tmp_path}/a.{suffix}", text="text", label="entities")
    task, test = data.task, data.splits["test"]
    assert (task.kind, task.labels, task.metrics[0]) == ("tagging", ("B-LOC", "B-PER", "I-PER", "O"), "entity_f1")
    assert [[task.labels[i] for i in labels] for labels in test["label"][:3]] == [TAGS, TAGS, ["O"] * 3]
    assert test["text"][0] == ["Anna", "Lee", "(", "Oslo", ")", "left", "."] and any("spans" in notice for notice in data.notices)
    data.task.write(tmp_path / f"new.{suffix}", data, "test", [label for labels in test["label"] for label in labels])
    written = read_table(tmp_path / f"new.{suffix}").rows["prediction"]
    assert [json.loads(cell) if isinstance(cell, str) else cell for cell in written[:3]] == [SPANS, SPANS, []]


@pytest.mark.parametrize("text, spans, tags, warning", [
    ("张三在北京", [[0, 2, "PER"], [3, 5, "LOC"]], "B-PER I-PER O B-LOC I-LOC", None),
    ("アンナはベルリンに", [[0, 3, "PER"], [4, 8, "LOC"]], "B-PER O B-LOC O", None),
    ("e\u0301tait Zoe\u0308 ici", [[7, 11, "P"]], "O B-P O", None),
    ("Anna left", [[0, 3, "PER"]], "B-PER O", "inside a word"),  # an end that is the last character
    ("New York Times", [[0, 8, "LOC"], [0, 14, "ORG"]], "B-ORG I-ORG I-ORG", "left out"),
    ("a  b", [[1, 3, "X"], [0, 1, "Y"]], "B-Y O", "left out"),
    ("Bob Lee", [[0, 7, "Full name"]], "B-Full name I-Full name", None)])
def test_the_words_of_spans_follow_from_the_text_alone(tmp_path, text, spans, tags, warning):
    rows = [{"text": text, "label": spans}, {"text": "and x", "label": []}] * 10
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, rows)))
    data = loaded(train=f"{tmp_path}/a.jsonl", dev=f"{tmp_path}/a.jsonl")
    assert " ".join(data.task.labels[i] for i in data.splits["train"]["label"][0]) == tags and data.task.metrics[0] == "entity_f1"
    assert [notice for notice in data.notices if notice.startswith("warning") and "spans" in notice] == \
        [notice for notice in data.notices if warning and warning in notice]


@pytest.mark.parametrize("label, given, message", [
    ([[0, 99, "PER"]], {}, "line 1: .*99"), ([[3, 1, "PER"]], {}, "line 1: .*3, 1"), ([["a", "b"]], {}, "line 1: .*neither"),
    ([[0, 4, ["PER", "ORG"]]], {}, "line 1: .*neither"), ([{"from": 0, "to": 4}], {}, "line 1: .*neither"),
    ([[0, 4, "PER"]], {"kind": "multilabel"}, "line 1: .*'kind': 'tagging'")])
def test_lists_that_are_no_spans_of_the_text_are_named(tmp_path, label, given, message):
    (tmp_path / "a.jsonl").write_text("\n".join([json.dumps({"text": "Anna left", "label": label})] * 20))
    with pytest.raises(PlainError, match=message):
        loaded(train=f"{tmp_path}/a.jsonl", **given)


def test_spans_in_one_row_in_twenty_ask_for_the_kind_and_a_test_file_of_empty_lists_has_no_labels(tmp_path):
    rows = [{"text": f"Anna {i}", "label": "O"} for i in range(39)] + [{"text": "Anna left", "label": [[0, 4, "PER"]]}]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, rows)))
    with pytest.raises(PlainError, match="1 of 40 labels.*line 40.*'kind'"):
        loaded(train=f"{tmp_path}/a.jsonl")
    (tmp_path / "a.jsonl").write_text("\n".join([json.dumps(rows[-1])] * 20))
    (tmp_path / "b.jsonl").write_text(json.dumps({"text": "Anna left", "label": []}))
    assert loaded(train=f"{tmp_path}/a.jsonl", test=f"{tmp_path}/b.jsonl").test_task is None


@pytest.mark.parametrize("space", ["\u00a0", "\u202f", "\u2007", "\u2009", "\u3000", "\u200b", "\x85"])
def test_other_spaces_than_those_between_words_are_part_of_a_word(tmp_path, space):
    (tmp_path / "a.conll").write_text(f"10{space}000 B-N\nmen O\n\n" * 20)
    assert loaded(train=f"{tmp_path}/a.conll").splits["train"]["text"][0] == [f"10{space}000", "men"]
    (tmp_path / "a.conll").write_text(f"{space} O\nmen B-N\n\n" * 20)
    assert loaded(train=f"{tmp_path}/a.conll").splits["train"]["text"][0] == [space, "men"]
    write_csv(tmp_path / "a.csv", ("text", "label"), [(f"10{space}000 men", "B-N O")] * 20)
    assert loaded(train=f"{tmp_path}/a.csv", kind="tagging").splits["train"]["text"][0] == [f"10{space}000", "men"]


@pytest.mark.parametrize("yes, no", [
    (1., 0.), ("1.0", "0.0"), ("TRUE", "FALSE"), (True, False), ("yes", ""), ("1.", "0.00"), ("T", "F"), (" 1", "0 ")])
def test_columns_of_labels_have_marks_in_several_spellings(tmp_path, yes, no):
    write_csv(tmp_path / "a.csv", ("text", "x", "y"), [(f"text {i}", yes, no if i % 2 else yes) for i in range(20)])
    labels = loaded(train=f"{tmp_path}/a.csv", text="text", label=["x", "y"], dev=.5).splits["train"]["label"][:]
    assert {tuple(found) for found in labels} == {(0,), (0, 1)}


def test_the_dev_set_has_rows_of_each_class(tmp_path):
    """Counts of the labels are printed, and those of fewer than five rows are named."""
    write_csv(tmp_path / "a.csv", ("text", "label"), [(f"text {i}", "rare" if i % 40 == 0 else "usual") for i in range(200)])
    data = loaded(train=f"{tmp_path}/a.csv")
    assert {split: Counter(rows["label"]) for split, rows in data.splits.items()} == {"train": {0: 4, 1: 175}, "validation": {0: 1, 1: 20}}
    assert any("train: rare 4, usual 175" in notice for notice in data.notices)
    assert "rare (train 4), rare (validation 1)" in data.notices[-1]


def test_the_only_row_of_a_class_is_for_training(tmp_path):
    write_csv(tmp_path / "a.csv", ("text", "label"), [(f"text {i}", "ab"[i % 2]) for i in range(40)] + [("text", "once")])
    data = loaded(train=f"{tmp_path}/a.csv")
    assert data.splits["train"]["label"].count(2) == 1 and 2 not in data.splits["validation"]["label"]


@pytest.mark.parametrize("dev, found", [(.1, "2 of 2"), ("other.csv", "3 of 4")])
def test_texts_that_are_also_in_the_training_set_are_counted(tmp_path, monkeypatch, dev, found):
    monkeypatch.chdir(tmp_path)
    write_csv("a.csv", ("text", "label"), [("same", "ab"[i % 2]) for i in range(20)])
    write_csv("other.csv", ("text", "label"), [("same", "a"), ("other", "a"), ("same", "b"), ("same", "b")])
    [warning] = [notice for notice in loaded(train="a.csv", dev=dev).notices if "also in the training set" in notice]
    assert f"{found} texts in validation" in warning


@pytest.mark.parametrize("labels, message", [
    (("tax", "contract", "contract, tax"), "look like several (if they are, set 'separator'): 'contract, tax'"),
    (("good", "Good", "good ", "bad"), "differ in spaces or capitals only: 'Good', 'good', 'good '"),
    (("New York, NY", "Paris, TX", "R&D/QA"), None)])
def test_labels_that_look_like_mistakes_are_named(tmp_path, labels, message):
    write_csv(tmp_path / "a.csv", ("text", "label"), [(f"text {i}", labels[i % len(labels)]) for i in range(60)])
    warnings = [notice for notice in loaded(train=f"{tmp_path}/a.csv").notices if notice.startswith("warning") and "rows of" not in notice]
    assert len(warnings) == bool(message) and (message or "") in "".join(warnings)


def test_the_rows_of_a_group_stay_in_one_split(tmp_path):
    rows = [(f"text {i}", "xy"[i % 3 == 0], f"patient {i // 10}") for i in range(200)]
    write_csv(tmp_path / "a.csv", ("text", "label", "patient"), rows)
    data = loaded(train=f"{tmp_path}/a.csv", groups="patient", dev=.2)
    patients = {split: set(rows["group"]) for split, rows in data.splits.items()}
    assert len(patients["train"]) == 16 and len(patients["validation"]) == 4 and not patients["train"] & patients["validation"]
    assert abs(Counter(data.splits["validation"]["label"])[1] - 67 / 5) < 2
    with pytest.raises(PlainError, match="a.csv: missing column 'doctor'"):
        loaded(train=f"{tmp_path}/a.csv", groups="doctor")
    write_csv(tmp_path / "a.csv", ("text", "label", "patient"), [(*row[:2], "one") for row in rows])
    with pytest.raises(PlainError, match="from 1 'groups'"):
        loaded(train=f"{tmp_path}/a.csv", groups="patient")


@pytest.mark.parametrize("columns, rows, given", [
    (("text", "label"), [("one two", "tax| contract"), ("three", "tax"), ("four", "")], {}),
    (("text", "label"), [("one two", "tax;contract"), ("three", "tax"), ("four", "")], {"separator": ";"}),
    (("text", "contract", "tax"), [("one two", "1", "1"), ("three", "0", "1"), ("four", "", "0")], {"label": ["contract", "tax"]}),
])
def test_several_labels_per_text(tmp_path, columns, rows, given):
    """Strings with a separator, or a column of 1 and 0 for each label; lists are in test_own_tasks.py."""
    write_csv(tmp_path / "a.csv", columns, rows * 10)
    data = loaded(train=f"{tmp_path}/a.csv", test=f"{tmp_path}/a.csv", **given)
    assert (data.task.kind, data.task.labels, data.task.metrics) == ("multilabel", ("contract", "tax"), ("micro_f1", "macro_f1"))
    assert list(map(sorted, data.splits["test"]["label"][:3])) == [[0, 1], [1], []]
    assert any("validation: contract 1, tax 2" in notice for notice in data.notices)
    data.task.write(tmp_path / "new.csv", data, "test", [[True, True], [False, False]] * 15)
    assert (tmp_path / "new.csv").read_text().splitlines()[1].endswith(",contract|tax")
    if len(columns) == 3:
        write_csv(tmp_path / "a.csv", columns, [*rows * 10, ("five", "x", "0")])
        with pytest.raises(PlainError, match="line 32: the column 'contract' contains 'x'"):
            loaded(train=f"{tmp_path}/a.csv", **given)


def test_f1_is_that_of_the_positive_label(tmp_path):
    write_csv(tmp_path / "a.csv", ("text", "label"), [("one", "ham"), ("two", "spam")] * 5)
    for positive, f1 in (("ham", 2 / 3), (None, .8)):
        data = loaded(train=f"{tmp_path}/a.csv", metrics="f1", positive=positive)
        assert f"f1 of {positive or 'spam'!r}" in data.notices[0]
        assert data.task.score(torch.eye(2)[[0, 1, 1, 1]], [0, 0, 1, 1])["f1"] == pytest.approx(f1)


def test_words_and_tags_in_json_lines(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"words": ["Mr.", "Smith", "left"], "tags": ["O", "NAME", "O"]}\n' * 4)
    data = loaded(train=f"{tmp_path}/a.jsonl", text="words", label="tags", dev=f"{tmp_path}/a.jsonl")
    assert data.task.kind == "tagging" and data.task.labels == ("NAME", "O") and data.task.metrics == ("accuracy", "macro_f1")
    assert data.splits["train"][0] == {"text": ["Mr.", "Smith", "left"], "label": [1, 0, 1]}


def test_tags_that_only_the_test_file_has_are_errors_and_no_labels(tmp_path):
    """Scores are those of seqeval on the names of the tags."""
    for name, tags in {"train": "B-X I-X O", "dev": "B-Y O O", "test": "B-X I-Z O"}.items():
        (tmp_path / f"{name}.txt").write_text("".join(f"word {tag}\n" for tag in tags.split()))
    data = loaded(**{split: f"{tmp_path}/{split}.txt" for split in ("train", "dev", "test")})
    assert data.task.labels == ("B-X", "B-Y", "I-X", "O") and "the tags I-Z of the test file" in data.notices[1]
    correct_but_for_one, targets = torch.eye(4)[[0, 3, 3]], data.splits["test"]["label"][:]
    assert data.test_task.score(correct_but_for_one, targets) == {"entity_f1": pytest.approx(2 / 3), "accuracy": 2 / 3}


@pytest.mark.parametrize("name, old, new", [
    ("a.csv", "text,id\none,1\ntwo,\n\n\n", "text,id,prediction\none,1,A\ntwo,,B\n"),
    ("a.csv", 'text;id\n"one, ""two""; three";1\ntwo;\n', 'text;id;prediction\n"one, ""two""; three";1;A\ntwo;;B\n'),
    ("a.csv", 'text,id\n"one\rmore",1\ntwo,\n', 'text,id,prediction\r\n"one\rmore",1,A\r\ntwo,,B\r\n'),
    ("a.tsv", "text\tid\r\none\t1\r\ntwo\t\r\n\r\n\n", "text\tid\tprediction\none\t1\tA\ntwo\t\tB\n"),
    ("a.jsonl", '{"text": "x"}\n{"text": "y"}\n\n', '{"text": "x", "prediction": "A"}\n{"text": "y", "prediction": "B"}\n'),
    ("a.txt", "x\ny\n", "x A\ny B\n"),
])
def test_predictions_are_written_beside_the_rows_that_were_read_even_if_the_file_changed(tmp_path, name, old, new):
    """Empty lines at the end are skipped."""
    (tmp_path / "train.txt").write_text("x A\ny B\n\n" * 20)
    write_csv(tmp_path / "train.csv", ("text", "label"), [("x", "A"), ("y", "B")] * 20)
    (tmp_path / name).write_text(old, newline="")
    data = loaded(train=f"{tmp_path}/train.{'txt' if name == 'a.txt' else 'csv'}", test=f"{tmp_path}/{name}")
    (tmp_path / name).write_text("something else")
    data.task.write(tmp_path / "new", data, "test", [0, 1])
    assert (tmp_path / "new").read_bytes().decode() == new


@pytest.mark.parametrize("column", [["", ""], ["-1", "-1"], None])
def test_a_test_file_without_labels_is_only_predicted(tmp_path, column):
    write_csv(tmp_path / "a.csv", ("text", "label"), [("one", "x"), ("two", "y")] * 5)
    write_csv(tmp_path / "b.csv", ("text", "label") if column else ("text",), [("one", *(column or [])[:1])] * 2)
    data = loaded(train=f"{tmp_path}/a.csv", test=f"{tmp_path}/b.csv")
    assert data.task.labels == ("x", "y") and data.splits["test"]["label"][:] == [-1, -1]


def test_tags_of_a_table_are_strings_with_spaces_and_may_be_many(tmp_path):
    """In a table with a header, a cell has the words or the tags of a sentence; the predictions can be read as labels again."""
    rows = [("the cat sat", f"O B-X{i % 15} O") for i in range(25)]
    for name, separator in (("a.csv", ","), ("a.tsv", "\t")):
        (tmp_path / name).write_text("".join(separator.join(row) + "\n" for row in [("text", "label"), *rows]))
        data = loaded(train=f"{tmp_path}/{name}", test=f"{tmp_path}/{name}", kind="tagging")
        assert len(data.task.labels) == 16
        values = [data.task.labels.index(tag) for _, tags in rows for tag in tags.split()]
        data.task.write(tmp_path / f"new_{name}", data, "test", values)
        assert list(read_table(tmp_path / f"new_{name}").rows["prediction"]) == [tags for _, tags in rows]


@pytest.mark.parametrize("scheme, tags", [
    ("iob2", "B-X B-X I-X O B-Y B-Y"), ("bioes", "S-X B-X E-X O S-Y S-Y"), (None, "I-X B-X I-X O B-Y B-Y")])
def test_tags_are_converted_to_one_scheme(tmp_path, capsys, scheme, tags):
    """IOB1 begins an entity with I- unless it follows one of its type. A mixture with IOB2 is counted; predictions have the new tags."""
    (tmp_path / "a.txt").write_text("".join(f"word {tag}\n" for tag in "I-X B-X I-X O B-Y B-Y".split()) + "\n")
    data = loaded(train=f"{tmp_path}/a.txt", dev=f"{tmp_path}/a.txt", test=f"{tmp_path}/a.txt", scheme=scheme)
    assert [data.task.labels[i] for i in data.splits["train"]["label"][0]] == tags.split()
    assert ("1 entities begin with I- and 1 with B-, a mixture" in "".join(data.notices)) == (not scheme)
    data.task.write(tmp_path / "new", data, "test", data.splits["test"]["label"][0])
    assert (tmp_path / "new").read_text().splitlines()[0] == f"word I-X {tags.split()[0]}"


def test_a_tag_that_only_the_dev_file_has_counts_as_one_word_in_balanced_weights(tmp_path):
    for name, tags in {"train": "A A A B", "dev": "A C"}.items():
        (tmp_path / f"{name}.txt").write_text("".join(f"word {tag}\n" for tag in tags.split()))
    task = loaded(train=f"{tmp_path}/train.txt", dev=f"{tmp_path}/dev.txt", class_weights="balanced").task
    assert task.labels == ("A", "B", "C") and task.class_weights == pytest.approx((5 / 9, 5 / 3, 5 / 3))  # words / (labels * words of it)


def test_a_cell_of_a_csv_file_may_be_a_book(tmp_path):
    write_csv(tmp_path / "a.csv", ("text", "label"), [("word " * 40_000, "x"), ("two", "y")] * 5)
    assert len(loaded(train=f"{tmp_path}/a.csv", dev=.2).splits["train"][0]["text"]) >= 199_999


def test_the_text_may_be_the_last_column_of_a_conll_file(tmp_path):
    (tmp_path / "a.txt").write_text("O the\nB-X cat\n\n" * 10)
    assert loaded(train=f"{tmp_path}/a.txt", text=-1, label=0).splits["train"][0]["text"] == ["the", "cat"]


BAD_FILES = [
    ("a.csv", "text,label\none,x\nthree,y\ntwo\n", {}, r"a.csv, line 4: 1 columns instead of 2 \(1 of 3 rows are malformed\)"),
    ("a.csv", "text,label\none,x\n,y\n", {}, r"a.csv, line 3: the column 'text' contains ''"),
    ("a.csv", "text,label\none,x\nthree,y\ntwo,\n", {}, r"a.csv, line 4: the column 'label' contains '', which is not one of x, y"),
    ("a.csv", 'text,label\n"one"s,x\n', {}, r"a.csv, line 2 is not valid CSV .* Quote cells"),
    ("a.csv", "a,b,label\n1,2,3\n", {}, r"a.csv has the columns a, b, label: set 'text' of the task 't'"),
    ("a.csv", "text,label\none,x\n", {"label": "stars"}, r"a.csv: missing column 'stars' \(found: text, label\)"),
    ("a.csv", "text,label\n" + "".join(f"one,{i}x\n" for i in range(99)), {}, r"99 different labels in 99 rows, such as 0x"),
    ("a.csv", "text,label\n", {}, r"a.csv has no rows"),
    ("a.csv", 'text,label\none,"5,1"\ntwo,3\n', {}, r"a.csv: the labels are numbers with decimal commas, such as '5,1'"),
    ("a.csv", "text,label\n" + "zero,.5\n" + "one,1.5\n" * 18 + "two,n/a\n", {}, r"a.csv, line 21: .* 'n/a', which is not a number"),
    ("a.csv", "text,label\n" + "zero,.5\n" + "one,1.5\n" * 18 + "two,inf\n", {}, r"a.csv, line 21: .* 'inf'"),
    ("a.csv", "text,label\na b,A B\nc d\n", {"kind": "tagging"}, r"a.csv, line 3: 1 columns instead of 2"),
    ("a.csv", "text,label\n" + "one,1.5\n" * 9, {}, r"a.csv: regression needs different numbers, but the labels are 1.5"),
    ("a.csv", "text,label,label\none,x,y\ntwo,y,x\n", {"text": "text"}, r"a.csv has several columns 'label'"),
    ("a.jsonl.gz", "", {}, r"a.jsonl.gz is compressed"),
    ("a.csv", "text,label,group\none,x,1\ntwo,y,2\n", {"groups": "group", "dev": .9}, r"a dev set of 0.9 of the rows from 2 'groups'"),
    ("a.csv", "text,label\none,1.5\ntwo,2\n", {"class_weights": "balanced"}, r"class_weights='balanced' of the task 't' needs classes"),
    ("a.csv", "text,label\none,1.5\ntwo,2\n", {"positive": "2"}, "positive='2' of the task 't' needs classes"),
    ("a.csv", "text,label\none,x\ntwo,y\n", {"metrics": "bleu"}, r"metrics='bleu' .* does not apply to classification"),
    ("a.csv", "text,label\none,x\ntwo,y\nthree,z\n", {"metrics": "f1"}, r"metrics='f1' .* labels x, y, z. Choose from accuracy, macro_f1"),
    ("a.csv", "text;name\none;x\n", {}, r"a.csv: missing column 'label' \(found: text, name\)"),
    ("a.csv", "text,label\none,x\ntwo,y\n", {"positive": "z"}, r"positive='z' of the task 't' is not one of its labels x, y"),
    ("a.jsonl", '{"text": "a", "label": 1}\nno\n', {}, r"a.jsonl, line 2 is not valid JSON"),
    ("a.jsonl", '{"text": "a", "label": 1}\n{"text": 5, "label": 2}\n', {}, r"line 2: the column 'text' contains 5, which is not a text"),
    ("a.jsonl", '{"text": "a", "label": "x \\ud83d"}\n', {}, r"a.jsonl, line 1 is not valid JSON .*surrogates"),
    ("a.jsonl", '{"text": "a b", "label": "x y"}\n{"text": ["b"], "label": 3}\n', {"kind": "tagging"}, r"line 2: .* contains 3, .* a list"),
    ("a.jsonl", '{"text": ["a", "b"], "label": ["x"]}\n{"text": ["c"], "label": ["y"]}\n', {}, r"line 1: the numbers of words and"),
    ("a.txt", "one O\ntwo\n\n", {}, r"a.txt, line 2: 1 columns instead of 2"),
    ("a.txt", "one A\ntwo B\n\nthree B\n", {"metrics": "entity_f1"}, r"labels A, B. Choose from accuracy, macro_f1.*tags such as B-NP"),
    ("a.txt", "one A\ntwo B\n", {"scheme": "iob2"}, r"scheme='iob2' of the task 't' needs tags such as"),
    ("a.txt", "one N A\ntwo N B\n", {"text": [0, 1]}, r"'text' of the task 't' has two: 0, 1"),
    ("a.csv", "text,label\none,\ntwo,\n", {}, r"a.csv: all labels are missing"),
    ("a.parquet", "text", {}, r"a.parquet is not a readable parquet file"),
]


@pytest.mark.parametrize("name, content, given, message", BAD_FILES)
def test_bad_files_are_rejected_with_file_line_and_column(tmp_path, name, content, given, message):
    (tmp_path / name).write_text(content)
    with pytest.raises(PlainError, match=message):
        loaded(train=str(tmp_path / name), **{"dev": str(tmp_path / name), **given})


@pytest.mark.parametrize("given, message", [
    ({"train": "a.csv", "lable": "x"}, "Unknown key: 'lable'. Did you mean 'label'?"),
    ({"text": "x"}, "train: None. Use a file that ends with .csv"),
    ({"train": "a.xlsx"}, "train: 'a.xlsx'. Use a file that ends with .csv"),
    ({"train": "a.csv", "kind": "ranking"}, "kind: 'ranking'. Use 'classification', 'regression', 'tagging'"),
    ({"train": "a.csv", "dev": "b.csv", "groups": "x"}, "'dev' is the file 'b.csv'. Leave one"),
    ({"train": "rte.csv"}, "an own task cannot be called 'rte'"),
])
def test_invalid_descriptions_are_rejected_before_a_file_is_read(given, message):
    with pytest.raises(PlainError, match=message):
        finetune.c.override([f"tasks={given}"])


def test_settings_of_own_tasks_are_given_by_name():
    overrides = ["tasks=[{'train': 'data/reviews/train.csv'}, 'rte']", "task_overrides={'reviews': {'lr': .1}}", "th_run={'reviews': 1}"]
    assert complete_finetuning(finetune.c.override(overrides)).tasks[0]["name"] == "reviews"
    with pytest.raises(PlainError, match="Invalid value for task_overrides: there is no task 'review'. Choose from cola, .*, reviews"):
        complete_finetuning(finetune.c.override([overrides[0], "task_overrides={'review': {'lr': .1}}"]))
    with pytest.raises(PlainError, match="two tasks are called 'a'. Remove one, or set 'name'"):
        finetune.c.override(["tasks=[{'train': 'a.csv'}, {'train': 'b.csv', 'name': 'a'}]"])
    with pytest.raises(PlainError, match="File not found: 'none.csv'"):
        loaded(train="none.csv")


@pytest.mark.parametrize("kind, labels, is_hinted", [("classification", ("1", "2"), True), ("multilabel", ("1|2", "2"), False),
                                                     ("tagging", ("1", "2"), False)])
def test_only_classes_that_are_numbers_get_a_hint_about_regression(tmp_path, kind, labels, is_hinted):
    write_csv(tmp_path / "a.csv", ("text", "label"), [("word", labels[i % 2]) for i in range(20)])
    notices = loaded(train=f"{tmp_path}/a.csv", kind=kind).notices
    assert any("'regression'" in notice for notice in notices) == is_hinted
