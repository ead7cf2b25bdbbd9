"""Evaluation of a discriminator on corruptions that are the same for every network.

The corrupted text is text that the quickstart does not train on. The AUC against its own generator, which pretraining
logs, falls when the generator improves; this one does not.
"""
import random
from functools import partial

import numpy as np
import torch
import torch.nn.functional as F
from sklearn.metrics import roc_auc_score

from _utils.networks import inputs_of, replaced_logits
from _utils.text import ELECTRADataProcessor, text_tokenizer
from _utils.text.corruption import (
    REPLACED,
    is_long,
    plain_words,
    replace_tokens,
    replace_with_foreign_word,
    swap_neighbours,
)

_ROWS = 1000  # examples, or pairs of sentences, evenly spaced: seconds on a CPU
_BATCH = 64


def measure(network, hf_tokenizer, documents, max_length=48):
    """Return {"auc", "swapped", "foreign"} of a discriminator: `auc_of_replacements`, and `ranked_below` for two kinds.

    documents: strings with one sentence per line.   max_length: of the examples of the first measurement, in tokens.
    """
    sentences = [words for document in documents for words in map(plain_words, document.split("\n")) if words]
    others = [word for words in sentences for word in words if is_long(word)]
    corruptions = {"swapped": swap_neighbours, "foreign": partial(replace_with_foreign_word, others=others)}
    scores = {"auc": auc_of_replacements(network, hf_tokenizer, documents, max_length)}
    for name, corrupt in corruptions.items():
        rng = random.Random(name)
        pairs = [(words, corrupted) for words in sentences if (corrupted := corrupt(words, rng=rng))]
        scores[name] = ranked_below(network, hf_tokenizer, evenly(pairs))
    return scores


def auc_of_replacements(network, hf_tokenizer, documents, max_length):
    """AUC of a discriminator on examples in which tokens are replaced.

    The replacements are draws from the unigram distribution of the text. The AUC is the probability that a replaced
    token has a higher logit than an original one. Special tokens do not count.
    """
    processor = ELECTRADataProcessor(None, hf_tokenizer, max_length, apply_cleaning=False, drop_parentheses=False)
    input_ids = padded(evenly(processor(documents)["input_ids"]), hf_tokenizer)
    is_text = ~np.isin(input_ids, hf_tokenizer.all_special_ids)
    corrupted, is_replaced = replace_tokens(input_ids, is_text)
    logits = logits_of(network, corrupted, hf_tokenizer)
    return float(roc_auc_score(is_replaced[is_text], logits[is_text]))


def ranked_below(network, hf_tokenizer, pairs):
    """The share of (words, corrupted words) in which the corrupted sentence has the lower score.

    The score is the sum of log P(original) over the tokens.
    """
    tokenizer, scores = text_tokenizer(hf_tokenizer), []
    for side in zip(*pairs):
        encodings = tokenizer.encode_batch([" ".join(words) + " ." for words in side])
        input_ids = padded([encoding.ids for encoding in encodings], hf_tokenizer)
        logits = logits_of(network, input_ids, hf_tokenizer)
        is_text = torch.tensor(~np.isin(input_ids, hf_tokenizer.all_special_ids))
        scores.append((F.logsigmoid(-logits) * is_text).sum(1))
    intact, corrupted = scores
    return float((corrupted < intact).double().mean())


def evenly(rows):
    """At most _ROWS of a list, evenly spaced."""
    return rows[::max(1, -(-len(rows) // _ROWS))]


def padded(rows, hf_tokenizer):
    """Lists of token ids as an array (N, L), padded at the end."""
    tensors = [torch.tensor(ids) for ids in rows]
    return torch.nn.utils.rnn.pad_sequence(tensors, batch_first=True, padding_value=hf_tokenizer.pad_token_id).numpy()


@torch.inference_mode()
def logits_of(network, input_ids, hf_tokenizer):
    """Logits of "replaced" for token ids (N, L) as one segment, (N, L), on the network's device."""
    network.eval()
    device, logits = next(network.parameters()).device, []
    for ids in torch.tensor(input_ids).split(_BATCH):
        ids = ids.to(device)
        is_token = ids != hf_tokenizer.pad_token_id
        logits.append(
            replaced_logits(network(**inputs_of(network, ids, is_token, torch.zeros_like(ids)))).float().cpu()
        )
    return torch.cat(logits)


def report(scores):
    """The result of `measure` in two lines."""
    return (f"AUC on held-out text with {REPLACED:.0%} random replacements: {scores['auc']:.3f} (random weights: 0.5)\n"
            f"Of two sentences it ranks the one with swapped neighbours lower in {scores['swapped']:.0%}, the one with "
            f"a foreign word in {scores['foreign']:.0%} (chance: 50%)")


def sentence_probabilities(network, hf_tokenizer, words, is_corrupted):
    """Return the tokens of a sentence with their probabilities of "replaced", for `plots.shades`.

    is_corrupted: a bool for each word.
    Returns [(token, probability of "replaced", whether it belongs to a corrupted word)].
    """
    tokenizer = text_tokenizer(hf_tokenizer)
    encoding = tokenizer.encode(list(words), is_pretokenized=True)
    [logits] = logits_of(network, padded([encoding.ids], hf_tokenizer), hf_tokenizer)
    probabilities = logits.sigmoid().tolist()
    return [
        (token, p, is_corrupted[word])
        for token, p, word in zip(encoding.tokens, probabilities, encoding.word_ids)
        if word is not None
    ]
