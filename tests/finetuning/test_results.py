"""The table of runs, its summaries and comparisons."""
import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from _utils.commands.glue_results import main
from _utils.errors import PlainError
from _utils.glue.results import (
    COMPARISON,
    compare_checkpoints,
    compare_with_published,
    majority_scores,
    report,
    summarize,
    table_of_runs,
)
from _utils.glue.runs import append_score, read_scores, score
from _utils.glue.tasks import AVERAGED_TASKS, PUBLISHED, TASKS

HEADLINES = {"cola": "matthews", "stsb": "spearman"}


def row(task, run, value, group="g", **more):
    """A row of the table with this score in percent."""
    scores = {split: {HEADLINES.get(task, "accuracy"): value / 100} for split, _ in TASKS[task].devs}
    return {"group": group, "task": task, "run": run, "seed": run, "scores": scores, "settings": {}, "train_rows": 100, "synthetic": False,
            **more}


def test_the_published_means_are_the_means_of_the_published_rows():
    means = {name: np.mean(list(scores.values())) for name, scores in PUBLISHED.items()}
    assert list(means.values()) == pytest.approx([81.1, 80.36, 80.36, .65, 77.9, 79.5], abs=.06)
    assert all(list(scores) == list(AVERAGED_TASKS) for scores in PUBLISHED.values())


def test_rows_are_stored_and_the_latest_row_of_a_run_counts(tmp_path):
    path = tmp_path / "glue/scores.jsonl"
    assert read_scores(path) == []
    for value in (50., 60.):
        append_score(row("cola", 0, value), path)
    append_score(row("cola", 1, 55.), path)
    assert [(r["run"], score(r)) for r in read_scores(path)] == [(0, 60.), (1, pytest.approx(55.))]


def test_a_truncated_line_of_a_killed_run_is_skipped(tmp_path):
    path = tmp_path / "scores.jsonl"
    append_score(row("cola", 0, 50.), path)
    with path.open("a") as file:
        file.write('{"group": "g", "task": "co')
    assert len(read_scores(path)) == 1
    append_score(row("cola", 1, 60.), path)
    assert [(r["run"], score(r)) for r in read_scores(path)] == [(0, 50.), (1, 60.)]


def test_several_processes_may_append_rows_at_once(tmp_path):
    path = tmp_path / "scores.jsonl"
    path.write_text('{"group": "g", "ta')  # of a killed run
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda i: append_score(row("cola", i, 50.), path), range(100)))
    assert sorted(r["run"] for r in read_scores(path)) == list(range(100))


@pytest.mark.parametrize("line", ["[1]", '{"group": "g"}', "not JSON", json.dumps(row("cola", 0, 1.) | {"task": "squad"})])
def test_an_invalid_line_is_reported(tmp_path, line):
    path = tmp_path / "scores.jsonl"
    append_score(row("cola", 0, 50.), path)
    with path.open("a") as file:
        file.write(line + "\n")
    with pytest.raises(PlainError, match="line 2 is not a row"):
        read_scores(path)


def test_rows_of_earlier_versions_are_read(tmp_path):
    """They have "made_up" instead of "synthetic"."""
    current = row("cola", 0, 50., synthetic=True)
    earlier = {key: value for key, value in current.items() if key != "synthetic"} | {"made_up": True}
    append_score(earlier, tmp_path / "scores.jsonl")
    assert read_scores(tmp_path / "scores.jsonl") == [current]


def test_mean_deviation_median_and_best():
    values = [50., 58., 54., 70.]
    table = summarize([*(row("cola", i, value) for i, value in enumerate(values)), row("rte", 4, 60.), row("cola", 0, 99., "other")], "g")
    line = table.loc["CoLA"]
    assert list(table.index) == ["CoLA", "RTE"]
    assert [line["runs"], line["median"], line["best"], line["best run"]] == [4, 56., 70., 3]
    assert line["mean"] == pytest.approx(np.mean(values)) and line["std"] == pytest.approx(np.std(values, ddof=1))
    assert np.isnan(table.loc["RTE", "std"]) and table.loc["RTE", "best run"] == 4


def test_the_table_of_runs_has_every_metric_and_the_hyperparameters():
    scores = {"validation_matched": {"accuracy": .8}, "validation_mismatched": {"accuracy": .7}}
    rows = [row("mnli", 1, 0., settings={"lr": 3e-4, "bs": 32, "epochs": 3}, seconds=60.) | {"scores": scores}, row("cola", 0, 50.),
            row("cola", 0, 99., "other")]
    table = table_of_runs(rows, "g")
    assert list(table["task"]) == ["CoLA", "MNLI"] and list(table["score"]) == [50., 80.]
    mnli = table.iloc[1]
    assert mnli["metric"] == "matched accuracy" and mnli["other metrics"] == "mismatched accuracy 70.00"
    assert (mnli["run"], mnli["lr"], mnli["bs"], mnli["epochs"], mnli["seconds"]) == (1, 3e-4, 32, 3, 60.)


def test_scores_of_the_majority_baseline():
    labels = {"rte": [1, 0, 1, 1, 0], "cola": [1, 1, 0], "stsb": [1.5, 4., 4.], "wnli": [0, 1, 1]}
    tables = {task: SimpleNamespace(task=TASKS[task], splits={"validation": {"label": values}}) for task, values in labels.items()}
    tables["qnli"] = SimpleNamespace(task=TASKS["qnli"], splits={})
    assert majority_scores(tables, [], "g") == {"RTE": 60., "CoLA": 0., "STS-B": 0., "WNLI": pytest.approx(200 / 3)}
    on_wsc = [row("wnli", 0, 0.) | {"scores": {"wsc_validation": {"accuracy": .635}}}]
    assert "WNLI" not in majority_scores(tables, on_wsc, "g") and "WNLI" in majority_scores(tables, on_wsc, "other")


def test_mnlis_second_dev_set_has_its_own_line():
    scores = {"validation_matched": {"accuracy": .8}, "validation_mismatched": {"accuracy": .7}}
    table = summarize([row("mnli", 0, 0.) | {"scores": scores}], "g")
    assert table.loc["MNLI", "mean"] == 80 and table.loc["MNLI-mm", "mean"] == 70


def test_published_rows_are_averaged_over_the_tasks_of_the_group():
    table = compare_with_published([row("cola", 0, 40.), row("rte", 0, 60.), row("wnli", 0, 56.)], "g")
    assert list(table.columns) == ["CoLA", "RTE", "mean of 2"]
    assert table.loc["g (best)", "mean of 2"] == 50
    assert table.loc["ELECTRA-Small-OWT (Google, median)", "mean of 2"] == pytest.approx((56.8 + 68.5) / 2)
    assert np.isnan(table.loc["g (std)", "mean of 2"])


def test_the_report_of_synthetic_tables_has_no_published_results():
    assert "published" in report([row("cola", 0, 40.)], "g")
    synthetic = report([row("cola", 0, 40.) | {"synthetic": True}], "g")
    assert "synthetic" in synthetic and "Google" not in synthetic
    both = report([row("cola", 0, 40.) | {"synthetic": True}, row("rte", 0, 60.)], "g")
    assert "synthetic tables: CoLA." in both and "Google" in both


def test_the_report_names_the_best_of_the_checkpoints_that_exist(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("checkpoints/glue").mkdir(parents=True)
    rows = [row("cola", run, value) for run, value in enumerate((40., 60., 50.))] + [row("rte", 0, 70.)]
    assert "Best runs" not in report(rows, "g")
    for run in (0, 2):
        Path(f"checkpoints/glue/g_cola_{run}.pth").touch()
    Path("checkpoints/glue/g_rte_0.pth").touch()
    assert "Best runs, in checkpoints/glue/: g_cola_2.pth, g_rte_0.pth\n" in report(rows, "g")


def test_checkpoints_are_compared_by_the_mean_of_their_best_runs():
    rows = [row("cola", 0, 50., "a"), row("cola", 1, 60., "a"), row("rte", 0, 70., "a"), row("sst2", 0, 90., "a"),
            row("cola", 0, 40., "b"), row("rte", 0, 60., "b"), row("rte", 1, 50., "b")]
    averages = compare_checkpoints(rows, ["a", "b"])
    assert averages.to_dict() == {"a": 65., "b": 50.} and averages.name == "best runs, mean of CoLA, RTE"
    with pytest.raises(PlainError, match="no task in common"):
        compare_checkpoints([row("cola", 0, 1., "a"), row("rte", 0, 1., "b")], ["a", "b"])


@pytest.mark.plots
def test_the_command_prints_every_group_and_the_comparison(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(PlainError, match="No finished run"):
        main([])
    for group, value in (("seed_1", 50.), ("seed_2", 60.)):
        for task in AVERAGED_TASKS:
            append_score(row(task, 0, value, group) | {"settings": {"pretrained_weights": group}})
    append_score(row("cola", 0, 100., "quickstart") | {"synthetic": True})
    main([])
    printed = capsys.readouterr().out
    assert "over 2 groups from 2 pretrained checkpoints: mean 55.00, std 7.07, max 60.00, min 50.00" in printed
    assert "electra_pytorch, 14 checkpoints: mean 81.38, std 0.57, max 82.23, min 80.42" in printed
    assert COMPARISON.stat().st_size > 5000
    main(["seed_1", "seed_2", "quickstart"])
    assert "Not compared: CoLA of quickstart, on synthetic tables" in capsys.readouterr().out
    with pytest.raises(PlainError, match="Group not found.*'seed_3'.*seed_1, seed_2"):
        main(["seed_3"])


def test_with_lmtuners_protocol_mnli_is_the_mean_of_both_dev_sets():
    rows = [row("mnli", run, 80. + run, settings={"protocol": protocol}, group=str(protocol)) for run in range(3)
            for protocol in (None, "lmtuners")]
    for one in rows:
        one["scores"]["validation_mismatched"]["accuracy"] = .6
    assert summarize(rows, "None").loc["MNLI, both", "median"] == pytest.approx(70.5)
    assert compare_with_published(rows, "None").loc["None (median)", "MNLI"] == pytest.approx(81.)
    assert compare_with_published(rows, "lmtuners").loc["lmtuners (median)", "MNLI"] == pytest.approx(70.5)
