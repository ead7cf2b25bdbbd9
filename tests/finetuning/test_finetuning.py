"""Finetuning from checkpoint to submission on a small scale: runs, their table, test files, predictions for new sentences."""
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import finetune
import pretrain
from _utils.commands.predict import predict
from _utils.config import complete
from _utils.errors import PlainError
from _utils.glue.config import complete_finetuning
from _utils.glue.results import report
from _utils.glue.runs import Runs, run_path, score
from _utils.glue.submission import SUBMISSION, read_record
from _utils.glue.synthetic import write_synthetic_glue
from _utils.glue.tasks import FINETUNED_TASKS, TASKS
from _utils.networks import load_pretrained
from _utils.runs.checkpoints import save_pretrained
from _utils.runs.log import locked
from _utils.training.processes import Processes

SMALL = {name: {"rows": 64, "epochs": 1} for name in FINETUNED_TASKS}


@pytest.fixture
def start(glue, fresh_checkpoint, tmp_path, monkeypatch):
    """`start("key=value", ...)` runs finetuning in an empty working directory, without plots, and returns its Results."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(finetune, "save_task_plots", lambda *_: None)
    monkeypatch.setattr(finetune, "save_result_plots", lambda *_: None)

    def start(*overrides):
        c = finetune.c.override([f"pretrained_checkpoint={fresh_checkpoint}", "size=tiny", f"glue_dir={glue}", "end=1", "logger=None",
                                 "group_name=g", f"task_overrides={SMALL}", *overrides])
        return finetune.run(complete_finetuning(c))
    return start


def test_a_run_writes_a_row_a_checkpoint_and_its_metrics(start):
    results = start("tasks=cola,mnli", "end=2", "logger=tensorboard")
    rows = Runs()
    assert [(row["task"], row["run"], row["seed"]) for row in rows] == [("cola", 0, 0), ("cola", 1, 1), ("mnli", 0, 0), ("mnli", 1, 1)]
    assert list(rows[0]["scores"]["validation"]) == ["matthews"]
    assert list(rows[2]["scores"]) == ["validation_matched", "validation_mismatched"]
    assert run_path("g", "mnli", 1).exists()
    folder = Path("checkpoints/glue/g_cola_1")
    metrics = [json.loads(line) for line in (folder / "metrics.jsonl").open()]
    assert metrics[0]["split"] == "train" and metrics[0]["loss"] > 0
    assert metrics[-1] == {"step": 2, "split": "validation", **rows[1]["scores"]["validation"]}
    assert json.loads((folder / "config.json").read_text())["config"]["seed"] == 1 and any((folder / "tensorboard").iterdir())
    assert {path.name for path in Path("test_outputs/g").iterdir()} == {"CoLA.tsv", "MNLI-m.tsv", "MNLI-mm.tsv", "AX.tsv"}
    assert len(Path("test_outputs/g/AX.tsv").read_text().splitlines()) == 201
    assert list(results.tables) == ["cola", "mnli", "ax"] and results.submission is None
    assert list(results.scores.index) == ["CoLA", "MNLI", "MNLI-mm", "MNLI, both"] and list(results.runs["run"]) == [0, 1, 0, 1]
    assert results.scores.loc["CoLA", "best"] == pytest.approx(max(score(row) for row in rows[:2]))


def test_finished_runs_are_skipped_and_new_ones_added(start, capsys):
    start("tasks=rte")
    before = Path("checkpoints/glue/scores.jsonl").read_text()
    start("tasks=rte", "end=2")
    assert Path("checkpoints/glue/scores.jsonl").read_text().startswith(before)
    assert [row["run"] for row in Runs()] == [0, 1]
    assert "RTE, run 0, seed 0: accuracy" in capsys.readouterr().out


def test_a_run_that_was_killed_while_writing_its_row_starts_over(start):
    start("tasks=rte")
    scores = Path("checkpoints/glue/scores.jsonl")
    first = scores.read_text()
    scores.write_text(first[:40])  # killed while writing its row
    start("tasks=rte")
    [row] = Runs()
    assert {**row, "seconds": 0} == {**json.loads(first), "seconds": 0}


def test_two_commands_cannot_finetune_the_same_run(start):
    start("tasks=rte")
    with locked(Path("checkpoints/glue/g_rte_1")):
        with pytest.raises(PlainError, match="Another process is training .*g_rte_1'. Wait for it, or choose another group_name"):
            start("tasks=rte", "start=1", "end=2")
    start("tasks=rte", "end=2")
    assert [row["run"] for row in Runs()] == [0, 1]


class OneOfSeveral:
    """One of several processes, the first of which saw the flags `finished`."""
    def __init__(self, index, n, finished):
        self.index, self.n, self.finished = index, n, finished

    def broadcast(self, make):
        assert len(make()) == len(self.finished)
        return self.finished


def test_all_processes_assign_unfinished_runs_alike_whatever_table_each_one_reads():
    c = finetune.c.copy_with({"start": 0, "end": 6, "group_name": "g"})
    row = lambda task, run: {"group": "g", "task": task, "run": run}
    rows = Runs(row("mnli", run) for run in (0, 2, 4))
    later = Runs([*rows, row("mnli", 1), row("rte", 0)])  # what the second process may read
    finished = [1, 0, 1, 0, 1, 0] + 6 * [0]
    plan = dict.fromkeys(["mnli", "rte"])
    owners = finetune.assign_runs(c, plan, rows, OneOfSeveral(0, 2, finished))
    assert owners == finetune.assign_runs(c, plan, later, OneOfSeveral(1, 2, finished))
    unfinished = [owner for owner, is_finished in zip(owners.values(), finished, strict=True) if not is_finished]
    assert unfinished == [0, 1, 0, 1, 0, 1, 0, 1, 0] and list(owners) == [(task, run) for task in plan for run in range(6)]
    assert set(finetune.assign_runs(c, plan, rows, Processes()).values()) == {0}


def test_the_seed_determines_the_run(start):
    start("tasks=stsb", "seeds=5,6")
    start("tasks=stsb", "seeds=5,6", "end=2", "group_name=again")
    start("tasks=stsb", "start=1", "end=2", "seeds=5,5", "group_name=same")
    by_group = {(row["group"], row["run"]): row["scores"] for row in Runs()}
    assert by_group["g", 0] == by_group["again", 0] == by_group["same", 1] != by_group["again", 1]


@pytest.mark.parametrize("override, named", [
    ("schedule=separate_linear", "schedule='original_linear', not 'separate_linear'"),
    ("max_length=64", "max_length=128, not 64"),
    ("seeds=[7]", "seed=0, not 7"),
    ("task_overrides={'rte': {'rows': 32}}", "epochs=1, not 10, rows=64, not 32"),
])
def test_runs_of_one_group_have_the_same_settings(start, override, named):
    start("tasks=rte")
    with pytest.raises(PlainError, match=f"Run 0 of rte in the group 'g' was trained with {named}. Set another group_name"):
        start("tasks=rte", override)


def test_other_tables_in_the_same_group_are_detected(start, tmp_path):
    start("tasks=rte")
    write_synthetic_glue(tmp_path / "other", seed=1)
    with pytest.raises(PlainError, match="was trained with training_table='2,000 rows, "):
        start("tasks=rte", f"glue_dir={tmp_path / 'other'}")


def test_the_best_run_predicts_unless_th_run_names_others(start):
    start("tasks=stsb", "end=3")
    rows = Runs()
    made_by = lambda: read_record(Path("test_outputs/g"))["STS-B.tsv"]
    best = max(rows, key=score)
    assert made_by() == f"stsb run {best['run']} (dev {score(best):.2f})"
    start("tasks=stsb", "do_finetune=False", "th_run={'stsb': 1}")
    assert made_by().startswith("stsb run 1 ")
    run_path("g", "stsb", best["run"]).unlink()
    start("tasks=stsb", "do_finetune=False")
    second = sorted(rows, key=score)[-2]
    assert made_by().startswith(f"stsb run {second['run']} ")
    with pytest.raises(PlainError, match=f"th_run names run {best['run']} of stsb.*was deleted"):
        start("tasks=stsb", "do_finetune=False", f"th_run={best['run']}")


def test_an_ensemble_averages_its_members(start, glue):
    start("tasks=stsb,qnli", "end=2", "th_run=[0, 1]")
    assert read_record(Path("test_outputs/g"))["STS-B.tsv"].count("stsb run") == 2
    data = finetune.load_task("stsb", glue)
    paths = [run_path("g", "stsb", run) for run in (0, 1)]
    alone = [finetune.predict_test("stsb", path, data=data) for path in paths]
    torch.testing.assert_close(finetune.predict_test("stsb", paths, data=data), (alone[0] + alone[1]) / 2)
    written = [float(line.split("\t")[1]) for line in Path("test_outputs/g/STS-B.tsv").read_text().splitlines()[1:]]
    assert written == pytest.approx(((alone[0] + alone[1]) / 2).clamp(0, 5).tolist(), abs=6e-4)


@pytest.mark.parametrize("overrides, message", [
    (["tasks=rte", "do_finetune=False"], "The group 'g' has no finished run of rte with a checkpoint. Finetune first"),
    (["tasks=rte", "do_finetune=False", "th_run={'rte': 4}"], "th_run names run 4 of rte, but in the group 'g' it is not finished"),
    (["tasks=rte", "th_run={'rte': [0, 4]}"], "th_run names run 4 of rte"),
    (["tasks=rte", "device=cuda:99"], "Device not found: 'cuda:99'"),
    (["tasks=rte", "start_from_mnli=True"], "start_from_mnli needs an MNLI run in the group 'g' from the same.*Add mnli to tasks"),
    (["tasks=rte,wnli", "wsc_trick=True", "wsc_dir=nowhere"], "File not found: 'nowhere/train.jsonl'.*wsc_trick=True"),
])
def test_missing_prerequisites_are_reported_before_training(start, overrides, message):
    with pytest.raises(PlainError, match=message):
        start(*overrides)
    assert not Path("checkpoints").exists() and not Path("test_outputs").exists()


def test_th_run_of_a_task_without_tables_does_not_stop_the_others(start, glue, tmp_path, capsys):
    partial = tmp_path / "partial"
    shutil.copytree(glue, partial)
    (partial / "RTE/dev.tsv").unlink()
    start("tasks=rte,cola", "th_run=0", f"glue_dir={partial}")
    printed = capsys.readouterr().out
    assert "test_outputs/g/CoLA.tsv by cola run 0" in printed and "Skipping RTE.tsv: RTE has no finished run" in printed
    with pytest.raises(PlainError, match="Tables are missing for each of the tasks rte"):
        start("tasks=rte", f"glue_dir={partial}")


def test_runs_start_from_mnli_runs_of_another_group_with_the_same_pretrained_weights(start, fresh_checkpoint, tmp_path):
    start("tasks=mnli")
    start("tasks=rte", "group_name=h", "start_from_mnli=g")
    [row] = [row for row in Runs() if row["task"] == "rte"]
    assert row["mnli_run"] == 0 and row["settings"]["start_from_mnli"] == "g"
    other = torch.load(fresh_checkpoint, weights_only=True)
    other["model"]["discriminator.electra.embeddings.word_embeddings.weight"] += 1
    torch.save(other, tmp_path / "other.pth")
    with pytest.raises(PlainError, match="needs an MNLI run in the group 'g' from the same pretrained weights"):
        start("tasks=rte", "group_name=i", "start_from_mnli=g", f"pretrained_checkpoint={tmp_path / 'other.pth'}")


def test_test_files_need_no_pretrained_checkpoint(start):
    start("tasks=rte")
    shutil.rmtree("test_outputs")
    start("tasks=rte", "do_finetune=False", "pretrained_checkpoint=gone.pth")
    assert Path("test_outputs/g/RTE.tsv").exists()


def test_an_invalid_submission_is_reported_without_an_error(start, capsys):
    start("tasks=rte", "majority_for_missing=True")
    assert "No zip: RTE.tsv has 201 lines instead of 3,001" in capsys.readouterr().out and not Path("test_outputs/g.zip").exists()


def test_majority_baselines_are_written_only_on_request(start, capsys):
    start("tasks=wnli")
    assert "which needs all tasks: missing CoLA.tsv, SST-2.tsv" in capsys.readouterr().out and not Path("test_outputs/g.zip").exists()
    results = start("tasks=wnli", "do_finetune=False", "majority_for_missing=True")
    printed = capsys.readouterr().out
    assert "CoLA.tsv     by majority baseline: 1 in every row" in printed
    assert "complete and valid (10 of its files are majority baselines)" in printed
    made_by = read_record(Path("test_outputs/g"))
    assert set(made_by) == set(SUBMISSION) and made_by["WNLI.tsv"].startswith("wnli run 0")
    assert Path("test_outputs/g.zip").exists() and results.submission == Path("test_outputs/g.zip")
    start("tasks=wnli", "do_finetune=False")
    printed = capsys.readouterr().out
    assert "Removed the majority baselines CoLA.tsv" in printed and "which needs all tasks: missing CoLA.tsv" in printed
    assert not Path("test_outputs/g.zip").exists()
    assert [path.name for path in Path("test_outputs/g").iterdir()] == ["WNLI.tsv"]
    assert list(read_record(Path("test_outputs/g"))) == ["WNLI.tsv"]
    Path("test_outputs/g/QQP.tsv").write_text("of another group")
    start("tasks=wnli", "do_finetune=False")
    assert read_record(Path("test_outputs/g"))["QQP.tsv"] == "not written by finetune.py"


def test_a_file_copied_over_a_majority_baseline_is_kept(start):
    start("tasks=wnli", "majority_for_missing=True")
    copied = Path("test_outputs/g/RTE.tsv")
    copied.write_text(copied.read_text().replace("entailment", "not_entailment", 1))
    start("tasks=wnli", "do_finetune=False")
    assert {path.name for path in Path("test_outputs/g").iterdir()} == {"WNLI.tsv", "RTE.tsv"}
    assert read_record(Path("test_outputs/g"))["RTE.tsv"] == "not written by finetune.py"


def test_tasks_with_missing_files_are_skipped(start, glue, tmp_path, capsys):
    partial = tmp_path / "partial"
    shutil.copytree(glue, partial)
    (partial / "QNLI/dev.tsv").unlink()
    (partial / "RTE/test.tsv").unlink()
    start("tasks=qnli,rte", f"glue_dir={partial}")
    printed = capsys.readouterr().out
    assert f"Skipping QNLI: dev.tsv not found in {partial / 'QNLI'}" in printed
    assert f"Skipping RTE.tsv: test.tsv not found in {partial / 'RTE'}" in printed
    assert [row["task"] for row in Runs()] == ["rte"]


def test_rte_starts_from_the_best_mnli_run(start, monkeypatch):
    started_from = []
    load_encoder = finetune.load_encoder
    monkeypatch.setattr(finetune, "load_encoder", lambda model, path: (started_from.append(path.name), load_encoder(model, path)))
    start("tasks=rte,cola,mnli", "end=2", "start_from_mnli=True")
    rows = Runs()
    best = max((row for row in rows if row["task"] == "mnli"), key=score)["run"]
    assert started_from == [f"g_mnli_{best}.pth"] * 2
    assert {row["task"]: row["mnli_run"] for row in rows} == {"mnli": None, "rte": best, "cola": None}


@pytest.mark.parametrize("size", ["alectra_tiny", "bert_tiny"])
def test_other_families_are_finetuned_by_lmtuners_protocol_and_predict(start, small_tokenizer, tmp_path, size):
    """ALBERT's layers share their weights and so their learning rate; MRPC does not start from MNLI."""
    c = complete(pretrain.c.override([f"size={size}"]))
    save_pretrained(tmp_path / "other.pth", pretrain.build_model(c, small_tokenizer), c, small_tokenizer, step=0)
    start(f"pretrained_checkpoint={tmp_path}/other.pth", f"size={size}", "protocol=lmtuners", "tasks=mnli,rte,mrpc")
    rows = {row["task"]: row for row in Runs()}
    assert {task: row["mnli_run"] for task, row in rows.items()} == {"mnli": None, "rte": 0, "mrpc": None}
    settings = rows["rte"]["settings"]  # lmtuners', except for explicit overrides
    assert settings["lr"] == (1e-4 if size == "alectra_tiny" else 2e-5) and settings["epochs"] == 1
    model, _, _ = finetune.load_finetuned(run_path("g", "rte", 0))
    assert len(finetune.parameter_groups(model)) == (3 if size == "alectra_tiny" else 4)
    assert Path("test_outputs/g/RTE.tsv").exists()


def test_the_mnli_encoder_is_loaded_without_its_head(start, fresh_checkpoint):
    start("tasks=mnli")
    source, _, _ = finetune.load_finetuned(run_path("g", "mnli", 0))
    pretrained = load_pretrained(str(fresh_checkpoint), "tiny", 128)
    model = finetune.SentencePredictor(pretrained.encoder(), 128, 2)
    head = model.classifier.weight.clone()
    finetune.load_encoder(model, run_path("g", "mnli", 0))
    assert all(a.equal(b) for a, b in zip(model.base_model.state_dict().values(), source.base_model.state_dict().values()))
    assert model.classifier.weight.equal(head)


def test_wnli_by_the_wsc_trick(start, capsys, monkeypatch, tmp_path, glue):
    monkeypatch.setattr("_utils.glue.wsc_trick.SPACY_MODELS", ())
    start("tasks=wnli", "wsc_trick=True", "task_overrides={'wnli': {'epochs': 1, 'rows': 40}}")
    printed = capsys.readouterr().out
    assert "a learned threshold, because no English spaCy model is installed" in printed
    assert "found the pronoun in 146 of 146 rows" in printed
    [row] = Runs()
    assert list(row["scores"]) == ["wsc_validation"] and len(Path("test_outputs/g/WNLI.tsv").read_text().splitlines()) == 147
    assert row["train_rows"] == 40 and row["settings"]["spacy_model"] is None and "wsc_validation accuracy" in printed
    assert "WNLI (on WSC)" in report(Runs())
    with pytest.raises(PlainError, match="was trained with the WSC trick"):
        predict(str(run_path("g", "wnli", 0)), "x.txt")
    shutil.copytree(glue / "WSC", tmp_path / "wsc")
    (tmp_path / "wsc/train.jsonl").write_text((glue / "WSC/val.jsonl").read_text())
    with pytest.raises(PlainError, match="was trained with training_table='300 rows"):
        start("tasks=wnli", "wsc_trick=True", "task_overrides={'wnli': {'epochs': 1, 'rows': 40}}", f"wsc_dir={tmp_path / 'wsc'}")


def test_predictions_for_new_sentences(start, capsys, glue):
    start("tasks=mnli,stsb,sst2")
    write = lambda text: Path("x.txt").write_text(text)
    capsys.readouterr()
    write("a good server\nthis tool is broken\n\n")
    predict(str(run_path("g", "sst2", 0)), "x.txt")
    header, *lines = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    assert header == ["label", "P(negative)", "P(positive)", "sentence"]
    assert [line[-1] for line in lines] == ["a good server", "this tool is broken"]
    for label, negative, positive, _ in lines:
        assert float(negative) + float(positive) == pytest.approx(1, abs=2e-4)
        assert label == ("positive" if float(positive) > float(negative) else "negative")

    data = finetune.load_task("mnli", glue)
    rows = [data.splits["test_matched"][i] for i in range(5)]
    write("\n".join(f"{row['premise']}\t{row['hypothesis']}" for row in rows))
    predict(str(run_path("g", "mnli", 0)), "x.txt")
    labels = [line.split("\t")[0] for line in capsys.readouterr().out.splitlines()[1:]]
    expected = finetune.predict_test("mnli", run_path("g", "mnli", 0), data=data)[:5]
    assert labels == [TASKS["mnli"].labels[label] for label in expected]

    write("one\ttwo\nthree\tfour\n")
    predict(str(run_path("g", "stsb", 0)), "x.txt")
    scores = [float(line.split("\t")[0]) for line in capsys.readouterr().out.splitlines()[1:]]
    assert len(scores) == 2 and all(0 <= value <= 5 for value in scores)

    for text, said in (("only one\n", "x.txt, line 1: MNLI requires two texts separated by a tab"), ("a\tb\n\nc\td\n", "x.txt, line 2"),
                       ("a\tb\tc\n", "x.txt, line 1")):
        write(text)
        with pytest.raises(PlainError, match=said):
            predict(str(run_path("g", "mnli", 0)), "x.txt")
    with pytest.raises(PlainError, match="File not found: 'none.txt'"):
        predict(str(run_path("g", "mnli", 0)), "none.txt")


def test_a_pretraining_checkpoint_is_rejected(fresh_checkpoint):
    with pytest.raises(PlainError, match="is not a checkpoint written by finetune.py"):
        finetune.load_finetuned(fresh_checkpoint)
    with pytest.raises(PlainError, match="Finetuned checkpoint not found: 'x.pth'. Pass one of checkpoints/glue"):
        finetune.load_finetuned("x.pth")


def test_a_loss_that_is_not_finite_stops_the_run(start):
    with pytest.raises(PlainError, match="RTE, run 0.*nan.*task_overrides"):
        start("tasks=rte", "task_overrides={'rte': {'lr': 1e30, 'epochs': 1}}")
    assert not Runs() and not run_path("g", "rte", 0).exists()


def test_a_run_with_every_option(start):
    start("tasks=rte", "precision=bf16", "schedule=adjusted_one_cycle", "adam_bias_correction=True", "weight_decay=.01", "num_workers=1",
          "xavier_reinited_outlayer=False", "original_lr_layer_decays=False", "logger=neptune")
    [row] = Runs()
    assert row["settings"]["precision"] == "bf16" and Path(".neptune").exists()


def test_the_script_writes_a_valid_submission_and_plots(repo, fresh_checkpoint, glue, tmp_path):
    command = [sys.executable, repo / "finetune.py", "quickstart=True", f"pretrained_checkpoint={fresh_checkpoint}", "end=1",
               f"task_overrides={SMALL}", "tasks=cola,mrpc,mnli", "majority_for_missing=True", "device=cpu"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    group = fresh_checkpoint.stem  # not the quickstart's group, because the checkpoint is another one
    assert f"test_outputs/{group}.zip is complete and valid" in done.stdout and "synthetic tables" in done.stdout
    folder = tmp_path / "checkpoints/glue" / group
    assert all((folder / plot).stat().st_size > 5000 for plot in
               ("scores.png", "losses.png", "lengths.png", "layer_learning_rates.png"))
    table = (folder / "runs.html").read_text()
    assert [row.count("<td>") for row in table.split("<tr")[2:]] == [11, 11, 11] and table.count("<td>0.001</td>") == 3  # the learning rate
