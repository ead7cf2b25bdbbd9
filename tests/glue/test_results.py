"""Summaries of the table of runs."""
import json
import re

import numpy as np
import pytest
import torch
from tiny_finetuning import table_row

from _utils.commands.glue import glue_results
from _utils.custom.custom_regression import CustomRegression
from _utils.errors import UserError
from _utils.finetuning.results import (
    COMPARISON,
    compare_with_published,
    format_scores,
    report,
    scores_by_task,
    summarize,
    table_of_runs,
)
from _utils.finetuning.runs import SCORES, Runs, add_run, task_of
from _utils.tasks.glue import TASKS
from _utils.tasks.rows import EncodedRows, Window

HEADLINES = {"cola": "matthews", "stsb": "spearman"}
BOTH_MNLI = {"validation_matched": {"accuracy": .8}, "validation_mismatched": {"accuracy": .7}}


def row(task, run, value, group="g", **more):
    """A row of the table with this score in percent."""
    scores = {split: {HEADLINES.get(task, "accuracy"): value / 100} for split in TASKS[task].devs}
    return table_row(task, run, group, **{"scores": scores, **more})


def runs(*rows, group="g"):
    """The runs of a group."""
    return Runs(rows).of(group)


def test_mean_deviation_median_and_best():
    of_cola = [row("cola", i, value) for i, value in enumerate([50., 58., 54., 70.])]
    other = {"validation_matched": {"accuracy": .7}, "validation_mismatched": {"accuracy": .9}}
    of_mnli = [row("mnli", i, 0., scores=scores) for i, scores in enumerate((BOTH_MNLI, other))]
    table = summarize(runs(row("rte", 4, 60.), *of_cola, row("cola", 0, 99., "other"), *of_mnli))
    line = table.loc["CoLA"]
    assert list(table.index) == ["CoLA", "MNLI", "MNLI-mm", "MNLI, both", "RTE"]
    assert [line["runs"], line["mean"], line["median"], line["best"], line["best run"]] == [4, 58., 56., 70., 3]
    assert line["std"] == pytest.approx((224 / 3) ** .5) and np.isnan(table.loc["RTE", "std"])
    lines = table.loc[["MNLI", "MNLI-mm", "MNLI, both"]]
    assert [*lines["mean"]] == pytest.approx([75, 80, 77.5])
    assert [*lines["best"]] == pytest.approx([80, 70, 75])  # of the run that is the best on the first dev set


def test_the_best_run_has_a_score_and_a_checkpoint(empty_folder):
    found = runs(row("rte", 0, np.nan), row("rte", 1, 50.), row("rte", 2, 60.))
    found[0].path.parent.mkdir(parents=True)
    for with_checkpoint in found[:2]:
        with_checkpoint.path.touch()
    assert found.best().run == 1


def test_predictions_of_a_run_with_recipe_google_have_the_unit_of_the_labels():
    task, rows = task_of(table_row("stsb", settings={"recipe": "google"})), EncodedRows([([Window([2], [0])], 1)], [0.])
    assert task.head.outputs(rows, torch.tensor([.5])).tolist() == [2.5]


@pytest.mark.parametrize("task, outputs, labels, baseline, is_constant", [
    ("rte", np.eye(2)[[1, 0, 1, 1, 0]], [1, 0, 1, 1, 0], 60., False), ("rte", np.eye(2)[[1, 1]], [0, 1], 50., True),
    ("stsb", [1.5, 4.1, 4.2], [1.5, 4., 4.], 0., False), ("stsb", [4.339, 4.341, 4.343], [1., 2.5, 5.], 0., True)])
def test_scores_of_constant_predictions_are_beside_those_of_the_runs(task, outputs, labels, baseline, is_constant):
    """The majority label, or the mean score. A model that predicts a constant is noticed."""
    found = runs(row(task, 0, 0.).with_evaluations({"validation": TASKS[task].scores.evaluate(outputs, labels)}))
    assert summarize(found)["baseline"].tolist() == [pytest.approx(baseline)]
    assert ("warning" in report(found)) == is_constant


def test_errors_are_in_the_unit_of_the_labels_and_other_metrics_in_percent():
    task = CustomRegression("prices", "prices", ("text",), metrics=("r2", "rmse"))
    scores, baselines = {"validation": {"r2": .5, "rmse": .00123}}, {"validation": {"r2": 0., "rmse": .00456}}
    record = table_row("prices", settings={"own_task": task.as_data()}, scores=scores, baselines=baselines)
    assert format_scores(record) == "r2 50.00 (constant 0.00), rmse 0.00123 (constant 0.00456)"
    [line] = table_of_runs([record]).to_dict("records")
    assert (line["metric"], line["score"], line["other metrics"]) == ("r2", 50., "rmse 0.00123")


def test_scores_on_wsc_are_not_called_those_of_wnli():
    on_wsc = row("wnli", 0, 60., scores={"wsc_validation": {"accuracy": .6}}, settings={"wsc_trick": True})
    assert scores_by_task(runs(on_wsc)).keys() == {*summarize(runs(on_wsc)).index} != scores_by_task(
        runs(row("wnli", 0, 60.))).keys()


def test_scores_are_compared_with_published_ones_of_the_same_metric():
    by_accuracy = row("cola", 0, 70., scores={"validation": {"accuracy": .7}})
    table = compare_with_published(runs(by_accuracy, row("rte", 0, 60.), group="g"))
    assert list(table.columns) == ["RTE", "mean of 1"] and "Comparison" not in report(runs(by_accuracy))


def test_a_run_of_an_unknown_task_is_skipped_with_a_warning(empty_folder, capsys):
    for record in (table_row("tenth"), row("rte", 0, 50.)):
        add_run(record)
    assert [record.task for record in Runs()] == [record.task for record in Runs()] == ["rte"]
    assert capsys.readouterr().err.count("'tenth'") == 1
    SCORES.write_text(SCORES.read_text() + json.dumps({"task": "rte"}) + "\n")
    with pytest.raises(UserError, match="line 3"):
        Runs()


@pytest.mark.plots
def test_the_command_prints_every_group_and_the_comparison(empty_folder, capsys):
    for group, value in (("seed_1", 50.), ("seed_2", 60.)):
        for task in TASKS:
            add_run(row(task, 0, value, group, settings={"pretrained_weights": group}))
    glue_results()
    assert {"55.00", "7.07", "60.00", "50.00"} <= {*re.findall(r"[\d.]+", capsys.readouterr().out)}
    assert COMPARISON.stat().st_size > 5000
    glue_results(["seed_1", "seed_1"])
    assert "2 groups" not in capsys.readouterr().out
    with pytest.raises(UserError, match="'seed_3'.*seed_1, seed_2"):
        glue_results(["seed_3"])


def test_differences_between_groups_are_named_beside_their_comparison(empty_folder, capsys):
    for number in (0, 1):
        add_run(row("rte", number, 50., "one"))
    add_run(row("rte", 0, 60., "two", settings={"epochs": 50}))
    glue_results()
    printed = capsys.readouterr().out
    assert "epochs=50 (two)" in printed and "different numbers of runs" in printed


def test_groups_without_a_common_task_are_an_error_that_names_their_tasks(empty_folder, capsys):
    """Without the names of groups, the tables of all are enough."""
    for group, tasks in {"one": ("rte", "wnli"), "two": ("cola", "sst2", "wnli")}.items():
        for task in tasks:
            add_run(row(task, 0, 50., group, settings={"pretrained_weights": group}))
    with pytest.raises(UserError, match="one.*RTE, WNLI.*two.*CoLA, SST-2, WNLI") as error:
        glue_results(["one", "two"])
    assert "\n" not in str(error.value) and not COMPARISON.exists()
    glue_results()
    assert "RTE" in capsys.readouterr().out
