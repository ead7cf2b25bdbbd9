"""Tables of finished runs, and comparisons of groups."""
import numpy as np
import pandas

from _utils.errors import PlainError
from _utils.glue.metrics import glue_metrics
from _utils.glue.runs import GLUE_FOLDER, run_path, runs_of, score
from _utils.glue.tasks import AVERAGED_TASKS, FINETUNED_TASKS, PUBLISHED, PUBLISHED_SEEDS, TASKS
from _utils.run_files.run_log import read_metrics

COMPARISON = GLUE_FOLDER / "comparison.png"


def summarize(rows, group):
    """Table of a group in percent, a line for each task: training rows, runs, mean, standard deviation, median, best, best run.

    Training rows are as they were trained on: those of MRPC and STS-B count in both orders. MNLI's second
    dev set has a line of its own, and so has the mean of both. Standard deviations are those of a sample, so one run has none.
    """
    lines = {}
    for task in FINETUNED_TASKS:
        runs = runs_of(rows, group, task)
        if runs:
            by_wsc = "wsc_validation" in runs[0]["scores"]
            lines[TASKS[task].title + " (on WSC)" * by_wsc] = _line(runs, [score(row) for row in runs])
        with_mm = [row for row in runs if "validation_mismatched" in row["scores"]]
        if with_mm:
            mismatched = [100 * row["scores"]["validation_mismatched"]["accuracy"] for row in with_mm]
            lines["MNLI-mm"] = _line(with_mm, mismatched)
            lines["MNLI, both"] = _line(with_mm, [(score(row) + other) / 2 for row, other in zip(with_mm, mismatched)])
    return pandas.DataFrame.from_dict(lines, orient="index",
                                      columns=["training rows", "runs", "mean", "std", "median", "best", "best run"])


def _line(runs, scores):
    scores = pandas.Series(scores, index=[row["run"] for row in runs])
    rows = " or ".join(dict.fromkeys(f"{row['train_rows']:,}" for row in runs))
    return [rows, len(scores), scores.mean(), scores.std(), scores.median(), scores.max(), scores.idxmax()]


def table_of_runs(rows, group):
    """Every finished run of a group, a line each: scores in percent, what it was trained with, and how long it took."""
    lines = []
    for task in FINETUNED_TASKS:
        for row in runs_of(rows, group, task):
            first, *others = [(f"{split.removeprefix('validation').strip('_')} {metric}".strip(), 100 * value)
                              for split, measured in row["scores"].items() for metric, value in measured.items()]
            lines.append({"task": TASKS[task].title, "run": row["run"], "seed": row["seed"], "score": first[1], "measured by": first[0],
                          "also": ", ".join(f"{name} {value:.2f}" for name, value in others), "training rows": row["train_rows"],
                          **{key: row["settings"].get(key) for key in ("lr", "bs", "epochs")}, "seconds": row.get("seconds")})
    return pandas.DataFrame(lines)


def scores_by_task(rows, group):
    """{title of a task: [score of each run, in percent]} of a group."""
    return by_title({task: [score(row) for row in runs] for task in FINETUNED_TASKS if (runs := runs_of(rows, group, task))})


def by_title(scores):
    """{title: value} of {task: value}."""
    return {TASKS[task].title: value for task, value in scores.items()}


def majority_scores(tables, rows, group):
    """{title of a task: what the most frequent answer gets where it is always given, in percent of the task's first metric}.

    tables: {task: TaskData}. WNLI is left out where the group's runs were measured on WSC.
    """
    by_wsc = any("wsc_validation" in row["scores"] for row in runs_of(rows, group, "wnli"))
    scores = {}
    for name, data in tables.items():
        task = TASKS[name]
        if task.devs and task.devs[0][0] in data.splits and not (name == "wnli" and by_wsc):
            labels = data.splits[task.devs[0][0]]["label"][:]
            always = np.full(len(labels), max(set(labels), key=labels.count))
            measured = glue_metrics(task, always if task.is_regression else np.eye(len(task.labels))[always], labels)
            scores[name] = 100 * next(iter(measured.values()))
    return by_title(scores)


def losses_of_runs(rows, group):
    """{title of a task: [rows of metrics.jsonl of its training, of each run of the group]}; of runs whose folder is there."""
    losses = {}
    for task in FINETUNED_TASKS:
        folders = [run_path(group, task, row["run"]).with_suffix("") for row in runs_of(rows, group, task)]
        if found := [read_metrics(path, "train") for folder in folders if (path := folder / "metrics.jsonl").exists()]:
            losses[task] = found
    return by_title(losses)


def compare_with_published(rows, group):
    """Our mean, standard deviation, median and best by task beside the published rows, in percent.

    The last column is the mean over the tasks that the group has, WNLI left out; of the published rows over the same tasks.
    With lmtuners' protocol MNLI is the mean of its two dev sets.
    """
    summary = summarize(rows, group)
    tasks = [task for task in AVERAGED_TASKS if TASKS[task].title in summary.index]
    both = "MNLI, both" in summary.index and any(row["settings"].get("protocol") == "lmtuners" for row in runs_of(rows, group, "mnli"))
    line = {task: "MNLI, both" if task == "mnli" and both else TASKS[task].title for task in tasks}
    ours = {f"ours, {name}": {task: summary.loc[line[task], name] for task in tasks}
            for name in ("mean", "std", "median", "best")}
    table = pandas.DataFrame.from_dict({**ours, **PUBLISHED}, orient="index")[tasks]
    mean = table.mean(axis=1).where(~table.index.str.contains("std|standard"))
    table.columns = [TASKS[task].title for task in tasks]
    return table.assign(**{f"mean of {len(tasks)}": mean})


def compare_checkpoints(rows, groups):
    """The average of each group's best runs over the tasks that all of the groups have, a Series in percent; its name says them.

    With groups that differ in the seed of their pretraining alone it is electra_pytorch's table of 14 models (facts.md#published-results).
    """
    best = {group: {task: max(map(score, runs)) for task in AVERAGED_TASKS if (runs := runs_of(rows, group, task))}
            for group in groups}
    common = [task for task in AVERAGED_TASKS if all(task in of_group for of_group in best.values())]
    if not common:
        raise PlainError(f"the groups {', '.join(groups)} have no task in common whose runs could be averaged: finetune one for all.")
    return pandas.Series({group: sum(of_group[task] for task in common) / len(common) for group, of_group in best.items()},
                         name=f"best runs, mean of {_titles(common)}")


def _titles(tasks):
    return ", ".join(TASKS[task].title for task in tasks)


def as_text(table):
    """A table for people, numbers with two decimals and nothing where there is none."""
    return table.to_string(float_format=lambda x: f"{x:.2f}", na_rep="-")


def report(rows, group):
    """The tables of a group as text; what was published stands beside it unless its tables were made up."""
    parts = [f"Dev scores of {group}, in percent (Matthews for CoLA, Spearman for STS-B, accuracy elsewhere)",
             as_text(summarize(rows, group))]
    if any(row["synthetic"] for row in rows if row["group"] == group):
        parts += ["", "These tables were made up for the quickstart: the scores say nothing about GLUE."]
    elif any(runs_of(rows, group, task) for task in AVERAGED_TASKS):
        parts += ["", "Beside what was published", as_text(compare_with_published(rows, group))]
    return "\n".join(parts)


def report_checkpoints(rows, groups):
    """The comparison of several groups as text, beside electra_pytorch's where it is over the same tasks."""
    averages = compare_checkpoints(rows, groups)
    found = {name: getattr(averages, name)() for name in PUBLISHED_SEEDS}
    weights = {row["settings"].get("pretrained_weights") for row in rows if row["group"] in groups}
    parts = [averages.name, as_text(averages),
             f"over {len(groups)} groups from {len(weights)} pretrained checkpoints: {_in_words(found)}"]
    if averages.name.endswith(_titles(AVERAGED_TASKS)):
        parts.append(f"electra_pytorch, 14 checkpoints: {_in_words(PUBLISHED_SEEDS)}")
    return "\n".join(parts)


def _in_words(numbers):
    return ", ".join(f"{name} {value:.2f}" for name, value in numbers.items())


