"""Files of questions in the format of SQuAD or MRQA (F52-F54), or as tables with a row for each question."""
import json
import re
import unicodedata
from bisect import bisect_right
from pathlib import Path

import datasets
import fsspec
import numpy as np
import pandas as pd
import pyarrow.parquet

from _utils.custom.definition import hub_table
from _utils.custom.hub_tables import load_rows
from _utils.errors import UserError, as_user_error

_WORD = re.compile("[^ \t\r\n\u202f]+")  # other spaces are part of a word (F53)
_LONGEST_WORD = 20  # characters
_SPACES = re.compile(r"\s*")
SCRIPTS_WITHOUT_SPACES = "".join((  # between words; for the inside of [] in a regular expression
    "\u0e01-\u109f",  # Thai, Lao, Tibetan, Burmese
    "\u1780-\u17ff",  # Khmer
    "\u1950-\u1aaf\u1b00-\u1b7f\ua980-\ua9ff\uaa60-\uaadf",  # other scripts of Southeast Asia
    "\u2e80-\u2fdf\u3005-\u3007\u3040-\u312f\u31a0-\u9fff\uf900-\ufaff\uff66-\uff9f",  # Chinese, Japanese
    "\ua000-\ua4cf",  # Yi
    "\U0001aff0-\U0001b2ff\U00020000-\U000323af",  # rare characters of Japanese and Chinese
))
_SCRIPT_WITHOUT_SPACES = re.compile(f"[{SCRIPTS_WITHOUT_SPACES}]")
_ADVICE = ("Use a file in the format of SQuAD ({'data': [{'paragraphs': [{'context', 'qas': [{'id', 'question', "
           "'answers': [{'text', 'answer_start'}]}]}]}]}), in that of MRQA (JSON lines of paragraphs), or a table in "
           "parquet or JSON with the columns id, context, question, answers.")


def read_questions(path):
    """Dataset of the questions of a file, for `questions.QuestionRows`.

    It also has their id, group (the number of the context), and label: all true texts, none if there is no answer.
    A question is unanswerable if is_impossible is true or, without is_impossible, if its list of answers has no text.
    Of the answers, training uses the first one. UserError for another format, and if no context has text.
    """
    with as_user_error(f"Cannot read questions from {path} ({{error}}). {_ADVICE}"):
        groups, rows = {}, []  # a context may be in several paragraphs
        for paragraph in _paragraphs(path):
            context = paragraph["context"]
            group = groups.setdefault(context, len(groups))
            questions = [paragraph] if "question" in paragraph else paragraph["qas"]
            rows += [{"group": group, **_row(question, context)} for question in questions]
        table = datasets.Dataset.from_list(rows)
    if not any(map(has_text, groups)):
        raise UserError(f"{path} has no question on a context with text ({len(rows)} in all). {_ADVICE}")
    return table


def _paragraphs(path):
    """The paragraphs with their questions, or the rows of a table, each with one question."""
    if hub_table(path):
        return load_rows(path).to_list()
    if Path(path).suffix.lower() == ".parquet":
        return pyarrow.parquet.read_table(path).to_pylist()
    with fsspec.open(path, "rt", compression="infer", encoding="utf-8-sig") as file:
        content = file.read().strip()
    decode, place, paragraphs = json.JSONDecoder().raw_decode, 0, []
    while place < len(content):  # of JSON lines, several values
        value, place = decode(content, place)
        place = _SPACES.match(content, place).end()
        for entry in value if isinstance(value, list) else value.get("data", [value]):
            paragraphs += entry.get("paragraphs", [entry])
    return [paragraph for paragraph in paragraphs if "header" not in paragraph]


def has_text(context):
    """Whether a context has a character that is more than a space, an accent or a control character."""
    return any(unicodedata.category(character)[0] not in "CMZ" for character in context)


def without_unusable(rows, options, path):
    """(Dataset of the questions on which a model can be trained, [message about the others]).

    rows: from `read_questions`.   options: QuestionOptions.   path: of their file, for the message.
    UserError if no answer can be used.
    """
    is_answered = np.array(rows["first_word"]) >= 0
    is_usable = is_answered | ((np.array(rows["is_impossible"]) == 1) & options.has_unanswerable)
    is_usable &= [has_text(context) for context in rows["context"]]
    usable = rows.select(np.flatnonzero(is_usable))
    if not any(usable["answer"]):
        raise UserError(f"{path}: no question has an answer at its place in the context. Correct 'answers' and "
                        "'answer_start'.")
    n = len(rows) - len(usable)
    message = f"skipped {n:,} of {len(rows):,} training questions, without an answer at its place in the context"
    return usable, [message] if n else []


def check_evaluated(splits, options, definition):
    """[warnings] about questions of dev and test files without an answer, if the model has to answer each question.

    splits: {split: Dataset of `read_questions`}.   options: QuestionOptions.   definition: of the task.
    UserError for a dev file without answers, and for questions of a test file with the same id.
    """
    if isinstance(definition["dev"], str) and not any(splits["validation"]["label"]):
        raise UserError(f"{definition['dev']}: no question has an answer, which the evaluation needs. Write them, or "
                        "leave 'dev' out.")
    ids = pd.Series(splits["test"]["id"][:] if "test" in splits else [])
    if ids.duplicated().any():
        raise UserError(f"{definition['test']}: several questions have the id {ids[ids.duplicated()].iloc[0]!r}. Give "
                        "each question an 'id' of its own, under which its answer is written.")
    warnings = []
    for split, key in (("validation", "dev"), ("test", "test")):
        answers = splits[split]["label"][:] if split in splits else []
        if 0 < answers.count([]) < len(answers) and not options.has_unanswerable:
            warnings.append(f"warning: {answers.count([]):,} of {len(answers):,} questions in {definition[key]} have "
                            "no answer and count as wrong, because has_unanswerable is False (by default, if no "
                            "training question is unanswerable)")
    return warnings


def _row(question, context):
    """The row of a question on a context. Its answers are strings, or dictionaries with their texts and places."""
    answers = question.get("answers")
    if isinstance(answers, dict):  # of a table: {"text": [...], "answer_start": [...]}
        answers = [dict(zip(answers, values)) for values in zip(*answers.values(), strict=True)]
    answers = [answer if isinstance(answer, dict) else {"text": answer} for answer in answers or ()]
    texts, is_impossible = [answer["text"] for answer in answers], question.get("is_impossible")
    if is_impossible is None:
        is_impossible = question.get("answers") is not None and not any(map(str.strip, texts))
    places = question.get("detected_answers") or answers
    if is_impossible:
        texts, places = [], []
    answer = next(iter(places), {"text": ""})  # F54
    start = answer.get("char_spans", [[answer.get("answer_start")]])[0][0]
    start = -1 if start is None else int(start)
    first, last = locate(context, answer["text"], start)
    return {"id": question.get("qid", question.get("id")), "question": question["question"], "context": context,
            "label": texts, "is_impossible": int(is_impossible), "answer": answer["text"], "answer_start": start,
            "first_word": first, "last_word": last}


def locate(context, answer, start):
    """(first, last) word of an answer at a character of its context; (-1, -1) if it is not there.

    Case and spaces may differ. As in Google's code the answer may begin anywhere in its words (F53, F54); where the
    context has no words, it has to be at that character.
    """
    words = words_of(context)
    if not (answer and 0 <= start <= len(context) - len(answer)):
        return -1, -1
    first, last = (bisect_right(words, i, key=re.Match.start) - 1 for i in (start, start + len(answer) - 1))
    if first < 0:
        return -1, -1
    if all(are_words(words)[first:last + 1]):
        is_there = _plain(answer) in " ".join(word[0] for word in words[first:last + 1]).lower()
    else:
        is_there = _plain(answer) == _plain(context[start:start + len(answer)])
    return (first, last) if is_there else (-1, -1)


def _plain(text):
    """A text in lower case, with single spaces."""
    return " ".join(text.split()).lower()


def words_of(context):
    """What is between the spaces of a context, as re.Match objects."""
    return list(_WORD.finditer(context))


def are_words(words):
    """Whether each string between the spaces of a context is a word. words: from `words_of`.

    It is not if it is longer than 20 characters, nor if at least half of the strings have letters of a script without
    spaces between words, such as those of Chinese, Japanese and Thai.
    """
    n = 0
    if words and _SCRIPT_WITHOUT_SPACES.search(words[0].string):
        n = sum(bool(_SCRIPT_WITHOUT_SPACES.search(word[0])) for word in words)
    return [2 * n < len(words) and len(word[0]) <= _LONGEST_WORD for word in words]
