"""The speedrun: what a machine leaves that is taken away at any moment."""
import random
from pathlib import Path

from tiny_pretraining import FOLDER

from _utils.networks.pretrained import load_with_head
from _utils.runs.checkpoints import find_resume_checkpoint, load_checkpoint
from _utils.runs.log import read_metrics
from benchmarks import kept

SETTINGS = ("size=tiny datas=text.txt vocab=vocab.txt seed=5 bs=8 max_length=32 num_workers=0 logger=None device=cpu "
            "compile=False milestones=100").split()


def test_a_run_that_is_killed_at_random_moments_leaves_a_usable_result(workplace, scripts):
    rng, settings = random.Random(0), [*SETTINGS, "minutes=2", "save_minutes=.01", "keep=kept"]
    for limit in range(4, 40, 4):
        done = scripts.run("benchmarks.speedrun", settings, workplace, kill_after=rng.uniform(2, limit))
        assert done.returncode == -9, done.stderr
        rows = read_metrics(workplace / "kept/metrics.jsonl", "train") if Path("kept/metrics.jsonl").exists() else []
        saved = find_resume_checkpoint(FOLDER / "speedrun_5")  # between two saves it has the earlier name
        if (kept.newest("kept", "weights") or [0])[0] and rows and saved:  # not only the state before the first step
            break
    path = kept.join("kept")
    checkpoint, trained = load_checkpoint(path), saved["model"]
    assert 0 < checkpoint["step"] < checkpoint["config"]["steps"] and rows
    weights = load_with_head(str(path), "discriminator").network.state_dict()
    assert all(value.isfinite().all() for value in weights.values())
    assert max(float((value - trained[f"discriminator.{name}"]).abs().max()) for name, value in weights.items()) < .1
