"""Finetuning from checkpoint to submission on a small scale: runs, their table, test files, predictions for new
sentences.
"""
import json
import re
import shutil
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path

import pandas as pd
import pytest
import torch
from tiny_finetuning import run

import finetune
from _utils.commands.export_hf import export_hf
from _utils.commands.predict import predict
from _utils.errors import UserError
from _utils.files import read_json_lines
from _utils.finetuning.model import load_finetuned
from _utils.finetuning.runs import SCORES, Runs, add_run, run_path
from _utils.runs.checkpoints import load_checkpoint, save_checkpoint
from _utils.runs.log import locked, read_metrics
from _utils.tasks.glue import TASKS, load_task
from _utils.tasks.submission import read_submission

SMALL = {name: {"rows": 64, "epochs": 1} for name in TASKS}
GROUP = Path("test_outputs/g")


def finetuning(folder, glue, checkpoint, monkeypatch):
    """`start("key=value", ...)` runs finetuning in a folder and returns its Results."""
    monkeypatch.chdir(folder)
    return partial(run, checkpoint, f"glue_dir={glue}", f"task_overrides={SMALL}")


@pytest.fixture
def start(glue, fresh_checkpoint, tmp_path, monkeypatch):
    """Start finetuning in an empty folder."""
    return finetuning(tmp_path, glue, fresh_checkpoint, monkeypatch)


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
    rows, folder = Runs(), run_path("g", "rte", 1).with_suffix("")
    assert [(row.task, row.run, row.seed) for row in rows] == [
        (task, i, i) for task in ("rte", "stsb", "mnli", "sst2") for i in (0, 1)]
    assert folder.with_suffix(".pth").exists() and any((folder / "tensorboard").iterdir())
    metrics = [json.loads(line) for line in (folder / "metrics.jsonl").open()]
    assert metrics[-1] == {"step": 2, "split": "validation", **rows[1].scores["validation"]}
    assert json.loads((folder / "config.json").read_text())["config"]["seed"] == 1
    assert {path.name: path.read_bytes().count(b"\n") for path in GROUP.iterdir()} == dict.fromkeys(
        ("RTE.tsv", "STS-B.tsv", "SST-2.tsv", "MNLI-m.tsv", "MNLI-mm.tsv", "AX.tsv"), 201)
    assert finished[1].scores.loc["RTE", "best"] == pytest.approx(max(row.score for row in rows[:2]))


def test_finished_runs_are_skipped_and_interrupted_ones_start_over(again):
    scores = Path("checkpoints/glue/scores.jsonl")
    first, second, *_ = scores.read_text().splitlines(keepends=True)
    scores.write_text(first + second[:40])  # killed while writing its row
    with locked(run_path("g", "rte", 2).with_suffix("")), pytest.raises(UserError, match="g_rte_2"):
        again("tasks=rte", "start=2", "end=3")
    again("tasks=rte", "end=3")
    assert scores.read_text().startswith(first) and sorted(row.run for row in Runs()) == [0, 1, 2]
    assert {**asdict(Runs().find("g", "rte", 1)), "seconds": 0} == {**json.loads(second), "seconds": 0}


def test_the_best_epoch_is_chosen_from_the_same_training(start):
    """Evaluating after each epoch changes no random number, so all losses are those of keep=last."""
    losses = []
    for keep in ("last", "best"):
        start("tasks=rte", f"keep={keep}", f"group_name={keep}", "task_overrides={'rte': {'rows': 96, 'epochs': 2}}")
        losses.append(read_metrics(run_path(keep, "rte", 0).with_suffix("") / "metrics.jsonl", "train"))
    assert losses[0] == losses[1] and len(losses[0]) == 6
    last, best = (Runs().find(keep, "rte", 0) for keep in ("last", "best"))
    assert best.best_epoch in (1, 2) and best.score >= last.score


def test_a_run_of_another_version_is_refused(again, tmp_path):
    """Wherever one of its files is read."""
    path, refused = run_path("g", "rte", 0), partial(pytest.raises, UserError)
    checkpoint = load_checkpoint(path)
    del checkpoint["run"]["format"], checkpoint["run"]["objective"]
    save_checkpoint(checkpoint, path)
    for read in (finetune.load, lambda name: export_hf(name, "exported"), lambda name: predict(name, "x.txt")):
        with refused(match="g_rte_0.pth"):
            read(str(path))
    rows = read_json_lines(SCORES, "")
    SCORES.write_text("".join(json.dumps({**row, "format": 0}) + "\n" for _, row in rows))
    with refused(match="scores.jsonl"):
        again("tasks=rte")


def test_the_best_run_predicts_unless_th_run_names_others_and_an_ensemble_averages(again, glue):
    rows, data = Runs().of("g", "stsb"), load_task("stsb", glue)
    paths = [run_path("g", "stsb", run) for run in (0, 1)]
    mean = sum(finetune.predict_test("stsb", path, data=data) for path in paths) / 2
    torch.testing.assert_close(finetune.predict_test("stsb", paths, data=data), mean)
    written = [float(line.split("\t")[1]) for line in (GROUP / "STS-B.tsv").read_text().splitlines()[1:]]
    assert written == pytest.approx(mean.clamp(0, 5).tolist(), abs=6e-4)

    worst, best = sorted(rows, key=lambda run: run.score)

    def made_by(*overrides):
        again("tasks=stsb", "do_finetune=False", "pretrained_checkpoint=gone.pth", *overrides)  # which it does not need
        return int(re.search(r"run (\d)", json.loads(Path(f"{GROUP}.json").read_text())["STS-B.tsv"])[1])
    assert made_by() == best.run and made_by(f"th_run={{'stsb': {worst.run}}}") == worst.run
    paths[best.run].unlink()
    assert made_by() == worst.run
    for th_run in best.run, {"stsb": [best.run]}, {"mrpc": [0]}:
        with pytest.raises(UserError, match="th_run"):
            made_by(f"th_run={th_run}", "tasks=stsb,mrpc")


def test_keys_with_which_the_predicting_runs_were_not_trained_are_named(again, capsys):
    again("tasks=sst2,stsb", "do_finetune=False", "keep=best", "precision=fp32", "double_unordered=False",
          "task_overrides={'sst2': {'epochs': 5, 'rows': 64}}")
    of_sst2, of_stsb = (line for line in capsys.readouterr().out.splitlines() if "no effect" in line)
    assert "keep='best'" in of_sst2 and "'last'" in of_sst2 and "precision" not in of_sst2
    assert "epochs=5" in of_sst2 and "rows" not in of_sst2
    assert "double_unordered=False" in of_stsb and "double_unordered" not in of_sst2


def test_finished_runs_without_checkpoints_are_reported_again(again, glue, tmp_path, capsys, monkeypatch):
    """The second time with edited code, which is said."""
    partial = shutil.copytree(glue, tmp_path / "partial")
    (partial / "RTE/test.tsv").unlink()
    command = "tasks=rte", "group_name=no_checkpoints", f"glue_dir={partial}"
    again(*command)
    for record in Runs().of("no_checkpoints"):
        record.path.unlink()
    monkeypatch.setitem(finetune.STEPS, None, (finetune.FinetuningLearner, float))
    assert "no_checkpoints" not in capsys.readouterr().err
    again(*command, "start=1", "end=2")  # of run 0 too, which is in the same mean
    assert "no_checkpoints" in capsys.readouterr().err
    again(*command)
    printed = capsys.readouterr()
    assert "already finished" in printed.out and "no_checkpoints" in printed.err


def test_without_a_training_or_dev_file_nothing_is_trained_and_without_a_test_file_nothing_predicted(
        again, glue, tmp_path, capsys):
    partial = shutil.copytree(glue, tmp_path / "partial")
    for file in ("QNLI/dev.tsv", "RTE/test.tsv"):
        (partial / file).unlink()
    again("tasks=rte,sst2", "th_run=0", f"glue_dir={partial}")
    assert "test.tsv" in capsys.readouterr().out
    again("tasks=cola,rte", "th_run=0", "do_finetune=False")  # a list is for the tasks that have runs
    with pytest.raises(UserError, match="qnli.*dev.tsv"):
        again("tasks=qnli,rte", f"glue_dir={partial}")


@pytest.mark.parametrize("task, keys", [("rte", ["th_run=0"]), ("mnli", ["start_from_mnli=True"])])
def test_a_deleted_checkpoint_is_missed_before_anything_is_trained(again, task, keys):
    for record in Runs().of("g", task):
        record.path.unlink()
    with pytest.raises(UserError, match=keys[0].partition("=")[0]):
        again(f"tasks=cola,mrpc,{task}", *keys)
    assert not Runs().of("g", "cola")


def test_rte_starts_from_the_best_mnli_run_with_the_same_pretrained_weights(again, fresh_checkpoint):
    of_tasks = {"rte": {"lr": 1e-30, "rows": 64, "epochs": 1}, "sst2": SMALL["sst2"]}
    again("tasks=rte,sst2", "group_name=h", "start_from_mnli=g", f"task_overrides={of_tasks}")
    best = max(Runs().of("g", "mnli"), key=lambda run: run.score).run
    assert [Runs().find("h", task, 0).mnli_run for task in ("rte", "sst2")] == [best, None]
    rte, mnli = (load_finetuned(run_path(*run), finetune.SentencePredictor)[0].base_model
                 for run in (("h", "rte", 0), ("g", "mnli", best)))
    torch.testing.assert_close(rte.state_dict(), mnli.state_dict())
    better = replace(Runs().find("g", "mnli", best), run=9, scores={"validation_matched": {"accuracy": 1.}})
    shutil.copy(run_path("g", "mnli", best), better.path)
    add_run(better)
    again("tasks=rte", "group_name=h", "start_from_mnli=g", f"task_overrides={of_tasks}", "end=2")
    assert Runs().find("h", "rte", 1).mnli_run == best  # as the task's first run
    add_run(replace(better, group="frozen", settings=replace(better.settings, freeze=True)))
    shutil.copy(better.path, Runs().of("frozen")[0].path)
    with pytest.raises(UserError, match="'frozen'"):  # which has the pretrained encoder
        again("tasks=rte", "group_name=i", "start_from_mnli=frozen")
    other = torch.load(fresh_checkpoint, weights_only=True)
    other["model"]["discriminator.electra.embeddings.word_embeddings.weight"] += 1
    torch.save(other, "other.pth")
    with pytest.raises(UserError, match="'g'"):
        again("tasks=rte", "group_name=i", "start_from_mnli=g", "pretrained_checkpoint=other.pth")
    run_path("g", "mnli", best).unlink()
    again("tasks=rte", "group_name=h", "start_from_mnli=g", f"task_overrides={of_tasks}", "end=2")  # all are finished
    with pytest.raises(UserError, match=f"g_mnli_{best}.pth"):  # and not from another run than the others
        again("tasks=rte", "group_name=h", "start_from_mnli=g", f"task_overrides={of_tasks}", "end=3")


def test_majority_baselines_are_in_the_zip_only_on_request(again):
    zipped = Path("test_outputs/g.zip")

    def predict_only(*overrides):
        again("tasks=rte", "do_finetune=False", "glue_dir=datasets/quickstart_glue", *overrides)
        return {path.name for path in GROUP.iterdir()}
    shutil.rmtree("test_outputs")
    assert predict_only() == {"RTE.tsv"} and not zipped.exists()
    assert predict_only("majority_for_missing=True") == {"RTE.tsv"}
    assert len(read_submission(zipped)) == 11 and read_submission(zipped).items() >= read_submission(GROUP).items()
    assert predict_only() == {"RTE.tsv"} and not zipped.exists()
    assert json.loads(Path(f"{GROUP}.json").read_text()).keys() == {"RTE.tsv"}


def test_wnli_by_the_wsc_trick(start, glue, capsys):
    overrides = ["tasks=wnli", "wsc_trick=True", "task_overrides={'wnli': {'epochs': 1, 'rows': 40}}"]
    start(*overrides)
    [row] = Runs()
    assert list(row.scores) == ["wsc_validation"] and len((GROUP / "WNLI.tsv").read_text().splitlines()) == 147
    assert row.train_rows == 40
    Path("x.txt").write_text("The text is old because it is a text.\tThe text is a text.\n")
    capsys.readouterr()
    start("tasks=wnli", "wsc_trick=False", "do_finetune=False")
    assert "wsc_trick=False" in capsys.readouterr().out
    predict(str(run_path("g", "wnli", 0)), "x.txt")
    header, line = capsys.readouterr().out.splitlines()
    assert header.split("\t")[0] == "label" and line.split("\t")[0] in ("not_entailment", "entailment")
    shutil.copytree(glue, "glue")
    shutil.copy("glue/WSC/val.jsonl", "glue/WSC/train.jsonl")
    with pytest.raises(UserError, match="training_table"):
        start(*overrides, "glue_dir=glue")


def test_predictions_for_new_sentences(again, capsys, glue):
    def predicted(task, text, name="x.txt"):
        Path(name).write_text(text)
        predict(str(run_path("g", task, 0)), name)
        return [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    header, good, empty, broken, last = predicted("sst2", "a good server\n\nthis tool is broken\n\n")
    assert header == ["label", "P(negative)", "P(positive)", "sentence"] and empty == last == [""]
    for label, negative, positive, _ in (good, broken):
        assert float(negative) + float(positive) == pytest.approx(1, abs=2e-4)
        assert label == ("positive" if positive > negative else "negative")
    assert predicted("sst2", 'sentence\n"a good\nserver"\n', "x.csv")[1] == [*good[:3], "a good server"]

    data = load_task("mnli", glue)
    pairs = [(row["premise"], row["hypothesis"]) for row in data.splits["test_matched"].select(range(5))]
    _, *lines = predicted("mnli", "\n".join(map("\t".join, pairs)))
    expected = finetune.predict_test("mnli", run_path("g", "mnli", 0), data=data)[:5]
    labels = [TASKS["mnli"].labels[label] for label in expected]
    assert [line[0] for line in lines] == finetune.load("g_mnli_0.pth").predict(pairs).labels == labels
    data.splits["test_mismatched"] = data.splits["test_mismatched"].select(range(7))
    assert len(finetune.predict_test("mnli", run_path("g", "mnli", 0), 1, data=data)) == 7
    with pytest.raises(UserError, match="'sst2'.*'mnli'"):
        finetune.predict_test("mnli", run_path("g", "sst2", 0), data=data)
    with pytest.raises(UserError, match="tuples"):
        finetune.load("g_mnli_0.pth").predict(["One text.", "Another one."])
    assert predicted("sst2", "id\tsentence\n1\ta good server\n", "x.tsv")[1][:3] == good[:3]
    for name in ("x.csv", "x.tsv"):
        with pytest.raises(UserError, match=f"{name}.*'sentence'"):
            predicted("sst2", "review\na good server\n", name)


def test_each_test_file_of_mnli_has_the_predictions_for_its_set(again, monkeypatch):
    predict_test = lambda task, models, dl_idx=0, *, data: torch.full((200,), dl_idx)
    monkeypatch.setattr(finetune, "predict_test", predict_test)
    again("tasks=mnli", "do_finetune=False")
    files = "MNLI-m.tsv", "MNLI-mm.tsv", "AX.tsv"
    written = [{line.split("\t")[1] for line in (GROUP / file).read_text().splitlines()[1:]} for file in files]
    assert written == [{"entailment"}, {"neutral"}, {"contradiction"}]


def test_the_script_writes_a_valid_submission_and_plots(scripts, fresh_checkpoint, tmp_path):
    settings = [f"pretrained_checkpoint={fresh_checkpoint}", "end=1", f"task_overrides={SMALL}", "device=cpu",
                "glue_dir=datasets/quickstart_glue", "tasks=cola", "majority_for_missing=True"]
    done = scripts.run("finetune.py", settings, tmp_path, plots=True)
    assert done.returncode == 0, done.stderr[-2000:]
    group = fresh_checkpoint.stem
    assert f"test_outputs/{group}.zip" in done.stdout and "synthetic" in done.stdout
    folder = tmp_path / "checkpoints/glue" / group
    assert all((folder / plot).stat().st_size > 5000 for plot in ("scores.png", "losses.png"))
    assert pd.read_csv(folder / "runs.csv")["lr"].tolist() == [.001]
