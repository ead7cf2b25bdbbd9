"""The trained ELECTRA in benchmarks/results/mini/model, loaded with plain transformers."""
from pathlib import Path

import pytest
import torch
from sklearn.metrics import roc_auc_score
from transformers import AutoModelForMaskedLM, AutoModelForTokenClassification, AutoTokenizer

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


def test_discriminator_finds_wrong_words(hf_tokenizer):
    """In each sentence the wrong word looks more replaced than the right one, and more than most of the others."""
    model = AutoModelForTokenClassification.from_pretrained(MODEL / "discriminator", dtype=torch.float32).eval()
    replaced, logits, gaps = [], [], []
    for sentence, wrong in CORRUPTED:
        before, _, after = sentence.partition("[")
        right, _, after = after.partition("]")
        at = len(hf_tokenizer(before)["input_ids"]) - 1
        looks_replaced = []
        for word in (right, wrong):
            encoded = hf_tokenizer(before + word + after, return_tensors="pt")
            assert hf_tokenizer.convert_ids_to_tokens(encoded["input_ids"][0, at].item()) == word
            with torch.no_grad():
                output = model(**encoded).logits[0]
            looks_replaced.append((output[:, 1] - output[:, 0]).tolist())
        gaps.append(looks_replaced[1][at] - looks_replaced[0][at])
        logits += looks_replaced[1]
        replaced += [position == at for position in range(len(looks_replaced[1]))]
    assert min(gaps) > 1 and roc_auc_score(replaced, logits) > .95


def test_generator_fills_masks(hf_tokenizer):
    model = AutoModelForMaskedLM.from_pretrained(MODEL / "generator", dtype=torch.float32).eval()
    for sentence, word in MASKED.items():
        encoded = hf_tokenizer(sentence, return_tensors="pt")
        with torch.no_grad():
            logits = model(**encoded).logits[0, encoded["input_ids"][0].tolist().index(hf_tokenizer.mask_token_id)]
        assert hf_tokenizer.convert_ids_to_tokens(logits.argmax().item()) == word
