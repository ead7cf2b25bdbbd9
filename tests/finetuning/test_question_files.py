"""Questions without an answer, and tables with a row for each question."""
import json
from pathlib import Path

import datasets
import pandas as pd
import pytest
from custom_tasks import loaded

from _utils.custom.question_files import read_questions
from _utils.errors import UserError

ANSWERED = {"answers": [{"text": "beta", "answer_start": 6}]}
# A question without an answer, as different programs write it.
UNANSWERED = {
    "empty": {"answers": []},
    "flag": {"answers": [], "is_impossible": True},
    "null flag": {"answers": [], "is_impossible": None},
    "no text": {"answers": [{"text": "", "answer_start": -1}]},
    "columns": {"answers": {"text": [], "answer_start": []}},
    "blank column": {"answers": {"text": [" "], "answer_start": [0]}},
    "flag beside an answer": {**ANSWERED, "is_impossible": True},
}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(name, *questions, context="Alpha beta {}."):
    """A file of SQuAD; each question is about a text of its own."""
    paragraphs = [{"context": context.format(i), "qas": [{"id": str(i), "question": "what?", **question}]}
                  for i, question in enumerate(questions)]
    Path(name).write_text(json.dumps({"data": [{"paragraphs": paragraphs}]}))
    return name


def questions(path, **keys):
    return loaded(str(path), **{"dev": str(path), "kind": "questions", **keys})


@pytest.mark.parametrize("question", UNANSWERED.values(), ids=UNANSWERED)
def test_a_question_without_an_answer_is_unanswerable(folder, question):
    data = questions(write("a.json", *[ANSWERED] * 3, question))
    assert data.task.questions.has_unanswerable and not any("skipped" in notice for notice in data.notices)
    assert data.splits["train"]["is_impossible"][:] == [0, 0, 0, 1]
    assert data.splits["validation"]["label"][:] == [["beta"]] * 3 + [[]]


# Tables

def as_table(as_list=False):
    """Rows as the hub's squad_v2 has them. as_list: each answer by itself."""
    rows = []
    for i in range(10):
        answers = {"text": ["beta", "Gamma"], "answer_start": [6, 14]} if i % 2 else {"text": [], "answer_start": []}
        if as_list:
            answers = [dict(zip(answers, pair)) for pair in zip(*answers.values())]
        rows.append({"id": f"id{i}", "context": f"Alpha beta {i}. Gamma.", "question": "what?", "answers": answers})
    return rows


WRITERS = {
    "hub.parquet": lambda path: datasets.Dataset.from_list(as_table()).to_parquet(path),
    "pandas.parquet": lambda path: pd.DataFrame(as_table()).to_parquet(path),
    "structs.parquet": lambda path: datasets.Dataset.from_list(as_table(as_list=True)).to_parquet(path),
    "lines.json": lambda path: datasets.Dataset.from_list(as_table()).to_json(path),
    "array.jsonl": lambda path: Path(path).write_text(json.dumps(as_table(), indent=1)),
    "data.json": lambda path: Path(path).write_text(json.dumps({"version": "2", "data": as_table()})),
    "lists.json": lambda path: Path(path).write_text(json.dumps(as_table(as_list=True))),
}


@pytest.mark.parametrize("name", WRITERS)
def test_tables_of_questions_are_read(folder, name):
    WRITERS[name](name)
    rows = read_questions(name)
    assert rows["id"][:3] == ["id0", "id1", "id2"] and rows["label"][:2] == [[], ["beta", "Gamma"]]
    assert rows["is_impossible"][:] == [1, 0] * 5
    assert rows["answer_start"][:2] == [-1, 6] and rows["first_word"][:2] == [-1, 1]
    assert questions(name).task.questions.has_unanswerable
    with pytest.raises(UserError, match=f"{name}.*'kind': 'questions'"):
        questions(name, kind=None)

