"""Tokenizers from a vocab.txt, and vocabularies trained on the text."""
import json
import os
import random
import subprocess
import sys

import pytest
from corpora import corpus_of
from tokenizer_kinds import tokens_by_id
from transformers import AutoTokenizer

from _utils.errors import UserError
from _utils.text import vocabulary
from _utils.text.exported_tokenizer import exported_tokenizer
from _utils.text.vocabulary import SPECIAL_TOKENS, load_tokenizer, tokenizer_from_tokens

TOKENS = [*SPECIAL_TOKENS, "paris", "is", "a", "city", "##s", "."]


def random_words(name, seed):
    """Return a corpus of random words in lower and upper case."""
    rng = random.Random(seed)
    words = ["".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=rng.randint(2, 9))) for _ in range(300)]
    texts = [" ".join(rng.choices(words, k=100)).capitalize() + "." for _ in range(60)]
    return corpus_of(texts, name, f"{seed:016x}" * 2)


@pytest.fixture
def vocab_file(tmp_path):
    """Return a function that writes a vocab.txt and returns its path."""
    def write(tokens):
        (tmp_path / "vocab.txt").write_text("\n".join(tokens) + "\n", encoding="utf-8")
        return str(tmp_path / "vocab.txt")
    return write


def test_ids_are_the_lines_of_a_vocab_txt(vocab_file):
    tokens = [*TOKENS, "\u2028", "\x85", "last"]  # two of them look like line breaks
    tokenizer = load_tokenizer(vocab_file(tokens))
    assert tokens_by_id(tokenizer) == tokens
    assert tokenizer("Paris is a city.", "Cities?")["input_ids"] == [2, 5, 6, 7, 8, 10, 3, 1, 1, 3]
    assert (tokenizer.pad_token_id, tokenizer.mask_token_id) == (0, 4)
    assert tokens_by_id(load_tokenizer(vocab_file(["\ufeff" + tokens[0], *tokens[1:]]))) == tokens  # a byte order mark


@pytest.mark.parametrize("name, content", [
    ("spm.model", b"\n\x0e\n\x05<unk>\x15\0\0\0\0\x18\x02\n\x10\n\x07\xe2\x96\x81the\x15\0\0\x80\xbf"),
    ("spm.vocab", "<unk>\t0\n<s>\t0\n</s>\t0\n\u2581the\t-1.5\n".encode())])
def test_a_model_of_sentencepiece_is_recognized(tmp_path, name, content):
    """The message names the conversion."""
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UserError, match=f"{name}.*save_pretrained.*vocab=tokenizer"):
        load_tokenizer(str(tmp_path / name))


@pytest.mark.parametrize("size, n_corpora", [(200, 1), (300, 20), (700, 1)])
def test_trained_vocabulary_has_the_requested_size_and_covers_its_text(tmp_path, size, n_corpora):
    corpora = [random_words(str(i), i) for i in range(n_corpora)]
    tokenizer = load_tokenizer(size, corpora, tmp_path / "datasets")
    assert len(tokenizer) == size and tokens_by_id(tokenizer)[:5] == list(SPECIAL_TOKENS)
    assert sorted(tokenizer.all_special_ids) == [*range(5)]
    assert tokenizer.unk_token_id not in tokenizer("\n".join(corpora[0].documents["text"]))["input_ids"]


def test_vocabularies_of_each_text_with_and_without_capital_letters_are_trained_separately(tmp_path):
    cased, uncased, of_other_text = (
        load_tokenizer(200, [random_words("own", seed)], tmp_path, **options).get_vocab()
        for seed, options in ((0, {"cased": True}), (0, {"strip_accents": False}), (1, {"cased": True})))
    assert cased != uncased and cased != of_other_text


def test_a_vocabulary_is_trained_on_a_sample_of_the_whole_text(tmp_path, monkeypatch):
    monkeypatch.setattr(vocabulary, "TRAINING_CHARACTERS", 1000)
    texts = ["first words " * 9] * 50 + ["next part " * 9] * 50
    tokens = load_tokenizer(200, [corpus_of(texts)], tmp_path).get_vocab()
    assert {"first", "next"} <= tokens.keys()


def test_trained_vocabularies_are_the_same_in_every_process():
    """Of kana, hangul and Latin letters, which continue words, as ideographs do not."""
    alphabets = "あいうえおかきくけこさしすせそ", "가나다라마바사아자차", "abcdefghij"
    code = ("import random, sys; from _utils.text.vocabulary import train_vocabulary; rng = random.Random(0); "
            "make = lambda of: [' '.join(''.join(rng.choices(of, k=rng.randint(1, 6))) for _ in range(3000))]; "
            "print([train_vocabulary(300, lambda: texts, strip_accents=False) for texts in map(make, sys.argv[1:])])")
    once, again = (subprocess.run([sys.executable, "-c", code, *alphabets], capture_output=True, check=True,
                                  env=os.environ | {"PYTHONIOENCODING": "utf-8"}).stdout for _ in range(2))
    assert once == again and len(once) > 900


def test_words_of_up_to_200_characters_are_divided_by_every_program(tmp_path):
    """As in Google's code (F1), whatever the tokenizer's file says."""
    from_tokens = tokenizer_from_tokens([*SPECIAL_TOKENS, "a", "##a"])
    content = json.loads(from_tokens.backend_tokenizer.to_str())
    content["model"]["max_input_chars_per_word"] = 100
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    exported = exported_tokenizer(from_tokens, 64)
    exported.save_pretrained(tmp_path / "exported")
    saved = json.loads((tmp_path / "exported/tokenizer_config.json").read_text())
    assert saved["tokenizer_class"] == "PreTrainedTokenizerFast"  # which also version 4 of transformers loads
    for tokenizer in (from_tokens, load_tokenizer(str(tmp_path / "tokenizer.json")), exported,
                      AutoTokenizer.from_pretrained(tmp_path / "exported")):
        assert [len(tokenizer.tokenize("a" * n)) for n in (101, 200, 201)] == [101, 200, 1]
