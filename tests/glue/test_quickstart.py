"""The quickstart's tables, and the comparison of three networks."""
from pathlib import Path

import pytest

import finetune
from _utils.finetuning import quickstart
from _utils.finetuning.config import complete_finetuning
from _utils.finetuning.quickstart import write_sentence_tables
from _utils.names import EMBEDDED

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


@pytest.fixture
def small_prose(empty_folder, monkeypatch):
    """The working directory is empty, and the quickstart's text is small."""
    for name in EMBEDDED:
        path = empty_folder / f"text/{name}.txt"
        path.parent.mkdir(exist_ok=True)
        path.write_text("\n\n".join(DOCUMENTS * 3))
        monkeypatch.setitem(EMBEDDED, name, path)


@pytest.mark.plots
def test_three_networks_are_compared_and_the_plot_comes_last(small_prose, fresh_checkpoint, monkeypatch, capsys):
    monkeypatch.setattr(quickstart, "ROWS", {"train": 32, "dev": 16})
    monkeypatch.setattr(quickstart, "SETTINGS", {"lr": 1e-3, "epochs": 1})
    c = finetune.c.override(["quickstart=True", f"pretrained_checkpoint={fresh_checkpoint}", "tasks=cola,rte",
                             "majority_for_missing=True", "logger=None", "device=cpu"])
    results = quickstart.quickstart(complete_finetuning(c), finetune.run)
    lines = capsys.readouterr().out.strip().split("\n")
    assert lines[-1].endswith("checkpoints/quickstart.png") and results.submission.exists()
    assert Path("checkpoints/quickstart.png").stat().st_size > 10_000
    assert len(lines) < 20 and all(any(line.startswith(name) for line in lines) for name in TABLES)
