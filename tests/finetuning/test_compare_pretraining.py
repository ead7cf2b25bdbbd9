"""Comparing systems by the finetuned checkpoints of several pretraining runs."""
from pathlib import Path

import pytest
import torch
from tiny_finetuning import table_row

import pretrain
from _utils.__main__ import main
from _utils.config import complete
from _utils.finetuning.runs import Runs, add_run
from _utils.networks import PARTS
from _utils.objectives.kinds import objective_of
from benchmarks.compare_pretraining import checkpoint_scores, compare, finetuning_runs, of_systems

# {(run, percent): (score of finetuning seed 0 on RTE, seed 1, the score of the only seed on CoLA)}
SCORES = {("electra_1", 25.): (50, 54, 10), ("electra_1", 100.): (60, 64, 20), ("electra_2", 25.): (50, 52, 11),
          ("electra_2", 100.): (66, 66, 24), ("mlm_1", 100.): (58, 58, 14), ("mlm_2", 100.): (56, 60, 14),
          ("untrained_1", 100.): (50, 50, 0)}


SETTINGS = {"electra": ["steps=6000"], "mlm": ["objective=mlm", "steps=7403"], "untrained": ["steps=6000"]}


def checkpoint(run, percent):
    """What `checkpoint_flops` reads of a checkpoint; no weights."""
    c = complete(pretrain.c.override(["size=mini", *SETTINGS[run.partition("_")[0]]]))
    with torch.device("meta"):
        networks = objective_of(c).fresh(c, 8192)
    configs = {f"{part}_config": network.config.to_dict() for part, network in zip(PARTS, networks) if network}
    return {"model": {}, **configs, "tokenizer": "", "config": dict(c), "step": round(c.steps * percent / 100)}


@pytest.fixture
def finished(tmp_path, monkeypatch):
    """A working directory with the table of runs and the checkpoints of two seeds of two systems, and one without
    training.
    """
    monkeypatch.chdir(tmp_path)
    Path("checkpoints/pretrain").mkdir(parents=True)
    for (run, percent), (first, second, cola) in SCORES.items():
        torch.save(checkpoint(run, percent), f"checkpoints/pretrain/{run}_{percent}%.pth")
        add(run, percent, "rte", "accuracy", first, second)
        add(run, percent, "cola", "matthews", cola)


def add(run, percent, task, metric, *values):
    """Add finetuning runs with these scores to the table of runs."""
    for seed, value in enumerate(values):
        add_run(table_row(task, seed, f"{run}_{percent}%", scores={"validation": {metric: value / 100}}))


def test_the_unit_of_comparison_is_the_pretraining_seed(finished):
    """ELECTRA's seeds have 41 (62 and 20) and 45 (66 and 24), the others 36 (58 and 14) and 36."""
    means = of_systems(checkpoint_scores(finetuning_runs(Runs())), ["electra", "mlm"], "rte,cola").mean(axis=1)
    table = compare(means, ["electra", "mlm"])
    assert table.loc[100.].to_dict() == pytest.approx({
        ("mean", "electra"): 43, ("mean", "mlm"): 36, ("mean", "electra - mlm"): 7,
        ("s.e.", "electra"): 2, ("s.e.", "mlm"): 0, ("s.e.", "electra - mlm"): 2})
    assert table.loc[25., ("mean", "electra")] == pytest.approx(31) and table.loc[25.].isna().sum() == 4


@pytest.mark.plots
def test_command_prints_scores_and_differences_and_draws_them(finished, capsys):
    main(["compare_pretraining", "electra", "mlm", "--baseline", "untrained_1", "--plot", "figure.png"])
    assert {"43.0", "7.0"} <= set(capsys.readouterr().out.split())
    assert Path("figure.png").stat().st_size > 5000
