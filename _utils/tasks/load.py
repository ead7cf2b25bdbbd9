"""The tables of an entry of `tasks`."""
from _utils.tasks.custom import load_own_task
from _utils.tasks.glue import load_task
from _utils.tasks.wsc import WSC


def load_data(entry, c):
    """TaskData of an entry of the configuration's `tasks`: the name of a task of GLUE, or the dictionary of an own
    task.
    """
    if not isinstance(entry, str):
        return load_own_task(entry)
    if entry == WSC.name and c.wsc_trick and c.do_finetune:
        return WSC.load(c.glue_dir, c.wsc_dir)
    return load_task(entry, c.glue_dir)
