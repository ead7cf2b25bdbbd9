"""The command line is read and checked before PyTorch and the other large libraries are imported, which takes seconds.

They cannot be imported here.
"""
import os
import subprocess
import sys

import pytest

LARGE = ("torch", "fastai", "transformers", "datasets", "pandas")


@pytest.fixture(scope="module")
def without_large_libraries(repo, tmp_path_factory):
    """An environment in which importing them fails."""
    folder = tmp_path_factory.mktemp("unimportable")
    for name in LARGE:
        (folder / f"{name}.py").write_text(f"raise ImportError('{name} was imported')\n")
    return os.environ | {"PYTHONPATH": os.pathsep.join(map(str, [folder, repo]))}


@pytest.mark.parametrize("command, expected", {
    "pretrain.py --help": "\nobjective=None\n",
    "pretrain.py sise=base": "'sise'",
    "pretrain.py steps=100 warmup_steps=101": "warmup_steps=101",
    "pretrain.py objective=electric temperature=2": "temperature=2.0",
    "pretrain.py initial_weights=missing.pth": "'missing.pth'",
    "finetune.py --help": "\nth_run=None\n",
    "finetune.py task=rte": "'task'",
    "finetune.py start=3 end=3": "start=3",
    "finetune.py tasks={'train':'reviews.csv','kind':'tags'}": "'tags'",
    "finetune.py tasks={'train':'reviews.csv'} do_finetune=False": "'reviews.csv'",
    "finetune.py pretrained_checkpoint=missing.pth": "'missing.pth'",
    "finetune.py pretrained_checkpoint=some/model glue_dir=missing": "'missing'",
    "-m _utils": "\nexport_hf ",
    "-m _utils minimal_pairs --help": "checkpoints of pretrain.py",
    "-m _utils export": "'export'",
    "-m _utils export_hf model.pth": "OUT_DIR",
}.items())
def test_help_and_mistakes_need_no_large_library(repo, without_large_libraries, tmp_path, command, expected):
    script, *arguments = command.split()
    script = str(repo / script) if script.endswith(".py") else script
    done = subprocess.run([sys.executable, script, *arguments], cwd=tmp_path, env=without_large_libraries,
                          capture_output=True, text=True)
    is_error = done.stderr.startswith("error: ")
    assert expected in (done.stderr if is_error else done.stdout), done.stderr
    assert (done.returncode, done.stderr.count("\n")) == ((1, 1) if is_error else (0, 0)), done.stderr
    assert not list(tmp_path.iterdir())
