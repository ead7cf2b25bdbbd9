"""Chunking of CoNLL-2000 as in Google's code: conversion of tags, rows, loss, gradients and score (F51, F82-F87)."""
import numpy as np
import pytest
import torch
from finetuning_steps import encoder_parameters, learner_of, micro_encoder, statistics, train_step
from recorded import recorded

from _utils.custom.tag_schemes import in_scheme
from _utils.custom.tagging import Tagging
from _utils.custom.words import WordLoss, WordPredictor, WordRows
from _utils.tasks.rows import IGNORED, EncodedRows, Window
from _utils.tasks.settings import Settings
from _utils.text.vocabulary import from_vocab_file

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


VALUES, ARRAYS = recorded("official/chunking.json"), recorded("official/chunking.npz")


def test_tags_are_converted_as_google_converts_them():
    well_formed = [case for case in VALUES["spans"] if tuple(case["tags"]) not in READ_OTHERWISE]
    assert len(well_formed) == len(VALUES["spans"]) - len(READ_OTHERWISE)
    for case in well_formed:
        assert in_scheme(case["tags"], "bioes") == case["bioes"]
        assert in_scheme(case["tags"], "iob2") == case["bio"]


def test_tags_and_rows_of_sentences_match_google(shared):
    folder = shared / "golden/official/qa"
    sentences, arrays = recorded(folder / "chunk.json")["sentences"], recorded(folder / "chunk.npz")
    for sentence in sentences:
        assert in_scheme(sentence["tags"], "bioes") == sentence["bioes"]
    rows = WordRows(
        [sentence["words"] for sentence in sentences],
        [sentence["label_ids"] for sentence in sentences],
        from_vocab_file(shared / "data/vocab.txt"),
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


def test_loss_is_the_sum_over_the_words_of_each_sentence():
    labels = (
        torch.tensor(ARRAYS["micro_out|labels"])
        .long()
        .masked_fill(torch.tensor(ARRAYS["micro_out|labels_mask"]) == 0, IGNORED)
    )
    logits = torch.tensor(ARRAYS["micro_out|logits"])
    for one_logits, one_labels, expected in zip(logits, labels, ARRAYS["micro_out|loss"]):
        assert WordLoss()(one_logits[None], one_labels[None]).item() == pytest.approx(float(expected), rel=1e-5)
    # D9
    assert WordLoss()(logits, labels).item() * len(logits) == pytest.approx(
        float(ARRAYS["micro_out|loss_sum"]), rel=1e-5
    )


def test_the_norm_that_clips_and_gradients_of_recipe_google_match_google(shared):
    folder, arrays = shared / "golden/official/qa", {}
    for name, values in recorded(folder / "chunk.npz").items():
        arrays[name] = torch.from_numpy(values)
    ids, mask, types, tags, is_label, places = (arrays[f"micro_batch|{name}"].long() for name in (
        "input_ids", "input_mask", "segment_ids", "labels", "labels_mask", "labeled_positions"))
    labels, is_label = torch.full_like(ids, IGNORED), is_label > 0
    for row in range(len(ids)):
        labels[row, places[row, is_label[row]]] = tags[row, is_label[row]]
    kernel, bias = (arrays[f"micro_head|task_specific|chunk|dense|{name}"].float() for name in ("kernel", "bias"))
    model = WordPredictor(micro_encoder(), *kernel.shape)
    model.classifier.load_state_dict({"weight": kernel.T, "bias": bias})
    task = Tagging("chunk", "chunk", ("text",), tuple(map(str, range(len(bias)))))
    rows = EncodedRows([([Window([1], [0])], 1)] * 30, [0] * 30)
    learn = learner_of(task, model, rows, Settings(recipe="google", epochs=1, bs=1))
    norm, gradients = train_step(learn, (ids, mask, types), labels, 1)
    expected = recorded(folder / "chunk.json")["micro"]
    assert norm == pytest.approx(expected["grad_global_norm_tf"], rel=2e-6)  # the true one differs by 1.3e-5
    for google, parameter in encoder_parameters(model).items():
        values = expected["grad_stats"][google]
        assert statistics(google, gradients[parameter]) == pytest.approx(values, rel=1e-4, abs=2e-4), google


def test_entity_f1_agrees_with_google():
    """Exactly for well-formed tags; CoNLL's evaluation, used here, reads malformed ones otherwise (F83)."""
    names, labels = VALUES["labels"], VALUES["label_ids"]
    task = Tagging("chunk", "chunk", ("text",), tuple(names), metrics=("entity_f1",))
    for number, tolerance in ((0, .2), (1, 0)):  # with sentences that are cut to nothing, Google's code fails (F87)
        predicted = np.concatenate([row[:len(ids)] for row, ids in zip(ARRAYS[f"scorer{number}|predictions"], labels)])
        scores = task.scores.score(np.eye(len(names))[predicted], labels)
        expected = VALUES["scorer"][number]["results"]["f1"]
        assert 100 * scores["entity_f1"] == pytest.approx(expected, abs=tolerance), number
