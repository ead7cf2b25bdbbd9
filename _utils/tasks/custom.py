"""Custom tasks: the dictionary that describes one in `tasks`, and its tables, from which kind and labels follow."""
import re
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from _utils.config import MyConfig
from _utils.errors import UserError
from _utils.keys import FileName, Positive, Text, accepted, list_of, number
from _utils.tasks.base import Task
from _utils.tasks.custom_tables import columns_of
from _utils.tasks.glue import TASKS
from _utils.tasks.kinds import KINDS
from _utils.tasks.multilabel import SEPARATOR
from _utils.tasks.spans import is_nested
from _utils.tasks.table_files import FORMATS
from _utils.tasks.tables import Column, as_label, check_file, items, labels_in, numbers_in

_QUESTIONS = re.compile("'(qas|answer_start)':")  # keys in files of questions
FEW = .05  # share of the rows that may not decide on the kind by themselves
QUESTION_TASKS = "squad squadv1 newsqa naturalqs triviaqa searchqa".split()  # of Google's code (F52)
_SUFFIXES = *FORMATS, ".jsonl.gz"
_File = Annotated[str, Field(pattern=rf"(?i)({'|'.join(map(re.escape, _SUFFIXES))})$", description=(
    f"a file that ends with {', '.join(_SUFFIXES)}"))]
_TAKEN = {*TASKS, *(Path(file).stem.lower() for task in TASKS.values() for file in task.test_files.values())}
_KEYS = {
    "name": FileName,
    "train": _File,
    "dev": number("a share of the training rows such as .1", gt=0, lt=1) | _File,
    "test": _File,
    "text": Annotated[list_of(Column, "the name of a column, or a list of two"), Field(max_length=2)],
    "label": list_of(Column, "the name of a column, or a list of columns with 1 or 0, one for each label"),
    "separator": Text,
    "groups": Column,
    "kind": Literal[tuple(KINDS)],
    "metrics": list_of(Text, "the name of a metric, or a list of names; the first one ranks the runs"),
    "positive": Text,
    "class_weights": Literal["balanced"] | Annotated[dict[Text, Positive], Field(description="{'label': weight}")],
    **{key: values for kind in KINDS.values() for key, values in kind.keys.items()},
}
# None is the same as leaving a key out, and no value to advise. Only the training file is required.
_OPTIONAL_KEYS = {key: Annotated[kind | None, Field(description=accepted(kind))] for key, kind in _KEYS.items()}
_OPTIONAL_KEYS["train"] = _File


def complete_custom_task(definition):
    """The dictionary of a custom task with all keys: defaults for missing ones, lists for text and metrics.

    Raises UserError for an unknown key or value, and for the name of a GLUE task. No file is read.
    """
    defaults = dict.fromkeys(_KEYS) | {"dev": .1, "separator": SEPARATOR}
    values = defaults | {key: value for key, value in definition.items() if value is not None}
    task = MyConfig(values, _OPTIONAL_KEYS)
    path = Path(task.train)
    stem = path.name.partition(".")[0]
    task.name = task.name or (path.resolve().parent.name if stem.lower() in ("train", "training") else stem)
    if task.name.lower() in _TAKEN:  # its predictions would replace GLUE's
        raise UserError(f"Invalid value for tasks: a custom task cannot be called {task.name!r}, because GLUE has a "
                        "task of that name. Set 'name' to another one.")
    if task.groups is not None and isinstance(task.dev, str):
        raise UserError(f"'groups' of the task {task.name!r} keeps rows together when a dev set is taken from the "
                        f"training rows, but 'dev' is the file {task.dev!r}. Leave one of them out.")
    return dict(task)


def question_task(name, folder):
    """The dictionary of a task in QUESTION_TASKS, whose files are <folder>/<name>/train.json, dev.json and test.json.

    Instead of .json they may end with .jsonl, .jsonl.gz or .parquet.
    """
    path = Path(folder or "datasets", name)
    files = {split: str(file) for split in ("train", "dev", "test") for file in path.glob(f"{split}.[jp]*")}
    return complete_custom_task({"name": name, "kind": "questions", "train": f"{path}/train.json", **files})


def load_custom_task(definition):
    """TaskData of a custom task.

    definition: from `complete_custom_task`. Raises UserError for missing files and as `Task.from_files`.
    """
    definition = dict(definition)
    files = {"train": definition["train"], "validation": definition["dev"], "test": definition["test"]}
    files = {split: path for split, path in files.items() if isinstance(path, str)}
    for path in files.values():
        check_file(path, "Correct the path in tasks, or put the file there.")
    kind, reason = KINDS.get(definition["kind"]), ""
    tables = {split: (kind or Task).read_file(path) for split, path in files.items()}
    if kind is None:
        _check_for_questions(tables["train"])
        name, reason = kind_of(tables["train"], *columns_of(definition, tables), definition["separator"])
        kind = KINDS[name]
    of_others = {key for other in KINDS.values() for key in other.keys} - kind.keys.keys()
    if unused := [key for key in (*sorted(of_others), *kind.unused) if definition[key] is not None]:
        raise UserError(f"{unused[0]!r} does not apply to the kind {kind.kind!r}. Leave it out of the task "
                        f"{definition['name']!r}, or set 'kind' to another one.")
    return kind.from_files(definition, tables, reason)


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
    is a class. UserError if the kind depends on at most one row in twenty.
    """
    if len(columns) > 1:
        return "multilabel", ""
    labels = labels_in(table, columns[0])
    strings, words = labels.map(as_label), table.rows.loc[labels.index, texts[0]]
    are_lists = lambda cells: cells.map(lambda cell: isinstance(cell, list)).astype(bool)
    n_items = lambda cells: cells.map(items).astype(object).str.len()
    is_span, is_list, numbers = labels.map(is_nested).astype(bool), are_lists(labels), numbers_in(strings)
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
