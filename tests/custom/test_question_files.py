"""Questions without an answer, tables with a row for each question, and contexts without text."""
import json
from pathlib import Path

import datasets
import pandas as pd
import pytest
from custom_tasks import has, loaded
from tiny_finetuning import run_own

from _utils.custom.answers import Answers
from _utils.custom.question_files import read_questions
from _utils.errors import UserError

pytestmark = pytest.mark.usefixtures("empty_folder")

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


def write(name, *questions, context="Alpha beta {}."):
    """A file of SQuAD; each question is about a text of its own."""
    paragraphs = [{"context": context.format(i), "qas": [{"id": str(i), "question": "what?", **question}]}
                  for i, question in enumerate(questions)]
    Path(name).write_text(json.dumps({"data": [{"paragraphs": paragraphs}]}))
    return name


def questions(train, **keys):
    return loaded(train, **{"dev": train, "kind": "questions", **keys})


def scores_of_no_answers(data):
    """The exact score of a model that answers nothing, and the baseline beside it."""
    labels = data.splits["validation"]["label"][:]
    found = data.task.scores.evaluate([Answers({"wrong": 1.}, 9.)] * len(labels), labels)
    return found["scores"]["exact"], found["baselines"]["exact"]


@pytest.mark.parametrize("question", UNANSWERED.values(), ids=UNANSWERED)
def test_a_question_without_an_answer_is_unanswerable(question):
    data = questions(write("a.json", *[ANSWERED] * 3, question))
    assert data.task.questions.has_unanswerable and not has(data, "skipped")
    assert data.splits["train"]["is_impossible"][:] == [0, 0, 0, 1]
    assert data.splits["validation"]["label"][:] == [["beta"]] * 3 + [[]]
    assert scores_of_no_answers(data) == (.25, .25)


def test_unanswered_questions_of_the_dev_set_are_reported_if_training_has_none():
    """A file with no answer at all is an error."""
    train, dev = write("a.json", *[ANSWERED] * 3), write("b.json", ANSWERED, {"answers": []}, {"answers": []})
    assert has(questions(train, dev=dev), "2 of 3", "b.json")
    write("c.json", *[{"answers": []}] * 3)
    for files in ({"train": train, "dev": "c.json"}, {"train": "c.json"}):
        with pytest.raises(UserError, match="c.json"):
            questions(**files)


def test_answers_without_a_place_are_skipped():
    no_place = {"answers": {"text": ["beta"], "answer_start": [None]}}
    data = questions(write("a.json", *[ANSWERED] * 3, no_place, {"answers": [{"text": "beta"}]}))
    assert len(data.splits["train"]) == 3 and len(data.splits["validation"]) == 5
    assert has(data, "skipped 2 of 5")


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
def test_tables_of_questions_are_read(name):
    WRITERS[name](name)
    rows = read_questions(name)
    assert rows["id"][:3] == ["id0", "id1", "id2"] and rows["label"][:2] == [[], ["beta", "Gamma"]]
    assert rows["is_impossible"][:] == [1, 0] * 5
    assert rows["answer_start"][:2] == [-1, 6] and rows["first_word"][:2] == [-1, 1]
    assert questions(name).task.questions.has_unanswerable
    with pytest.raises(UserError, match=f"{name}.*'kind': 'questions'"):
        questions(name, kind=None)


# Contexts without text

@pytest.mark.parametrize("context", ["", " \n", "\u200b", "\u0301", "\u00a0\u3000"])
def test_a_file_without_text_in_its_contexts_raises(context):
    write("a.json", *[ANSWERED] * 3)
    write("b.json", *[{"answers": [], "is_impossible": True}] * 3, context=context)
    for split in ("train", "dev", "test"):
        with pytest.raises(UserError, match="b.json.*context"):
            questions(**{"train": "a.json", "dev": "a.json", split: "b.json"})


def test_questions_on_empty_contexts_are_answered_but_not_used_for_training(fresh_checkpoint):
    content = json.loads(Path(write("a.json", *[ANSWERED] * 12)).read_text())
    empty = {"context": "", "qas": [{"id": "none", "question": "what?", "answers": []}]}
    content["data"].append({"paragraphs": [empty]})
    Path("b.json").write_text(json.dumps(content))
    assert len(questions("b.json").splits["train"]) == 12
    task = {"name": "q", "kind": "questions", "train": "a.json", "dev": "b.json", "test": "b.json"}
    run_own(fresh_checkpoint, task, "max_length=32", epochs=1)
    found = json.loads(Path("test_outputs/g/q.json").read_text())
    assert len(found) == 13 and found["none"] == "empty"
