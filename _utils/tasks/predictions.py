"""Files of predictions: rows with an index (TSV), words with their tags (CoNLL), or answers by their ids (JSON)."""
import json
import re

import pandas as pd

from _utils.runs.checkpoints import write_text_atomically

SEPARATOR = "|"  # between several labels of a text


def write_rows(path, predictions):
    """Write `index TAB prediction` with a header, as the GLUE server expects it.

    predictions: a string for each row of the test file, in its order; the index counts the rows from 0.
    """
    table = pd.Series(predictions, name="prediction", dtype=object)
    write_text_atomically(path, table.to_csv(sep="\t", index_label="index"))


def write_words(path, sentences, tags):
    """Write `word TAB tag` for each word, and an empty line after each sentence.

    sentences, tags: lists of equally long lists.
    """
    lines = []
    for words, found in zip(sentences, tags, strict=True):
        lines += [f"{_in_one_line(word)}\t{tag}\n" for word, tag in zip(words, found, strict=True)]
        lines.append("\n")
    write_text_atomically(path, "".join(lines))


def _in_one_line(word):
    """A word without the tabs and line breaks that it may have in other formats."""
    return re.sub(r"[\t\r\n]", " ", word)


def write_answers(path, ids, answers):
    """Write the JSON object {id: answer}, as the scripts of SQuAD read it."""
    write_text_atomically(path, json.dumps(dict(zip(ids, answers)), ensure_ascii=False))


def joined(labels, names):
    """Several labels of a text as one string: with "|" between them, or as a JSON list if that is part of a name.

    names: of all labels of the task.
    """
    if any(SEPARATOR in name for name in names):
        return as_json(labels)
    return SEPARATOR.join(labels)


def as_json(value):
    return json.dumps(value, ensure_ascii=False)
