"""GLUE's tasks, their tables from the hub or from the official download, and published results.

Both sources give the same rows.
"""
from pathlib import Path

import pandas as pd

from _utils.errors import as_user_error
from _utils.hub import load_split
from _utils.tasks.regression import Regression
from _utils.tasks.tables import Table, TaskData, check_columns, is_test, read_tsv, to_dataset
from _utils.tasks.task import Task
from _utils.tasks.task_names import GLUE_TEST_FILES

HUB_GLUE = "nyu-mll/glue"


def _task(name, title, texts, labels=(), **fields):
    """A Task of GLUE, or another one in its layout. Its name has to be in GLUE_TASKS for the key `tasks`."""
    kind = Regression if fields.get("score_range") else Task
    usual = {"test_files": GLUE_TEST_FILES.get(name, {"test": f"{title}.tsv"}), "hub": (HUB_GLUE, name)}
    return kind(name, title, texts, labels, **usual | fields)


_PAIR = ("sentence1", "sentence2")
_IDS = ("0", "1")  # files with ids instead of names
_ENTAILMENT = ("entailment", "not_entailment")
GLUE = (
    _task(
        "cola",
        "CoLA",
        ("sentence",),
        ("unacceptable", "acceptable"),
        file_labels=_IDS,
        headerless=("source", "label", "mark", "sentence"),
        metrics=("matthews",),
        rows=(8551, 1043, 1063),
        majority=1,
    ),
    _task(
        "sst2", "SST-2", ("sentence",), ("negative", "positive"), file_labels=_IDS, rows=(67349, 872, 1821), majority=1
    ),
    _task(
        "mrpc",
        "MRPC",
        _PAIR,
        ("not_equivalent", "equivalent"),
        file_labels=_IDS,
        file_columns=("#1 String", "#2 String", "Quality"),
        metrics=("accuracy", "f1"),
        rows=(3668, 408, 1725),
        majority=1,
        unordered=True,
    ),
    _task(
        "stsb",
        "STS-B",
        _PAIR,
        score_range=(0.0, 5.0),
        file_columns=(*_PAIR, "score"),
        metrics=("spearman", "pearson"),
        rows=(5749, 1500, 1379),
        majority=2.7,
        epochs=10,
        unordered=True,
        google=(("scale", (0., 5.)),),  # F45
    ),
    _task(
        "qqp",
        "QQP",
        ("question1", "question2"),
        ("not_duplicate", "duplicate"),
        file_labels=_IDS,
        file_columns=("question1", "question2", "is_duplicate"),
        metrics=("accuracy", "f1"),
        rows=(363846, 40430, 390965),
    ),
    _task(
        "mnli",
        "MNLI",
        ("premise", "hypothesis"),
        ("entailment", "neutral", "contradiction"),  # the hub's order; Google's code has another (F48)
        devs=("validation_matched", "validation_mismatched"),
        file_columns=(*_PAIR, "gold_label"),
        rows=(392702, 9815, 9832, 9796, 9847, 1104),
        score_titles=(("validation_mismatched", "MNLI-mm"),),
    ),
    _task("qnli", "QNLI", ("question", "sentence"), _ENTAILMENT, rows=(104743, 5463, 5463)),
    _task("rte", "RTE", _PAIR, _ENTAILMENT, rows=(2490, 277, 3000), epochs=10),
    _task("wnli", "WNLI", _PAIR, ("not_entailment", "entailment"), file_labels=_IDS, rows=(635, 71, 146)),
)
TASKS = {task.name: task for task in GLUE}


def as_task(task):
    """The Task of a name; a Task is returned unchanged."""
    return TASKS[task] if isinstance(task, str) else task


def load_task(task, glue_dir=None, splits=None):
    """TaskData of a Task or its name; glue_dir=None reads the hub. splits: names of the splits to read, None: all.

    Raises UserError if the hub cannot be read, for a file with other content than its name promises, and for too many
    malformed rows (MAX_BAD_ROWS), with file and line.
    """
    task = as_task(task)
    data = TaskData(task, {}, {}, [])
    for split in splits or task.splits:
        names = task.texts if is_test(split) else (*task.texts, "label")
        if glue_dir is None:
            table, columns = _read_hub(task, split), names
        else:
            official = Path(glue_dir, task.file(split))
            # another name of AX's folder
            path = next(filter(Path.is_file, (official, Path(glue_dir, "diagnostic", official.name))), None)
            if path is None:
                data.missing[split] = f"{official.name} not found in {official.parent}"
                continue
            table, columns = read_tsv(path, () if is_test(split) else task.headerless), task.columns_in_files
        columns = dict(zip(names, columns))
        check_columns(table, columns.values(), "Use the official download.")
        data.splits[split] = to_dataset(
            table, columns, task, split, data.messages, "Correct the file, or download it again"
        )
    return data


def _read_hub(task, split):
    """Table of a split on the hub."""
    dataset, name = task.hub
    with as_user_error(f"Could not load {task.title} from the hub dataset {dataset} ({{error}}). Check the "
                       "connection and rerun, or set glue_dir=PATH to a GLUE download, or try it without one: "
                       "python finetune.py quickstart=True"):
        name, split = ("ax", "test") if split == "test_ax" else (name, split)
        on_hub = load_split(dataset, name, split)
    rows = on_hub.to_pandas().rename("row {}".format)
    if labels := getattr(on_hub.features["label"], "names", None):
        rows["label"] = rows["label"].map(dict(enumerate(labels)))
    return Table(f"{dataset}, {name}, {split}", rows, {})


# Published dev results in percent (facts.md#published-results), and their metrics. WNLI, whose dev set contradicts its
# training set, is not among them.
PUBLISHED = pd.DataFrame({
    "ELECTRA-Small++ (Google, median)": (57.0, 91.2, 88.0, 87.5, 89.0, 81.3, 88.4, 66.7),
    "ELECTRA-Small-OWT (Google, median)": (56.8, 88.3, 87.4, 86.8, 88.3, 78.9, 87.9, 68.5),
    "ELECTRA-Small-OWT (electra_pytorch, mean of 10)": (58.72, 88.03, 86.04, 86.16, 88.63, 80.4, 87.45, 67.46),
    "  its standard deviation": (1.30, .49, .7, .29, .1, .15, .33, 1.93),
    "ELECTRA-Small-OWT, 17M (lmtuners, median of 5)": (56.3, 88.4, 75.0, 86.1, 89.1, 77.9, 83.0, 67.1),
    "ALECTRA-Small-OWT, 4M (lmtuners, median of 5)": (50.6, 89.1, 86.3, 87.2, 89.1, 78.2, 85.9, 69.6),
}, "CoLA SST-2 MRPC STS-B QQP MNLI QNLI RTE".split()).T
PUBLISHED_METRICS = dict.fromkeys(PUBLISHED, "accuracy") | {"CoLA": "matthews", "STS-B": "spearman"}
# 14 checkpoints pretrained with different seeds, best of 10 runs by task, averaged over the tasks (electra_pytorch,
# facts.md#published-results).
PUBLISHED_SEEDS = {"mean": 81.38, "std": .57, "max": 82.23, "min": 80.42}
