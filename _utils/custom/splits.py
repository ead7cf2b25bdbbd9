"""The dev set of a custom task, and what its sets contain."""
import re

import numpy as np
import pandas as pd
from sklearn.model_selection import GroupShuffleSplit

from _utils.errors import as_user_error
from _utils.tasks.tables import shortened

_TOKEN = re.compile(r"\w+|[^\w\s]")
MIN_ROWS = 5  # of a label in the training or dev set, below which a warning is printed


def split_rows(rows, share, classes=None):
    """{"train", "validation"}: a share of the rows of each class becomes the dev set, drawn with a fixed seed.

    classes: of the rows of the Dataset, None: all the same. Of a class with several rows, both sets have at least one.
    If the Dataset has a column "group", the rows of a group stay together: of 100 random divisions of the groups, it is
    the one whose dev set is closest to that share of each class.
    """
    classes = pd.Series([0] * len(rows) if classes is None else classes)
    if "group" in rows.column_names:
        is_dev = _split_groups(classes, rows["group"][:], share)
    else:
        order = np.random.default_rng(0).permutation(len(rows))
        rank, sizes = (classes[order].groupby(classes).transform(how).sort_index() for how in ("cumcount", "size"))
        is_dev = rank < (share * sizes).round().clip(1).clip(upper=sizes - 1)
    return {"train": rows.select(np.flatnonzero(~is_dev)), "validation": rows.select(np.flatnonzero(is_dev))}


def _split_groups(classes, groups, share):
    """Whether each row is in the dev set, of which a group has all rows or none."""
    divisions = GroupShuffleSplit(100, test_size=share, random_state=0).split(classes, groups=groups)
    wanted = share * classes.value_counts()
    with as_user_error(f"Cannot take a dev set of {share} of the rows from {len(set(groups)):,} 'groups' (of "
                       "questions: texts). Use more groups or a smaller share, or leave 'groups' out and set 'dev' to "
                       "a file.", ValueError):
        _, dev = min(divisions, key=lambda rows: wanted.sub(classes[rows[1]].value_counts(), fill_value=0).abs().sum())
    return classes.index.isin(dev)


def shared_texts(splits, task):
    """A warning for each set with labels whose texts are also in the training set. Case and blanks do not count."""
    texts = {split: list(map(str.casefold, texts_of(rows, task))) for split, rows in splits.items()}
    trained = set(texts.pop("train"))
    n_shared = {split: sum(map(trained.__contains__, of_split)) for split, of_split in texts.items()}
    return [f"warning: {n:,} of {len(texts[split]):,} texts in {split} are also in the training set (except for case "
            "and blanks), so its scores are not those of new texts" for split, n in n_shared.items() if n]


def texts_of(rows, task):
    """The texts of each row of a Dataset as a string of tokens."""
    columns = [map(_tokens, rows[name][:]) for name in task.texts]
    return list(map(" [SEP] ".join, zip(*columns)))


def _tokens(text):
    """A text, or a list of words, as a string of tokens."""
    return " ".join(_TOKEN.findall(text if isinstance(text, str) else " ".join(text)))


def contradictions(splits, task, as_key):
    """[A warning about texts with different labels], or []. splits: {name: Dataset}.   as_key: of a label."""
    texts = [text for rows in splits.values() for text in texts_of(rows, task)]
    labels = [as_key(label) for rows in splits.values() for label in rows["label"][:]]
    n_labels = pd.Series(labels, dtype=object).groupby(texts).nunique()
    contradictory = n_labels[n_labels > 1]
    if contradictory.empty:
        return []
    return [f"warning: {len(contradictory):,} texts have different labels in several rows, such as "
            f"{contradictory.index[0]!r:.60}"]


def label_counts(splits, names):
    """A line about the rows (of tags: the words) of each label by split, and a warning about labels of few rows."""
    counts = {split: pd.Series(rows["label"][:]).explode().value_counts() for split, rows in splits.items()}
    counts = pd.DataFrame(counts).reindex(range(len(names))).fillna(0).astype(int).set_axis(names)
    lines = [f"{split}: {shortened([f'{label} {n:,}' for label, n in of_split.items()])}"
             for split, of_split in counts.items()]
    of_each = counts.drop(columns="test", errors="ignore").T.stack()
    few = [f"{label} ({split} {n})" for (split, label), n in of_each[of_each < MIN_ROWS].items()]
    messages = [f"labels in {'; '.join(lines)}"]
    if few:
        messages.append(f"warning: fewer than {MIN_ROWS} rows of {shortened(few)}: scores say little about such labels."
                        " Add rows, or set 'dev'.")
    return messages
