"""The nine tasks of GLUE and its diagnostic set AX: columns, labels, files, metrics and what the papers published."""
from dataclasses import dataclass


@dataclass(frozen=True)
class TestSet:
    """A test set: its split on the hub, its file in the download, its file in a submission, and its number of rows."""
    split: str
    file: str
    tsv: str
    rows: int


@dataclass(frozen=True)
class Task:
    """One task.

    name: on the hub.   title: the folder of the official download.   texts: columns of its one or two texts, as on the hub.
    labels: their names on the hub, by number; () where the label is a score from 0 to 5.   written: the same in the files.
    file_columns: names of (texts, label) in the header of the files, where they differ from the hub's.
    headerless: columns of training and dev files without a header.   rows: of the official training set and dev sets.
    metrics: measured on the dev sets, the one to compare runs by first.   majority: label of the most training rows (score: mean).
    """
    name: str
    title: str
    texts: tuple
    labels: tuple
    written: tuple
    tests: tuple
    rows: tuple
    majority: int | float
    metrics: tuple = ("accuracy",)
    devs: tuple = (("validation", "dev.tsv"),)
    file_columns: tuple = ()
    headerless: tuple = ()
    epochs: int = 3
    unordered: bool = False  # its pairs have no order, so its training set is doubled with the two texts swapped (F42)

    @property
    def is_regression(self):
        return not self.labels

    @property
    def columns_in_files(self):
        """Names of the texts and of the label in the files, in that order."""
        return self.file_columns or (*self.texts, "label")


def _tests(tsv, rows):
    return (TestSet("test", "test.tsv", tsv, rows),)


_ENTAILMENT = ("entailment", "not_entailment")
_MNLI_LABELS = ("entailment", "neutral", "contradiction")  # the hub's order; Google's code has another (F48)

TASKS = {task.name: task for task in (
    Task("cola", "CoLA", ("sentence",), ("unacceptable", "acceptable"), ("0", "1"), _tests("CoLA.tsv", 1063), (8551, 1043), 1,
         metrics=("matthews",), headerless=("source", "label", "mark", "sentence")),
    Task("sst2", "SST-2", ("sentence",), ("negative", "positive"), ("0", "1"), _tests("SST-2.tsv", 1821), (67349, 872), 1),
    Task("mrpc", "MRPC", ("sentence1", "sentence2"), ("not_equivalent", "equivalent"), ("0", "1"), _tests("MRPC.tsv", 1725),
         (3668, 408), 1, metrics=("accuracy", "f1"), file_columns=("#1 String", "#2 String", "Quality"), unordered=True),
    Task("stsb", "STS-B", ("sentence1", "sentence2"), (), (), _tests("STS-B.tsv", 1379), (5749, 1500), 2.7,
         metrics=("spearman", "pearson"), file_columns=("sentence1", "sentence2", "score"), epochs=10, unordered=True),
    Task("qqp", "QQP", ("question1", "question2"), ("not_duplicate", "duplicate"), ("0", "1"), _tests("QQP.tsv", 390965),
         (363846, 40430), 0, metrics=("accuracy", "f1"), file_columns=("question1", "question2", "is_duplicate")),
    Task("mnli", "MNLI", ("premise", "hypothesis"), _MNLI_LABELS, _MNLI_LABELS,
         (TestSet("test_matched", "test_matched.tsv", "MNLI-m.tsv", 9796),
          TestSet("test_mismatched", "test_mismatched.tsv", "MNLI-mm.tsv", 9847)), (392702, 9815, 9832), 0,
         devs=(("validation_matched", "dev_matched.tsv"), ("validation_mismatched", "dev_mismatched.tsv")),
         file_columns=("sentence1", "sentence2", "gold_label")),
    Task("qnli", "QNLI", ("question", "sentence"), _ENTAILMENT, _ENTAILMENT, _tests("QNLI.tsv", 5463), (104743, 5463), 0),
    Task("rte", "RTE", ("sentence1", "sentence2"), _ENTAILMENT, _ENTAILMENT, _tests("RTE.tsv", 3000), (2490, 277), 0, epochs=10),
    Task("wnli", "WNLI", ("sentence1", "sentence2"), ("not_entailment", "entailment"), ("0", "1"), _tests("WNLI.tsv", 146),
         (635, 71), 0),
    # Only a test set, predicted with the model of MNLI (F38).
    Task("ax", "AX", ("premise", "hypothesis"), _MNLI_LABELS, _MNLI_LABELS, (TestSet("test", "diagnostic.tsv", "AX.tsv", 1104),),
         (), 0, devs=(), file_columns=("sentence1", "sentence2", "label")),
)}
FINETUNED_TASKS = tuple(name for name in TASKS if name != "ax")
# The papers' mean is over eight tasks: WNLI's dev set contradicts its training set.
AVERAGED_TASKS = tuple(name for name in FINETUNED_TASKS if name != "wnli")

# Published results on the dev sets, in percent (facts.md#published-results): Matthews for CoLA, Spearman for STS-B, accuracy elsewhere.
PUBLISHED = {
    "ELECTRA-Small++ (Google, median)": dict(cola=57.0, sst2=91.2, mrpc=88.0, stsb=87.5, qqp=89.0, mnli=81.3, qnli=88.4, rte=66.7),
    "ELECTRA-Small-OWT (Google, median)": dict(cola=56.8, sst2=88.3, mrpc=87.4, stsb=86.8, qqp=88.3, mnli=78.9, qnli=87.9, rte=68.5),
    "ELECTRA-Small-OWT (electra_pytorch, mean of 10)":
        dict(cola=58.72, sst2=88.03, mrpc=86.04, stsb=86.16, qqp=88.63, mnli=80.4, qnli=87.45, rte=67.46),
    "  its standard deviation": dict(cola=1.30, sst2=.49, mrpc=.7, stsb=.29, qqp=.1, mnli=.15, qnli=.33, rte=1.93),
    "ELECTRA-Small-OWT, 17M (lmtuners, median of 5)":
        dict(cola=56.3, sst2=88.4, mrpc=75.0, stsb=86.1, qqp=89.1, mnli=77.9, qnli=83.0, rte=67.1),
    "ALECTRA-Small-OWT, 4M (lmtuners, median of 5)":
        dict(cola=50.6, sst2=89.1, mrpc=86.3, stsb=87.2, qqp=89.1, mnli=78.2, qnli=85.9, rte=69.6),
}
# 14 models pretrained with different seeds, the best of 10 runs by task (electra_pytorch, facts.md#published-results): mean over the tasks.
PUBLISHED_SEEDS = {"mean": 81.38, "std": .57, "max": 82.23, "min": 80.42}

# lmtuners' settings by task (facts.md#lmtuners): of its ALECTRA, and of its ELECTRA where they are not the paper's.
LMTUNERS_SETTINGS = {
    "albert": {task: {"bs": bs, "epochs": epochs, "lr": lr} for task, bs, epochs, lr in (
        ("cola", 32, 10, 2e-5), ("mnli", 32, 3, 1e-4), ("mrpc", 128, 10, 1e-4), ("qnli", 32, 3, 5e-5), ("qqp", 32, 10, 5e-5),
        ("rte", 32, 5, 1e-4), ("sst2", 16, 3, 5e-5), ("stsb", 16, 3, 1e-4))},
    "others": {"rte": {"lr": 2e-5}},
}
