"""Accents and marks: a warning where a tokenizer that removes them changes words."""
import unicodedata
from collections import Counter

_MANY_CHANGED = .05  # share of the words of a text; of English about a hundredth have accents


def warn_of_losses(name, normalizer, texts):
    """Print a warning, with examples, if a normalizer of `tokenizers` (or None) strips accents and that changes many
    words. name: of the corpus.
    """
    if normalizer is None or "é" in unicodedata.normalize("NFC", normalizer.normalize_str("é")):
        return
    words = Counter(word for text in texts for word in unicodedata.normalize("NFC", text).split())
    kept = {word: "".join(normalizer.normalize_str(word).split()) for word in words}
    changed = Counter({word: n for word, n in words.items() if kept[word].lower() != word.lower()})
    if changed.total() > _MANY_CHANGED * words.total():
        examples = ", ".join(f"{word:.20} becomes {kept[word]:.20}" for word, _ in changed.most_common(3))
        print(f"Warning: {name}: the vocabulary drops accents and marks from {changed.total() / words.total():.0%} of "
              f"the words ({examples}). To keep them, set strip_accents=False, or cased=True to keep case too, with a "
              "vocab.txt or vocab=30522, or choose a vocabulary for this text.")
