"""Start tiny finetuning runs, and rows of the table of runs."""
import finetune
from _utils.finetuning.config import complete_finetuning
from _utils.runs.checkpoints import FORMAT

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
    """A row of the table of runs. settings: beside the hyperparameters."""
    settings = {"lr": 1e-3, "bs": 32, "epochs": 3, "own_task": None, **(settings or {})}
    evaluation = {"scores": {"validation": {"accuracy": .875}}, "baselines": {}, "notices": {}, "classes": {},
                  "confusion": {}}
    return {"format": FORMAT, "group": group, "task": task, "run": run, "seed": run, "settings": settings,
            "train_rows": 10, "synthetic": False, "pretrained_checkpoint": "model", "objective": None, "seconds": 1.,
            "code": "", **evaluation, **more}
