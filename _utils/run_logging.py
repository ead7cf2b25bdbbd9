"""Where the measures of a run go: always metrics.jsonl, and a logger of the user's choice."""
import json
import math
from pathlib import Path


class NoLogger:
    """Logs nothing; the others have the same two methods."""

    def __init__(self, run_name, folder, config):
        pass

    def log(self, metrics, step):
        """Take {name: number} measured at a step; the names hold the split, as 'train/gen_loss'."""

    def close(self):
        """Write what is pending."""


class TensorBoardLogger(NoLogger):
    """`tensorboard --logdir checkpoints` shows it."""

    def __init__(self, run_name, folder, config):
        from torch.utils.tensorboard import SummaryWriter
        self.writer = SummaryWriter(str(Path(folder) / "tensorboard"))
        self.writer.add_text("config", "\n".join(f"    {key}: {value!r}" for key, value in config.items()))

    def log(self, metrics, step):
        for name, value in metrics.items():
            self.writer.add_scalar(name, value, step)

    def close(self):
        self.writer.close()


class NeptuneLogger(NoLogger):
    """Neptune's offline store, in the folder .neptune: its hosted service was shut down in March 2026 (FACTS 13)."""

    def __init__(self, run_name, folder, config):
        import neptune
        self.run = neptune.init_run(mode="offline", name=run_name, capture_stdout=False, capture_stderr=False,
                                    capture_hardware_metrics=False)
        self.run["config"] = {key: str(value) for key, value in config.items()}

    def log(self, metrics, step):
        for name, value in metrics.items():
            self.run[name].append(value, step=step)

    def close(self):
        self.run.stop()


class WandbLogger(NoLogger):
    """Weights & Biases; without an account set WANDB_MODE=offline."""

    def __init__(self, run_name, folder, config):
        import wandb
        self.run = wandb.init(project="electra", name=run_name, dir=str(folder), config=dict(config))

    def log(self, metrics, step):
        self.run.log(metrics, step=step)

    def close(self):
        self.run.finish()


LOGGERS = {None: NoLogger, "tensorboard": TensorBoardLogger, "neptune": NeptuneLogger, "wandb": WandbLogger}


class RunLog:
    """metrics.jsonl in the run's folder, one line per measurement, and the chosen logger beside it."""

    def __init__(self, run_name, folder, config):
        self.path = Path(folder) / "metrics.jsonl"
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_text("")
        self.logger = LOGGERS[config["logger"]](run_name, folder, config)

    def log(self, split, step, metrics):
        """Log {name: number or None} measured on 'train' or 'held_out' at a step; None stands for nothing to measure."""
        with open(self.path, "a") as file:
            file.write(json.dumps({"step": step, "split": split, **metrics}) + "\n")
        numbers = {f"{split}/{name}": value for name, value in metrics.items() if value is not None and math.isfinite(value)}
        self.logger.log(numbers, step)

    def close(self):
        self.logger.close()


def read_metrics(path, split):
    """The rows of one split in a metrics.jsonl, as a list of dictionaries."""
    return [row for row in map(json.loads, open(path)) if row["split"] == split]
