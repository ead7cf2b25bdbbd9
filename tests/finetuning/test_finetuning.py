"""Finetuning from checkpoint to submission on a small scale: runs, their table, test files, predictions for new sentences."""
import copy
import json
import os
import shutil
from pathlib import Path

import pandas as pd
import pytest
import torch

import finetune
import pretrain
from _utils.commands.predict import predict
from _utils.config import complete
from _utils.errors import PlainError
from _utils.finetuning.config import complete_finetuning
from _utils.finetuning.model import load_finetuned
from _utils.finetuning.results import report
from _utils.finetuning.runs import Runs, run_path, score
from _utils.runs.checkpoints import save_pretrained
from _utils.runs.log import locked
from _utils.tasks.glue import FINETUNED_TASKS, TASKS
from _utils.tasks.submission import SUBMISSION, read_record
from _utils.tasks.synthetic import write_synthetic_glue
from _utils.training.device import warn_of_emulation

SMALL = {name: {"rows": 64, "epochs": 1} for name in FINETUNED_TASKS}
GROUP = Path("test_outputs/g")


def finetuning(folder, glue, checkpoint, monkeypatch):
    """`start("key=value", ...)` runs finetuning in a folder, without plots, and returns its Results."""
    monkeypatch.chdir(folder)
    for plots in ("save_task_plots", "save_result_plots"):
        monkeypatch.setattr(finetune, plots, lambda *_: None)

    def start(*overrides):
        c = finetune.c.override([f"pretrained_checkpoint={checkpoint}", "size=tiny", f"glue_dir={glue}", "end=1", "logger=None",
                                 "group_name=g", f"task_overrides={SMALL}", *overrides])
        return finetune.run(complete_finetuning(c))
    return start


@pytest.fixture
def start(glue, fresh_checkpoint, tmp_path, monkeypatch):
    """Start finetuning in an empty folder."""
    return finetuning(tmp_path, glue, fresh_checkpoint, monkeypatch)


def test_an_emulated_precision_is_named_once_in_a_command(start, capfd, monkeypatch):
    warn_of_emulation.cache_clear()
    monkeypatch.setattr("_utils.training.device.has_on_cpu", lambda precision: False)
    start("tasks=rte,mrpc", "precision=bf16", "end=2")
    assert capfd.readouterr().err.count("no bf16 arithmetic") == 1 and len(Runs()) == 4


@pytest.fixture(scope="module")
def finished(glue, fresh_checkpoint, tmp_path_factory):
    """(folder, Results) with two finished runs of four tasks. Do not modify it."""
    folder = tmp_path_factory.mktemp("finished")
    with pytest.MonkeyPatch.context() as monkeypatch:
        start = finetuning(folder, glue, fresh_checkpoint, monkeypatch)
        return folder, start("tasks=rte,stsb,mnli,sst2", "end=2", "logger=tensorboard", "th_run={'stsb': [0, 1]}")


@pytest.fixture
def again(finished, glue, fresh_checkpoint, tmp_path, monkeypatch):
    """Start finetuning in a copy of the folder with finished runs."""
    shutil.copytree(finished[0], tmp_path, dirs_exist_ok=True)
    return finetuning(tmp_path, glue, fresh_checkpoint, monkeypatch)


def test_a_run_writes_a_row_a_checkpoint_and_its_metrics(again, finished):
    _, results = finished
    rows = Runs()
    assert [(row["task"], row["run"], row["seed"]) for row in rows] == [
        (task, i, i) for task in ("rte", "stsb", "mnli", "sst2") for i in (0, 1)]
    assert {row["objective"] for row in rows} == {"electra"}  # for the card of an exported model
    folder = run_path("g", "rte", 1).with_suffix("")
    assert run_path("g", "rte", 1).exists()
    metrics = [json.loads(line) for line in (folder / "metrics.jsonl").open()]
    assert metrics[0]["split"] == "train" and metrics[0]["loss"] > 0
    assert metrics[-1] == {"step": 2, "split": "validation", **rows[1]["scores"]["validation"]}
    assert json.loads((folder / "config.json").read_text())["config"]["seed"] == 1 and any((folder / "tensorboard").iterdir())
    assert {path.name: path.read_bytes().count(b"\n") for path in GROUP.iterdir()} == dict.fromkeys(
        ("RTE.tsv", "STS-B.tsv", "SST-2.tsv", "MNLI-m.tsv", "MNLI-mm.tsv", "AX.tsv"), 201)
    assert results.submission is None
    assert list(results.scores.index) == ["SST-2", "STS-B", "MNLI", "MNLI-mm", "MNLI, both", "RTE"]
    assert results.scores.loc["RTE", "best"] == pytest.approx(max(score(row) for row in rows[:2])) and len(results.runs) == 8


def test_finished_runs_are_skipped_and_interrupted_ones_start_over(again, capsys):
    scores = Path("checkpoints/glue/scores.jsonl")
    first, second, *_ = lines = scores.read_text().splitlines(keepends=True)
    scores.write_text(first + second[:40])  # killed while writing its row
    with locked(run_path("g", "rte", 2).with_suffix("")):
        with pytest.raises(PlainError, match="Another process is training .*g_rte_2'.*group_name"):
            again("tasks=rte", "start=2", "end=3")
    again("tasks=rte", "end=3")
    assert scores.read_text().startswith(first) and "RTE, run 0, seed 0: accuracy" in capsys.readouterr().out
    assert sorted(row["run"] for row in Runs()) == [0, 1, 2]
    assert {**Runs().find("g", "rte", 1), "seconds": 0} == {**json.loads(lines[1]), "seconds": 0}


def test_the_seed_determines_the_run(again):
    again("tasks=stsb", "start=1", "end=3", "seeds=5,0,1", "group_name=other")
    scores = {(row["group"], row["run"]): row["scores"] for row in Runs() if row["task"] == "stsb"}
    assert scores["g", 0] == scores["other", 1] and scores["g", 1] == scores["other", 2] != scores["g", 0]


@pytest.mark.parametrize("override, named", [
    ("schedule=separate_linear", "schedule='original_linear', not 'separate_linear'"),
    ("seeds=[7]", "seed=0, not 7"),
    ("task_overrides={'rte': {'rows': 32}}", "epochs=1, not 10, rows=64, not 32"),
    ("glue_dir=other", "other training rows .*2,000 rows, "),
])
def test_runs_of_one_group_have_the_same_settings_and_tables(again, override, named):
    if override == "glue_dir=other":
        write_synthetic_glue("other", seed=1)
    with pytest.raises(PlainError, match=f"Run 0 of rte in the group 'g' was trained with {named}.*Set another group_name"):
        again("tasks=rte", override)


def test_the_best_run_predicts_unless_th_run_names_others_and_an_ensemble_averages(again, glue):
    rows, data = Runs().of("g", "stsb"), finetune.load_task("stsb", glue)
    made_by = lambda: read_record(GROUP)["STS-B.tsv"]
    assert made_by().count("stsb run") == 2
    paths = [run_path("g", "stsb", run) for run in (0, 1)]
    mean = sum(finetune.predict_test("stsb", path, data=data) for path in paths) / 2
    torch.testing.assert_close(finetune.predict_test("stsb", paths, data=data), mean)
    written = [float(line.split("\t")[1]) for line in (GROUP / "STS-B.tsv").read_text().splitlines()[1:]]
    assert written == pytest.approx(mean.clamp(0, 5).tolist(), abs=6e-4)

    shutil.rmtree("test_outputs")
    again("tasks=stsb", "do_finetune=False", "pretrained_checkpoint=gone.pth")  # which it does not need
    worst, best = sorted(rows, key=score)
    assert made_by() == f"stsb run {best['run']} (dev {score(best):.2f})"
    again("tasks=stsb", "do_finetune=False", f"th_run={{'stsb': {worst['run']}}}")
    assert made_by().startswith(f"stsb run {worst['run']} ")
    paths[best["run"]].unlink()
    again("tasks=stsb", "do_finetune=False")
    assert made_by().startswith(f"stsb run {worst['run']} ")
    with pytest.raises(PlainError, match=f"th_run names run {best['run']} of stsb.*was deleted"):
        again("tasks=stsb", "do_finetune=False", f"th_run={best['run']}")


@pytest.mark.parametrize("overrides, message", [
    (["tasks=rte", "do_finetune=False"], "The group 'g' has no finished run of rte with a checkpoint. Finetune first"),
    (["tasks=rte", "th_run={'rte': [0, 4]}"], "th_run names run 4 of rte"),
    (["tasks=rte", "device=cuda:99"], "Device not found: 'cuda:99'"),
    (["tasks=rte", "start_from_mnli=True"], "start_from_mnli needs an MNLI run in the group 'g' from the same.*Add mnli to tasks"),
    (["tasks=rte,wnli", "wsc_trick=True", "wsc_dir=nowhere"], "File not found: 'nowhere/train.jsonl'.*wsc_trick=True"),
])
def test_missing_prerequisites_are_reported_before_training(start, overrides, message):
    with pytest.raises(PlainError, match=message):
        start(*overrides)
    assert not Path("checkpoints").exists() and not Path("test_outputs").exists()


def test_tasks_with_missing_files_are_skipped(again, glue, tmp_path, capsys):
    partial = tmp_path / "partial"
    shutil.copytree(glue, partial)
    (partial / "QNLI/dev.tsv").unlink()
    (partial / "RTE/test.tsv").unlink()
    again("tasks=qnli,rte,sst2", "th_run=0", f"glue_dir={partial}")
    printed = capsys.readouterr().out
    [of_qnli] = [line for line in printed.splitlines() if line.startswith("QNLI ")]
    assert "not finetuned" in of_qnli and "updates" not in of_qnli and f"dev.tsv not found in {partial / 'QNLI'}" in printed
    assert "QNLI.tsv (QNLI has no finished run)" in printed and f"RTE.tsv (test.tsv not found in {partial / 'RTE'})" in printed
    assert "Predictions in test_outputs/g/: SST-2.tsv" in printed
    with pytest.raises(PlainError, match="Tables are missing for each of the tasks qnli.*dev.tsv not found"):
        again("tasks=qnli", f"glue_dir={partial}")


def test_each_task_run_and_file_is_printed_once(again, capsys):
    again("tasks=rte,stsb,mnli,sst2", "end=2", "th_run={'stsb': [0, 1]}")
    printed = capsys.readouterr().out
    before, _, report = printed.partition("Scores of g")
    lines = before.splitlines()
    assert [line.split()[0] for line in lines[:5]] == ["g:", "RTE", "STS-B", "MNLI", "SST-2"]  # AX has no training
    assert all("train 2" in line and "1 epochs" in line for line in lines[1:5] if "MNLI" not in line)
    assert [line.partition(", seed")[0] for line in lines[5:]] == [f"{task}, run {i}" for task in ("RTE", "STS-B", "MNLI", "SST-2")
                                                                     for i in (0, 1)]
    assert all(report.count(file) == 1 for file in ("RTE.tsv", "STS-B.tsv", "MNLI-m.tsv", "AX.tsv"))
    made_by = json.loads(Path("test_outputs/g.json").read_text())
    assert made_by["STS-B.tsv"]["made_by"].count("stsb run") == 2


def test_rte_starts_from_the_best_mnli_run_with_the_same_pretrained_weights(again, monkeypatch, fresh_checkpoint):
    started, load_encoder = [], finetune.load_encoder
    monkeypatch.setattr(finetune, "load_encoder", lambda model, path: started.append((load_encoder(model, path), copy.deepcopy(model))))
    again("tasks=rte,sst2", "group_name=h", "start_from_mnli=g")
    best = max(Runs().of("g", "mnli"), key=score)["run"]
    rte, sst2 = Runs().find("h", "rte", 0), Runs().find("h", "sst2", 0)
    assert rte["mnli_run"] == best and rte["settings"]["start_from_mnli"] == "g" and sst2["mnli_run"] is None
    [(_, model)], (source, *_) = started, load_finetuned(run_path("g", "mnli", best))
    assert all(a.equal(b) for a, b in zip(model.base_model.parameters(), source.base_model.parameters(), strict=True))
    assert model.classifier.out_features == 2
    other = torch.load(fresh_checkpoint, weights_only=True)
    other["model"]["discriminator.electra.embeddings.word_embeddings.weight"] += 1
    torch.save(other, "other.pth")
    with pytest.raises(PlainError, match="needs an MNLI run in the group 'g' from the same pretrained weights"):
        again("tasks=rte", "group_name=i", "start_from_mnli=g", "pretrained_checkpoint=other.pth")


@pytest.mark.parametrize("size", ["alectra_tiny", "bert_tiny"])
def test_other_families_are_finetuned_and_predict(start, small_tokenizer, tmp_path, size):
    """ALBERT's layers share their weights and so their learning rate; MNLI comes first if others start from it."""
    c = complete(pretrain.c.override([f"size={size}"]))
    save_pretrained(tmp_path / "other.pth", pretrain.build_model(c, small_tokenizer), c, small_tokenizer, step=0)
    start(f"pretrained_checkpoint={tmp_path}/other.pth", f"size={size}", "start_from_mnli=True", "tasks=rte,mnli")
    rows = {row["task"]: row for row in Runs()}
    assert {task: row["mnli_run"] for task, row in rows.items()} == {"mnli": None, "rte": 0}
    model, _, _ = load_finetuned(run_path("g", "rte", 0))
    assert len(finetune.parameter_groups(model)) == (3 if size == "alectra_tiny" else 4)
    assert (GROUP / "RTE.tsv").exists()


def test_majority_baselines_are_written_only_on_request(again, capsys):
    predict_only = lambda *overrides: again("tasks=rte", "do_finetune=False", *overrides)
    record, files = lambda: read_record(GROUP), lambda: {path.name for path in GROUP.iterdir()}
    shutil.rmtree("test_outputs")
    predict_only()
    assert "lacks AX.tsv, CoLA.tsv" in capsys.readouterr().out and not Path("test_outputs/g.zip").exists()
    predict_only("majority_for_missing=True")
    printed = capsys.readouterr().out
    [line] = [line for line in printed.splitlines() if "majority label" in line]
    assert "CoLA.tsv" in line and "RTE.tsv" not in line and "RTE.tsv has 201 lines instead of 3,001" in printed
    assert set(record()) == set(SUBMISSION) and record()["RTE.tsv"].startswith("rte run")
    copied = GROUP / "QNLI.tsv"
    copied.write_text(copied.read_text().replace("entailment", "not_entailment", 1))  # over a majority baseline: it is kept
    predict_only()
    assert files() == set(record()) == {"RTE.tsv", "QNLI.tsv"} and record()["QNLI.tsv"] == "not written by finetune.py"


def test_a_submission_is_zipped_when_it_is_complete(start, capsys):
    results = start("tasks=wnli", "majority_for_missing=True")  # of official size
    assert "g.zip is complete and valid\n" in capsys.readouterr().out
    assert Path("test_outputs/g.zip").exists() and results.submission == Path("test_outputs/g.zip")
    start("tasks=wnli", "do_finetune=False")
    assert not Path("test_outputs/g.zip").exists()


def test_wnli_by_the_wsc_trick(start, capsys, tmp_path, glue):
    overrides = ["tasks=wnli", "wsc_trick=True", "task_overrides={'wnli': {'epochs': 1, 'rows': 40}}"]
    start(*overrides)
    printed = capsys.readouterr().out
    assert "found the pronoun in 146 of 146 rows" in printed
    [row] = Runs()
    assert list(row["scores"]) == ["wsc_validation"] and len((GROUP / "WNLI.tsv").read_text().splitlines()) == 147
    assert row["train_rows"] == 40 and "wsc_validation accuracy" in printed
    assert "WNLI (on WSC)" in report(Runs())
    with pytest.raises(PlainError, match="was trained with the WSC trick"):
        predict(str(run_path("g", "wnli", 0)), "x.txt")
    shutil.copytree(glue / "WSC", tmp_path / "wsc")
    (tmp_path / "wsc/train.jsonl").write_text((glue / "WSC/val.jsonl").read_text())
    with pytest.raises(PlainError, match="other training rows .*300 rows"):
        start(*overrides, f"wsc_dir={tmp_path / 'wsc'}")


def test_predictions_for_new_sentences(again, capsys, glue):
    def predicted(task, text):
        Path("x.txt").write_text(text)
        predict(str(run_path("g", task, 0)), "x.txt")
        return [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    header, *lines = predicted("sst2", "a good server\n\nthis tool is broken\n\n")
    assert lines.pop(1) == [""]  # for the empty line
    assert header == ["label", "P(negative)", "P(positive)", "sentence"]
    for label, negative, positive, _ in lines:
        assert float(negative) + float(positive) == pytest.approx(1, abs=2e-4)
        assert label == ("positive" if positive > negative else "negative")

    data = finetune.load_task("mnli", glue)
    rows = data.splits["test_matched"].select(range(5))
    _, *lines = predicted("mnli", "\n".join(f"{row['premise']}\t{row['hypothesis']}" for row in rows))
    expected = finetune.predict_test("mnli", run_path("g", "mnli", 0), data=data)[:5]
    assert [line[0] for line in lines] == [TASKS["mnli"].labels[label] for label in expected]
    pairs = [(row["premise"], row["hypothesis"]) for row in rows]
    assert finetune.load("g_mnli_0.pth").predict(pairs).labels == [line[0] for line in lines]
    with pytest.raises(PlainError, match="not a list of tuples of 2 texts"):
        finetune.load("g_mnli_0.pth").predict(["One text.", "Another one."])
    _, line = predicted("stsb", "one\ttwo\n")
    assert 0 <= float(line[0]) <= 5
    Path("x.csv").write_text('sentence\n"a good\nserver"\n')
    predict(str(run_path("g", "sst2", 0)), "x.csv")
    assert capsys.readouterr().out.splitlines()[1].endswith("\ta good server")

    with pytest.raises(PlainError, match="x.txt, line 2: 1 columns instead of 2. For MNLI, each line needs 2 texts"):
        predicted("mnli", "a\tb\nc d\n")
    with pytest.raises(PlainError, match="Checkpoint not found: 'x.pth'"):
        predict("x.pth", "x.txt")
    Path("x.csv").write_text("review\na good server\n")
    with pytest.raises(PlainError, match=r"x.csv: missing column 'sentence' \(found: review\)"):
        predict(str(run_path("g", "sst2", 0)), "x.csv")


def test_predictions_for_standard_input(again, capsys):
    Path("x.txt").write_text("a good server\nthis tool is broken\n")
    predict("g_sst2_0.pth", "x.txt")
    expected, inherited, (read_end, write_end) = capsys.readouterr().out, os.dup(0), os.pipe()
    os.write(write_end, Path("x.txt").read_bytes())
    os.close(write_end)
    os.dup2(read_end, 0)
    try:
        predict("g_sst2_0.pth", "-")
    finally:
        os.dup2(inherited, 0)
        os.close(inherited)
        os.close(read_end)
    assert capsys.readouterr().out == expected and expected.count("\n") == 3


def test_a_loss_that_is_not_finite_stops_the_run(start):
    with pytest.raises(PlainError, match="RTE, run 0.*nan.*task_overrides"):
        start("tasks=rte", "task_overrides={'rte': {'lr': 1e30, 'epochs': 1}}")
    assert not Runs() and not run_path("g", "rte", 0).exists()


def test_the_script_writes_a_valid_submission_and_plots(scripts, fresh_checkpoint, glue, tmp_path):
    done = scripts.run("finetune.py", ["quickstart=True", f"pretrained_checkpoint={fresh_checkpoint}", "end=1", f"task_overrides={SMALL}",
                                       "tasks=cola,mrpc,mnli", "majority_for_missing=True", "device=cpu"], tmp_path, plots=True)
    assert done.returncode == 0, done.stderr[-2000:]
    group = fresh_checkpoint.stem  # not the quickstart's group, because the checkpoint is another one
    assert f"test_outputs/{group}.zip is complete and valid" in done.stdout and "synthetic tables" in done.stdout
    folder = tmp_path / "checkpoints/glue" / group
    assert all((folder / plot).stat().st_size > 5000 for plot in
               ("scores.png", "losses.png", "lengths.png", "layer_learning_rates.png"))
    assert pd.read_csv(folder / "runs.csv")["lr"].tolist() == 3 * [.001]
