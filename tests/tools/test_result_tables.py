"""The tables of numbers in README and docs: that they are those of the raw files, and that the comparison ran as
described.
"""
import json
import os
import shlex
import subprocess
import sys

import pytest
from documents import REPO

import finetune
import pretrain
from _utils.config import complete
from _utils.finetuning.config import complete_finetuning
from benchmarks.tables import ELECTRA, MINI, MLM, OTHER_RATE, SEEDS, documents


@pytest.mark.parametrize("path, computed", documents(), ids=lambda value: getattr(value, "name", ""))
def test_numbers_of_tables_equal_the_raw_ones_rounded(path, computed):
    """If this fails, run python -m benchmarks.tables."""
    assert path.read_text(encoding="utf-8") == computed


def test_run_repeats_the_recorded_runs(tmp_path):
    """Pretraining with the recorded settings, and a finetuning run for each recorded group.

    Stubs record what run.sh starts.
    """
    log = tmp_path / "log"
    for name in ("python", "torchrun"):
        stub = tmp_path / name
        stub.write_text(f"#!{sys.executable}\nimport shlex, sys\nopen({str(log)!r}, "
                        f"'a').write(shlex.join(sys.argv[1:]) + '\\n')\n")
        stub.chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    subprocess.run([MINI / "run.sh", "data"], check=True, cwd=REPO, env=environment)
    pretrained, groups = {}, set()
    for line in log.read_text().splitlines():
        script, *arguments = shlex.split(line)
        if script == "pretrain.py":
            c = complete(pretrain.c.override(arguments))
            pretrained[f"{c.base_run_name}_{c.seed}"] = c
        elif script == "finetune.py":
            groups.add(complete_finetuning(finetune.c.override(arguments)).group_name)
    for system in (ELECTRA, MLM, OTHER_RATE):
        for seed in SEEDS:
            config = json.loads((MINI / f"{system}_{seed}/config.json").read_text())["config"]
            keys = (
                "objective",
                "electra_mask_style",
                "steps",
                "warmup_steps",
                "lr",
                "precision",
                "vocab",
                "seed",
                "size",
            )
            assert {key: getattr(pretrained[f"{system}_{seed}"], key) for key in keys} == {
                key: config[key] for key in keys
            }
    recorded = {json.loads(line)["group"] for line in (MINI / "scores.jsonl").open()}
    assert groups == {group for group in recorded if not group.startswith("sensitivity")}
