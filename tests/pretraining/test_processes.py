"""Several processes train what one would: the same examples, masks, words and dropout, divided among them."""
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from tiny_pretraining import rows, weights

from _utils.errors import PlainError
from _utils.run_files.checkpoints import load_checkpoint
from _utils.training.processes import Processes

SETTINGS = ["size=tiny", "datas=text.txt", "vocab=vocab.txt", "seed=5", "bs=8", "micro_batch=2", "max_length=32",
            "num_workers=0", "logger=None", "device=cpu"]


def environment(repo):
    return {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(repo)}


def command(repo, n, script, *settings):
    """That of a script in n processes on this machine's CPU."""
    launcher = ["-m", "accelerate.commands.launch", "--multi_gpu", f"--num_processes={n}", "--num_machines=1", "--mixed_precision=no",
                "--dynamo_backend=no", "--main_process_port=0"] if n > 1 else []
    return [sys.executable, *launcher, repo / script, *settings]


def launch(repo, n, *settings, script="pretrain.py"):
    """Run a script in n processes on this machine's CPU; what it printed."""
    done = subprocess.run(command(repo, n, script, *settings), capture_output=True, text=True, timeout=600, env=environment(repo))
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def stop_it(repo, n, *settings, number=signal.SIGINT):
    """Send a signal to the whole process group, as Ctrl-C in a terminal or a job system does, once there are a few rows."""
    process = subprocess.Popen(command(repo, n, "pretrain.py", *settings), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                               start_new_session=True, env=environment(repo))
    while process.poll() is None and not (Path("checkpoints/pretrain/two_5/metrics.jsonl").exists() and len(rows("two_5")) > 6):
        time.sleep(.02)
    os.killpg(process.pid, number)
    out, err = process.communicate(timeout=120)
    assert process.returncode and "Stopping after this step" in out and err.count("stopped at step") == 1, err[-2000:]
    assert n > 1 or process.returncode == 130 and "error" not in err


def assert_alike(name, other, n=12 + 5):
    assert len(rows(name)) == len(rows(other)) == n
    for a, b in zip(rows(name), rows(other)):
        assert (a["step"], a["split"]) == (b["step"], b["split"])
        for key in {"loss", "gen_loss", "disc_loss", "gen_accuracy", "disc_auc", "replaced_share", "lr"} & set(a):
            assert a[key] == pytest.approx(b[key], rel=1e-4, abs=1e-6), (key, a["step"])
    for (key, a), b in zip(weights(name).items(), weights(other).values()):
        torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-4, msg=key)


def test_two_processes_train_what_one_does(workplace, repo):
    launch(repo, 1, *SETTINGS, "steps=12", "base_run_name=one")
    printed = launch(repo, 2, *SETTINGS, "steps=12", "base_run_name=two")
    assert printed.count("examples for training") == 1  # one process speaks
    assert_alike("two_5", "one_5")


ALL_BUT_THE_FIRST_CANNOT_PREPARE = """
import sys
from pathlib import Path
import pretrain
from _utils.config import complete
from _utils.training.processes import Processes
processes = Processes("cpu")
if not processes.is_main:
    pretrain.check_sources = pretrain.load_documents = pretrain.load_tokenizer = pretrain.prepare_examples = None
c = complete(pretrain.c.override(sys.argv[1:]))
hf_tokenizer, dls = pretrain.load_data(c, processes)
seen = hf_tokenizer("every word")["input_ids"], dls.train_ds.hf_dset.to_dict(), dls.valid_ds.hf_dset.to_dict()
Path(f"seen_{processes.index}").write_text(repr(seen))
"""


@pytest.mark.parametrize("more", [[], ["examples=line_pairs"]])
def test_one_process_prepares_data_and_the_others_open_it(workplace, repo, more):
    Path("load.py").write_text(ALL_BUT_THE_FIRST_CANNOT_PREPARE)
    launch(repo, 2, *SETTINGS, "steps=4", *more, script=workplace / "load.py")
    assert Path("seen_0").read_text() == Path("seen_1").read_text()


@pytest.mark.parametrize("first, then", [(2, 1), (1, 2)])
def test_another_number_of_processes_goes_on_with_a_run_that_was_stopped(workplace, repo, first, then):
    settings = [*SETTINGS, "steps=60"]
    launch(repo, 1, *settings, "base_run_name=one")
    stop_it(repo, first, *settings, "base_run_name=two")
    step = load_checkpoint("checkpoints/pretrain/two_5/resume.pth")["step"]
    assert 0 < step < 60
    assert f"Going on with the run two_5 after step {step}." in launch(repo, then, *settings, "base_run_name=two")
    assert_alike("two_5", "one_5", 60 + 5)


def test_a_job_system_that_ends_all_processes_at_once_lets_the_run_save(workplace, repo):
    """Slurm, systemd and Kubernetes send SIGTERM to the data workers too."""
    settings = [*(setting for setting in SETTINGS if "num_workers" not in setting), "steps=60", "num_workers=2"]
    launch(repo, 1, *settings, "base_run_name=one")
    stop_it(repo, 1, *settings, "base_run_name=two", number=signal.SIGTERM)
    assert "Going on with the run two_5 after step" in launch(repo, 1, *settings, "base_run_name=two")
    assert rows("two_5") == rows("one_5")


@pytest.mark.parametrize("lag", [0, 1])
def test_all_processes_stop_after_the_same_step(monkeypatch, lag):
    """On GPUs (lag 1) the request of the step before is read, which has arrived without waiting."""
    processes = Processes()
    processes.n = 2
    monkeypatch.setattr(Processes, "stop_lag", lag)
    monkeypatch.setattr(Processes, "add_up", lambda self, tensors: None)
    found = []
    for step in range(6):
        processes.asked_to_stop = step >= 3
        processes.add_up_gradients([torch.zeros(2)])
        found.append(processes.stop_asked(processes.asked_to_stop))
    assert found == [step >= 3 + lag for step in range(6)]


def test_runs_of_finetuning_are_divided_and_score_as_in_one_process(tmp_path, monkeypatch, fresh_checkpoint, glue, repo):
    monkeypatch.chdir(tmp_path)
    settings = ["size=tiny", f"pretrained_checkpoint={fresh_checkpoint}", f"glue_dir={glue}", "tasks=cola,rte", "end=2", "max_length=32",
                "device=cpu", "logger=None", "task_overrides={'cola': {'epochs': 1, 'rows': 100}, 'rte': {'epochs': 1, 'rows': 100}}"]
    printed = [launch(repo, n, *settings, f"group_name=by_{n}", script="finetune.py") for n in (1, 2)]
    by_one, by_two = ([row for row in map(json.loads, open("checkpoints/glue/scores.jsonl")) if row["group"] == f"by_{n}"] for n in (1, 2))
    told = lambda rows: sorted((row["task"], row["run"], row["seed"], json.dumps(row["scores"])) for row in rows)
    assert told(by_one) == told(by_two) and len(by_two) == 4
    runs = [re.findall(r"(\S+), run (\d), seed", text) for text in printed]
    assert len(runs[0]) == 4 and runs[1] == [("CoLA", "0"), ("RTE", "0")]  # of two processes the first speaks, of what it has done
    assert printed[1].count("CoLA.tsv") == 1 and Path("test_outputs/by_2/CoLA.tsv").exists()

    # As after a kill: the second process's runs are left, of which the first one now takes its share.
    table = Path("checkpoints/glue/scores.jsonl")
    kept = [line for line in table.read_text().splitlines() if json.loads(line)["group"] != "by_2" or json.loads(line)["run"] == 0]
    table.write_text("\n".join(kept) + "\n")
    again = launch(repo, 2, *settings, "group_name=by_2", script="finetune.py")
    told_again = re.findall(r"(\S+), run (\d), seed .*\((.*)\)", again)
    assert [(task, run, text == "already finished") for task, run, text in told_again] == [
        ("CoLA", "0", True), ("CoLA", "1", False), ("RTE", "0", True)]
    assert told(by_two) == told(row for row in map(json.loads, table.open()) if row["group"] == "by_2")


def test_the_same_finetuning_started_twice_at_once_leaves_one_of_each_run(tmp_path, monkeypatch, fresh_checkpoint, glue, repo):
    monkeypatch.chdir(tmp_path)
    settings = ["size=tiny", f"pretrained_checkpoint={fresh_checkpoint}", f"glue_dir={glue}", "tasks=rte", "end=2", "max_length=32",
                "device=cpu", "logger=None", "group_name=g", "task_overrides={'rte': {'epochs': 2, 'rows': 500}}"]
    started = [subprocess.Popen(command(repo, 1, "finetune.py", *settings), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                env=environment(repo)) for _ in range(2)]
    printed = [process.communicate(timeout=600) for process in started]
    codes = [process.returncode for process in started]
    assert 0 in codes
    for code, (_, err) in zip(codes, printed):
        assert code == 0 or "another process is training the run" in err, err[-2000:]
    rows = [json.loads(line) for line in open("checkpoints/glue/scores.jsonl")]
    assert sorted((row["task"], row["run"]) for row in rows) == [("rte", 0), ("rte", 1)]
    for row in rows:
        steps = [json.loads(line)["step"] for line in open(f"checkpoints/glue/g_{row['task']}_{row['run']}/metrics.jsonl")]
        assert steps == sorted(steps) and Path(f"checkpoints/glue/g_{row['task']}_{row['run']}.pth").exists()


def test_a_batch_that_cannot_be_divided_is_refused(monkeypatch):
    processes = Processes()
    assert processes.is_main and processes.share(8, 32) == 8
    processes.n = 3
    assert processes.share(8, 32) == 8 and processes.share(32, 32) == 10
    with pytest.raises(PlainError, match="bs=2 is the batch of all 3 processes together"):
        processes.share(2, 2)
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(PlainError, match="device='cuda:1' is one for all processes"):
        Processes("cuda:1")
