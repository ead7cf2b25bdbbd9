"""Each benchmark runs in miniature and writes its table."""
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from torch.nn.attention import SDPBackend, sdpa_kernel

import benchmarks.environment
import benchmarks.finetuning
import benchmarks.gpu
import benchmarks.gpu_sections
import benchmarks.loader
import benchmarks.operators
import benchmarks.preprocessing
import benchmarks.pretraining
import benchmarks.starting
from _utils.runs.checkpoints import load_checkpoint


@pytest.fixture
def results(tmp_path, monkeypatch):
    """A function that reads the results of a benchmark by name."""
    monkeypatch.setattr("benchmarks.report.RESULTS", tmp_path)
    return lambda name: json.loads((tmp_path / f"{name}.json").read_text())


@pytest.mark.parametrize("size, has_bf16", [("tiny", False), ("mini", True)])
def test_pretraining_benchmark_compares_implementations_and_precisions(results, capsys, monkeypatch, size, has_bf16):
    monkeypatch.setattr("benchmarks.pretraining.has_on_cpu", lambda precision: has_bf16)  # left out where it is emulated
    benchmarks.pretraining.main([f"size={size}", "bs=2", "max_length=16", "rounds=1", "steps=1", "device=cpu"])
    found, precisions = results(f"pretraining_{size}_cpu"), ("fp32", "bf16") if has_bf16 else ("fp32",)
    assert set(found["rows"]) == {f"{name} {precision}" for name in ("reference", "pretrain.py") for precision in precisions}
    for row in found["rows"].values():
        assert row["ms/step"] > 0 and row["peak MB"] > 0 and row["share of matmul throughput"] > 0
    for shares in (found["shares"][f"pretrain.py {precision}"] for precision in precisions):
        assert set(shares) == {"data", "masking", "generator", "sampling", "discriminator", "losses", "backward", "optimizer", "log"}
        assert sum(shares.values()) == pytest.approx(1) and shares["backward"] > shares["data"] > 0
    assert "cores" in found["machine"] and found["versions"]["torch"] and "ratio" in capsys.readouterr().out


def test_operators_of_a_step_are_counted_by_function(results):
    counted = {}
    for precision in ("bf16", "fp32"):
        benchmarks.operators.main(["size=tiny", "bs=2", "max_length=16", f"precision={precision}"])
        found = results("operators_tiny_default")
        counted[precision] = {name: row["operators"] for name, row in found["rows"].items()}
        assert counted[precision]["step"] == sum(counted[precision][name] for name in ("masks", "accumulate", "update")) > 300
    # Weights are cast to half precision all at once: no more than a few casts per layer are left, those of activations.
    assert counted["bf16"]["masks"] <= counted["fp32"]["masks"] + 1
    assert counted["bf16"]["accumulate"] < 1.5 * counted["fp32"]["accumulate"]


def test_finetuning_benchmark_compares_implementations_and_precisions(results):
    benchmarks.finetuning.main(["size=mini", "tasks=cola,mrpc", "rows=12", "bs=4", "max_length=32", "rounds=1", "device=cpu"])
    found = results("finetuning_mini_cpu")
    assert list(found["rows"]) == ["reference", "reference, padded to 32", "finetune.py fp32", "finetune.py bf16"]
    reference, padded, *optimized = found["rows"].values()
    assert all(row["rows/s"] > 0 and row["tokens/row"] == reference["tokens/row"] for row in optimized)
    assert padded["tokens/row"] == 32 > reference["tokens/row"] and reference["ratio"] == 1
    assert found["rows_of_a_pass"] == {"cola": 12, "mrpc": 24}


@pytest.mark.slow
def test_environment_benchmark_compares_settings_on_an_idle_and_a_busy_machine(results, monkeypatch):
    monkeypatch.setattr(benchmarks.environment, "SETTINGS", {"scripts": {}})  # each setting starts a process that imports torch
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    benchmarks.environment.main(["size=tiny", "bs=2", "max_length=16", "rounds=1", "seconds=1"])
    [row] = results("environment_tiny_default")["rows"].values()
    assert row["idle tokens/s"] > 0 and row["busy tokens/s"] > 0 and row["idle ratio"] == row["busy ratio"] == 1


def test_loader_benchmark_runs(results):
    benchmarks.loader.main(["examples=200", "bs=8", "max_length=16", "rounds=1", "workers=(0,)"])
    assert results("loader_default")["rows"]["batches, 0 workers"]["ratio"] > 0


def test_preprocessing_benchmark_runs(results, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text.txt").write_text("\n\n".join(f"Document {i} has a few words and some more of them." for i in range(300)))
    benchmarks.preprocessing.main(["datas=text.txt", "vocab=200", "megabytes=.04", "processes=(1,)", "rounds=1"])
    found = results("preprocessing_default")
    assert set(found["rows"]) == {"tokenizers alone", "tokenization", "1 processes"} and found["bytes"] >= 40_000
    assert found["rows"]["1 processes"]["ratio to 1 processes"] == 1


def test_starting_benchmark_times_three_starts_with_two_corpora(results, tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("\n".join(f"Line {i} has a few words and some more of them." for i in range(300)))
    benchmarks.starting.main([f"text={text}", "documents=50", "files=20", "rounds=1"])
    found = results("starting_default")["rows"]
    assert [*found] == [f"{form}, {start}" for form in ("one file", "many files") for start in ("first", "documents opened", "next")]
    assert all(row["seconds"] > 0 and row["MB"] >= 0 for row in found.values()) and found["one file, first"]["ratio"] == 1


# GPU

def test_a_step_on_another_device_is_compared_with_the_cpu(monkeypatch):
    """A correct device rounds otherwise, as a GPU does; the gradients of the keys' biases consist of rounding errors."""
    same = benchmarks.gpu_sections.equality("cpu", miniature=True)
    assert set(same["relative differences"].values()) == {0.} and same["losses"]["loss"] > 30
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
        differences.append(benchmarks.gpu_sections.equality("cpu", miniature=True)["relative differences"])
    wrong, rounded = differences
    assert wrong["gradients"] == pytest.approx(.01, rel=.01) and wrong["losses"] == wrong["weights"] == 0
    assert 0 < rounded["gradients"] < 1e-4 and rounded["weights"] < 1e-3


def test_speed_of_a_configuration_is_measured_with_its_loader():
    found = benchmarks.gpu_sections.steps("tiny", False, "cpu", miniature=True, seconds=.3)
    assert found["precision"] == "fp32" and found["bs"] == 8 and len(found["seconds per step"]) == 3 and found["mean loss"] > 30
    assert all(value > 0 for value in found["row"].values()) and "tokens/s" in found["summary"]


GPU_SECTIONS = """
import json, sys, time
from pathlib import Path
section, arguments, path = sys.argv[1:]
arguments = json.loads(arguments)
if section == "equality":
    print("no kernel image"), sys.exit(1)
if section == "finetuning":
    time.sleep(60)
found = {"environment": {"machine": "GPU 9000, 1 core", "summary": "1 GPUs"},
         "processes": {"summary": "skipped: one GPU"}, "runs": {"summary": "losses"},
         "steps": {"row": {"ms/step": 12.345, "tokens/s": 1234567.8}, "summary": "fast"}}
Path(path).write_text(json.dumps(found[section]))
"""


def test_gpu_command_keeps_all_results_when_some_measurements_fail_or_hang(tmp_path, monkeypatch, capsys):
    (tmp_path / "benchmarks").mkdir()
    (tmp_path / "benchmarks/gpu_sections.py").write_text(GPU_SECTIONS)
    monkeypatch.setattr(benchmarks.gpu, "REPO", tmp_path)
    arguments = ["device=cuda", "sizes=small", "at_once=2", f"results={tmp_path}"]
    with pytest.raises(SystemExit, match="Not measured: equality; finetuning, 2 at once"):
        benchmarks.gpu.main([*arguments, "limit=2"])
    path, printed = tmp_path / "gpu_gpu_9000.json", capsys.readouterr().out
    found = json.loads(path.read_text())["measurements"]
    assert {name: values["status"] for name, values in found.items()} == {
        "environment": "ok", "equality": "failed", "runs": "ok", "steps of small, eager": "ok", "steps of small, compiled": "ok",
        "finetuning, 2 at once": "timed out", "processes": "ok"}
    assert "no kernel image" in found["equality"]["printed"] and "no kernel image" in printed
    assert "| small, compiled | 12.3 | 1,234,568 |" in printed and "processes: skipped: one GPU" in printed
    benchmarks.gpu.main([*arguments, "sections=processes"])
    assert json.loads(path.read_text())["measurements"].keys() == found.keys()  # earlier results are kept


@pytest.mark.slow
def test_gpu_command_runs_in_miniature_on_the_cpu(repo, tmp_path):
    done = subprocess.run([repo / "benchmarks/gpu.sh", "device=cpu", "miniature=True", "at_once=1,2", f"results={tmp_path}"],
                          capture_output=True, text=True, cwd=tmp_path, env=script_environment())
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    [path] = tmp_path.glob("gpu_*_miniature.json")
    found = json.loads(path.read_text())["measurements"]
    assert all(values["status"] == "ok" for values in found.values()) and len(found) == 7
    [losses] = found["processes"]["losses of one and of two processes"].values()
    assert found["processes"]["relative differences"]["eager"] < 1e-4 and [len(of_run) for of_run in losses] == [10, 10]
    assert set(found["equality"]["relative differences"].values()) == {0.}
    for n in (1, 2):
        assert len(found[f"finetuning, {n} at once"]["rows/s of runs"]) == n
        assert found[f"finetuning, {n} at once"]["row"]["rows/s"] > 0


def script_environment():
    return {**os.environ, "PYTHON": sys.executable, "OMP_NUM_THREADS": "1"}


@pytest.mark.slow
def test_partial_pretraining_is_stopped_at_its_milestone_and_finetuned_and_can_be_resumed(repo, glue, workplace):
    of_tasks = {"cola": {"rows": 64, "epochs": 1}, "rte": {"rows": 64, "epochs": 1}}
    command = [repo / "benchmarks/gpu_run.sh", "datas=text.txt", "vocab=vocab.txt", f"glue_dir={glue}", "size=tiny", "seed=5", "bs=8",
               "max_length=32", "steps=8000", "num_workers=0", "logger=None", "compile=False", "device=cpu", "tasks=cola,rte", "runs=2",
               "at_once=2", f"task_overrides={of_tasks}"]
    folder, milestone = Path("checkpoints/pretrain/official_5"), Path("checkpoints/pretrain/official_5_6.25%.pth")
    resume, log = folder / "resume.pth", folder / "metrics.jsonl"
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=script_environment())
    while process.poll() is None and not (log.exists() and log.stat().st_size):
        time.sleep(.1)
    process.send_signal(signal.SIGTERM)  # it stops pretraining, which saves
    printed = process.communicate(timeout=200)[0]
    assert process.returncode and "Stopped at step" in printed, printed[-3000:]
    first = load_checkpoint(resume)["step"]
    assert 0 < first < 500 and not milestone.exists()

    done = subprocess.run(command, capture_output=True, text=True, env=script_environment())
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-3000:]
    assert f"Resuming the run official_5 after step {first}." in done.stdout
    assert load_checkpoint(milestone)["step"] == load_checkpoint(resume)["step"] == 500
    assert load_checkpoint(milestone)["config"]["masking"] == "official"
    scores = Path("checkpoints/glue/official_5_6.25%/scores.txt").read_text()
    assert "CoLA" in scores and "RTE" in scores
    again = subprocess.run(command, capture_output=True, text=True, env=script_environment())
    assert again.stdout.count("already finished") == 4 and "pretrain.py" not in again.stdout
