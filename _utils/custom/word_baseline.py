"""A baseline for the classes of texts: TF-IDF of their words and logistic regression."""
import itertools
import re
import warnings
from functools import lru_cache

import numpy as np

from _utils.custom.question_files import SCRIPTS_WITHOUT_SPACES
from _utils.tasks.rows import training_rows

MAX_ROWS = 20_000  # of the training set
_MAX_FEATURES, _MAX_WEIGHTS = 50_000, 500_000
# A character of a script without spaces between words, or a word.
_WORDS = re.compile(f"[{SCRIPTS_WITHOUT_SPACES}]|[^\\W{SCRIPTS_WITHOUT_SPACES}]+")


def word_scores(task, splits, settings, evaluated):
    """{split: {metric: value}} of the baseline on the splits in `evaluated`.

    {} if the training texts have no two classes or no words.
    splits: {name: Dataset}.   settings: of the run, whose rows limit the training rows.
    """
    model = _fitted(task, splits["train"], min(settings.rows or MAX_ROWS, MAX_ROWS))
    return {split: _score(model, task, splits[split]) for split in evaluated if model}


@lru_cache(1)
def _fitted(task, rows, limit):
    """The fitted pipeline of scikit-learn, or None."""
    rows = training_rows(rows, limit)
    texts, labels = _texts(task, rows[:]), rows["label"][:]
    if len(set(labels)) < 2 or not any(map(_features, texts)):
        return None
    # here, because only custom tasks need them
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    weights = dict(enumerate(task.class_weights)) if task.class_weights else None
    n_features = min(_MAX_FEATURES, _MAX_WEIGHTS // len(task.labels))  # the most frequent ones
    model = make_pipeline(TfidfVectorizer(analyzer=_features, sublinear_tf=True, max_features=n_features),
                          LogisticRegression(C=10, class_weight=weights, max_iter=50))
    with warnings.catch_warnings(action="ignore"):  # which are enough for a baseline
        return model.fit(texts, labels)


def _texts(task, columns):
    """[the one or two texts of a row] of rows as a Dataset returns them."""
    return list(zip(*(columns[name] for name in task.texts)))


def _features(texts):
    """The words and pairs of successive words of one or two texts, with the index of the text."""
    features = []
    for i, text in enumerate(texts):
        words = _WORDS.findall(text.lower())
        features += [(i, word) for word in words] + [(i, *pair) for pair in itertools.pairwise(words)]
    return features


def _score(model, task, rows):
    """`Metrics.score` of the fitted pipeline. Classes without a training row have the probability 0."""
    probabilities = np.zeros((len(rows), len(task.labels)))
    probabilities[:, model[-1].classes_] = model.predict_proba(_texts(task, rows[:]))
    return task.scores.score(probabilities, rows["label"][:])
