"""Own tasks: the dictionary that describes one in `tasks`, and its tables, from which the kind of the task and its labels follow."""
import re
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import pandas as pd
from annotated_types import Predicate
from pydantic import Field
from sklearn.model_selection import GroupShuffleSplit

from _utils.config import FileName, MyConfig, Positive, Text, list_of, number
from _utils.errors import PlainError, as_plain_error
from _utils.tasks.glue import KINDS, METRICS_OF_KIND, TASKS, Task
from _utils.tasks.guess import LISTS, kind_of, labels_of, numbers_in, read_span_labels, with_lists
from _utils.tasks.question_files import check_evaluated, is_question_file, read_questions, without_unusable
from _utils.tasks.questions import QuestionOptions
from _utils.tasks.table_files import FORMATS, check_columns, read_table
from _utils.tasks.tables import TaskData, as_label, items, shortened, to_dataset
from _utils.tasks.tagging import begin_with_i, in_scheme, spellings

MIN_ROWS = 5  # of a label in the training or dev set, below which a warning is printed
QUESTION_TASKS = "squad squadv1 newsqa naturalqs triviaqa searchqa".split()  # of Google's code (F52)
_BIO = re.compile(r"O|[BIESLU]-\S.*")  # tags that mark where entities begin and end: BIO, BIOES, BILOU
_SUFFIXES = *FORMATS, ".jsonl.gz"
_File = Annotated[str, Field(pattern=rf"(?i)({'|'.join(map(re.escape, _SUFFIXES))})$", description=(
    f"a file that ends with {', '.join(_SUFFIXES)}"))]
_Column = Annotated[str | int, Field(description="the name of a column (in CoNLL files its number from 0, or -1 for the last)")]
_TAKEN = {*TASKS, *(Path(file).stem.lower() for task in TASKS.values() for file in task.outputs.values())}
_KEYS = {
    "name": FileName | None,
    "train": _File,
    "dev": number("a share of the training rows such as .1", gt=0, lt=1) | _File,
    "test": _File | None,
    "text": Annotated[list_of(_Column, "the name of a column, or a list of two"), Field(max_length=2)] | None,
    "label": list_of(_Column, "the name of a column, or a list of columns with 1 or 0, one for each label") | None,
    "separator": Text,
    "groups": _Column | None,
    "kind": Literal[(*KINDS, None)],
    "scheme": Literal["iob2", "bioes", None],
    "metrics": list_of(Text, "the name of a metric, or a list of names; the first one ranks the runs") | None,
    "positive": Text | None,
    "questions": Annotated[dict, Predicate(lambda options: QuestionOptions(**options)), Field(description=(
        f"a dictionary with some of {', '.join(QuestionOptions.__annotations__)}"))] | None,
    "class_weights": Literal["balanced"] | Annotated[dict[Text, Positive], Field(description="{'label': weight}")] | None,
}


def complete_own_task(given):
    """The dictionary of an own task with all keys: defaults for missing ones, lists for text and metrics.

    Raises PlainError for an unknown key or value, and for the name of a GLUE task. No file is read.
    """
    values = dict.fromkeys(_KEYS) | {"dev": .1, "separator": "|"} | {key: value for key, value in given.items() if value is not None}
    task = MyConfig(values, _KEYS)
    path = Path(task.train)
    stem = path.name.partition(".")[0]
    task.name = task.name or (path.resolve().parent.name if stem.lower() in ("train", "training") else stem)
    if task.name.lower() in _TAKEN:  # its predictions would replace GLUE's
        raise PlainError(f"Invalid value for tasks: an own task cannot be called {task.name!r}, because GLUE has a task of that name. Set "
                         "'name' to another one.")
    if task.groups is not None and isinstance(task.dev, str):
        raise PlainError(f"'groups' of the task {task.name!r} keeps rows together when a dev set is taken from the training rows, but "
                         f"'dev' is the file {task.dev!r}. Leave one of them out.")
    return dict(task)


def question_task(name, folder):
    """The dictionary of a task in QUESTION_TASKS, whose files are <folder>/<name>/train.json, dev.json and test.json.

    Instead of .json they may end with .jsonl, .jsonl.gz or .parquet.
    """
    path = Path(folder or "datasets", name)
    files = {file.name.partition(".")[0]: str(file) for end in ("parquet", "json*") for file in path.glob(f"*.{end}")}
    files = {split: file for split, file in files.items() if split in ("train", "dev", "test")}
    return complete_own_task({"name": name, "kind": "questions", "train": f"{path}/train.json", **files})


def load_own_task(given):
    """TaskData of an own task. given: from `complete_own_task`.

    Without a dev file, a share of the training rows is the dev set, by `split_rows`; the same rows at every call.
    Raises PlainError, with file, line and column where possible, for what does not fit.
    """
    files = {"train": given["train"], "validation": given["dev"], "test": given["test"]}
    files = {split: path for split, path in files.items() if isinstance(path, str)}
    for path in files.values():
        if not Path(path).is_file():
            raise PlainError(f"File not found: {path!r}. Correct the path in tasks, or put the file there.")
    if given["kind"] == "questions":
        return _load_questions(given, files)
    if given["questions"] or is_question_file(given["train"]):
        raise PlainError(f"{given['train']}: to answer questions in the format of SQuAD or MRQA, set 'kind': 'questions' of the task "
                         f"{given['name']!r}, and leave 'text' and 'label' out; for another kind, leave 'questions' out.")
    tables = {split: read_table(path) for split, path in files.items()}
    test_table = tables.get("test")
    texts, columns = _columns(given, tables)
    spans = read_span_labels(tables, texts[0], columns[0], given["kind"])
    if spans:
        given = given | {"kind": "tagging"}
    kind, reason, label, labels, warnings = _labels_of(tables, texts, columns, given)
    if kind == "tagging" and len(texts) > 1:
        raise PlainError(f"{given['train']}: tagging labels the words of one column, but 'text' of the task {given['name']!r} has two: "
                         f"{', '.join(map(str, texts))}. Set 'text' to one of them, or 'kind' to another kind.")
    task = test_task = replace(_task(given, texts, label, kind, labels), spans=bool(spans))
    notices = [_description(task, reason), *spans, *warnings]
    if "test" in labels and task.is_tagging:
        # Tags that only the test set has are not in `task`: the test file may change.
        if unknown := [tag for tag in labels["test"].unique() if tag not in task.labels]:
            notices.append(f"no training or dev sentence has the tags {shortened(unknown)} of the test file, which are never predicted")
        test_task = replace(task, labels=(*task.labels, *unknown))
    data = TaskData(task, {}, {}, notices, test_table, test_task if "test" in labels else None)
    for split, table in tables.items():
        columns = dict(zip((*task.texts, "label") if split in labels else task.texts, (*texts, label)))
        if split == "train" and given["groups"] is not None:
            columns["group"] = given["groups"]
        data.splits[split] = to_dataset(table, columns, test_task if split == "test" else task, split, notices)
    if "validation" not in tables:
        data.splits.update(split_rows(data.splits["train"], task, given["dev"]))
        if not data.splits["validation"]:
            raise PlainError(f"{given['train']} has too few rows for a dev set. Add rows, or set 'dev' of {task.name!r} to a file.")
    labelled = {split: rows for split, rows in data.splits.items() if split in ("train", "validation", *labels)}
    notices += _shared_texts(labelled, task)
    if task.labels:
        notices += _suspect_labels(task) + _label_counts(labelled, task)
    elif (n := len(data.splits["validation"])) < MIN_ROWS:
        notices.append(f"warning: the dev set has only {n} row{'s' if n > 1 else ''}: its scores say little. Add rows, or set 'dev'.")
    return data


def _labels_of(tables, texts, columns, given):
    """(kind of the task, why it was guessed, column of its labels, {split: Series of all its labels as strings}, [warnings]).

    Replaces the tables whose labels have to be converted: to lists for several labels per text, or to a scheme of tags.
    """
    label, *others = columns
    kind, reason = "multilabel" if others else given["kind"], ""
    if kind is None:
        kind, reason = kind_of(tables["train"], texts, label, given["separator"])
    if kind == "multilabel":
        tables |= {split: with_lists(table, columns, given["separator"]) for split, table in tables.items()}
        label = LISTS
    labels = {split: labels_of(table, label) for split, table in tables.items() if label in table.rows}
    if set(map(as_label, labels.get("test", ()))) <= {"-1", "[]"}:  # as in the test sets of the hub
        labels.pop("test", None)
    warnings = []
    if kind == "tagging":
        labels = {split: found.map(items).dropna() for split, found in labels.items()}
        if usual := spellings(labels["train"], pd.concat([*labels.values()]).explode().dropna()):
            warnings.append(f"tags are read as {shortened([f'{new} ({old})' for old, new in usual.items()], 4)}")
            _convert(tables, labels, label, lambda tags: [usual.get(tag, tag) for tag in tags])
        warnings += _check_scheme(labels["train"], given)
        if given["scheme"]:
            _convert(tables, labels, label, partial(in_scheme, scheme=given["scheme"]))
    return kind, reason, label, {split: found.explode().dropna().map(as_label) for split, found in labels.items()}, warnings


def _convert(tables, labels, column, convert):
    """Replace the tags of each sentence, in {split: Table} and in {split: Series of lists}."""
    for split, tags in labels.items():
        labels[split] = tags.map(convert)
        rows = tables[split].rows.copy()
        rows[column] = labels[split].combine_first(rows[column])
        tables[split] = tables[split]._replace(rows=rows)


def _load_questions(given, files):
    """TaskData of a task on questions. files: {split: path}. Questions whose answer is not found are not used for training (F54)."""
    for key in "text label groups scheme positive class_weights".split():
        if given[key] is not None:
            raise PlainError(f"{key!r} does not apply to questions. Leave it out of the task {given['name']!r}.")
    splits, name = {split: read_questions(path) for split, path in files.items()}, given["name"]
    is_any_impossible = any(splits["train"]["is_impossible"])
    options = QuestionOptions(**{"has_unanswerable": is_any_impossible, **(given["questions"] or {})})
    splits["train"], skipped = without_unusable(splits["train"], options, given["train"])
    task = Task(name, name, ("question", "context"), kind="questions", questions=options, epochs=2, is_own=True,
                metrics=_metrics(given, "questions", ()), outputs={"test": f"{name}.json"} if "test" in files else {},
                score_titles=(("test", f"{name} (test)"),))
    if "validation" not in splits:
        splits |= split_rows(splits["train"], task, given["dev"])
    notices = [f"questions, {'some' if options.has_unanswerable else 'none'} unanswerable; metrics {', '.join(task.metrics)}"]
    notices += skipped + check_evaluated(splits, options, files)
    return TaskData(task, splits, {}, notices, None, task if "test" in splits and any(splits["test"]["label"]) else None)


def _columns(given, tables):
    """(columns of the texts, columns of the labels); PlainError if the files lack one, or that of the groups."""
    if given["groups"] is not None:
        check_columns(tables["train"], [given["groups"]], f"Set 'groups' of the task {given['name']!r} to a column of its training file.")
    columns, label, texts = [column for column in tables["train"].rows if column != given["groups"]], given["label"], given["text"]
    if 0 in columns:  # CoNLL
        label, texts = ([columns[-1] if column == -1 else column for column in found] for found in (label or [-1], texts or [0]))
    else:
        label = label or ["label"]
        texts = texts or [column for column in columns if column not in label]
        if given["text"] is None and label[0] in columns and len(texts) != 1:
            raise PlainError(f"{given['train']} has the columns {', '.join(columns)}: set 'text' of the task {given['name']!r} to the "
                             "column of the text, or to a list of two.")
    for split, table in tables.items():
        check_columns(table, texts if split == "test" else [*label, *texts],
                      f"Set 'text' and 'label' of the task {given['name']!r} to columns of its files.")
    return texts, label


def _task(given, texts, label, kind, labels):
    """The Task. labels: {split: Series of strings}; PlainError for labels and metrics that do not fit its kind."""
    name, scale, classes = given["name"], None, ()
    if kind == "regression":
        scores = numbers_in(labels["train"])
        scores = scores[scores.abs() < np.inf]
        if scores.nunique() < 2:
            raise PlainError(f"{given['train']}: regression needs different numbers, but the labels are "
                             f"{shortened(sorted({*labels['train']}))}. Set 'label' to the column of the scores.")
        scale = float(scores.mean()), float(scores.std(ddof=0))
    else:
        classes = _classes(labels, kind, given)
    weights = _class_weights(given, classes, labels["train"]) if given["class_weights"] else ()
    if given["positive"] not in (None, *classes):
        raise PlainError(f"positive={given['positive']!r} of the task {name!r} is not one of its labels "
                         f"{shortened(classes) or '(numbers)'}.")
    return Task(name, name, ("text1", "text2") if len(texts) == 2 else ("text",), classes, kind, scale=scale,
                outputs={"test": name + Path(given["test"]).suffix} if given["test"] else {}, is_own=True,
                class_weights=weights, positive=given["positive"],
                file_columns=tuple(map(str, (*texts, label))),
                metrics=_metrics(given, kind, classes), score_titles=(("test", f"{name} (test)"),))


def _classes(labels, kind, given):
    """The different labels, in alphabetical order, or by value if all are numbers. PlainError for one label, or one in each row."""
    # A word of the dev set may have a tag that is in no training sentence; another class is a mistake in the row.
    found = pd.concat([labels[split] for split in labels if split != "test"]) if kind == "tagging" else labels["train"]
    classes = sorted(set(found))
    if numbers_in(classes).notna().all():
        classes.sort(key=float)
    if len(classes) < 2:
        raise PlainError(f"{given['train']}: all labels are {', '.join(map(repr, classes)) or 'missing'}. Classification and tagging need "
                         "at least two different labels, and tagging a list of tags in each row.")
    if kind == "classification" and len(found) > 20 and len(classes) > len(found) / 2:
        raise PlainError(f"{given['train']}: {len(classes):,} different labels in {len(found):,} rows, such as {shortened(classes, 3)}. "
                         "Set 'label' to the column of the labels, or 'kind': 'regression' if they are numbers to predict.")
    return tuple(classes)


def _check_scheme(tags, given):
    """[A warning about a mixture of schemes] or []; PlainError if a scheme is wanted, but the tags do not mark entities."""
    found = tags.explode().dropna().unique()  # missing in a sentence without words
    if not all(map(_BIO.fullmatch, found)):
        if given["scheme"]:
            raise PlainError(f"scheme={given['scheme']!r} of the task {given['name']!r} needs tags such as B-NP, I-NP and O, but the "
                             f"labels are {shortened(list(found))}. Leave it out.")
        others = [tag for tag in found if not _BIO.fullmatch(tag)]
        if 2 * len(others) < len(found):
            return [f"warning: entity_f1 is not computed, because the tags {shortened(list(map(repr, others)))} do not mark entities as "
                    "the others do. If they are mistakes, correct them"]
    elif not given["scheme"]:  # which would end the mixture
        n, others = begin_with_i(tags)
        if n and others:
            return [f"warning: {n:,} entities begin with I- and {others:,} with B-, a mixture of IOB1 and IOB2. Set 'scheme': 'iob2' (or "
                    "'bioes') to convert them"]
    return []


def _class_weights(given, classes, labels):
    """The weight of each class in the loss: inversely proportional to its rows, or as given, 1 by default.

    A tag without training rows, which only the dev set has, counts as one of one row.
    """
    weights = given["class_weights"]
    if not classes:
        raise PlainError(f"class_weights={weights!r} of the task {given['name']!r} needs classes, but the labels are numbers. Omit it.")
    if weights == "balanced":
        counts = labels.value_counts().reindex(classes, fill_value=1)
        weights = dict(counts.sum() / (len(classes) * counts))
    for label in weights:
        if label not in classes:
            raise PlainError(f"class_weights of the task {given['name']!r}: there is no label {label!r}. The labels are "
                             f"{shortened(classes)}.")
    return tuple(float(weights.get(label, 1)) for label in classes)


def _metrics(given, kind, labels):
    """The metrics of a task, or the first two that apply to its kind and labels; PlainError for one that does not apply."""
    has_entities = all(map(_BIO.fullmatch, labels)) and set(labels) - {"O"}
    applies = {"f1": len(labels) == 2 or kind == "questions", "entity_f1": has_entities}
    applicable = [metric for metric in METRICS_OF_KIND[kind] if applies.get(metric, True)]
    for metric in given["metrics"] or ():
        if metric not in applicable:
            raise PlainError(f"metrics={metric!r} of the task {given['name']!r} does not apply to {kind} with the labels "
                             f"{shortened(labels) or '(numbers)'}. Choose from {', '.join(applicable)}, or set 'kind'. f1 needs two "
                             "labels, entity_f1 tags such as B-NP, I-NP and O.")
    if given["metrics"] and given["metrics"][0] == "rmse":
        raise PlainError(f"metrics of the task {given['name']!r} begins with 'rmse', but the best run is the one with the highest value "
                         "of the first metric. Choose another first metric.")
    return tuple(given["metrics"] or (applicable if kind == "regression" else applicable[:2]))


def _description(task, reason):
    """What was found out, to be printed. reason: why the kind was guessed."""
    found = "scores with mean {:.4g} and standard deviation {:.4g}".format(*task.scale) if task.is_regression else \
        f"{len(task.labels)} labels"
    are_numbers = task.kind == "classification" and numbers_in(task.labels).notna().all()
    hint = " (set 'kind': 'regression' to predict numbers)" if are_numbers else ""
    positive = f" (f1 of {task.positive or task.labels[1]!r}; 'positive' selects the label)" if "f1" in task.metrics else ""
    kind = f"{task.kind} because {reason} ('kind' overrides it)" if reason else task.kind
    return f"{kind}, {found}; metrics {', '.join(task.metrics)}{positive}{hint}"


def split_rows(rows, task, share):
    """{"train", "validation"}: a share of the rows of each class becomes the dev set, drawn with a fixed seed.

    Of a class with several rows, both sets have at least one. Scores and sentences of words count as one class. Of several labels of a
    text, the rarest counts.
    If the Dataset has a column "group", the rows of a group stay together: of 100 random divisions of the groups, it is the one whose
    dev set is closest to that share of each class.
    """
    classes = pd.Series([0] * len(rows) if task.is_regression or task.is_tagging or task.questions else rows["label"][:])
    if task.is_multilabel:
        counts = classes.explode().value_counts()
        classes = classes.map(lambda labels: min(labels, key=counts.get, default=-1))
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
    with as_plain_error(f"Cannot take a dev set of {share} of the rows from {len(set(groups)):,} 'groups' (of questions: texts). Use more "
                        "groups, or set 'dev' to a file or another share.", ValueError):
        _, dev = min(divisions, key=lambda rows: wanted.sub(classes[rows[1]].value_counts(), fill_value=0).abs().sum())
    return classes.index.isin(dev)


def _shared_texts(splits, task):
    """A warning for each set with labels whose texts are also in the training set."""
    texts = {split: list(map(str, zip(*(rows[name][:] for name in task.texts)))) for split, rows in splits.items()}
    shared = {split: sum(map(set(texts["train"]).__contains__, found)) for split, found in texts.items() if split != "train"}
    return [f"warning: {n:,} of {len(texts[split]):,} texts in {split} are also in the training set, which makes its scores too high"
            for split, n in shared.items() if n]


def _suspect_labels(task):
    """Warnings about labels that look like mistakes."""
    bare = lambda text: text.strip(" []()'\"")
    parts = {label: {*map(bare, re.split("[,;/]", label))} - {bare(label)} for label in task.labels}
    plain = {label: " ".join(label.split()).casefold() for label in task.labels}
    found = {"look like several (if they are, set 'separator')": [label for label in parts if parts[label] & {*map(bare, task.labels)}],
             "differ in spaces or capitals only": [label for label in plain if [*plain.values()].count(plain[label]) > 1]}
    return [f"warning: labels that {text}: {shortened(list(map(repr, labels)))}" for text, labels in found.items() if labels]


def _label_counts(splits, task):
    """A line about the rows (of tags: the words) of each label in each split, and a warning about labels of few rows."""
    counts = pd.DataFrame({split: pd.Series(rows["label"][:]).explode().value_counts() for split, rows in splits.items()})
    counts = counts.reindex(range(len(task.labels))).fillna(0).astype(int).set_axis(task.labels)
    of_split = [f"{split}: {shortened([f'{label} {n:,}' for label, n in column.items()])}" for split, column in counts.items()]
    lines = [f"labels in {'; '.join(of_split)}"]
    few = [f"{label} ({split} {n})" for split in ("train", "validation") for label, n in counts[split].items() if n < MIN_ROWS]
    warning = f"warning: fewer than {MIN_ROWS} rows of {shortened(few)}: scores say little about such labels. Add rows, or set 'dev'."
    return [*lines, warning] if few else lines
