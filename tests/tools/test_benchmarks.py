"""Each benchmark runs in miniature and writes its table."""
import json
from pathlib import Path

import pytest

import benchmarks.environment
import benchmarks.finetuning
import benchmarks.loader
import benchmarks.operators
import benchmarks.preprocessing
import benchmarks.pretraining
import benchmarks.starting


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
