"""The files of custom tasks: kinds, formats, tags and predictions. Labels: test_labels.py, errors: test_bad_tables.py.
"""
import itertools
import json
from pathlib import Path

import pandas as pd
import pytest
import torch
from custom_tasks import has, labelled, loaded, tagged, tags_of, write, write_csv, write_rows

from _utils.errors import UserError
from _utils.tasks.tables import Table

pytestmark = pytest.mark.usefixtures("empty_folder")


# Kinds

@pytest.mark.parametrize("labels, kind, found", [
    (["b", "a", "b"], "classification", ("a", "b")),
    (["10", 9., "10"], "classification", ("9", "10")),
    ([1, 1., 0], "classification", ("0", "1")),  # equal numbers are one label
    (["1.5", "2", "3"], "regression", ()),
    (["5.000", "3.800", "0.25"], "regression", ()),  # as in STS-B
    ([2.125, 0.5, 1.0], "regression", ()),
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
    assert data.task.kind == kind and has(data, "skipped rows", "1 of 151 rows")


@pytest.mark.parametrize("labels, kind", [
    (["a"] * 39 + ["a|b"], "multilabel"), (["1", "2"] * 30 + ["2.5"], "regression"),
    (["a"] * 39 + [["a", "b"]], "multilabel"), (["O"] * 39 + [[[0, 4, "PER"]]], "spans"),
    ([["a", "b"]] * 40, "tagging"), (["a|b"] * 40, "multilabel")])
def test_labels_that_may_be_of_another_kind_are_asked_for(labels, kind):
    """The row is named, and so is one in twenty that makes labels numbers."""
    labelled(labels)
    place = 1 if len(set(map(str, labels))) == 1 else len(labels)
    with pytest.raises(UserError, match=rf"line {place}\b.*'kind'.*{kind}"):
        loaded()
    write("a.csv", "text,label\n" + "Anna left,B-PER O\nshe left,O O\n" * 9)
    with pytest.raises(UserError, match="line 2.*'kind' to 'tagging'"):
        loaded("a.csv")


def test_a_column_that_the_task_does_not_use_may_have_anything():
    write("a.csv", "text,label,keywords\n" + "one,x,['art']\ntwo,y,\"['art', 'news']\"\nthree,x,none\n" * 9)
    assert loaded("a.csv", text="text").task.kind == "classification"
    with pytest.raises(UserError, match="line 4: .*'keywords'.*'none'"):
        loaded("a.csv", text="text", label="keywords")


@pytest.mark.parametrize("text", ["the keys 'qas' and 'answer_start'", "[laughs] no", "[ ok ]", "word " * 40_000 + "."])
def test_a_text_may_look_like_something_else_or_be_a_book(text):
    write("a.csv", "text,label\n" + f"{text},x\nother,y\n" * 10)
    data = loaded("a.csv")
    assert data.task.kind == "classification" and set(data.splits["train"]["text"]) == {text, "other"}


# CSV and TSV

@pytest.mark.parametrize("content", [
    'text, label\n"a, b", x\n" c", y\n', '"text"; "label"\n"a, b"; x\n" c"; y\n', 'text ,label \n"a, b",x \n" c", y\n',
    'text;label\r"a, b";x\r c;y\r', "text\tlabel\r\na, b\tx\r\n c\ty\r\n", '\ufefftext|label\n\na, b|x\n c|y'])
def test_csv_files_may_have_blanks_after_commas_and_any_line_breaks(content):
    """A blank within quotes, or after a delimiter without one in the header, is a part of the cell."""
    data = loaded(write("a.csv", content), dev="a.csv")
    assert data.splits["train"].to_dict() == {"text": ["a, b", " c"], "label": [0, 1]}
    assert data.task.labels == ("x", "y")


def test_the_names_of_columns_may_have_commas():
    write("a.csv", '"How was it, overall?";rating\none;x\ntwo;y\n')
    data = loaded("a.csv", dev="a.csv", text="How was it, overall?", label="rating")
    assert data.splits["train"]["text"][:] == ["one", "two"]


def test_a_header_between_rows_is_malformed():
    """In one column it may be a text."""
    write("a.csv", "text,label\n" + "one,x\ntwo,y\n" * 60 + "text,label\n")
    data = loaded("a.csv", test=write("b.csv", "text\ntext\none\n"))
    assert data.task.labels == ("x", "y") and has(data, "skipped rows", "line 122", "1 of 121 rows")
    assert data.splits["test"]["text"][:] == ["text", "one"]


@pytest.mark.parametrize("cell, n", [('"a ""b"""', 20), ('"a" and "b"', 0), ('"', 0), ('""', 0), ("a ''b''", 0)])
def test_cells_of_a_tsv_file_that_look_quoted_are_counted(cell, n):
    """As pandas writes them. They are read as they are, as in GLUE."""
    data = loaded(write("a.tsv", "text\tlabel\n" + f"{cell}\tx\n{cell}\ty\n" * 10), dev="a.tsv")
    assert data.splits["train"]["text"][0] == cell and has(data, f"{n} cells look" if n else "look quoted") == bool(n)


# Tags

SENTENCES = [["Anna", "left", "Rome"], [".", "soon"], ["New York", "x"]]


@pytest.mark.parametrize("numbers", [
    [1, 1, 1, 2, 2, 3, 3], ["s 1", "", "", "s 2", "", "s 3", ""], [7, 7, 7, 0, 0, 7, 7]])
def test_a_table_may_have_a_word_in_each_row(numbers):
    """Numbers may start again, and only the first row of a sentence may have one."""
    words, tags = itertools.chain.from_iterable(SENTENCES), "B-P O B-L O O B-L O".split()
    names, last = ("n", "word", "tag", "doc"), (9, "end", "O", "c")
    write_rows("a.jsonl", [dict(zip(names, row)) for row in [*zip(numbers, words, tags, "aaaaabb"), last]])
    given = {"sentence": "n", "text": "word", "label": "tag"}
    data = loaded(dev="a.jsonl", test="a.jsonl", **given)
    assert data.task.kind == "tagging" and data.task.metrics[0] == "entity_f1" and tags_of(data) == "B-P O B-L"
    assert [rows["text"][:] for rows in data.splits.values()] == [[*SENTENCES, ["end"]]] * 3
    groups = [set(rows["group"]) for rows in loaded(dev=.5, groups="doc", **given).splits.values()]
    assert set.union(*groups) == {"a", "b", "c"} and not set.intersection(*groups)


def test_sentences_of_different_groups_are_not_one():
    """Whose numbers restart in each document."""
    rows = [(f"d{doc}", 1, "word", "XY"[doc % 2]) for doc in range(20) for _ in range(doc % 3 + 2)]
    write_csv("a.csv", ("doc", "n", "word", "tag"), rows)
    splits = loaded("a.csv", kind="tagging", text="word", label="tag", sentence="n", groups="doc", dev=.2).splits
    sentences = [*splits["train"]["text"], *splits["validation"]["text"]]
    data = loaded("a.csv", kind="tagging", text="word", label="tag", sentence="n", groups="doc",
                  test=write("b.csv", "doc,n,word,tag\n" + ",1,word,X\n" * 3))
    assert data.splits["test"]["text"][:] == [["word"] * 3]  # which has no groups
    assert sorted(map(len, sentences)) == sorted(doc % 3 + 2 for doc in range(20))


@pytest.mark.parametrize("columns", ["word tag doc", "doc word tag"])
def test_sentences_of_a_group_in_conll_columns_stay_in_one_split(columns):
    """Whatever their length. The column of the group is neither the text nor the label."""
    sentences = [[("word", "XY"[n % 2], f"d{doc}")] * (n + 1) for doc in range(20) for n in range(5)]
    order = ["word tag doc".split().index(name) for name in columns.split()]
    lines = ["".join(" ".join(word[i] for i in order) + "\n" for word in words) for words in sentences]
    splits = loaded(write("a.conll", "\n".join(lines)), groups=str(columns.split().index("doc")), dev=.2).splits
    train, dev = (set(splits[split]["group"]) for split in ("train", "validation"))
    assert len(train) == 16 and len(dev) == 4 and not train & dev
    assert {*itertools.chain.from_iterable(splits["train"]["text"])} == {"word"}


@pytest.mark.parametrize("row", [
    '"[\'Anna\', ""d\'Arc"", \'went\']","[\'B-PER\', \'I-PER\', \'O\']"\n',
    'Anna d\'Arc went,"[""B-PER"", ""I-PER"", ""O""]"\n',
    "Anna d'Arc went,B-PER I-PER O\n"])
def test_words_and_tags_of_a_csv_file_are_lists_or_strings_with_spaces(row):
    write("a.csv", "words,tags\n" + row * 20)
    data = loaded("a.csv", text="words", label="tags", kind="tagging")
    assert data.task.labels == ("B-PER", "I-PER", "O") and data.splits["train"]["text"][0] == ["Anna", "d'Arc", "went"]


def test_several_columns_of_labels_are_several_labels():
    write("a.csv", "text,x,y\n" + "one,1,0\ntwo,0,1\n" * 20)
    assert loaded("a.csv", label=["x", "y"]).task.kind == "multilabel"


def test_the_text_may_be_the_last_column_of_a_conll_file():
    write("a.conll", "O the\nB-X cat\n\n" * 10)
    assert loaded("a.conll", text=-1, label=0).splits["train"][0]["text"] == ["the", "cat"]


@pytest.mark.parametrize("comments", ["# sent_id = 5", "# id 0-abc\tdomain=en", "# newdoc\n# text = Anna went",
                                      "# text = a # b", "# a longer comment", "# x = O"])
def test_comments_before_a_sentence_are_no_words(comments):
    write("a.conll", f"{comments}\n# NN O\nAnna NN B-PER\n# NN O\n\n" * 20)
    assert set(map(tuple, loaded("a.conll").splits["train"]["text"][:])) == {("#", "Anna", "#")}


def test_lines_of_conllu_that_repeat_words_or_add_none_are_left_out():
    write("a.conll", "1-2 im _ _\n1 in in ADP\n2 dem der DET\n2.1 _ _ _\n3 Haus Haus NOUN\n\n" * 20)
    data = loaded("a.conll", text=1, label=3)
    assert data.splits["train"]["text"][0] == ["in", "dem", "Haus"] and data.task.labels == ("ADP", "DET", "NOUN")


@pytest.mark.parametrize("tags", ["NN VB -", "B_PER I_PER O", "0 1 2", "N_B V_E O_X", "# CD"])
def test_other_tags_than_those_of_entities_are_plain_labels(tags):
    tagged(tags)
    task = loaded("a.conll", dev="a.conll").task
    assert set(task.labels) == set(tags.split()) and task.metrics == ("accuracy", "macro_f1")


def test_tags_that_only_the_test_file_has_are_errors_and_no_labels():
    """Scores are those of seqeval on the names of the tags."""
    data = loaded(tagged("B-X I-X O"), dev=tagged("B-Y O O", "dev.conll"), test=tagged("B-X I-Z O", "test.conll", n=1))
    assert data.task.labels == ("B-X", "B-Y", "I-X", "O") and has(data, "I-Z")
    correct_but_for_one, targets = torch.eye(4)[[0, 3, 3]], data.splits["test"]["label"][:]
    scores = data.test_task.scores.score(correct_but_for_one, targets)
    assert scores == {"entity_f1": pytest.approx(2 / 3), "accuracy": 2 / 3}


def test_a_dev_file_without_a_scheme_is_not_converted_to_one():
    write("a.conll", "Anna B-PER\nleft O\n\n" * 9)
    write("b.conll", "Anna PER\nleft O\n\n" * 9)
    with pytest.raises(UserError, match="b.conll.*scheme='bioes'.*PER"):
        loaded("a.conll", dev="b.conll", scheme="bioes")


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
    assert data.task.labels == ("B-X", "O") and data.splits["test"]["label"][:] == [[]]


def test_texts_to_tag_of_one_word_each_are_noticed(capsys):
    """As of a file of words that does not end with .conll."""
    write("a.conll", "the O\ncat B-X\n\n" * 10)
    inputs = loaded("a.conll").task.inputs
    for texts, is_noticed in ((["the", "cat"], True), (["the cat", "cats"], False)):
        inputs.in_rows(Table("new.txt", pd.DataFrame({"text": texts}), {}))
        assert (".conll" in capsys.readouterr().err) == is_noticed


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


@pytest.mark.parametrize("tool, path", zip(TOOLS, ["a.jsonl", "a.csv", "a.jsonl", "a.csv", "a.parquet"]))
def test_character_spans_are_tags_of_words_and_are_predicted_as_spans(tool, path):
    """In CSV they are strings, as JSON writes them; a text without spans has an empty list."""
    cells = [TOOLS[tool], TOOLS[tool], "[]"]
    if path != "a.csv":
        cells = [json.loads(cell) for cell in cells]
    table = pd.DataFrame({"text": [TEXT, TEXT, "None here."] * 10, "entities": cells * 10})
    {"a.jsonl": lambda path: table.to_json(path, orient="records", lines=True), "a.parquet": table.to_parquet,
     "a.csv": table.to_csv}[path](path)
    data = loaded(path, dev=path, test=path, text="text", label="entities", kind="spans")
    assert (data.task.labels, data.task.metrics[0]) == (("B-LOC", "B-PER", "I-PER", "O"), "entity_f1")
    assert tags_of(data) == "B-PER I-PER O B-LOC O O O" and set(data.splits["test"]["label"][2]) == {3}
    written = predictions(data, list(itertools.chain(*data.splits["test"]["label"])))
    assert list(map(json.loads, written["prediction"][:3])) == [SPANS, SPANS, []]


SPAN = '{"text": "Anna left", "label": %s}\n'


@pytest.mark.parametrize("kind", [None, "tagging"])
def test_character_spans_need_their_kind(kind):
    write("a.jsonl", SPAN % '[[0, 4, "PER"]]' * 20)
    with pytest.raises(UserError, match="'kind'.*'spans'"):
        loaded(kind=kind)


@pytest.mark.parametrize("text, spans, tags, warning", [
    ("张三在北京", '[[0, 2, "PER"], [3, 5, "LOC"]]', "B-PER I-PER O B-LOC I-LOC", None),
    ("アンナはベルリンに", '[[0, 3, "PER"], [4, 8, "LOC"]]', "B-PER O B-LOC O", None),
    ("e\u0301tait Zoe\u0308 ici", '[[7, 11, "P"]]', "O B-P O", None),
    ("Anna left", '[[0, 3, "PER"]]', "B-PER O", "inside a word"),  # an end that is the last character
    ("New York Times", '[[0, 8, "LOC"], [0, 14, "ORG"]]', "B-ORG I-ORG I-ORG", "left out"),
    ("New York Times", '[[0, 8, "LOC"], [4, 14, "ORG"]]', "O B-ORG I-ORG", "left out"),
    ("a  b", '[[1, 3, "X"], [0, 1, "Y"]]', "B-Y O", "left out"),
    ("Bob Lee", '[[0, 7, "Full name"]]', "B-Full name I-Full name", None)])
def test_the_words_of_spans_follow_from_the_text_alone(text, spans, tags, warning):
    write("a.jsonl", f'{{"text": "{text}", "label": {spans}}}\n{{"text": "and x", "label": []}}\n' * 10)
    data = loaded(dev="a.jsonl", kind="spans")
    assert tags_of(data) == tags and has(data, "warning", "spans", warning or "") == bool(warning)


@pytest.mark.parametrize("text, cause", [("😀 Anna left", True), ("é Anna left", False)])
def test_spans_that_count_utf_16_are_recognized_by_emoji(text, cause):
    write("a.jsonl", (SPAN % '[[3, 7, "PER"]]').replace("Anna left", text) * 20)
    data = loaded(kind="spans")
    assert has(data, "inside a word", "UTF-16") == cause and has(data, "20 texts", "inside a word")


@pytest.mark.parametrize("label", ['"PER"', '""', '[[0, 99, "PER"]]'])
def test_a_row_without_valid_spans_is_skipped(label):
    write("a.jsonl", SPAN % '[[0, 4, "PER"]]' * 150 + SPAN % label)
    data = loaded(dev=.2, kind="spans")
    assert data.task.labels == ("B-PER", "O") and has(data, "skipped rows", "1 of 151 rows", "line 151")


# Predictions

def predictions(data, decisions):
    """The file of predictions as the documents read it."""
    [path] = data.task.test_files.values()
    data.task.prediction_files.write(Path(path), data.splits["test"], decisions)
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
    ([1.5, 2, 3], [1.23456789, 2e9], [1.234568, 2e9])])
def test_predictions_are_labels_numbers_or_joined_labels(labels, decisions, written):
    labelled(labels * 10)
    kind = "multilabel" if isinstance(labels[0], list) else None
    assert predictions(loaded(test="a.jsonl", kind=kind), decisions)["prediction"].tolist() == written


@pytest.mark.parametrize("path, content", [
    ("a.conll", "# id = 1\nAnna NN B-PER\nleft VB O\n\n-DOCSTART- X O\n\nOslo NN B-PER\n\n" * 10),
    ("a.jsonl", '{"text": ["Anna", "left"], "label": ["B-PER", "O"]}\n{"text": ["Oslo"], "label": ["B-PER"]}\n' * 10),
    ("a.csv", "text,label\n" + "Anna left,B-PER O\nOslo,B-PER\n" * 10)])
def test_predicted_tags_are_conll_lines_that_can_be_read_again(path, content):
    data = loaded(write(path, content), test=path, kind="tagging")
    data.task.prediction_files.write(Path("t.conll"), data.splits["test"], [0, 1, 1] * 10)
    assert data.task.test_files == {"test": "t.conll"}
    assert Path("t.conll").read_text() == "Anna\tB-PER\nleft\tO\n\nOslo\tO\n\n" * 10
    assert loaded("t.conll", dev="t.conll").splits["validation"]["text"][:2] == [["Anna", "left"], ["Oslo"]]
