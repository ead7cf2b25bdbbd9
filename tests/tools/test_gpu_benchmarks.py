"""The benchmarks for the first minutes and the first run on a GPU, in miniature on the CPU."""
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

import benchmarks.gpu
from _utils.runs.checkpoints import load_checkpoint
from _utils.runs.resume import find_resume_checkpoint
from benchmarks.gpu import exceeded


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_captured_steps_are_right_on_a_real_gpu():
    found = {}
    for more in benchmarks.gpu.replay(device="cuda", miniature=True):
        found |= more
    assert not exceeded(found)


@pytest.mark.slow
def test_speedrun_survives_a_kill_and_keeps_what_it_has(repo, glue, workplace):
    """From text to scores, killed in the middle of pretraining; the kept weights are a checkpoint."""
    of_tasks = {"cola": {"rows": 64, "epochs": 1}, "rte": {"rows": 64, "epochs": 1}}
    command = [repo / "benchmarks/speedrun.sh", "datas=text.txt", "vocab=vocab.txt", f"glue_dir={glue}", "size=tiny",
               "seed=5", "bs=8", "max_length=32", "minutes=.5", "num_workers=0", "logger=None", "compile=False",
               "device=cpu", "tasks=cola,rte", "runs=2", "at_once=2", "save_minutes=.02", "keep=kept",
               f"task_overrides={of_tasks}"]
    environment = {**os.environ, "PYTHON": sys.executable, "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, env=environment, start_new_session=True)
    while process.poll() is None and not Path("kept/weights.pth.00").exists():
        time.sleep(.1)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    folder, milestone = Path("checkpoints/pretrain/speedrun_5"), Path("checkpoints/pretrain/speedrun_5_100.0%.pth")
    first = find_resume_checkpoint(folder)
    assert 0 < first["step"] < first["config"]["steps"] and not milestone.exists()

    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-3000:]
    last = load_checkpoint(milestone)
    assert last["step"] == first["config"]["steps"] and last["config"]["masking"] == "official"
    scores = Path("checkpoints/glue/speedrun_5_100.0%/scores.txt").read_text()
    assert "CoLA" in scores and "RTE" in scores
    pieces = sorted(Path("kept").glob("weights.pth.*"))
    Path("joined.pth").write_bytes(b"".join(piece.read_bytes() for piece in pieces))
    assert load_checkpoint("joined.pth")["model"].keys() == last["model"].keys()
