"""Options of pretraining: each one trains and has an effect; loggers write their files."""
import math
from pathlib import Path

import pytest
from tiny_pretraining import FOLDER, metrics, run, tensorboard_events


@pytest.mark.parametrize("overrides", [
    ["precision=bf16"], ["precision=fp16"], ["schedule=one_cycle"], ["schedule=adjusted_one_cycle"], ["schedule=separate_linear"],
    ["sampling=fp16_gumbel"], ["sampling=multinomial", "temperature=2"], ["electra_mask_style=False"], ["adam_bias_correction=True"],
    ["gen_smooth_label=True", "disc_smooth_label=.05"], ["micro_batch=4"], ["mask_prob=.3", "lr=1e-4", "warmup_steps=2"],
    ["num_workers=2"], ["size=tiny", "vocab=300"], ["masking=official"], ["masking=official", "electra_mask_style=False", "micro_batch=2"],
    ["disallow_correct=True"], ["initial_weights=official"],
], ids=" ".join)
def test_option_trains(workplace, overrides):
    run("steps=8", *overrides)
    rows = metrics()
    assert len(rows) == 8 and all(math.isfinite(row["loss"]) for row in rows)
    assert rows[-1]["gen_loss"] < rows[0]["gen_loss"]


def test_every_option_changes_the_loss(workplace):
    """An option without effect would give the same loss."""
    losses = set()
    options = (
        [], ["electra_mask_style=False"], ["sampling=multinomial"], ["sampling=fp16_gumbel"], ["temperature=.5"],
        ["adam_bias_correction=True"], ["schedule=one_cycle"], ["schedule=separate_linear"], ["gen_smooth_label=True"],
        ["disc_smooth_label=True"], ["precision=bf16"], ["mask_prob=.3"], ["warmup_steps=3"], ["clean=True"],
        ["masking=official"], ["masking=official", "electra_mask_style=False"], ["initial_weights=official"])
    for overrides in options:
        run("steps=4", "warmup_steps=2", *overrides)
        losses.add(metrics()[-1]["loss"])
    assert len(losses) == len(options)
    assert run("steps=1", "disallow_correct=True").model.disallow_correct  # too rare in so short a run to change a loss


def test_momentum_follows_the_one_cycle_schedule(workplace):
    learn = run("steps=4", "schedule=one_cycle")
    assert learn.opt.opt.param_groups[0]["betas"][0] == pytest.approx(learn.schedule.functions["mom"](.75))


@pytest.mark.parametrize("logger, files", [("tensorboard", str(FOLDER / "mini_5/tensorboard/events*")),
                                           ("neptune", ".neptune/offline/*/*")])
def test_logger_writes_its_files(workplace, logger, files):
    run("steps=2", f"logger={logger}")
    assert list(Path().glob(files)) and len(metrics()) == 2


def test_tensorboard_shows_the_metrics_of_both_splits(workplace):
    run("steps=4", "logger=tensorboard")
    events = tensorboard_events()
    assert {"train/gen_loss", "train/disc_auc", "train/tokens_per_second", "held_out/disc_auc"} <= set(events.Tags()["scalars"])
    assert [event.step for event in events.Scalars("train/loss")] == [1, 2, 3, 4]


def test_wandb_logs_offline(workplace, monkeypatch):
    pytest.importorskip("wandb", reason="wandb is optional and not installed")
    monkeypatch.setenv("WANDB_MODE", "offline")
    run("steps=2", "logger=wandb")
    assert list(Path().rglob("offline-run-*"))
