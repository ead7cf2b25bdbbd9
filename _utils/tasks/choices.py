"""Multiple choice, as in SWAG, RACE and COPA: a text, and which of several others belongs to it (not in the paper)."""
import string
from typing import ClassVar

import datasets
import numpy as np
import pandas as pd
import torch
import torch.nn.functional as F
from sklearn.metrics import accuracy_score
from torch import nn
from transformers import AutoModelForMultipleChoice

from _utils.errors import UserError
from _utils.tasks.base import Task, kind_of_task
from _utils.tasks.custom_tables import columns_of, labels_by_split
from _utils.tasks.heads import copy_output_layer
from _utils.tasks.rows import EncodedRows
from _utils.tasks.tables import as_label, shortened, without_fraction

_PAIR = Task("pair", "pair", ("text", "choice"))


@kind_of_task
class Choices(Task):
    """A task whose rows have a text, C choices, and the right one as label.

    texts: one or two, and the C choices. Each choice is encoded as a pair with the text; of two texts, the second one
    begins the choice.
    labels: the positions of the choices, as the files spell them.
    """
    kind: ClassVar[str] = "choices"
    unused: ClassVar[tuple] = ("positive", "class_weights")
    metric_functions: ClassVar[dict] = {"accuracy": accuracy_score}
    transformers_class: ClassVar = AutoModelForMultipleChoice

    @classmethod
    def columns_of(cls, definition, tables):
        """As `Task.columns_of`, with those of the choices after those of the texts.

        definition["choices"] becomes a list of columns.
        """
        if not definition["choices"]:
            raise UserError(f"The task {definition['name']!r} needs 'choices': the column of lists of the choices, or "
                            "a list of columns.")
        texts, label = columns_of(definition, tables)
        if len(definition["choices"]) == 1:
            definition["choices"] = _divide(tables, *definition["choices"])
        return [*texts, *definition["choices"]], label

    @classmethod
    def labels_of(cls, tables, texts, columns, definition):
        """As `Task.labels_of`.

        A label is a position from 0 or 1, a letter, or the text of a choice, which becomes its position from 0.
        UserError if that is ambiguous.
        """
        [label], choices, notices = columns, definition["choices"], []
        first = definition["first_choice"]
        if first is None:
            first = _reading(tables, label, choices, definition)
        if first == "text":
            notices = ["labels are read as the texts of choices"]
            tables |= {split: _with_positions(table, label, choices) for split, table in tables.items()}
        names = _spellings(len(choices)).get(first) or _spellings(len(choices))[0]
        return label, labels_by_split(tables, label), notices, {"labels": names}

    @classmethod
    def fields_of(cls, definition, labels):
        return {}

    @classmethod
    def text_names(cls, columns):
        return tuple(f"text{i}" for i in range(1, len(columns) + 1))

    def describe(self):
        return f"{len(self.labels)} choices, labelled {shortened(self.labels)}; metrics {', '.join(self.metrics)}"

    def label_notices(self, labelled):
        return []

    @property
    def n_outputs(self):
        """One score for each choice."""
        return 1

    def settings(self, c):
        return {"pooling": c.pooling}

    def encode(self, rows, hf_tokenizer, settings, training=False):
        """ChoiceRows of a Dataset."""
        n, columns = len(self.labels), [rows[name][:] for name in self.texts]
        first, *begins = columns[:-n]
        begins = [f"{text} " for text in begins[0]] if begins else [""] * len(rows)
        pairs = {"text": np.repeat(np.array(first, dtype=object), n).tolist(),
                 "choice": [begin + choice for begin, *choices in zip(begins, *columns[-n:]) for choice in choices],
                 "label": [-1] * n * len(rows)}
        of_pairs = _PAIR.encode(datasets.Dataset.from_dict(pairs), hf_tokenizer, {"max_length": settings["max_length"]})
        return ChoiceRows(of_pairs, n, rows["label"][:])

    def with_texts(self, table):
        """As `Task.with_texts`: if the file has the choices as lists in one column, with a column for each."""
        n = len(self.labels)
        first_choice = self.columns_in_files[-1 - n]
        column = first_choice.removesuffix(" 1")
        is_list = column in table.rows and first_choice not in table.rows
        return _with_items(table, column, n) if is_list else table

    def loss(self):
        """The mean over the batch of the cross-entropy over the choices of a row."""
        return ChoiceLoss(len(self.labels))

    def outputs(self, rows, logits):
        """Probabilities (N, C)."""
        return logits.view(-1, len(self.labels)).softmax(-1)

    @property
    def reports_classes(self):
        """A position is not a class."""
        return False

    def why_not_exported(self, settings, family):
        if family != "electra":
            return f"a finetuned {family} model for choices"
        return super().why_not_exported(settings, family)

    @property
    def output_names(self):
        return ["score"]

    def set_head(self, network, layer):
        head = nn.Module()
        head.dense, head.out_proj = network.sequence_summary.summary, network.classifier
        copy_output_layer(layer, head, network.base_model.encoder.layer[-1].output.LayerNorm)


def _divide(tables, column):
    """Replace a column of lists in {split: Table} by columns for each item; returns their names.

    UserError for other cells.
    """
    n = tables["train"].rows[column].map(lambda cell: len(cell) if isinstance(cell, list) else 0).mode()[0]
    tables |= {split: _with_items(table, column, n) for split, table in tables.items()}
    return _names_of_items(column, n)


def _names_of_items(column, n):
    return [f"{column} {i}" for i in range(1, n + 1)]


def _with_items(table, column, n):
    """The Table with a column for each of the n items of the lists in a column.

    UserError if the column has no such lists.
    """
    lists = table.rows[column]
    is_valid = lists.map(lambda cell: isinstance(cell, list) and len(cell) == n)
    if n < 2 or not is_valid.any():
        raise UserError(f"{table.source}: the column {column!r} has no lists of choices, but for example "
                        f"{lists.iloc[0]!r:.60}. Write lists, or set 'choices' to several columns.")
    problems = {place: f"the column {column!r} contains {cell!r:.60}, which is not a list of {n} choices"
                for place, cell in lists[~is_valid].items()}
    items = {name: lists.where(is_valid).str[i].fillna("") for i, name in enumerate(_names_of_items(column, n))}
    return table._replace(rows=table.rows.assign(**items), problems=problems | table.problems)


def _spellings(n):
    """{label of the first choice: labels of n choices}."""
    positions = {first: tuple(map(str, range(first, first + n))) for first in (0, 1)}
    return positions | {letters[0]: tuple(letters[:n]) for letters in (string.ascii_uppercase, string.ascii_lowercase)}


def _reading(tables, label, choices, definition):
    """The label of the first choice, or "text", by which most labels of the training and dev rows are choices.

    UserError if it is not the only one, unless all of them mean the same.
    """
    rows = pd.concat([table.rows for split, table in tables.items() if split != "test"], ignore_index=True)
    labels = rows[label].map(as_label)
    numbers = labels.map(without_fraction)
    found = {first: numbers.map({name: i for i, name in enumerate(names)})
             for first, names in _spellings(len(choices)).items()}
    found = pd.DataFrame(found | {"text": _positions_of_texts(rows, label, choices)}, dtype=float)
    best = found.columns[found.notna().sum() == found.notna().sum().max()]
    others = [first for first in best if not found[first].equals(found[best[0]])]
    if others and found[best[0]].notna().any():
        readings = [best[0], *others]
        raise UserError(f"{definition['train']}: the labels {shortened(sorted(labels.unique()))} of {len(choices)} "
                        f"choices may be {' or '.join(map(_MEANING.get, readings))}. Set 'first_choice' of the task "
                        f"{definition['name']!r} to {' or '.join(map(repr, readings))}.")
    return best[0]


_MEANING = {0: "positions from 0", 1: "positions from 1", "A": "letters", "a": "letters", "text": "texts of choices"}


def _positions_of_texts(rows, label, choices):
    """The position of the only choice whose text is the label of each row of a DataFrame; NaN if there is none."""
    texts = rows[[*choices, label]].map(as_label)
    are_equal = texts[choices].eq(texts[label], axis=0)
    return are_equal.to_numpy().argmax(1) + pd.Series(0., rows.index).where(are_equal.sum(axis=1) == 1)


def _with_positions(table, label, choices):
    """The Table with the position of the choice that is the label of each row, as a string.

    A test file may have no labels.
    """
    labels, positions = table.rows[label], _positions_of_texts(table.rows, label, choices)
    others = labels[positions.isna() & (labels.map(as_label) != "")]
    problems = {place: f"the column {label!r} contains {cell!r:.60}, which is not exactly one of the choices"
                for place, cell in others.items()}
    rows = table.rows.assign(**{label: labels.where(positions.isna(), positions.map(as_label))})
    return table._replace(rows=rows, problems=problems | table.problems)


class ChoiceRows(EncodedRows):
    """Encoded pairs of a text and each of its choices. An item is a text: its batch has C rows for each.

    pairs: EncodedRows, C for each text.   labels: the position of the right choice of each text.
    """

    def __init__(self, pairs, n_choices, labels):
        self.pairs, self.n_choices, self.labels = pairs, n_choices, torch.tensor(labels)
        self.flat, self.full_lengths, self.n_windows = pairs.flat, pairs.full_lengths, [1] * len(labels)
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
