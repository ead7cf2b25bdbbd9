"""Training in several processes: the same examples, masks, samples and dropout as in one process, divided among them.
"""
import json
import math
import re
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
import torch
from tiny_pretraining import rows, weights

from _utils.runs.checkpoints import load_checkpoint
from _utils.training.device import micro_batch_size
from _utils.training.processes import Processes

SETTINGS = ("size=tiny datas=text.txt vocab=vocab.txt seed=5 bs=8 micro_batch=2 max_length=32 logger=None "
            "device=cpu").split()


@pytest.fixture
def launch(scripts):
    """`launch(n, *settings)` pretrains in n processes on the CPU and returns the standard output."""
    def launch(n, *settings):
        done = scripts.run("pretrain.py", settings, Path.cwd(), processes=n)
        assert done.returncode == 0, done.stderr[-3000:]
        return done.stdout
    return launch


METRICS = {"loss", "gen_loss", "disc_loss", "gen_accuracy", "disc_auc", "replaced_share", "lr"}


def assert_same_run(name, other, n):
    """Assert that two runs have the same n rows of metrics and the same weights, up to rounding."""
    assert len(rows(name)) == n
    assert_same_rows(rows(name), rows(other))
    for (key, a), b in zip(weights(name).items(), weights(other).values()):
        torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-4, msg=key)


def assert_same_rows(rows, others):
    """Assert that two lists of rows have the same metrics, up to rounding."""
    assert len(rows) == len(others)
    for a, b in zip(rows, others):
        assert (a["step"], a["split"]) == (b["step"], b["split"])
        for key in METRICS & set(a):
            tolerance = 2e-3 if key == "disc_auc" else 1e-4  # rounding moves logits to the next bin of the histogram
            assert a[key] == pytest.approx(b[key], rel=tolerance, abs=1e-6), (key, a["step"])


@pytest.mark.parametrize("n, objective", [(3, "electra"), (2, "mlm"), *(
    pytest.param(2, objective, marks=pytest.mark.slow) for objective in ("all_tokens_mlm", "adversarial", "electric"))])
def test_several_processes_train_the_same_model_as_one(workplace, launch, n, objective):
    """Of three processes, one has two of the four micro-batches of a batch."""
    settings = [*SETTINGS, "num_workers=0", "steps=12", f"objective={objective}"]
    launch(1, *settings, "base_run_name=one")
    assert launch(n, *settings, "base_run_name=several").count("training examples") == 1  # only one process prints
    assert_same_run("several_5", "one_5", 12 + 5)


@pytest.mark.parametrize("first, then, number, n_workers", [
    (2, 1, signal.SIGINT, 0), pytest.param(1, 2, signal.SIGTERM, 2, marks=pytest.mark.slow)])
def test_stopped_run_resumes_with_another_number_of_processes(
    workplace, scripts, launch, first, then, number, n_workers
):
    """The signal reaches all processes: a terminal sends it to those of Ctrl-C; Slurm, systemd and Kubernetes also to
    the data workers.
    """
    settings = [*SETTINGS, "steps=40", f"num_workers={n_workers}"]
    metrics = Path("checkpoints/pretrain/two_5/metrics.jsonl")
    launch(1, *settings, "base_run_name=one")
    with ThreadPoolExecutor() as pool:
        running = pool.submit(scripts.run, "pretrain.py", [*settings, "base_run_name=two"], Path.cwd(), processes=first)
        while not running.done() and not (metrics.exists() and metrics.read_text().count("\n") > 6):
            time.sleep(.02)
        [command] = psutil.Process(scripts.pid).children()
        for process in command.children(recursive=True) + [command] * (first == 1):
            process.send_signal(number)
    done = running.result()
    assert done.returncode and done.stderr.count("Stopped at step") == 1, done.stderr[-2000:]
    assert first > 1 or (done.returncode == 130 and "error" not in done.stderr)
    step = load_checkpoint(metrics.with_name("resume.pth"))["step"]
    assert 0 < step < 40 and f"after step {step}:" in launch(then, *settings, "base_run_name=two")
    assert_same_run("two_5", "one_5", 40 + 5)


def test_metrics_of_an_interval_in_which_a_run_stopped_are_those_of_all_processes(workplace, launch):
    settings = [*SETTINGS, "num_workers=0", "steps=430", "milestones=100"]  # metrics at every second step
    launch(1, *settings, "stop_at=6", "base_run_name=one")
    for stop_at in (3, 6):
        launch(2, *settings, f"stop_at={stop_at}", "base_run_name=two")
    train = [[row for row in rows(name) if row["split"] == "train"] for name in ("one_5", "two_5")]
    assert [row["step"] for row in train[0]] == [2, 4, 6]
    assert_same_rows(*train)


@pytest.mark.parametrize("n", range(1, 9))
def test_a_batch_is_divided_among_processes_in_as_few_passes_as_possible(n):
    def passes(size, n_rows):
        """Of the process with the most micro-batches; None if one has none."""
        n_micro_batches = math.ceil(n_rows / size)
        return math.ceil(n_micro_batches / n) if n_micro_batches >= n else None
    share = partial(Processes.share, SimpleNamespace(n=n))
    for n_rows in (*range(n, 70), 128, 256, 2048):
        possible = {passes(size, n_rows) for size in range(1, n_rows + 1)} - {None}
        assert passes(share(n_rows, n_rows), n_rows) == min(possible) and share(1, n_rows) == 1
    networks = [SimpleNamespace(config=SimpleNamespace(hidden_size=width)) for width in (64, 256)]
    size = share(micro_batch_size(torch.device("cpu"), 128, 16, "fp32", networks, .15, n), 128)
    assert passes(size, 128) == 1


SCORES = Path("checkpoints/glue/scores.jsonl")
SMALL = {"cola": {"epochs": 1, "rows": 100}, "rte": {"epochs": 1, "rows": 100}}


def read_json_lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def scores_of(group):
    """Sorted (task, run, seed, scores) of the finished runs of a group."""
    found = [
        (row["task"], row["run"], row["seed"], json.dumps(row["scores"]))
        for row in read_json_lines(SCORES)
        if row["group"] == group
    ]
    return sorted(found)


@pytest.fixture
def finetuning(empty_folder, fresh_checkpoint, glue, scripts):
    """`finetuning(n, "key=value", ...)` finetunes CoLA and RTE in n processes on the CPU and returns a Done."""
    settings = ["size=tiny", f"pretrained_checkpoint={fresh_checkpoint}", f"glue_dir={glue}", "tasks=cola,rte", "end=2",
                "max_length=32", "device=cpu", "logger=None", f"task_overrides={SMALL}"]
    return lambda n, *changes: scripts.run("finetune.py", [*settings, *changes], empty_folder, processes=n)


def printed_runs(done):
    """Sorted (task, run, status) of the finished runs that a command printed."""
    assert done.returncode == 0, done.stderr[-3000:]
    return sorted(re.findall(r"(\S+), run (\d), seed .*\((.*)\)", done.stdout))


def test_finetuning_runs_are_divided_among_processes_and_score_as_in_one(finetuning):
    several, one = finetuning(3, "group_name=several"), finetuning(1, "group_name=one")
    assert [run for *run, _ in printed_runs(several)] == [run for *run, _ in printed_runs(one)]
    by_several = scores_of("several")
    assert by_several == scores_of("one") and len(by_several) == 4
    test_files = [Path(f"test_outputs/{group}/CoLA.tsv").read_text() for group in ("several", "one")]
    assert test_files[0] == test_files[1]

    # Remove some runs, as if their process had been killed. The rerun divides them among all processes.
    kept = [row for row in read_json_lines(SCORES) if row["group"] != "several" or row["run"] == 0]
    SCORES.write_text("".join(json.dumps(row) + "\n" for row in kept))
    rerun = printed_runs(finetuning(2, "group_name=several"))
    assert [(task, run) for task, run, status in rerun if status == "already finished"] == [("CoLA", "0"), ("RTE", "0")]
    assert scores_of("several") == by_several


TWICE = """
import finetune
import pretrain
from _utils.config import complete
from _utils.finetuning.config import complete_finetuning

for name in ("a", "b"):
    pretrain.pretrain(complete(pretrain.c.override([*{pretraining}, f"base_run_name={{name}}"])))
for name in ("a", "b"):
    finetune.run(complete_finetuning(finetune.c.override([*{finetuning}, f"group_name={{name}}"])))
pretrain.pretrain(complete(pretrain.c.override([*{pretraining}, "base_run_name=c"])))
"""


def test_several_runs_follow_each_other_in_processes_that_were_launched_once(workplace, glue, scripts):
    pretraining = [*SETTINGS, "num_workers=0", "steps=2", "warmup_steps=0", "milestones=100"]
    finetuning = ["pretrained_checkpoint=a_5_100.0%.pth", f"glue_dir={glue}", "tasks=cola,rte", "end=1", "device=cpu",
                  "logger=None", f"task_overrides={SMALL}"]
    Path("twice.py").write_text(TWICE.format(pretraining=pretraining, finetuning=finetuning))
    done = scripts.run(str(workplace / "twice.py"), [], workplace, processes=2)
    assert done.returncode == 0, done.stderr[-3000:]
    for name in ("b_5", "c_5"):
        assert_same_run(name, "a_5", 2 + 1)
    assert scores_of("a") == scores_of("b") and len(scores_of("a")) == 2


def test_a_run_that_fails_in_one_of_several_processes_is_reported(finetuning):
    overrides = SMALL | {"rte": {"lr": 1e30, "epochs": 20, "rows": 100}}
    done = finetuning(2, "start=1", "group_name=g", f"task_overrides={overrides}")
    assert done.returncode and "process 1: error: RTE, run 1" in done.stderr, done.stderr[-3000:]
    assert [(task, run) for task, run, *_ in scores_of("g")] == [("cola", 1)]


def test_a_number_of_processes_without_a_rank_is_not_that_of_a_launcher(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.delenv("RANK", raising=False)
    processes = Processes("cpu")
    assert (processes.n, processes.index, processes.is_main) == (1, 0, True)


def test_batch_size_that_does_not_fit_several_processes_is_rejected(workplace, scripts):
    done = scripts.run("pretrain.py", [*SETTINGS, "bs=2", "micro_batch=1", "steps=2"], workplace, processes=3)
    assert done.returncode and "bs: 2" in done.stderr
