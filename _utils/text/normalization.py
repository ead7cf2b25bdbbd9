"""Case and accents: where a tokenizer that removes them destroys words."""
import re
import unicodedata
from collections import Counter
from functools import cache, partial

# Marks that writers leave out at will: vowel points of Hebrew, Arabic and Syriac, and the selectors of emoji.
_OPTIONAL = re.compile("[\u0591-\u05c7\u0610-\u061a\u064b-\u0652\u0670\u06d6-\u06ed\u0730-\u074a\ufe00-\ufe0f]")
# In these scripts, accents are a matter of spelling in many languages. Elsewhere, marks are parts of letters.
_WITH_ACCENTS = "LATIN ", "GREEK ", "COMBINING "  # beginnings of the names of their characters
# Shares above which a warning is printed: of letters with such accents, of letters with other marks, and of words with
# capital letters inside. In the English Wikipedia they are 0.0008, 0.00003 and 0.005.
_MANY_ACCENTS, _MANY_MARKS, _MANY_MIXED = .08, .005, .1
_EXAMPLES, _LONGEST = 3, 20  # words in a warning, and characters of each


def warn_of_losses(name, normalizer, texts):
    """Print a warning if a normalizer destroys words of the texts of a corpus. name: of the corpus."""
    if losses := warning_of_losses(normalizer, texts):
        print(f"Warning: {name}: {losses}. If this destroys words: choose a vocabulary for this text, or set "
              "cased=True, which keeps case and accents, or strip_accents=False, which keeps accents, with a vocab.txt "
              "or vocab=30522.")


def warning_of_losses(normalizer, texts):
    """Describe what a normalizer of `tokenizers`, or None, destroys in the words of texts, with examples; None if
    little.

    Accents and marks: the share of the letters that lose one, if these are letters of scripts in which marks matter
    (Japanese, Hindi, Thai, Arabic, Korean ...), or if there are as many as in Vietnamese or Czech.
    Case: the share of words with capital letters inside, such as chemical formulas.
    """
    if normalizer is None:
        return None
    words, losses = Counter(word for text in texts for word in unicodedata.normalize("NFC", text).split()), []
    if "é" not in unicodedata.normalize("NFC", normalizer.normalize_str("é")):
        losses.append(_lost_marks(words, normalizer))
    if "A" not in normalizer.normalize_str("A"):
        losses.append(_lost_case(words))
    return ", and ".join(filter(None, losses)) or None


def _lost_marks(words, normalizer):
    """Describe what stripping does to words, {word: count}; None if it does little."""
    kind_of = cache(partial(_kind, normalizer))
    letters = Counter(map(kind_of, "".join(words.elements())))
    n = letters.total() - letters[None]
    for kind, many in (("mark", _MANY_MARKS), ("accent", _MANY_ACCENTS)):
        if letters[kind] > many * n:
            changed = Counter({word: count for word, count in words.items() if kind in map(kind_of, word)})
            examples = [
                f"{word} becomes {_shown(word, normalizer.normalize_str(word))}"
                for word in _frequent(changed)
            ]
            share = (letters["mark"] + letters["accent"]) / n
            return f"accents and marks are removed from {share:.0%} of the letters ({', '.join(examples)})"
    return None


def _shown(word, normalized):
    """The normalized word, with spaces between its characters if it would look the same, as Korean syllables."""
    is_same = unicodedata.normalize("NFC", normalized) == word.lower()
    return " ".join(normalized if is_same else normalized.split())


def _kind(normalizer, char):
    """'accent' or 'mark' for a letter that the normalizer changes, by its script; 'letter' for others; else None."""
    if _OPTIONAL.match(char) or unicodedata.category(char)[0] not in "LM":
        return None
    same = char + char.lower() + unicodedata.normalize("NFKC", char.lower())  # full-width letters and ligatures
    if set(same).intersection(normalizer.normalize_str(char)):
        return "letter"
    return "accent" if unicodedata.name(char, "").startswith(_WITH_ACCENTS) else "mark"


def _lost_case(words):
    """Describe what lower-casing does to words, {word: count}, if many have capital letters inside; else None."""
    written = Counter({word: count for word, count in words.items() if _has_case(word)})
    mixed = Counter({word: count for word, count in written.items() if _has_capitals_inside(word, written)})
    if mixed.total() <= _MANY_MIXED * written.total():
        return None
    examples = [f"{word} becomes {word.lower()}" for word in _frequent(mixed)]
    return (f"{mixed.total() / written.total():.0%} of the words have capital letters inside, which become lower case "
            f"({', '.join(examples)})")


def _has_case(word):
    """Whether all letters of a word exist in upper and lower case. Other scripts may not separate words."""
    letters = list(filter(str.isalpha, word))
    return bool(letters) and all(letter.lower() != letter.upper() for letter in letters)


def _has_capitals_inside(word, words):
    """Whether a word has a capital letter after its first letter, without being in capitals as a whole.

    A formula in capitals, such as C1CCCCC1, counts if it also occurs in lower case.
    """
    letters = "".join(filter(str.isalpha, word))
    if letters.isupper():
        return word.lower() in words and any(map(str.isdigit, word))
    return letters[1:] != letters[1:].lower()


def _frequent(words):
    """The most frequent words, shortened."""
    return [word if len(word) <= _LONGEST else f"{word[:_LONGEST]}..." for word, _ in words.most_common(_EXAMPLES)]
