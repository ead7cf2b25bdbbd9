"""The trained ELECTRA in benchmarks/results/mini/model, loaded with plain transformers."""
import re
from pathlib import Path

import pytest
import torch
from sklearn.metrics import roc_auc_score
from transformers import AutoModelForTokenClassification, AutoTokenizer, pipeline

from _utils.training.corrupted_text import ranked_below

MODEL = Path(__file__).resolve().parents[2] / "benchmarks/results/mini/model"
# Sentences with one [word], and a word that is wrong in its place.
CORRUPTED = [("she was born in london and studied history at the [university]", "because"),
             ("the [company] was founded in 1990 and has its headquarters in new york", "although"),
             ("he played for the team [until] the end of the season", "language"),
             ("the film was released in the united states in [march] and was well received", "could"),
             ("the river flows through the town and into the [sea]", "the"),
             ("the population of the city was 12 , 000 at the 2001 [census]", "was"),
             ("in 1945 [he] returned to the city , where he died two years later", "which"),
             ("they have three [children] and live in california", "is")]
MASKED = {
    "she was born [MASK] 1942 in london .": "in",
    "he was the son [MASK] a farmer .": "of",
    "the film was directed [MASK] john smith .": "by",
    "it is one of the largest cities in the united [MASK] .": "states",
}


@pytest.fixture(scope="module")
def hf_tokenizer():
    return AutoTokenizer.from_pretrained(MODEL / "discriminator")


@torch.no_grad()
def test_discriminator_finds_wrong_words(hf_tokenizer):
    """In each sentence the wrong word looks more replaced than the right one, and more than most of the others."""
    model = AutoModelForTokenClassification.from_pretrained(MODEL / "discriminator", dtype=torch.float32).eval()
    replaced, logits = [], []
    for sentence, wrong in CORRUPTED:
        before, right, after = re.split(r"\[|\]", sentence)
        at = len(hf_tokenizer(before)["input_ids"]) - 1
        of_right, of_wrong = (
            model(**hf_tokenizer(before + word + after, return_tensors="pt")).logits[0].diff().flatten()
            for word in (right, wrong))
        assert of_wrong[at] > of_right[at] + 1
        logits += of_wrong.tolist()
        replaced += [position == at for position in range(len(of_wrong))]
    assert roc_auc_score(replaced, logits) > .95


def test_sentences_with_a_wrong_word_rank_below_those_with_the_right_one(hf_tokenizer):
    model, pairs = AutoModelForTokenClassification.from_pretrained(MODEL / "discriminator", dtype=torch.float32), []
    for sentence, wrong in CORRUPTED:
        before, right, after = re.split(r"\[|\]", sentence)
        pairs.append([(before + word + after).split() for word in (right, wrong)])
    assert ranked_below(model, hf_tokenizer, pairs) == 1


def test_generator_fills_masks(hf_tokenizer):
    fill = pipeline("fill-mask", model=str(MODEL / "generator"), tokenizer=hf_tokenizer)
    assert {sentence: fill(sentence)[0]["token_str"] for sentence in MASKED} == MASKED
