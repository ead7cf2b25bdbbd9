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
from _utils.tasks.custom import complete_own_task, load_own_task


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def loaded(train="a.csv", name="t", **given):
    return load_own_task(complete_own_task({"name": name, "train": train, **given}))


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
    assert (data.task.kind, data.task.labels) == (kind, found)
    assert loaded("a.jsonl", dev=.2).splits["validation"]["text"][:] == data.splits["validation"]["text"][:]


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
    """The row that would is named, and `kind` is asked for."""
    labelled(labels, "a.jsonl")
    with pytest.raises(UserError, match=rf"line {len(labels)}\b.*'kind'.*{kind}"):
        loaded("a.jsonl")


# Labels

def test_the_dev_set_has_rows_of_each_class():
    """The only row of a class is for training."""
    labelled(["rare" if i % 40 == 0 else "usual" for i in range(200)] + ["single"])
    splits = loaded().splits
    train, validation = (Counter(splits[split]["label"]) for split in ("train", "validation"))
    assert train == {0: 4, 1: 1, 2: 175} and validation == {0: 1, 2: 20}


@pytest.mark.parametrize("dev, found", [(.1, "2 of 2"), ("other.csv", "3 of 4")])
def test_texts_that_are_also_in_the_training_set_are_counted(dev, found):
    write_csv("a.csv", ("text", "label"), [("same", "ab"[i % 2]) for i in range(20)])
    write_csv("other.csv", ("text", "label"), [("same", "a"), ("other", "a"), ("same", "b"), ("same", "b")])
    assert has(loaded(dev=dev).notices, f"{found} texts in validation")


def test_the_rows_of_a_group_stay_in_one_split():
    """The classes keep their shares."""
    rows = [(f"text {i}", "xy"[i % 3 == 0], f"patient {i // 10}") for i in range(200)]
    write_csv("a.csv", ("text", "label", "patient"), rows)
    splits = loaded(groups="patient", dev=.2).splits
    patients = {split: set(rows["group"]) for split, rows in splits.items()}
    assert len(patients["train"]) == 16 and len(patients["validation"]) == 4
    assert not patients["train"] & patients["validation"]
    assert abs(Counter(splits["validation"]["label"])[1] - 67 / 5) < 2


@pytest.mark.parametrize("given, cells", [
    ({}, ["tax| contract", "tax", ""]),
    ({"separator": ";"}, ["tax;contract", "tax", ""]),
    ({}, ["['contract', 'tax']", "['tax']", "[]"]),  # pandas' lists
    ({}, ['["contract", "tax"]', '["tax"]', "[]"]),
    ({}, ["['contract' 'tax']", "['tax']", "[]"]),  # its arrays
    ({"label": ["contract", "tax"]}, ["1,1", "0,1", ",0"]),
    ({"label": ["contract", "tax"]}, ["1.0,1.", "0.0,1", "0, 0"]),
    ({"label": ["contract", "tax"]}, ["TRUE,True", "FALSE,true", "False,"]),
])
def test_several_labels_per_text(given, cells):
    """Strings with a separator, lists, or a column of 1 and 0 for each label."""
    columns = given.get("label", ["label"])
    rows = [("a text", *(cell.split(",") if len(columns) > 1 else [cell])) for cell in cells]
    write_csv("a.csv", ("text", *columns), rows * 10)
    data = loaded(test="a.csv", **given)
    assert (data.task.kind, data.task.labels) == ("multilabel", ("contract", "tax"))
    assert data.task.metrics == ("micro_f1", "macro_f1")
    assert list(map(sorted, data.splits["test"]["label"][:3])) == [[0, 1], [1], []]


def test_texts_in_brackets_are_texts():
    write_csv("a.csv", ("text", "label"), [(f"[laughs] no {i}", "a") for i in range(10)] + [("[ ok ]", "b")] * 10)
    assert loaded().splits["train"]["text"][0].startswith("[")


@pytest.mark.parametrize("positive, f1", [("ham", 2 / 3), (None, .8)])
def test_f1_is_that_of_the_positive_label(positive, f1):
    labelled(["ham", "spam"] * 5)
    scores = loaded(metrics="f1", positive=positive).task.score(torch.eye(2)[[0, 1, 1, 1]], [0, 0, 1, 1])
    assert scores["f1"] == pytest.approx(f1)


@pytest.mark.parametrize("content", ["text,label\none,\ntwo,\n", "text,label\none,-1\ntwo,-1\n", "text\none\ntwo\n"])
def test_a_test_file_without_labels_is_only_predicted(content):
    labelled("xy" * 5)
    Path("b.csv").write_text(content)
    data = loaded(test="b.csv")
    assert data.task.labels == ("x", "y") and data.splits["test"]["label"][:] == [-1, -1]


def test_a_cell_of_a_csv_file_may_be_a_book():
    write_csv("a.csv", ("text", "label"), [("word " * 40_000, "x"), ("two", "y")] * 5)
    assert len(loaded(dev=.2).splits["train"][0]["text"]) >= 199_999


# Tags

@pytest.mark.parametrize("words, tags", [
    ("['Anna', \"d'Arc\", 'went']", "['B-PER', 'I-PER', 'O']"), ("Anna d'Arc went", '["B-PER", "I-PER", "O"]'),
    ("['Anna' \"d'Arc\" 'went']", "['B-PER' 'I-PER'\n 'O']"), ("Anna d'Arc went", "B-PER I-PER O")])
def test_words_and_tags_of_a_csv_file_are_lists_or_strings_with_spaces(words, tags):
    write_csv("a.csv", ("words", "tags"), [(words, tags)] * 20)
    data = loaded(text="words", label="tags", kind="tagging")
    assert data.task.labels == ("B-PER", "I-PER", "O") and data.splits["train"]["text"][0] == ["Anna", "d'Arc", "went"]


def test_the_text_may_be_the_last_column_of_a_conll_file():
    write("a.conll", ["O the, B-X cat"] * 10)
    assert loaded("a.conll", text=-1, label=0).splits["train"][0]["text"] == ["the", "cat"]


@pytest.mark.parametrize("comments", ["# sent_id = 5", "# id 0-abc\tdomain=en", "# newdoc, # text = Anna went",
                                      "# text = a # b", "# a longer comment", "# x = O"])
def test_comments_before_a_sentence_are_no_words(comments):
    write("a.conll", [f"{comments}, # NN O, Anna NN B-PER, # NN O"] * 20)
    assert set(map(tuple, loaded("a.conll").splits["train"]["text"][:])) == {("#", "Anna", "#")}


@pytest.mark.parametrize("tags", ["NN VB -", "B_PER I_PER O", "0 1 2", "N_B V_E O_X", "# CD"])
def test_other_tags_than_those_of_entities_are_plain_labels(tags):
    task = loaded(write("a.conll", [", ".join(f"word {tag}" for tag in tags.split())] * 9)).task
    assert set(task.labels) == set(tags.split()) and task.metrics == ("accuracy", "macro_f1")


def test_tags_that_only_the_test_file_has_are_errors_and_no_labels():
    """Scores are those of seqeval on the names of the tags."""
    for name, tags in {"train": "B-X I-X O", "dev": "B-Y O O", "test": "B-X I-Z O"}.items():
        write(f"{name}.conll", [", ".join(f"word {tag}" for tag in tags.split())])
    data = loaded("train.conll", dev="dev.conll", test="test.conll")
    assert data.task.labels == ("B-X", "B-Y", "I-X", "O") and has(data.notices, "I-Z")
    correct_but_for_one, targets = torch.eye(4)[[0, 3, 3]], data.splits["test"]["label"][:]
    assert data.test_task.score(correct_but_for_one, targets) == {"entity_f1": pytest.approx(2 / 3), "accuracy": 2 / 3}


@pytest.mark.parametrize("scheme, tags", [
    ("iob2", "B-X B-X I-X O B-Y B-Y"), ("bioes", "S-X B-X E-X O S-Y S-Y"), (None, "I-X B-X I-X O B-Y B-Y")])
def test_tags_are_converted_to_one_scheme(scheme, tags):
    """IOB1 begins an entity with I- unless it follows one of its type."""
    write("a.conll", [", ".join(f"word {tag}" for tag in "I-X B-X I-X O B-Y B-Y".split())])
    data = loaded("a.conll", dev="a.conll", scheme=scheme)
    assert names_of(data.task, data.splits["train"]["label"][0]) == tags.split()


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
    return [dict(zip(KEYS[tool], span)) for span in SPANS] if tool in KEYS else SPANS


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
    labels = data.splits["test"]["label"]
    assert (data.task.labels, data.task.metrics[0]) == (("B-LOC", "B-PER", "I-PER", "O"), "entity_f1")
    assert [names_of(data.task, row) for row in labels[:3]] == [TAGS, TAGS, ["O"] * 3]
    written = predictions(data, list(itertools.chain(*labels)))
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
    assert has(data.notices, "warning", "spans", warning or "") == bool(warning)


@pytest.mark.parametrize("label", ["PER", "", [[0, 99, "PER"]]])
def test_a_row_without_valid_spans_is_skipped(label):
    write("a.jsonl", [{"text": "Anna left", "label": [[0, 4, "PER"]]}] * 150 + [{"text": "Anna left", "label": label}])
    data = loaded("a.jsonl", dev=.2)
    assert data.task.labels == ("B-PER", "O") and has(data.notices, "skipped 1 of 151 rows", "line 151")


# Predictions

def predictions(data, decisions):
    """The file of predictions as the documents read it."""
    [path] = data.task.test_files.values()
    data.task.write(Path(path), data.splits["test"], decisions)
    return pd.read_csv(path, sep="\t", index_col="index", keep_default_na=False)


TO_PREDICT = {
    "b.csv": '\ntext,id\n"a ""b"",\nc",1\n\n   \n,2\n"",3\nx,\n\n',
    "one.csv": 'text\na\n\n""\n  \nb\nc\n',
    "semicolon.csv": "text;id\na;1\n\nb;2\nc;\nd;4\n",
    "b.tsv": 'text\tid\r\n"a\t1\r\n\r\nb"\t2\r\nc\t\r\nd\t4\r\n\r\n',
    "one.tsv": "text\na\n\nb\n   \nc\nd\n",
    "b.jsonl": '{"text": "a", "id": 1}\n\n{"text": "b", "id": 2}\n{"text": ""}\n{"id": 5, "text": "c"}\n',
}


@pytest.mark.parametrize("path", TO_PREDICT)
def test_the_index_of_a_prediction_is_the_row_that_pandas_reads(path):
    """Blank lines are no rows."""
    Path(path).write_text(TO_PREDICT[path], newline="")
    separators = {"semicolon.csv": ";", "b.tsv": "\t", "one.tsv": "\t"}
    if path == "b.jsonl":
        table = pd.read_json(path, lines=True)
    else:
        quoting = 3 if path.endswith("tsv") else 0
        table = pd.read_csv(path, sep=separators.get(path, ","), quoting=quoting, keep_default_na=False)
    labelled("xy" * 5)
    data = loaded(test=path)
    joined = table.join(predictions(data, [0, 1, 1, 0]))
    assert joined["prediction"].tolist() == ["x", "y", "y", "x"]
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

SPAN_OF_LEFT = '{"text": "Anna left", "label": %s}\n'
BAD_FILES = [
    ("a.csv", "text,label\none,x\nthree,y\ntwo\n", {}, "line 4: 1 columns instead of 2"),
    ("a.csv", "text,label\none,x\nthree,y\ntwo,x,\n", {}, "line 4: 3 columns instead of 2"),
    ("a.tsv", "text\tlabel\none\tx\nthree\ntwo\ty\n", {}, "line 3: 1 columns instead of 2"),
    ("a.csv", 'text,label\n"one\n\nmore",x\n,y\n', {}, "line 5: .*'text' contains ''"),
    ("a.csv", "text,label\none,x\nthree,y\ntwo,\n", {}, "line 4: .*'label' contains ''.* x, y"),
    ("a.csv", 'text,label\n"one"s,x\n', {}, "line 2 .*CSV"),
    ("a.csv", 'text,label\none,x\n"two,y\n', {}, "line 3 .*CSV"),
    ("a.csv", b"text,label\none,x\ncaf\xe9,y\n", {}, "line 3 .*UTF-8"),
    ("a.csv", "a,b,label\n1,2,3\n", {}, "a, b, label.*'text'"),
    ("a.csv", "text,label\none,x\n", {"label": "stars"}, "'stars' .*text, label"),
    ("a.csv", "text,label\n" + "".join(f"one,{i}x\n" for i in range(99)), {}, "99 .*0x"),
    ("a.csv", "text,label\n", {}, "no rows"),
    ("a.csv", "", {}, ""),
    ("a.csv", "text,label\n" + "zero,.5\n" + "one,1.5\n" * 18 + "two,n/a\n", {}, "line 21: .*'n/a'"),
    ("a.csv", "text,label\n" + "zero,.5\n" + "one,1.5\n" * 18 + "two,inf\n", {}, "line 21: .*'inf'"),
    ("a.csv", "text,label\na b,A B\nc d\n", {"kind": "tagging"}, "line 3: 1 columns instead of 2"),
    ("a.csv", "text,label\n" + "one,1.5\n" * 9, {"kind": "regression"}, "1.5"),
    ("a.csv", "text,label,label\none,x,y\ntwo,y,x\n", {"text": "text"}, "'label'"),
    ("a.csv", "text,x,y\n" + "one,0,1\n" * 30 + "two,2,0\n", {"label": ["x", "y"]}, "line 32: .*'x' contains '2'"),
    ("a.csv", "text,label\n" + "one,['x']\n" * 20 + "two,['x'\n", {}, "line 22: .*'label'"),
    ("a.csv", "text,label\n" + "one,[1. 0. 0.]\n" * 9, {}, "line 2: .*label"),
    ("a.jsonl.gz", "", {}, "compressed"),
    ("a.csv", "text,label,group\none,x,1\ntwo,y,2\n", {"groups": "group", "dev": .9}, "0.9 .*2 'groups'"),
    ("a.csv", "text,label,group\n" + "one,x,1\ntwo,y,1\n" * 9, {"groups": "group", "dev": .2}, "1 'groups'"),
    ("a.csv", "text,label\none,1.5\ntwo,2\n", {"class_weights": "balanced"}, "class_weights='balanced'"),
    ("a.csv", "text,label\none,1.5\ntwo,2\n", {"positive": "2"}, "positive='2'"),
    ("a.csv", "text,label\none,x\ntwo,y\n", {"positive": "z"}, "positive='z' .*x, y"),
    ("a.csv", "text,label\none,x\ntwo,y\n", {"metrics": "bleu"}, "metrics='bleu'"),
    ("a.csv", "text,label\none,x\ntwo,y\nthree,z\n", {"metrics": "f1"}, "metrics='f1' .*accuracy, macro_f1"),
    ("a.csv", "text,label\none,\ntwo,\n", {}, "labels"),
    ("a.jsonl", '{"text": "a", "label": 1}\nno\n', {}, "line 2 .*JSON"),
    ("a.jsonl", '{"text": "a", "label": 1}\n{"text": 5, "label": 2}\n', {}, "line 2: .*'text' contains 5"),
    ("a.jsonl", '{"text": "a", "label": "x \\ud83d"}\n', {}, "line 1 .*surrogates"),
    ("a.jsonl", '{"text": "a b", "label": "x y"}\n{"text": ["b"], "label": 3}\n', {"kind": "tagging"},
     "line 2: .* contains 3"),
    ("a.jsonl", '{"text": ["a", "b"], "label": ["x"]}\n{"text": ["c"], "label": ["y"]}\n', {}, "line 1: .*words"),
    ("a.jsonl", SPAN_OF_LEFT % '[[0, 99, "PER"]]' * 20, {}, "line 1: .*99"),
    ("a.jsonl", SPAN_OF_LEFT % '[[3, 1, "PER"]]' * 20, {}, "line 1: .*3, 1"),
    ("a.jsonl", SPAN_OF_LEFT % '[["a", "b"]]' * 20, {}, "line 1: "),
    ("a.jsonl", SPAN_OF_LEFT % '[[0, 4, ["PER", "ORG"]]]' * 20, {}, "line 1: "),
    ("a.jsonl", SPAN_OF_LEFT % '[{"from": 0, "to": 4}]' * 20, {}, "line 1: "),
    ("a.txt", "one O\ntwo\n\n", {}, "line 2: 1 columns instead of 2"),
    ("a.txt", "% a comment of this file\nAnna NN B-PER\nleft VB O\n\n" * 3, {}, "line 1: 6 columns instead of 3"),
    ("a.txt", "one A\ntwo B\n\nthree B\n", {"metrics": "entity_f1"}, "A, B.*B-NP"),
    ("a.txt", "one A\ntwo B\n", {"scheme": "iob2"}, "scheme='iob2'"),
    ("a.txt", "one N A\ntwo N B\n", {"text": [0, 1]}, "'text'.* 0, 1"),
    ("a.parquet", "text", {}, "parquet"),
]


@pytest.mark.parametrize("name, content, given, message", BAD_FILES)
def test_bad_files_are_rejected_with_file_line_and_column(name, content, given, message):
    Path(name).write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(UserError, match=message) as error:
        loaded(name, **{"dev": name, **given})
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("given, message", [
    ({"train": "a.csv", "lable": "x"}, "'lable'.*'label'"),
    ({"text": "x"}, "'train'.*.csv"), ({"train": None}, "'train'"),
    ({"train": "a.xlsx"}, "'a.xlsx'.*.csv"),
    ({"train": "a.csv", "kind": "ranking"}, "'ranking'.*'classification', 'regression', 'tagging'"),
    ({"train": "a.csv", "positive": 1}, "positive: 1"), ({"train": "a.csv", "scheme": "BIO"}, "'BIO'.*'bioes'"),
    ({"train": "a.csv", "dev": "b.csv", "groups": "x"}, "'b.csv'"),
    ({"train": "rte.csv"}, "'rte'"),
])
def test_invalid_descriptions_are_rejected_before_a_file_is_read(given, message):
    with pytest.raises(UserError, match=message):
        finetune.c.override([f"tasks={given}"])


def test_settings_of_own_tasks_are_given_by_name():
    tasks = "tasks=[{'train': 'data/reviews/train.csv'}, 'rte']"
    c = finetune.c.override([tasks, "task_overrides={'reviews': {'lr': .1}}", "th_run={'reviews': 1}"])
    assert complete_finetuning(c).tasks[0]["name"] == "reviews"
    with pytest.raises(UserError, match="'review'.*reviews"):
        complete_finetuning(finetune.c.override([tasks, "task_overrides={'review': {'lr': .1}}"]))
    with pytest.raises(UserError, match="'a'.*'name'"):
        finetune.c.override(["tasks=[{'train': 'a.csv'}, {'train': 'b.csv', 'name': 'a'}]"])
