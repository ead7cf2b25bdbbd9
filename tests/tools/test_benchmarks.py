"""Each benchmark runs in miniature and writes its table."""
import json
from pathlib import Path

import pytest

import benchmarks.finetuning
import benchmarks.loader
import benchmarks.preprocessing
import benchmarks.pretraining
import benchmarks.starting
import benchmarks.threads
from _utils.errors import PlainError


@pytest.fixture
def results(tmp_path, monkeypatch):
    """A function that reads the results of a benchmark by name."""
    monkeypatch.setattr("benchmarks.report.RESULTS", tmp_path)
    return lambda name: json.loads((tmp_path / f"{name}.json").read_text())


def test_pretraining_benchmark_compares_implementations_and_precisions(results, capsys):
    benchmarks.pretraining.main(["size=tiny", "bs=2", "max_length=16", "rounds=1", "steps=1", "device=cpu"])
    found = results("pretraining_tiny_cpu")
    assert set(found["rows"]) == {"reference fp32", "pretrain.py fp32", "reference bf16", "pretrain.py bf16"}
    for row in found["rows"].values():
        assert row["ms/step"] > 0 and row["peak MB"] > 0 and row["share of matmul throughput"] > 0
    for shares in (found["shares"][name] for name in ("pretrain.py fp32", "pretrain.py bf16")):
        assert set(shares) == {"data", "masking", "generator", "sampling", "discriminator", "losses", "backward", "optimizer"}
        assert sum(shares.values()) == pytest.approx(1) and shares["backward"] > shares["data"] > 0
    assert "cores" in found["machine"] and found["versions"]["torch"] and "ratio" in capsys.readouterr().out
    with pytest.raises(PlainError, match="Unknown key: 'sise'. Did you mean 'size'"):
        benchmarks.pretraining.main(["sise=tiny"])


def test_finetuning_benchmark_compares_implementations_and_precisions(results):
    benchmarks.finetuning.main(["size=tiny", "tasks=cola,mrpc", "rows=12", "bs=4", "max_length=32", "rounds=1", "device=cpu"])
    found = results("finetuning_tiny_cpu")
    assert list(found["rows"]) == ["reference", "reference, padded to 32", "finetune.py fp32", "finetune.py bf16"]
    reference, padded, *optimized = found["rows"].values()
    assert all(row["rows/s"] > 0 and row["tokens/row"] == reference["tokens/row"] for row in optimized)
    assert padded["tokens/row"] == 32 > reference["tokens/row"] and reference["ratio"] == 1
    assert found["rows_of_a_pass"] == {"cola": 12, "mrpc": 24}
    with pytest.raises(PlainError, match="'stsb' is not a task of this benchmark"):
        benchmarks.finetuning.main(["tasks=stsb"])


def test_threads_benchmark_compares_settings_on_an_idle_and_a_busy_machine(results, monkeypatch):
    monkeypatch.setattr(benchmarks.threads, "SETTINGS", {"default": {}})  # each setting starts a process that imports torch
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    benchmarks.threads.main(["size=tiny", "bs=2", "max_length=16", "rounds=1", "seconds=1"])
    [row] = results("threads_tiny_default")["rows"].values()
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
