"""Exported models predict as the finetuned ones do, with docs/examples/exported.py."""
import json
import random
import re
from pathlib import Path

import exported
import pytest
import torch
from custom_tasks import write_rows
from tiny_finetuning import run_own
from tiny_pretraining import save_fresh
from tokenizer_kinds import KINDS, TEXT, save_folder, tokens_by_id
from tokenizers.processors import TemplateProcessing
from transformers import AutoTokenizer, pipeline

from _utils.commands.export_hf import export_hf
from _utils.custom.spans import WORDS as WORDS_OF_SPANS
from _utils.custom.spans import words_in
from _utils.custom.words import wordpieces
from _utils.runs.checkpoints import load_checkpoint
from _utils.text.exported_tokenizer import exported_tokenizer_of_words
from _utils.text.vocabulary import pretrained_tokenizer, tokenizer_from_tokens, tokenizer_of
from finetune import load

WORDS = ("Anne-Marie O'Neil U.S. re-uses the GENERATOR, which replaces some WORDS of the text Café naïve "
         "[SEP] [MASK] and the discriminator finds each (word) 3.5% of the time 東京タワーへ").split()
ODD_WORDS = ["Cafe\u0301", "☃"]  # with an accent as a character of its own, and not in the vocabulary
LENGTHS = 0, 3, 8, 14, 40  # words; the longest texts are longer than max_length


def sentence(rng, n, words=(*WORDS, *ODD_WORDS)):
    return " ".join(rng.choices(words, k=n))


@pytest.fixture(scope="module")
def checkpoint(small_tokenizer, tmp_path_factory):
    """Path of a pretraining checkpoint of size tiny, with random weights and a vocabulary for all WORDS."""
    characters = sorted(set("".join(WORDS).lower()) - {*"éï"})
    tokens = [*tokens_by_id(small_tokenizer), *characters, *(f"##{character}" for character in characters)]
    path = tmp_path_factory.mktemp("pretrained") / "words_0_100.0%.pth"
    return save_fresh(path, tokenizer_from_tokens([*dict.fromkeys(tokens)]))


@pytest.fixture
def finetuned(checkpoint, empty_folder):
    """`finetuned(rows, kind=..., ...)`: the model of a tiny run on these rows, and the exported one with its tokenizer.
    """

    def run(rows, *overrides, epochs=2, pretrained=checkpoint, **task):
        write_rows("train.jsonl", rows)
        task = {"name": "mine", "train": "train.jsonl", "dev": "train.jsonl", **task}
        run_own(pretrained, task, "max_length=32", *overrides, epochs=epochs, lr=3e-3, bs=16)
        export_hf("g_mine_0.pth", "exported")
        return load("g_mine_0.pth"), *exported.load("exported/classifier")
    return run


def saved(tokenizer, folder):
    """A tokenizer as transformers loads it."""
    tokenizer.save_pretrained(folder)
    return AutoTokenizer.from_pretrained(folder)


@pytest.mark.parametrize("kind", KINDS)
def test_the_exported_tokenizer_reads_words_as_finetuning_does(kind, tmp_path):
    """Each follows a space. Of spans, words are those of the training also in scripts without spaces."""
    text = "the (word), of some-text [SEP] 東京タワー"
    spaced, words = text.split(), [word for word, *_ in words_in(text)]
    hf_tokenizer = pretrained_tokenizer(save_folder(kind, tmp_path / "given", markers=False), "")
    pieces = wordpieces([spaced, words], hf_tokenizer)
    ids_of = lambda words: sum((pieces[word] for word in words), [])
    tokenizer = saved(exported_tokenizer_of_words(hf_tokenizer, 20), tmp_path / "words")
    assert tokenizer(spaced, is_split_into_words=True, add_special_tokens=False)["input_ids"] == ids_of(spaced)
    tokenizer = saved(exported_tokenizer_of_words(hf_tokenizer, 20, WORDS_OF_SPANS), tmp_path / "spans")
    assert tokenizer(text, add_special_tokens=False)["input_ids"] == ids_of(words)


@pytest.mark.parametrize("kind", KINDS)
def test_the_exported_tokenizer_reads_added_tokens_inside_words(kind, tmp_path):
    """With the space that docs/examples/exported.py writes before each word."""
    hf_tokenizer = pretrained_tokenizer(save_folder(kind, tmp_path / "given"), "")
    tokenizer = saved(exported_tokenizer_of_words(hf_tokenizer, 20), tmp_path / "words")
    pieces = wordpieces([TEXT.split()], hf_tokenizer)
    for word, ids in pieces.items():
        assert tokenizer(f" {word}", add_special_tokens=False)["input_ids"] == ids


def probabilities_of(model, rows):
    """(N, labels) of texts or pairs. model: (model, tokenizer)."""
    return torch.stack([exported.probabilities(*model, *row) for row in rows])


def assert_close(found, expected):
    torch.testing.assert_close(found, torch.tensor(expected), atol=1e-5, rtol=0)


@pytest.fixture
def rng():
    return random.Random(0)


def labelled(rng, label_of):
    """64 rows, of which row i has the label label_of(i), and 20 texts of all LENGTHS."""
    rows = [{"text": sentence(rng, rng.randint(3, 30)), "label": label_of(i)} for i in range(64)]
    return rows, [sentence(rng, n) for n in LENGTHS for _ in range(4)]


def test_classes_of_texts(finetuned, rng):
    rows, texts = labelled(rng, lambda i: "ab"[i % 2])
    trained, *model = finetuned(rows)
    labels, probabilities = trained.predict(texts)
    assert [exported.predict(*model, text) for text in texts] == labels
    assert_close(probabilities_of(model, [(text,) for text in texts]), probabilities)
    found = pipeline("text-classification", "exported/classifier")(texts, truncation=True)
    assert [one["label"] for one in found] == labels
    assert [one["score"] for one in found] == pytest.approx(probabilities.max(1), abs=1e-5)


def test_several_labels_of_texts(finetuned, rng):
    rows, texts = labelled(rng, lambda i: ["a", "b", "c"][:i % 4])
    trained, *model = finetuned(rows, kind="multilabel", threshold="best")
    labels, probabilities = trained.predict(texts)
    assert [exported.predict(*model, text) for text in texts] == list(map(set, labels))
    assert_close(probabilities_of(model, [(text,) for text in texts]), probabilities)


@pytest.mark.parametrize("max_length", [32, 31])
def test_classes_of_pairs(finetuned, rng, max_length):
    """Also if both texts are too long, and if one is empty."""
    rows = [{"a": sentence(rng, rng.randint(3, 20)), "b": sentence(rng, rng.randint(3, 20)), "label": i % 2}
            for i in range(64)]
    pairs = [(sentence(rng, first), sentence(rng, second)) for first in LENGTHS for second in LENGTHS]
    trained, *model = finetuned(rows, f"max_length={max_length}", text=["a", "b"])
    assert_close(probabilities_of(model, pairs), trained.predict(pairs).probabilities)


@pytest.mark.parametrize("kind", ["classification", "regression"])
def test_windows_of_long_texts(finetuned, rng, kind):
    """Their mean is that of probabilities or scores."""
    rows = [{"text": sentence(rng, rng.randint(3, 60)), "label": 9 * i ** 2 if kind == "regression" else i % 2}
            for i in range(64)]
    texts = [sentence(rng, n) for n in (*LENGTHS, 90)]
    trained, *model = finetuned(rows, "window_stride=10", kind=kind)
    found, probabilities = trained.predict(texts)
    if kind == "regression":
        assert [exported.predict(*model, text) for text in texts] == pytest.approx(found, rel=1e-4)
    else:
        assert_close(probabilities_of(model, [(text,) for text in texts]), probabilities)


def test_windows_of_an_earlier_task_are_not_those_of_the_next(finetuned, rng):
    """Whose encoder is that of the export."""
    rows = [{"text": sentence(rng, rng.randint(3, 60)), "label": i % 2} for i in range(64)]
    finetuned(rows, "window_stride=10")
    run_own("exported/classifier", {"name": "next", "train": "train.jsonl"}, "max_length=32", "group_name=h")
    export_hf("h_next_0.pth", "next")
    text = sentence(rng, 90)
    assert_close(probabilities_of(exported.load("next/classifier"), [(text,)]),
                 load("h_next_0.pth").predict([text]).probabilities)


def tagged(rng, n):
    words = sentence(rng, n).split()
    return words, ["B-A" if word[0].isupper() else "O" for word in words]


def with_template(checkpoint, template):
    """A checkpoint with the tokenizer of another one and a template of its own."""
    hf_tokenizer = tokenizer_of(load_checkpoint(checkpoint))
    special = [(token, hf_tokenizer.convert_tokens_to_ids(token)) for token in ("[CLS]", "[SEP]")]
    hf_tokenizer.backend_tokenizer.post_processor = TemplateProcessing(single=template, special_tokens=special)
    if "[SEP]" not in template:
        hf_tokenizer.sep_token = None
    return save_fresh("own_template.pth", hf_tokenizer)


@pytest.mark.parametrize("template", ["[CLS] $A [SEP]", "[CLS] $A"])
def test_labels_of_words(finetuned, checkpoint, rng, template):
    """Also of a word without tokens, which is [UNK]."""
    rows = [dict(zip(("text", "label"), tagged(rng, rng.randint(3, 30)))) for _ in range(64)]
    sentences = [sentence(rng, n).split() for n in (*LENGTHS[1:], 90) for _ in range(4)] + [["the", "\u200b", "U.S."]]
    trained, *model = finetuned(rows, epochs=8, kind="tagging", pretrained=with_template(checkpoint, template))
    tags = trained.predict(sentences).labels
    assert {"B-A", "O"} <= {tag for of_sentence in tags for tag in of_sentence}
    assert [exported.tag(*model, words) for words in sentences] == tags


def test_character_spans(finetuned, rng):
    rows = []
    for _ in range(64):
        text = sentence(rng, rng.randint(3, 30))
        rows.append({"text": text, "label": [[*one.span(), "A"] for one in re.finditer("[A-Z東][^ ]*", text)]})
    texts = [sentence(rng, n) for n in (*LENGTHS[1:], 90) for _ in range(4)]
    trained, *model = finetuned(rows, epochs=8, kind="spans")
    spans = trained.predict(texts).labels
    assert any(spans)
    assert [exported.spans(*model, text) for text in [*texts, "", " \n"]] == [*spans, [], []]


def test_choices(finetuned, rng):
    """The second text begins each choice."""
    texts = lambda: [sentence(rng, rng.choice(LENGTHS[1:])) for _ in range(5)]
    row = lambda label: dict(zip(("a", "b", "x", "y", "z", "label"), (*texts(), label)))
    rows = [row(i % 3) for i in range(64)]
    trained, *model = finetuned(rows, kind="choices", text=["a", "b"], choices=["x", "y", "z"])
    for _ in range(10):
        first, second, *choices = texts()
        [expected] = trained.predict([(first, second, *choices)]).probabilities
        assert_close(exported.choose(*model, first, [f"{second} {choice}" for choice in choices]), expected)


@pytest.mark.parametrize("na_threshold", [100., -100.])
def test_answers_to_questions(finetuned, rng, na_threshold):
    """With the options of the training, and the threshold for questions without an answer."""
    rows = []
    for i in range(30):
        context = sentence(rng, rng.choice((8, 30, 60)), WORDS)
        answer = rng.choice(context.split()) if i % 3 else None
        answers = [{"text": answer, "answer_start": context.index(answer)}] if answer else []
        rows.append({"id": str(i), "question": f"Which {answer}?", "context": context, "answers": answers})
    write_rows("test.jsonl", rows)
    options = {"joint": False, "answerability": False, "doc_stride": 12, "max_answer_length": 8, "max_query_length": 5,
               "n_best": 7, "na_threshold": na_threshold}
    _, *model = finetuned(rows, epochs=1, kind="questions", questions=options, test="test.jsonl")
    expected = json.loads(Path("test_outputs/g/mine.json").read_text())
    assert {row["id"]: exported.answer(*model, row["question"], row["context"]) for row in rows} == expected
    assert exported.answer(*model, "Which?", "\u200b") == exported.answer(*model, "Which?", " ") == ""
    assert exported.answer(*model, "", rows[1]["context"]) in rows[1]["context"]
    assert len({*expected.values()}) > 5 if na_threshold > 0 else not any(expected.values())
