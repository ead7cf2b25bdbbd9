"""Encoded rows and words, padded batches, and predictions for them."""
import itertools

import numpy as np
import torch
import torch.nn.functional as F
from fastai.data.core import DataLoaders
from fastai.text.data import SortedDL

from _utils.networks import make_dropout_cheap, set_attention
from _utils.training.device import avoid_cudnn_attention, choose_device, choose_precision
from _utils.training.learners import DTYPES

IGNORED = -100  # the label of tokens that have none, as in PyTorch's cross-entropy


class Rows:
    """What can be predicted row by row. sentence_lengths: words of each sentence, if it is tagging; else None."""
    sentence_lengths = None

    def in_order(self, outputs, order):
        """Outputs (N, ...) in the order of the rows, on the CPU. outputs: of each batch.   order: row numbers of the batches."""
        outputs = torch.cat(outputs).cpu()
        in_order = torch.empty_like(outputs)
        in_order[torch.as_tensor(order)] = outputs
        return in_order


class EncodedRows(Rows):
    """Encoded sentences or pairs in flat arrays, with their labels.

    encoded: dictionaries with inp_ids and token_type_ids.   labels: one number per row.   pad_idx: id of [PAD].
    """

    def __init__(self, encoded, labels, pad_idx=0):
        self.lengths = np.array([len(row["inp_ids"]) for row in encoded], dtype=np.int64)
        self.starts = np.cumsum(self.lengths) - self.lengths
        flat = lambda name: np.fromiter(itertools.chain.from_iterable(row[name] for row in encoded), np.int32, self.lengths.sum())
        self.ids, self.types = flat("inp_ids"), flat("token_type_ids")
        labels = np.asarray(labels)
        self.labels = torch.from_numpy(labels.astype(np.float32 if labels.dtype.kind == "f" else np.int64))
        self.pad_idx = pad_idx

    def __len__(self):
        return len(self.lengths)

    def __getitem__(self, i):
        """Row i as `batch` returns it, without the batch dimension."""
        return tuple(part[0] for part in self.batch([i]))

    def batch(self, rows):
        """(inp_ids, attn_mask, token_type_ids, labels) of these rows: three times (B, L), L the longest, and (B,)."""
        rows = np.asarray(rows)
        lengths = self.lengths[rows]
        is_token = np.arange(lengths.max()) < lengths[:, None]  # (B, L)
        positions = np.concatenate([np.arange(start, start + n) for start, n in zip(self.starts[rows], lengths)])
        ids, types = np.full(is_token.shape, self.pad_idx, np.int64), np.zeros(is_token.shape, np.int64)
        ids[is_token], types[is_token] = self.ids[positions], self.types[positions]
        return torch.from_numpy(ids), torch.from_numpy(is_token.astype(np.int64)), torch.from_numpy(types), self.labels[rows]


class PaddedBatchDL(SortedDL):
    """DataLoader over EncodedRows, in the order of fastai's SortedDL.

    Shuffled: rows are sorted by length within random chunks of 50 batches, then the batches are shuffled, except that the one with the
    longest row comes first (D11; Google pads every row to 128). Not shuffled: longest row first; `get_idxs` returns the row numbers.
    On a GPU, lengths are multiples of 8, which its kernels prefer, and batches are copied asynchronously.
    """

    def __init__(self, dataset, device, **kwargs):
        self.destination = torch.device(device)
        is_on_gpu = self.destination.type == "cuda"
        super().__init__(dataset, res=dataset.lengths, pin_memory=is_on_gpu, **kwargs)
        self.multiple = 8 if is_on_gpu else 1
        self._n_inp = len(dataset[0]) - 1  # the labels come last

    def create_batches(self, samps):
        samps, longest = iter(samps), int(self.dataset.lengths.max())
        while rows := list(itertools.islice(samps, self.bs)):
            yield pad_to_multiple(self.dataset.batch(rows), self.multiple, longest, self.dataset.pad_idx)

    def to(self, device):
        self.destination = torch.device(device)

    def __iter__(self):
        for batch in super().__iter__():
            yield tuple(tensor.to(self.destination, non_blocking=True) for tensor in batch)


def pad_to_multiple(batch, multiple, longest, pad_idx):
    """Pad a batch to a length that `multiple` divides, but to at most `longest`: the model may have no more positions.

    batch: tensors; those of shape (B, L) are padded, the first with pad_idx, the last (labels) with IGNORED, the others with 0.
    """
    length = batch[0].shape[1]
    missing = min(-length % multiple, longest - length)
    if missing <= 0:
        return batch
    pad = lambda part, value: F.pad(part, (0, missing), value=value) if part.dim() == 2 else part
    ids, *others, labels = batch
    return pad(ids, pad_idx), *(pad(part, 0) for part in others), pad(labels, IGNORED)


def inference_dataloader(rows, bs, device, num_workers=0):
    """Unshuffled PaddedBatchDL; without a backward pass, batches can be four times the training batch size `bs`."""
    return PaddedBatchDL(rows, device, bs=4 * bs, num_workers=num_workers)


def finetuning_dataloaders(train, others, bs, num_workers, device):
    """fastai DataLoaders: `train` shuffled in batches of bs, then an inference loader for each of `others`."""
    train = PaddedBatchDL(train, device, bs=bs, num_workers=num_workers, shuffle=True)
    return DataLoaders(train, *(inference_dataloader(rows, bs, device, num_workers) for rows in others), device=device)


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
        outputs = [model(*xb).float() for *xb, _ in dl]
    return dl.dataset.in_order(outputs, dl.get_idxs())  # waits for the GPU only here, at the end


def predict_rows(task, model, rows, settings, device=None, precision=None):
    """Probabilities (N, C) for encoded rows, or scores (N,) of a regression task, on the CPU.

    settings: of the run; only the batch size is used.   device, precision: as in the configuration.
    """
    device = choose_device(device)
    dl = inference_dataloader(rows, settings["bs"], device)
    logits = predict_logits(to_device(model, device), dl, choose_precision(precision, device))
    return logits if task.is_regression else logits.softmax(-1)
