"""The kinds of tasks, and the task of a finished run."""
from pydantic import TypeAdapter

from _utils.tasks.base import Task
from _utils.tasks.choices import Choices
from _utils.tasks.glue import TASKS
from _utils.tasks.multilabel import MultiLabel
from _utils.tasks.questions import Questions
from _utils.tasks.regression import Regression
from _utils.tasks.tagging import Tagging
from _utils.tasks.wsc import WSC

# as 'kind' of an own task names them
KINDS = {kind.kind: kind for kind in (Task, Regression, Tagging, MultiLabel, Questions, Choices)}


def task_of(row):
    """The Task of a row of the table of runs, which holds the record of an own task; ValueError if it names or
    describes no task.

    The row may come from a stranger.
    """
    record = row["settings"].get("own_task")
    if record is not None:
        fields = dict(record) if isinstance(record, dict) else {}
        kind = fields.pop("kind", Task.kind)
        task = TypeAdapter(KINDS[kind]).validate_python(fields) if kind in KINDS else None
    else:
        task = WSC if row["settings"].get("wsc_trick") else TASKS.get(row["task"])
    if task is None or task.name != row["task"]:
        raise ValueError(f"unknown task {row['task']!r:.40}")
    return task
