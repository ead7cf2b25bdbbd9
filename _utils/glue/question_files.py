"""Files of questions in the format of SQuAD or MRQA (F52-F54)."""
import json
import re
from bisect import bisect_right
from pathlib import Path

import datasets
import fsspec

from _utils.errors import PlainError, as_plain_error
from _utils.glue.questions import words_of

_ADVICE = ("Use a file in the format of SQuAD ({'data': [{'paragraphs': [{'context', 'qas': [{'id', 'question', 'answers': [{'text', "
           "'answer_start'}]}]}]}]}), or in that of MRQA: JSON lines of paragraphs.")


def is_question_file(path):
    """Whether a file has the format of SQuAD or MRQA."""
    with fsspec.open(path, compression="infer") as file:
        return b'"qas"' in file.read(1 << 20)  # a quote inside of a text would be escaped


def read_questions(path):
    """Dataset of the questions of a file, for `questions.QuestionRows`; it also has their id, group (the number of the context),
    and label: all true texts.

    PlainError for another format. Of the answers, training uses the first one.
    """
    with as_plain_error(f"Cannot read questions from {path} ({{error}}). {_ADVICE}"), \
            fsspec.open(path, "rt", compression="infer", encoding="utf-8-sig") as file:
        is_mrqa = ".jsonl" in Path(path).name
        found = [json.loads(line) for line in file if line.strip()] if is_mrqa else json.load(file)["data"]
        paragraphs = [paragraph for entry in found if "header" not in entry for paragraph in entry.get("paragraphs", [entry])]
        groups = {}  # a context may be in several paragraphs
        rows = [{"group": groups.setdefault(context, len(groups)), **_row(question, context)}
                for paragraph in paragraphs for context in [paragraph["context"]] for question in paragraph["qas"]]
    if not rows:
        raise PlainError(f"{path} has no question. {_ADVICE}")
    return datasets.Dataset.from_list(rows)


def _row(question, context):
    """The row of a question on a context."""
    answers, is_impossible = question.get("answers") or [], bool(question.get("is_impossible"))
    places = [(answer["text"], answer["char_spans"][0][0] if "char_spans" in answer else answer["answer_start"])
              for answer in question.get("detected_answers", answers) if isinstance(answer, dict)]
    answer, start = ("", -1) if is_impossible or not places else places[0]  # F54
    first, last = locate(words_of(context), answer, start, len(context))
    return {"id": question.get("qid", question.get("id")), "question": question["question"], "context": context,
            "label": [answer["text"] if isinstance(answer, dict) else answer for answer in answers],
            "answer": answer, "first_word": first, "last_word": last, "is_impossible": int(is_impossible)}


def locate(words, answer, start, n):
    """(first, last) word of an answer at a character of a context of n characters; (-1, -1) if the words do not contain it (F53, F54)."""
    if not answer or start < 0 or start + len(answer) > n:
        return -1, -1
    first, last = (bisect_right(words, i, key=re.Match.start) for i in (start, start + len(answer) - 1))
    is_there = first and " ".join(answer.split()).lower() in " ".join(word[0] for word in words[first - 1:last]).lower()
    return (first - 1, last - 1) if is_there else (-1, -1)
