"""Question answering: files, odd input, and from files to predictions."""
import gzip
import json
from pathlib import Path

import pytest
from custom_tasks import loaded, write
from tiny_finetuning import run_own

import finetune
from _utils.commands.predict import predict
from _utils.custom.answers import Answers
from _utils.custom.question_files import read_questions
from _utils.custom.question_rows import QuestionRows
from _utils.custom.questions import QuestionOptions, Questions
from _utils.custom.task_kinds import load_custom_task
from _utils.errors import UserError
from _utils.finetuning.config import complete_finetuning
from _utils.finetuning.runs import Runs, run_path
from _utils.text.special_tokens import text_tokenizer

pytestmark = pytest.mark.usefixtures("empty_folder")

CONTEXT = "Alpha beta gamma. Delta  epsilon."


def squad(*questions, context=CONTEXT):
    """The content of a file; questions: (answers: [(text, start)] or None for an unanswerable question)."""
    qas = []
    for i, answers in enumerate(questions):
        found = [{"text": text, "answer_start": start} for text, start in answers or ()]
        qas.append({"id": str(i), "question": "what is it?", "is_impossible": answers is None, "answers": found})
    return json.dumps({"data": [{"paragraphs": [{"context": context, "qas": qas}]}]})


def mrqa(**question):
    return json.dumps({"context": CONTEXT,
                       "qas": [{"qid": "q", "id": "other", "question": "what?", "answers": ["beta"], **question}]})


def questions(path, **keys):
    return loaded(path, **{"dev": path, "kind": "questions", **keys})


@pytest.mark.parametrize("answers, words", [
    ([("beta", 6), ("Alpha", 0)], (1, 1)), ([("BETA  gamma", 6)], (1, 2)), ([("beta", 7)], (1, 1)),
    ([("Delta epsilon", 18)], (3, 4)), *(([answer], (-1, -1)) for answer in (
        ("beta", 0), ("beta", 500), ("epsilon. And", 25), ("beta", -1), ("", 6)))])
def test_the_first_answer_is_located(answers, words):
    """Unlike in Google's code, no answer raises, and empty ones or those before the text are not found (F54)."""
    write("a.json", squad(answers))
    [row] = read_questions("a.json")
    assert (row["first_word"], row["last_word"]) == words and row["label"] == [text for text, _ in answers]


def test_the_questions_about_a_text_stay_in_one_split():
    """Also if the file repeats the text for each question."""
    question = mrqa(detected_answers=[{"text": "beta", "char_spans": [[6, 9]]}])
    lines = [question.replace(CONTEXT, f"Alpha beta {i % 10}.") for i in range(50)]
    write("a.jsonl", "\n".join(lines))
    splits = questions("a.jsonl", dev=.2).splits
    train, dev = (set(splits[split]["context"]) for split in ("train", "validation"))
    assert not train & dev and len(train) == 8 and len(splits["validation"]) == 10


def test_mrqa_files_are_read_compressed_or_not():
    """With headers, empty lines, questions without detected answers; the id is the qid (F52, F78)."""
    answered = mrqa(detected_answers=[{"text": "gamma", "char_spans": [[11, 99], [0, 1]]}])
    content = "\n".join(['{"header": {}}', answered, "", mrqa()])
    write("a.jsonl", content)
    Path("b.jsonl.gz").write_bytes(gzip.compress(content.encode()))
    for name in ("a.jsonl", "b.jsonl.gz"):
        rows = read_questions(name)
        assert rows["id"][:] == ["q", "q"] and rows["first_word"][:] == [2, -1] and rows["label"][:] == [["beta"]] * 2
        splits = questions(name).splits
        assert len(splits["train"]) == 1 and len(splits["validation"]) == 2


ANSWERED = squad([("beta", 6)])


@pytest.mark.parametrize("content, keys, message", [
    ("[1]", {}, "a.json .*SQuAD"), ('{"data": []}', {}, "a.json"),
    ('{"data": [{"paragraphs": [{"context": "a"}]}]}', {}, "'qas'"), ('[{"context": "a", "answers": []}]', {}, "qas"),
    ('{"context": "a", "question": "b", "answers": {"text": ["a"]}}', {}, "answer_start"),
    ('{"context": null, "question": "b", "answers": []}', {}, "a.json"), (squad([("beta", 0)]), {}, "a.json"),
    (ANSWERED, {"kind": None}, "a.json: .*'kind': 'questions'"),
    (ANSWERED, {"metrics": "accuracy"}, "exact, f1"), (ANSWERED, {"questions": {"stride": 3}}, "doc_stride"),
    (ANSWERED, {"questions": {"doc_stride": 0}}, "doc_stride")])
def test_unusable_files_and_options_raise(content, keys, message):
    write("a.json", content)
    with pytest.raises(UserError, match=message):
        questions("a.json", **keys)


def test_ids_of_test_questions_differ():
    question = mrqa(detected_answers=[{"text": "gamma", "char_spans": [[11, 15]]}])
    write("a.jsonl", f"{question}\n{question}")
    questions("a.jsonl")
    with pytest.raises(UserError, match="a.jsonl.*'q'"):
        questions("a.jsonl", test="a.jsonl")


def test_names_of_google_are_files_in_a_folder():
    """They may be beside other tasks."""
    Path("squad").mkdir()
    for split in ("train", "dev"):
        write(f"squad/{split}.json", squad([("beta", 6)], None))
    c, with_rte = (complete_finetuning(finetune.c.override([f"tasks={tasks}", "glue_dir=."]))
                   for tasks in ("squad,searchqa", "squad,rte"))
    assert with_rte.tasks[1] == "rte"
    data = load_custom_task(c.tasks[0])
    assert data.task.questions == QuestionOptions(has_unanswerable=True) and data.task.epochs == 2
    with pytest.raises(UserError, match="searchqa/train.json"):
        load_custom_task(c.tasks[1])


@pytest.mark.parametrize("windows", ["window_stride=64 max_length=64", "window_stride=90 max_length=64",
                                     "window_stride=512"])
def test_windows_that_do_not_overlap_are_an_error_before_the_checkpoint_is_loaded(windows):
    """Also for tasks of questions, to which they do not apply."""
    with pytest.raises(UserError, match=f"{windows.split()[0]}.*max_length"):
        complete_finetuning(finetune.c.override(["tasks=squad", *windows.split()]))


def test_a_question_always_leaves_room_for_its_context(small_tokenizer):
    """Google's code does not terminate (F56)."""
    write("a.json", squad([("beta", 6)]))
    rows = QuestionRows(read_questions("a.json"), small_tokenizer, 12, QuestionOptions(doc_stride=2))
    covered = {first + i for first, _, length in rows.spans.tolist() for i in range(length)}
    assert rows.lengths.max() <= 12 and covered == set(range(len(rows.contexts[0].word_of)))


def test_a_question_that_leaves_room_is_not_cut(small_tokenizer):
    """Also if the maximum length of a question would not."""
    write("a.json", squad([("beta", 6)]))
    n_tokens = len(text_tokenizer(small_tokenizer).encode("what is it?", add_special_tokens=False))
    rows = QuestionRows(read_questions("a.json"), small_tokenizer, n_tokens + 4, QuestionOptions(doc_stride=1))
    assert {*rows.spans[:, 1]} == {n_tokens + 2}  # the context begins after [CLS], the question and [SEP]


def test_an_ensemble_averages_the_probabilities_of_texts_and_the_odds_of_no_answer():
    task = Questions("q", "q", ("question", "context"), questions=QuestionOptions())
    [answers] = task.scores.average([[Answers({"a": .6, "b": .4}, 1.)], [Answers({"b": 1.}, 3.)]])
    assert answers.n_best == pytest.approx({"b": .7, "a": .3}) and answers.text == "b" and answers.null_odds == 2


def test_questions_from_files_to_predictions(fresh_checkpoint):
    """From files to scores and to the JSON of the official scripts, by an ensemble of two runs."""
    empty = [{"id": "none", "context": "", "question": "Who?", "answers": []}]
    for name, n in ("train", 60), ("test", 30):
        rows = [{"id": f"{i}", "context": f"The server {i} can read every page.", "question": "Who can read?",
                 "answers": [{"text": "server", "answer_start": 4}] * bool(i % 3)} for i in range(n)]
        Path(f"{name}.json").write_text(json.dumps(rows + empty * (name == "test")))
    task = {"name": "q", "train": "train.json", "dev": "train.json", "test": "test.json", "kind": "questions",
            "questions": {"n_best": 5}}
    results = run_own(fresh_checkpoint, task, "end=2", "th_run=0,1", "max_length=64", epochs=1)
    assert results.scores["baseline"].tolist() == pytest.approx([100 / 3, 1100 / 31], abs=.1)
    assert list(Runs()[0].scores["test"]) == ["exact", "f1"]
    files = [Path("test_outputs/g", folder, "q.json") for folder in ("", "n_best", "null_odds")]
    texts, n_best, odds = (json.loads(file.read_text()) for file in files)
    assert list(texts) == list(n_best) == list(odds) == results.tables["q"].splits["test"]["id"][:]
    assert all(text == ("" if odds[key] > -2.75 else next(iter(n_best[key]))) for key, text in texts.items())
    assert all(0 < len(found) <= 10 and sum(found.values()) == pytest.approx(1) for found in n_best.values())
    checkpoint = str(run_path("g", "q", 0))
    with pytest.raises(UserError, match="'q'"):
        predict(checkpoint, "x.tsv")
