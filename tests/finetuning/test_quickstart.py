"""The quickstart's tables, its measurements on damaged text, its picture, and the comparison of three networks."""
import json
import re
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch

import finetune
import pretrain
from _utils.config import complete
from _utils.finetuning import quickstart
from _utils.finetuning.config import complete_finetuning
from _utils.plots import plot_quickstart, save_plot
from _utils.tasks.sentence_tables import write_sentence_tables
from _utils.text import embedded_text
from _utils.text.damage import OTHER_NUMBER, replace_tokens
from _utils.training import damaged_text

NOUNS = "table window server number letter garden".split()
DOCUMENTS = ["\n".join([*(f"The {noun} of part {i} is an old one, and the {other} has a {noun} in it."
                          for noun, other in zip(NOUNS, reversed(NOUNS))),
                        f"Each {NOUNS[i % 6]} with number {i} is read from the same file."]) for i in range(9)]
SENTENCES = {line.removesuffix(".") for document in DOCUMENTS for line in document.split("\n")}
TABLES = ["swapped", "agreement", "foreign_word", "commas", "articles"]


@pytest.fixture
def tables(tmp_path):
    """{table: {"train" and "dev": list of (text, label), or of lists of (word, tag)}}"""
    found = {}
    for task in write_sentence_tables(DOCUMENTS, tmp_path):
        read = (
            read_tags
            if task["train"].endswith(".txt")
            else lambda file: list(pd.read_csv(file).itertuples(index=False, name=None))
        )
        found[task["name"]] = {split: read(task[split]) for split in ("train", "dev")}
    return found


def read_tags(file):
    with open(file) as lines:
        return [[tuple(line.split()) for line in block.splitlines()] for block in lines.read().split("\n\n")]


def test_labels_say_which_sentences_are_wrong(tables):
    assert list(tables) == TABLES
    for name in ("swapped", "agreement"):
        for text, label in tables[name]["train"] + tables[name]["dev"]:
            assert (text.removesuffix(" .") in SENTENCES) == (label == "right"), text
        assert {label for _, label in tables[name]["train"]} == {"right", "wrong"}
    for text, label in tables["agreement"]["train"]:
        assert (
            label == "right"
            or re.sub(r"\b(are|have)\b", lambda match: OTHER_NUMBER[match[0]], text.removesuffix(" .")) in SENTENCES
        )
    for text, _ in tables["swapped"]["train"]:
        assert sorted(text.removesuffix(" .").split()) in list(map(sorted, map(str.split, SENTENCES)))


def test_tags_restore_the_sentences(tables):
    article = {"NONE": "", "A": "(an?|An?) ", "THE": "([Tt]he) "}
    for row in tables["commas"]["dev"]:
        assert " ".join(word + "," * (tag == "COMMA") for word, tag in row) in SENTENCES
    for row in tables["articles"]["dev"]:
        pattern = " ".join(article[tag] + re.escape(word) for word, tag in row)
        assert any(re.fullmatch(pattern, sentence) for sentence in SENTENCES)
    for row in tables["foreign_word"]["dev"]:
        pattern = " ".join(r"\w+" if tag == "WRONG" else re.escape(word) for word, tag in row)
        assert [tag for _, tag in row].count("WRONG") == 1 and " ".join(word for word, _ in row) not in SENTENCES
        assert any(re.fullmatch(pattern, sentence) for sentence in SENTENCES)


def test_training_and_dev_rows_are_from_different_documents(tables):
    numbers = {
        split: {word for row in tables["articles"][split] for word, _ in row if word.isdigit()}
        for split in ("train", "dev")
    }
    assert numbers["train"] and numbers["dev"] and not numbers["train"] & numbers["dev"]


def network_of(logits_of):
    """A discriminator whose logits are a function of the token ids (B, L)."""
    class Network(torch.nn.Linear):
        config = SimpleNamespace(type_vocab_size=1)

        def forward(self, input_ids, attention_mask):
            return SimpleNamespace(logits=logits_of(input_ids))
    return Network(1, 1)


def test_auc_of_replacements_is_half_for_a_constant_and_one_for_an_oracle(small_tokenizer, monkeypatch):
    constant = network_of(lambda ids: torch.zeros(ids.shape))
    assert damaged_text.auc_of_replacements(constant, small_tokenizer, DOCUMENTS, 32) == .5
    seen = {}
    monkeypatch.setattr(damaged_text, "replace_tokens", lambda *args: seen.setdefault("text", replace_tokens(*args)))
    rows = iter(range(10**6))
    oracle = network_of(lambda ids: torch.tensor(np.array([seen["text"][1][next(rows)] for _ in ids])).float())
    assert damaged_text.auc_of_replacements(oracle, small_tokenizer, DOCUMENTS, 32) == 1


def test_replacements_are_drawn_from_the_text_at_the_wanted_share():
    ids = np.random.default_rng(1).choice([5, 6, 7], (100, 200), p=[.7, .2, .1])
    is_text = ids < 7
    damaged, is_replaced = replace_tokens(ids, is_text)
    assert (damaged[~is_replaced] == ids[~is_replaced]).all() and (damaged[is_replaced] != ids[is_replaced]).all()
    assert not is_replaced[~is_text].any() and set(damaged[is_text]) == {5, 6}
    equal = (7 / 9) ** 2 + (2 / 9) ** 2  # probability that a draw is the original token
    assert abs(is_replaced[is_text].mean() - .15 * (1 - equal)) < .006
    assert (replace_tokens(ids, is_text)[0] == damaged).all()


def test_ranking_counts_the_pairs_whose_damaged_sentence_has_the_lower_score(small_tokenizer):
    unknown = small_tokenizer.convert_tokens_to_ids("x")
    network = network_of(lambda ids: (ids == unknown).float())  # x looks replaced
    intact, damaged = "the first word".split(), "the x word".split()
    pairs = [(intact, damaged), (intact, damaged), (damaged, intact), (intact, intact)]
    assert damaged_text.ranked_below(network, small_tokenizer, pairs) == .5


@pytest.mark.plots
def test_picture_with_and_without_a_pretraining_run(tmp_path):
    rows = [{"step": step, "split": "train", "gen_loss_hidden": 7 - step / 10} for step in range(1, 20)]
    (tmp_path / "metrics.jsonl").write_text("\n".join(map(json.dumps, rows)))
    scores = {"majority": [50., 30.], "random weights": [50, 40], "five minutes": [60, 50], "three hours": [90, 80]}
    scores = pd.DataFrame(scores, TABLES[:2])
    sentences = [[("the", .1, False), ("wrong", .9, True), ("word", .2, False)]]
    for training in ((tmp_path / "metrics.jsonl", 6.2), None):
        save_plot(plot_quickstart(training, sentences, scores), tmp_path / "quickstart.png")
        assert (tmp_path / "quickstart.png").stat().st_size > 10_000


@pytest.fixture
def small_docs(tmp_path, monkeypatch):
    """The working directory is empty, and the embedded text is small."""
    source = "\n".join(f'def f{i}():\n    '
                       f'"""{line}"""' for document in DOCUMENTS for i, line in enumerate(document.split("\n")))
    files = [tmp_path / f"source/{i}.py" for i in range(30)]
    (tmp_path / "source").mkdir()
    for i, file in enumerate(files):
        file.write_text(source.replace("part", f"part {i} and").replace("number", f"number {i} and"))
    monkeypatch.setattr(embedded_text, "source_files", lambda: files)
    monkeypatch.chdir(tmp_path)


def test_pretraining_ends_with_measurements_on_text_that_it_has_not_seen(small_docs, tmp_path, capsys):
    settings = [
        "quickstart=True",
        "steps=2",
        "warmup_steps=1",
        "vocab=300",
        "milestones=100",
        "num_workers=0",
        "logger=None",
        "device=cpu",
    ]
    pretrain.pretrain(complete(pretrain.c.override(settings)))
    found = json.loads((tmp_path / "checkpoints/pretrain/quickstart_11081/damaged_text.json").read_text())
    assert set(found) == {"auc", "swapped", "foreign"} and all(0 <= value <= 1 for value in found.values())
    assert f"{found['auc']:.3f}" in capsys.readouterr().out


def test_three_networks_are_compared_and_the_picture_comes_last(
    small_docs, fresh_checkpoint, tmp_path, monkeypatch, capsys
):
    for name, value in {"ROWS": {"n_train": 32, "n_dev": 16}, "SETTINGS": {"lr": 1e-3, "epochs": 1}}.items():
        monkeypatch.setattr(quickstart, name, value)
    c = complete_finetuning(
        finetune.c.override(
            [
                "quickstart=True",
                f"pretrained_checkpoint={fresh_checkpoint}",
                "tasks=cola,rte",
                "majority_for_missing=True",
                "logger=None",
                "device=cpu",
            ]
        )
    )
    results = quickstart.quickstart(c, finetune.run)
    lines = capsys.readouterr().out.strip().split("\n")
    assert lines[-1].endswith("checkpoints/quickstart.png") and (tmp_path / "checkpoints/quickstart.png").exists()
    assert len(lines) < 20 and all(any(line.startswith(name) for line in lines) for name in TABLES)
    assert results.submission and str(results.submission) in lines[-2]
