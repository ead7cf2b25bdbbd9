"""The score of a text by a pretrained network: the sum of the scores of its tokens.

Electric estimates log P(token | all other tokens) for all tokens in one forward pass. A masked language model needs a
pass for each token, with that token masked: the pseudo-log-likelihood (Salazar et al. 2020, Masked Language Model
Scoring).
"""
from itertools import groupby
from typing import NamedTuple

import torch
import torch.nn.functional as F
from fastcore.basics import chunked

from _utils.errors import UserError
from _utils.networks import load_with_head, logits_at, replaced_logits
from _utils.objectives.registry import check_fills_masks, objective_of
from _utils.progress import Progress
from _utils.text.special_tokens import templates_of, text_tokenizer
from _utils.training.device import choose_device

# measured for 4 layers x 128; a batch of 2,048 tokens stays in the CPU's cache
TOKENS_PER_BATCH = {"cpu": 2048, "cuda": 32_768}
# Meanings of the score of a token.
BY_MASKING = "log P(token | all other tokens), by a masked language model that masks one token at a time"
LOG_ODDS = "minus the discriminator's logit of \"replaced\", the log-odds that the token is original"


class TextScore(NamedTuple):
    """score: the sum of token_scores, in nats.   tokens: without special tokens, which do not count."""
    score: float
    tokens: list
    token_scores: list


class TextScorer:
    """A pretrained network that scores texts: `load("electric_11081_100.0%.pth").score(["A text.", "Another one."])`.

    name: a checkpoint of pretrain.py or its path, a transformers folder or a hub id, with the head of the pretraining.
    part: 'discriminator' or 'generator'; None: the discriminator if there is one.   meaning: of the score of a token.
    Raises UserError for a model that is missing, or that was trained to predict tokens without [MASK].
    """

    def __init__(self, name, part=None, device=None):
        self.name, self.loaded, self.device = str(name), load_with_head(str(name), part), choose_device(device)
        check_fills_masks(self.name, self.loaded)
        of_discriminator = objective_of(self.loaded.run).token_score or LOG_ODDS
        self.meaning = BY_MASKING if self.loaded.part == "generator" else of_discriminator
        self.tokenizer = text_tokenizer(self.loaded.hf_tokenizer)
        self.before, self.after = templates_of(self.tokenizer)[1].special
        self.max_length = self.loaded.length

    def score(self, texts):
        """Return the TextScore of each of a list of texts.

        A text longer than the network's inputs is divided into parts of the same length, whose scores are added.
        Raises UserError for a text without tokens.
        """
        encodings = self.tokenizer.encode_batch(list(texts), add_special_tokens=False)
        if empty := [number for number, encoding in enumerate(encodings, start=1) if not encoding.ids]:
            raise UserError(f"Text {empty[0]} is empty ({len(empty)} of {len(encodings)} are). Remove it.")
        parts = [self.parts_of(encoding.ids) for encoding in encodings]
        scores = token_scores(self.loaded, [part for of_text in parts for part in of_text], self.device, self.name)
        found = []
        for encoding, of_text in zip(encodings, parts):
            of_tokens = [score for part in of_text for score in scores[part]]
            found.append(TextScore(sum(of_tokens), encoding.tokens, of_tokens))
        return found

    def parts_of(self, ids):
        """[(ids with special tokens, 1 for each special token) of each part]: tuples."""
        n_parts = -(-len(ids) // (self.max_length - len(self.before) - len(self.after)))
        size = -(-len(ids) // n_parts)
        is_special = lambda n: (*[1] * len(self.before), *[0] * n, *[1] * len(self.after))
        return [((*self.before, *part, *self.after), is_special(len(part))) for part in chunked(ids, size)]


load = TextScorer


@torch.inference_mode()
def token_scores(model, rows, device, title, of_logits=torch.neg):
    """Return {row: [score of each token that is not special]} of a PretrainedNetwork.

    Scores are float32, because those of similar texts differ little.
    rows: ((ids), (1 for a special token, else 0)), tuples of the same length; equal ones are computed once, and all
    without padding.   title: of the progress bar.   of_logits: the score of a token from a discriminator's logit.
    """
    network, n_tokens, scores = model.network.eval().to(device), TOKENS_PER_BATCH[device.type], {}
    longest_first = sorted(set(rows), key=lambda row: (-len(row[0]), row))
    with Progress(total=len(longest_first), desc=title, unit="texts") as bar:
        for length, same in groupby(longest_first, key=lambda row: len(row[0])):
            for batch in chunked(same, max(1, n_tokens // length)):
                ids, special = torch.tensor(batch, device=device).unbind(1)  # (B, L) each
                if model.part == "generator":
                    found = _masked_lm_scores(network, model.hf_tokenizer.mask_token_id, n_tokens, ids, special)
                else:
                    found = of_logits(replaced_logits(network(ids)))  # (B, L)
                for row, of_tokens in zip(batch, found.tolist()):
                    scores[row] = [score for score, is_special in zip(of_tokens, row[1]) if not is_special]
                bar.update(len(batch))
    return scores


def _masked_lm_scores(network, mask_token_id, n_tokens, ids, special):
    """Log-probabilities (B, L) of a masked language model for ids (B, L), in batches of n_tokens; 0 for special tokens.

    Its head computes the masked positions only.
    """
    scores, length = torch.zeros(ids.shape, device=ids.device), ids.shape[1]
    for cells in filter(len, (special == 0).nonzero().split(max(1, n_tokens // length))):  # none in an empty text
        rows, positions = cells.unbind(1)  # (M,), (M,)
        masked_ids = ids[rows].scatter(1, positions[:, None], mask_token_id)  # (M, L)
        masked = torch.arange(len(rows), device=ids.device) * length + positions
        logits = logits_at(network, {"input_ids": masked_ids}, masked)  # (M, V)
        scores[rows, positions] = -F.cross_entropy(logits, ids[rows, positions], reduction="none")
    return scores
