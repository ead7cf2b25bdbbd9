"""The kinds of custom tasks, and which of them a table has."""
from functools import partial

from pydantic import TypeAdapter

from _utils.custom.cells import are_local_numbers, is_nested, labels_in, numbers_in
from _utils.custom.choices import Choices
from _utils.custom.definition import KEYS_OF_KINDS, SEPARATOR, files_of, is_conll
from _utils.custom.hub_tables import with_hub_splits
from _utils.custom.loading import check_lists
from _utils.custom.multilabel import MultiLabel
from _utils.custom.questions import Questions
from _utils.custom.regression import CustomRegression
from _utils.custom.spans import Spans
from _utils.custom.tagging import Tagging
from _utils.custom.task import Classification
from _utils.errors import UserError
from _utils.tasks.tables import as_label

# as 'kind' of a custom task names them
KINDS = {kind.kind: kind for kind in (
    Classification, CustomRegression, Tagging, Spans, MultiLabel, Questions, Choices)}
FEW = .05  # share of the rows that may not decide on the kind by themselves


def task_of_data(data):
    """The Task of which `CustomTask.as_data` returned the data. ValueError for invalid data."""
    fields = {**TypeAdapter(dict).validate_python(data)}
    kind = KINDS.get(str(fields.pop("kind", None)))
    return TypeAdapter(kind).validate_python(fields)  # no value is valid for kind=None


def load_custom_task(definition):
    """TaskData of a custom task.

    definition: from `complete_custom_task`. Raises UserError for missing files and as `Loading.load`.
    """
    definition = with_hub_splits(definition)
    files, kind = files_of(definition), KINDS.get(definition["kind"])
    read_file = (kind or Classification).Loading.read_file
    tables = {split: read_file(path) for split, path in files.items()}
    kind = kind or KINDS[kind_of(tables["train"], definition)]
    of_kinds = sorted({key for keys in KEYS_OF_KINDS.values() for key in keys} - {*KEYS_OF_KINDS[kind.kind]})
    if unused := [key for key in of_kinds if definition[key] is not None]:
        raise UserError(f"{unused[0]!r} does not apply to the kind {kind.kind!r}. Leave it out of the task "
                        f"{definition['name']!r}, or set 'kind' to another one.")
    return kind.Loading(kind, definition).load(tables)


def kind_of(table, definition):
    """The kind that follows from the training labels.

    CoNLL columns are tags, numbers are scores if some have a fraction, and anything else is a class. If less than a
    tenth of the labels are not numbers, their rows are malformed. UserError for labels that may be of another kind, and
    if the kind depends on at most one row in twenty.
    """
    if is_conll(definition["train"]):
        return "tagging"
    texts, columns = Classification.Loading(Classification, definition).columns({"train": table})
    if len(columns) > 1:
        raise UserError(f"'label' of the task {definition['name']!r} names {len(columns)} columns. If each label has a "
                        "column of 1 or 0, set 'kind' to 'multilabel', else 'label' to one column.")
    if len(table.rows) == 1:
        raise UserError(f"{table.source} has one row, and training needs more. If that is a JSON object with a list "
                        "for each column, write an object for each row instead: in pandas, "
                        "DataFrame.to_json(path, orient='records', lines=True).")
    check_lists(table, columns)
    labels, separator = labels_in(table, columns[0]), definition["separator"] or SEPARATOR
    strings, refuse = labels.map(as_label), partial(_refuse, table, labels)
    numbers, is_local = numbers_in(strings), are_local_numbers(labels)
    refuse(labels.map(is_nested), "are character spans", "'spans'")
    refuse(labels.map(lambda cell: isinstance(cell, list)), "are lists",
           "'tagging' if they are the tags of the words of a text, or to 'multilabel'")
    refuse(is_local & ((is_local | numbers.notna()).mean() > .9),
           "may be numbers with a decimal comma or with separators of thousands",
           "'classification', or to 'regression' and write them as 1234.5")
    refuse(_are_as_long(table.rows.loc[labels.index, texts[0]], strings), "have as many words as their texts",
           "'tagging' if they are tags, or to 'classification'")
    has_fraction = (numbers.notna().mean() > .9) & (numbers % 1 > 0)
    refuse(has_fraction & (has_fraction.mean() <= FEW), "have a fraction", "'regression' or 'classification'")
    if has_fraction.any():
        return "regression"
    refuse(strings.str.contains(separator, regex=False), f"contain {separator!r}",
           "'multilabel' if it separates several labels of a text, or to 'classification'")
    return "classification"


def _are_as_long(texts, labels):
    """Whether each label, a string, has as many words as its text, of several words; False for all if few have."""
    n_words = texts.map(lambda text: len(text.split()) if isinstance(text, str) else 0)
    are_as_long = (labels.str.split().str.len() == n_words) & (n_words > 1)
    return are_as_long & (are_as_long.mean() > .9)


def _refuse(table, labels, is_reason, what, kinds):
    """UserError if some labels, a Series, may be of another kind.

    is_reason: whether each label is a reason.   what: is true of these.   kinds: to choose from.
    """
    is_reason = is_reason.astype(bool)
    if is_reason.any():
        place = is_reason.idxmax()
        raise UserError(f"{table.source}: {is_reason.sum():,} of {len(labels):,} labels {what}, such as "
                        f"{labels[place]!r:.60} in {place}. Set 'kind' to {kinds}, or correct these rows.")
