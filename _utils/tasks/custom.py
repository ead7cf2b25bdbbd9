"""Custom tasks: the tables of the dictionary that describes one in `tasks`, from which kind and labels follow."""
import re

from _utils.errors import UserError
from _utils.tasks.base import Task
from _utils.tasks.custom_tables import columns_of
from _utils.tasks.definition import KEYS_OF_KINDS, files_of, is_conll
from _utils.tasks.kinds import KINDS
from _utils.tasks.spans import is_nested
from _utils.tasks.tables import LOCAL_NUMBER, as_label, items, labels_in, numbers_in

_QUESTIONS = re.compile("'(qas|answer_start)':")  # keys in files of questions
FEW = .05  # share of the rows that may not decide on the kind by themselves


def load_custom_task(definition):
    """TaskData of a custom task.

    definition: from `complete_custom_task`. Raises UserError for missing files and as `Task.from_files`.
    """
    definition = dict(definition)
    files = files_of(definition)
    kind, reason = KINDS.get(definition["kind"]), ""
    tables = {split: (kind or Task).read_file(path) for split, path in files.items()}
    if kind is None:
        _check_for_questions(tables["train"])
        columns = columns_of(definition, tables)
        _check_rows(tables["train"])
        name, reason = kind_of(tables["train"], *columns, definition["separator"])
        kind = KINDS[name]
    of_others = {key for keys in KEYS_OF_KINDS.values() for key in keys} - KEYS_OF_KINDS[kind.kind].keys()
    if unused := [key for key in (*sorted(of_others), *kind.unused) if definition[key] is not None]:
        raise UserError(f"{unused[0]!r} does not apply to the kind {kind.kind!r}. Leave it out of the task "
                        f"{definition['name']!r}, or set 'kind' to another one.")
    return kind.from_files(definition, tables, reason)


def _check_rows(table):
    """UserError for a training file of one row, which may be a JSON object of columns. Its values would be words."""
    if len(table.rows) == 1 and not is_conll(table.source):
        raise UserError(f"{table.source} has one row, and training needs more. If that is a JSON object with a list "
                        "for each column, write an object for each row instead: in pandas, "
                        "DataFrame.to_json(path, orient='records', lines=True).")


def _check_for_questions(table):
    """UserError if a Table has keys of questions, as columns or in lists and dictionaries of its first rows."""
    nested = [cell for cell in table.rows[:100].to_numpy().ravel() if isinstance(cell, list | dict)]
    if _QUESTIONS.search(str([dict.fromkeys(table.rows), *nested])):
        raise UserError(f"{table.source}: to answer questions in the format of SQuAD or MRQA, set 'kind': 'questions' "
                        "of the task, and leave 'text' and 'label' out.")


def kind_of(table, texts, columns, separator):
    """(kind that follows from the training labels, why).

    Several columns are several labels. Character spans are tags, and so are lists if they are as long as the lists of
    words; other lists are several labels. Numbers are scores if some have a fraction; if less than a tenth of the
    labels are not numbers, their rows are malformed. Strings with the separator are several labels, and anything else
    is a class. UserError if the kind depends on at most one row in twenty, or on the meaning of a comma in numbers.
    """
    if len(columns) > 1:
        return "multilabel", ""
    labels = labels_in(table, columns[0])
    strings, words = labels.map(as_label), table.rows.loc[labels.index, texts[0]]
    are_lists = lambda cells: cells.map(lambda cell: isinstance(cell, list)).astype(bool)
    n_items = lambda cells: cells.map(items).astype(object).str.len()
    is_span, is_list, numbers = labels.map(is_nested).astype(bool), are_lists(labels), numbers_in(strings)
    _check_numbers(table, strings, separator)
    are_as_long = (n_items(words) == n_items(labels)).mean() > .5
    kind_of_lists = "tagging" if are_lists(words).any() or are_as_long else "multilabel"
    for kind, is_reason, what in (
            ("tagging", is_span.any() & (is_span | (strings == "[]")), "are character spans"),
            (kind_of_lists, is_list, "are lists"),
            ("regression", (numbers.notna().mean() > .9) & (numbers % 1 > 0), "have a fraction"),
            ("multilabel", strings.str.contains(separator, regex=False), f"contain {separator!r}")):
        if is_reason.any():
            return kind, _reason(table, labels, is_reason, what, kind)
    return "classification", ""


def _check_numbers(table, labels, separator):
    """UserError for labels that look like numbers with a decimal comma or with separators of thousands."""
    is_local = labels.str.fullmatch(LOCAL_NUMBER)
    if separator != "," and is_local.any() and (is_local | numbers_in(labels).notna()).mean() > .9:
        place = is_local.idxmax()
        raise UserError(f"{table.source}: labels such as {labels[place]!r} in {place} may be numbers with a decimal "
                        "comma or with separators of thousands, classes, or several labels. Write numbers as 1234.5, "
                        "or set 'kind' to 'regression' (which reads decimal commas), 'classification', or 'multilabel' "
                        "(with 'separator': ',').")


def _reason(table, labels, is_reason, what, kind):
    """Why labels have a kind; "" if all of them say so. UserError if few do.

    is_reason: whether each label is a reason.   what: is true of these.
    """
    n, place = is_reason.sum(), is_reason.idxmax()
    reason = f"{n:,} of {len(labels):,} labels {what}, such as {labels[place]!r:.60} in {place}"
    if is_reason.mean() <= FEW:
        raise UserError(f"{table.source}: {reason}, which would make the task {kind}. Set 'kind' to {kind!r} or "
                        "'classification', or correct these rows.")
    return "" if is_reason.all() else f" because {reason} ('kind' overrides it)"
