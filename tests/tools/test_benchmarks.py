"""Each benchmark runs in miniature and writes its table; numbers that results.md reports can be computed again."""
import contextlib
import json
from pathlib import Path

import pandas as pd
import pytest
from tiny_pretraining import metrics, run

import benchmarks.finetuning
import benchmarks.google_curve
import benchmarks.held_out
import benchmarks.loader
import benchmarks.new_tokens
import benchmarks.preprocessing
import benchmarks.pretraining
import benchmarks.starting
import pretrain
from _utils.config import complete
from _utils.runs import RunFolder
from _utils.text import extend_tokenizer, load_tokenizer

MINIATURE = {
    "pretraining": ["size=tiny", "bs=2", "max_length=16", "rounds=1", "steps=1", "device=cpu",
                    "variants=('pretrain.py fp32',)"],
    "finetuning": ["size=mini", "tasks=cola", "rows=12", "bs=4", "max_length=32", "rounds=1", "device=cpu"],
    "loader": ["examples=200", "bs=8", "max_length=16", "rounds=1", "workers=(0,)"],
    "preprocessing": ["datas=text.txt", "vocab=200", "megabytes=.01", "processes=(1,)", "rounds=1"],
    "starting": ["text=text.txt", "documents=50", "files=20", "rounds=1"],
}


@contextlib.contextmanager
def in_this_process(make, *arguments, **_):
    made = make(*arguments)
    yield lambda method, *rest: getattr(made, method)(*rest)


@pytest.mark.parametrize("name", MINIATURE)
def test_benchmark_writes_a_table(workplace, monkeypatch, name):
    module = getattr(benchmarks, name)
    monkeypatch.setattr("benchmarks.report.RESULTS", workplace / "results")
    if hasattr(module, "own_process"):  # a new process takes time to import everything
        monkeypatch.setattr(module, "own_process", in_this_process)
    module.main(MINIATURE[name])
    [path] = Path("results").glob("*.json")
    found = json.loads(path.read_text())
    assert found["rows"] and found["command"].startswith(f"python -m benchmarks.{name}") and found["versions"]["torch"]


@pytest.mark.slow
def test_the_compiled_step_of_a_gpu_has_few_launches_and_bytes():
    """Of two layers of each network. More would mean that kernels are no longer fused, or no longer share launches."""
    pytest.importorskip("triton")  # part of PyTorch's CUDA build
    from benchmarks.launches import count_launches
    settings = ["size=small", "masking=official", "precision=bf16", "compile=True", "device=cuda", "micro_batch=128"]
    found = count_launches(complete(pretrain.c.override(settings)), layers=2)
    assert found["backward, combined"]["triton"] < .5 * found["backward, separate"]["triton"]


def test_held_out_metrics_of_a_run_come_out_again_with_its_seed_only(workplace, monkeypatch):
    settings = ["precision=fp32", "micro_batch=4", "bs=16"]  # three held-out batches: short runs evaluate at most four
    run(*settings)
    names = [f"mini_5_{percent}%.pth" for percent in (50.0, 100.0)]
    # edited for other runs
    for key, value in {"max_length": 16, "size": "small", "masking": "official", "quickstart": True}.items():
        monkeypatch.setitem(pretrain.c, key, value)
    benchmarks.held_out.main(
        [f"checkpoints={names}", "seeds=5,6", "csv=seeds.csv", "device=cpu", "num_workers=0", *settings[:2]]
    )
    table = pd.read_csv("seeds.csv")
    for metric in ("gen_loss", "disc_auc"):
        of_run, of_other_seed = (table[metric][table["seed"] == seed].tolist() for seed in (5, 6))
        assert of_run == [row[metric] for row in metrics("held_out")]
        assert not set(of_run) & set(of_other_seed)


@pytest.mark.slow
def test_the_first_600_steps_of_a_run_have_the_losses_of_googles_code(workplace, shared):
    """Means over 100 steps; 0.1 is three standard deviations over seeds.

    Half the learning rate is outside of it at step 200.
    """
    google, text = benchmarks.google_curve.google_losses(shared / "golden/official/curve"), workplace / "text.txt"
    benchmarks.google_curve.write_text(shared / "data/books/books-0.txt.xz", text)
    c = benchmarks.google_curve.configuration(text, shared / "golden/official/curve/vocab.txt", 1, 600)
    pretrain.pretrain(c)
    found = benchmarks.google_curve.window_means(benchmarks.google_curve.losses(RunFolder(c.base_run_name, c.seed)))
    expected = sum(map(benchmarks.google_curve.window_means, google.values())) / len(google)
    for step in (200, 300, 400, 500, 600):
        assert found[step] == pytest.approx(expected[step], abs=.1)


def test_pairs_with_new_tokens_are_compared_on_the_same_words(workplace, repo, capsys):
    shipped = benchmarks.new_tokens.SHIPPED
    Path("benchmarks").symlink_to(repo / "benchmarks")
    Path("words.txt").write_text("tensor\ndefault\n")
    Path("text.txt").write_text("The default of this function is a tensor with the same shape.\n" * 40)
    extend_tokenizer(load_tokenizer(shipped), "words.txt").save_pretrained("tokenizer")
    benchmarks.new_tokens.write_random(1, "tokenizer", Path("random"))
    benchmarks.new_tokens.compare("text.txt", shipped, "random")
    same, extended = map(json.loads, capsys.readouterr().out.splitlines()[-2:])
    assert extended["tokens_per_word"] < same["tokens_per_word"]
    assert extended["words"] == same["words"] > extended["masked"] > 0
