"""Encoded rows and words, padded batches, and predictions for them."""
import itertools

import numpy as np
import torch
from fastai.data.core import DataLoaders
from fastai.text.data import SortedDL

from _utils.networks import make_dropout_cheap, set_attention
from _utils.training.device import avoid_cudnn_attention, choose_device, choose_precision
from _utils.training.learners import DTYPES

IGNORED = -100  # the label of tokens that have none, as in PyTorch's cross-entropy


class EncodedRows:
    """Encoded sentences or pairs in flat arrays, with their labels.

    encoded: dictionaries with inp_ids, token_type_ids and, if each token has a label, token_labels.   labels: one number per row.
    pad_idx: id of [PAD].
    sentence_lengths: words of each sentence, if it is tagging; else None.   n_inp: inputs of the model, for fastai.
    """
    sentence_lengths, n_inp = None, 3

    def __init__(self, encoded, labels, pad_idx=0):
        self.lengths = np.array([len(row["inp_ids"]) for row in encoded], dtype=np.int64)
        self.starts = np.cumsum(self.lengths) - self.lengths
        self.padding = {"inp_ids": pad_idx, "token_type_ids": 0, "token_labels": IGNORED}
        self.flat = {name: np.fromiter(itertools.chain.from_iterable(row[name] for row in encoded), np.int32, self.lengths.sum())
                     for name in self.padding if name in encoded[0]}
        labels = np.asarray(labels)
        self.labels = torch.from_numpy(labels.astype(np.float32 if labels.dtype.kind == "f" else np.int64))

    def __len__(self):
        return len(self.lengths)

    def batch(self, rows, multiple=1):
        """(inp_ids, attn_mask, token_type_ids, labels) of these rows: three times (B, L); labels are (B,), or (B, L) of tokens.

        L is that of the longest row, rounded up to a multiple, but no more than the longest of all rows: the model may have no more
        positions.
        """
        lengths = self.lengths[rows]
        length = min(-(-lengths.max() // multiple) * multiple, self.lengths.max())
        is_token = np.arange(length) < lengths[:, None]  # (B, L)
        padded, tokens = {}, ranges(self.starts[rows], lengths)
        for name, values in self.flat.items():
            padded[name] = np.full(is_token.shape, self.padding[name], np.int64)
            padded[name][is_token] = values[tokens]
        ids, types, *labels = map(torch.from_numpy, padded.values())
        return ids, torch.from_numpy(is_token.astype(np.int64)), types, labels[0] if labels else self.labels[rows]

    def positions(self, rows):
        """Where the outputs for these rows, one after the other, belong among those of all rows; for tagging, of all words."""
        return rows


def ranges(starts, lengths):
    """The numbers start, ..., start + length - 1 of each start and length, in one array."""
    return np.concatenate([np.arange(start, start + length) for start, length in zip(starts, lengths)])


class PaddedBatchDL(SortedDL):
    """DataLoader over EncodedRows, in the order of fastai's SortedDL.

    Shuffled: rows are sorted by length within random chunks of 50 batches, then the batches are shuffled, except that the one with the
    longest row comes first (D11; Google pads every row to 128). Not shuffled: longest row first; `get_idxs` returns the row numbers.
    On a GPU, lengths are multiples of 8, which its kernels prefer, and batches are copied asynchronously.
    """

    def __init__(self, dataset, device, **kwargs):
        self.destination = torch.device(device)
        is_on_gpu = self.destination.type == "cuda"
        super().__init__(dataset, res=dataset.lengths, indexed=True, pin_memory=is_on_gpu, **kwargs)
        self.multiple = 8 if is_on_gpu else 1

    def create_batches(self, samps):
        samps = iter(samps)
        while rows := list(itertools.islice(samps, self.bs)):
            yield self.dataset.batch(rows, self.multiple)

    def to(self, device):
        self.destination = torch.device(device)

    def __iter__(self):
        for batch in super().__iter__():
            yield tuple(tensor.to(self.destination, non_blocking=True) for tensor in batch)


def inference_dataloader(rows, bs, device, num_workers=0):
    """Unshuffled PaddedBatchDL; without a backward pass, batches can be four times the training batch size `bs`."""
    return PaddedBatchDL(rows, device, bs=4 * bs, num_workers=num_workers)


def finetuning_dataloaders(train, others, bs, num_workers, device):
    """fastai DataLoaders: `train` shuffled in batches of bs, then an inference loader for each of `others`."""
    train = PaddedBatchDL(train, device, bs=bs, num_workers=num_workers, shuffle=True)
    return DataLoaders(train, *(inference_dataloader(rows, bs, device, num_workers) for rows in others), device=device)


class WordRows(EncodedRows):
    """Encoded sentences of words, with a label at the first wordpiece of each word (finetune/tagging, F51) and IGNORED at other tokens.

    sentences: lists of words.   word_labels: a list of class ids for each sentence, of any value if they are unknown.
    A sentence of more than max_len tokens is divided at a word, so that every word has a prediction. A word that the tokenizer drops,
    such as a control character, becomes [UNK].
    sentence_lengths: words of each sentence.   labels: of all words, (N,).
    """

    def __init__(self, sentences, word_labels, hf_tokenizer, max_len):
        before, after = special_tokens(hf_tokenizer)
        windows = divide(sentences, wordpieces(sentences, hf_tokenizer), max_len - len(before) - len(after))
        labels, encoded = list(itertools.chain.from_iterable(word_labels)), []
        following = iter(labels)
        for window in windows:
            pieces = [(piece, IGNORED if i else next(following)) for word in window for i, piece in enumerate(word)]
            ids, token_labels = zip(*((piece, IGNORED) for piece in before), *pieces, *((piece, IGNORED) for piece in after))
            encoded.append({"inp_ids": ids, "token_type_ids": [0] * len(ids), "token_labels": token_labels})
        super().__init__(encoded, labels, hf_tokenizer.pad_token_id)
        self.sentence_lengths = list(map(len, sentences))
        self.n_words = np.array(list(map(len, windows)))
        self.first_words = np.cumsum(self.n_words) - self.n_words  # index of each row's first word among all words

    def positions(self, rows):
        return ranges(self.first_words[rows], self.n_words[rows])


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


def to_device(model, device):
    """The model on a torch.device, with the implementations of attention and dropout that are fastest there."""
    if device.type == "cpu":
        make_dropout_cheap(model)
    else:
        set_attention(model, "sdpa_static")
    return model.to(device)


@torch.no_grad()
def predict_logits(model, dl, precision):
    """Outputs of a model for an unshuffled PaddedBatchDL on its device: (N, C) or (N,), on the CPU, in the order of the rows.

    For tagging N counts the words of all rows.
    """
    dtype = DTYPES[precision]
    model.eval()
    avoid_cudnn_attention()
    with torch.autocast(dl.destination.type, dtype, enabled=dtype is not None):
        batches = [(model(*xb).float(), labels) for *xb, labels in dl]
    # Waits for the GPU only here, at the end.
    outputs = torch.cat([output.cpu()[labels.cpu() != IGNORED] if labels.dim() == 2 else output.cpu() for output, labels in batches])
    in_rows = torch.empty_like(outputs)
    in_rows[torch.as_tensor(dl.dataset.positions(dl.get_idxs()))] = outputs
    return in_rows


def predict_rows(task, model, rows, settings, device=None, precision=None):
    """Probabilities (N, C) for encoded rows, or scores (N,) of a regression task, on the CPU.

    settings: of the run; only the batch size is used.   device, precision: as in the configuration.
    """
    device = choose_device(device)
    dl = inference_dataloader(rows, settings["bs"], device)
    logits = predict_logits(to_device(model, device), dl, choose_precision(precision, device))
    return logits if task.is_regression else logits.softmax(-1)
