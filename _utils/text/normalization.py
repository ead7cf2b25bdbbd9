"""Accents, marks and case: where a tokenizer that removes them destroys words, or does not fit its vocabulary."""
import re
import unicodedata
from collections import Counter

# Marks that writers leave out at will: vowel points of Hebrew, Arabic and Syriac, and the selectors of emoji.
_OPTIONAL = re.compile("[\u0591-\u05c7\u0610-\u061a\u064b-\u0652\u0670\u06d6-\u06ed\u0730-\u074a\ufe00-\ufe0f]")
_MANY = .05  # share of the words above which a warning is printed; in the English Wikipedia it is below .005
_EXAMPLES, _LONGEST = 3, 20  # words in a warning, and characters of each


def warn_of_losses(name, normalizer, texts):
    """Print a warning if a normalizer destroys words of the texts of a corpus. name: of the corpus."""
    if losses := warning_of_losses(normalizer, texts):
        print(f"Warning: {name}: {losses}. If this destroys words: choose a vocabulary for this text, or, with "
              "fresh weights and a vocab.txt or vocab=30522, set cased=True, which keeps case and accents, or "
              "strip_accents=False, which keeps accents.")


def warning_of_losses(normalizer, texts):
    """Describe, with examples, the share of words that lose an accent or a mark to a normalizer of `tokenizers`.

    Return None if the share is small, or if the normalizer is None, which removes nothing.
    """
    if normalizer is None or "é" in unicodedata.normalize("NFC", normalizer.normalize_str("é")):
        return None
    words = Counter(word for text in texts for word in unicodedata.normalize("NFC", text).split())
    lost = {char for char in set().union(*words) if _is_letter(char) and _is_lost(char, normalizer)}
    changed = Counter({word: n for word, n in words.items() if lost.intersection(word)})
    if changed.total() <= _MANY * words.total():
        return None
    frequent = [word[:_LONGEST] for word, _ in changed.most_common(_EXAMPLES)]
    examples = [f"{word} becomes {_shown(word, normalizer.normalize_str(word))}" for word in frequent]
    share = changed.total() / words.total()
    return f"accents and marks are removed from {share:.0%} of the words ({', '.join(examples)})"


def _shown(word, normalized):
    """The normalized word, with spaces between its characters if it would look the same, as Korean syllables."""
    is_same = unicodedata.normalize("NFC", normalized) == word.lower()
    return " ".join(normalized if is_same else normalized.split())


def _is_letter(char):
    """Whether a character is a letter, or a mark that is not left out at will."""
    return unicodedata.category(char)[0] in "LM" and not _OPTIONAL.match(char)


def _is_lost(char, normalizer):
    """Whether a normalizer turns a letter into another one, but for its case."""
    same = char + char.lower() + unicodedata.normalize("NFKC", char.lower())  # full-width letters and ligatures
    return not set(same).intersection(normalizer.normalize_str(char))


def case_warnings(hf_tokenizer, name):
    """[A warning] if the tokenizer lowers all texts, but many tokens of its vocabulary have capital letters, or [].

    name: of the model.
    """
    normalizer = hf_tokenizer.backend_tokenizer.normalizer
    tokens = hf_tokenizer.get_vocab().keys() - {*hf_tokenizer.all_special_tokens}
    n = sum(token != token.lower() for token in tokens)
    if not normalizer or not normalizer.normalize_str("A").endswith("a") or n < .05 * len(tokens):
        return []
    return [f"warning: the tokenizer of {name!r} lowers all texts, but {n:,} of its {len(tokens):,} tokens "
            "have capital letters. If the model is cased, set \"do_lower_case\": false in its tokenizer_config.json."]
