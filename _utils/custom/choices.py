"""Multiple choice, as in SWAG, RACE and COPA: a text, and which of several others belongs to it (not in the paper)."""
import string

import datasets
import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from transformers import AutoModelForMultipleChoice

from _utils.custom.cells import without_fraction
from _utils.custom.task import ClassInputs, CustomTask
from _utils.custom.task_tables import common_fields, find_labels, labels_by_split, task_data, to_datasets
from _utils.errors import UserError
from _utils.tasks.parts import Head, Metrics
from _utils.tasks.predictor import copy_output_layer
from _utils.tasks.rows import EncodedRows
from _utils.tasks.settings import Settings
from _utils.tasks.tables import shortened
from _utils.tasks.task import Task, kind_of_task

_PAIR = Task("pair", "pair", ("text", "choice"))


class ChoiceInputs(ClassInputs):
    """One or two texts, and the choices."""

    def encode(self, rows, hf_tokenizer, settings, sentence_predictor, training=False):
        """ChoiceRows of a Dataset. Each choice is encoded as a pair with the text; of two texts, the second one begins
        the choice.
        """
        n, columns = len(self.task.labels), [rows[name][:] for name in self.task.texts]
        first, *begins = columns[:-n]
        begins = [f"{text} " for text in begins[0]] if begins else [""] * len(rows)
        pairs = {"text": [text for text in first for _ in range(n)],
                 "choice": [begin + choice for begin, *choices in zip(begins, *columns[-n:]) for choice in choices],
                 "label": [-1] * n * len(rows)}
        pairs = datasets.Dataset.from_dict(pairs)
        truncated = Settings(max_length=settings.max_length)
        of_pairs = sentence_predictor.encode(_PAIR, pairs, hf_tokenizer, truncated)
        return ChoiceRows(of_pairs, n, rows["label"][:])


class ChoiceHead(Head):
    """An output layer on [CLS] with a score for each choice."""
    keys = ("pooling",)
    output_names = ("score",)
    transformers_class = AutoModelForMultipleChoice

    def loss(self):
        """The mean over the batch of the cross-entropy over the choices of a row."""
        return ChoiceLoss(len(self.task.labels))

    def outputs(self, rows, logits):
        """Probabilities (N, C)."""
        return logits.view(-1, len(self.task.labels)).softmax(-1)

    def why_not_exported(self, settings, family):
        if family != "electra":
            return f"a finetuned {family} model for choices"
        return super().why_not_exported(settings, family)

    def set_head(self, network, weights):
        head = nn.Module()
        head.dense, head.out_proj = network.sequence_summary.summary, network.classifier
        norm = network.base_model.encoder.layer[-1].output.LayerNorm
        copy_output_layer(weights["weight"], weights["bias"], head, norm)

    def exported_logits(self, network, inputs):
        """Each text is the only choice of a row."""
        return super().exported_logits(network, {name: tensor[:, None] for name, tensor in inputs.items()})


class ChoiceMetrics(Metrics):
    """Positions, which are not classes."""
    functions = {"accuracy": Metrics.functions["accuracy"]}


@kind_of_task
class Choices(CustomTask):
    """A task whose rows have one or two texts, C choices, and the right one as label.

    labels: the positions of the choices, as the files spell them.
    """
    kind = "choices"
    inputs_class = ChoiceInputs
    head_class = ChoiceHead
    metrics_class = ChoiceMetrics

    @classmethod
    def load(cls, definition, tables):
        """As `CustomTask.load`. Labels are the positions of the choices from 0 or 1, or letters.

        UserError if 'first_choice' is missing and no label is 0: then the positions may be from 1.
        """
        choices, first, name = definition["choices"] or (), definition["first_choice"], definition["name"]
        if len(choices) < 2:
            raise UserError(f"The task {name!r} needs 'choices': the list of the columns of the choices, at least two.")
        tables = find_labels(tables, definition)
        tables = tables._replace(texts=[*tables.texts, *choices])
        n, found = len(choices), {*labels_by_split(tables.labelled, *tables.labels)["train"].map(without_fraction)}
        if first is None and "0" not in found:
            raise UserError(f"{definition['train']}: no label is 0, the position of the first of {n} choices, but "
                            f"{shortened(sorted(found))}. Set 'first_choice' of the task {name!r} to the label of the "
                            "first choice, such as 'first_choice': 1 (0, 1, 'A' or 'a').")
        spellings = {0: range(n), 1: range(1, n + 1), "A": string.ascii_uppercase, "a": string.ascii_lowercase}
        names = tuple(map(str, spellings[first or 0][:n]))
        task = cls(**common_fields(cls, definition), **tables.fields, labels=names)
        splits, labelled = to_datasets(tables, definition, task, classes_of=lambda labels: labels)
        return task_data(task, splits, labelled, tables.messages, f"{n} choices, labelled {shortened(names)}")


class ChoiceRows(EncodedRows):
    """Encoded pairs of a text and each of its choices. An item is a text: its batch has C rows for each.

    pairs: EncodedRows, C for each text.   labels: the position of the right choice of each text.
    """

    def __init__(self, pairs, n_choices, labels):
        self.pairs, self.n_choices, self.labels = pairs, n_choices, torch.tensor(labels)
        self.flat, self.full_lengths = pairs.flat, pairs.full_lengths
        self.n_examples = len(labels)
        self.lengths = pairs.lengths.reshape(-1, n_choices).max(1)

    def batch(self, rows, multiple=1):
        """(inp_ids, attn_mask, token_type_ids, labels) of these texts: three times (B * C, L), and (B,)."""
        *inputs, _ = self.pairs.batch(self.positions(rows), multiple)
        return *inputs, self.labels[rows]

    def positions(self, rows):
        return (np.array(rows)[:, None] * self.n_choices + np.arange(self.n_choices)).ravel()


class ChoiceLoss(nn.Module):
    """Cross-entropy over the choices of each text."""

    def __init__(self, n_choices):
        super().__init__()
        self.n_choices = n_choices

    def forward(self, scores, labels):
        """scores (B * C,), labels (B,) -> ()."""
        return F.cross_entropy(scores.view(-1, self.n_choices), labels)
