"""Tables of the finetuning quickstart, as custom tasks: real sentences with a mistake, or with something to restore.

The sentences are the plain ones of `prose_held_out`, which the quickstart's pretraining does not see; the label follows
from what was changed. Training and dev rows are from different documents.
"""
import random
from pathlib import Path

from _utils.files import write_text_atomically
from _utils.text.damage import is_long, plain_words, put_in_foreign_word, swap_neighbours


def swapped_words(words, rng, others):
    """(words, tags) with two neighbouring words swapped, whose tag is WRONG; None for a sentence without such words."""
    damaged = swap_neighbours(words, rng)
    return damaged and (damaged, _tags(words, damaged))


def foreign_word(words, rng, others):
    """(words, tags) with one word of another sentence, whose tag is WRONG; None for a sentence without a long word."""
    damaged = put_in_foreign_word(words, others, rng)
    return damaged and (damaged, _tags(words, damaged))


def commas(words, rng, others):
    """(words without commas, tag of each: COMMA if one followed it); None for a sentence without a comma."""
    if not any(word.endswith(",") for word in words):
        return None
    return [word.rstrip(",") for word in words], ["COMMA" if word.endswith(",") else "NONE" for word in words]


def _tags(words, damaged):
    return ["NONE" if now == was else "WRONG" for now, was in zip(damaged, words)]


# Functions (words, rng, long words of other sentences) -> row, or None.
TABLES = swapped_words, foreign_word, commas


def write_sentence_tables(documents, folder, n_train=1000, n_dev=500):
    """Write the tables and return the dictionaries of the custom tasks.

    documents: strings with one sentence per line.   n_train, n_dev: rows of each table, at most.
    """
    documents = [[*filter(None, map(plain_words, document.split("\n")))] for document in documents]
    dev = documents[2::3]
    train = [document for i, document in enumerate(documents) if i % 3 < 2]
    parts = {"train": (sum(train, []), n_train), "dev": (sum(dev, []), n_dev)}
    tasks = []
    for make in TABLES:
        task = {"name": make.__name__, "metrics": "macro_f1"}
        for split, (sentences, n) in parts.items():
            task[split] = str(Path(folder, f"{make.__name__}_{split}.txt"))
            rows = _rows(make, sentences, n, random.Random(f"{make.__name__} {split}"))
            write_text_atomically(Path(task[split]), _conll(rows))
        tasks.append(task)
    return tasks


def _rows(make, sentences, n, rng):
    """The first n rows of the sentences in random order."""
    others = [word for words in sentences for word in words if is_long(word)]
    rows = (make(words, rng, others) for words in rng.sample(sentences, len(sentences)))
    return [row for row, _ in zip(filter(None, rows), range(n))]


def _conll(rows):
    """A word and its tag per line, an empty line after each sentence."""
    return "\n".join("".join(f"{word} {tag}\n" for word, tag in zip(*row)) for row in rows)
