"""Small random corpora."""
import random

import datasets

from _utils.text import Corpus

WORDS = "the generator replaces some words and the discriminator finds them in every sentence of the text".split()


def sentence(rng):
    return " ".join(rng.choices(WORDS, k=rng.randint(3, 25)))


def corpus_of(texts, name="own text", key="key"):
    return Corpus(name, key, lambda: datasets.Dataset.from_dict({"text": texts}))


def make_corpus(n_documents=60, seed=0):
    rng = random.Random(seed)
    texts = ["\n".join(sentence(rng) for _ in range(rng.randint(1, 12))) for _ in range(n_documents)]
    return corpus_of(texts, key=f"key-{n_documents}-{seed}")
