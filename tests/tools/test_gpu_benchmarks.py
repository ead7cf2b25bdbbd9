"""The benchmarks for the first minutes and the first run on a GPU, in miniature on the CPU."""
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

import benchmarks.gpu
from _utils.runs.checkpoints import load_checkpoint
from _utils.runs.resume import find_resume_checkpoint
from _utils.training import cuda_graph
from benchmarks.gpu import exceeded


def result(section, **arguments):
    """All numbers of a section in miniature."""
    found = {}
    for more in section(**{"device": "cpu", "miniature": True, **arguments}):
        found |= more
    return found


def test_a_step_on_another_device_is_compared_with_the_cpu(monkeypatch):
    """A correct device rounds otherwise, as a GPU does; the gradients of the keys' biases consist of rounding errors."""
    same = result(benchmarks.gpu.equality)
    assert set(same["relative differences"].values()) == {0.} and same["losses"]["loss"] > 30 and not exceeded(same)
    step = benchmarks.gpu.step_from_start

    def changed_step(*arguments):
        with sdpa_kernel(next(attention)):
            found = step(*arguments)
        found["gradients"]["generator.generator_lm_head.bias"] *= next(factors)
        return found
    monkeypatch.setattr(benchmarks.gpu, "step_from_start", changed_step)
    differences = []
    for second, error in ((SDPBackend.FLASH_ATTENTION, 1.01), (SDPBackend.MATH, 1.)):
        attention, factors = iter((SDPBackend.FLASH_ATTENTION, second)), iter((1., error))
        differences.append(result(benchmarks.gpu.equality))
    wrong, rounded = differences
    assert wrong["relative differences"]["gradients"] == pytest.approx(.01, rel=.01)
    assert [check.partition(",")[0] for check in exceeded(wrong)] == ["gradients"]
    assert rounded["relative differences"]["gradients"] > 0 and not exceeded(rounded)


def test_captured_steps_are_checked(monkeypatch):
    """On the CPU they are traced only. Mistakes are found: random numbers that repeat, and an update that does nothing."""
    found = result(benchmarks.gpu.replay)
    assert len(found["checks"]) == 8 and not exceeded(found)

    seed_step = benchmarks.gpu.seed_step
    monkeypatch.setattr(benchmarks.gpu, "seed_step", lambda seed, *_: seed_step(seed, 0))
    monkeypatch.setattr(cuda_graph, "compile_step", lambda learn, backend: setattr(learn, "update", lambda: torch.zeros(())))
    wrong = [check.partition(":")[0] for check in exceeded(result(benchmarks.gpu.replay))]
    assert wrong[:2] == ["another step, same masks", "another micro-batch, same dropout"] and "change of the weights" in wrong[-1]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_captured_steps_are_right_on_a_real_gpu():
    assert not exceeded(result(benchmarks.gpu.replay, device="cuda"))


@pytest.mark.slow
def test_changes_of_the_compiled_step_are_compared():
    found = result(benchmarks.gpu.changes)
    assert not exceeded(found) and found["checks"]["gradients of combined kernels"][0] == 0  # on a CPU there are no combined kernels
    assert all(found[f"{name}: ms/step"] > 0 and found[f"{name}: longest kernels"] for name in benchmarks.gpu.CHANGES)


def test_speed_of_a_configuration_is_measured_with_its_loader():
    found = result(benchmarks.gpu.steps, size="tiny", kind="eager", seconds=.3)
    shares = found["longest kernels"]
    assert len(shares) == 20 and .5 < sum(shares.values()) <= 1 and any("mm" in name for name in shares)
    assert found["precision"] == "fp32" and found["bs"] == 8 and len(found["seconds per step"]) == 3 and found["mean loss"] > 30
    assert all(value > 0 for value in found["row"].values()) and "tokens/s" in found["summary"]


def script_environment():
    return {**os.environ, "PYTHON": sys.executable, "OMP_NUM_THREADS": "1"}


@pytest.mark.slow
def test_speedrun_survives_a_kill_and_keeps_what_it_has(repo, glue, workplace):
    """From text to scores, killed in the middle of pretraining; the kept weights are a checkpoint."""
    of_tasks = {"cola": {"rows": 64, "epochs": 1}, "rte": {"rows": 64, "epochs": 1}}
    command = [repo / "benchmarks/speedrun.sh", "datas=text.txt", "vocab=vocab.txt", f"glue_dir={glue}", "size=tiny", "seed=5", "bs=8",
               "max_length=32", "minutes=.5", "num_workers=0", "logger=None", "compile=False", "device=cpu", "tasks=cola,rte", "runs=2",
               "at_once=2", "save_minutes=.02", "keep=kept", f"task_overrides={of_tasks}"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=script_environment(),
                               start_new_session=True)
    while process.poll() is None and not Path("kept/weights.pth.00").exists():
        time.sleep(.1)
    os.killpg(process.pid, signal.SIGKILL)
    printed = process.communicate()[0]
    folder, milestone = Path("checkpoints/pretrain/speedrun_5"), Path("checkpoints/pretrain/speedrun_5_100.0%.pth")
    first = find_resume_checkpoint(folder)
    assert 0 < first["step"] < first["config"]["steps"] and not milestone.exists(), printed[-3000:]

    done = subprocess.run(command, capture_output=True, text=True, env=script_environment())
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-3000:]
    assert "Resuming the run speedrun_5 after step" in done.stdout
    last = load_checkpoint(milestone)
    assert last["step"] == find_resume_checkpoint(folder)["step"] == first["config"]["steps"] and last["config"]["masking"] == "official"
    scores = Path("checkpoints/glue/speedrun_5_100.0%/scores.txt").read_text()
    assert "CoLA" in scores and "RTE" in scores
    pieces = sorted(Path("kept").glob("weights.pth.*"))
    Path("joined.pth").write_bytes(b"".join(piece.read_bytes() for piece in pieces))
    assert load_checkpoint("joined.pth")["model"].keys() == last["model"].keys()
    again = subprocess.run(command, capture_output=True, text=True, env=script_environment())
    assert again.stdout.count("already finished") == 4 and "pretrain.py" not in again.stdout
