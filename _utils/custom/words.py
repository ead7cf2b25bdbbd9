"""Words of sentences: their tokens, labels, output layer and loss (finetune/tagging, F51)."""
import itertools

import numpy as np
import torch.nn.functional as F
from torch import nn

from _utils.tasks.predictor import Predictor
from _utils.tasks.rows import IGNORED, EncodedRows, Window
from _utils.text.special_tokens import templates_of, text_tokenizer


class WordPredictor(Predictor):
    """The linear layer applied to each token, without dropout (F51)."""

    def forward(self, inp_ids, attn_mask, token_type_ids, *inputs):
        """inp_ids, attn_mask, token_type_ids (B, L) -> logits (B, L, C). inputs: more arguments of the output layer."""
        return self.outputs(self.hidden_states(inp_ids, attn_mask, token_type_ids), *inputs)


class WordRows(EncodedRows):
    """Encoded sentences of words, with a label at the first wordpiece of each word (finetune/tagging, F51).

    Other tokens have the label IGNORED.

    sentences: lists of words.   word_labels: a list of class ids for each sentence, of any value if they are unknown.
    A sentence of more than max_len tokens is divided at a word, so that every word has a prediction. A word that the
    tokenizer drops, such as a control character, becomes [UNK].
    labels: of all words, (N,).
    """

    def __init__(self, sentences, word_labels, hf_tokenizer, max_len):
        template = templates_of(text_tokenizer(hf_tokenizer))[1]
        before, after = ([(i, IGNORED) for i in special] for special in template.special)
        n_special = len(before) + len(after)
        pieces, labels = wordpieces(sentences, hf_tokenizer), list(itertools.chain.from_iterable(word_labels))
        following, texts, n_words = iter(labels), [], []
        for sentence in sentences:
            words, windows = [pieces[word] for word in sentence], []
            for part in divide(words, max_len - n_special):
                labels_of_words = [itertools.chain([next(following)], itertools.repeat(IGNORED)) for _ in part]
                labelled = itertools.chain.from_iterable(map(zip, part, labels_of_words))
                ids, token_labels = zip(*before, *labelled, *after)
                windows.append(Window(ids, [0] * len(ids), token_labels))
                n_words.append(len(part))
            texts.append((windows, sum(map(len, words)) + n_special))
        super().__init__(texts, labels, hf_tokenizer.pad_token_id)
        # Of each row, the indexes of its words among all words.
        self.words = np.split(np.arange(len(labels)), np.cumsum(n_words)[:-1])

    def positions(self, rows):
        return np.concatenate([self.words[row] for row in rows])


def wordpieces(sentences, hf_tokenizer):
    """{word: token ids} of all words."""
    tokenizer = text_tokenizer(hf_tokenizer)
    words = list(dict.fromkeys(itertools.chain.from_iterable(sentences)))
    # Byte-level tokenizers recognize the beginning of a word by the space before it; others ignore the space.
    encoded = tokenizer.encode_batch([f" {word}" for word in words], add_special_tokens=False)
    return {word: encoding.ids or [hf_tokenizer.unk_token_id] for word, encoding in zip(words, encoded)}


def divide(words, room):
    """The token ids of the words of a sentence in parts of at most `room` tokens. A longer word is truncated."""
    parts, used = [[]], 0
    for word in words:
        ids = word[:room]
        if used + len(ids) > room:
            parts.append([])
            used = 0
        parts[-1].append(ids)
        used += len(ids)
    return parts


class WordLoss(nn.Module):
    """Cross-entropy, summed over the words of each sentence; the mean over the batch (F51, D9).

    weight: (C,) or None.
    """
    name = "loss per sentence"

    def __init__(self, weight=None):
        super().__init__()
        self.register_buffer("weight", weight)

    def forward(self, logits, labels):
        """logits (B, L, C), labels (B, L) -> ()."""
        words = logits.flatten(0, 1), labels.flatten()
        return F.cross_entropy(*words, self.weight, ignore_index=IGNORED, reduction="sum") / len(logits)
