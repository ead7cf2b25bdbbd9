"""Where metrics are shown beside metrics.jsonl. The names are the values of the key `logger`."""
import uuid


def tensorboard(run_name, folder, config, step):
    """For `tensorboard --logdir checkpoints`."""
    from torch.utils.tensorboard import SummaryWriter
    writer = SummaryWriter(str(folder / "tensorboard"), purge_step=None if step is None else step + 1)
    writer.add_text("config", "\n".join(f"    {key}: {value!r}" for key, value in config.items()))
    return writer.add_scalar, writer.close


def neptune(run_name, folder, config, step):
    """Neptune's offline store in the folder .neptune.

    The hosted service was shut down in March 2026 (facts.md#libraries). The store cannot append to a run, so a resumed
    run has a second entry.
    """
    from neptune import init_run

    run = init_run(
        mode="offline", name=run_name, capture_stdout=False, capture_stderr=False, capture_hardware_metrics=False
    )
    run["config"] = {key: str(value) for key, value in config.items()}
    return lambda name, value, step: run[name].append(value, step=step), run.stop


def wandb(run_name, folder, config, step):
    """Weights & Biases. Without an account, set WANDB_MODE=offline."""
    import wandb
    kept = folder / "wandb_id"
    if not kept.exists():
        kept.write_text(uuid.uuid4().hex)
    run = wandb.init(
        project="electra", name=run_name, dir=str(folder), config=dict(config), id=kept.read_text(), resume="allow"
    )
    return lambda name, value, step: run.log({name: value}, step=step), run.finish


# Functions of the name of a run, its folder, its configuration, and the last step if it is resumed, else None. They
# return (function of the name and value of a metric and the step that logs it, function that closes the log).
LOGGERS = {
    "tensorboard": tensorboard,
    "neptune": neptune,
    "wandb": wandb,
    None: lambda *_: (lambda *_: None, lambda: None),
}
PACKAGES = {"wandb": "wandb"}  # {logger: package that requirements.txt does not install}
