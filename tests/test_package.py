"""The package that pip installs, used from another folder, without a network."""
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from documents import REPO

from _utils.__main__ import COMMANDS
from _utils.networks.build import PARTS

NOT_IN_IT = shutil.ignore_patterns(".*", "__pycache__", "checkpoints", "datasets", "test_outputs", "tests", "docs")


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """`installed(command, *arguments)` runs a program in the empty folder `installed.folder`; modules in `.site`."""
    folder = tmp_path_factory.mktemp("package")
    site, source = folder / "site", shutil.copytree(REPO, folder / "source", ignore=NOT_IN_IT)
    pip = [sys.executable, "-m", "pip", "install", "--no-index", "--no-deps", "--no-build-isolation"]
    done = subprocess.run([*pip, "--target", site, source], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    shutil.rmtree(source)

    def run(command, *arguments):
        program = [site / "bin" / command] if command != "python" else [sys.executable]
        environment = os.environ | {"PYTHONPATH": str(site), "PYTHONSAFEPATH": "1"}
        return subprocess.run([*program, *arguments], cwd=run.folder, env=environment, capture_output=True, text=True)
    run.folder, run.site = folder / "elsewhere", site
    run.folder.mkdir()
    return run


def test_the_program_has_all_commands(installed):
    done = installed("electra-replication")
    assert done.returncode == 0 and {*COMMANDS, "pretrain", "finetune"} <= {*done.stdout.split()}
    for name, word in ("pretrain", "generator_layers"), ("finetune", "th_run"), ("export_hf", "CKPT"):
        done = installed("electra-replication", name, "--help")
        assert done.returncode == 0 and word in done.stdout, done.stderr
    for arguments in ["pretrain", "siz=small"], ["pretrian"], ["export_hf"]:
        done = installed("electra-replication", *arguments)
        assert done.returncode == 1 and done.stderr.startswith("error: ") and "Traceback" not in done.stderr


FIND = """
import importlib.util
from _utils.names import EMBEDDED, PROSE
places = [importlib.util.find_spec(name).origin for name in ("pretrain", "finetune", "benchmarks.replaced_tokens")]
print(*places, *EMBEDDED.values(), PROSE / "vocab.txt", sep="\\n")
"""


def test_modules_and_their_data_are_found(installed):
    done = installed("python", "-c", FIND)
    paths = [Path(line) for line in done.stdout.splitlines()]
    assert len(paths) == 6 and all(path.is_file() and installed.site in path.parents for path in paths), done.stderr
    for part in PARTS:  # _utils.finetuning.quickstart.SHIPPED
        assert (installed.site / f"benchmarks/results/mini/model/{part}/model.safetensors").is_file()


@pytest.mark.slow
def test_pretraining_writes_to_the_current_folder(installed):
    settings = "num_workers=0 device=cpu logger=None".split()
    pretrain = "size=tiny datas=prose vocab=prose steps=1 warmup_steps=0 bs=8 base_run_name=run".split()
    done = installed("electra-replication", "pretrain", *settings, *pretrain)
    assert done.returncode == 0, done.stderr
    assert (installed.folder / "checkpoints/pretrain/run_11081_100.0%.pth").is_file()
    done = installed("python", "-c", "from finetune import SentencePredictor; from pretrain import ELECTRAModel")
    assert done.returncode == 0, done.stderr
