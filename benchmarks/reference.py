"""Reference for the benchmarks: pretraining and finetuning steps computed as in electra_pytorch.

The model of Pretrain.ipynb without faster layers, with vocabulary logits at every position (D16); rows fetched one by
one; and an optimizer that updates one parameter at a time. Losses, gradients and updates equal
those of pretrain.py and finetune.py.
"""
import datasets
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils.rnn import pad_sequence

from pretrain import ELECTRALoss, mask_tokens


class RowByRowLoader:
    """Batches (input_ids, sentA_length), padded to the longest row.

    Rows are fetched and converted to tensors one at a time.
    """

    def __init__(self, dataset, bs, pad_token_id):
        self.dataset, self.bs, self.pad_token_id = dataset.with_format("torch"), bs, pad_token_id
        self.order = torch.randperm(len(dataset), generator=torch.Generator().manual_seed(0)).tolist()

    def __iter__(self):
        for start in range(0, len(self.order) - self.bs + 1, self.bs):
            rows = [self.dataset[i] for i in self.order[start:start + self.bs]]
            ids = pad_sequence(
                [row["input_ids"].long() for row in rows], batch_first=True, padding_value=self.pad_token_id
            )
            yield ids, torch.stack([row["sentA_length"].long() for row in rows])


class PredictsEverywhere(nn.Module):
    """A generator that computes vocabulary logits at all positions, of which `logits_at` selects some."""

    def __init__(self, generator):
        super().__init__()
        self.network, self.config = generator, generator.config

    def logits_at(self, inputs, positions):
        """See faster_layers.logits_at."""
        return self.network(**inputs).logits.flatten(0, 1)[positions]


class OneByOneAdam:
    """Adam without bias correction (F33), one parameter and one operation at a time."""

    def __init__(self, named_parameters, lr, weight_decay=.01):
        self.parameters = [(name, parameter) for name, parameter in named_parameters if parameter.requires_grad]
        self.lr, self.weight_decay = lr, weight_decay
        self.state = {
            parameter: (torch.zeros_like(parameter), torch.zeros_like(parameter)) for _, parameter in self.parameters
        }

    @torch.no_grad()
    def step(self):
        for name, parameter in self.parameters:
            m, v = self.state[parameter]
            m.mul_(.9).add_(parameter.grad, alpha=.1)
            v.mul_(.999).addcmul_(parameter.grad, parameter.grad, value=.001)
            update = m / (v.sqrt() + 1e-6)
            if self.weight_decay and not any(part in name for part in ("LayerNorm", "bias")):
                update = update + self.weight_decay * parameter
            parameter.add_(update, alpha=-self.lr)
            parameter.grad = None


def reference_step(model, optimizer, batch, tokenizer_ids, precision="fp32"):
    """One training step of an ELECTRAModel on a batch (input_ids, sentA_length).

    tokenizer_ids: (mask id, vocabulary size, special ids).
    """
    input_ids, lengths = batch
    masked, labels, chosen = mask_tokens(
        input_ids, *tokenizer_ids, mlm_probability=0.15, replace_prob=0.0, orginal_prob=0.15
    )
    with torch.autocast(input_ids.device.type, torch.bfloat16, enabled=precision == "bf16"):
        loss = ELECTRALoss()(model(masked, lengths, chosen, labels), labels)
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1., foreach=False)
    optimizer.step()
    return loss.detach()


class RowsOneByOne:
    """Encoded rows for a PaddedBatchDL, fetched and converted to tensors one at a time.

    rows: EncodedRows.   pad_to: length of every batch; None: that of its longest row.
    """
    columns = ("inp_ids", "attn_mask", "token_type_ids")

    def __init__(self, rows, pad_to=None):
        self.lengths, self.pad_idx, self.pad_to, self.n_inp = rows.lengths, rows.padding["inp_ids"], pad_to, rows.n_inp
        singles = [rows.batch([i]) for i in range(len(rows))]
        table = {name: [single[i][0].tolist() for single in singles] for i, name in enumerate((*self.columns, "label"))}
        self.dataset = datasets.Dataset.from_dict(table).with_format("torch")

    def __len__(self):
        return len(self.dataset)

    def batch(self, rows, multiple=1):
        """See EncodedRows.batch."""
        fetched = [self.dataset[int(i)] for i in rows]
        length = self.pad_to or -(-max(len(row["inp_ids"]) for row in fetched) // multiple) * multiple
        pad = lambda row, name: F.pad(
            row[name], (0, length - len(row[name])), value=self.pad_idx if name == "inp_ids" else 0
        )
        return *(torch.stack([pad(row, name) for row in fetched]) for name in self.columns), torch.stack(
            [row["label"] for row in fetched]
        )


class ReferencePredictor(nn.Module):
    """A SentencePredictor, called as in electra_pytorch."""

    def __init__(self, predictor):
        super().__init__()
        self.base_model, self.dropout, self.classifier = predictor.base_model, predictor.dropout, predictor.classifier

    def forward(self, inp_ids, attn_mask, token_type_ids):
        hidden = self.base_model(inp_ids, attn_mask, token_type_ids)[0]  # (B, L, H)
        return self.classifier(self.dropout(hidden[:, 0])).squeeze(-1)


def reference_finetuning_step(model, optimizers, batch):
    """One training step on a batch of RowsOneByOne. optimizers: one OneByOneAdam per learning rate."""
    *x, labels = batch
    loss = F.cross_entropy(model(*x), labels)
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1., foreach=False)
    for optimizer in optimizers:
        optimizer.step()
    return loss.detach()
