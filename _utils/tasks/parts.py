"""The four parts of a task, here those of GLUE's classification of a sentence or pair.

    Inputs            cells of tables -> texts and labels -> encoded rows
    Head              the network, its loss, its outputs for each row, and the class of transformers that computes them
    Metrics           outputs -> decisions, scores, a baseline, a warning
    PredictionFiles   decisions -> files for the GLUE server, outputs -> predictions for people

Another kind of task subclasses the parts in which it differs. Everything else asks the parts, never for the kind.
"""
from collections.abc import Callable
from typing import Any, NamedTuple

import datasets
import numpy as np
from sklearn import metrics as scikit
from torch import nn
from transformers import AutoModelForSequenceClassification

from _utils.files import write_text_atomically
from _utils.tasks.predictor import copy_output_layer, head_options
from _utils.tasks.tables import as_label, in_cell, shortened, text_of_predictions
from _utils.text.exported_tokenizer import exported_tokenizer


class Column(NamedTuple):
    """The content of a column.

    parse: a Series of cells -> a Series of values, NaN for malformed cells.   accepted: description of valid cells.
    feature: type of the column in a Dataset.
    """
    parse: Callable
    accepted: str
    feature: Any


class Predictions(NamedTuple):
    """Predictions for texts.

    labels: a label, score, list of labels, of tags or of spans for each text.   probabilities: (N, C); None for scores.
    """
    labels: list
    probabilities: np.ndarray | None


class Part:
    """A part of a Task."""

    def __init__(self, task):
        self.task = task


class Inputs(Part):
    """Texts and classes.

    unlabelled: the label of rows of a test set without labels.
    """
    unlabelled = -1

    @property
    def text_column(self):
        """The Column of a text."""
        return Column(lambda cells: cells.where(cells.map(lambda cell: isinstance(cell, str))), "a text",
                      datasets.Value("string"))

    @property
    def label_column(self):
        """The Column of the label, the id of its class."""
        return Column(lambda cells: cells.map(as_label).map(self.label_ids),
                      f"one of {shortened(self.task.written_labels)}", datasets.Value("int64"))

    @property
    def label_ids(self):
        """{label: id}, in the spellings of the hub and of the files."""
        return {label: i for labels in (self.task.labels, self.task.written_labels) for i, label in enumerate(labels)}

    def in_rows(self, table):
        """A Table to predict with a text, or pair, in each row."""
        return table

    def texts_in(self, rows):
        """All texts of a Dataset, for warnings about them."""
        return [text for name in self.task.texts for text in rows[name]]

    def encode(self, rows, hf_tokenizer, settings, sentence_predictor, training=False):
        """EncodedRows of a Dataset. settings: of a run.   sentence_predictor: SentencePredictor of Finetune_GLUE.ipynb.
        """
        return sentence_predictor.encode(self.task, rows, hf_tokenizer, settings, training)


class Head(Part):
    """An output layer on [CLS] with a logit for each class.

    keys: configuration keys that apply to this kind of task, but not to all.   network_class: None for
    SentencePredictor of Finetune_GLUE.ipynb.   transformers_class, problem_type: of the exported network.
    """
    keys = ("pooling", "window_stride")
    network_class = None
    transformers_class = AutoModelForSequenceClassification
    problem_type = None

    @property
    def output_names(self):
        """Names of the outputs of the network."""
        return self.task.labels

    def network(self, pretrained, settings, sentence_predictor):
        """The network to finetune, a module with an encoder `base_model`.

        pretrained: has encoder() and discriminator().   settings: of a run.
        """
        encoder, network_class = pretrained.encoder(), self.network_class or sentence_predictor
        options = head_options(settings, self.keys)
        return network_class(encoder, encoder.config.hidden_size, len(self.output_names), **options)

    def loss(self):
        """The loss as a module: the cross-entropy, averaged over the batch (D9)."""
        return nn.CrossEntropyLoss()

    def outputs(self, rows, logits):
        """Probabilities (N, C) or scores (N,) of EncodedRows from their logits, averaged over the windows of a text."""
        return rows.mean(logits.softmax(-1))

    def why_not_exported(self, settings, family):
        """Description of a head for which transformers has no class, or None.

        settings: of a run.   family: of the encoder.
        """
        if settings.pooling != "first":
            return f"pooling={settings.pooling}"
        # The heads of these two families are a layer, GELU and a layer, on the first token.
        return None if family in ("electra", "roformer") else f"a finetuned {family} model"

    def set_head(self, network, weights):
        """Set the head of a `transformers_class` so that it computes the output layer.

        weights: those of `classifier`, by name.
        """
        norm = network.base_model.encoder.layer[-1].output.LayerNorm
        copy_output_layer(weights["weight"], weights["bias"], network.classifier, norm)

    def exported_logits(self, network, inputs):
        """The logits of the output layer, computed by the exported network. inputs: {name: (B, L)} of texts."""
        return network(**inputs).logits

    def exported(self, hf_tokenizer, settings):
        """(tokenizer, {key: value} of config.json) of the exported model.

        The tokenizer truncates where training did.
        """
        # also None, which replaces the stride of an earlier task, from whose export the encoder may come
        return exported_tokenizer(hf_tokenizer, settings.max_length), {"window_stride": settings.window_stride}


class Metrics(Part):
    """Decisions on classes, and their scores.

    baseline: name of the constant prediction.   functions: {metric: (targets, decisions) -> value}. Google's code
    computes no F1 (F47).
    default_metrics: of a task that names none.   errors: metrics in the unit of the labels. Less is better, so they
    cannot rank runs.
    """
    baseline = "majority"
    functions = {"accuracy": scikit.accuracy_score, "matthews": scikit.matthews_corrcoef, "f1": scikit.f1_score}
    default_metrics = ("accuracy",)
    errors = frozenset()

    def decide(self, outputs):
        """Class ids (N,) from an array or tensor of probabilities (N, C)."""
        return outputs.argmax(-1)

    def average(self, outputs):
        """The outputs of an ensemble. outputs: a list of those of each run."""
        return sum(outputs) / len(outputs)

    def targets(self, labels):
        """The labels of a Dataset as an array to compare with decisions."""
        return np.asarray(labels)

    def score(self, outputs, labels):
        """{metric: value} of a dev or test set.

        outputs: as from `Head.outputs`, or logits.   labels: of the Dataset.
        """
        ids = self.targets(labels), self.decide(np.asarray(outputs))
        return {name: float(self.metric(name, *ids, labels)) for name in self.task.metrics}

    def metric(self, name, targets, decisions, labels):
        """The value of a metric. labels: of the Dataset."""
        return self.functions[name](targets, decisions)

    def constant(self, labels):
        """Outputs that predict the most frequent label of the set for all rows."""
        targets = self.targets(labels)
        return np.tile(np.bincount(targets, minlength=len(self.task.labels)), (len(targets), 1))

    def warning(self, outputs, labels):
        """A warning if one label is predicted for all rows, or None."""
        first, *others = self.task.prediction_files.named(np.unique(self.decide(outputs), axis=0))
        return None if others else f"it predicts {first!r} for all rows"

    def evaluate(self, outputs, labels):
        """The entries of a run's record about a dev or test set. Arguments as for `score`.

        {"scores", "baselines": {metric: value}, "notices": a warning or None}.
        """
        outputs = np.asarray(outputs)
        return {"scores": self.score(outputs, labels), "baselines": self.score(self.constant(labels), labels),
                "notices": self.warning(outputs, labels)}


class PredictionFiles(Part):
    """A class for each text."""

    def named(self, decisions):
        """The label of each decision."""
        return [self.task.labels[label] for label in decisions]

    def written(self, decisions):
        """Decisions as strings for a file."""
        return [self.task.written_labels[int(label)] for label in decisions]

    def write(self, path, rows, decisions):
        """Write the index and the prediction of each row of a test set.

        rows: Dataset of the test set.   decisions: from `Metrics.decide`.
        """
        write_text_atomically(path, text_of_predictions(self.written(decisions)))

    def accepts(self, prediction):
        """Whether the GLUE server accepts a string as a prediction."""
        return prediction in self.task.written_labels

    def predictions(self, outputs, rows):
        """Predictions from an array of outputs. rows: Dataset of the texts."""
        return Predictions(self.named(self.task.scores.decide(outputs)), outputs)

    def lines(self, texts, predictions):
        """(header or None, lines) that `python -m _utils predict` prints for a DataFrame of texts.

        A line has the label and all probabilities, or the score, and the texts.
        """
        columns = ["label", *(f"P({label})" for label in self.task.labels)]
        cells = ([label, *(f"{p:.4f}" for p in of_row)]
                 for label, of_row in zip(predictions.labels, predictions.probabilities))
        return with_texts(columns, cells, texts)


def with_texts(columns, cells, texts):
    """(header, lines) of the tab-separated cells of each row, followed by its texts."""
    rows = ([*of_row, *row] for of_row, row in zip(cells, texts.to_numpy()))
    header, *lines = ["\t".join(map(in_cell, row)) for row in ([*columns, *texts], *rows)]
    return header, lines
