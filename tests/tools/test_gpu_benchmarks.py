"""The benchmarks for the first minutes and the first run on a GPU, in miniature on the CPU."""
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import psutil
import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

import benchmarks.gpu
import benchmarks.gpu_sections
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
    same = result(benchmarks.gpu_sections.equality)
    assert set(same["relative differences"].values()) == {0.} and same["losses"]["loss"] > 30 and not exceeded(same)
    step = benchmarks.gpu_sections.step_from_start

    def changed_step(*arguments):
        with sdpa_kernel(next(attention)):
            found = step(*arguments)
        found["gradients"]["generator.generator_lm_head.bias"] *= next(factors)
        return found
    monkeypatch.setattr(benchmarks.gpu_sections, "step_from_start", changed_step)
    differences = []
    for second, error in ((SDPBackend.FLASH_ATTENTION, 1.01), (SDPBackend.MATH, 1.)):
        attention, factors = iter((SDPBackend.FLASH_ATTENTION, second)), iter((1., error))
        differences.append(result(benchmarks.gpu_sections.equality))
    wrong, rounded = differences
    assert wrong["relative differences"]["gradients"] == pytest.approx(.01, rel=.01)
    assert [check.partition(",")[0] for check in exceeded(wrong)] == ["gradients"]
    assert rounded["relative differences"]["gradients"] > 0 and not exceeded(rounded)


def test_captured_steps_are_checked(monkeypatch):
    """On the CPU they are traced only. Mistakes are found: random numbers that repeat, and an update that does nothing."""
    found = result(benchmarks.gpu_sections.replay)
    assert len(found["checks"]) == 8 and not exceeded(found)

    seed_step = benchmarks.gpu_sections.seed_step
    monkeypatch.setattr(benchmarks.gpu_sections, "seed_step", lambda seed, *_: seed_step(seed, 0))
    monkeypatch.setattr(cuda_graph, "compile_step", lambda learn, backend: setattr(learn, "update", lambda: torch.zeros(())))
    wrong = [check.partition(":")[0] for check in exceeded(result(benchmarks.gpu_sections.replay))]
    assert wrong[:2] == ["another step, same masks", "another micro-batch, same dropout"] and "change of the weights" in wrong[-1]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_captured_steps_are_right_on_a_real_gpu():
    assert not exceeded(result(benchmarks.gpu_sections.replay, device="cuda"))


def test_changes_of_the_compiled_step_are_compared():
    found = result(benchmarks.gpu_sections.changes)
    assert not exceeded(found) and found["checks"]["gradients of combined kernels"][0] == 0  # on a CPU there are no combined kernels
    assert all(found[f"{name}: ms/step"] > 0 and found[f"{name}: longest kernels"] for name in benchmarks.gpu_sections.CHANGES)


def test_speed_of_a_configuration_is_measured_with_its_loader():
    found = result(benchmarks.gpu_sections.steps, size="tiny", kind="eager", seconds=.3)
    shares = found["longest kernels"]
    assert len(shares) == 20 and .5 < sum(shares.values()) <= 1 and any("mm" in name for name in shares)
    assert found["precision"] == "fp32" and found["bs"] == 8 and len(found["seconds per step"]) == 3 and found["mean loss"] > 30
    assert all(value > 0 for value in found["row"].values()) and "tokens/s" in found["summary"]


GPU_SECTIONS = """
import json, subprocess, sys, time
from pathlib import Path
section, arguments, path = sys.argv[1:]
arguments = json.loads(arguments)
if section == "equality":
    print("no kernel image"), sys.exit(1)
found = {"environment": {"machine": "GPU 9000, 1 core", "summary": "1 GPUs"},
         "replay": {"summary": "differences", "checks": {"losses": [.3, .1], "weights": [.1, .2]}},
         "changes": {"summary": "faster"}, "processes": {"summary": "skipped: one GPU"},
         "runs": {"summary": "losses", "checks": {"loss": [float("nan"), 1], "other": [None, 1]}},
         "steps": {"row": {"ms/step": 12.345, "tokens/s": 1234567.8}, "summary": "fast"},
         "learning": {"seconds": 1}, "finetuning": {"row": {"rows/s": 1}}}
if section == "finetuning":
    worker = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], start_new_session=True)
    found[section]["worker"] = worker.pid
Path(path).write_text(json.dumps(found[section]))
if section == "finetuning":
    time.sleep(60)
"""


def has_ended(pid, seconds=10):
    """Whether a process that is no child of this one ends soon. A container may have no process that removes it then."""
    for _ in range(10 * seconds):
        with contextlib.suppress(psutil.NoSuchProcess):
            if psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
                time.sleep(.1)
                continue
        return True
    return False


def test_gpu_command_keeps_all_results_when_some_measurements_fail_or_hang(tmp_path, monkeypatch, capsys):
    (tmp_path / "benchmarks").mkdir()
    (tmp_path / "benchmarks/gpu_sections.py").write_text(GPU_SECTIONS)
    (tmp_path / "requirements.txt").write_text("# comment\ntorch>=99\ntensorboard-of-the-future>=1\n")
    monkeypatch.setattr(benchmarks.gpu, "NOT_NEEDED", {"tensorboard-of-the-future"})
    monkeypatch.setattr(benchmarks.gpu, "REPO", tmp_path)
    arguments = ["device=cuda", "sizes=small", "kinds=eager,captured", "at_once=2", f"results={tmp_path}"]
    with pytest.raises(SystemExit) as stopped:
        benchmarks.gpu.main([*arguments, "limit=2"])
    for problem in ("equality (failed)", "replay, losses: 0.3 (at most 0.1)", "runs, loss: nan", "runs, other: None",
                    "finetuning, 2 at once (timed out)"):
        assert problem in str(stopped.value)
    assert "weights" not in str(stopped.value)
    path, printed = tmp_path / "gpu_gpu_9000.json", capsys.readouterr().out
    found = json.loads(path.read_text())["measurements"]
    assert {name: values["status"] for name, values in found.items()} == {
        "environment": "ok", "equality": "failed", "replay": "ok", "changes": "ok", "runs": "ok", "processes": "ok", "steps of small, eager": "ok",
        "steps of small, captured": "ok", "learning": "ok", "finetuning, 2 at once": "timed out"}
    assert "no kernel image" in found["equality"]["printed"] and "no kernel image" in printed
    assert found["finetuning, 2 at once"]["row"] == {"rows/s": 1}  # measured before it hung
    assert has_ended(found["finetuning, 2 at once"]["worker"])
    assert "| small, captured | 12.3 | 1,234,568 |" in printed and "processes: skipped: one GPU" in printed
    assert "versions that were not tested: torch" in printed
    benchmarks.gpu.main([*arguments, "sections=processes"])
    assert json.loads(path.read_text())["measurements"].keys() == found.keys()  # earlier results are kept

    monkeypatch.setattr(benchmarks.gpu.time, "monotonic", partial(next, iter((0., 61., 0.))))
    with pytest.raises(SystemExit, match=r"processes \(no time left\)"):
        benchmarks.gpu.main([*arguments, "sections=processes", "minutes=1"])
    (tmp_path / "requirements.txt").write_text("package-of-the-future>=1\n")
    with pytest.raises(SystemExit, match="Packages are missing: package-of-the-future"):
        benchmarks.gpu.main(arguments)


@pytest.mark.slow
def test_gpu_command_runs_in_miniature_on_the_cpu(repo, tmp_path):
    done = subprocess.run([repo / "benchmarks/gpu.sh", "device=cpu", "miniature=True", "at_once=1,2", "limit=600", f"results={tmp_path}"],
                          capture_output=True, text=True, cwd=tmp_path, env=script_environment())
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    [path] = tmp_path.glob("gpu_*_miniature.json")
    found = json.loads(path.read_text())["measurements"]
    assert all(values["status"] == "ok" for values in found.values()) and len(found) == 9
    [losses] = found["processes"]["losses of one and of two processes"].values()
    assert found["processes"]["relative differences"]["eager"] < 1e-4 and [len(of_run) for of_run in losses] == [10, 10]
    assert set(found["equality"]["relative differences"].values()) == {0.}
    for n in (1, 2):
        assert len(found[f"finetuning, {n} at once"]["rows/s of runs"]) == n
        assert found[f"finetuning, {n} at once"]["row"]["rows/s"] > 0


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
