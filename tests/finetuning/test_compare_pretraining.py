"""Comparing systems by the finetuned checkpoints of several pretraining runs."""
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import pretrain
from _utils.__main__ import main
from _utils.config import complete
from _utils.errors import PlainError
from _utils.finetuning.runs import Runs, add_run
from _utils.networks import PARTS
from _utils.objectives.kinds import flops_per_token, objective_of
from _utils.recipes import RECIPES
from _utils.runs.log import Run
from benchmarks.compare_pretraining import checkpoint_flops, checkpoint_scores, compare, finetuning_runs, of_systems
from benchmarks.flops import steps_of_equal_compute

# {(run, percent): (score of finetuning seed 0 on RTE, seed 1, the score of the only seed on CoLA)}
SCORES = {("electra_1", 25.): (50, 54, 10), ("electra_1", 100.): (60, 64, 20), ("electra_2", 25.): (50, 52, 11),
          ("electra_2", 100.): (66, 66, 24), ("mlm_1", 100.): (58, 58, 14), ("mlm_2", 100.): (56, 60, 14),
          ("untrained_1", 100.): (50, 50, 0)}


def checkpoint(run, percent, *settings):
    """What `checkpoint_flops` reads of a checkpoint; no weights."""
    objective = ["objective=mlm", "steps=7403"] if run.startswith("mlm") else ["steps=6000"]
    c = complete(pretrain.c.override(["size=mini", *objective, *settings]))
    with torch.device("meta"):
        networks = objective_of(c).fresh(c, 8192)
    configs = {f"{part}_config": network.config.to_dict() for part, network in zip(PARTS, networks) if network}
    return {"model": {}, **configs, "tokenizer": "", "config": dict(c), "step": round(c.steps * percent / 100)}


@pytest.fixture
def finished(tmp_path, monkeypatch):
    """A working directory with the table of runs and the checkpoints of two seeds of two systems, and one without training.

    Other checkpoints were finetuned on other tasks.
    """
    monkeypatch.chdir(tmp_path)
    Path("checkpoints/pretrain").mkdir(parents=True)
    for (run, percent), (first, second, cola) in SCORES.items():
        torch.save(checkpoint(run, percent), f"checkpoints/pretrain/{run}_{percent}%.pth")
        for task, metric, values in (("rte", "accuracy", (first, second)), ("cola", "matthews", (cola,))):
            for seed, value in enumerate(values):
                add_run({"group": f"{run}_{percent}%", "task": task, "run": seed, "seed": seed, "settings": {}, "train_rows": 10,
                              "synthetic": False, "scores": {"validation": {metric: value / 100}}})
    for group, task in (("electra_3_100.0%", "sst2"), ("other_1_100.0%", "sst2"), ("grid_lr0.001", "rte")):
        add_run({"group": group, "task": task, "run": 0, "seed": 0, "settings": {}, "train_rows": 10, "synthetic": False,
                      "scores": {"validation": {"accuracy": .9}}})


def test_the_unit_of_comparison_is_the_pretraining_seed(finished):
    """ELECTRA's seeds have 41 (62 and 20) and 45 (66 and 24), the others 36 (58 and 14) and 36."""
    means = of_systems(checkpoint_scores(finetuning_runs(Runs())), ["electra", "mlm"], "rte,cola").mean(axis=1)
    table = compare(means, ["electra", "mlm"])
    assert table.loc[100.].to_dict() == pytest.approx({
        ("mean", "electra"): 43, ("mean", "mlm"): 36, ("mean", "electra - mlm"): 7,
        ("s.e.", "electra"): 2, ("s.e.", "mlm"): 0, ("s.e.", "electra - mlm"): 2})
    assert table.loc[25., ("mean", "electra")] == pytest.approx(31) and table.loc[25.].isna().sum() == 4
    assert compare(means.loc[["mlm"]].iloc[:1], ["mlm"]).isna().to_numpy().tolist() == [[False, True]]  # one seed has no error


@pytest.mark.plots
def test_command_prints_scores_and_differences_and_draws_them(finished, capsys):
    Path("checkpoints/glue/scores.jsonl").write_text("".join(
        line for line in Path("checkpoints/glue/scores.jsonl").open() if "electra_3" not in line))
    main(["compare_pretraining", "electra", "mlm", "--baseline", "untrained_1", "--plot", "figure.png"])
    printed = capsys.readouterr().out
    assert "electra - mlm" in printed and "43.0" in printed and "7.0" in printed and "Plot: figure.png" in printed
    assert Path("figure.png").stat().st_size > 5000


def test_tasks_can_be_chosen_and_differences_of_finetuning_are_printed(finished, capsys):
    for row in Runs():
        lr = {"mlm": 1e-3, "untrained": 1e-4}.get(row["group"].split("_")[0], 3e-4)
        add_run({**row, "settings": {"lr": lr, "start_from_mnli": row["group"] if row["task"] == "rte" else False,
                                          "pretrained_weights": row["group"], "epochs": 3}})
    main(["compare_pretraining", "electra", "mlm", "--tasks", "rte"])
    printed = capsys.readouterr().out
    assert "cola" not in printed and "64.0" in printed and "different numbers" not in printed
    assert [line for line in printed.splitlines() if "finetuned with" in line] == [
        "rte was finetuned with lr=0.0003 (electra) and lr=0.001 (mlm)"]
    main(["compare_pretraining", "electra", "mlm", "--tasks", "rte,cola"])
    printed = capsys.readouterr().out.partition("means of different numbers of finetuning runs:\n")[2].splitlines()
    assert printed[0].split() == ["task", "rte", "cola"] and printed[2].split()[-2:] == ["2", "1"]


@pytest.mark.parametrize("percent", ["2.5e-05", "1e-07", "6.25", "0.000131", "33.333333"])
@pytest.mark.parametrize("system", ["electra", "lr_5e-05", "run_2"])
def test_checkpoints_of_every_milestone_are_found(tmp_path, monkeypatch, capsys, percent, system):
    """Milestones and stop_at may be small shares of the steps, which are written with an exponent."""
    monkeypatch.chdir(tmp_path)
    group = f"{system}_1_{percent}%"
    path = Run(system, 1).milestone(float(percent))
    assert path.stem == group
    path.parent.mkdir(parents=True)
    torch.save(checkpoint("electra_1", 1.), path)
    add_run({"group": group, "task": "rte", "run": 0, "seed": 0, "settings": {}, "train_rows": 10, "synthetic": False,
             "scores": {"validation": {"accuracy": .625}}})
    main(["compare_pretraining", system])
    assert "62.5" in capsys.readouterr().out


def flops(folder, *arguments):
    """`checkpoint_flops` of a file with the `checkpoint` of these arguments."""
    torch.save(checkpoint(*arguments), folder / "checkpoint.pth")
    return checkpoint_flops(folder / "checkpoint.pth")


def test_a_checkpoint_costs_the_operations_of_its_steps(tmp_path):
    electra, mlm = flops(tmp_path, "electra_1", 100.), flops(tmp_path, "mlm_1", 100.)
    recipe = RECIPES["mini"]
    assert electra == 6000 * 64 * 64 * flops_per_token(recipe, 8192) and mlm == pytest.approx(electra, rel=1e-3)
    assert steps_of_equal_compute(recipe, replace(recipe, generator=recipe.discriminator, discriminator=None), 6000, 8192) == 7403
    assert flops(tmp_path, "electra_1", 25.) == electra / 4


def test_operations_of_other_objectives_are_counted(tmp_path, monkeypatch):
    """Also where the checkpoint lacks one of the two networks."""
    full = flops(tmp_path, "electra_1", 100.)
    content = checkpoint("electra_1", 100., "objective=all_tokens_mlm")
    content["generator_config"] = content.pop("discriminator_config")
    torch.save(content, tmp_path / "tokens.pth")
    expected = flops_per_token(RECIPES["mini"], 8192, objective="all_tokens_mlm") / flops_per_token(RECIPES["mini"], 8192)
    assert checkpoint_flops(tmp_path / "tokens.pth") == pytest.approx(expected * full) and expected > 1.5
    content = checkpoint("electra_1", 100., "uniform_generator=True")
    del content["generator_config"]
    torch.save(content, tmp_path / "uniform.pth")
    assert .5 * full < checkpoint_flops(tmp_path / "uniform.pth") < .9 * full
    content = checkpoint("electra_1", 100., "objective=two_stage", "two_stage_steps=4500")
    content["generator_config"] = content["discriminator_config"]
    content["config"] |= {"steps": 1500, "initial_weights": "electra_generator_1_100.0%.pth"}
    torch.save(content | {"step": 1500}, tmp_path / "stages.pth")
    of_stages = [flops_per_token(RECIPES["mini"], 8192, objective=objective) for objective in ("mlm", "two_stage")]
    assert checkpoint_flops(tmp_path / "stages.pth") == pytest.approx(64 * 64 * (4500 * of_stages[0] + 1500 * of_stages[1]))


@pytest.mark.parametrize("network", [
    {"model_type": "roberta", "hidden_size": 128, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 512},
    {"model_type": "distilbert", "dim": 128, "n_layers": 2, "n_heads": 2, "hidden_dim": 512}])
def test_operations_of_other_families_are_counted(tmp_path, network):
    whole, half = flops(tmp_path, "mlm_1", 100.), flops(tmp_path, "mlm_1", 100., f"generator={network}")
    assert half < .65 * whole
    both = flops(tmp_path, "electra_1", 100., f"generator={network}", f"discriminator={network}")
    assert flops(tmp_path, "electra_1", 100., f"generator={network}") > both > 6000 / 7403 * half


@pytest.mark.parametrize("arguments, message", [
    ("mlm bert", "No checkpoint of 'bert' was finetuned on .*Finetuned: electra, mlm, other, untrained"),
    ("mlm other --tasks rte", "No checkpoint of 'other' was finetuned on rte."),
    ("mlm other", "No checkpoint of 'mlm' was finetuned on the tasks of the others."),
    ("mlm --tasks rte,qqp", "No checkpoint of 'mlm' was finetuned on rte and qqp"),
    ("mlm --baseline untrained", "Invalid value for --baseline: 'untrained'"),
    ("electra --plot figure.txt", "Invalid value for --plot: 'figure.txt'")])
def test_what_is_missing_is_named(finished, arguments, message):
    with pytest.raises(PlainError, match=message):
        main(["compare_pretraining", *arguments.split()])


def test_continued_training_and_no_finetuned_checkpoint_raise(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(PlainError, match="without group_name"):
        main(["compare_pretraining", "electra"])
    continued = checkpoint("electra_1", 100.)
    continued["config"]["initial_weights"] = "google/electra-small-discriminator"
    torch.save(continued, "continued.pth")
    with pytest.raises(PlainError, match="initial_weights are 'google/electra-small-discriminator'"):
        checkpoint_flops("continued.pth")
