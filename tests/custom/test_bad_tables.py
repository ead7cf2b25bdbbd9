"""Files and descriptions of custom tasks that are rejected."""
from pathlib import Path

import pytest
from custom_tasks import loaded, write

import finetune
from _utils.errors import UserError
from _utils.finetuning.config import complete_finetuning

pytestmark = pytest.mark.usefixtures("empty_folder")


SPAN = '{"text": "Anna left", "label": %s}\n'
BAD_FILES = [
    ("a.csv", "text,label\none,x\nthree,y\ntwo\n", "line 4"),
    ("a.tsv", "text\tlabel\none\tx\nthree\ntwo\ty\n", "line 3"),
    ("a.csv", 'text,label\n"one\n\nmore",x\n,y\n', "line 5: .*'text' .*''"),
    ("a.csv", "text,label\n" + "one, two,x\nthree, four,y\n" * 9, "line 2: 3 columns.*18 of 18"),
    ("a.csv", "text,label\n" + "one, two,x\n" * 9, "line 2: 3 columns", {"kind": "regression"}),
    ("a.csv", "text,a,b\n" + "one, two,0,1\n" * 9, "line 2: 4 columns", {"text": "text", "label": ["a", "b"]}),
    ("a.csv", "text,label\none,x\nthree,y\ntwo,\n", "line 4: .*'label' .*''.* x, y"),
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
    ("a.csv", "text,label\n" + "one,1.5\n" * 9, "1.5", {"kind": "regression"}),
    ("a.csv", "text;label\n" + "one;1,5\ntwo;2,0\nthree;4\n" * 9, "comma.*'1,5' in line 2.*'kind'"),
    ("a.csv", "text,label\n" + 'one,"1,500"\ntwo,"12,250.5"\nthree,7\n' * 9, "comma.*'1,500' in line 2.*'kind'"),
    ("a.csv", "text;label\n" + "one;1.500,25\ntwo;12,5\n" * 9, "'1.500,25' in line 2.*'kind'"),
    ("a.csv", "text;label\n" + "one;1,5\ntwo;2,0\n" * 9, "1234.5.*1,5.*decimal comma", {"kind": "regression"}),
    ("a.jsonl", '{"text": "a b", "label": [0.5, 1.5]}\n' * 9, "lists of numbers, such as .0.5, 1.5. in line 1",
     {"kind": "multilabel"}),
    ("a.csv", "text,label,label\none,x,y\ntwo,y,x\n", "'label'", {"text": "text"}),
    ("a.csv", "text,x,y\n" + "one,0,1\n" * 30 + "two,2,0\n", "line 32: .*1 or 0.*'2', '0'",
     {"label": ["x", "y"], "kind": "multilabel"}),
    ("a.csv", "text,x,y\n" + "one,0,1\n" * 30 + "two,,0\n,1,\n", "line 32: .*2 of 32",
     {"text": "text", "label": ["x", "y"], "kind": "multilabel"}),
    ("a.csv", "text,label\n" + "one,['x']\n" * 20 + "two,['x'\n", "line 22: .*'label'"),
    ("a.csv", "text,label\n" + "one,['x' 'y']\ntwo,['x']\n" * 9, "line 2: .*'x' 'y'.*commas", {"kind": "multilabel"}),
    ("a.csv", "n,text,label\n" + "1,one,O\n1,two,B-X\n2,one,O\n" * 9, "27 .*'sentence'",
     {"text": "text", "kind": "tagging"}),
    ("a.csv", "n,text,label\n" + "1,one,O\n1,two,B-X\n" * 9 + "2,x\n", "line 20: .*'n'", {"sentence": "n"}),
    ("a.csv", "text,label\none,x\ntwo,y\n", "'m' .*text, label", {"sentence": "m"}),
    ("a.csv", "text,label\n" + "one,x\ntwo,y\n" * 9 + "text,label\n", "line 20: .*1 of 19"),
    ("a.csv", "text,Labels\none,x\n", "'label' .*'Labels'[?]", {"text": "text"}),
    ("a.jsonl", SPAN % '[[0, 10, "PER"]]'.replace("Anna", "😀 Anna") * 20, "line 1: .* 9 ", {"kind": "spans"}),
    ("a.csv", "text,label\n" + "one,[1. 0. 0.]\n" * 9, "line 2: .*label", {"kind": "multilabel"}),
    ("a.jsonl.gz", "", "compressed"),
    ("a.csv", "text,label,group\none,x,1\ntwo,y,2\n", "0.9 .*2 'groups'", {"groups": "group", "dev": .9}),
    ("a.csv", "text,label,group\n" + "one,x,1\ntwo,y,1\n" * 9, "1 'groups'", {"groups": "group", "dev": .2}),
    ("a.csv", "text,label,group\n" + "one,x,1\ntwo,y,\n" * 9, "line 3: .*'group' .*''",
     {"groups": "group", "dev": .2}),
    ("a.jsonl", '{"text": "one", "label": "x", "group": ["a"]}\n{"text": "two", "label": "y", "group": []}\n' * 9,
     "line 2: .*'group'", {"groups": "group", "dev": .2}),
    ("a.csv", "text,x,y\none,0,1\ntwo,1,0\n", "2 columns.*'tagging'", {"label": ["x", "y"], "kind": "tagging"}),
    ("a.csv", "text,label\none,x\ntwo,y\n", "positive='z' .*x, y", {"positive": "z"}),
    ("a.csv", "text,label\none,x\ntwo,y\n", "metrics='bleu'", {"metrics": "bleu"}),
    ("a.csv", "text,label\none,x\ntwo,y\nthree,z\n", "metrics='f1' .*accuracy.*macro_f1", {"metrics": "f1"}),
    ("a.csv", "text,label\none,1.5\ntwo,2\n", "'rmse'.*best", {"metrics": ["rmse", "r2"]}),
    ("a.csv", "text,label\none,\ntwo,\n", "labels"),
    ("a.jsonl", '{"text": "a", "label": 1}\nno\n', "line 2 .*JSON"),
    ("a.jsonl", '{"text": "a", "label": 1}\n{"text": 5, "label": 2}\n', "line 2: .*'text' .*5"),
    ("a.jsonl", '{"text": "a", "label": "x \\ud83d"}\n', "line 1 .*surrogates"),
    ("a.jsonl", '{"text": "a b", "label": "x y"}\n{"text": ["b"], "label": 3}\n', "line 2: .* 3",
     {"kind": "tagging"}),
    ("a.jsonl", '{"text": ["a", "b"], "label": ["x"]}\n{"text": ["c"], "label": ["y"]}\n', "line 1: .*words",
     {"kind": "tagging"}),
    ("a.json", '{"text": ["a film", "a word"], "label": ["x", "y"]}\n', "labels are lists"),
    ("a.jsonl", SPAN % '[[0, 99, "PER"]]' * 20, "line 1: .*99", {"kind": "spans"}),
    ("a.jsonl", SPAN % '[[3, 1, "PER"]]' * 20, "line 1: .*3, 1", {"kind": "spans"}),
    ("a.jsonl", SPAN % '[["a", "b"]]' * 20, "line 1: ", {"kind": "spans"}),
    ("a.jsonl", SPAN % '[[0, 4, ["PER", "ORG"]]]' * 20, "line 1: ", {"kind": "spans"}),
    ("a.jsonl", SPAN % '[{"from": 0, "to": 4}]' * 20, "line 1: ", {"kind": "spans"}),
    ("a.txt", "one O\ntwo\n\n", "line 2"),
    ("a.txt", "% a comment of this file\nAnna NN B-PER\nleft VB O\n\n" * 3, "line 1: 6 .*3"),
    ("a.txt", "one A\ntwo B\n\nthree B\n", "A, B.*B-NP", {"metrics": "entity_f1"}),
    ("a.txt", "one A\n\ntwo B\nthree B\n", "scheme='iob2'", {"scheme": "iob2"}),
    ("a.txt", "one N A\ntwo N B\n", "'text'.* 0, 1", {"text": [0, 1]}),
    ("a.txt", "the film is good\tpos\nbad\tneg\n" * 9, "9 of 18 lines .*several words .*line 1[.].*csv"),
    ("a.txt", "pos\tthe film is good\n\nneg\tbad\n\n" * 9, "several words .*line 1[.].*csv"),
    ("a.txt", "__label__pos good film\n__label__neg not good at all\n" * 9, "columns instead of.*csv"),
    ("a.txt", '{"text": "a b", "label": "x"}\n' * 9, "words in one sentence.*csv"),
    ("a.txt", "text,label\nthe film is good,pos\nbad,neg\n" * 9, "line 2: .*columns.*csv"),
    ("a.txt", "good\tpos\nbad\tneg\n" * 50, "100 words in one sentence.*csv"),
    ("a.txt", "很好看\tpos\n\n太长了\tneg\n\n" * 9, "18 texts has one word.*'sentence'.*csv"),
    ("a.txt", "1\tdu\tO\n2\tParis\tB-X\n\n" * 9, "first column has numbers.*'text'"),
    ("a.tsv", "the\tO\ncat\tB-X\n\n" * 9, "found: the, O.*header.*.conll"),
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
    "{'train': 'a.csv', 'positive': 1}": "positive: 1", "{'train': 'a.csv', 'threshold': 1.5}": "1.5.*0 and 1.*'best'",
    "{'train': 'a.csv', 'kind': 'ranking'}": "'ranking'.*'classification'",
    "{'train': 'a.csv', 'scheme': 'BIO'}": "'BIO'.*'bioes'",
    "{'train': 'a.txt', 'kind': 'classification'}": "'a.txt'.*'classification'.*csv",
    "{'train': 'a.bio', 'kind': 'spans'}": "'a.bio'.*'spans'.*csv",
    "{'train': 'a.csv', 'test': 'b.txt'}": "'b.txt'.*'a.csv'.*csv",
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


@pytest.mark.parametrize("name, content, malformed", [
    ("a.csv", "text,label\n" + "one,x\ntwo,y\n" * 5 + "short\n,x\nlong,x,y\nthree,\n",
     "4 of 14 .*: line 12, line 13, line 14 [.]{3}"),
    ("a.conll", "a O\nb B-X\n\n" * 5 + "c\n\nd O O\n", "2 of 12 .*: line 16, line 18[)]")])
def test_malformed_rows_are_counted_and_the_first_three_named(name, content, malformed):
    Path(name).write_text(content)
    with pytest.raises(UserError, match=malformed):
        loaded(name, dev=name)
