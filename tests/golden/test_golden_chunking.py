"""Chunking of CoNLL-2000 as in Google's code: conversion of tags, rows, loss and score (F51, F82-F87)."""
import numpy as np
import pytest
import torch
from recorded import recorded
from tokenizers import BertWordPieceTokenizer

from _utils.tasks.rows import IGNORED
from _utils.tasks.tag_schemes import in_scheme
from _utils.tasks.tagging import Tagging, WordLoss, WordRows
from _utils.text.vocabulary import tokenizer_from_json

# Malformed tags that Google's code reads otherwise (F83): an entity of two types, or an E- tag followed by another tag
# of its entity.
READ_OTHERWISE = {
    ("B-NP", "I-VP", "I-NP"),
    ("B-NP", "I-NP", "E-NP", "I-NP"),
    ("S-NP", "I-NP"),
    ("S-NP", "E-VP", "O"),
    ("E-NP", "E-NP"),
    ("I-NP", "S-VP", "E-VP"),
}


@pytest.fixture(scope="module")
def chunking(shared):
    """(recorded values, recorded arrays, names of the labels by id, tokenizer)."""
    folder = shared / "golden/official/qa"
    values = recorded(folder / "chunk.json")
    tokenizer = BertWordPieceTokenizer(str(shared / "data/vocab.txt"))
    return (
        values,
        recorded(folder / "chunk.npz"),
        list(values["label_mapping_full"]),
        tokenizer_from_json(tokenizer.to_str()),
    )


def test_tags_are_converted_as_google_converts_them(chunking):
    values = chunking[0]
    well_formed = [case for case in values["spans"] if tuple(case["tags"]) not in READ_OTHERWISE]
    assert len(well_formed) == len(values["spans"]) - len(READ_OTHERWISE)
    for case in [*well_formed, *values["sentences"]]:
        assert in_scheme(case["tags"], "bioes") == case["bioes"]
    for case in well_formed:
        assert in_scheme(case["tags"], "iob2") == case["bio"]


def test_rows_of_sentences_match_google(chunking):
    values, arrays, _, hf_tokenizer = chunking
    sentences = values["sentences"]
    rows = WordRows(
        [sentence["words"] for sentence in sentences],
        [sentence["label_ids"] for sentence in sentences],
        hf_tokenizer,
        256,
    )
    ids, mask, _, labels = (tensor.numpy() for tensor in rows.batch(np.arange(len(sentences))))
    length = ids.shape[1]
    for name, ours in (("input_ids", ids), ("input_mask", mask)):  # segments are 0 here, as in pretraining (F84)
        assert (ours == arrays[f"L256|{name}"][:, :length]).all() and not arrays[f"L256|{name}"][:, length:].any(), name
    for i, sentence in enumerate(sentences):
        [positions] = np.nonzero(labels[i] != IGNORED)
        used = arrays["L256|chunk_labels_mask"][i] > 0
        assert positions.tolist() == arrays["L256|chunk_labeled_positions"][i][used].tolist()
        assert labels[i][positions].tolist() == arrays["L256|chunk_labels"][i][used].tolist() == sentence["label_ids"]


def test_loss_is_the_sum_over_the_words_of_each_sentence(chunking):
    arrays = chunking[1]
    labels = (
        torch.tensor(arrays["micro_out|labels"])
        .long()
        .masked_fill(torch.tensor(arrays["micro_out|labels_mask"]) == 0, IGNORED)
    )
    logits = torch.tensor(arrays["micro_out|logits"])
    for one_logits, one_labels, expected in zip(logits, labels, arrays["micro_out|loss"]):
        assert WordLoss()(one_logits[None], one_labels[None]).item() == pytest.approx(float(expected), rel=1e-5)
    # D9
    assert WordLoss()(logits, labels).item() * len(logits) == pytest.approx(
        float(arrays["micro_out|loss_sum"]), rel=1e-5
    )


def test_entity_f1_agrees_with_google(chunking):
    """Exactly for well-formed tags; CoNLL's evaluation, used here, reads malformed ones otherwise (F83)."""
    values, arrays, names, _ = chunking
    task = Tagging("chunk", "chunk", ("text",), tuple(names), metrics=("entity_f1",))
    lengths = [len(sentence["words"]) for sentence in values["sentences"]]
    labels = [sentence["label_ids"] for sentence in values["sentences"]]
    for number, tolerance in ((0, .2), (1, 0)):  # with sentences that are cut to nothing, Google's code fails (F87)
        predicted = np.concatenate([row[:n] for row, n in zip(arrays[f"scorer{number}|predictions"], lengths)])
        scores = task.score(np.eye(len(names))[predicted], labels)
        expected = values["scorer"][number]["results"]["f1"]
        assert 100 * scores["entity_f1"] == pytest.approx(expected, abs=tolerance), number
