"""Custom tasks as entries of the key `tasks`. Whoever imports this module can use them."""
from _utils.custom.definition import QUESTION_TASKS, complete_custom_task, files_of, question_task
from _utils.tasks.task_names import SOURCES, TaskSource


class CustomTasks(TaskSource):
    """Dictionaries, and the names of question answering in Google's code."""
    names = QUESTION_TASKS

    complete = staticmethod(complete_custom_task)
    of_name = staticmethod(question_task)
    check_files = staticmethod(files_of)

    # What the other methods import takes seconds.

    def load(self, entry):
        from _utils.custom.task_kinds import load_custom_task
        return load_custom_task(entry)

    def task_of(self, data):
        from _utils.custom.task_kinds import task_of_data
        return task_of_data(data)


SOURCES.append(CustomTasks())
