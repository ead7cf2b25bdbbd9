"""Pretrainings in miniature, in the working directory that the fixture `workplace` makes: how they are started, what is read of them."""
import json
from pathlib import Path

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

import pretrain
from _utils.config import complete
from _utils.run_files.checkpoints import load_checkpoint
from _utils.run_files.run_log import read_metrics

FOLDER = Path("checkpoints/pretrain")


def run(*overrides, vocab="vocab=vocab.txt", resume=False):
    """The learner of a run, by default mini_5: 16 steps of the recipe `tiny`. vocab: None for what brings its own."""
    base = ["size=tiny", "datas=text.txt", *filter(None, [vocab]), "base_run_name=mini", "seed=5", "steps=16", "bs=8", "max_length=32",
            "num_workers=0", "logger=None", "device=cpu", f"resume={resume}"]
    return pretrain.pretrain(complete(pretrain.c.override([*base, *overrides])))


def metrics(split="train", name="mini_5"):
    """Rows of one split in metrics.jsonl."""
    return read_metrics(FOLDER / name / "metrics.jsonl", split)


def rows(name="mini_5", folder=FOLDER):
    """All rows of metrics.jsonl, without what depends on the clock."""
    text = (folder / name / "metrics.jsonl").read_text()
    return [{key: value for key, value in json.loads(line).items() if key != "tokens_per_second"} for line in text.splitlines()]


def weights(name="mini_5", percent="100.0", folder=FOLDER):
    """Parameters in the checkpoint of a milestone, by name."""
    return load_checkpoint(folder / f"{name}_{percent}%.pth")["model"]


def tensorboard_events(name="mini_5"):
    """What tensorboard shows of a run."""
    return EventAccumulator(str(FOLDER / name / "tensorboard")).Reload()
