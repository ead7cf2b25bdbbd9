"""The kinds of tasks, and the task of a finished run."""
from pydantic import TypeAdapter

from _utils.tasks.base import Task
from _utils.tasks.choices import Choices
from _utils.tasks.glue import TASKS
from _utils.tasks.multilabel import MultiLabel
from _utils.tasks.questions import Questions
from _utils.tasks.regression import Regression
from _utils.tasks.tagging import Spans, Tagging
from _utils.tasks.wsc import WSC

# as 'kind' of a custom task names them
KINDS = {kind.kind: kind for kind in (Task, Regression, Tagging, Spans, MultiLabel, Questions, Choices)}


def task_of(record):
    """The Task of the record of a run, which contains that of a custom task, with what the run determined; ValueError
    if it names or describes no task.

    The record may come from a stranger.
    """
    settings = record["settings"]
    if settings.get("own_task") is None:
        task = WSC if settings.get("wsc_trick") else TASKS.get(record["task"])
    else:
        fields = {**TypeAdapter(dict).validate_python(settings["own_task"])}
        kind = KINDS.get(str(fields.pop("kind", Task.kind)))
        task = TypeAdapter(kind).validate_python(fields)  # no value is valid for kind=None
    if task is None or task.name != record["task"]:
        raise ValueError(f"unknown task {record['task']!r:.40}")
    return task.of_runs([record])
