"""Encoded texts, the windows of those that are too long, and padded batches."""
from array import array
from typing import NamedTuple

import numpy as np
import pandas as pd
import torch
from fastai.data.core import DataLoaders
from fastai.text.data import SortedDL

from _utils.text.special_tokens import MANY_UNKNOWN, special_tokens_in, text_tokenizer, unknown_words

IGNORED = -100  # the label of tokens that have none, as in PyTorch's cross-entropy


class Window(NamedTuple):
    """A row of tokens with special tokens: ids and segment ids. token_labels: of each token, or none."""
    ids: list
    type_ids: list
    token_labels: list = []


class EncodedRows:
    """Encoded texts or pairs in flat arrays, with their labels. A text that is too long may have several rows.

    texts: iterable of ([Window, one for each row], number of the text's tokens before it was truncated or divided).
    labels: one number per text; unused if each token has a label.   pad_idx: id of [PAD].   n_inp: inputs of the model,
    for fastai.
    """
    n_inp = 3

    def __init__(self, texts, labels, pad_idx=0):
        self.padding = {"inp_ids": pad_idx, "token_type_ids": 0, "token_labels": IGNORED}
        ids, types, token_labels = flat = array("i"), array("i"), array("i")
        lengths, self.full_lengths, self.n_windows = [], [], []
        for windows, full_length in texts:
            self.full_lengths.append(full_length)
            self.n_windows.append(len(windows))
            for window in windows:
                before = len(ids)
                ids.extend(window.ids)
                types.extend(window.type_ids)
                token_labels.extend(window.token_labels)
                lengths.append(len(ids) - before)
        self.text_of = np.repeat(np.arange(len(self.n_windows)), self.n_windows)  # of each row
        self.lengths = np.array(lengths, dtype=np.int64)
        self.starts = np.cumsum(self.lengths) - self.lengths
        self.flat = {name: np.asarray(values) for name, values in zip(self.padding, flat) if values}
        self.labels = torch.tensor(labels)
        if "token_labels" not in self.flat and len(self.labels) != len(self.n_windows):
            raise ValueError(f"`encode` made {len(self.n_windows)} texts and {len(self.labels)} labels")
        self.n_examples = len(self.n_windows)  # as results count them: both orders of a pair, but not the windows

    def __len__(self):
        return len(self.lengths)

    def batch(self, rows, multiple=1):
        """(inp_ids, attn_mask, token_type_ids, labels) of these rows.

        The first three are (B, L), labels (B,), or (B, L) for tokens. L is the length of the longest of them, rounded
        up to a multiple, but at most that of the longest of all rows: the model may have no more positions.
        """
        lengths = self.lengths[rows]
        length = min(-(-lengths.max() // multiple) * multiple, self.lengths.max())
        is_token = np.arange(length) < lengths[:, None]  # (B, L)
        padded, tokens = {}, (self.starts[rows, None] + np.arange(length))[is_token]
        for name, values in self.flat.items():
            padded[name] = np.full(is_token.shape, self.padding[name], np.int64)
            padded[name][is_token] = values[tokens]
        ids, types, *labels = map(torch.from_numpy, padded.values())
        labels = labels[0] if labels else self.labels[self.text_of[rows]]
        return ids, torch.from_numpy(is_token.astype(np.int64)), types, labels

    def mean(self, outputs):
        """The mean over the windows of each text of outputs of all rows, (rows, ...) -> (N, ...)."""
        zeros = outputs.new_zeros(len(self.n_windows), *outputs.shape[1:])
        sums = zeros.index_add(0, torch.from_numpy(self.text_of), outputs)
        return sums / torch.tensor(self.n_windows).view(-1, *[1] * (outputs.dim() - 1))

    def positions(self, rows):
        """Where the outputs for these rows belong among those of all rows; for tagging, of all words."""
        return rows


def tokenized(rows, names, settings, hf_tokenizer):
    """Yield ([{column: token ids}], number of tokens) for each row of a Dataset.

    The list has one item, or one for each window of texts that are divided. The number is that of the whole texts with
    special tokens.
    names: columns of the text or pair.   settings: of a run.
    """
    tokenizer = text_tokenizer(hf_tokenizer)
    n_special = tokenizer.num_special_tokens_to_add(len(names) == 2)
    room = settings.max_length - n_special
    for batch in rows.iter(1000):
        columns = (tokenizer.encode_batch(batch[name], add_special_tokens=False) for name in names)
        for texts in zip(*columns):
            n_tokens = sum(map(len, texts))
            if settings.window_stride and n_tokens > room:
                windows = divided(texts, room, settings.window_stride)
            else:
                windows = [[text.ids for text in texts]]
            yield [dict(zip(names, window)) for window in windows], n_tokens + n_special


def divided(texts, room, stride):
    """Divide one or two texts into windows of at most `room` tokens, which begin every `stride` tokens.

    texts: Encodings. Returns [[token ids of each text] for each window].
    The windows of a text that has only a share of the room begin after the same share of `stride`.
    Of a pair, the shorter text has at most half the room, and is divided too if it is longer than that. If one text has
    fewer windows than the other, each of them is beside several.
    """
    rooms = [room]
    if len(texts) == 2:
        first, second = map(len, texts)
        of_first = min(first, room // 2) if first < second else room - min(second, room // 2)
        rooms = [of_first, room - of_first]
    parts = []
    for text, space in zip(texts, rooms):
        step = min(space, max(1, min(stride, room) * space // room))
        text.truncate(space, stride=space - step)  # transformers' stride is the overlap
        parts.append([part.ids for part in (text, *text.overflowing)])
    n = max(map(len, parts))
    return [[windows[i * len(windows) // n] for windows in parts] for i in range(n)]


class EncodedTask(NamedTuple):
    """Encoded rows of a task: the training set, and {split: rows} and {split: labels} of the dev sets."""
    train: EncodedRows
    devs: dict
    labels: dict = {}


def training_rows(rows, limit):
    """`limit` rows of a training Dataset in its order, or all for None.

    They are drawn with a fixed seed, and each class keeps its share.
    """
    if not limit or limit >= len(rows):
        return rows
    rng, labels = np.random.default_rng(0), pd.Series(rows["label"][:]).map(str)
    order, starts = rng.permutation(len(rows)), rng.random(labels.nunique())
    of_class = labels[order].groupby(labels)
    place = (of_class.cumcount() + starts[of_class.ngroup()]) / of_class.transform("size")  # in the class, from 0 to 1
    return rows.select(np.sort(place.nsmallest(limit).index))


def encode_task(task, splits, settings, hf_tokenizer, sentence_predictor):
    """EncodedTask of the tables of a Task. splits: {name: Dataset}.   settings: of a run; its rows limit the training
    set.   sentence_predictor: as for `Inputs.encode`.
    """
    inputs, rows = task.inputs, training_rows(splits["train"], settings.rows)
    train = inputs.encode(rows, hf_tokenizer, settings, sentence_predictor, training=True)
    devs = {split: inputs.encode(splits[split], hf_tokenizer, settings, sentence_predictor) for split in task.devs}
    return EncodedTask(train, devs, {split: splits[split]["label"][:] for split in devs})


def text_messages(rows, max_length, hf_tokenizer, texts, advice):
    """Yield messages about texts that are too long, or have unknown or special tokens. rows: their EncodedRows.

    advice: about texts that lose their ends.
    """
    n_long, n_texts = sum(length > max_length for length in rows.full_lengths), len(rows.full_lengths)
    which = f"{n_long:,} of {n_texts:,} texts are longer than max_length={max_length} tokens and"
    if len(rows) > n_texts and n_long:
        yield f"{which} are divided into {len(rows) - n_texts + n_long:,} windows."
    elif n_long:
        yield f"warning: {which} lose their ends; the median length is {np.median(rows.full_lengths):.0f}. {advice}"
    ids = rows.flat["inp_ids"]
    ids = ids[~np.isin(ids, [hf_tokenizer.cls_token_id, hf_tokenizer.sep_token_id])]
    unknown = (ids == hf_tokenizer.unk_token_id).sum() / max(1, len(ids))
    if unknown > MANY_UNKNOWN:
        yield (f"warning: {unknown:.0%} of the tokens of the texts are not in the model's vocabulary, such as "
               f"{unknown_words(hf_tokenizer, texts[:1000])}. Choose a model for their language.")
    if counts := special_tokens_in(hf_tokenizer, texts):
        [(most_common, _)] = counts.most_common(1)
        yield (f"warning: {counts.total():,} of {len(texts):,} texts contain special tokens such as {most_common!r}, "
               "which are read as plain text. If they separate two texts, put these into two columns.")


def default_epochs(task, n_rows, bs, limit=None):
    """Epochs of a run with n_rows training rows in batches of bs, at least enough for `task.min_updates`.

    limit: at most so many rows are used.
    """
    updates_per_epoch = -(-min(n_rows, limit or n_rows) // bs)
    return max(task.epochs, -(-task.min_updates // updates_per_epoch))


class PaddedBatchDL(SortedDL):
    """DataLoader over EncodedRows, in the order of fastai's SortedDL.

    Shuffled: rows are sorted by length within random chunks of 50 batches, then the batches are shuffled, except that
    the one with the longest row comes first (D11; Google pads every row to 128). Not shuffled: longest row first;
    `get_idxs` returns the row numbers. On a GPU, lengths are multiples of 8, which its kernels prefer, and batches are
    copied asynchronously.
    """

    def __init__(self, dataset, device, **kwargs):
        self.to(device)
        is_on_gpu = self.destination.type == "cuda"
        super().__init__(dataset, res=dataset.lengths, indexed=True, pin_memory=is_on_gpu, **kwargs)
        self.multiple = 8 if is_on_gpu else 1

    def create_batches(self, samps):
        for rows in self.chunkify(samps):
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
