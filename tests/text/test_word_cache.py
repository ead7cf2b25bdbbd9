"""The cache of words returns the token ids of the `tokenizers` library for random Unicode text."""
import itertools
import random
import sys
import unicodedata

import datasets
import pytest
from tokenizers import AddedToken, Tokenizer, models, normalizers, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from _utils.text.processors import ELECTRADataProcessor
from _utils.text.vocabulary import SPECIAL_TOKENS, WordCache, tokenizer_from_tokens

SPACES = " \t\n\r\x0b\x0c\x1c\x1d\x1e\x1f\x85\xa0\u1680\u2000\u2009\u200a\u2028\u2029\u202f\u205f\u3000"
REMOVED = ("\0\x01\x7f\x80\x9f\xad\u0600\u180e\u200b\u200c\u200d\u200e\u202e\u2060\ufeff\ufffd\ufffe\uffff\U000e0001"
           "\U000e0041")
MARKS = ("\u0300\u0301\u0307\u0308\u030a\u0323\u0327\u0338\u0345\u034f\u0591\u064b\u093c\u0903\u0e31\u0f71\u1ab0\u20d0"
         "\u20dd\u3099\ufe0f\ufe20\U0001d165\U0001e94a")
LETTERS = "abcdeghimnorstzABISTΑΒΣΩαβσςωЖжёЙйіІєאبपक0179²½٣Ⅷ"
ACCENTED = "éÉåÅ\u212b\u2126\u212aïİıßẞſﬁŉǅǰΐΆάḍ̇ṩÇçñửỗクプガが"
HANGUL = "각갛힣\u1100\u1112\u1161\u1175\u11a8\u11c2\ua960\ud7b0\ud7fb"
CJK = ("一丁国龥\u9fff\u3400\u4dbf\uf900\ufa0e\ufaff\U00020000\U0002a6df\U0002a700\U0002b740\U0002b820\U0002b920"
       "\U0002f800\U0002fa1d々〇ー、。「」")
PUNCTUATION = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~¡§«»¿‐–—‘’“”…‰′⁄、。・！，－．／［］＿�․·;"
OTHER = ("👩‍👩‍👧 👍🏽 🇩🇪 ❤️ 1️⃣ \U0001f9ff € © ™ ∑ √ → 𝐀 𝒷 ﷺ ﬃ ㎏ ① \ud7ff \ue000 \uf8ff \U0010ffff \U000f0000 \u0378 "
         "\u2fe0").split()
TEXTS = ["[MASK]", "[CLS]", "[UNK]", "[ CLS ]", "[mask]", "[MASK", "MASK]", "##s", "##", "the", "The", "don't", "  "]
LONG = [character * n for character in ("a", "é", "Σ", "e\u0301", "\u0301", "一", "-", "\U0001f9ff")
        for n in (63, 64, 65, 99, 100, 101, 199, 200, 201, 300)]
GROUPS = {"spaces": (SPACES, 3), "space": ([" "], 4), "removed": (REMOVED, 2), "marks": (MARKS, 4),
          "letters": (LETTERS, 5), "accented": (ACCENTED, 3), "hangul": (HANGUL, 1), "cjk": (CJK, 2),
          "punctuation": (PUNCTUATION, 3), "other": (OTHER, 1), "texts": (TEXTS, 1), "long": (LONG, .03)}
SETTINGS = [dict(zip(("clean_text", "handle_chinese_chars", "strip_accents", "lowercase"), values))
            for values in itertools.product((True, False), (True, False), (None, True, False), (True, False))]


def vocabulary():
    """Return a vocabulary in which most characters of GROUPS have tokens, at the beginning and inside of words, so that
    ids show them.
    """
    texts = {form for group, _ in GROUPS.values() for text in group for form in (text, text.lower())}
    characters = sorted({*"".join(texts), *unicodedata.normalize("NFD", "".join(texts))} - set(REMOVED))
    words = ["the", "The", "don", "##on", "##ss", "aa", "##aaa", "##\u0301\u0301", "mas", "##sk", "MASK", "##σς", "ας"]
    tokens = dict.fromkeys([*SPECIAL_TOKENS, *characters, *("##" + character for character in characters), *words])
    return {token: i for i, token in enumerate(tokens)}


def bert_tokenizer(composes=False, **settings):
    """Return a tokenizers.Tokenizer of BERT's kind with settings of its normalizer, which may follow NFC."""
    tokenizer = Tokenizer(models.WordPiece(vocabulary(), unk_token="[UNK]", max_input_chars_per_word=200))
    bert = normalizers.BertNormalizer(**settings)
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFC(), bert]) if composes else bert
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.add_special_tokens([*SPECIAL_TOKENS])
    tokenizer.encode_special_tokens = True
    return tokenizer


def random_texts(rng, n):
    """Yield random strings of up to 30 parts, one in ten a code point from any plane."""
    groups, weights = zip(*GROUPS.values())
    for _ in range(n):
        parts = [rng.choice(group) for group in rng.choices(groups, weights, k=rng.randint(1, 30))]
        yield "".join(any_character(rng) if rng.random() < .1 else part for part in parts)


def any_character(rng):
    code = rng.choice((rng.randrange(0x3000), rng.randrange(0x10000), rng.randrange(sys.maxunicode + 1)))
    return chr(code if not 0xd800 <= code < 0xe000 else code - 0x800)  # surrogates are not text


@pytest.mark.parametrize("seed", range(len(SETTINGS)))
def test_ids_of_random_text_with_all_settings_of_the_normalizer(seed):
    tokenizer = bert_tokenizer(**SETTINGS[seed], composes=seed % 3 == 0)
    lines, cache = list(random_texts(random.Random(seed), 200)), WordCache(tokenizer, "i")
    for line, encoding in zip(lines, tokenizer.encode_batch_fast(lines, add_special_tokens=False)):
        assert cache.encode(line).tolist() == encoding.ids, ascii(line)


def test_ids_above_65535_are_kept(tmp_path):
    hf_tokenizer = tokenizer_from_tokens([*SPECIAL_TOKENS, *(f"w{i}" for i in range(70_000))])
    documents = datasets.Dataset.from_dict({"text": ["w69999 w5 w69998"]})
    processor = ELECTRADataProcessor(documents, hf_tokenizer, 8, apply_cleaning=False)
    [ids] = processor.map(tmp_path / "examples.arrow", 1)["input_ids"]
    assert ids == [2, 70_004, 10, 70_003, 3]


OTHER_TOKENIZERS = {
    "added token with a space": lambda tokenizer: tokenizer.add_tokens(["the words"]),
    "added token that removes spaces": lambda tokenizer: tokenizer.add_tokens([AddedToken("words", lstrip=True)]),
    "normalizer": lambda tokenizer: setattr(tokenizer, "normalizer", normalizers.Lowercase()),
    "no normalizer": lambda tokenizer: setattr(tokenizer, "normalizer", None),
    "pre-tokenizer": lambda tokenizer: setattr(tokenizer, "pre_tokenizer", pre_tokenizers.Metaspace()),
    "model": lambda tokenizer: setattr(tokenizer, "model", models.WordLevel(vocabulary(), unk_token="[UNK]")),
}


@pytest.mark.parametrize("change", OTHER_TOKENIZERS)
def test_other_tokenizers_have_the_ids_of_the_library(change):
    tokenizer = bert_tokenizer()
    OTHER_TOKENIZERS[change](tokenizer)
    hf_tokenizer = PreTrainedTokenizerFast(tokenizer_object=tokenizer, cls_token="[CLS]", sep_token="[SEP]",
                                           unk_token="[UNK]")
    processor = ELECTRADataProcessor(None, hf_tokenizer, 32, apply_cleaning=False, drop_parentheses=False)
    lines = " ".join(random_texts(random.Random(2), 50)).split() + ["the words  and the words"]
    found = [ids.tolist() for line in lines for ids in processor.tokenize([(line, True)])]
    expected = processor.tokenizer.encode_batch_fast(lines, add_special_tokens=False)
    assert found == [encoding.ids for encoding in expected]
