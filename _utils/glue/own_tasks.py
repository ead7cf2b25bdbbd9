"""Tasks of one's own: the dictionary that describes one in `tasks`, its checks and its default values."""
from pathlib import Path

from pydantic import TypeAdapter

from _utils.config import FileName, accepted, nearest
from _utils.errors import PlainError
from _utils.glue.own_files import format_of
from _utils.glue.tasks import KINDS, METRICS_OF_KIND, TASKS

# {key: (accepted values, test)}; None stands for the default, except for train.
_COLUMN = "the name of a column (in CoNLL files its number from 0, or -1 for the last)"
_is_column = lambda value: isinstance(value, str | int) and not isinstance(value, bool) and value != ""
_KEYS = {
    "name": (accepted(FileName), lambda value: isinstance(value, str)),
    "train": ("a file", lambda value: isinstance(value, str) and value),
    "dev": ("a file, or a share of the training rows such as .1",
            lambda value: isinstance(value, str) and value or isinstance(value, float) and 0 < value < 1),
    "test": ("a file", lambda value: isinstance(value, str) and value),
    "text": (f"{_COLUMN}, or a list of two", lambda value: _is_column(value) or _is_pair(value)),
    "label": (_COLUMN, _is_column),
    "kind": (", ".join(map(repr, KINDS)), lambda value: value in KINDS),
    "metrics": ("a metric, or a list of metrics, the first of which ranks the runs", lambda value: _are_names(_as_list(value))),
}
_DEFAULTS = dict.fromkeys(_KEYS) | {"dev": .1}


def _is_pair(value):
    return isinstance(value, list | tuple) and len(value) in (1, 2) and len(set(value)) == len(value) and all(map(_is_column, value))


def _as_list(value):
    return list(value) if isinstance(value, list | tuple) else [value]


def _are_names(values):
    return bool(values) and all(isinstance(value, str) for value in values) and len(set(values)) == len(values)


def complete_own_task(given):
    """The dictionary of an own task with all keys: defaults for missing ones, lists for text and metrics.

    Raises PlainError for an unknown key or value; ValueError if `given` is not a dictionary. No file is read.
    """
    if not isinstance(given, dict):
        raise ValueError
    for key, value in given.items():
        if key not in _KEYS:
            near = nearest(key, _KEYS)
            advice = f"Did you mean {near!r}?" if near else f"Choose from {', '.join(_KEYS)}."
            raise PlainError(f"Invalid value for tasks: unknown key {key!r:.40} in {given!r:.200}. {advice}")
        accepts, is_valid = _KEYS[key]
        if value is not None and not is_valid(value):
            raise PlainError(f"Invalid value for tasks: {key}={value!r:.200} in an own task. Use {accepts}.")
    task = _DEFAULTS | {key: value for key, value in given.items() if value is not None}
    if task["train"] is None:
        raise PlainError(f"Invalid value for tasks: {given!r:.200} has no training file. Set 'train' to a file.")
    for key in ("train", "dev", "test"):
        if isinstance(task[key], str):
            format_of(task[key])
    task["name"] = _checked_name(task["name"] or _name_of(task["train"]))
    task["text"] = None if task["text"] is None else _as_list(task["text"])
    task["metrics"] = None if task["metrics"] is None else _as_list(task["metrics"])
    _check_metrics(task)
    return task


def _name_of(path):
    """The stem of a training file, or its folder's name if the stem says nothing."""
    path = Path(path)
    stem = path.name.partition(".")[0]
    return path.resolve().parent.name if stem.lower() in ("train", "training") else stem


def _checked_name(name):
    try:
        TypeAdapter(FileName).validate_python(name)
    except ValueError:
        raise PlainError(f"Invalid value for tasks: name={name!r:.120} of an own task. Use {accepted(FileName)}.") from None
    taken = {known.lower() for task in TASKS.values() for known in (task.name, task.title, *(Path(test.tsv).stem for test in task.tests))}
    if name.lower() in taken:
        raise PlainError(f"Invalid value for tasks: an own task cannot be called {name!r}, because GLUE has a task of that name. Set "
                         "'name' to another one.")
    return name


def _check_metrics(task):
    """PlainError for a metric that does not exist, or not for the kind of the task if that is set."""
    allowed = METRICS_OF_KIND[task["kind"]] if task["kind"] else sorted(set().union(*METRICS_OF_KIND.values()))
    for metric in task["metrics"] or ():
        if metric not in allowed:
            of_kind = f" for kind={task['kind']!r}" if task["kind"] else ""
            raise PlainError(f"Invalid value for tasks: metrics={metric!r:.40} of {task['name']}. Choose from "
                             f"{', '.join(allowed)}{of_kind}.")


def names_of(tasks):
    """The names of the entries of `tasks`, in their order; an entry is a name of GLUE's, or the dictionary of an own task."""
    return [task if isinstance(task, str) else task["name"] for task in tasks]


def check_names(tasks):
    """The tasks; PlainError if two have the same name."""
    names = names_of(tasks)
    repeated = [name for name in names if names.count(name) > 1]
    if repeated:
        raise PlainError(f"Invalid value for tasks: two tasks are called {repeated[0]!r}. Remove one, or set 'name'.")
    return tasks
