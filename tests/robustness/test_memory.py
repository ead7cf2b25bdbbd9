"""Micro-batches: networks that do not fit, evaluation, and resumed runs."""

import pytest
from tiny_pretraining import FOLDER, metrics, run

from _utils.errors import UserError
from _utils.runs.checkpoints import load_checkpoint


def test_a_resumed_run_keeps_its_micro_batch_and_precision(workplace, capsys):
    run("steps=2", "micro_batch=2", "precision=bf16")
    assert "cpu, bf16, micro-batches of 2" in capsys.readouterr().out
    (FOLDER / "mini_5_100.0%.pth").unlink()
    learn = run("steps=2", resume=True)
    assert (learn.micro_batch, learn.precision) == (2, "bf16") and len(metrics()) == 2
    assert load_checkpoint(FOLDER / "mini_5/resume.pth")["config"]["micro_batch"] == 2
    with pytest.raises(UserError, match="precision='fp32'"):
        run("steps=2", "precision=fp32", resume=True)
