"""Custom tasks as entries of the key `tasks`. Whoever imports this module can use them."""
from _utils.custom.definition import complete_custom_task, files_of
from _utils.tasks.names import SOURCES, TaskSource


class CustomTasks(TaskSource):
    """Dictionaries of custom tasks."""

    def complete(self, entry):
        return complete_custom_task(entry)

    def check_files(self, entry):
        files_of(entry)

    # What the other methods import takes seconds.

    def load(self, entry):
        from _utils.custom.kinds import load_custom_task
        return load_custom_task(entry)

    def task_of(self, data):
        from _utils.custom.kinds import task_of_data
        return task_of_data(data)


SOURCES.append(CustomTasks())
