"""Start tiny pretraining runs in the working directory of the fixture `workplace`, and read the files they write."""
import json
from pathlib import Path

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

import pretrain
from _utils.config import complete
from _utils.runs.checkpoints import load_checkpoint
from _utils.runs.log import read_metrics

FOLDER = Path("checkpoints/pretrain")


def run(*overrides, vocab="vocab=vocab.txt", resume=False):
    """Pretrain for 16 steps with size tiny as run mini_5, unless overridden. Returns the learner.

    vocab: None leaves it out, for a pair of networks with its own vocabulary.
    """
    base = ["size=tiny", "datas=text.txt", *([vocab] if vocab else []), "base_run_name=mini", "seed=5", "steps=16", "bs=8", "max_length=32",
            "num_workers=0", "logger=None", "device=cpu", f"resume={resume}"]
    return pretrain.pretrain(complete(pretrain.c.override([*base, *overrides])))


def metrics(split="train", name="mini_5"):
    """The rows of one split in metrics.jsonl."""
    return read_metrics(FOLDER / name / "metrics.jsonl", split)


def rows(name="mini_5", folder=FOLDER):
    """All rows of metrics.jsonl, without tokens_per_second, which differs between equal runs."""
    text = (folder / name / "metrics.jsonl").read_text()
    return [{key: value for key, value in json.loads(line).items() if key != "tokens_per_second"} for line in text.splitlines()]


def weights(name="mini_5", percent="100.0", folder=FOLDER):
    """The state_dict of the model in the checkpoint of a milestone."""
    return load_checkpoint(folder / f"{name}_{percent}%.pth")["model"]


def tensorboard_events(name="mini_5"):
    """The EventAccumulator of a run's tensorboard folder."""
    return EventAccumulator(str(FOLDER / name / "tensorboard")).Reload()


def equal_weights(a, b):
    """Whether two state_dicts have the same names and the same values, bit for bit."""
    return a.keys() == b.keys() and all(a[name].equal(b[name]) for name in a)


def flip_bit(path, share=.5):
    """Flip one bit of a file, at this share of its length."""
    content = bytearray(path.read_bytes())
    content[int(len(content) * share)] ^= 4
    path.write_bytes(content)
