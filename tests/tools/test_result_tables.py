"""The tables of numbers in README and docs: that they are those of the raw files, and that the comparison ran as described."""
import json
import os
import shlex
import subprocess
import sys
from dataclasses import replace

import pytest
from documents import REPO

import finetune
import pretrain
from _utils.config import complete
from _utils.finetuning.config import complete_finetuning
from _utils.recipes import RECIPES
from benchmarks.flops import steps_of_equal_compute
from benchmarks.tables import ELECTRA, MINI, MLM, OTHER_RATE, SEEDS, SMALL, documents, filled


@pytest.mark.parametrize("path, computed", documents(), ids=lambda value: getattr(value, "name", ""))
def test_numbers_of_tables_equal_the_raw_ones_rounded(path, computed):
    """If this fails, run python -m benchmarks.tables."""
    assert path.read_text(encoding="utf-8") == computed


def test_only_the_numbers_of_the_given_columns_are_replaced():
    text = "# A\n\n| x 1 | y |\n|---|---|\n| 2 | .50, 1,234 (1e-3) |\n| 3 | -0.1 |\n\n4\n# B\n\n| 5 |\n|---|\n| 6 |\n"
    expected = text.replace(".50, 1,234 (1e-3)", ".33, 2,000 (5e-4)").replace("-0.1", "7.0")
    assert filled(text, {"A": [(1, lambda: [[1 / 3, 2000, 5e-4], [7, float("nan")]])]}) == expected
    with pytest.raises(ValueError):
        filled(text, {"A": [(1, lambda: [[1, 2, 3]])]})


def equal_steps():
    """Steps of the masked language model in the comparison."""
    electra = RECIPES["mini"]
    return steps_of_equal_compute(electra, replace(electra, generator=electra.discriminator, discriminator=None), electra.steps, 8192)


def test_mini_was_trained_with_the_settings_of_its_recipe():
    recipe, steps = RECIPES["mini"], equal_steps()
    for system, own in ((ELECTRA, {"steps": recipe.steps, "lr": recipe.lr}), (MLM, {"steps": steps, "lr": 2e-3}),
                        (OTHER_RATE, {"steps": steps, "lr": 1e-3})):
        for seed in SEEDS:
            config = json.loads((MINI / f"{system}_{seed}/config.json").read_text())["config"]
            expected = {**{key: getattr(recipe, key) for key in ("bs", "max_length", "mask_prob", "warmup_steps")}, **own, "seed": seed}
            assert {key: config[key] for key in expected} == expected


@pytest.fixture
def commands_of_run(tmp_path):
    """A function that returns the arguments of every Python command that the run.sh of a folder starts."""
    log = tmp_path / "log"
    for name in ("python", "torchrun"):
        stub = tmp_path / name
        stub.write_text(f"#!{sys.executable}\nimport shlex, sys\nopen({str(log)!r}, 'a').write(shlex.join(sys.argv[1:]) + '\\n')\n")
        stub.chmod(0o755)

    def commands(folder):
        environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
        subprocess.run([folder / "run.sh", "data"], check=True, cwd=REPO, env=environment)
        return [shlex.split(line) for line in log.read_text().splitlines()]
    return commands


def test_run_repeats_the_recorded_runs(commands_of_run):
    """Pretraining with the recorded settings, and a finetuning run for each recorded group."""
    pretrained, groups = {}, set()
    for script, *arguments in commands_of_run(MINI):
        if script == "pretrain.py":
            c = complete(pretrain.c.override(arguments))
            pretrained[f"{c.base_run_name}_{c.seed}"] = c
        elif script == "finetune.py":
            groups.add(complete_finetuning(finetune.c.override(arguments)).group_name)
    for system in (ELECTRA, MLM, OTHER_RATE):
        for seed in SEEDS:
            config = json.loads((MINI / f"{system}_{seed}/config.json").read_text())["config"]
            keys = "objective", "electra_mask_style", "steps", "warmup_steps", "lr", "precision", "vocab", "seed", "size"
            assert {key: getattr(pretrained[f"{system}_{seed}"], key) for key in keys} == {key: config[key] for key in keys}
    recorded = {json.loads(line)["group"] for line in (MINI / "scores.jsonl").open()}
    assert groups == {group for group in recorded if not group.startswith("sensitivity")}


def test_the_run_of_small_has_the_recorded_configuration_and_finetunes_its_milestones(commands_of_run):
    commands = [command[command[0].startswith("--nproc"):] for command in commands_of_run(SMALL)]
    runs = [complete(pretrain.c.override(arguments)) for script, *arguments in commands if script == "pretrain.py"]
    recorded = json.loads((SMALL / "config.json").read_text())["config"]
    assert (recorded["device"], recorded["micro_batch"]) == ("cuda:0", runs[0].bs)  # what pretrain.py chooses on a large GPU
    same = recorded.keys() - {"datas", "vocab", "device", "micro_batch", "milestones", "stop_at", "logger", "save_minutes", "cased",
                              "one_document_per_file"}  # the last two have other defaults or names now
    assert {key: runs[0][key] for key in same} == {key: recorded[key] for key in same}
    milestones = [f"{c.base_run_name}_11081_{percent}%.pth" for c in runs for percent in c.milestones]
    finetuned = [complete_finetuning(finetune.c.override(arguments)) for script, *arguments in commands if script == "finetune.py"]
    assert {c.pretrained_checkpoint for c in finetuned} <= {*milestones, "benchmarks/results/mini/model/discriminator"}
