"""GLUE's tasks, their metrics and published results."""
import math
from dataclasses import dataclass, fields
from functools import partial

import numpy as np
import pandas as pd
from scipy.stats import pearsonr, spearmanr
from seqeval.metrics import f1_score as entity_f1_score
from sklearn.metrics import accuracy_score, f1_score, matthews_corrcoef


def _or_zero(correlation):
    """The correlation function, with 0 where it is undefined because all predictions are equal."""
    def compute(targets, predictions):
        value = correlation(targets, predictions).statistic if np.ptp(predictions) > 0 else 0.
        return value if math.isfinite(value) else 0.
    return compute


METRICS = {"matthews": matthews_corrcoef, "accuracy": accuracy_score, "f1": f1_score,
           "macro_f1": partial(f1_score, average="macro", zero_division=0),
           "pearson": _or_zero(pearsonr), "spearman": _or_zero(spearmanr)}
# The metrics that exist for each kind of task.
METRICS_OF_KIND = {"classification": ("accuracy", "f1", "macro_f1", "matthews"), "regression": ("pearson", "spearman"),
                   "tagging": ("entity_f1", "accuracy", "macro_f1")}


def compute_metrics(task, logits, targets, lengths=None):
    """{metric: value in [-1, 1]} of a dev set, for the metrics of a Task.

    logits: (N, C), or scores (N,).   targets: class ids or scores, (N,).   lengths: words of each sentence, for tagging, where N counts
    the words.
    GLUE's: Matthews correlation for CoLA, Spearman and Pearson correlation for STS-B, accuracy and F1 of class 1 for MRPC and QQP,
    accuracy otherwise. Google's code computes no F1 (F47). entity_f1 counts whole entities, or chunks, as CoNLL's evaluation does.
    """
    targets, predictions = np.asarray(targets), np.asarray(logits) if task.is_regression else np.asarray(logits).argmax(-1)
    return {name: _entity_f1(task, predictions, targets, lengths) if name == "entity_f1" else float(METRICS[name](targets, predictions))
            for name in task.metrics}


def _entity_f1(task, predictions, targets, lengths):
    labels = [{"L-": "E-", "U-": "S-"}.get(label[:2], label[:2]) + label[2:] for label in task.labels]  # seqeval knows BIOES, not BILOU
    tags = lambda ids: [[labels[i] for i in sentence] for sentence in np.split(ids, np.cumsum(lengths)[:-1])]
    return float(entity_f1_score(tags(targets), tags(predictions), zero_division=0))


KINDS = ("classification", "regression", "tagging")


@dataclass(frozen=True)
class TestSet:
    """A test set: its split on the hub, its file in the download, its file in a submission, and its official number of rows.

    key: of an own task's file, the key of the content that was read.
    """
    split: str
    file: str
    tsv: str
    rows: int = 0
    key: str = ""


@dataclass(frozen=True)
class Task:
    """A task on one or two texts, or on the words of a sentence. GLUE's have the file layout of the GLUE download.

    name: in `tasks` and on the hub.   title: its folder and its name in tables.   texts: columns of its one or two texts on the hub.
    labels: class names on the hub, by id; () for regression.   kind: 'classification', 'regression', or 'tagging': a label for each word.
    score_range: of the predictions of a regression task; None: any number.   scale: (mean, standard deviation) of the training scores, by
    which they are standardized for training; None: as they are.
    tests: test sets.   devs: (split, file) of the evaluated sets, the first of which ranks the runs; none for a task that is only
    predicted, with the model of `predicted_by`.
    file_labels: labels as the files spell them.   file_columns: (texts, label) as the files' headers spell them; each if it differs.
    headerless: columns of training and dev files that have no header.   other_folders: alternative names of its folder.
    metrics: computed on the dev sets; the first one ranks runs.   rows: official sizes of the training and dev sets.
    majority: the most frequent training label, or the mean score.
    score_titles: (split, line in tables) where it is not the title.
    unordered: the order of a pair carries no meaning, so training uses both orders (F42).
    is_own: a task of the user (own_tasks.py) instead of GLUE's.
    """
    name: str
    title: str
    texts: tuple
    labels: tuple = ()
    kind: str = "classification"
    score_range: tuple | None = None
    scale: tuple | None = None
    tests: tuple = ()
    devs: tuple = (("validation", "dev.tsv"),)
    file_labels: tuple = ()
    file_columns: tuple = ()
    headerless: tuple = ()
    other_folders: tuple = ()
    metrics: tuple = ("accuracy",)
    rows: tuple = ()
    majority: int | float = 0
    epochs: int = 3
    score_titles: tuple = ()
    unordered: bool = False
    is_own: bool = False
    predicted_by: str = ""

    @property
    def is_regression(self):
        return self.kind == "regression"

    @property
    def is_tagging(self):
        return self.kind == "tagging"

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
    def train_splits(self):
        """Splits that finetuning needs."""
        return ("train", *(split for split, _ in self.devs)) if self.devs else ()

    @property
    def files(self):
        """{split: file} of all splits."""
        train = {"train": "train.tsv"} if self.devs else {}
        return train | dict(self.devs) | {test.split: test.file for test in self.tests}

    @property
    def official_rows(self):
        """{split: rows} of the official tables."""
        return dict(zip(self.train_splits, self.rows)) | {test.split: test.rows for test in self.tests}

    def title_of(self, split):
        """The line in tables for the scores of a split."""
        return dict(self.score_titles).get(split, self.title)

    def as_record(self):
        """{field: value} of the fields that differ from their defaults, without files; lists instead of tuples, as in JSON."""
        as_lists = lambda value: list(map(as_lists, value)) if isinstance(value, tuple) else value
        return {field.name: as_lists(getattr(self, field.name)) for field in fields(self)
                if getattr(self, field.name) != field.default and field.name not in ("tests", "devs")}


_PAIR = ("sentence1", "sentence2")
_ENTAILMENT = ("entailment", "not_entailment")
_MNLI_LABELS = ("entailment", "neutral", "contradiction")  # the hub's order; Google's code has another (F48)


def _test(tsv, rows):
    return (TestSet("test", "test.tsv", tsv, rows),)


GLUE = (
    Task("cola", "CoLA", ("sentence",), ("unacceptable", "acceptable"), tests=_test("CoLA.tsv", 1063), file_labels=("0", "1"),
         headerless=("source", "label", "mark", "sentence"), metrics=("matthews",), rows=(8551, 1043), majority=1),
    Task("sst2", "SST-2", ("sentence",), ("negative", "positive"), tests=_test("SST-2.tsv", 1821), file_labels=("0", "1"),
         rows=(67349, 872), majority=1),
    Task("mrpc", "MRPC", _PAIR, ("not_equivalent", "equivalent"), tests=_test("MRPC.tsv", 1725), file_labels=("0", "1"),
         file_columns=("#1 String", "#2 String", "Quality"), metrics=("accuracy", "f1"), rows=(3668, 408), majority=1, unordered=True),
    Task("stsb", "STS-B", _PAIR, kind="regression", score_range=(0., 5.), tests=_test("STS-B.tsv", 1379),
         file_columns=(*_PAIR, "score"), metrics=("spearman", "pearson"), rows=(5749, 1500), majority=2.7, epochs=10, unordered=True),
    Task("qqp", "QQP", ("question1", "question2"), ("not_duplicate", "duplicate"), tests=_test("QQP.tsv", 390965), file_labels=("0", "1"),
         file_columns=("question1", "question2", "is_duplicate"), metrics=("accuracy", "f1"), rows=(363846, 40430)),
    Task("mnli", "MNLI", ("premise", "hypothesis"), _MNLI_LABELS,
         tests=(TestSet("test_matched", "test_matched.tsv", "MNLI-m.tsv", 9796),
                TestSet("test_mismatched", "test_mismatched.tsv", "MNLI-mm.tsv", 9847)),
         devs=(("validation_matched", "dev_matched.tsv"), ("validation_mismatched", "dev_mismatched.tsv")),
         file_columns=(*_PAIR, "gold_label"), rows=(392702, 9815, 9832), score_titles=(("validation_mismatched", "MNLI-mm"),)),
    Task("qnli", "QNLI", ("question", "sentence"), _ENTAILMENT, tests=_test("QNLI.tsv", 5463), rows=(104743, 5463)),
    Task("rte", "RTE", _PAIR, _ENTAILMENT, tests=_test("RTE.tsv", 3000), rows=(2490, 277), epochs=10),
    Task("wnli", "WNLI", _PAIR, ("not_entailment", "entailment"), tests=_test("WNLI.tsv", 146), file_labels=("0", "1"), rows=(635, 71),
         score_titles=(("wsc_validation", "WNLI (on WSC)"),)),
    Task("ax", "AX", ("premise", "hypothesis"), _MNLI_LABELS, tests=(TestSet("test", "diagnostic.tsv", "AX.tsv", 1104),), devs=(),
         file_columns=(*_PAIR, "label"), other_folders=("diagnostic",), predicted_by="mnli"),  # F38
)
TASKS = {task.name: task for task in GLUE}
FINETUNED_TASKS = tuple(task.name for task in GLUE if task.devs)
AVERAGED_TASKS = tuple(name for name in FINETUNED_TASKS if name != "wnli")  # whose dev set contradicts its training set
AVERAGED_TITLES = [TASKS[name].title for name in AVERAGED_TASKS]


def as_task(task):
    """The Task of a name; a Task is returned unchanged."""
    return TASKS[task] if isinstance(task, str) else task


def task_of(row):
    """The Task of a row of the table of runs, which holds the record of an own task; ValueError if it names no task."""
    record = row["settings"].get("own_task")
    if record is None:
        if row["task"] not in TASKS:
            raise ValueError(f"unknown task {row['task']!r:.40}")
        return TASKS[row["task"]]
    return _task_from_record(row["task"], record)


def _task_from_record(name, record):
    """The Task of `Task.as_record`, from a file that may come from a stranger; ValueError if it does not describe a task."""
    is_record = isinstance(record, dict) and record.get("name") == name and record.get("kind", "classification") in KINDS
    if not is_record or not set(record) <= {field.name for field in fields(Task)}:
        raise ValueError(f"the record of the task {name!r:.40} is not valid")
    as_tuples = lambda value: tuple(map(as_tuples, value)) if isinstance(value, list) else value
    task = Task(**{key: as_tuples(value) for key, value in record.items()})
    lists = (task.texts, task.labels, task.metrics)
    if not all(isinstance(values, tuple) and all(isinstance(value, str) for value in values) for values in lists) or not task.texts:
        raise ValueError(f"the record of the task {name!r:.40} is not valid")
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

# lmtuners' hyperparameters by model family and task, where they differ from the paper's (facts.md#lmtuners).
LMTUNERS_SETTINGS = {
    "albert": {task: {"bs": bs, "epochs": epochs, "lr": lr} for task, bs, epochs, lr in (
        ("cola", 32, 10, 2e-5), ("mnli", 32, 3, 1e-4), ("mrpc", 128, 10, 1e-4), ("qnli", 32, 3, 5e-5), ("qqp", 32, 10, 5e-5),
        ("rte", 32, 5, 1e-4), ("sst2", 16, 3, 5e-5), ("stsb", 16, 3, 1e-4))},
    "others": {"rte": {"lr": 2e-5}},
}
LMTUNERS_FROM_MNLI = ("rte", "stsb")
