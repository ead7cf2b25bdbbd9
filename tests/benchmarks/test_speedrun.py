"""The speedrun: steps for a given time, and what a machine leaves that is taken away at any moment."""
import os
import random
import signal
import time
from pathlib import Path

import pytest
import torch
from tiny_pretraining import FOLDER, equal_weights

import pretrain
from _utils.errors import UserError
from _utils.networks.pretrained import load_with_head
from _utils.runs.checkpoints import find_resume_checkpoint, load_checkpoint
from _utils.runs.log import read_metrics
from _utils.training.callbacks import Stopped
from benchmarks import kept
from benchmarks.report import parse
from benchmarks.speedrun import DEFAULTS, TYPES, at_steps, configuration, train

SETTINGS = ("size=tiny datas=text.txt vocab=vocab.txt seed=5 bs=8 max_length=32 num_workers=0 logger=None device=cpu "
            "compile=False milestones=100").split()


def config(*arguments):
    return configuration(parse([*SETTINGS, *arguments], DEFAULTS, TYPES))


def resume_checkpoint(name):
    return load_checkpoint(FOLDER / name / "resume.pth")


@pytest.mark.parametrize("of_pair", [False, True])
def test_the_timed_steps_train_but_leave_no_trace(workplace, fresh_checkpoint, monkeypatch, of_pair):
    """Networks that were loaded are in evaluation mode at first. fp16 changes the loss scale."""
    pair = [f"{key}={fresh_checkpoint}" for key in ("initial_weights", "vocab")]
    settings = [*pair, "precision=fp16", "bs=2"] if of_pair else []
    forward, is_training = pretrain.PretrainingLearner.forward, []

    def noted(learn, *args):
        if torch.is_grad_enabled():  # not held-out text
            is_training.append(all(module.training for module in learn.model.modules()))
        return forward(learn, *args)
    monkeypatch.setattr(pretrain.PretrainingLearner, "forward", noted)
    train(config("stop_at=3", *settings), deadline=time.time() + 60)
    assert all(is_training) and len(is_training) > 3
    found = resume_checkpoint("speedrun_5")
    steps = found["config"]["steps"]
    assert steps > 3 and found["config"]["warmup_steps"] == round(.05 * steps)
    train(config("stop_at=5", *settings), deadline=time.time() + 10)  # resumes; does not choose again
    assert resume_checkpoint("speedrun_5")["config"]["steps"] == steps

    pretrain.pretrain(at_steps(config("stop_at=3", "base_run_name=other", *settings), steps, .05))
    expected = resume_checkpoint("other_5")
    assert equal_weights(found["model"], expected["model"]) and found["scaler"] == expected["scaler"]
    torch.testing.assert_close(found["optimizer"]["state"], expected["optimizer"]["state"], rtol=0, atol=0)


@pytest.mark.slow
def test_the_timed_steps_of_compiled_trained_networks_in_several_processes_leave_no_trace(
    workplace, fresh_checkpoint, scripts
):
    pair = [f"{key}={fresh_checkpoint}" for key in ("initial_weights", "vocab")]
    settings = [*SETTINGS, *pair, "compile=True", "micro_batch=2", "stop_at=3"]

    def run(*changes):
        done = scripts.run("benchmarks.speedrun", [*settings, *changes], workplace, processes=2)
        assert done.returncode == 0, done.stderr[-3000:]
    run("minutes=5")
    found = resume_checkpoint("speedrun_5")
    run(f"steps={found['config']['steps']}", "base_run_name=counted")
    expected = resume_checkpoint("counted_5")
    assert equal_weights(found["model"], expected["model"])
    torch.testing.assert_close(found["optimizer"]["state"], expected["optimizer"]["state"], rtol=0, atol=0)


def test_no_time_to_train_is_an_error(workplace):
    with pytest.raises(UserError, match="minutes"):
        train(config(), deadline=time.time())


def test_a_stopped_run_keeps_its_last_step(workplace, monkeypatch):
    def stop_after_step_3(keep):
        if keep.learn.train_iter == 3:
            os.kill(os.getpid(), signal.SIGTERM)
    monkeypatch.setattr(kept.Keep, "after_batch", stop_after_step_3)
    with pytest.raises(Stopped):
        train(config("steps=8"), keep="kept")
    assert kept.newest("kept", "weights")[0] == 4


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


def test_pieces_of_an_incomplete_transfer_are_not_used(tmp_path, monkeypatch):
    monkeypatch.setattr(kept, "PIECE", 10)
    kept.write_pieces(tmp_path, "weights", 3, ".pth", b"a" * 25)
    earlier = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    kept.write_pieces(tmp_path, "weights", 20, ".pth", b"b" * 120)
    assert kept.newest(tmp_path, "weights") == (20, b"b" * 120) and len(list(tmp_path.iterdir())) == 12
    for name, content in earlier.items():  # as if the machine had been taken away before they were deleted
        (tmp_path / name).write_bytes(content)
    (tmp_path / "weights_20.pth.11of12").unlink()
    assert kept.newest(tmp_path, "weights") == (3, b"a" * 25)
