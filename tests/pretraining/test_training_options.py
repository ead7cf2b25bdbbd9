"""Options of pretraining: each one trains and has an effect; loggers write their files."""
import math
from pathlib import Path

import pytest
from tiny_pretraining import metrics, run

OPTIONS = """
plain | electra_mask_style=False | sampling=multinomial | sampling=fp16_gumbel
temperature=.5 | adam_bias_correction=True | sampling=inverse_cdf | schedule=one_cycle | schedule=adjusted_one_cycle
schedule=separate_linear | gen_smooth_label=True
disc_smooth_label=.05 | precision=bf16 | precision=fp16 | micro_batch=4
mask_prob=.3 | lr=1e-3 | warmup_steps=3 | clean=True | vocab=300
initial_weights=official | masking=official | masking=official electra_mask_style=False micro_batch=2
"""


def test_every_option_trains_and_changes_the_loss(workplace):
    """An option without effect would give the same loss."""
    losses = {}
    for options in OPTIONS.strip().replace("\n", " | ").split(" | "):
        run("steps=6", "warmup_steps=2", "milestones=100", *options.replace("plain", "").split())
        rows = metrics()
        assert len(rows) == 6 and all(math.isfinite(row["loss"]) for row in rows), options
        assert rows[-1]["gen_loss"] < rows[0]["gen_loss"], options
        losses[options] = rows[-1]["loss"]
    assert len(set(losses.values())) == len(losses), losses


@pytest.mark.parametrize("logger, files", [("neptune", ".neptune/offline/*/*"), ("wandb", "**/offline-run-*")])
def test_logger_writes_its_files(workplace, monkeypatch, logger, files):
    pytest.importorskip(logger, reason=f"{logger} is not installed")
    monkeypatch.setenv("WANDB_MODE", "offline")
    run("steps=2", f"logger={logger}")
    assert list(Path().glob(files)) and len(metrics()) == 2
