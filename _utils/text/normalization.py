"""Accents and marks: where a tokenizer that removes them destroys words."""
import re
import unicodedata
from collections import Counter

# Marks that writers leave out at will: vowel points of Hebrew, Arabic and Syriac, and the selectors of emoji.
_OPTIONAL = re.compile("[\u0591-\u05c7\u0610-\u061a\u064b-\u0652\u0670\u06d6-\u06ed\u0730-\u074a\ufe00-\ufe0f]")
# Shares of letters that lose a mark, by script (the first word of their names), above which a warning is printed. In
# the scripts below, accents are a matter of spelling in many languages; in others, marks are parts of letters. In the
# English Wikipedia the shares are 0.0008 and 0.00003 (others).
_MANY_LOST = {"LATIN": .08, "GREEK": .08, "COMBINING": .08, None: .005}
_EXAMPLES, _LONGEST = 3, 20  # words in a warning, and characters of each


def warn_of_losses(name, normalizer, texts):
    """Print a warning if a normalizer destroys words of the texts of a corpus. name: of the corpus."""
    if losses := warning_of_losses(normalizer, texts):
        print(f"Warning: {name}: {losses}. If this destroys words: choose a vocabulary for this text, or set "
              "cased=True, which keeps case and accents, or strip_accents=False, which keeps accents, with a vocab.txt "
              "or vocab=30522.")


def warning_of_losses(normalizer, texts):
    """Describe what a normalizer of `tokenizers`, or None, that strips accents and marks does to the words of texts,
    with examples; None if little.

    That is the share of the letters that lose one, if there are many of one script: few suffice where marks matter
    (Japanese, Hindi, Thai, Arabic, Korean ...); of Latin letters as many as in Vietnamese or Czech.
    """
    if normalizer is None or "é" in unicodedata.normalize("NFC", normalizer.normalize_str("é")):
        return None
    words = Counter(word for text in texts for word in unicodedata.normalize("NFC", text).split())
    characters = Counter("".join(words.elements()))
    letters = Counter({char: n for char, n in characters.items() if _is_letter(char)})
    lost, by_script = {char for char in letters if _is_lost(char, normalizer)}, Counter()
    for char in lost:
        by_script[unicodedata.name(char, "").split(" ")[0]] += letters[char]
    if all(n <= _MANY_LOST.get(script, _MANY_LOST[None]) * letters.total() for script, n in by_script.items()):
        return None
    changed = Counter({word: count for word, count in words.items() if lost.intersection(word)})
    examples = [f"{word} becomes {_shown(word, normalizer.normalize_str(word))}" for word in _frequent(changed)]
    share = by_script.total() / letters.total()
    return f"accents and marks are removed from {share:.0%} of the letters ({', '.join(examples)})"


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


def _frequent(words):
    """The most frequent words, shortened."""
    return [word if len(word) <= _LONGEST else f"{word[:_LONGEST]}..." for word, _ in words.most_common(_EXAMPLES)]
