"""Evaluations in the table of runs, and the best epoch by them."""
import copy

import numpy as np
from fastai.callback.core import Callback

from _utils.finetuning.runs import score


def with_evaluations(row, found):
    """A row of the table of runs with {split: `evaluation`}, in place of those of a test file."""
    for part in "scores baselines notices classes confusion".split():
        dev = {split: value for split, value in row.get(part, {}).items() if split != "test"}
        row = row | {part: dev | {split: values[part] for split, values in found.items()}}
    return row


def score_of(evaluations):
    """The first metric on the first dev set in percent, of {split: `evaluation`}."""
    return score(with_evaluations({}, evaluations))


class KeepBest(Callback):
    """After each epoch, remembers the weights if `score(learner)` is the best so far, and restores the best ones at the
    end.

    An undefined score (NaN) is worse than any other.   best_epoch: its number, from 1.
    """
    order = 60

    def __init__(self, score):
        self.score, self.best = score, -np.inf

    def after_epoch(self):
        score = np.nan_to_num(self.score(self.learn), nan=-np.inf)
        if score > self.best or self.learn.epoch == 0:
            self.best, self.best_epoch, self.weights = (
                score,
                self.learn.epoch + 1,
                copy.deepcopy(self.learn.model.state_dict()),
            )

    def after_fit(self):
        self.learn.model.load_state_dict(self.weights)
