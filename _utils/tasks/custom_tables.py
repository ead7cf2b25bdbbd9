"""The tables of a custom task: its columns, labels and classes, the dev set, and warnings."""
from dataclasses import replace

import numpy as np
import pandas as pd
from sklearn.model_selection import GroupShuffleSplit

from _utils.errors import UserError, as_user_error
from _utils.tasks.definition import is_conll
from _utils.tasks.tables import (
    TaskData,
    are_whole,
    as_label,
    check_columns,
    labels_in,
    numbers_in,
    shortened,
    to_dataset,
    without_fraction,
)

_HEADER = " A .csv or .tsv file begins with a header; if a line is a word with its tag, let the name end with .conll."
MIN_ROWS = 5  # of a label in the training or dev set, below which a warning is printed


def load(kind, definition, tables, reason):
    """TaskData of a custom task of a kind, a class.

    definition: from `custom.complete_custom_task`.   tables: {split: Table}.   reason: for the kind.
    Raises UserError, with file, line and column where possible, for what does not fit.
    Without a dev file, a share of the training rows is the dev set, by `split_rows`; the same rows at every call.
    """
    texts, columns = kind.columns_of(definition, tables)
    if len(columns) > 1 and not kind.has_label_columns:
        raise UserError(f"'label' of the task {definition['name']!r} names {len(columns)} columns, but the kind "
                        f"{kind.kind!r} has one. Set it to one column, or 'kind' to 'multilabel'.")
    tables |= {split: with_labels(table, columns) for split, table in tables.items()}
    _check_lists(tables["train"], columns)
    is_labelled, of_test = _has_labels(tables, columns, kind) if "test" in tables else (False, [])
    if "test" in tables and not is_labelled:
        tables["test"] = without_labels(tables["test"], columns)
    label, labels, notices, fields = kind.labels_of(tables, texts, columns, definition)
    fields = kind.fields_of(definition, labels) | fields
    of_all = fields_of_all(kind, definition, tables, fields.get("labels", ()))
    task = kind(**of_all, **fields, texts=kind.text_names(texts), file_columns=(*texts, label))
    columns = dict(zip(task.texts, texts))
    splits = _training_splits(tables, columns | {"label": label}, task, definition, notices)
    task, test_task = task.fitted(definition, splits["train"]), None
    if is_labelled:
        test_task, unknown = task.with_test_labels(labels["test"])
        columns, of_test = columns | {"label": label}, of_test + unknown
    if "test" in tables:
        splits["test"] = to_dataset(tables["test"], columns, test_task or task, "test", notices)
    labelled = {split: rows for split, rows in splits.items() if split != "test" or test_task}
    notices += of_test + _shared_texts(labelled, task) + task.label_notices(labelled)
    return TaskData(task, splits, {}, [f"{kind.kind}{reason}, {task.describe()}", *notices], test_task)


def _training_splits(tables, columns, task, definition, notices):
    """{"train", "validation"}: Datasets. Appends messages to notices; UserError if there is no dev set.

    columns: of the texts and the label, as for `to_dataset`.
    """
    groups = {"group": definition["groups"]} if definition["groups"] else {}
    train = to_dataset(tables["train"], columns | groups, task, "train", notices)
    if "validation" in tables:
        return {"train": train, "validation": to_dataset(tables["validation"], columns, task, "validation", notices)}
    splits = split_rows(train, task, definition["dev"])
    if not splits["validation"]:
        raise UserError(f"{definition['train']} has too few rows for a dev set. Add rows, or set 'dev' of "
                        f"{task.name!r} to a file.")
    return splits


def columns_of(definition, tables):
    """(columns of the texts, columns of the labels); UserError if the files lack a column that the definition needs."""
    columns, name = [*tables["train"].rows], definition["name"]
    groups, choices = [*filter(None, [definition["groups"]])], definition["choices"] or []
    if columns and is_conll(definition["train"]):
        names = definition["text"] or ["0"], definition["label"] or ["-1"]
        texts, label = ([columns[-1] if column == "-1" else column for column in of_kind] for of_kind in names)
    else:
        label = definition["label"] or ["label"]
        texts = definition["text"] or [column for column in columns if column not in (*label, *groups, *choices)]
    of_all = [*texts, *choices]
    keys = ["'text'", "'label'", *(repr(key) for key in ("choices", "groups") if definition[key])]
    required = {"train": [*label, *of_all, *groups], "validation": [*label, *of_all], "test": of_all}
    for split, table in tables.items():
        check_columns(table, required[split], f"Set {' and '.join(keys)} of the task {name!r} to columns of its files."
                                              f"{_HEADER * table.source.lower().endswith(('.csv', '.tsv'))}")
    if definition["text"] is None and len(texts) != 1:
        raise UserError(f"{definition['train']} has the columns {', '.join(columns)}: set 'text' of the task {name!r} "
                        "to the column of the text, or to a list of two.")
    return texts, label


def with_labels(table, columns):
    """The Table with empty labels if it lacks some of their columns, as a test file may."""
    if {*columns} <= {*table.rows}:
        return table
    return without_labels(table, columns)


def without_labels(table, columns):
    """The Table with empty labels."""
    return table._replace(rows=table.rows.assign(**dict.fromkeys(columns, "")))


def _has_labels(tables, columns, kind):
    """(whether a test file has labels, [notice]). Empty ones are none, and neither is -1, as on the hub, unless the
    training file has it.
    """
    def labels_of(split):
        cells = tables[split].rows[columns].to_numpy().ravel()
        return {as_label(item) for cell in cells for item in (cell or [cell] if isinstance(cell, list) else [cell])}
    missing, trained, found = {"-1", "-1.0"}, labels_of("train"), labels_of("test") - {""}
    are_known = "as in some training rows, so they count" if found & trained else "so it is only predicted"
    notices = [f"all labels of {tables['test'].source} are -1, {are_known}"] if found and found <= missing else []
    return not found <= missing - trained | (set() if kind.empty_is_label else {"[]"}), notices


def _check_lists(table, columns):
    """UserError for lists of numbers with a fraction, which are neither labels nor tags."""
    has_fraction = lambda cell: isinstance(cell, list) and any(isinstance(item, float) and item % 1 for item in cell)
    for name, cells in table.rows[columns].items():
        are_numbers = cells.map(has_fraction)
        if are_numbers.mean() > .5:
            place = are_numbers.idxmax()
            raise UserError(f"{table.source}: the column {name!r} has lists of numbers, such as {cells[place]!r:.60} "
                            f"in {place}. A task predicts one number for each text: write a column for each, and make "
                            "a task of each.")


def labels_by_split(tables, column):
    """{split: Series of the labels of the good rows that have one, as strings}."""
    return {split: labels_in(table, column).explode().dropna().map(as_label) for split, table in tables.items()}


def fields_of_all(kind, definition, tables, labels=()):
    """{field: value} of the Task of any kind. tables: {split: ...}.   labels: names of its classes."""
    name = definition["name"]
    return {"name": name, "title": name, "is_own": True, "score_titles": (("test", f"{name} (test)"),),
            "metrics": metrics_of(kind, definition, labels),
            "test_files": dict.fromkeys({"test"} & tables.keys(), name + kind.suffix)}


def class_names(labels, definition):
    """The different labels of a Series, in alphabetical order, or by value if all are numbers.

    UserError for fewer than two.
    """
    names = set(labels)
    if are_whole(names):
        names = set(map(without_fraction, names))
    names = sorted(names)
    if numbers_in(names).notna().all():
        names.sort(key=float)
    if len(names) < 2:
        raise UserError(f"{definition['train']}: all labels are {', '.join(map(repr, names)) or 'missing'}. "
                        "Classification and tagging need at least two different labels, and tagging a list of tags in "
                        "each row.")
    return tuple(names)


def check_share_of_classes(labels, names, definition):
    """UserError if nearly each row has a label of its own."""
    if len(labels) > 20 and len(names) > len(labels) / 2:
        raise UserError(f"{definition['train']}: {len(names):,} different labels in {len(labels):,} rows, such as "
                        f"{shortened(names, 3)}. Set 'label' to the column of the labels, or 'kind': 'regression' if "
                        "they are numbers to predict.")


def class_fields(definition, names):
    """{"labels", "class_weights", "positive"} of a Task. names: of the classes.

    class_weights: the weight of each class in the loss, 1 by default. Balanced ones follow from the training rows
    (`Task.fitted`).
    """
    weights, positive = definition["class_weights"] or {}, definition["positive"]
    weights = {} if weights == "balanced" else weights
    for key, value in [("positive", positive), *(("class_weights", label) for label in weights)]:
        if value not in (None, *names):
            raise UserError(f"{key}={value!r} of the task {definition['name']!r} is not one of its labels "
                            f"{shortened(names)}.")
    weights = tuple(float(weights.get(label, 1)) for label in names if weights)
    return {"labels": names, "class_weights": weights, "positive": positive}


def fitted(task, definition, rows):
    """A custom Task with what follows from its training rows, a Dataset: balanced weights of the classes."""
    is_balanced = definition["class_weights"] == "balanced"
    return replace(task, class_weights=task.balanced_weights(rows["label"][:])) if is_balanced else task


def balanced_weights(task, labels):
    """Weights of the classes, inversely proportional to their training rows (of tags: words), of which each counts as
    having at least one.
    """
    counts = pd.Series(labels).explode().value_counts().reindex(range(len(task.labels))).fillna(1)
    return tuple((counts.sum() / (len(counts) * counts)).tolist())


def metrics_of(kind, definition, labels):
    """The metrics of a task, by default the first two that apply to its kind and labels.

    UserError for one that does not apply.
    """
    applicable, wanted = kind.applicable_metrics(labels), definition["metrics"] or []
    if unknown := sorted({*wanted} - {*applicable}):
        raise UserError(f"metrics={unknown[0]!r} of the task {definition['name']!r} does not apply to {kind.kind} "
                        f"(labels: {shortened(labels)}). Choose from {', '.join(applicable)}, or set 'kind'. f1 needs "
                        "two labels, entity_f1 tags such as B-NP, I-NP and O.")
    if wanted[:1] == ["rmse"]:
        raise UserError(f"metrics of the task {definition['name']!r} begins with 'rmse', but the best run is the one "
                        "with the highest value of the first metric. Choose another first metric.")
    return tuple(wanted or kind.default_metrics(applicable))


def split_rows(rows, task, share):
    """{"train", "validation"}: a share of the rows of each class becomes the dev set, drawn with a fixed seed.

    Of a class with several rows, both sets have at least one. Scores and sentences of words count as one class. Of
    several labels of a text, the rarest counts.
    If the Dataset has a column "group", the rows of a group stay together: of 100 random divisions of the groups, it is
    the one whose dev set is closest to that share of each class.
    """
    classes = pd.Series(task.strata(rows["label"][:]))
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
                       "questions: texts). Use more groups, or set 'dev' to a file or another share.", ValueError):
        _, dev = min(divisions, key=lambda rows: wanted.sub(classes[rows[1]].value_counts(), fill_value=0).abs().sum())
    return classes.index.isin(dev)


def _shared_texts(splits, task):
    """A warning for each set with labels whose texts are also in the training set."""
    texts = {split: list(map(str, zip(*(rows[name][:] for name in task.texts)))) for split, rows in splits.items()}
    trained = set(texts.pop("train"))
    n_shared = {split: sum(map(trained.__contains__, of_split)) for split, of_split in texts.items()}
    return [f"warning: {n:,} of {len(texts[split]):,} texts in {split} are also in the training set, which makes its "
            "scores too high" for split, n in n_shared.items() if n]


def label_counts(splits, names):
    """A line about the rows (of tags: the words) of each label by split, and a warning about labels of few rows."""
    counts = {split: pd.Series(rows["label"][:]).explode().value_counts() for split, rows in splits.items()}
    counts = pd.DataFrame(counts).reindex(range(len(names))).fillna(0).astype(int).set_axis(names)
    lines = [f"{split}: {shortened([f'{label} {n:,}' for label, n in of_split.items()])}"
             for split, of_split in counts.items()]
    of_each = counts.drop(columns="test", errors="ignore").T.stack()
    few = [f"{label} ({split} {n})" for (split, label), n in of_each[of_each < MIN_ROWS].items()]
    notices = [f"labels in {'; '.join(lines)}"]
    if few:
        notices.append(f"warning: fewer than {MIN_ROWS} rows of {shortened(few)}: scores say little about such labels. "
                       "Add rows, or set 'dev'.")
    return notices
