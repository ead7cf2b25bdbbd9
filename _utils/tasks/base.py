"""What a kind of task is: the protocol, and its base case, the classification of a sentence or pair.

A kind of task is a subclass of `Task` in a file of its own, listed in kinds.py. It defines what differs:

    parse_texts, parse_labels   cells of a file -> texts and labels of a row
    encode                      rows -> encoded rows (the base case: Finetune_GLUE.ipynb)
    network, loss               what is trained (the base case of the network: Finetune_GLUE.ipynb)
    outputs, decide             logits of the network -> probabilities of each row -> a decision
    score, constant, notice     of a dev or test set: metrics, the best constant prediction, a warning
    write, lines                predictions -> file, predictions -> text for `python -m _utils predict`
    why_not_exported, set_head  weights -> a class of transformers (the base case: exporting.py)

Everything else asks the task, and never for its kind.
"""
import re
from functools import partial
from typing import ClassVar, NamedTuple

import datasets
import numpy as np
import torch
from pydantic import TypeAdapter
from sklearn import metrics as scikit
from torch import nn

from _utils.tasks import custom_tables
from _utils.tasks.description import Description, kind_of_task
from _utils.tasks.exporting import Exporting
from _utils.tasks.rows import MIN_UPDATES, updates
from _utils.tasks.table_files import read_table
from _utils.tasks.tables import are_whole, as_label, numbers_in, shortened, write_rows


class Predictions(NamedTuple):
    """labels: a label, score, labels, or tags for each text.   probabilities: (N, C), or None for scores."""
    labels: list
    probabilities: np.ndarray | None


def base_case(function):
    """Decorator: a function of the notebook is the method of its name of each kind of task that does not define one."""
    setattr(Task, function.__name__, function)
    return function


@kind_of_task
class Task(Exporting, Description):
    """A kind of task, here 'classification': one of several classes of a sentence or pair. Fields: see Description."""
    kind: ClassVar[str] = "classification"
    baseline: ClassVar[str] = "majority"  # what a constant prediction is called
    one_class: ClassVar[bool] = True  # whether the label of a row is one class
    has_label_columns: ClassVar[bool] = False  # whether each label may have a column of 1 or 0
    empty_is_label: ClassVar[bool] = False  # whether an empty list is a label
    unused: ClassVar[tuple] = ()  # keys of the dictionary of a custom task (definition.py) that do not apply
    metric_functions: ClassVar[dict] = {
        "accuracy": scikit.accuracy_score, "macro_f1": partial(scikit.f1_score, average="macro", zero_division=0),
        "matthews": scikit.matthews_corrcoef, "f1": scikit.f1_score}

    @property
    def n_outputs(self):
        """Outputs of the network: one logit for each class."""
        return len(self.labels)

    def as_data(self):
        """{field: value} of a custom task that are not defaults, without files, as JSON; None for GLUE's tasks."""
        if not self.is_own:
            return None
        fields = TypeAdapter(type(self)).dump_python(self, mode="json", exclude_defaults=True, exclude=self.unsaved)
        return fields | {"kind": self.kind}

    # Tables

    text_feature: ClassVar = datasets.Value("string")
    label_feature: ClassVar = datasets.Value("int64")
    read_file: ClassVar = staticmethod(read_table)

    # (kind, definition, {split: what read_file returns}, reason for the kind) -> TaskData of a custom task
    from_files = classmethod(custom_tables.load)
    # (definition, {split: Table}) -> (columns of the texts, columns of the labels)
    columns_of = staticmethod(custom_tables.columns_of)

    @classmethod
    def labels_of(cls, tables, texts, columns, definition):
        """(column of the labels, {split: Series of all its labels as strings}, [notices], {more fields of the Task}).

        Replaces the tables whose labels have to be converted. tables: {split: Table}.   columns: of the labels.
        """
        return columns[0], custom_tables.labels_by_split(tables, columns[0]), [], {}

    @classmethod
    def fields_of(cls, definition, labels):
        """{field: value} that follow from labels, {split: Series of strings}. UserError for those that do not fit."""
        names = custom_tables.class_names(labels["train"], definition)
        custom_tables.check_share_of_classes(labels["train"], names, definition)
        return custom_tables.class_fields(definition, names)

    # (definition, training rows) -> the Task with what follows from them; (their labels) -> weights of the classes
    fitted, balanced_weights = custom_tables.fitted, custom_tables.balanced_weights

    @classmethod
    def applicable_metrics(cls, labels):
        """Names of the metrics that can be computed for these labels."""
        return [name for name in cls.metric_functions if name != "f1" or len(labels) == 2]

    @classmethod
    def default_metrics(cls, applicable):
        """The metrics of a custom task that names none."""
        return applicable[:2]

    @classmethod
    def text_names(cls, columns):
        """`texts` of a custom task. columns: of the texts in its files."""
        return ("text1", "text2") if len(columns) == 2 else ("text",)

    def with_test_labels(self, labels):
        """(the Task to score the test file with, [notices]). labels: Series of strings."""
        return self, []

    def parse_texts(self, cells):
        """The texts of a column of cells; a Series with NaN for malformed ones."""
        return cells.where(cells.map(lambda cell: isinstance(cell, str)))

    @property
    def text_format(self):
        return "a text"

    def parse_labels(self, cells):
        """The labels of a column of cells as a Dataset has them; a Series with NaN for malformed ones."""
        return cells.map(as_label).map(self.label_ids)

    @property
    def label_format(self):
        return f"one of {shortened(self.written_labels)}"

    @property
    def label_ids(self):
        """{label: id}, in all spellings."""
        of_pandas = [f"{label}.0" for label in self.labels] if are_whole(self.labels) else []
        return {label: i for labels in (self.labels, self.written_labels, of_pandas) for i, label in enumerate(labels)}

    def unlabelled(self, rows):
        """Labels for the rows of a test set without labels."""
        return [-1] * len(rows)

    def mismatches(self, rows):
        """{place: message} of rows whose text and label do not fit together."""
        return {}

    def strata(self, labels):
        """The class of each row, of which a dev set gets its share. labels: of a Dataset."""
        return labels if self.one_class else [0] * len(labels)

    def describe(self):
        """The labels and metrics of a custom task, as text."""
        return f"{len(self.labels)} labels; metrics {', '.join(self.metrics)}{self.hints()}"

    def hints(self):
        """Keys that change what `describe` says, as text."""
        if not self.one_class:
            return ""
        text = ""
        if "f1" in self.metrics:
            text += f" (f1 of {self.positive or self.labels[1]!r}; 'positive' selects the label)"
        if numbers_in(self.labels).notna().all():
            text += " (set 'kind': 'regression' to predict numbers)"
        return text

    def label_notices(self, labelled):
        """Messages about the labels of {split: Dataset}."""
        return custom_tables.label_counts(labelled, self.labels)

    # Training

    @classmethod
    def default_length(cls, recipe):
        """Maximum tokens of a row for a checkpoint of pretrain.py."""
        return recipe.glue_length

    def default_epochs(self, n_rows, settings):
        """Epochs with n_rows training rows; a custom task has at least MIN_UPDATES. settings: as for `updates`."""
        if not self.is_own:
            return self.epochs
        return max(self.epochs, -(-MIN_UPDATES // updates(n_rows, settings | {"epochs": 1})))

    def settings(self, c):
        """{name: value} of the configuration's keys that apply to this kind of task only."""
        return {"double_unordered": c.double_unordered and self.unordered, "pooling": c.pooling,
                "window_stride": c.window_stride}

    def check_pretrained(self, pretrained):
        """UserError if the network of this task cannot be built on the Pretrained."""

    def sample(self, rows, n=1000):
        """The texts of the first n rows of a Dataset."""
        columns = rows[:n]
        return [text for name in self.texts for text in columns[name]]

    def encode(self, rows, hf_tokenizer, settings, training=False):
        """EncodedRows of a Dataset. settings: of a run."""
        raise NotImplementedError("Import finetune, which defines the base case of encode.")

    def network(self, pretrained, settings):
        """A module with an encoder `base_model`. pretrained: has encoder(), discriminator().   settings: of a run."""
        raise NotImplementedError("Import finetune, which defines the base case of network.")

    def loss_targets(self, labels):
        """What the loss compares with the logits: an array of the labels of a Dataset, (N, ...)."""
        return self.targets(labels)

    def loss(self):
        """The loss, a module: the mean over the batch of the cross-entropy (D9)."""
        return nn.CrossEntropyLoss(self.loss_weight())

    def loss_weight(self):
        """(C,) weights of the classes, or None."""
        return torch.tensor(self.class_weights) if self.class_weights else None

    def in_units(self, outputs):
        """Outputs of a network in training in the unit of the labels."""
        return outputs

    def finish(self, network):
        """Called after training, so that the network's outputs are in the unit of the labels."""

    # Predictions

    def probabilities(self, logits):
        """Probabilities from a tensor of logits; scores as they are."""
        return logits.softmax(-1)

    def outputs(self, rows, logits):
        """Probabilities (N, C) or scores (N,) of EncodedRows from their logits; of a text's windows, the mean."""
        return rows.mean(self.probabilities(logits))

    def average(self, outputs):
        """The outputs of an ensemble, from a list of those of each run."""
        return sum(outputs) / len(outputs)

    def decide(self, outputs):
        """Predictions from an array or tensor of probabilities: class ids (N,)."""
        return outputs.argmax(-1)

    def named(self, decisions):
        """The label of each decision."""
        return [self.labels[label] for label in decisions]

    def predictions(self, outputs, rows):
        """Predictions from an array of outputs. rows: Dataset of the texts."""
        return Predictions(self.named(self.decide(outputs)), outputs)

    def labels_of_texts(self, texts, labels):
        """The predicted labels of texts as `load(...).predict` returns them."""
        return labels

    # Scores

    def targets(self, labels):
        """The labels of a Dataset as an array that is compared with decisions."""
        return np.asarray(labels)

    def score(self, outputs, labels):
        """{metric: value, at most 1} of a dev or test set.

        outputs: as from `outputs`, or logits.   labels: of the Dataset.
        GLUE's: Matthews correlation for CoLA, Spearman and Pearson correlation for STS-B, accuracy and F1 of class 1
        for MRPC and QQP, accuracy otherwise. Google's code computes no F1 (F47).
        """
        decisions, targets = self.decide(np.asarray(outputs)), self.targets(labels)
        return {name: float(self.metric(name, targets, decisions, labels)) for name in self.metrics}

    def metric(self, name, targets, decisions, labels):
        options = {"pos_label": self.labels.index(self.positive)} if name == "f1" and self.positive else {}
        return self.metric_functions[name](targets, decisions, **options)

    def constant(self, labels):
        """Outputs of the best constant prediction for all rows: the most frequent label of the set."""
        targets = self.targets(labels)
        return np.tile(np.bincount(targets, minlength=len(self.labels)), (len(targets), 1))

    def notice(self, outputs, labels):
        """A warning about a network that predicts one label for all rows, or None."""
        decisions = self.decide(outputs)
        [first] = self.named(decisions[:1])
        return f"it predicts {first!r} for all rows" if len(np.unique(decisions, axis=0)) == 1 else None

    def classes(self, outputs, labels):
        """{label: [precision, recall, F1, rows]}."""
        ids = self.targets(labels), self.decide(outputs)
        columns = scikit.precision_recall_fscore_support(*ids, labels=range(len(self.labels)), zero_division=0)
        return dict(zip(self.labels, np.transpose(columns).tolist()))

    @property
    def reports_classes(self):
        """Whether the report of a group has the scores of the classes. GLUE's tasks are compared by metrics only."""
        return self.is_own

    def confusion(self, outputs, labels):
        """Rows of each label (lines) by prediction (columns); [] if rows do not have one class each."""
        if not self.one_class:
            return []
        ids = self.targets(labels), self.decide(outputs)
        return scikit.confusion_matrix(*ids, labels=range(len(self.labels))).tolist()

    def evaluation(self, outputs, labels):
        """What a run stores about a dev or test set; arguments as for `score`.

        {"scores", "baselines": {metric: value}, "notices": text or None, "classes", "confusion": as from the methods}.
        """
        outputs = np.asarray(outputs)
        return {"scores": self.score(outputs, labels), "baselines": self.score(self.constant(labels), labels),
                "notices": self.notice(outputs, labels), "classes": self.classes(outputs, labels),
                "confusion": self.confusion(outputs, labels)}

    def of_runs(self, records):
        """The Task with what these runs determined; of several, with the mean."""
        return self

    def remark(self):
        """What decides beside the network, as text for the results of a run, or None."""

    # Files of predictions

    suffix: ClassVar[str] = ".tsv"

    def written(self, decisions):
        """Decisions as strings of a file."""
        return [self.written_labels[int(label)] for label in decisions]

    def write(self, path, rows, decisions):
        """Write the predictions for a test set: a line with the index and the prediction of each row.

        rows: Dataset of the test set.   decisions: from `decide`.
        """
        write_rows(path, self.written(decisions))

    @property
    def accepted(self):
        """The predictions that the GLUE server accepts, as text."""
        return ", ".join(self.written_labels)

    def accepts(self, prediction):
        """Whether a string in a file of predictions is one."""
        return prediction in self.written_labels

    # The command `predict`

    def check_predictable(self, checkpoint):
        """UserError if `predict` cannot read texts for this kind of task."""

    def with_texts(self, table):
        """The Table of a file for `predict` with the columns of the texts as training had them."""
        return table

    def header(self, columns):
        """The first line of the output of `predict`, or None. columns: of the texts."""
        return "\t".join([*self.output_columns, *columns])

    def lines(self, texts, predictions):
        """A line for each row of the DataFrame of texts: score, or label and all probabilities, and the texts."""
        for i, row in enumerate(texts.to_numpy()):
            yield "\t".join([*self.output_cells(predictions, i), *(re.sub(r"\s", " ", str(text)) for text in row)])

    @property
    def output_columns(self):
        return ["label", *(f"P({label})" for label in self.labels)]

    def output_cells(self, predictions, i):
        """The cells of row i before its texts."""
        return [predictions.labels[i], *(f"{probability:.4f}" for probability in predictions.probabilities[i])]
