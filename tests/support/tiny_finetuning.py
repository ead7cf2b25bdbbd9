"""Start tiny finetuning runs, and rows of the table of runs."""
import finetune
from _utils.finetuning.config import complete_finetuning

BASE = ["size=tiny", "end=1", "logger=None", "group_name=g"]


def run(checkpoint, *overrides):
    """Finetune size tiny once as group g, unless overridden. Returns the Results."""
    c = finetune.c.override([f"pretrained_checkpoint={checkpoint}", *BASE, *overrides])
    return finetune.run(complete_finetuning(c))


def run_own(checkpoint, task, *overrides, **of_task):
    """Finetune one custom task with these values of task_overrides."""
    values = {task["name"]: of_task}
    return run(checkpoint, f"tasks={task}", f"task_overrides={values}", *overrides)


def table_row(task, run=0, group="g", **more):
    """A row of the table of runs."""
    return {"group": group, "task": task, "run": run, "seed": run, "settings": {}, "train_rows": 10, "synthetic": False,
            "scores": {"validation": {"accuracy": .875}}, "pretrained_checkpoint": "model", "objective": None, **more}
