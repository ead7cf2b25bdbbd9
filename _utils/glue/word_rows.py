"""Encoded sentences for tagging: one label per word, at its first wordpiece."""
import numpy as np
import torch

from _utils.glue.batches import IGNORED, EncodedRows


class WordRows(EncodedRows):
    """Encoded sentences of words, with a label at the first wordpiece of each word (finetune/tagging, F51).

    sentences: lists of words.   word_labels: a list of class ids for each sentence, of any value if they are unknown.
    A sentence of more than max_len tokens is divided at a word, so that every word has a prediction. A word that the tokenizer drops,
    such as a control character, becomes [UNK].
    sentence_lengths: words of each sentence.   labels: of all words, (N,).
    """

    def __init__(self, sentences, word_labels, hf_tokenizer, max_len):
        before, after = special_tokens(hf_tokenizer)
        windows = divide(sentences, wordpieces(sentences, hf_tokenizer), max_len - len(before) - len(after))
        encoded = [[*before, *(piece for pieces in window for piece in pieces), *after] for window in windows]
        super().__init__([{"inp_ids": ids, "token_type_ids": [0] * len(ids)} for ids in encoded], [0] * len(encoded),
                         hf_tokenizer.pad_token_id)
        self.sentence_lengths = list(map(len, sentences))
        self.labels = torch.tensor([label for labels in word_labels for label in labels])
        self.first_pieces = [len(before) + np.cumsum([0, *map(len, window)])[:-1] for window in windows]  # positions in the row
        n_words = np.array([len(window) for window in windows])
        self.first_words = np.cumsum(n_words) - n_words  # index of each row's first word among all words

    def batch(self, rows):
        """(inp_ids, attn_mask, token_type_ids, labels) of these rows, four times (B, L); labels are IGNORED at other tokens."""
        ids, attn_mask, types, _ = super().batch(rows)
        labels = torch.full_like(ids, IGNORED)
        for i, row in enumerate(rows):
            pieces, word = self.first_pieces[row], self.first_words[row]
            labels[i, pieces] = self.labels[word:word + len(pieces)]
        return ids, attn_mask, types, labels

    def in_order(self, outputs, order):
        """Outputs (N, C) of all words in their order. outputs: of each batch, (B, L, C).   order: row numbers of the batches."""
        words, rows = torch.empty(len(self.labels), outputs[0].shape[-1]), iter(order)
        for output in outputs:
            for of_row, row in zip(output.cpu(), rows):
                pieces, word = self.first_pieces[row], self.first_words[row]
                words[word:word + len(pieces)] = of_row[pieces]
        return words


def special_tokens(hf_tokenizer):
    """(ids before, ids after) a text, which the tokenizer adds."""
    encoding = hf_tokenizer.backend_tokenizer.encode("a")
    mask = encoding.special_tokens_mask
    n_before, n_after = mask.index(0), mask[::-1].index(0)
    return encoding.ids[:n_before], encoding.ids[len(mask) - n_after:]


def wordpieces(sentences, hf_tokenizer):
    """{word: token ids} of all words."""
    tokenizer = hf_tokenizer.backend_tokenizer
    tokenizer.encode_special_tokens = True  # "[MASK]" and the like are plain text (F1)
    words = list(dict.fromkeys(word for sentence in sentences for word in sentence))
    space = " " if "ByteLevel" in str(tokenizer.pre_tokenizer) else ""  # such tokenizers see a word's beginning by the space before it
    encoded = tokenizer.encode_batch([space + word for word in words], add_special_tokens=False)
    return {word: encoding.ids or [hf_tokenizer.unk_token_id] for word, encoding in zip(words, encoded)}


def divide(sentences, pieces, room):
    """Sentences as lists of their words' token ids, divided where they exceed `room` tokens; a longer word is truncated."""
    windows = []
    for sentence in sentences:
        window, used = [], 0
        for word in sentence:
            ids = pieces[word][:room]
            if used + len(ids) > room:
                windows.append(window)
                window, used = [], 0
            window.append(ids)
            used += len(ids)
        windows.append(window)
    return windows
