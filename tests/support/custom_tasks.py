"""Write the files of custom tasks, load them, and read their predictions."""
import csv
import json
from pathlib import Path

import pandas as pd

from _utils.custom.definition import complete_custom_task
from _utils.custom.task_kinds import load_custom_task


def loaded(train="a.jsonl", name="t", **given):
    return load_custom_task(complete_custom_task({"name": name, "train": train, **given}))


def write(path, content, encoding="utf-8"):
    Path(path).write_text(content, encoding, newline="")
    return path


def write_rows(path, rows):
    """Write dictionaries as JSON lines."""
    return write(path, "\n".join(map(json.dumps, rows)))


def write_csv(path, header, rows):
    with open(path, "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([header, *rows])


def predictions(name="mine"):
    """The predictions of a run's test file, by its rows."""
    table = pd.read_csv(f"test_outputs/g/{name}.tsv", sep="\t", index_col="index", keep_default_na=False)
    return table["prediction"]


def labelled(labels):
    """Write a.jsonl with a text for each label."""
    return write_rows("a.jsonl", [{"text": f"text {i}", "label": label} for i, label in enumerate(labels)])


def tagged(tags, path="a.conll", n=2):
    """Write n sentences with these tags."""
    return write(path, n * ("".join(f"word {tag}\n" for tag in tags.split()) + "\n"))


def tags_of(data):
    """The tags of the first sentence."""
    return " ".join(data.task.labels[i] for i in data.splits["train"]["label"][0])


def has(data, *texts):
    """Whether a notice contains all of these texts."""
    return any(all(text in notice for text in texts) for notice in data.messages)
