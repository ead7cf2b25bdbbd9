"""Batches for finetuning: rows of similar length, padded to the longest of the batch, each batch built at once from flat arrays."""
import itertools

import numpy as np
import torch
import torch.nn.functional as F
from fastai.data.core import DataLoaders
from fastai.text.data import SortedDL

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
