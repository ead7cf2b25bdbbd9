"""Start tiny finetuning runs, and rows of the table of runs."""
import finetune
from _utils.finetuning.config import complete_finetuning
from _utils.finetuning.runs import FinishedRun
from _utils.tasks.settings import Settings

BASE = ["size=tiny", "end=1", "logger=None", "group_name=g"]


def run(checkpoint, *overrides):
    """Finetune size tiny once as group g, unless overridden. Returns the Results."""
    c = finetune.c.override([f"pretrained_checkpoint={checkpoint}", *BASE, *overrides])
    return finetune.run(complete_finetuning(c))


def run_own(checkpoint, task, *overrides, **of_task):
    """Finetune one custom task with these values of task_overrides."""
    values = {task["name"]: of_task}
    return run(checkpoint, f"tasks={task}", f"task_overrides={values}", *overrides)


def table_row(task, run=0, group="g", settings=None, **more):
    """A FinishedRun. settings: {name: value}."""
    values = {"scores": {"validation": {"accuracy": .875}}, "train_rows": 10, "synthetic": False, "objective": None,
              "pretrained_checkpoint": "model", "seconds": 1., "device": "cpu", "code": "", "seed": run}
    settings = Settings(**{"lr": 1e-3, **(settings or {})})
    return FinishedRun(**{**values, "group": group, "task": task, "run": run, "settings": settings, **more})
