"""The kinds of custom tasks, and which of them a table has."""
import re
from functools import partial

from pydantic import TypeAdapter

from _utils.custom.cells import is_nested, labels_in, numbers_in, refuse
from _utils.custom.choices import Choices
from _utils.custom.custom_regression import CustomRegression
from _utils.custom.definition import SEPARATOR, files_of, is_conll
from _utils.custom.hub_tables import with_hub_splits
from _utils.custom.multilabel import MultiLabel
from _utils.custom.questions import Questions
from _utils.custom.spans import Spans
from _utils.custom.tag_schemes import BIO
from _utils.custom.tagging import Tagging
from _utils.custom.task import Classification
from _utils.custom.task_tables import check_separator, choose_columns
from _utils.tasks.tables import as_label

# as 'kind' of a custom task names them
KINDS = {kind.kind: kind for kind in (
    Classification, CustomRegression, Tagging, Spans, MultiLabel, Questions, Choices)}
_NUMBER_WITH_COMMA = re.compile(r"[+-]?[\d.]*(,[\d.]+)+")
FEW = .05  # share of the rows that may not decide on the kind by themselves


def task_of_data(data):
    """The Task of which `CustomTask.as_data` returned the data. ValueError for invalid data."""
    fields = {**TypeAdapter(dict).validate_python(data)}
    kind = KINDS.get(str(fields.pop("kind", None)))
    return TypeAdapter(kind).validate_python(fields)  # no value is valid for kind=None


def load_custom_task(definition):
    """TaskData of a custom task.

    definition: from `complete_custom_task`. Raises UserError for missing files and, with file, line and column where
    possible, for their content.
    """
    definition = with_hub_splits(definition)
    read_file = KINDS[definition["kind"] or "classification"].read_file
    tables = {split: read_file(path) for split, path in files_of(definition).items()}
    kind = definition["kind"] or kind_of(tables["train"], definition)
    return KINDS[kind].load({**definition, "kind": kind, "dev": definition["dev"] or .1}, tables)


def kind_of(table, definition):
    """The kind that follows from the training labels.

    Words in rows of their own have tags, numbers are scores if some have a fraction, and anything else is a class. If
    less than a tenth of the labels are not numbers, their rows are malformed. UserError for labels that may be of
    another kind, and if the kind depends on at most one row in twenty.
    """
    if is_conll(definition["train"]) or definition["sentence"]:
        return "tagging"
    texts, columns = choose_columns({"train": table}, definition)
    if len(columns) > 1:
        return "multilabel"
    labels = labels_in(table, columns[0])
    strings, ask = labels.map(as_label), partial(refuse, table.source, labels)
    numbers, has_comma = numbers_in(strings), strings.map(_NUMBER_WITH_COMMA.fullmatch).notna()
    ask(labels.map(is_nested), "labels are character spans", "Set 'kind' to 'spans'.")
    ask(labels.map(lambda cell: isinstance(cell, list)), "labels are lists",
        "Set 'kind' to 'tagging' if they are the tags of the words of a text, or to 'multilabel'.")
    ask(has_comma & ((has_comma | numbers.notna()).mean() > .9), "labels are numbers with a comma",
        "Write them as 1234.5; if they are several labels of a text, set 'kind' to 'multilabel' and 'separator' to "
        "','; else set 'kind' to 'classification'.")
    ask(_are_as_long(table.rows.loc[labels.index, texts[0]], strings), "labels have as many words as their texts",
        "Set 'kind' to 'tagging' if they are tags, or to 'classification'.")
    has_fraction = (numbers.notna().mean() > .9) & (numbers % 1 > 0)
    ask(has_fraction & (has_fraction.mean() <= FEW), "labels have a fraction",
        "Set 'kind' to 'regression' or 'classification', or correct these rows.")
    if has_fraction.any():
        return "regression"
    separator = definition["separator"] or SEPARATOR
    ask(strings.str.contains(separator, regex=False), f"labels contain {separator!r}",
        "Set 'kind' to 'multilabel' if it separates several labels of a text, or to 'classification'.")
    check_separator(table, columns[0], definition)
    return "classification"


def _are_as_long(texts, labels):
    """Whether each label, a string, has as many words as its text; False for all if few have.

    Texts of one word are meant only if all labels mark entities.
    """
    n_words = texts.map(lambda text: len(text.split()) if isinstance(text, str) else 0)
    least = 1 if labels.map(BIO.fullmatch).notna().all() else 2
    are_as_long = (labels.str.split().str.len() == n_words) & (n_words >= least)
    return are_as_long & (are_as_long.mean() > .9)

