"""Case and accents: what a vocabulary keeps, and the warning where a tokenizer removes accents and marks."""
import unicodedata

import datasets
import pytest
from tokenizers.normalizers import NFKC, BertNormalizer

from _utils.runs.checkpoints import tokenizer_record
from _utils.text import load_tokenizer, tokenizer_of
from _utils.text.normalization import warning_of_losses
from _utils.text.processors import ELECTRADataProcessor
from _utils.text.sources import Corpus
from _utils.text.special_tokens import SPECIAL_TOKENS

HINDI = "यह किताब अच्छी है और मैं दिल्ली में रहता हूँ"
JAPANESE = "パンダ と バナナ が すき です 。"
GERMAN = "Wir müssen schon früh über die schöne Brücke gehen"
VIETNAMESE = "hôm nay trời đẹp quá chúng tôi đi chơi ở công viên với bạn bè"
KOREAN = "오늘은 날씨가 좋아서 공원에 놀러 갔습니다"
SMILES = "CC(=O)Oc1ccccc1C(=O)O c1ccccc1 C1CCCCC1 OC(=O)c1ccccc1O CCO"


def corpus(text, n=200):
    """A Corpus of n equal documents."""
    return Corpus("own text", f"{hash(text):x}", lambda: datasets.Dataset.from_dict({"text": [text] * n}))


def restores(tokenizer, text):
    """Whether the tokens of a text are its characters."""
    return "".join(tokenizer.tokenize(text)).replace("##", "") == text.replace(" ", "")


@pytest.fixture
def vocab_file(tmp_path):
    """A function that writes the words of a text to a vocab.txt, and returns its path."""
    def write(text):
        words = dict.fromkeys([*SPECIAL_TOKENS, *text.split()])
        (tmp_path / "vocab.txt").write_text("\n".join(words), encoding="utf-8")
        return str(tmp_path / "vocab.txt")
    return write


@pytest.mark.parametrize("text", [HINDI, JAPANESE, GERMAN.lower(), SMILES])
@pytest.mark.parametrize("options", [{"cased": True}, {"strip_accents": False}])
def test_the_vocab_txt_of_a_trained_vocabulary_gives_the_same_tokenizer(tmp_path, text, options):
    """Without `cased`, also for text that has no capital letters, and in lower case with accents."""
    tokenizer = load_tokenizer(400, [corpus(text)], tmp_path, **options)
    [path] = tmp_path.glob("vocab_*.txt")
    again = load_tokenizer(str(path))
    text = text if "cased" in options else text.lower()
    assert again.tokenize(text) == tokenizer.tokenize(text)
    if text not in (SMILES, SMILES.lower()):  # which contain punctuation
        assert restores(tokenizer, text) and tokenizer.unk_token not in tokenizer.tokenize(text)


@pytest.mark.parametrize("words, text, tokens", [
    (HINDI, HINDI, HINDI), (GERMAN.lower(), "Über Brücke", "über brücke"),  # no capitals
    (GERMAN, "Über Brücke", "[UNK] Brücke"),
    # a few words that were added to an uncased vocabulary do not change it
    (f"the cafe {' '.join(f'word{i}' for i in range(1000))} DOI café <NUM> [ENT]", "The Café word7", "the cafe word7")])
def test_a_vocab_txt_keeps_case_and_marks_if_its_words_have_them(vocab_file, words, text, tokens):
    assert load_tokenizer(vocab_file(words)).tokenize(text) == tokens.split()


@pytest.mark.parametrize("options, token", [
    ({"cased": True}, "Café"), ({"cased": False}, "café"), ({"strip_accents": False, "cased": False}, "café"),
    ({"strip_accents": True, "cased": False}, "cafe"), ({"cased": True, "strip_accents": True}, "Cafe")])
def test_what_is_given_beside_a_vocab_txt_counts(vocab_file, options, token):
    tokenizer = load_tokenizer(vocab_file("Café café cafe Cafe"), **options)
    assert tokenizer.tokenize("Café") == [token]


@pytest.mark.parametrize("text", [GERMAN, VIETNAMESE, JAPANESE, KOREAN])
def test_composed_and_decomposed_text_has_the_same_tokens(tmp_path, text):
    """As macOS and PDF files have it; of a trained vocabulary, whose text is decomposed, and of its vocab.txt."""
    composed, decomposed = (unicodedata.normalize(form, text) for form in ("NFC", "NFD"))
    trained = load_tokenizer(400, [corpus(decomposed)], tmp_path, strip_accents=False)
    [path] = tmp_path.glob("vocab_*.txt")
    for tokenizer in (trained, load_tokenizer(str(path)), tokenizer_of(tokenizer_record(trained))):
        tokens = tokenizer.tokenize(composed)
        assert tokens == tokenizer.tokenize(decomposed) and tokenizer.unk_token not in tokens
        processor = ELECTRADataProcessor(None, tokenizer, 64, apply_cleaning=False)
        assert processor([decomposed])["input_ids"] == [tokenizer(composed)["input_ids"]]


def test_a_vocab_txt_of_decomposed_words_stays_so(vocab_file):
    words = unicodedata.normalize("NFD", GERMAN)
    assert load_tokenizer(vocab_file(words)).tokenize(words) == words.split()


DESTROYED = {HINDI: "है", JAPANESE: "か", VIETNAMESE: "hom", KOREAN: "ᄋ ᅩ",
             "วันนี้ อากาศ ดี มาก": "วนน", "ذهب أحمد إلى المدرسة في أول أيام الأسبوع": "احمد",
             "Die Bürger wollten schon früh wissen, wann die Bahn durch die Stadt fährt.": "fruh",
             "мой брат ещё учится в третьей школе": "мои", "příliš žluťoučký kůň úpěl ďábelské ódy": "kun"}
PRESERVED = ["The café on Main Street was opened by McDonald in 1998, and the BBC was there, too, with five of their "
             "best people.",
             "今天天气很好，我用iPhone拍照",
             "בְּרֵאשִׁית בָּרָא "
             "אֱלֹהִים", "بِسْمِ اللَّهِ الرَّحْمَٰنِ", "I ❤️ this 👍🏽", SMILES,
             f"{'the generator replaces some words of the text ' * 100} {JAPANESE}"]


@pytest.mark.parametrize("text", [*DESTROYED, *PRESERVED])
def test_the_warning_appears_where_words_are_destroyed(text):
    warning = warning_of_losses(BertNormalizer(), [text])
    assert (DESTROYED[text] in warning) if text in DESTROYED else warning is None
    assert warning_of_losses(BertNormalizer(lowercase=False), [text]) is None
    assert warning_of_losses(NFKC(), [text]) is None and warning_of_losses(None, [text]) is None
