"""The tokenizer from a vocab.txt, a folder, the hub, or trained on the text."""
import random
import re

import datasets
import pytest

from _utils.errors import PlainError
from _utils.pretraining_data import sources as text_sources
from _utils.pretraining_data import vocabulary
from _utils.pretraining_data.sources import Corpus, cut_text, load_documents
from _utils.pretraining_data.vocabulary import SPECIAL_TOKENS, load_tokenizer, train_words

WORDS = [*SPECIAL_TOKENS, "paris", "is", "a", "city", "##s", "."]


def make_corpus(name="own text", seed=0):
    """Documents of made-up words in small and capital letters."""
    rng = random.Random(seed)
    words = ["".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=rng.randint(2, 9))) for _ in range(300)]
    texts = [" ".join(rng.choices(words, k=100)).capitalize() + "." for _ in range(60)]
    return Corpus(name, f"{seed:016x}" * 2, lambda: datasets.Dataset.from_dict({"text": texts}))


def words_by_id(tokenizer):
    return sorted(tokenizer.get_vocab(), key=tokenizer.get_vocab().get)


@pytest.fixture
def vocab_file(tmp_path):
    """Function that writes a vocab.txt and gives its path."""
    def write(words):
        (tmp_path / "vocab.txt").write_text("\n".join(words) + "\n", encoding="utf-8")
        return str(tmp_path / "vocab.txt")
    return write


def test_ids_are_the_lines_of_a_vocab_txt(vocab_file):
    tokenizer = load_tokenizer(vocab_file(WORDS))
    assert words_by_id(tokenizer) == WORDS
    assert tokenizer("Paris is a city.", "Cities?")["input_ids"] == [2, 5, 6, 7, 8, 10, 3, 1, 1, 3]
    assert (tokenizer.pad_token_id, tokenizer.mask_token_id) == (0, 4)


def test_a_vocabulary_with_capital_letters_keeps_case(vocab_file):
    cased = load_tokenizer(vocab_file([*WORDS, "Paris"]))
    assert cased.tokenize("Paris paris") == ["Paris", "paris"]
    assert load_tokenizer(vocab_file(WORDS)).tokenize("Paris paris") == ["paris", "paris"]


def test_words_that_look_like_line_breaks_are_words(vocab_file):
    assert words_by_id(load_tokenizer(vocab_file([*WORDS, "\u2028", "\x85", "last"]))) == [*WORDS, "\u2028", "\x85", "last"]


def test_a_folder_that_a_tokenizer_was_saved_to(small_tokenizer, tmp_path):
    small_tokenizer.save_pretrained(tmp_path / "tokenizer")
    loaded = load_tokenizer(str(tmp_path / "tokenizer"))
    assert loaded.get_vocab() == small_tokenizer.get_vocab()
    assert loaded("The Generator GUESSES.") == small_tokenizer("The Generator GUESSES.")


def test_another_name_is_a_tokenizer_on_the_hub(small_tokenizer, monkeypatch):
    hub = {"google/electra-small-discriminator": small_tokenizer}
    monkeypatch.setattr(vocabulary.AutoTokenizer, "from_pretrained", lambda name, **kwargs: hub[name])
    assert load_tokenizer("google/electra-small-discriminator") is small_tokenizer
    with pytest.raises(PlainError, match="'nobody/nothing'.*vocab=PATH/vocab.txt.*python pretrain.py quickstart=True"):
        load_tokenizer("nobody/nothing")


@pytest.mark.parametrize("size", [200, 300, 700])
def test_a_trained_vocabulary_has_the_size_asked_for_and_special_tokens_first(tmp_path, size):
    tokenizer = load_tokenizer(size, [make_corpus()], tmp_path)
    words = words_by_id(tokenizer)
    assert len(words) == len(tokenizer) == size and words[:5] == list(SPECIAL_TOKENS)
    assert sorted(tokenizer.all_special_ids) == [0, 1, 2, 3, 4]


def test_a_trained_vocabulary_knows_every_word_of_its_text(tmp_path):
    corpus = make_corpus()
    tokenizer = load_tokenizer(300, [corpus], tmp_path)
    assert tokenizer.unk_token_id not in tokenizer("\n".join(corpus.documents["text"]))["input_ids"]


def test_training_twice_gives_the_same_words():
    texts = make_corpus().documents["text"]
    assert train_words(700, lambda: texts) == train_words(700, lambda: texts)


def test_a_text_that_is_given_in_parts_gives_the_same_words():
    text = "\n".join(make_corpus().documents["text"])
    parts = list(cut_text(text, 200))
    assert "".join(parts) == text and len(parts) > 50 and all(part.endswith("\n") for part in parts[:-1])
    assert train_words(700, lambda: parts) == train_words(700, lambda: [text])


@pytest.mark.parametrize("divider", ["\n", "\n\n"])
def test_the_sample_is_taken_evenly_from_one_huge_document_or_many(tmp_path, monkeypatch, divider):
    for module, name, value in [(text_sources, "LONG", 1000), (text_sources, "PIECE", 200), (vocabulary, "PIECE", 200),
                                (vocabulary, "TRAINING_CHARACTERS", 20_000)]:
        monkeypatch.setattr(module, name, value)
    (tmp_path / "text.txt").write_text(divider.join(f"paragraph {i} " + "word " * 18 for i in range(1000)))
    sample = list(vocabulary._sample([load_documents(str(tmp_path / "text.txt"), tmp_path)]))
    assert 15_000 < sum(map(len, sample)) < 30_000 and max(map(len, sample)) < 400
    tenths = {int(i) // 100 for text in sample for i in re.findall(r"paragraph (\d+)", text)}
    assert tenths == set(range(10))


def test_the_folder_of_a_trained_vocabulary_need_not_be_there_before(tmp_path):
    load_tokenizer(300, [make_corpus()], tmp_path / "datasets")
    assert list((tmp_path / "datasets").glob("vocab_300_*.txt"))


def test_a_vocabulary_is_trained_once_for_each_size_and_text(tmp_path, monkeypatch):
    size, corpora = 300, [make_corpus(), make_corpus(seed=1)]
    words = words_by_id(load_tokenizer(size, corpora, tmp_path))
    others = [load_tokenizer(320, corpora, tmp_path), load_tokenizer(size, corpora[:1], tmp_path)]
    assert all(words_by_id(other) != words for other in others)
    monkeypatch.setattr(vocabulary, "train_words", lambda *_: pytest.fail("trained again"))
    assert words_by_id(load_tokenizer(size, corpora, tmp_path)) == words


def test_training_on_many_corpora(tmp_path):
    assert len(load_tokenizer(300, [make_corpus(str(i), seed=i) for i in range(20)], tmp_path)) == 300
