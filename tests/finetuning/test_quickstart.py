"""The tables of the quickstart."""
import pytest

from _utils.finetuning.sentence_tables import write_sentence_tables

NOUNS = "table window server number letter garden".split()
DOCUMENTS = ["\n".join([*(f"The {noun} of part {i} is an old one, and the {other} has a {noun} in it."
                          for noun, other in zip(NOUNS, reversed(NOUNS))),
                        f"Each {NOUNS[i % 6]} with number {i} is read from the same file."]) for i in range(9)]
SENTENCES = {line.removesuffix(".") for document in DOCUMENTS for line in document.split("\n")}
TABLES = ["swapped_words", "foreign_word", "commas"]


@pytest.fixture
def tables(tmp_path):
    """{table: {"train" and "dev": lists of (word, tag)}}"""
    return {task["name"]: {split: read_tags(task[split]) for split in ("train", "dev")}
            for task in write_sentence_tables(DOCUMENTS, tmp_path)}


def read_tags(file):
    with open(file) as lines:
        return [[tuple(line.split()) for line in block.splitlines()] for block in lines.read().split("\n\n")]


def test_labels_say_which_sentences_are_wrong(tables):
    assert list(tables) == TABLES
    for words, tags in (zip(*row) for split in tables["swapped_words"].values() for row in split):
        i, words = tags.index("WRONG"), list(words)
        words[i], words[i + 1] = words[i + 1], words[i]
        assert tags.count("WRONG") == 2 and tags[i + 1] == "WRONG" and " ".join(words) in SENTENCES
    for words, tags in (zip(*row) for split in tables["foreign_word"].values() for row in split):
        assert tags.count("WRONG") == 1 and " ".join(words) not in SENTENCES
    restored = {" ".join(word + "," * (tag == "COMMA") for word, tag in row)
                for split in tables["commas"].values() for row in split}
    assert restored and restored <= SENTENCES


def test_training_and_dev_rows_are_from_different_documents(tables):
    numbers = {
        split: {word for row in tables["commas"][split] for word, _ in row if word.isdigit()}
        for split in ("train", "dev")
    }
    assert numbers["train"] and numbers["dev"] and not numbers["train"] & numbers["dev"]
