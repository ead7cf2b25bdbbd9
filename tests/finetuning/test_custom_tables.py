"""The files of custom tasks: kinds, labels, formats, predictions, and errors."""
import itertools
import json
from collections import Counter
from pathlib import Path

import pandas as pd
import pytest
import torch

import finetune
from _utils.errors import UserError
from _utils.finetuning.config import complete_finetuning
from _utils.tasks.custom import load_custom_task
from _utils.tasks.definition import complete_custom_task


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def loaded(train="a.jsonl", name="t", **given):
    return load_custom_task(complete_custom_task({"name": name, "train": train, **given}))


def write(path, content, encoding="utf-8"):
    Path(path).write_text(content, encoding, newline="")
    return path


def labelled(labels):
    """Write a.jsonl with a text for each label."""
    return write("a.jsonl", "\n".join(json.dumps({"text": f"text {i}", "label": label})
                                      for i, label in enumerate(labels)))


def tagged(tags, path="a.conll"):
    """Write a sentence with these tags."""
    return write(path, "".join(f"word {tag}\n" for tag in tags.split()))


def tags_of(data):
    """The tags of the first sentence."""
    return " ".join(data.task.labels[i] for i in data.splits["train"]["label"][0])


def has(data, *texts):
    """Whether a notice contains all of these texts."""
    return any(all(text in notice for text in texts) for notice in data.notices)


# Kinds

@pytest.mark.parametrize("labels, kind, found", [
    (["b", "a", "b"], "classification", ("a", "b")),
    (["10", 9., "10"], "classification", ("9", "10")),
    ([1, 1., 0], "classification", ("0", "1")),  # equal numbers are one label
    (["1.5", "2", "3"], "regression", ()),
    (["1|2", "2", "1"], "multilabel", ("1", "2")),
])
def test_the_kind_and_the_labels_follow_from_the_file(labels, kind, found):
    labelled(labels * 5)
    data = loaded(dev=.2)
    assert (data.task.kind, data.task.labels) == (kind, found)
    assert loaded(dev=.2).splits["validation"]["text"][:] == data.splits["validation"]["text"][:]


@pytest.mark.parametrize("line, mistake, kind", [
    ("one,{}.5\n", "two,3|4", "regression"), ("one two,O B-X\n", ",", "tagging")])
def test_a_mistake_in_one_row_does_not_change_the_kind(line, mistake, kind):
    """A separator in a score, and a sentence without words."""
    write("a.csv", "text,label\n" + "".join(line.format(i) for i in range(150)) + mistake)
    data = loaded("a.csv", kind="tagging" if kind == "tagging" else None)
    assert data.task.kind == kind and has(data, "skipped 1 of 151 rows")


@pytest.mark.parametrize("labels, kind", [
    (["a"] * 39 + ["a|b"], "multilabel"), (["1", "2"] * 30 + ["2.5"], "regression"),
    (["a"] * 39 + [["a", "b"]], "multilabel"), (["O"] * 39 + [[[0, 4, "PER"]]], "tagging")])
def test_one_row_in_twenty_does_not_decide_on_the_kind(labels, kind):
    """The row that would is named, and `kind` is asked for."""
    labelled(labels)
    with pytest.raises(UserError, match=rf"line {len(labels)}\b.*'kind'.*{kind}"):
        loaded()


def test_a_text_with_quoted_keys_of_questions_is_a_text():
    write("a.csv", "text,label\n" + "the keys 'qas' and 'answer_start',x\nother,y\n" * 5)
    assert loaded("a.csv", dev=.2).task.kind == "classification"


# Labels

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
    ("label\none,['contract' 'tax']\ntwo,['tax']\nthree,[]\n", {}),  # its arrays
    ("contract,tax\none,1,1\ntwo,0,1\nthree,,0\n", {"label": COLUMNS}),
    ("contract,tax\none,1.0,1.\ntwo,0.0,1\nthree,0, 0\n", {"label": COLUMNS}),
    ("contract,tax\none,TRUE,True\ntwo,FALSE,true\nthree,False,\n", {"label": COLUMNS}),
])
def test_several_labels_per_text(rows, given):
    """Strings with a separator, lists, or a column of 1 and 0 for each label."""
    header, _, rows = rows.partition("\n")
    write("a.csv", f"text,{header}\n" + rows * 10)
    data = loaded("a.csv", test="a.csv", **given)
    assert (data.task.kind, data.task.labels) == ("multilabel", ("contract", "tax"))
    assert data.task.metrics == ("micro_f1", "macro_f1")
    assert list(map(sorted, data.splits["test"]["label"][:3])) == [[0, 1], [1], []]


def test_texts_in_brackets_are_texts():
    write("a.csv", "text,label\n" + "[laughs] no,a\n[ ok ],b\n" * 10)
    assert set(loaded("a.csv").splits["train"]["text"]) == {"[laughs] no", "[ ok ]"}


@pytest.mark.parametrize("positive, f1", [("ham", 2 / 3), (None, .8)])
def test_f1_is_that_of_the_positive_label(positive, f1):
    labelled(["ham", "spam"] * 5)
    scores = loaded(metrics="f1", positive=positive).task.score(torch.eye(2)[[0, 1, 1, 1]], [0, 0, 1, 1])
    assert scores["f1"] == pytest.approx(f1)


@pytest.mark.parametrize("content", ["text,label\none,\ntwo,\n", "text,label\none,-1\ntwo,-1\n", "text\none\ntwo\n"])
def test_a_test_file_without_labels_is_only_predicted(content):
    labelled("xy" * 5)
    data = loaded(test=write("b.csv", content))
    assert data.task.labels == ("x", "y") and data.splits["test"]["label"][:] == [-1, -1]


def test_a_cell_of_a_csv_file_may_be_a_book():
    write("a.csv", "text,label\n" + f"{'word ' * 40_000},x\ntwo,y\n" * 5)
    assert max(map(len, loaded("a.csv").splits["train"]["text"])) >= 199_999


# Tags

@pytest.mark.parametrize("row", [
    '"[\'Anna\', ""d\'Arc"", \'went\']","[\'B-PER\', \'I-PER\', \'O\']"\n',
    'Anna d\'Arc went,"[""B-PER"", ""I-PER"", ""O""]"\n',
    '"[\'Anna\' ""d\'Arc"" \'went\']","[\'B-PER\' \'I-PER\'\n \'O\']"\n',
    "Anna d'Arc went,B-PER I-PER O\n"])
def test_words_and_tags_of_a_csv_file_are_lists_or_strings_with_spaces(row):
    write("a.csv", "words,tags\n" + row * 20)
    data = loaded("a.csv", text="words", label="tags", kind="tagging")
    assert data.task.labels == ("B-PER", "I-PER", "O") and data.splits["train"]["text"][0] == ["Anna", "d'Arc", "went"]


def test_the_text_may_be_the_last_column_of_a_conll_file():
    write("a.conll", "O the\nB-X cat\n\n" * 10)
    assert loaded("a.conll", text=-1, label=0).splits["train"][0]["text"] == ["the", "cat"]


@pytest.mark.parametrize("comments", ["# sent_id = 5", "# id 0-abc\tdomain=en", "# newdoc\n# text = Anna went",
                                      "# text = a # b", "# a longer comment", "# x = O"])
def test_comments_before_a_sentence_are_no_words(comments):
    write("a.conll", f"{comments}\n# NN O\nAnna NN B-PER\n# NN O\n\n" * 20)
    assert set(map(tuple, loaded("a.conll").splits["train"]["text"][:])) == {("#", "Anna", "#")}


@pytest.mark.parametrize("tags", ["NN VB -", "B_PER I_PER O", "0 1 2", "N_B V_E O_X", "# CD"])
def test_other_tags_than_those_of_entities_are_plain_labels(tags):
    tagged(tags)
    task = loaded("a.conll", dev="a.conll").task
    assert set(task.labels) == set(tags.split()) and task.metrics == ("accuracy", "macro_f1")


def test_tags_that_only_the_test_file_has_are_errors_and_no_labels():
    """Scores are those of seqeval on the names of the tags."""
    data = loaded(tagged("B-X I-X O"), dev=tagged("B-Y O O", "dev.conll"), test=tagged("B-X I-Z O", "test.conll"))
    assert data.task.labels == ("B-X", "B-Y", "I-X", "O") and has(data, "I-Z")
    correct_but_for_one, targets = torch.eye(4)[[0, 3, 3]], data.splits["test"]["label"][:]
    assert data.test_task.score(correct_but_for_one, targets) == {"entity_f1": pytest.approx(2 / 3), "accuracy": 2 / 3}


@pytest.mark.parametrize("scheme, tags", [
    ("iob2", "B-X B-X I-X O B-Y B-Y"), ("bioes", "S-X B-X E-X O S-Y S-Y"), (None, "I-X B-X I-X O B-Y B-Y")])
def test_tags_are_converted_to_one_scheme(scheme, tags):
    """IOB1 begins an entity with I- unless it follows one of its type."""
    tagged("I-X B-X I-X O B-Y B-Y")
    assert tags_of(loaded("a.conll", dev="a.conll", scheme=scheme)) == tags


@pytest.mark.parametrize("line", ["{}", "{} NN"])
def test_a_test_file_without_the_column_of_tags_has_none(line):
    write("a.conll", "the NN O\ncat VB B-X\n\n" * 10)
    data = loaded("a.conll", test=write("b.conll", "".join(line.format(word) + "\n" for word in ("the", "dog"))))
    assert data.task.labels == ("B-X", "O") and data.splits["test"]["label"][:] == [[-1, -1]]


def test_a_tag_that_only_the_dev_file_has_counts_as_one_word_in_balanced_weights():
    task = loaded(tagged("A A A B"), dev=tagged("A C", "dev.conll"), class_weights="balanced").task
    assert task.class_weights == pytest.approx((5 / 9, 5 / 3, 5 / 3))  # words / (labels * words of it)


@pytest.mark.parametrize("space", ["\u00a0", "\u202f", "\u2007", "\u2009", "\u3000", "\u200b", "\x85"])
def test_other_spaces_than_those_between_words_are_part_of_a_word(space):
    write("a.conll", f"10{space}000 B-N\n{space} O\n\n" * 20)
    assert loaded("a.conll").splits["train"]["text"][0] == [f"10{space}000", space]
    write("a.csv", "text,label\n" + f"10{space}000 men,B-N O\n" * 20)
    assert loaded("a.csv", kind="tagging").splits["train"]["text"][0] == [f"10{space}000", "men"]


# Character spans

TEXT, SPANS = "Anna Lee (Oslo) left.", [[0, 8, "PER"], [10, 14, "LOC"]]
TOOLS = {  # how other programs write them
    "spacy": '{"entities": [[0, 8, "PER"], [10, 14, "LOC"]]}',
    "lists": '[[0, 8, "PER"], [10, 14, "LOC"]]',
    "label studio": '[{"start": 0, "end": 8, "labels": "PER"}, {"start": 10, "end": 14, "labels": "LOC"}]',
    "doccano": '[{"start_offset": 0, "end_offset": 8, "label": "PER", "id": 7}, '
               '{"start_offset": 10, "end_offset": 14, "label": "LOC", "id": 8}]',
    "pipeline": '[{"start": 0, "end": 8, "entity_group": "PER"}, {"start": 10, "end": 14, "entity_group": "LOC"}]',
}


@pytest.mark.parametrize("tool, suffix",
                         [("spacy", "jsonl"), *itertools.product([*TOOLS][1:], ["jsonl", "csv", "parquet"])])
def test_character_spans_are_tags_of_words_and_are_predicted_as_spans(tool, suffix):
    """In CSV they are strings, as JSON writes them; a text without spans has an empty list."""
    cells = [TOOLS[tool], TOOLS[tool], "[]"]
    if suffix != "csv" and (suffix, tool) != ("parquet", "lists"):  # a column of parquet has one type
        cells = [json.loads(cell) for cell in cells]
    table = pd.DataFrame({"text": [TEXT, TEXT, "None here."] * 10, "entities": cells * 10})
    {"jsonl": lambda path: table.to_json(path, orient="records", lines=True), "parquet": table.to_parquet,
     "csv": table.to_csv}[suffix](f"a.{suffix}")
    data = loaded(f"a.{suffix}", dev=f"a.{suffix}", test=f"a.{suffix}", text="text", label="entities")
    assert (data.task.labels, data.task.metrics[0]) == (("B-LOC", "B-PER", "I-PER", "O"), "entity_f1")
    assert tags_of(data) == "B-PER I-PER O B-LOC O O O" and set(data.splits["test"]["label"][2]) == {3}
    written = predictions(data, list(itertools.chain(*data.splits["test"]["label"])))
    assert list(map(json.loads, written["prediction"][:3])) == [SPANS, SPANS, []]


@pytest.mark.parametrize("kind", [None, "tagging", "spans"])
def test_character_spans_are_recognized_whatever_the_kind(kind):
    write("a.jsonl", SPAN % '[[0, 4, "PER"]]' * 20)
    data = loaded(dev="a.jsonl", kind=kind)
    assert (data.task.kind, tags_of(data)) == ("spans", "B-PER O")


@pytest.mark.parametrize("text, spans, tags, warning", [
    ("张三在北京", '[[0, 2, "PER"], [3, 5, "LOC"]]', "B-PER I-PER O B-LOC I-LOC", None),
    ("アンナはベルリンに", '[[0, 3, "PER"], [4, 8, "LOC"]]', "B-PER O B-LOC O", None),
    ("e\u0301tait Zoe\u0308 ici", '[[7, 11, "P"]]', "O B-P O", None),
    ("Anna left", '[[0, 3, "PER"]]', "B-PER O", "inside a word"),  # an end that is the last character
    ("New York Times", '[[0, 8, "LOC"], [0, 14, "ORG"]]', "B-ORG I-ORG I-ORG", "left out"),
    ("a  b", '[[1, 3, "X"], [0, 1, "Y"]]', "B-Y O", "left out"),
    ("Bob Lee", '[[0, 7, "Full name"]]', "B-Full name I-Full name", None)])
def test_the_words_of_spans_follow_from_the_text_alone(text, spans, tags, warning):
    write("a.jsonl", f'{{"text": "{text}", "label": {spans}}}\n{{"text": "and x", "label": []}}\n' * 10)
    data = loaded(dev="a.jsonl")
    assert tags_of(data) == tags and has(data, "warning", "spans", warning or "") == bool(warning)


@pytest.mark.parametrize("label", ['"PER"', '""', '[[0, 99, "PER"]]'])
def test_a_row_without_valid_spans_is_skipped(label):
    write("a.jsonl", SPAN % '[[0, 4, "PER"]]' * 150 + SPAN % label)
    data = loaded(dev=.2)
    assert data.task.labels == ("B-PER", "O") and has(data, "skipped 1 of 151 rows", "line 151")


# Predictions

def predictions(data, decisions):
    """The file of predictions as the documents read it."""
    [path] = data.task.test_files.values()
    data.task.write(Path(path), data.splits["test"], decisions)
    return pd.read_csv(path, sep="\t", index_col="index", keep_default_na=False)


TSV = {"sep": "\t", "quoting": 3}
TO_PREDICT = {
    "b.csv": ('\ntext,id\n"a ""b"",\nc",1\n\n   \n,2\n"",3\nx,\n\n', {}),
    "one.csv": ('text\na\n\n""\n  \nb\nc\n', {}),
    "semicolon.csv": ("text;id\na;1\n\nb;2\nc;\nd;4\n", {"sep": ";"}),
    "b.tsv": ('text\tid\r\n"a\t1\r\n\r\nb"\t2\r\nc\t\r\nd\t4\r\n\r\n', TSV),
    "one.tsv": ("text\na\n\nb\n   \nc\nd\n", TSV),
    "b.jsonl": ('{"text": "a", "id": 1}\n\n{"text": "b", "id": 2}\n{"text": ""}\n{"id": 5, "text": "c"}\n', None),
}


@pytest.mark.parametrize("path", TO_PREDICT)
def test_the_index_of_a_prediction_is_the_row_that_pandas_reads(path):
    """Blank lines are no rows."""
    content, options = TO_PREDICT[path]
    write(path, content)
    if options is None:
        table = pd.read_json(path, lines=True)
    else:
        table = pd.read_csv(path, keep_default_na=False, **options)
    labelled("xy" * 5)
    data = loaded(test=path)
    joined = table.join(predictions(data, [0, 1, 1, 0]))
    assert joined["prediction"].tolist() == ["x", "y", "y", "x"]
    assert data.splits["test"]["text"][:] == joined["text"].tolist()


@pytest.mark.parametrize("labels, decisions, written", [
    (["a", "b\tc", 'd "e"'], [1, 2, 0], ["b\tc", 'd "e"', "a"]),
    (["10", "9"], [1, 0], [10, 9]),
    ([["a", "b"], ["a"], []], [[True, True], [False, False]], ["a|b", ""]),
    ([["a|b", "c"], ["c"]], [[True, True], [False, False]], ['["a|b", "c"]', "[]"]),
    ([1.5, 2, 3], [1.23456789, 2e9], [1.23457, 2e9])])
def test_predictions_are_labels_numbers_or_joined_labels(labels, decisions, written):
    labelled(labels * 10)
    assert predictions(loaded(test="a.jsonl"), decisions)["prediction"].tolist() == written


@pytest.mark.parametrize("path, content", [
    ("a.conll", "# id = 1\nAnna NN B-PER\nleft VB O\n\n-DOCSTART- X O\n\nOslo NN B-PER\n\n" * 10),
    ("a.jsonl", '{"text": ["Anna", "left"], "label": ["B-PER", "O"]}\n{"text": ["Oslo"], "label": ["B-PER"]}\n' * 10),
    ("a.csv", "text,label\n" + "Anna left,B-PER O\nOslo,B-PER\n" * 10)])
def test_predicted_tags_are_conll_lines_that_can_be_read_again(path, content):
    data = loaded(write(path, content), test=path, kind="tagging")
    data.task.write(Path("t.conll"), data.splits["test"], [0, 1, 1] * 10)
    assert data.task.test_files == {"test": "t.conll"}
    assert Path("t.conll").read_text() == "Anna\tB-PER\nleft\tO\n\nOslo\tO\n\n" * 10
    assert loaded("t.conll", dev="t.conll").splits["validation"]["text"][:2] == [["Anna", "left"], ["Oslo"]]


# Errors

SPAN = '{"text": "Anna left", "label": %s}\n'
BAD_FILES = [
    ("a.csv", "text,label\none,x\nthree,y\ntwo\n", "line 4: 1 columns instead of 2"),
    ("a.csv", "text,label\none,x\nthree,y\ntwo,x,\n", "line 4: 3 columns instead of 2"),
    ("a.tsv", "text\tlabel\none\tx\nthree\ntwo\ty\n", "line 3: 1 columns instead of 2"),
    ("a.csv", 'text,label\n"one\n\nmore",x\n,y\n', "line 5: .*'text' contains ''"),
    ("a.csv", "text,label\none,x\nthree,y\ntwo,\n", "line 4: .*'label' contains ''.* x, y"),
    ("a.csv", 'text,label\n"one"s,x\n', "line 2 .*CSV"),
    ("a.csv", 'text,label\none,x\n"two,y\n', "line 3 .*CSV"),
    ("a.csv", "text,label\none,x\ncaf\xe9,y\n", "line 3 .*UTF-8"),
    ("a.csv", "a,b,label\n1,2,3\n", "a, b, label.*'text'"),
    ("a.csv", "text,label\none,x\n", "'stars' .*text, label", {"label": "stars"}),
    ("a.csv", "text,label\n" + "".join(f"one,{i}x\n" for i in range(99)), "99 .*0x"),
    ("a.csv", "text,label\n", "no rows"),
    ("a.csv", "", "no rows"),
    ("a.csv", "text,label\none,x\ntwo,y\n", "'-1' .*text, label", {"text": "text", "label": -1}),
    ("a.csv", "text,label\n" + "zero,.5\n" + "one,1.5\n" * 18 + "two,n/a\n", "line 21: .*'n/a'"),
    ("a.csv", "text,label\n" + "zero,.5\n" + "one,1.5\n" * 18 + "two,inf\n", "line 21: .*'inf'"),
    ("a.csv", "text,label\na b,A B\nc d\n", "line 3: 1 columns instead of 2", {"kind": "tagging"}),
    ("a.csv", "text,label\n" + "one,1.5\n" * 9, "1.5", {"kind": "regression"}),
    ("a.csv", "text,label,label\none,x,y\ntwo,y,x\n", "'label'", {"text": "text"}),
    ("a.csv", "text,x,y\n" + "one,0,1\n" * 30 + "two,2,0\n", "line 32: .*'x' contains '2'", {"label": ["x", "y"]}),
    ("a.csv", "text,label\n" + "one,['x']\n" * 20 + "two,['x'\n", "line 22: .*'label'"),
    ("a.csv", "text,label\n" + "one,[1. 0. 0.]\n" * 9, "line 2: .*label"),
    ("a.jsonl.gz", "", "compressed"),
    ("a.csv", "text,label,group\none,x,1\ntwo,y,2\n", "0.9 .*2 'groups'", {"groups": "group", "dev": .9}),
    ("a.csv", "text,label,group\n" + "one,x,1\ntwo,y,1\n" * 9, "1 'groups'", {"groups": "group", "dev": .2}),
    ("a.csv", "text,label,group\n" + "one,x,1\ntwo,y,\n" * 9, "line 3: .*'group' contains ''",
     {"groups": "group", "dev": .2}),
    ("a.csv", "text,label\none,1.5\ntwo,2\n", "'class_weights' does not apply", {"class_weights": "balanced"}),
    ("a.csv", "text,x,y\none,0,1\ntwo,1,0\n", "2 columns.*'tagging'", {"label": ["x", "y"], "kind": "tagging"}),
    ("a.csv", "text,label\none,1.5\ntwo,2\n", "'positive' does not apply", {"positive": "2"}),
    ("a.csv", "text,label\none,x\ntwo,y\n", "positive='z' .*x, y", {"positive": "z"}),
    ("a.csv", "text,label\none,x\ntwo,y\n", "metrics='bleu'", {"metrics": "bleu"}),
    ("a.csv", "text,label\none,x\ntwo,y\nthree,z\n", "metrics='f1' .*accuracy, macro_f1", {"metrics": "f1"}),
    ("a.csv", "text,label\none,\ntwo,\n", "labels"),
    ("a.jsonl", '{"text": "a", "label": 1}\nno\n', "line 2 .*JSON"),
    ("a.jsonl", '{"text": "a", "label": 1}\n{"text": 5, "label": 2}\n', "line 2: .*'text' contains 5"),
    ("a.jsonl", '{"text": "a", "label": "x \\ud83d"}\n', "line 1 .*surrogates"),
    ("a.jsonl", '{"text": "a b", "label": "x y"}\n{"text": ["b"], "label": 3}\n', "line 2: .* contains 3",
     {"kind": "tagging"}),
    ("a.jsonl", '{"text": ["a", "b"], "label": ["x"]}\n{"text": ["c"], "label": ["y"]}\n', "line 1: .*words"),
    ("a.jsonl", SPAN % '[[0, 99, "PER"]]' * 20, "line 1: .*99"),
    ("a.jsonl", SPAN % '[[3, 1, "PER"]]' * 20, "line 1: .*3, 1"),
    ("a.jsonl", SPAN % '[["a", "b"]]' * 20, "line 1: "),
    ("a.jsonl", SPAN % '[[0, 4, ["PER", "ORG"]]]' * 20, "line 1: "),
    ("a.jsonl", SPAN % '[{"from": 0, "to": 4}]' * 20, "line 1: "),
    ("a.txt", "one O\ntwo\n\n", "line 2: 1 columns instead of 2"),
    ("a.txt", "% a comment of this file\nAnna NN B-PER\nleft VB O\n\n" * 3, "line 1: 6 columns instead of 3"),
    ("a.txt", "one A\ntwo B\n\nthree B\n", "A, B.*B-NP", {"metrics": "entity_f1"}),
    ("a.txt", "one A\ntwo B\n", "scheme='iob2'", {"scheme": "iob2"}),
    ("a.txt", "one N A\ntwo N B\n", "'text'.* 0, 1", {"text": [0, 1]}),
    ("a.parquet", "text", "parquet"),
]


@pytest.mark.parametrize("case", BAD_FILES)
def test_bad_files_are_rejected_with_file_line_and_column(case):
    name, content, message, *given = case
    write(name, content, "latin-1" if "\xe9" in content else "utf-8")
    with pytest.raises(UserError, match=message) as error:
        loaded(name, **{"dev": name, **dict(*given)})
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("description, message", {
    "{'train': 'a.csv', 'lable': 'x'}": "'lable'.*'label'", "{'text': 'x'}": "train: None.*.csv",
    "{'train': None}": "train: None", "{'train': 'a.xlsx'}": "'a.xlsx'.*.csv",
    "{'train': 'a.csv', 'positive': 1}": "positive: 1",
    "{'train': 'a.csv', 'kind': 'ranking'}": "'ranking'.*'classification', 'regression', 'tagging'",
    "{'train': 'a.csv', 'scheme': 'BIO'}": "'BIO'.*'bioes'",
    "{'train': 'a.csv', 'dev': 'b.csv', 'groups': 'x'}": "'b.csv'", "{'train': 'rte.csv'}": "'rte'",
    "[{'train': 'a.csv'}, {'train': 'b.csv', 'name': 'a'}]": "'a'.*'name'"}.items())
def test_invalid_descriptions_are_rejected_before_a_file_is_read(description, message):
    with pytest.raises(UserError, match=message):
        finetune.c.override([f"tasks={description}"])


def test_settings_of_own_tasks_are_given_by_name():
    tasks = "tasks=[{'train': 'data/reviews/train.csv'}, 'rte']"
    c = finetune.c.override([tasks, "task_overrides={'reviews': {'lr': .1}}", "th_run={'reviews': 1}"])
    assert complete_finetuning(c).tasks[0]["name"] == "reviews"
    with pytest.raises(UserError, match="'review'.*reviews"):
        complete_finetuning(finetune.c.override([tasks, "task_overrides={'review': {'lr': .1}}"]))


@pytest.mark.parametrize("name, content, given, malformed", [
    ("a.csv", "text,label\n" + "one,x\ntwo,y\n" * 5 + "short\n,x\nlong,x,y\nthree,\n", {},
     "4 of 14 rows .*: line 12, line 13, line 14 [.]{3}"),
    ("a.csv", "text,label\n" + "one,1.5\ntwo,2\n" * 10 + "three,many\n" * 2, {"kind": "regression"},
     "2 of 22 rows .*: line 22, line 23[)]"),
    ("a.jsonl", '{"text": 1, "label": "x"}\n{"text": 2, "label": "y"}\n' * 2, {},
     "contains 1, which is not a text .4 of 4 rows .*: line 1, line 2, line 3 [.]{3}"),
    ("a.conll", "a O\nb B-X\n\n" * 5 + "c\n\nd O O\n", {}, "2 of 12 rows .*: line 16, line 18[)]"),
    ("a.csv", "text,x,y\n" + "one,1,0\ntwo,0,2\n" * 2, {"text": "text", "label": ["x", "y"]},
     "2 of 4 rows .*: line 3, line 5[)]")])
def test_malformed_rows_are_counted_and_the_first_three_named(name, content, given, malformed):
    Path(name).write_text(content)
    with pytest.raises(UserError, match=malformed):
        loaded(name, **{"dev": name, **given})
