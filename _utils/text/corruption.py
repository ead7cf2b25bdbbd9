"""Sentences with a mistake, and tokens with random replacements.

They are the same for every network, unlike the samples of a generator.
"""
import re

import numpy as np

REPLACED = .15  # share of the tokens
_WORD = r"(?:[^\W\d_]+(?:['-][^\W\d_]+)*|\d+)"
_PLAIN = re.compile(rf"{_WORD}(?:,? {_WORD})+\.")


def plain_words(sentence):
    """Return the words of a sentence of 6 to 25 words, without its full stop.

    Return None for another length, and for sentences with more than words and commas, such as direct speech.
    """
    words = sentence.removesuffix(".").split()
    return words if 6 <= len(words) <= 25 and _PLAIN.fullmatch(sentence) else None


def swap_neighbours(words, rng):
    """Return `words` with two different neighbours swapped, or None if there are no suitable ones.

    The first word and words beside punctuation stay.
    """
    differ = lambda i: words[i].lower() != words[i + 1].lower()
    places = [i for i in range(1, len(words) - 1) if differ(i) and (words[i] + words[i + 1]).isalpha()]
    if not places:
        return None
    i = rng.choice(places)
    return [*words[:i], words[i + 1], words[i], *words[i + 2:]]


is_long = re.compile(r"[a-z]{4,}").fullmatch


def replace_with_foreign_word(words, others, rng):
    """Return `words` with one lowercase word of at least four letters replaced by a word of the list `others`.

    The replacement is the first of 100 draws that differs from the word. Return None if there is no such word.
    """
    places = [i for i, word in enumerate(words) if is_long(word)]
    if not places:
        return None
    i = rng.choice(places)
    new = next((new for new in (rng.choice(others) for _ in range(100)) if new != words[i]), None)
    return new and [*words[:i], new, *words[i + 1:]]


def replace_tokens(input_ids, is_text):
    """Replace REPLACED of the tokens by draws from the unigram distribution of the same text.

    input_ids, is_text: arrays of any shape; special tokens and padding, where is_text is False, stay.
    Returns (ids, is_replaced). A draw that equals the original token counts as original.
    """
    rng = np.random.default_rng(0)
    drawn = rng.choice(input_ids[is_text], input_ids.shape)
    is_chosen = is_text & (rng.random(input_ids.shape) < REPLACED)
    return np.where(is_chosen, drawn, input_ids), is_chosen & (drawn != input_ids)
