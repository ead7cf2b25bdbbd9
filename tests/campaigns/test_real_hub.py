"""The Hugging Face Hub itself: python -m pytest -m slow -rs tests/campaigns/test_real_hub.py

They load a little of OpenWebText, a task of GLUE, and the small discriminator of Google, about 300 MB, and are skipped
without a connection.
"""
import subprocess
import sys
import urllib.error
import urllib.request

import pytest
from huggingface_hub.constants import ENDPOINT

from _utils.finetuning.runs import Runs
from _utils.runs.log import read_metrics


def is_reachable(address):
    """Whether a server answers at an address, also if it answers with an error."""
    try:
        urllib.request.urlopen(address, timeout=10).close()
    except urllib.error.HTTPError:
        pass
    except OSError:
        return False
    return True


@pytest.fixture(scope="module")
def _hub():
    if not is_reachable(ENDPOINT):
        pytest.skip(f"no connection to {ENDPOINT}")


pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("_hub")]


@pytest.fixture
def run(repo, tmp_path):
    """run(script, *arguments) in an empty folder, where it must succeed."""
    def run(script, *arguments):
        command = [sys.executable, repo / script, *arguments, "device=cpu", "logger=None", "num_workers=0"]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return run


def test_pretraining_on_the_first_texts_of_openwebtext(run, tmp_path):
    run("pretrain.py", "size=tiny", "datas=openwebtext", "stream=200", "vocab=google-bert/bert-base-uncased", "steps=3",
        "warmup_steps=1", "base_run_name=web")
    assert read_metrics(tmp_path / "checkpoints/pretrain/web_11081/metrics.jsonl", "train")


def test_finetuning_googles_small_discriminator_on_rte(run, tmp_path):
    run("finetune.py", "pretrained_checkpoint=google/electra-small-discriminator", "tasks=rte", "end=1",
        "group_name=released")
    [finished] = Runs(path=tmp_path / "checkpoints/glue/scores.jsonl")
    assert finished.score > 58  # the majority class has 52.7, and Google's median is 66.7
