"""Case and accents: where a tokenizer that removes them destroys words."""
import re
import unicodedata
from collections import Counter

# Marks that writers leave out at will: vowel points of Hebrew, Arabic and Syriac, and the selectors of emoji.
_OPTIONAL = re.compile("[\u0591-\u05c7\u0610-\u061a\u064b-\u0652\u0670\u06d6-\u06ed\u0730-\u074a\ufe00-\ufe0f]")
# Shares above which a warning is printed: of letters that lose a mark, by script (the first word of their names), and
# of words with capital letters inside. In the scripts below, accents are a matter of spelling in many languages; in
# others, marks are parts of letters. In the English Wikipedia the shares are 0.0008, 0.00003 (others) and 0.005.
_MANY_LOST = {"LATIN": .08, "GREEK": .08, "COMBINING": .08, None: .005}
_MANY_MIXED = .1
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

    Accents and marks: the share of the letters that lose one, if there are many of one script: few suffice where marks
    matter (Japanese, Hindi, Thai, Arabic, Korean ...); of Latin letters as many as in Vietnamese or Czech.
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
