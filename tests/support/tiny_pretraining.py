"""Start tiny pretraining runs in the working directory of the fixture `workplace`, and read the files they write."""
import json
import random
from pathlib import Path

from tokenizer_kinds import tokens_by_id

import pretrain
from _utils.config import complete
from _utils.runs.checkpoints import load_checkpoint, save_pretrained
from _utils.runs.log import read_metrics
from _utils.seeds import set_seed

FOLDER = Path("checkpoints/pretrain")
BASE = ("size=tiny datas=text.txt base_run_name=mini seed=5 steps=16 bs=8 max_length=32 num_workers=0 "
        "logger=None device=cpu milestones=50,100").split()


def write_text_and_vocabulary(hf_tokenizer):
    """Write text.txt, documents of a few different sentences, and vocab.txt."""
    rng = random.Random(0)
    sentences = ["the generator replaces some words of the text , and the discriminator finds every replaced word in "
                 "each sentence .",
                 "the discriminator finds every replaced word .", "a small network makes good guesses .",
                 "training a network with patience takes time , as in every other year , and nobody in the room "
                 "understood why ."]
    Path("text.txt").write_text("\n\n".join("\n".join(rng.choices(sentences, k=12)) for _ in range(150)))
    Path("vocab.txt").write_text("\n".join(tokens_by_id(hf_tokenizer)))


def run(*overrides, vocab="vocab=vocab.txt", resume=False):
    """Pretrain for 16 steps with size tiny and two milestones as run mini_5, unless overridden. Returns the learner.

    vocab: None leaves it out, for a pair of networks with its own vocabulary.
    """
    given = [*BASE, *([vocab] if vocab else []), f"resume={resume}", *overrides]
    return pretrain.pretrain(complete(pretrain.c.override(given)))


def save_fresh(path, hf_tokenizer, *overrides, seed=0):
    """Write a checkpoint of size tiny with random weights. Returns its path."""
    c = complete(pretrain.c.override(["size=tiny", *overrides]))
    set_seed(seed)
    save_pretrained(path, pretrain.build_model(c, hf_tokenizer), c, hf_tokenizer, step=0)
    return path


def metrics(split="train", name="mini_5"):
    """The rows of one split in metrics.jsonl."""
    return read_metrics(FOLDER / name / "metrics.jsonl", split)


def rows(name="mini_5", folder=FOLDER):
    """All rows of metrics.jsonl, without measured times, which differ between equal runs."""
    text = (folder / name / "metrics.jsonl").read_text()
    times = ("tokens_per_second", "data_wait")
    return [{key: value for key, value in json.loads(line).items() if key not in times} for line in text.splitlines()]


def weights(name="mini_5", folder=FOLDER):
    """The state_dict of the model in the last milestone."""
    return load_checkpoint(folder / f"{name}_100.0%.pth")["model"]


def equal_weights(a, b):
    """Whether two state_dicts have the same names and the same values, bit for bit."""
    return a.keys() == b.keys() and all(a[name].equal(b[name]) for name in a)


def flip_bit(path):
    """Flip one bit in the middle of a file."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 4
    path.write_bytes(content)
