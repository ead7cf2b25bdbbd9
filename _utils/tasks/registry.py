"""The task of a finished run."""
from _utils.tasks.glue import TASKS
from _utils.tasks.sources import SOURCES
from _utils.tasks.wsc import WSC


def task_of(record):
    """The Task of a FinishedRun, with what the run determined; ValueError if it names or describes no task.

    The record may come from a stranger.
    """
    settings, name = record.settings, record.task
    if (data := settings.own_task) is None:
        task = WSC if settings.wsc_trick else TASKS.get(name)
    else:
        task = next((task for source in SOURCES if (task := source.task_of(data))), None)
    if task is None or task.name != name:
        raise ValueError(f"unknown task {name!r:.40}")
    return task.of_runs([record])
