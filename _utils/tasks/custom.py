"""Own tasks: the dictionary that describes one in `tasks`, and its tables, from which kind and labels follow."""
import re
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from _utils.config import MyConfig
from _utils.errors import UserError
from _utils.keys import FileName, Positive, Text, accepted, list_of, number
from _utils.tasks.base import Task
from _utils.tasks.glue import TASKS
from _utils.tasks.guess import kind_of
from _utils.tasks.kinds import KINDS
from _utils.tasks.multilabel import SEPARATOR
from _utils.tasks.own_tables import columns_of
from _utils.tasks.question_files import is_question_file
from _utils.tasks.table_files import FORMATS

QUESTION_TASKS = "squad squadv1 newsqa naturalqs triviaqa searchqa".split()  # of Google's code (F52)
_SUFFIXES = *FORMATS, ".jsonl.gz"
_File = Annotated[str, Field(pattern=rf"(?i)({'|'.join(map(re.escape, _SUFFIXES))})$", description=(
    f"a file that ends with {', '.join(_SUFFIXES)}"))]
_Column = Annotated[str | int, Field(description=(
    "the name of a column (in CoNLL files its number from 0, or -1 for the last)"))]
_TAKEN = {*TASKS, *(Path(file).stem.lower() for task in TASKS.values() for file in task.test_files.values())}
_KEYS = {
    "name": FileName,
    "train": _File,
    "dev": number("a share of the training rows such as .1", gt=0, lt=1) | _File,
    "test": _File,
    "text": Annotated[list_of(_Column, "the name of a column, or a list of two"), Field(max_length=2)],
    "label": list_of(_Column, "the name of a column, or a list of columns with 1 or 0, one for each label"),
    "separator": Text,
    "groups": _Column,
    "kind": Literal[tuple(KINDS)],
    "metrics": list_of(Text, "the name of a metric, or a list of names; the first one ranks the runs"),
    "positive": Text,
    "class_weights": Literal["balanced"] | Annotated[dict[Text, Positive], Field(description="{'label': weight}")],
    **{key: values for kind in KINDS.values() for key, values in kind.keys.items()},
}
# None is the same as leaving a key out, and no value to advise.
_OPTIONAL_KEYS = {key: Annotated[kind | None, Field(description=accepted(kind))] for key, kind in _KEYS.items()}


def complete_own_task(definition):
    """The dictionary of an own task with all keys: defaults for missing ones, lists for text and metrics.

    Raises UserError for an unknown key or value, and for the name of a GLUE task. No file is read.
    """
    defaults = dict.fromkeys(_KEYS) | {"dev": .1, "separator": SEPARATOR}
    values = defaults | {key: value for key, value in definition.items() if value is not None}
    if values["train"] is None:
        raise UserError(f"The task {definition} has no training file. Set 'train' to {accepted(_KEYS['train'])}.")
    task = MyConfig(values, _OPTIONAL_KEYS)
    path = Path(task.train)
    stem = path.name.partition(".")[0]
    task.name = task.name or (path.resolve().parent.name if stem.lower() in ("train", "training") else stem)
    if task.name.lower() in _TAKEN:  # its predictions would replace GLUE's
        raise UserError(f"Invalid value for tasks: an own task cannot be called {task.name!r}, because GLUE has a "
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
    files = {file.name.partition(".")[0]: str(file) for end in ("parquet", "json*") for file in path.glob(f"*.{end}")}
    files = {split: file for split, file in files.items() if split in ("train", "dev", "test")}
    return complete_own_task({"name": name, "kind": "questions", "train": f"{path}/train.json", **files})


def load_own_task(definition):
    """TaskData of an own task.

    definition: from `complete_own_task`. Raises UserError for missing files and as `Task.from_files`.
    """
    definition = dict(definition)
    files = {"train": definition["train"], "validation": definition["dev"], "test": definition["test"]}
    files = {split: path for split, path in files.items() if isinstance(path, str)}
    for path in files.values():
        if not Path(path).is_file():
            raise UserError(f"File not found: {path!r}. Correct the path in tasks, or put the file there.")
    if definition["kind"] != "questions" and (definition["questions"] or is_question_file(definition["train"])):
        raise UserError(f"{definition['train']}: to answer questions in the format of SQuAD or MRQA, set 'kind': "
                        f"'questions' of the task {definition['name']!r}, and leave 'text' and 'label' out; for "
                        f"another "
                        "kind, leave 'questions' out.")
    kind, reason = KINDS.get(definition["kind"]), ""
    tables = {split: (kind or Task).read_file(path) for split, path in files.items()}
    if kind is None:
        name, reason = kind_of(tables["train"], *columns_of(definition, tables), definition["separator"])
        kind = KINDS[name]
    for other in KINDS.values():
        for key in other.keys.keys() - kind.keys.keys():
            if definition[key] is not None:
                raise UserError(f"{key!r} needs 'kind': {other.kind!r}, but the task {definition['name']!r} is "
                                f"{kind.kind}. Set 'kind', or leave {key!r} out.")
    return kind.from_files(definition, tables, reason)
