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
READ_OTHERWISE = {"B-NP I-VP I-NP", "B-NP I-NP E-NP I-NP", "S-NP I-NP", "S-NP E-VP O", "E-NP E-NP", "I-NP S-VP E-VP"}


@pytest.fixture(scope="module")
def chunking(shared):
    """(recorded values, recorded arrays)."""
    folder = shared / "golden/official/qa"
    return recorded(folder / "chunk.json"), recorded(folder / "chunk.npz")


def test_tags_are_converted_as_google_converts_them(chunking):
    values, _ = chunking
    well_formed = [case for case in values["spans"] if " ".join(case["tags"]) not in READ_OTHERWISE]
    assert len(well_formed) == len(values["spans"]) - len(READ_OTHERWISE)
    for case in [*well_formed, *values["sentences"]]:
        assert in_scheme(case["tags"], "bioes") == case["bioes"]
    for case in well_formed:
        assert in_scheme(case["tags"], "iob2") == case["bio"]


def test_rows_of_sentences_match_google(chunking, shared):
    (values, arrays), tokenizer = chunking, BertWordPieceTokenizer(str(shared / "data/vocab.txt"))
    words, expected = ([sentence[key] for sentence in values["sentences"]] for key in ("words", "label_ids"))
    rows = WordRows(words, expected, tokenizer_from_json(tokenizer.to_str()), 256)
    ids, mask, _, labels = (tensor.numpy() for tensor in rows.batch(np.arange(len(words))))
    length = ids.shape[1]
    for name, ours in (("input_ids", ids), ("input_mask", mask)):  # segments are 0 here, as in pretraining (F84)
        assert (ours == arrays[f"L256|{name}"][:, :length]).all() and not arrays[f"L256|{name}"][:, length:].any(), name
    for i, of_sentence in enumerate(expected):
        [positions] = np.nonzero(labels[i] != IGNORED)
        used = arrays["L256|chunk_labels_mask"][i] > 0
        assert positions.tolist() == arrays["L256|chunk_labeled_positions"][i][used].tolist()
        assert labels[i][positions].tolist() == arrays["L256|chunk_labels"][i][used].tolist() == of_sentence


def test_loss_is_the_sum_over_the_words_of_each_sentence(chunking):
    names = ("labels", "labels_mask", "logits", "loss", "loss_sum")
    labels, mask, logits, losses, total = (torch.tensor(chunking[1][f"micro_out|{name}"]) for name in names)
    labels = labels.long().masked_fill(mask == 0, IGNORED)
    for one_logits, one_labels, expected in zip(logits, labels, losses.tolist()):
        assert WordLoss()(one_logits[None], one_labels[None]).item() == pytest.approx(expected, rel=1e-5)
    assert WordLoss()(logits, labels).item() * len(logits) == pytest.approx(total.item(), rel=1e-5)  # D9


@pytest.mark.parametrize("number, tolerance", [(0, .2), (1, 0)])
def test_entity_f1_agrees_with_google(chunking, number, tolerance):
    """Exactly for well-formed tags; CoNLL's evaluation, used here, reads malformed ones otherwise (F83)."""
    values, arrays = chunking
    names, labels = list(values["label_mapping_full"]), [sentence["label_ids"] for sentence in values["sentences"]]
    task = Tagging("chunk", "chunk", ("text",), tuple(names), metrics=("entity_f1",))
    # with sentences that are cut to nothing, Google's code fails (F87)
    predicted = [row[:len(ids)] for row, ids in zip(arrays[f"scorer{number}|predictions"], labels)]
    scores = task.score(np.eye(len(names))[np.concatenate(predicted)], labels)
    expected = values["scorer"][number]["results"]["f1"]
    assert 100 * scores["entity_f1"] == pytest.approx(expected, abs=tolerance)
