"""GLUE's tasks, their metrics and published results."""
import itertools
from dataclasses import field
from functools import partial
from typing import Annotated, Literal, NamedTuple

import numpy as np
import pandas as pd
from pydantic import ConfigDict, Field, TypeAdapter
from pydantic.dataclasses import dataclass
from scipy.stats import pearsonr, spearmanr
from sklearn.metrics import accuracy_score, f1_score, matthews_corrcoef, r2_score, root_mean_squared_error

from _utils.tasks.questions import QuestionOptions
from _utils.tasks.tagging import as_bioes


def _correlation(function, targets, predictions):
    """A correlation of scipy; 0 where it is undefined because all predictions or all targets are equal."""
    return float(function(targets, predictions).statistic) if np.ptp(predictions) and np.ptp(targets) else 0.


def _r2(targets, predictions):
    """The coefficient of determination; 0 for a single row, for which it is undefined."""
    return r2_score(targets, predictions) if len(targets) > 1 else 0.


METRICS = {"matthews": matthews_corrcoef, "accuracy": accuracy_score, "f1": f1_score,
           "macro_f1": partial(f1_score, average="macro", zero_division=0), "micro_f1": partial(f1_score, average="micro", zero_division=0),
           "pearson": partial(_correlation, pearsonr), "spearman": partial(_correlation, spearmanr),
           "rmse": root_mean_squared_error, "r2": _r2}
# The metrics that exist for each kind of task; by default, own tasks have the first two that apply to their labels, or all four.
METRICS_OF_KIND = {"classification": ("accuracy", "macro_f1", "matthews", "f1"), "regression": ("spearman", "pearson", "rmse", "r2"),
                   "tagging": ("entity_f1", "accuracy", "macro_f1"), "multilabel": ("micro_f1", "macro_f1"),
                   "questions": ("exact", "f1", "best_exact", "best_f1")}


def compute_metrics(task, logits, targets, lengths=None):
    """{metric: value, at most 1} of a dev set, for the metrics of a Task; rmse is in the unit of the scores.

    logits: (N, C), or probabilities, or scores (N,).   targets: as from `targets_of`.
    lengths: words of each sentence, for tagging, where N counts the words.
    GLUE's: Matthews correlation for CoLA, Spearman and Pearson correlation for STS-B, accuracy and F1 of class 1 for MRPC and QQP,
    accuracy otherwise. Google's code computes no F1 (F47). entity_f1 counts whole entities, or chunks, as CoNLL's evaluation does.
    """
    targets, predictions = np.asarray(targets), decide(task, np.asarray(logits))
    options = {"f1": {"pos_label": task.labels.index(task.positive)}} if task.positive else {}
    return {name: _entity_f1(task, predictions, targets, lengths) if name == "entity_f1" else
            float(METRICS[name](targets, predictions, **options.get(name, {}))) for name in task.metrics}


def probabilities_of(task, logits):
    """Probabilities from a tensor of logits; scores as they are."""
    return logits if task.is_regression else logits.sigmoid() if task.is_multilabel else logits.softmax(-1)


def decide(task, outputs):
    """Predictions from an array or tensor of probabilities: class ids, whether each label applies, or scores as they are."""
    return outputs if task.is_regression else outputs >= .5 if task.is_multilabel else outputs.argmax(-1)


def targets_of(task, labels):
    """(class ids or scores (N,), or (N, C) with 1 for each label that applies; words of each sentence for tagging, else None).

    labels: as in a Dataset of the task.
    """
    if task.questions:
        return labels, None
    if task.is_multilabel:
        return np.array([[label in found for label in range(task.n_outputs)] for found in labels], np.float32), None
    return (np.concatenate(labels), list(map(len, labels))) if task.is_tagging else (np.asarray(labels), None)


class Predictions(NamedTuple):
    """labels: of each text its label, score, list of labels, or list of tags.   probabilities: (N, C) of texts or words; None: scores."""
    labels: list
    probabilities: np.ndarray | None


def predictions_of(task, outputs, lengths=None):
    """Predictions from an array of outputs.   lengths: words of each sentence, for tagging, where outputs are those of all words."""
    if task.is_regression:
        return Predictions(outputs.tolist(), None)
    if task.is_multilabel:
        return Predictions([[task.labels[i] for i in np.flatnonzero(row)] for row in decide(task, outputs)], outputs)
    labels = iter([task.labels[label] for label in decide(task, outputs)])
    return Predictions(list(labels) if lengths is None else [list(itertools.islice(labels, length)) for length in lengths], outputs)


def _entity_f1(task, predictions, targets, lengths):
    from seqeval.metrics import f1_score as entity_f1_score  # here, because only tagging needs it
    return float(entity_f1_score(*tags_of(task, lengths, targets, predictions), zero_division=0))


def tags_of(task, lengths, *ids):
    """For each array of ids of all words: the tags of each sentence, in BIOES instead of BILOU. lengths: of the sentences."""
    labels = list(map(as_bioes, task.labels))
    return [[[labels[i] for i in sentence] for sentence in np.split(words, np.cumsum(lengths)[:-1])] for words in ids]


KINDS = tuple(METRICS_OF_KIND)


@dataclass(frozen=True, config=ConfigDict(extra="forbid"))
class Task:
    """A task on one or two texts, the words of a sentence, or questions about texts. GLUE's have the file layout of the GLUE download.

    name: in `tasks` and on the hub.   title: its folder and its name in tables.   texts: columns of its one or two texts on the hub.
    labels: class names on the hub, by id; () for regression.   kind: 'classification', 'regression', 'tagging' (a label for each word),
    'multilabel' (any number of labels for each text), or 'questions' (answers in texts, with the options `questions`).
    outputs: {split of a test set: file of its predictions}.   devs: splits that are evaluated, the first of which ranks the runs.
    score_range: of the predictions of a regression task; None: any number.   scale: (mean, standard deviation) of the training scores, by
    which they are standardized for training; None: as they are.
    file_labels: labels as the files spell them.   file_columns: (texts, label) as the files' headers spell them; each if it differs.
    headerless: columns of training and dev files that have no header.
    metrics: computed on the dev sets; the first one ranks runs.   rows: official sizes of the splits.
    majority: the most frequent training label, or the mean score.   score_titles: (split, line in tables) where it is not the title.
    unordered: the order of a pair carries no meaning, so training uses both orders (F42).
    is_own: a task of the user (own_tasks.py) instead of GLUE's.   class_weights: of the labels in the loss; (): all equal.
    positive: the label whose F1 the metric f1 is; None: the second one.
    spans: the labels in the files are character spans, which are read as tags of the words in a text (spans.py), and predicted.
    """
    name: str
    title: str
    texts: Annotated[tuple[str, ...], Field(min_length=1)]
    labels: tuple[str, ...] = ()
    kind: Literal[KINDS] = "classification"
    outputs: dict[str, str] = field(default_factory=dict, hash=False)
    devs: tuple[str, ...] = ("validation",)
    score_range: tuple[float, float] | None = None
    scale: tuple[float, float] | None = None
    file_labels: tuple[str, ...] = ()
    file_columns: tuple[str, ...] = ()
    headerless: tuple[str, ...] = ()
    metrics: tuple[str, ...] = ("accuracy",)
    rows: tuple[int, ...] = ()
    majority: int | float = 0
    epochs: int = 3
    score_titles: tuple[tuple[str, str], ...] = ()
    unordered: bool = False
    is_own: bool = False
    class_weights: tuple[float, ...] = ()
    positive: str | None = None
    questions: QuestionOptions | None = None
    spans: bool = False

    @property
    def is_regression(self):
        return self.kind == "regression"

    @property
    def is_tagging(self):
        return self.kind == "tagging"

    @property
    def is_multilabel(self):
        return self.kind == "multilabel"

    @property
    def n_outputs(self):
        """Outputs of the model: one logit for each class, or one score."""
        return len(self.labels) or 1

    @property
    def written_labels(self):
        """The labels as the files spell them, by id."""
        return self.file_labels or self.labels

    @property
    def columns_in_files(self):
        """Columns of the texts and of the label in the files, in that order."""
        return self.file_columns or (*self.texts, "label")

    @property
    def official_rows(self):
        """{split: rows} of the official tables of GLUE; AX has only a test set."""
        return dict(zip(("train", *self.devs, *self.outputs) if self.devs else self.outputs, self.rows))

    def file(self, split):
        """The file of a split in the GLUE download."""
        return "diagnostic.tsv" if self.name == "ax" else f"{split.replace('validation', 'dev')}.tsv"

    def title_of(self, split):
        """The line in tables for the scores of a split."""
        return dict(self.score_titles).get(split, self.title)

    def as_record(self):
        """{field: value} of the fields that differ from their defaults, without files; lists instead of tuples, as in JSON."""
        return _TASK.dump_python(self, mode="json", exclude_defaults=True, exclude={"outputs"})


def _task(name, title, texts, labels=(), **fields):
    """A Task of GLUE. The predictions for its test set, if it has only one, are in <title>.tsv."""
    return Task(name, title, texts, labels, **{"outputs": {"test": f"{title}.tsv"}, **fields})


_TASK = TypeAdapter(Task)
_PAIR = ("sentence1", "sentence2")
_IDS = ("0", "1")  # files with ids instead of names
_ENTAILMENT = ("entailment", "not_entailment")
_MNLI_LABELS = ("entailment", "neutral", "contradiction")  # the hub's order; Google's code has another (F48)
GLUE = (
    _task("cola", "CoLA", ("sentence",), ("unacceptable", "acceptable"), file_labels=_IDS,
          headerless=("source", "label", "mark", "sentence"), metrics=("matthews",), rows=(8551, 1043, 1063), majority=1),
    _task("sst2", "SST-2", ("sentence",), ("negative", "positive"), file_labels=_IDS, rows=(67349, 872, 1821), majority=1),
    _task("mrpc", "MRPC", _PAIR, ("not_equivalent", "equivalent"), file_labels=_IDS, file_columns=("#1 String", "#2 String", "Quality"),
          metrics=("accuracy", "f1"), rows=(3668, 408, 1725), majority=1, unordered=True),
    _task("stsb", "STS-B", _PAIR, kind="regression", score_range=(0., 5.), file_columns=(*_PAIR, "score"),
          metrics=("spearman", "pearson"), rows=(5749, 1500, 1379), majority=2.7, epochs=10, unordered=True),
    _task("qqp", "QQP", ("question1", "question2"), ("not_duplicate", "duplicate"), file_labels=_IDS,
          file_columns=("question1", "question2", "is_duplicate"), metrics=("accuracy", "f1"), rows=(363846, 40430, 390965)),
    _task("mnli", "MNLI", ("premise", "hypothesis"), _MNLI_LABELS,
          outputs={"test_matched": "MNLI-m.tsv", "test_mismatched": "MNLI-mm.tsv"}, devs=("validation_matched", "validation_mismatched"),
          file_columns=(*_PAIR, "gold_label"), rows=(392702, 9815, 9832, 9796, 9847),
          score_titles=(("validation_mismatched", "MNLI-mm"),)),
    _task("qnli", "QNLI", ("question", "sentence"), _ENTAILMENT, rows=(104743, 5463, 5463)),
    _task("rte", "RTE", _PAIR, _ENTAILMENT, rows=(2490, 277, 3000), epochs=10),
    _task("wnli", "WNLI", _PAIR, ("not_entailment", "entailment"), file_labels=_IDS, rows=(635, 71, 146),
          score_titles=(("wsc_validation", "WNLI (on WSC)"),)),
    _task("ax", "AX", ("premise", "hypothesis"), _MNLI_LABELS, devs=(), file_columns=(*_PAIR, "label"),
          rows=(1104,)),  # predicted by MNLI's model (F38)
)
TASKS = {task.name: task for task in GLUE}
FINETUNED_TASKS = tuple(task.name for task in GLUE if task.devs)
AVERAGED_TITLES = [TASKS[name].title for name in FINETUNED_TASKS if name != "wnli"]  # whose dev set contradicts its training set


def as_task(task):
    """The Task of a name; a Task is returned unchanged."""
    return TASKS[task] if isinstance(task, str) else task


def task_of(row):
    """The Task of a row of the table of runs, which holds the record of an own task; ValueError if it names or describes no task.

    The row may come from a stranger.
    """
    record = row["settings"].get("own_task")
    task = TASKS.get(row["task"]) if record is None else _TASK.validate_python(record)
    if task is None or task.name != row["task"]:
        raise ValueError(f"unknown task {row['task']!r:.40}")
    return task


# Published dev results in percent (facts.md#published-results): Matthews correlation for CoLA, Spearman correlation for STS-B, accuracy
# otherwise.
PUBLISHED = pd.DataFrame({
    "ELECTRA-Small++ (Google, median)": (57.0, 91.2, 88.0, 87.5, 89.0, 81.3, 88.4, 66.7),
    "ELECTRA-Small-OWT (Google, median)": (56.8, 88.3, 87.4, 86.8, 88.3, 78.9, 87.9, 68.5),
    "ELECTRA-Small-OWT (electra_pytorch, mean of 10)": (58.72, 88.03, 86.04, 86.16, 88.63, 80.4, 87.45, 67.46),
    "  its standard deviation": (1.30, .49, .7, .29, .1, .15, .33, 1.93),
    "ELECTRA-Small-OWT, 17M (lmtuners, median of 5)": (56.3, 88.4, 75.0, 86.1, 89.1, 77.9, 83.0, 67.1),
    "ALECTRA-Small-OWT, 4M (lmtuners, median of 5)": (50.6, 89.1, 86.3, 87.2, 89.1, 78.2, 85.9, 69.6),
}, AVERAGED_TITLES).T
# 14 checkpoints pretrained with different seeds, best of 10 runs by task, averaged over the tasks (electra_pytorch,
# facts.md#published-results).
PUBLISHED_SEEDS = {"mean": 81.38, "std": .57, "max": 82.23, "min": 80.42}
