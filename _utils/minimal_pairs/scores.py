"""Scores of sentences: how natural a pretrained network considers each of them."""
import math
from itertools import groupby

import torch
import torch.nn.functional as F
from tqdm import tqdm

from _utils.errors import PlainError
from _utils.networks import GatheredPositions, inputs_of, max_positions, replaced_logits

TOKENS_PER_BATCH = {"cpu": 2048, "cuda": 32_768}  # measured for 4 layers x 128; a batch of 2,048 tokens stays in the CPU's cache


def encode(sentences, model, name):
    """{sentence: (token ids, special tokens mask)} for a WithHead, a tuple of each.

    name: of the checkpoint, for the PlainError about a sentence that has more tokens than the network has positions.
    """
    sentences = list(dict.fromkeys(sentences))
    encoded = model.hf_tokenizer(sentences, return_special_tokens_mask=True)
    longest = max(encoded["input_ids"], key=len)
    if len(longest) > max_positions(model.network):
        sentence = sentences[encoded["input_ids"].index(longest)]
        raise PlainError(f"The sentence {sentence[:60]!r}... has {len(longest)} tokens, more than the {max_positions(model.network)} "
                         f"positions of {name!r}. Shorten it or remove the pair.")
    return dict(zip(sentences, zip(map(tuple, encoded["input_ids"]), map(tuple, encoded["special_tokens_mask"]))))


@torch.inference_mode()
def score(model, encoded, device, name):
    """{sentence: score} of a WithHead, for sentences from `encode`; in float32, because the scores of a pair differ little.

    A discriminator's score is the sum of log(1 - P(replaced)) over the tokens. That of a masked language model is the pseudo-log-likelihood
    (Salazar et al. 2020, Masked Language Model Scoring): the sum of log P(token | all other tokens), masking one token at a time. Special
    tokens do not count. Sentences with the same token ids are computed once and have the same score.
    name: of the checkpoint, for the progress bar and the PlainError about scores that are not finite.
    """
    network = model.network.eval().to(device)
    n_tokens = TOKENS_PER_BATCH[device.type]
    scorer = _replaced if model.part == "discriminator" else _MaskedLM(network, model.hf_tokenizer.mask_token_id, n_tokens)
    scores = {}
    with tqdm(total=len(set(encoded.values())), desc=name, unit=" sentences", mininterval=1) as bar:
        for batch in _batches(set(encoded.values()), n_tokens):
            ids, special = torch.tensor(batch, device=device).unbind(1)  # (B, L) each
            scores.update(zip(batch, scorer(network, ids, special.bool()).tolist()))
            bar.update(len(batch))
    if not all(map(math.isfinite, scores.values())):
        raise PlainError(f"The scores of {name!r} are not finite, so its training diverged. Choose an earlier checkpoint.")
    return {sentence: scores[row] for sentence, row in encoded.items()}


def _batches(rows, n_tokens):
    """Yield lists of (ids, special tokens mask) of equal length, which need no padding, with about n_tokens tokens; long ones first."""
    for length, group in groupby(sorted(rows, key=lambda row: (-len(row[0]), row)), key=lambda row: len(row[0])):
        equally_long, size = list(group), max(1, n_tokens // length)
        for start in range(0, len(equally_long), size):
            yield equally_long[start:start + size]


def _outputs(network, ids):
    return network(**inputs_of(network, ids, None, torch.zeros_like(ids)))


def _replaced(network, ids, special):
    """Scores (B,) of a discriminator for ids (B, L)."""
    originals = F.logsigmoid(-replaced_logits(_outputs(network, ids)))  # (B, L)
    return originals.masked_fill(special, 0).sum(1)


class _MaskedLM:
    """Scores of a masked language model, whose head computes the masked positions only."""

    def __init__(self, network, mask_token_id, n_tokens):
        self.at_positions, self.mask_token_id, self.n_tokens = GatheredPositions(network), mask_token_id, n_tokens

    def __call__(self, network, ids, special):
        """Scores (B,) for ids (B, L)."""
        scores = torch.zeros(len(ids), device=ids.device)
        length = ids.shape[1]
        for cells in (~special).nonzero().split(max(1, self.n_tokens // length)):
            rows, positions = cells.unbind(1)  # (M,), (M,)
            at = positions[:, None]
            masked = ids[rows].scatter(1, at, self.mask_token_id)  # (M, L)
            with self.at_positions.only(torch.arange(len(rows), device=ids.device) * length + positions):
                logits = _outputs(network, masked).logits[0]  # (M, V)
            targets = ids[rows].gather(1, at)  # (M, 1)
            scores.index_add_(0, rows, (logits.gather(1, targets) - logits.logsumexp(1, keepdim=True))[:, 0])
        return scores
