"""Sentences with a label for each word: their encoded rows and the loss."""
import itertools
import re

import numpy as np
import torch.nn.functional as F
from torch import nn

from _utils.tasks.rows import IGNORED, EncodedRows
from _utils.text.special_tokens import template_of, text_tokenizer

# Other spellings of tags that mark entities: B_PER, b-PER, M-PER of BMES, PER-B, B alone; and names of O, in lower case.
_PLACE, _BETWEEN = "(?P<place>[BIESLUMbieslum])", "[-_:./|]"
_LIKE_BIO = [re.compile(pattern) for pattern in (rf"{_PLACE}{_BETWEEN}(?P<kind>\S.*)", rf"(?P<kind>\S.*){_BETWEEN}{_PLACE}", _PLACE)]
_OUTSIDE = {"o", "0", "_", "-", "out", "outside", "other", "none", "null"}


class WordRows(EncodedRows):
    """Encoded sentences of words, with a label at the first wordpiece of each word (finetune/tagging, F51) and IGNORED at other tokens.

    sentences: lists of words.   word_labels: a list of class ids for each sentence, of any value if they are unknown.
    A sentence of more than max_len tokens is divided at a word, so that every word has a prediction. A word that the tokenizer drops,
    such as a control character, becomes [UNK].
    sentence_lengths: words of each sentence.   labels: of all words, (N,).
    """

    def __init__(self, sentences, word_labels, hf_tokenizer, max_len):
        template = template_of(text_tokenizer(hf_tokenizer))
        before, after, n_special = template.before, template.after, template.n_single
        pieces = wordpieces(sentences, hf_tokenizer)
        windows = divide(sentences, pieces, max_len - n_special)
        labels, encoded = list(itertools.chain.from_iterable(word_labels)), []
        following = iter(labels)
        for window in windows:
            labelled = [(piece, IGNORED if i else next(following)) for word in window for i, piece in enumerate(word)]
            ids, token_labels = zip(*((piece, IGNORED) for piece in before), *labelled, *((piece, IGNORED) for piece in after))
            encoded.append({"inp_ids": ids, "token_type_ids": [0] * len(ids), "token_labels": token_labels})
        full_lengths = [sum(len(pieces[word]) for word in sentence) + n_special for sentence in sentences]
        super().__init__(encoded, labels, hf_tokenizer.pad_token_id, full_lengths)
        self.sentence_lengths = list(map(len, sentences))
        # Of each row, the indexes of its words among all words.
        self.words = np.split(np.arange(len(labels)), np.cumsum(list(map(len, windows)))[:-1])

    def positions(self, rows):
        return np.concatenate([self.words[row] for row in rows])


def wordpieces(sentences, hf_tokenizer):
    """{word: token ids} of all words."""
    tokenizer = text_tokenizer(hf_tokenizer)
    words = list(dict.fromkeys(itertools.chain.from_iterable(sentences)))
    # Byte-level tokenizers recognize the beginning of a word by the space before it; others ignore the space.
    encoded = tokenizer.encode_batch([f" {word}" for word in words], add_special_tokens=False)
    return {word: encoding.ids or [hf_tokenizer.unk_token_id] for word, encoding in zip(words, encoded)}


def divide(sentences, pieces, room):
    """Sentences as lists of their words' token ids, divided where they exceed `room` tokens; a longer word is truncated."""
    windows = []
    for sentence in sentences:
        windows.append([])
        used = 0
        for word in sentence:
            ids = pieces[word][:room]
            if used + len(ids) > room:
                windows.append([])
                used = 0
            windows[-1].append(ids)
            used += len(ids)
    return windows


def spellings(tags, others):
    """{tag: as B-PER, I-PER or O} of tags that mark entities with another spelling, such as B_PER, PER-B or B alone, and 0 for O.

    tags: Series of the lists of tags of training sentences, which decide.   others: all tags, also of other sentences.
    """
    found = {tag for tag in tags.explode().dropna() if tag.lower() not in _OUTSIDE}
    pattern = next((pattern for pattern in _LIKE_BIO if found and all(map(pattern.fullmatch, found))), None)
    if pattern is None or not {pattern.fullmatch(tag)["place"].upper() for tag in found} & {"B", "I"}:
        return {}
    usual = {tag: "O" if tag.lower() in _OUTSIDE else _usual(pattern, tag) for tag in sorted({*others})}
    return {tag: new for tag, new in usual.items() if tag != new}


def _usual(pattern, tag):
    """A tag as B-PER or I-PER, if it matches one of the patterns _LIKE_BIO; another tag as it is."""
    if not (match := pattern.fullmatch(tag)):
        return tag
    parts = {"kind": "entity", **match.groupdict()}
    return f"{parts['place'].upper().replace('M', 'I')}-{parts['kind']}"


def in_scheme(tags, scheme):
    """The tags of a sentence in the scheme 'iob2' or 'bioes' (as Google's chunking, F51), from IOB1, IOB2, BIOES, BILOU or a mixture."""
    converted = ["O"] * len(tags)
    for kind, first, last in entities(tags):
        converted[first:last + 1] = [f"B-{kind}"] + [f"I-{kind}"] * (last - first)
        if scheme == "bioes":
            converted[last] = f"{'S' if first == last else 'E'}-{kind}"
    return converted


def entities(tags):
    """[(type, index of the first word, index of the last)] of a sentence, as CoNLL's evaluation counts them."""
    from seqeval.metrics.sequence_labeling import get_entities  # here, because only tagging needs it
    return get_entities(list(map(as_bioes, tags)))


def as_bioes(tag):
    """A tag of BILOU in BIOES, which seqeval knows; others as they are."""
    return {"L-": "E-", "U-": "S-"}.get(tag[:2], tag[:2]) + tag[2:]


def begin_with_i(sentences):
    """(entities that begin with I-, as in IOB1; those that begin with B- where IOB1 has I-) of the tags of sentences."""
    begins = [(tags[first][0], first > 0 and tags[first - 1][2:] == kind) for tags in sentences for kind, first, _ in entities(tags)]
    return begins.count(("I", False)), begins.count(("B", False))


class WordLoss(nn.Module):
    """Cross-entropy, summed over the words of each sentence; the mean over the batch (F51, D9). weight: (C,) or None."""

    def __init__(self, weight=None):
        super().__init__()
        self.register_buffer("weight", weight)

    def forward(self, logits, labels):
        """logits (B, L, C), labels (B, L) -> ()."""
        return F.cross_entropy(logits.flatten(0, 1), labels.flatten(), self.weight, ignore_index=IGNORED, reduction="sum") / len(logits)
