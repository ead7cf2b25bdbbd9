"""The table of runs, its summaries and comparisons."""
import numpy as np
import pytest

from _utils.commands.glue import glue_results
from _utils.errors import UserError
from _utils.finetuning.results import (
    COMPARISON,
    compare_checkpoints,
    report,
    summarize,
)
from _utils.finetuning.runs import SCORES, Runs, add_run, score, with_evaluations
from _utils.tasks.glue import FINETUNED_TASKS, TASKS
from _utils.tasks.regression import Regression

HEADLINES = {"cola": "matthews", "stsb": "spearman"}
BOTH_MNLI = {"validation_matched": {"accuracy": .8}, "validation_mismatched": {"accuracy": .7}}


def row(task, run, value, group="g", **more):
    """A row of the table with this score in percent."""
    scores = {split: {HEADLINES.get(task, "accuracy"): value / 100} for split in TASKS[task].devs}
    return {
        "group": group,
        "task": task,
        "run": run,
        "seed": run,
        "scores": scores,
        "settings": {},
        "train_rows": 100,
        "synthetic": False,
        **more,
    }


def runs(*rows, group="g"):
    """The runs of a group."""
    return Runs(rows).of(group)


def test_the_latest_row_of_a_run_counts_and_a_truncated_line_of_a_killed_run_is_skipped(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert Runs() == []
    for value in (50., 60.):
        add_run(row("cola", 0, value))
    with SCORES.open("a") as file:
        file.write('{"group": "g", "task": "co')
    assert [score(r) for r in Runs()] == [60.]
    add_run(row("cola", 1, 55.))
    assert [(r["run"], score(r)) for r in Runs()] == [(0, 60.), (1, pytest.approx(55.))]


@pytest.mark.parametrize("line", ['{"group": "g"}', "not JSON"])
def test_an_invalid_line_is_reported(tmp_path, monkeypatch, line):
    monkeypatch.chdir(tmp_path)
    add_run(row("cola", 0, 50.))
    with SCORES.open("a") as file:
        file.write(line + "\n")
    with pytest.raises(UserError, match="line 2"):
        Runs()


def test_mean_deviation_median_and_best():
    values = [50., 58., 54., 70.]
    table = summarize(
        runs(
            row("rte", 4, 60.0),
            *(row("cola", i, value) for i, value in enumerate(values)),
            row("cola", 0, 99.0, "other"),
            row("mnli", 0, 0.0) | {"scores": BOTH_MNLI},
        )
    )
    line = table.loc["CoLA"]
    assert list(table.index) == ["CoLA", "MNLI", "MNLI-mm", "MNLI, both", "RTE"]
    assert [line["runs"], line["median"], line["best"], line["best run"]] == [4, 56., 70., 3]
    assert line["mean"] == pytest.approx(np.mean(values)) and line["std"] == pytest.approx(np.std(values, ddof=1))
    assert np.isnan(table.loc["RTE", "std"]) and table.loc["RTE", "best run"] == 4
    assert list(table.loc[["MNLI", "MNLI-mm", "MNLI, both"], "mean"]) == [80, 70, 75]


def test_scores_of_constant_predictions_are_beside_those_of_the_runs():
    """The majority label, or the mean score."""
    rows = []
    for task, labels in {"rte": [1, 0, 1, 1, 0], "stsb": [1.5, 4., 4.], "mrpc": [0, 1, 1]}.items():
        outputs = [1.5, 4.1, 4.2] if task == "stsb" else np.eye(2)[labels]
        rows.append(with_evaluations(row(task, 0, 0.), {"validation": TASKS[task].evaluation(outputs, labels)}))
    assert summarize(runs(*rows))["baseline"].to_dict() == {"RTE": 60., "STS-B": 0., "MRPC": pytest.approx(200 / 3)}
    own = Regression("own", "own", ("text",), metrics=("r2", "rmse")).evaluation([2., 2., 5.], [1., 2., 6.])
    assert own["baselines"] == {"r2": 0., "rmse": pytest.approx(np.std([1., 2., 6.]))}
    assert own["scores"] == {"r2": pytest.approx(1 - 2 / 14), "rmse": pytest.approx((2 / 3) ** .5)}


@pytest.mark.parametrize("task, outputs, labels, found", [
    ("rte", np.eye(2)[[1, 1, 1]], [0, 1, 0], "'not_entailment'"),
    ("rte", np.eye(2)[[1, 0, 1]], [1, 1, 1], None),
    ("stsb", [4.339, 4.341, 4.343], [1., 2.5, 5.], "4.339 and 4.343"),
    ("stsb", [3., 3.2, 3.5], [1., 2.5, 5.], None),
])
def test_a_constant_prediction_is_noticed(task, outputs, labels, found):
    evaluated = with_evaluations(row(task, 0, 0.), {"validation": TASKS[task].evaluation(outputs, labels)})
    printed = report(runs(evaluated))
    assert ("warning" in printed) == bool(found) and (found or "") in printed


def test_checkpoints_are_compared_by_the_mean_of_their_best_runs():
    rows = [row("cola", 0, 1., "a"), row("rte", 0, 1., "b")]
    with pytest.raises(UserError, match="no task in common"):
        compare_checkpoints(Runs(rows), ["a", "b"])
    rows += [row("cola", 1, 60., "a"), row("rte", 0, 70., "a"), row("cola", 0, 40., "b"), row("rte", 1, 60., "b")]
    assert compare_checkpoints(Runs(rows), ["a", "b"]).to_dict() == {"a": 65., "b": 50.}


@pytest.mark.plots
def test_the_command_prints_every_group_and_the_comparison(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for group, value in (("seed_1", 50.), ("seed_2", 60.)):
        for task in FINETUNED_TASKS:
            add_run(row(task, 0, value, group) | {"settings": {"pretrained_weights": group}})
    glue_results()
    printed = capsys.readouterr().out
    assert "2 groups" in printed and "mean 55.00, std 7.07, max 60.00, min 50.00" in printed
    assert COMPARISON.stat().st_size > 5000
    with pytest.raises(UserError, match="'seed_3'.*seed_1, seed_2"):
        glue_results(["seed_3"])
