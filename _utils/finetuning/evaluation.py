"""Evaluations in the table of runs: of epochs, of runs, and of labelled test files."""
import copy

import numpy as np
from fastai.callback.core import Callback

from _utils.finetuning.model import load
from _utils.finetuning.runs import Runs, add_run, path_of
from _utils.tasks.tables import table_key


def with_evaluations(row, found):
    """A row of the table of runs with {split: `evaluation`}, in place of those of a test file."""
    for part in "scores baselines notices classes confusion".split():
        dev = {split: value for split, value in row.get(part, {}).items() if split != "test"}
        row = row | {part: dev | {split: values[part] for split, values in found.items()}}
    return row


def score_test_files(c, tables):
    """Add scores on the labelled test files of own tasks to all finished runs, also to those that this command does not train.

    A test file may get labels, or change, after a run: then the scores are computed again, or removed.
    """
    for name, data in tables.items():
        current = table_key(data.splits["test"]) if data.test_task else None
        for row in Runs().of(c.group_name, name):
            path = path_of(row)
            key = current if path.exists() else None  # without its checkpoint, a run cannot be scored again
            if row.get("test_table") in (current, key) or row["settings"]["own_task"] != data.task.record():
                continue
            found = {}
            if key:
                outputs = load(path, c.device, c.precision).outputs(data.splits["test"])
                found["test"] = data.test_task.evaluation(outputs, data.splits["test"]["label"][:])
            add_run({**with_evaluations(row, found), "test_table": key})


class KeepBest(Callback):
    """After each epoch, remembers the weights if `score(learner)` is the best so far, and restores the best ones at the end.

    An undefined score (NaN) is worse than any other.   best_epoch: its number, from 1.
    """
    order = 60

    def __init__(self, score):
        self.score, self.best = score, -np.inf

    def after_epoch(self):
        score = np.nan_to_num(self.score(self.learn), nan=-np.inf)
        if score > self.best or self.learn.epoch == 0:
            self.best, self.best_epoch, self.weights = score, self.learn.epoch + 1, copy.deepcopy(self.learn.model.state_dict())

    def after_fit(self):
        self.learn.model.load_state_dict(self.weights)
