"""The files of own tasks: kinds, labels, formats, predictions, and errors."""
import itertools
import json
from collections import Counter
from pathlib import Path

import pandas as pd
import pytest
import torch
from csv_files import write_csv

import finetune
from _utils.errors import UserError
from _utils.finetuning.config import complete_finetuning
from _utils.tasks.custom import complete_custom_task, load_custom_task


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def loaded(train="a.csv", name="t", **given):
    return load_custom_task(complete_custom_task({"name": name, "train": train, **given}))


def write(path, rows):
    """Write dictionaries as a table in the format of the path, or sentences such as "Anna B-PER, left O"."""
    if path.endswith(("conll", "txt")):
        content = "\n\n".join("\n".join(words.split(", ")) for words in rows)
        Path(path).write_text(content + "\n", encoding="utf-8")
        return path
    table = pd.DataFrame(rows)
    if path.endswith("parquet"):
        table.to_parquet(path)
    elif path.endswith("jsonl"):
        table.to_json(path, orient="records", lines=True)
    else:
        table.to_csv(path, index=False, sep="\t" if path.endswith("tsv") else ",")
    return path


def labelled(labels, path="a.csv"):
    """Write a table of a text for each label."""
    return write(path, [{"text": f"text {i}", "label": label} for i, label in enumerate(labels)])


def names_of(task, labels):
    return [task.labels[i] for i in labels]


def has(notices, *texts):
    return any(all(text in notice for text in texts) for notice in notices)


# Kinds

@pytest.mark.parametrize("labels, kind, found", [
    (["b", "a", "b"], "classification", ("a", "b")),
    (["10", 9., "10"], "classification", ("9", "10")),
    ([1, 1., 0], "classification", ("0", "1")),  # equal numbers are one label
    (["1.5", "2", "3"], "regression", ()),
    (["1|2", "2", "1"], "multilabel", ("1", "2")),
])
def test_the_kind_and_the_labels_follow_from_the_file(labels, kind, found):
    labelled(labels * 5, "a.jsonl")
    data = loaded("a.jsonl", dev=.2)
    assert (data.task.kind, data.task.labels) == (kind, found) and data.notices[0].startswith(kind)
    assert loaded("a.jsonl", dev=.2).splits["validation"]["text"][:] == data.splits["validation"]["text"][:]
    if "10" in labels:
        assert "'kind': 'regression'" in data.notices[0]
        assert loaded("a.jsonl", kind="regression").task.kind == "regression"


def test_a_mistake_in_one_row_does_not_change_the_kind():
    """A separator in a score, and a sentence without words."""
    labelled([*(i / 10 for i in range(150)), "3|4"])
    write("a.jsonl", [{"text": ["a", "cat"], "label": ["O", "B-X"]}] * 150 + [{"text": [], "label": []}])
    for path, kind in (("a.csv", "regression"), ("a.jsonl", "tagging")):
        data = loaded(path)
        assert data.task.kind == kind and has(data.notices, "skipped 1 of 151 rows")


@pytest.mark.parametrize("labels, kind", [
    (["a"] * 39 + ["a|b"], "multilabel"), (["1", "2"] * 30 + ["2.5"], "regression"),
    (["a"] * 39 + [["a", "b"]], "multilabel"),
    (["O"] * 39 + [[[0, 4, "PER"]]], "tagging")])
def test_one_row_in_twenty_does_not_decide_on_the_kind(labels, kind):
    """The rows that would are named, and `kind` is asked for."""
    labelled(labels, "a.jsonl")
    with pytest.raises(UserError, match=rf"1 of {len(labels)} labels.*line {len(labels)}\b.*'kind'.*{kind}"):
        loaded("a.jsonl")
    if kind != "tagging":
        labelled(labels[:20] + labels[-3:] * 2, "a.jsonl")
        notice = loaded("a.jsonl", dev=.2).notices[0]
        assert notice.startswith(kind) and "2 of 26 labels" in notice


@pytest.mark.parametrize("kind, labels, is_hinted", [
    ("classification", ("1", "2"), True), ("multilabel", ("1|2", "2"), False), ("tagging", ("1 1", "2 2"), False)])
def test_only_classes_that_are_numbers_get_a_hint_about_regression(kind, labels, is_hinted):
    labelled(labels * 10)
    assert has(loaded(kind=kind).notices, "'regression'") == is_hinted


# Labels

def test_the_dev_set_has_rows_of_each_class():
    """Counts of the labels are printed, and those of fewer than five rows are named.

    The only row of a class is for training.
    """
    labelled(["rare" if i % 40 == 0 else "usual" for i in range(200)])
    data = loaded()
    train, validation = (Counter(data.splits[split]["label"]) for split in ("train", "validation"))
    assert train == {0: 4, 1: 175} and validation == {0: 1, 1: 20}
    assert has(data.notices, "train: rare 4, usual 175") and "rare (train 4), rare (validation 1)" in data.notices[-1]
    labelled(["a", "b"] * 20 + ["once"])
    data = loaded()
    assert data.splits["train"]["label"].count(2) == 1 and 2 not in data.splits["validation"]["label"]


@pytest.mark.parametrize("dev, found", [(.1, "2 of 2"), ("other.csv", "3 of 4")])
def test_texts_that_are_also_in_the_training_set_are_counted(dev, found):
    write_csv("a.csv", ("text", "label"), [("same", "ab"[i % 2]) for i in range(20)])
    write_csv("other.csv", ("text", "label"), [("same", "a"), ("other", "a"), ("same", "b"), ("same", "b")])
    [warning] = [notice for notice in loaded(dev=dev).notices if "also in the training set" in notice]
    assert f"{found} texts in validation" in warning


def test_the_rows_of_a_group_stay_in_one_split():
    rows = [{"text": f"text {i}", "label": "xy"[i % 3 == 0], "patient": f"patient {i // 10}"} for i in range(200)]
    write("a.csv", rows)
    data = loaded(groups="patient", dev=.2)
    patients = {split: set(rows["group"]) for split, rows in data.splits.items()}
    assert len(patients["train"]) == 16 and len(patients["validation"]) == 4
    assert not patients["train"] & patients["validation"]
    assert abs(Counter(data.splits["validation"]["label"])[1] - 67 / 5) < 2
    with pytest.raises(UserError, match="a.csv: missing column 'doctor'"):
        loaded(groups="doctor")
    write("a.csv", [row | {"patient": "one"} for row in rows])
    with pytest.raises(UserError, match="from 1 'groups'"):
        loaded(groups="patient")


@pytest.mark.parametrize("rows, given", [
    ([("one two three", "tax| contract"), ("four five", "tax"), ("six seven", "")], {}),
    ([("one two three", "tax;contract"), ("four five", "tax"), ("six seven", "")], {"separator": ";"}),
    ([("one two three", "['contract', 'tax']"), ("four five", "['tax']"), ("six seven", "[]")], {}),  # pandas' lists
    ([("one two three", '["contract", "tax"]'), ("four five", '["tax"]'), ("six seven", "[]")], {}),
    ([("one two three", "['contract' 'tax']"), ("four five", "['tax']"), ("six seven", "[]")], {}),  # its arrays
    ([("one two three", "1", "1"), ("four five", "0", "1"), ("six seven", "", "0")], {"label": ["contract", "tax"]}),
    ([("one two three", "1.0", "1."), ("four five", "0.0", "1"), ("six seven", "0", " 0")],
     {"label": ["contract", "tax"]}),
    ([("one two three", "TRUE", "True"), ("four five", "FALSE", "true"), ("six seven", "False", "")],
     {"label": ["contract", "tax"]}),
])
def test_several_labels_per_text(rows, given):
    """Strings with a separator, lists, or a column of 1 and 0 for each label."""
    write_csv("a.csv", ("text", *given["label"]) if "label" in given else ("text", "label"), rows * 10)
    data = loaded(test="a.csv", **given)
    assert (data.task.kind, data.task.labels) == ("multilabel", ("contract", "tax"))
    assert data.task.metrics == ("micro_f1", "macro_f1")
    assert list(map(sorted, data.splits["test"]["label"][:3])) == [[0, 1], [1], []]
    assert has(data.notices, "validation: contract 1, tax 2")


@pytest.mark.parametrize("cell", ["yes", "2", "x"])
def test_columns_of_labels_with_other_cells_than_1_and_0_are_named(cell):
    write_csv("a.csv", ("text", "x", "y"), [("one", "0", "1")] * 30 + [("two", cell, "0")])
    with pytest.raises(UserError, match=f"line 32: the column 'x' contains '{cell}'"):
        loaded(label=["x", "y"])


@pytest.mark.parametrize("cells, place", [
    (["['art', 'news']", "['art']"] * 10 + ["['art', 'news'"], "line 22: .*'label'"),
    (["[0, 1, 0]"] * 9, "line 2: .*label"),
    (["[1. 0. 0.]"] * 9, "line 2: .*label")])
def test_broken_lists_and_vectors_of_ones_and_zeros_are_named(cells, place):
    labelled(cells)
    with pytest.raises(UserError, match=f"a.csv, {place}"):
        loaded()


def test_texts_in_brackets_are_texts():
    write_csv("a.csv", ("text", "label"), [(f"[laughs] no {i}", "a") for i in range(10)] + [("[ ok ]", "b")] * 10)
    assert loaded().splits["train"]["text"][0].startswith("[")


def test_f1_is_that_of_the_positive_label():
    labelled(["ham", "spam"] * 5)
    for positive, f1 in (("ham", 2 / 3), (None, .8)):
        data = loaded(metrics="f1", positive=positive)
        assert f"f1 of {positive or 'spam'!r}" in data.notices[0]
        assert data.task.score(torch.eye(2)[[0, 1, 1, 1]], [0, 0, 1, 1])["f1"] == pytest.approx(f1)


@pytest.mark.parametrize("column", [["", ""], ["-1", "-1"], None])
def test_a_test_file_without_labels_is_only_predicted(column):
    labelled("xy" * 5)
    write_csv("b.csv", ("text", "label") if column else ("text",), [("one", *(column or [])[:1])] * 2)
    data = loaded(test="b.csv")
    assert data.task.labels == ("x", "y") and data.splits["test"]["label"][:] == [-1, -1]


def test_a_cell_of_a_csv_file_may_be_a_book():
    write_csv("a.csv", ("text", "label"), [("word " * 40_000, "x"), ("two", "y")] * 5)
    assert len(loaded(dev=.2).splits["train"][0]["text"]) >= 199_999


# Tags

@pytest.mark.parametrize("tags", [
    "['B-PER', 'I-PER', 'O']", '["B-PER", "I-PER", "O"]', "['B-PER' 'I-PER'\n 'O']", "B-PER I-PER O"])
@pytest.mark.parametrize("words", ["['Anna', \"d'Arc\", 'went']", "Anna d'Arc went", "['Anna' \"d'Arc\" 'went']"])
def test_words_and_tags_of_a_csv_file_are_lists_or_strings_with_spaces(words, tags):
    write_csv("a.csv", ("words", "tags"), [(words, tags)] * 20)
    task = loaded(text="words", label="tags", kind="tagging")
    assert task.task.labels == ("B-PER", "I-PER", "O") and task.splits["train"]["text"][0] == ["Anna", "d'Arc", "went"]


def test_words_and_tags_in_json_lines():
    write("a.jsonl", [{"words": ["Mr.", "Smith", "left"], "tags": ["O", "NAME", "O"]}] * 4)
    data = loaded("a.jsonl", text="words", label="tags", dev="a.jsonl")
    assert data.task.kind == "tagging" and data.task.labels == ("NAME", "O")
    assert data.task.metrics == ("accuracy", "macro_f1")
    assert data.splits["train"][0] == {"text": ["Mr.", "Smith", "left"], "label": [1, 0, 1]}


def test_the_text_may_be_the_last_column_of_a_conll_file():
    write("a.conll", ["O the, B-X cat"] * 10)
    assert loaded("a.conll", text=-1, label=0).splits["train"][0]["text"] == ["the", "cat"]


@pytest.mark.parametrize("comments",
                         ["# sent_id = 5", "# id 0-abc\tdomain=en", "# newdoc, # text = Anna went", "# text = a # b",
                                      "# a longer comment", "# x = O"])
def test_comments_before_a_sentence_are_no_words(comments):
    write("a.conll", [f"{comments}, # NN O, Anna NN B-PER, # NN O"] * 20)
    data = loaded("a.conll")
    assert data.task.labels == ("B-PER", "O")
    assert set(map(tuple, data.splits["train"]["text"][:])) == {("#", "Anna", "#")}


def test_the_line_with_other_columns_than_most_is_named():
    write("a.conll", ["% a comment of this file, Anna NN B-PER, left VB O"] * 3)
    with pytest.raises(UserError, match="a.conll, line 1: 6 columns instead of 3"):
        loaded("a.conll")
    write("a.conll", ["# #, 4 CD"] * 20)  # PTB's tag of this word
    assert loaded("a.conll").task.labels == ("#", "CD")


@pytest.mark.parametrize("tags", ["NN VB -", "B_PER I_PER O", "0 1 2", "N_B V_E O_X"])
def test_other_tags_than_those_of_entities_are_plain_labels(tags):
    """The first notice says what entity_f1 needs."""
    data = loaded(write("a.conll", [", ".join(f"word {tag}" for tag in tags.split())] * 9))
    assert set(data.task.labels) == set(tags.split()) and "entity_f1" not in data.task.metrics
    assert "B-PER" in data.notices[0]


def test_a_few_tags_that_are_not_like_the_others_are_named():
    write("a.conll", ["Anna B-PER, Lee I-PER, left O, Oslo LOC"] * 9)
    assert has(loaded("a.conll").notices, "warning", "entity_f1", "LOC")


def test_tags_that_only_the_test_file_has_are_errors_and_no_labels():
    """Scores are those of seqeval on the names of the tags."""
    for name, tags in {"train": "B-X I-X O", "dev": "B-Y O O", "test": "B-X I-Z O"}.items():
        write(f"{name}.conll", [", ".join(f"word {tag}" for tag in tags.split())])
    data = loaded("train.conll", dev="dev.conll", test="test.conll")
    assert data.task.labels == ("B-X", "B-Y", "I-X", "O") and "the tags I-Z of the test file" in data.notices[1]
    correct_but_for_one, targets = torch.eye(4)[[0, 3, 3]], data.splits["test"]["label"][:]
    assert data.test_task.score(correct_but_for_one, targets) == {"entity_f1": pytest.approx(2 / 3), "accuracy": 2 / 3}


@pytest.mark.parametrize("scheme, tags", [
    ("iob2", "B-X B-X I-X O B-Y B-Y"), ("bioes", "S-X B-X E-X O S-Y S-Y"), (None, "I-X B-X I-X O B-Y B-Y")])
def test_tags_are_converted_to_one_scheme(scheme, tags):
    """IOB1 begins an entity with I- unless it follows one of its type. A mixture with IOB2 is counted."""
    write("a.conll", [", ".join(f"word {tag}" for tag in "I-X B-X I-X O B-Y B-Y".split())])
    data = loaded("a.conll", dev="a.conll", scheme=scheme)
    assert names_of(data.task, data.splits["train"]["label"][0]) == tags.split()
    assert has(data.notices, "1 entities begin with I- and 1 with B-, a mixture") == (not scheme)


def test_a_tag_that_only_the_dev_file_has_counts_as_one_word_in_balanced_weights():
    write("train.conll", ["word A, word A, word A, word B"]), write("dev.conll", ["word A, word C"])
    task = loaded("train.conll", dev="dev.conll", class_weights="balanced").task
    assert task.labels == ("A", "B", "C")
    assert task.class_weights == pytest.approx((5 / 9, 5 / 3, 5 / 3))  # words / (labels * words of it)


@pytest.mark.parametrize("space", ["\u00a0", "\u202f", "\u2007", "\u2009", "\u3000", "\u200b", "\x85"])
def test_other_spaces_than_those_between_words_are_part_of_a_word(space):
    write("a.conll", [f"10{space}000 B-N, {space} O"] * 20)
    assert loaded("a.conll").splits["train"]["text"][0] == [f"10{space}000", space]
    write_csv("a.csv", ("text", "label"), [(f"10{space}000 men", "B-N O")] * 20)
    assert loaded(kind="tagging").splits["train"]["text"][0] == [f"10{space}000", "men"]


# Character spans

TEXT, SPANS = "Anna Lee (Oslo) left.", [[0, 8, "PER"], [10, 14, "LOC"]]
TAGS = ["B-PER", "I-PER", "O", "B-LOC", "O", "O", "O"]
KEYS = {"label studio": ("start", "end", "labels"), "doccano": ("start_offset", "end_offset", "label"),
        "pipeline": ("start", "end", "entity_group")}


def as_spans(tool):
    if tool == "spacy":
        return {"entities": SPANS}
    return [dict(zip(KEYS[tool], span)) | {"id": 7} for span in SPANS] if tool in KEYS else SPANS


@pytest.mark.parametrize("tool, suffix",
                         [("spacy", "jsonl"), *itertools.product(["lists", *KEYS], ["jsonl", "csv", "parquet"])])
def test_character_spans_are_tags_of_words_and_are_predicted_as_spans(tool, suffix):
    """In CSV they are strings, as pandas or JSON write them; a text without spans has an empty list."""
    cells = [as_spans(tool), as_spans(tool), []]
    if suffix == "csv" or suffix == "parquet" and tool == "lists":  # a column of parquet has one type
        cells = [repr(cell) if tool == "lists" else json.dumps(cell) for cell in cells]
    path = write(f"a.{suffix}",
                 [{"text": text, "entities": cell} for text, cell in zip([TEXT, TEXT, "None here."], cells)] * 10)
    data = loaded(path, test=path, text="text", label="entities")
    task, test = data.task, data.splits["test"]
    assert (task.kind, task.labels, task.metrics[0]) == ("tagging", ("B-LOC", "B-PER", "I-PER", "O"), "entity_f1")
    assert [names_of(task, labels) for labels in test["label"][:3]] == [TAGS, TAGS, ["O"] * 3]
    assert has(data.notices, "spans")
    written = predictions(data, list(itertools.chain(*test["label"])))
    assert list(map(json.loads, written["prediction"][:3])) == [SPANS, SPANS, []]


@pytest.mark.parametrize("text, spans, tags, warning", [
    ("张三在北京", [[0, 2, "PER"], [3, 5, "LOC"]], "B-PER I-PER O B-LOC I-LOC", None),
    ("アンナはベルリンに", [[0, 3, "PER"], [4, 8, "LOC"]], "B-PER O B-LOC O", None),
    ("e\u0301tait Zoe\u0308 ici", [[7, 11, "P"]], "O B-P O", None),
    ("Anna left", [[0, 3, "PER"]], "B-PER O", "inside a word"),  # an end that is the last character
    ("New York Times", [[0, 8, "LOC"], [0, 14, "ORG"]], "B-ORG I-ORG I-ORG", "left out"),
    ("a  b", [[1, 3, "X"], [0, 1, "Y"]], "B-Y O", "left out"),
    ("Bob Lee", [[0, 7, "Full name"]], "B-Full name I-Full name", None)])
def test_the_words_of_spans_follow_from_the_text_alone(text, spans, tags, warning):
    write("a.jsonl", [{"text": text, "label": spans}, {"text": "and x", "label": []}] * 10)
    data = loaded("a.jsonl", dev="a.jsonl")
    assert " ".join(names_of(data.task, data.splits["train"]["label"][0])) == tags
    assert data.task.metrics[0] == "entity_f1"
    warnings = [notice for notice in data.notices if notice.startswith("warning") and "spans" in notice]
    assert len(warnings) == bool(warning) and (warning or "") in "".join(warnings)


@pytest.mark.parametrize("label, message", [
    ([[0, 99, "PER"]], "99"), ([[3, 1, "PER"]], "3, 1"), ([["a", "b"]], "neither"),
    ([[0, 4, ["PER", "ORG"]]], "neither"),
    ([{"from": 0, "to": 4}], "neither")])
def test_lists_that_are_no_spans_of_the_text_are_named(label, message):
    write("a.jsonl", [{"text": "Anna left", "label": label}] * 20)
    with pytest.raises(UserError, match=f"line 1: .*{message}"):
        loaded("a.jsonl")


@pytest.mark.parametrize("label", ["PER", "", [[0, 99, "PER"]]])
def test_a_row_without_valid_spans_is_skipped(label):
    write("a.jsonl", [{"text": "Anna left", "label": [[0, 4, "PER"]]}] * 150 + [{"text": "Anna left", "label": label}])
    data = loaded("a.jsonl", dev=.2)
    assert data.task.labels == ("B-PER", "O") and has(data.notices, "skipped 1 of 151 rows", "line 151")


def test_a_test_file_of_empty_lists_has_no_labels():
    write("a.jsonl", [{"text": "Anna left", "label": [[0, 4, "PER"]]}] * 20)
    write("b.jsonl", [{"text": "Anna left", "label": []}])
    assert loaded("a.jsonl", test="b.jsonl").test_task is None


# Predictions

def predictions(data, decisions):
    """The file of predictions as the documents read it."""
    [path] = data.task.test_files.values()
    data.task.write(Path(path), data.splits["test"], decisions)
    return pd.read_csv(path, sep="\t", index_col="index", keep_default_na=False)


TO_PREDICT = {
    "b.csv": ('\ntext,id\n"a ""b"",\nc",1\n\n   \n,2\n"",3\nx,\n\n', {}),
    "semicolon.csv": ("text;id\na;1\n\nb;2\nc;\nd;4\n", {"sep": ";"}),
    "one.csv": ('text\na\n\n""\n  \nb\nc\n', {}),
    "b.tsv": ('text\tid\r\n"a\t1\r\n\r\nb"\t2\r\nc\t\r\nd\t4\r\n\r\n', {"sep": "\t", "quoting": 3}),
    "one.tsv": ("text\na\n\nb\n   \nc\nd\n", {"sep": "\t", "quoting": 3}),
    "b.jsonl": ('{"text": "a", "id": 1}\n\n{"text": "b", "id": 2}\n{"text": ""}\n{"id": 5, "text": "c"}\n',
                {"lines": True}),
    "b.parquet": ([{"text": text, "id": i} for i, text in enumerate("abcd")], {}),
}


@pytest.mark.parametrize("path", TO_PREDICT)
def test_the_index_of_a_prediction_is_the_row_that_pandas_reads(path):
    """Blank lines are no rows."""
    content, options = TO_PREDICT[path]
    if path.endswith("parquet"):
        write(path, content)
        table = pd.read_parquet(path)
    else:
        Path(path).write_text(content, newline="")
        if path.endswith("jsonl"):
            table = pd.read_json(path, **options)
        else:
            table = pd.read_csv(path, keep_default_na=False, **options)
    labelled("xy" * 5)
    data = loaded(test=path)
    joined = table.join(predictions(data, [0, 1, 1, 0]))
    assert joined["prediction"].tolist() == ["x", "y", "y", "x"] and list(joined)[:-1] == list(table)
    assert data.splits["test"]["text"][:] == joined["text"].tolist()


@pytest.mark.parametrize("labels, decisions, written", [
    (["a", "b\tc", 'd "e"'], [1, 2, 0], ["b\tc", 'd "e"', "a"]),
    (["10", "9"], [1, 0], [10, 9]),
    ([["a", "b"], ["a"], []], [[True, True], [False, False], [False, True]], ["a|b", "", "b"]),
    ([["a|b", "c"], ["c"]], [[True, True], [False, False], [False, True]], ['["a|b", "c"]', "[]", '["c"]']),
    ([1.5, 2, 3], [1.23456789, 2e9], [1.23457, 2e9])])
def test_predictions_are_labels_numbers_or_joined_labels(labels, decisions, written):
    labelled(labels * 10, "a.jsonl")
    assert predictions(loaded("a.jsonl", test="a.jsonl"), decisions)["prediction"].tolist() == written


@pytest.mark.parametrize("path, rows", [
    ("a.conll", ["# id = 1, Anna NN B-PER, left VB O", "-DOCSTART- X O", "Oslo NN B-PER"] * 10),
    ("a.jsonl", [{"text": ["Anna", "left"], "label": ["B-PER", "O"]}, {"text": ["Oslo"], "label": ["B-PER"]}] * 10),
    ("a.csv", [{"text": "Anna left", "label": "B-PER O"}, {"text": "Oslo", "label": "B-PER"}] * 10)])
def test_predicted_tags_are_conll_lines_that_can_be_read_again(path, rows):
    data = loaded(write(path, rows), test=path, kind="tagging")
    data.task.write(Path("t.conll"), data.splits["test"], [0, 1, 1] * 10)
    assert data.task.test_files == {"test": "t.conll"}
    assert Path("t.conll").read_text() == "Anna\tB-PER\nleft\tO\n\nOslo\tO\n\n" * 10
    assert loaded("t.conll", dev="t.conll").splits["validation"]["text"][:2] == [["Anna", "left"], ["Oslo"]]


# Errors

BAD_FILES = [
    ("a.csv", "text,label\none,x\nthree,y\ntwo\n", {},
     r"a.csv, line 4: 1 columns instead of 2 \(1 of 3 rows are malformed: line 4\)"),
    ("a.csv", "text,label\none,x\nthree,y\ntwo,x,\n", {}, r"a.csv, line 4: 3 columns instead of 2"),
    ("a.tsv", "text\tlabel\none\tx\nthree\ntwo\ty\n", {}, r"a.tsv, line 3: 1 columns instead of 2"),
    ("a.csv", 'text,label\n"one\n\nmore",x\n,y\n', {}, r"a.csv, line 5: the column 'text' contains ''"),
    ("a.csv", "text,label\none,x\nthree,y\ntwo,\n", {},
     r"a.csv, line 4: the column 'label' contains '', which is not one of x, y"),
    ("a.csv", 'text,label\n"one"s,x\n', {}, r"a.csv, line 2 is not valid CSV .* Quote cells"),
    ("a.csv", 'text,label\none,x\n"two,y\n', {}, r"a.csv, line 3 is not valid CSV"),
    ("a.csv", b"text,label\none,x\ncaf\xe9,y\n", {}, r"a.csv, line 3 is not UTF-8"),
    ("a.csv", "a,b,label\n1,2,3\n", {}, r"a.csv has the columns a, b, label: set 'text' of the task 't'"),
    ("a.csv", "text,label\none,x\n", {"label": "stars"}, r"a.csv: missing column 'stars' \(found: text, label\)"),
    ("a.csv", "text,label\n" + "".join(f"one,{i}x\n" for i in range(99)), {},
     r"99 different labels in 99 rows, such as 0x"),
    ("a.csv", "text,label\n", {}, r"a.csv has no rows"),
    ("a.csv", "", {}, r"a.csv"),
    ("a.csv", "text,label\n" + "zero,.5\n" + "one,1.5\n" * 18 + "two,n/a\n", {},
     r"a.csv, line 21: .* 'n/a', which is not a number"),
    ("a.csv", "text,label\n" + "zero,.5\n" + "one,1.5\n" * 18 + "two,inf\n", {}, r"a.csv, line 21: .* 'inf'"),
    ("a.csv", "text,label\na b,A B\nc d\n", {"kind": "tagging"}, r"a.csv, line 3: 1 columns instead of 2"),
    ("a.csv", "text,label\n" + "one,1.5\n" * 9, {"kind": "regression"},
     r"a.csv: regression needs different numbers, but the labels are 1.5"),
    ("a.csv", "text,label,label\none,x,y\ntwo,y,x\n", {"text": "text"}, r"a.csv has several columns 'label'"),
    ("a.jsonl.gz", "", {}, r"a.jsonl.gz is compressed"),
    ("a.csv", "text,label,group\none,x,1\ntwo,y,2\n", {"groups": "group", "dev": .9},
     r"a dev set of 0.9 of the rows from 2 'groups'"),
    ("a.csv", "text,label\none,1.5\ntwo,2\n", {"class_weights": "balanced"},
     "'class_weights' does not apply"),
    ("a.csv", "text,label\none,1.5\ntwo,2\n", {"positive": "2"}, "'positive' does not apply"),
    ("a.csv", "text,label\none,x\ntwo,y\n", {"metrics": "bleu"}, r"metrics='bleu' .* does not apply to classification"),
    ("a.csv", "text,label\none,x\ntwo,y\nthree,z\n", {"metrics": "f1"},
     r"metrics='f1' .* labels x, y, z. Choose from accuracy, macro_f1"),
    ("a.csv", "text;name\none;x\n", {}, r"a.csv: missing column 'label' \(found: text, name\)"),
    ("a.csv", "text,label\none,x\ntwo,y\n", {"positive": "z"},
     r"positive='z' of the task 't' is not one of its labels x, y"),
    ("a.jsonl", '{"text": "a", "label": 1}\nno\n', {}, r"a.jsonl, line 2 is not valid JSON"),
    ("a.jsonl", '{"text": "a", "label": 1}\n{"text": 5, "label": 2}\n', {},
     r"line 2: the column 'text' contains 5, which is not a text"),
    ("a.jsonl", '{"text": "a", "label": "x \\ud83d"}\n', {}, r"a.jsonl, line 1 is not valid JSON .*surrogates"),
    ("a.jsonl", '{"text": "a b", "label": "x y"}\n{"text": ["b"], "label": 3}\n', {"kind": "tagging"},
     r"line 2: .* contains 3, .* a list"),
    ("a.jsonl", '{"text": ["a", "b"], "label": ["x"]}\n{"text": ["c"], "label": ["y"]}\n', {},
     r"line 1: the numbers of words and"),
    ("a.txt", "one O\ntwo\n\n", {}, r"a.txt, line 2: 1 columns instead of 2"),
    ("a.txt", "one A\ntwo B\n\nthree B\n", {"metrics": "entity_f1"},
     r"labels A, B. Choose from accuracy, macro_f1.*tags such as B-NP"),
    ("a.txt", "one A\ntwo B\n", {"scheme": "iob2"}, r"scheme='iob2' of the task 't' needs tags such as"),
    ("a.txt", "one N A\ntwo N B\n", {"text": [0, 1]}, r"'text' of the task 't' has two: 0, 1"),
    ("a.csv", "text,label\none,\ntwo,\n", {}, r"a.csv: all labels are missing"),
    ("a.parquet", "text", {}, r"a.parquet is not a readable parquet file"),
]


@pytest.mark.parametrize("name, content, given, message", BAD_FILES)
def test_bad_files_are_rejected_with_file_line_and_column(folder, name, content, given, message):
    (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(UserError, match=message) as error:
        loaded(name, **{"dev": name, **given})
    assert "download" not in str(error.value)  # as only GLUE's files can be


@pytest.mark.parametrize("name, content, given, malformed", [
    ("a.csv", "text,label\n" + "one,x\ntwo,y\n" * 5 + "short\n,x\nlong,x,y\nthree,\n", {},
     "4 of 14 rows .*: line 12, line 13, line 14 [.]{3}"),
    ("a.csv", "text,label\n" + "one,1.5\ntwo,2\n" * 10 + "three,many\n" * 2, {"kind": "regression"},
     "2 of 22 rows .*: line 22, line 23[)]"),
    ("a.jsonl", '{"text": 1, "label": "x"}\n{"text": 2, "label": "y"}\n' * 2, {},
     "contains 1, which is not a text .4 of 4 rows .*: line 1, line 2, line 3 [.]{3}"),
    ("a.jsonl", '{"text": ["a", " "], "label": ["B-X", "O"]}\n' * 3, {},
     "not a list of words .3 of 3 rows .*: line 1, line 2, line 3[)]"),
    ("a.conll", "a O\nb B-X\n\n" * 5 + "c\n\nd O O\n", {}, "2 of 12 rows .*: line 16, line 18[)]"),
    ("a.csv", "text,label\n" + "one,\"['x', 'y']\"\ntwo,z\n" * 4 + "one,\"['x', 'y']\"\n", {},
     "4 of 9 rows .*: line 3, line 5, line 7 [.]{3}"),
    ("a.csv", "text,x,y\n" + "one,1,0\ntwo,0,2\n" * 2, {"text": "text", "label": ["x", "y"]},
     "2 of 4 rows .*: line 3, line 5[)]")])
def test_malformed_rows_are_counted_and_the_first_three_named(folder, name, content, given, malformed):
    (folder / name).write_text(content)
    with pytest.raises(UserError, match=malformed):
        loaded(name, **{"dev": name, **given})


@pytest.mark.parametrize("given, message", [
    ({"train": "a.csv", "lable": "x"}, "Unknown key: 'lable'. Did you mean 'label'?"),
    ({"text": "x"}, "no training file.*'train'.*.csv"), ({"train": None}, "no training file"),
    ({"train": "a.xlsx"}, "train: 'a.xlsx'. Use a file that ends with .csv"),
    ({"train": "a.csv", "kind": "ranking"}, "kind: 'ranking'. Use 'classification', 'regression', 'tagging'"),
    ({"train": "a.csv", "positive": 1}, "positive: 1"), ({"train": "a.csv", "scheme": "BIO"}, "scheme: 'BIO'.*'bioes'"),
    ({"train": "a.csv", "dev": "b.csv", "groups": "x"}, "'dev' is the file 'b.csv'. Leave one"),
    ({"train": "rte.csv"}, "a custom task cannot be called 'rte'"),
])
def test_invalid_descriptions_are_rejected_before_a_file_is_read(given, message):
    """No message advises to set a key to None, which is the same as leaving it out."""
    with pytest.raises(UserError, match=message) as error:
        finetune.c.override([f"tasks={given}"])
    assert "None" not in str(error.value).partition("Use ")[2]


def test_settings_of_own_tasks_are_given_by_name():
    overrides = ["tasks=[{'train': 'data/reviews/train.csv'}, 'rte']", "task_overrides={'reviews': {'lr': .1}}",
                 "th_run={'reviews': 1}"]
    assert complete_finetuning(finetune.c.override(overrides)).tasks[0]["name"] == "reviews"
    with pytest.raises(UserError, match="Invalid value for task_overrides: there is no task 'review'. Choose from "
                                         "cola, .*, reviews"):
        complete_finetuning(finetune.c.override([overrides[0], "task_overrides={'review': {'lr': .1}}"]))
    with pytest.raises(UserError, match="two tasks are called 'a'. Remove one, or set 'name'"):
        finetune.c.override(["tasks=[{'train': 'a.csv'}, {'train': 'b.csv', 'name': 'a'}]"])
    with pytest.raises(UserError, match="File not found: 'none.csv'"):
        loaded("none.csv")
