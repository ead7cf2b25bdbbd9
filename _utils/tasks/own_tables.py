"""The tables of an own task: its columns, labels and classes, the dev set, and warnings."""
from dataclasses import replace

import numpy as np
import pandas as pd
from sklearn.model_selection import GroupShuffleSplit

from _utils.errors import UserError, as_user_error
from _utils.tasks.tables import TaskData, as_label, check_columns, labels_in, numbers_in, shortened, to_dataset

MIN_ROWS = 5  # of a label in the training or dev set, below which a warning is printed


def load(kind, definition, tables, reason):
    """TaskData of an own task of a kind, a class. Arguments and errors as for `Task.from_files`.

    Without a dev file, a share of the training rows is the dev set, by `split_rows`; the same rows at every call.
    """
    texts, columns = kind.columns_of(definition, tables)
    label, labels, converted, fields = kind.labels_of(tables, texts, columns, definition)
    if set(map(as_label, labels.get("test", ()))) <= {"-1", "[]"}:  # as in the test sets of the hub
        labels.pop("test", None)
    task = _task(kind, definition, texts, label, labels, fields)
    reason = f"{kind.kind} because {reason} ('kind' overrides it)" if reason else kind.kind
    notices = [f"{reason}, {task.describe()}", *converted]
    test_task = None
    if "test" in labels:
        test_task, unknown = task.with_test_labels(labels["test"])
        notices += unknown
    data = TaskData(task, {}, {}, notices, test_task)
    for split, table in tables.items():
        in_table = dict(zip((*task.texts, "label") if split in labels else task.texts, (*texts, label)))
        if split == "train" and definition["groups"] is not None:
            in_table["group"] = definition["groups"]
        of_split = test_task or task if split == "test" else task
        data.splits[split] = to_dataset(table, in_table, of_split, split, notices)
    if "validation" not in tables:
        data.splits.update(split_rows(data.splits["train"], task, definition["dev"]))
        if not data.splits["validation"]:
            raise UserError(f"{definition['train']} has too few rows for a dev set. Add rows, or set 'dev' of "
                            f"{task.name!r} to a file.")
    labelled = {split: rows for split, rows in data.splits.items() if split in ("train", "validation", *labels)}
    notices += _shared_texts(labelled, task) + task.label_notices(labelled)
    return data


def columns_of(definition, tables):
    """(columns of the texts, columns of the labels); UserError if the files lack one, or that of the groups."""
    if definition["groups"] is not None:
        advice = f"Set 'groups' of the task {definition['name']!r} to a column of its training file."
        check_columns(tables["train"], [definition["groups"]], advice)
    columns = [column for column in tables["train"].rows if column != definition["groups"]]
    if 0 in columns:  # CoNLL
        numbered = lambda found: [columns[-1] if column == -1 else column for column in found]
        label = numbered(definition["label"] or [-1])
        texts = numbered(definition["text"] or [0])
    else:
        label = definition["label"] or ["label"]
        texts = definition["text"] or [column for column in columns if column not in label]
        if definition["text"] is None and label[0] in columns and len(texts) != 1:
            raise UserError(f"{definition['train']} has the columns {', '.join(columns)}: set 'text' of the task "
                            f"{definition['name']!r} to the column of the text, or to a list of two.")
    for split, table in tables.items():
        check_columns(table, texts if split == "test" else [*label, *texts],
                      f"Set 'text' and 'label' of the task {definition['name']!r} to columns of its files.")
    return texts, label


def labels_by_split(tables, column):
    """{split: Series of the labels of the good rows that have one, as strings}, for the splits that have the column."""
    labelled = {split: table for split, table in tables.items() if column in table.rows}
    return {split: labels_in(table, column).explode().dropna().map(as_label) for split, table in labelled.items()}


def _task(kind, definition, texts, label, labels, fields):
    """The Task. labels: {split: Series of strings}; UserError for labels and metrics that do not fit its kind."""
    name = definition["name"]
    fields = kind.fields_of(definition, labels) | fields
    metrics = metrics_of(kind, definition, fields.get("labels", ()))
    task = kind(name, name, kind.text_names(texts), is_own=True, file_columns=tuple(map(str, (*texts, label))),
                score_titles=(("test", f"{name} (test)"),), metrics=metrics, **fields)
    return replace(task, test_files={"test": name + task.suffix}) if definition["test"] else task


def class_names(found, definition):
    """The different labels of a Series, in alphabetical order, or by value if all are numbers.

    UserError for fewer than two.
    """
    names = sorted(set(found))
    if numbers_in(names).notna().all():
        names.sort(key=float)
    if len(names) < 2:
        raise UserError(f"{definition['train']}: all labels are {', '.join(map(repr, names)) or 'missing'}. "
                        f"Classification "
                        "and tagging need at least two different labels, and tagging a list of tags in each row.")
    return tuple(names)


def check_share_of_classes(found, names, definition):
    """UserError if nearly each row has a label of its own."""
    if len(found) > 20 and len(names) > len(found) / 2:
        raise UserError(f"{definition['train']}: {len(names):,} different labels in {len(found):,} rows, such as "
                        f"{shortened(names, 3)}. Set 'label' to the column of the labels, or 'kind': 'regression' if "
                        "they are numbers to predict.")


def class_fields(definition, names, found):
    """{"labels", "class_weights", "positive"} of a Task.

    names: of the classes.   found: Series of the training labels.
    """
    if definition["positive"] not in (None, *names):
        raise UserError(f"positive={definition['positive']!r} of the task {definition['name']!r} is not one of its "
                        f"labels "
                        f"{shortened(names)}.")
    weights = _class_weights(definition, names, found) if definition["class_weights"] else ()
    return {"labels": names, "class_weights": weights, "positive": definition["positive"]}


def _class_weights(definition, classes, labels):
    """The weight of each class in the loss: inversely proportional to its rows, or as definition, 1 by default.

    A tag without training rows, which only the dev set has, counts as one of one row.
    """
    weights = definition["class_weights"]
    if weights == "balanced":
        counts = labels.value_counts().reindex(classes, fill_value=1)
        weights = dict(counts.sum() / (len(classes) * counts))
    for label in weights:
        if label not in classes:
            raise UserError(f"class_weights of the task {definition['name']!r}: there is no label {label!r}. The "
                            f"labels "
                            f"are {shortened(classes)}.")
    return tuple(float(weights.get(label, 1)) for label in classes)


def metrics_of(kind, definition, labels):
    """The metrics of a task, by default the first two that apply to its kind and labels.

    UserError for one that does not apply.
    """
    applicable, wanted = kind.applicable_metrics(labels), definition["metrics"] or ()
    for metric in wanted:
        if metric not in applicable:
            raise UserError(f"metrics={metric!r} of the task {definition['name']!r} does not apply to {kind.kind} with "
                            f"the "
                            f"labels {shortened(labels) or '(numbers)'}. Choose from {', '.join(applicable)}, or set "
                            "'kind'. f1 needs two labels, entity_f1 tags such as B-NP, I-NP and O.")
    if wanted and wanted[0] == "rmse":
        raise UserError(f"metrics of the task {definition['name']!r} begins with 'rmse', but the best run is the one "
                        f"with "
                        "the highest value of the first metric. Choose another first metric.")
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
    trained, warnings = set(texts.pop("train")), []
    for split, found in texts.items():
        n = sum(map(trained.__contains__, found))
        if n:
            warnings.append(f"warning: {n:,} of {len(found):,} texts in {split} are also in the training set, which "
                            "makes its scores too high")
    return warnings


def label_counts(splits, names):
    """A line about the rows (of tags: the words) of each label by split, and a warning about labels of few rows."""
    counts = {split: pd.Series(rows["label"][:]).explode().value_counts() for split, rows in splits.items()}
    counts = pd.DataFrame(counts).reindex(range(len(names))).fillna(0).astype(int).set_axis(names)
    lines, few = [], []
    for split, of_split in counts.items():
        lines.append(f"{split}: {shortened([f'{label} {n:,}' for label, n in of_split.items()])}")
        if split != "test":
            few += [f"{label} ({split} {n})" for label, n in of_split.items() if n < MIN_ROWS]
    lines = [f"labels in {'; '.join(lines)}"]
    if few:
        lines.append(f"warning: fewer than {MIN_ROWS} rows of {shortened(few)}: scores say little about such labels. "
                     "Add rows, or set 'dev'.")
    return lines
