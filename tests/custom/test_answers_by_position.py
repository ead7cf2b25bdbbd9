"""Answers by the places of their characters: in texts without spaces, and where an answer occurs several times."""
import json
import unicodedata
from functools import partial

import pytest
import torch
from tokenizer_kinds import train
from transformers import PreTrainedTokenizerFast

from _utils.custom.answers import find_answers
from _utils.custom.question_files import read_questions
from _utils.custom.question_head import candidates
from _utils.custom.question_rows import QuestionRows
from _utils.custom.questions import QuestionOptions
from _utils.text.vocabulary import SPECIAL_TOKENS, tokenizer_from_tokens

decomposed = partial(unicodedata.normalize, "NFD")
# (context, answer, which of its occurrences is the answer), and what is special about it.
WITHOUT_SPACES = [
    pytest.param("周䶮写书，后来周䶮住在河边。", "周䶮", 1, id="a character outside of the vocabulary"),
    pytest.param("周三写书。\u200b", "周三", 0, id="a character without a token"),
    pytest.param("1987年生，1987年在校。", "1987", 1, id="twice"),
    pytest.param("カラとガラ", "ガラ", 0, id="equal without the dakuten"),
    pytest.param(decomposed("カラとガラ"), decomposed("ガラ"), 0, id="decomposed"),
    pytest.param("แม่น้ำโขงไหลผ่านลาว ยาวมาก", "ลาว", 0, id="Thai, within a word of the tokenizer"),
    pytest.param("ទន្លេមេគង្គហូរកាត់ប្រទេសលាវ", "ប្រទេសលាវ", 0, id="Khmer"),
    pytest.param("周三 在 Oslo 用 Rust 写代码，周三。", "周三", 1, id="with Latin words between spaces"),
    pytest.param("The boat left in 1912 and sank in 1912.".replace(" ", "\u00a0"), "1912", 1, id="no-break spaces"),
    pytest.param('{"owner":"mia☃","pilot":"mia☃","id":12}', "mia☃", 1, id="a long string without spaces"),
]


def uncased(*texts):
    """A tokenizer whose tokens are the lower-case characters of texts, except two, and some words."""
    characters = sorted({*decomposed("".join(texts).lower())} - {*"䶮☃ \u200b\u00a0"})
    continuations = [f"##{character}" for character in characters]
    return tokenizer_from_tokens([*SPECIAL_TOKENS, *characters, *continuations], cased=False, strip_accents=True)


def byte_level(*texts):
    """A tokenizer as RoBERTa's."""
    return PreTrainedTokenizerFast(tokenizer_object=train("bytes with RoBERTa's template"), pad_token="<pad>",
                                   unk_token="<unk>")


def questions_of(folder, context, answer, start):
    content = {"data": [{"paragraphs": [{"context": context, "qas": [
        {"id": "a", "question": "?", "answers": [{"text": answer, "answer_start": start}]}]}]}]}
    (folder / "a.json").write_text(json.dumps(content))
    return read_questions(str(folder / "a.json"))


def target_and_text(rows):
    """(characters of the context that training aims at, the text of a model that predicts exactly them)."""
    [[start, end, _]], [[_, offset, _]] = rows.labels.tolist(), rows.spans.tolist()
    places = rows.contexts[0].tokens[start - offset], rows.contexts[0].tokens[end - offset]
    one = torch.ones(1, 1)
    [found] = find_answers(rows, candidates(one, start * one, one[None], end * one[None], one[0]))
    return (int(places[0][0]), int(places[1][1])), found.text


@pytest.mark.parametrize("tokenizer", [uncased, byte_level])
@pytest.mark.parametrize("context, answer, number", WITHOUT_SPACES)
def test_an_answer_in_a_text_without_spaces_is_its_characters(tokenizer, context, answer, number, tmp_path):
    start = [i for i in range(len(context)) if context.startswith(answer, i)][number]
    questions, options = questions_of(tmp_path, context, answer, start), QuestionOptions(max_answer_length=99)
    rows = QuestionRows(questions, tokenizer(context), 256, options)
    (first, last), text = target_and_text(rows)
    assert text == answer and first == start and context[last:start + len(answer)] in ("", "\u3099")


def test_spans_of_a_long_text_without_spaces_have_the_answer_at_its_place(tmp_path):
    context = "周三写书。" * 30 + "周三住在河边。"
    questions = questions_of(tmp_path, context, "周三", 150)
    rows = QuestionRows(questions, uncased(context), 64, QuestionOptions(doc_stride=16))
    starts = rows.labels[:, 0].tolist()
    assert {first + start - offset for (first, offset, _), start in zip(rows.spans.tolist(), starts) if start} == {150}
    assert [start > 0 for start in starts] == [first <= 150 and 152 <= first + n for first, _, n in rows.spans]


@pytest.mark.parametrize("start", [0, 8, 12])
def test_an_answer_in_a_text_without_spaces_must_be_at_its_place(start, tmp_path):
    """One word of a text with spaces may begin anywhere in it (F54), a text without them is not one word."""
    [row] = questions_of(tmp_path, "在河边，周三写书。周三很好。", "周三", start)
    assert row["first_word"] == -1
    [row] = questions_of(tmp_path, "Then (Wednesday) came.", "Wednesday", 5)
    assert row["first_word"] == 1
