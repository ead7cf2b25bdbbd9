"""Tables of the finetuning quickstart, as custom tasks: real sentences with a mistake, or with something to restore.

The sentences are the plain ones of `prose_held_out`, which the quickstart's pretraining does not see; the label follows
from what was changed. Training and dev rows are from different documents.
"""
import random
from pathlib import Path

import pandas as pd

from _utils.files import write_text_atomically
from _utils.text.damage import is_long, plain_words, put_in_foreign_word, swap_neighbours


def word_order(words, rng, others):
    """(text, label), half of them with two neighbouring words swapped; None for a sentence without such words."""
    damaged, label = swap_neighbours(words, rng), rng.choice(["right", "wrong"])
    return damaged and (" ".join(words if label == "right" else damaged) + " .", label)


def foreign_word(words, rng, others):
    """(words, tags) with one word of another sentence, whose tag is WRONG; None for a sentence without a long word."""
    damaged = put_in_foreign_word(words, others, rng)
    return damaged and (damaged, ["NONE" if now == was else "WRONG" for now, was in zip(damaged, words)])


def commas(words, rng, others):
    """(words without commas, tag of each: COMMA if one followed it); None for a sentence without a comma."""
    if not any(word.endswith(",") for word in words):
        return None
    return [word.rstrip(",") for word in words], ["COMMA" if word.endswith(",") else "NONE" for word in words]


# Functions (words, rng, long words of other sentences) -> row, or None: which sentences are wrong, and which words.
CLASSIFIED, TAGGED = (word_order,), (foreign_word, commas)


def write_sentence_tables(documents, folder, n_train=1000, n_dev=500):
    """Write the tables and return the dictionaries of the custom tasks.

    documents: strings with one sentence per line.   n_train, n_dev: rows of each table, at most.
    """
    documents = [[*filter(None, map(plain_words, document.split("\n")))] for document in documents]
    dev = documents[2::3]
    train = [document for i, document in enumerate(documents) if i % 3 < 2]
    parts = {"train": (sum(train, []), n_train), "dev": (sum(dev, []), n_dev)}
    formats = {**dict.fromkeys(CLASSIFIED, (_csv, "csv", {"text": "text", "label": "label"})),
               **dict.fromkeys(TAGGED, (_conll, "txt", {"metrics": "macro_f1"}))}
    tasks = []
    for make, (content, suffix, keys) in formats.items():
        task = {"name": make.__name__, **keys}
        for split, (sentences, n) in parts.items():
            task[split] = str(Path(folder, f"{make.__name__}_{split}.{suffix}"))
            rows = _rows(make, sentences, n, random.Random(f"{make.__name__} {split}"))
            write_text_atomically(Path(task[split]), content(rows))
        tasks.append(task)
    return tasks


def _rows(make, sentences, n, rng):
    """The first n rows of the sentences in random order."""
    others = [word for words in sentences for word in words if is_long(word)]
    rows = (make(words, rng, others) for words in rng.sample(sentences, len(sentences)))
    return [row for row, _ in zip(filter(None, rows), range(n))]


def _csv(rows):
    return pd.DataFrame(rows, columns=["text", "label"]).to_csv(index=False)


def _conll(rows):
    """A word and its tag per line, an empty line after each sentence."""
    return "\n".join("".join(f"{word} {tag}\n" for word, tag in zip(*row)) for row in rows)
