"""The dictionary of a custom task in `tasks`: its keys, their types and defaults.

It is checked before PyTorch and pandas are imported.
"""
import math
import os
import re
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

from annotated_types import Predicate
from pydantic import BeforeValidator, ConfigDict, Field, NonNegativeFloat, PositiveInt
from pydantic.dataclasses import dataclass

from _utils.config import MyConfig
from _utils.errors import UserError
from _utils.keys import FileName, Text, accepted, list_of, number
from _utils.names import HUB_ID, check_file, hub_parts
from _utils.tasks.task_names import GLUE_TASKS, GLUE_TEST_FILES

QUESTION_TASKS = "squad squadv1 newsqa naturalqs triviaqa searchqa".split()  # of Google's code (F52)
TEXTS_ADVICE = ("In .txt, .conll and .bio files a line has a word and its tag, and an empty line ends each sentence. "
                "Write texts with a label to a .csv or .tsv file with a header, such as text<TAB>label.")
SEPARATOR = "|"  # between several labels of a text
# Extensions of files, and their formats.
FORMATS = {".csv": "csv", ".tsv": "tsv", ".jsonl": "JSON lines", ".json": "JSON lines", ".parquet": "parquet",
           ".conll": "CoNLL", ".txt": "CoNLL", ".bio": "CoNLL"}
_SUFFIXES = *FORMATS, ".jsonl.gz"
# Types of values.
_IS_FILE = re.compile(rf"(?i).*({'|'.join(map(re.escape, _SUFFIXES))})")
_OTHER_FILES = re.compile(r"(?i).*\.(gz|bz2|xz|zst|zip|tar|xls|xlsx|ods|xml|html|pdf|docx|arrow|bak)")
_SPLIT = re.compile(r"\w+(\[.*\])?")
HUB_TABLE_NOTATION = "owner/name:configuration:split"  # parts may be empty, or left out at the end


class HubTable(NamedTuple):
    """A split of a dataset on the hub. config: None: the only one, or the default.   split: as in `datasets`."""
    path: str
    config: str | None
    split: str


def hub_table(source):
    """The HubTable of a source of rows in HUB_TABLE_NOTATION; None for another source, such as a file that exists."""
    path, *parts = hub_parts(str(source))
    is_file = _IS_FILE.fullmatch(str(source)) or _OTHER_FILES.fullmatch(path) or os.path.isfile(path)
    if is_file or not re.fullmatch(HUB_ID, path) or len(parts) > 2:
        return None
    config, split = [*parts, "", ""][:2]
    return HubTable(path, config or None, split or "train")


def split_on_hub(table, split):
    """The source of a split of the dataset of a HubTable; another source stays as it is."""
    return f"{table.path}:{table.config or ''}:{split}" if _SPLIT.fullmatch(split) else split


_WHERE = f"a file that ends with {', '.join(_SUFFIXES)}, or a dataset of the hub, {HUB_TABLE_NOTATION}"
_is_table = lambda source: _IS_FILE.fullmatch(source) or hub_table(source)
_File = Annotated[str, Predicate(_is_table), Field(description=_WHERE)]
_FileOrSplit = Annotated[str, Predicate(lambda source: _is_table(source) or _SPLIT.fullmatch(source)),
                         Field(description=f"{_WHERE}, or a split of the dataset of 'train'")]
_Column = Annotated[str, Field(strict=False, coerce_numbers_to_str=True, description=(
    "the name of a column (in CoNLL files its number from 0, or -1 for the last)"))]


def _columns(description, **limits):
    """A list of columns, or a single one, whose name may have commas."""
    as_list = BeforeValidator(lambda value: [*value] if isinstance(value, list | tuple) else [value])
    return Annotated[list[_Column], as_list, Field(min_length=1, description=description, **limits)]


@dataclass(frozen=True, config=ConfigDict(extra="forbid"))
class QuestionOptions:
    """Settings of question answering. The defaults are Google's (F63).

    joint: predict the end of an answer given its start, else independently.   answerability: predict whether there is
    an answer with a separate layer, else from the scores of [CLS].   answerable_from_start: this layer sees, beside
    [CLS], the mean of the hidden states weighted by the probabilities of the start; else it is linear in [CLS].
    doc_stride: tokens from the beginning of a span to that of the next one.   max_query_length: tokens of a question;
    the rest is cut.   max_answer_length: in tokens.   n_best: answers per question.   beam: starts per span, and ends
    per start, with `joint`.   na_threshold: null odds above which a question counts as unanswerable.
    answerable_weight: of the answerability in the loss.   has_unanswerable: score as SQuAD 2.0, else as SQuAD 1.1 and
    MRQA.
    """
    joint: bool = True
    answerability: bool = True
    answerable_from_start: bool = True
    doc_stride: PositiveInt = 128
    max_query_length: PositiveInt = 64
    max_answer_length: PositiveInt = 30
    n_best: PositiveInt = 20
    beam: PositiveInt = 20
    na_threshold: float = -2.75
    answerable_weight: NonNegativeFloat = .5
    has_unanswerable: bool = False

    @property
    def n_starts(self):
        """Starts per span, and ends per start: of independent ones as many as answers (F73)."""
        return self.beam if self.joint else self.n_best

    @property
    def threshold(self):
        """na_threshold, if there are unanswerable questions."""
        return self.na_threshold if self.has_unanswerable else math.inf


_Questions = Annotated[dict, Predicate(lambda options: QuestionOptions(**options)), Field(description=(
    f"a dictionary with some of {', '.join(QuestionOptions.__annotations__)}"))]
_OF_TEXTS = "text", "label", "groups"
_OF_WORDS = *_OF_TEXTS, "class_weights", "scheme"
# {kind of task: keys that not all kinds have}
KEYS_OF_KINDS = {
    "classification": (*_OF_TEXTS, "class_weights", "positive"),
    "regression": _OF_TEXTS,
    "tagging": (*_OF_WORDS, "sentence"),
    "spans": _OF_WORDS,
    "multilabel": (*_OF_TEXTS, "class_weights", "separator", "threshold"),
    "choices": (*_OF_TEXTS, "choices", "first_choice"),
    "questions": ("questions",),
}
_TAKEN = {*GLUE_TASKS,
          *(Path(file).stem.lower() for files in GLUE_TEST_FILES.values() for file in files.values())}
_KEYS = {
    "name": FileName,
    "train": _File,
    "dev": number("a share of the training rows such as .1", gt=0, lt=1) | _FileOrSplit,
    "test": _FileOrSplit,
    "text": _columns("the name of a column, or a list of two", max_length=2),
    "label": _columns("the name of a column, or a list of columns with 1 or 0, one for each label"),
    "separator": Text,
    "groups": _Column,
    "sentence": _Column,
    "kind": Literal[tuple(KEYS_OF_KINDS)],
    "metrics": list_of(Text, "the name of a metric, or a list of names; the first one ranks the runs"),
    "positive": Text,
    "class_weights": Literal["balanced"],
    "scheme": Literal["iob2", "bioes"],
    "threshold": number("a number between 0 and 1", gt=0, lt=1) | Literal["best"],
    "questions": _Questions,
    "choices": _columns("the list of the columns of the choices"),
    "first_choice": Literal[0, 1, "A", "a"],
}
# None is the same as leaving a key out, and no value to advise. Only the training file is required.
_OPTIONAL_KEYS = {key: Annotated[kind | None, Field(description=accepted(kind))] for key, kind in _KEYS.items()}
_OPTIONAL_KEYS["train"] = _File


def complete_custom_task(definition):
    """The dictionary of a custom task with all keys: None for missing ones, lists for text and metrics.

    Raises UserError for an unknown key or value, and for the name of a GLUE task. No file is read.
    """
    task = MyConfig({**definition, "train": definition.get("train")}, _OPTIONAL_KEYS)
    on_hub = hub_table(task.train)
    path = Path(on_hub.path if on_hub else task.train)
    stem = path.name.partition(".")[0]
    task.name = task.name or (path.resolve().parent.name if stem.lower() in ("train", "training") else stem)
    if task.name.lower() in _TAKEN:  # its predictions would replace GLUE's
        raise UserError(f"Invalid value for tasks: a custom task cannot be called {task.name!r}, because GLUE has a "
                        "task of that name. Set 'name' to another one.")
    if task.groups is not None and isinstance(task.dev, str):
        raise UserError(f"'groups' of the task {task.name!r} keeps rows together when a dev set is taken from the "
                        f"training rows, but 'dev' is {task.dev!r}. Leave one of them out.")
    for key in ("dev", "test") if not on_hub else ():
        if isinstance(task[key], str) and _SPLIT.fullmatch(task[key]):
            raise UserError(f"Invalid value for {key!r} of the task {task.name!r}: {task[key]!r} is a split, but "
                            f"'train' is the file {task.train!r}. Use {_WHERE}.")
    _check_extensions(task)
    return dict(task)


def keys_without_effect(definition):
    """[A message with the keys of a definition that do not apply to its kind], or []."""
    of_kinds = {key for keys in KEYS_OF_KINDS.values() for key in keys} - {*KEYS_OF_KINDS[definition["kind"]]}
    # A classification may have the default separator, which says that other characters are part of the labels.
    unused = sorted(key for key in of_kinds if definition[key] not in (None, SEPARATOR))
    return [f"no effect with kind={definition['kind']!r}: {', '.join(unused)}"] if unused else []


def is_conll(path):
    """Whether a file has CoNLL columns, by its name."""
    return FORMATS.get(Path(path).suffix.lower()) == "CoNLL"


def _check_extensions(task):
    """UserError for a file of CoNLL columns for a kind or key without them, or beside another file."""
    files = [path for path in (task.train, task.dev, task.test) if isinstance(path, str)]
    words, others = list(filter(is_conll, files)), [repr(path) for path in files if not is_conll(path)]
    if task.kind not in (None, "tagging"):
        others = [f"the kind {task.kind!r}"]
    if task.sentence is not None:
        others = [f"sentence={task.sentence!r}"]
    if words and others and task.kind != "questions":
        raise UserError(f"The file {words[0]!r} of the task {task.name!r} does not fit {others[0]}. {TEXTS_ADVICE}")


def question_task(name, folder):
    """The dictionary of a task in QUESTION_TASKS, whose files are <folder>/<name>/train.json, dev.json and test.json.

    Instead of .json they may end with .jsonl, .jsonl.gz or .parquet.
    """
    path = Path(folder or "datasets", name)
    files = {split: str(file) for split in ("train", "dev", "test") for file in path.glob(f"{split}.[jp]*")}
    return complete_custom_task({"name": name, "kind": "questions", "train": f"{path}/train.json", **files})


def files_of(definition):
    """{split: path, or table on the hub} of a custom task. Raises UserError for a missing file."""
    files = {"train": definition["train"], "validation": definition["dev"], "test": definition["test"]}
    files = {split: path for split, path in files.items() if isinstance(path, str)}
    for path in files.values():
        if not hub_table(path) and not (hub_table(definition["train"]) and _SPLIT.fullmatch(path)):
            check_file(path, "Correct the path in tasks, or put the file there.")
    return files
