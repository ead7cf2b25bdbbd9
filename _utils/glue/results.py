"""Tables and plots of finished runs, and comparisons of groups."""
import itertools
from collections import Counter

import numpy as np
import pandas as pd

from _utils.errors import PlainError
from _utils.glue.runs import GLUE_FOLDER, best_runs, run_path, runs_of, score
from _utils.glue.tasks import AVERAGED_TASKS, FIRST_TASK, PUBLISHED, PUBLISHED_SEEDS, TASKS, compute_metrics, task_of
from _utils.plots import plot_finetuning_losses, plot_scores, save_plot, sortable
from _utils.runs.log import read_metrics

COMPARISON = GLUE_FOLDER / "comparison.png"


def group_rows(rows, group):
    """The rows of a group: GLUE's tasks in their order, then own tasks in that of their first runs, and by run."""
    names = dict.fromkeys((*TASKS, *(row["task"] for row in rows if row["group"] == group)))
    return [row for task in names for row in runs_of(rows, group, task)]


def headline_scores(row):
    """{line of the summary: percent} of a run: a line for each of its dev sets, and one for their mean if the task has it (MNLI)."""
    task = task_of(row)
    scores = {task.title_of(split): 100 * next(iter(metrics.values())) for split, metrics in row["scores"].items()}
    if task.mean_title and len(scores) > 1:
        scores[task.mean_title] = sum(scores.values()) / len(scores)
    return scores


def summarize(rows, group):
    """DataFrame of a group in percent, indexed by task: training examples, runs, mean, std, median, best, best run.

    A row of MRPC or STS-B is two training examples, one in each order. std is the sample standard deviation, NaN for one run.
    The best run of a task is the best on its first dev set, also in the lines of its other sets.
    """
    lines = [{"task": line, "run": row["run"], "rows": f"{row['train_rows']:,}", "score": value, "rank": score(row)}
             for row in group_rows(rows, group) for line, value in headline_scores(row).items()]
    runs = pd.DataFrame(lines, columns=["task", "run", "rows", "score", "rank"])
    by_task = runs.groupby("task", sort=False)
    best = runs.loc[by_task["rank"].idxmax()]
    table = by_task["score"].agg(runs="size", mean="mean", std="std", median="median").rename_axis(None)
    table.insert(0, "training examples", by_task["rows"].agg(lambda counts: " or ".join(counts.unique())))
    return table.assign(**{"best": best["score"].to_numpy(), "best run": best["run"].to_numpy()})


def table_of_runs(rows, group):
    """DataFrame with a line for each finished run of a group: scores in percent, hyperparameters and time."""
    lines = []
    for row in group_rows(rows, group):
        scores = {f"{split.removeprefix('validation').strip('_')} {metric}".strip(): 100 * value
                  for split, metrics in row["scores"].items() for metric, value in metrics.items()}
        (metric, value), *others = scores.items()
        lines.append({"task": task_of(row).title, "run": row["run"], "seed": row["seed"], "score": value, "metric": metric,
                      "other metrics": ", ".join(f"{name} {value:.2f}" for name, value in others),
                      "training examples": row["train_rows"],
                      **{key: row["settings"].get(key) for key in ("lr", "bs", "epochs")}, "seconds": row.get("seconds")})
    return pd.DataFrame(lines, columns=["task", "run", "seed", "score", "metric", "other metrics", "training examples", "lr", "bs",
                                        "epochs", "seconds"])


def scores_by_task(rows, group):
    """{title of a task: [percent of each run]} of a group."""
    return table_of_runs(rows, group).groupby("task", sort=False)["score"].agg(list).to_dict()


def by_title(scores):
    """{title: value} of {name of a task: value}."""
    return {TASKS[task].title: value for task, value in scores.items()}


def majority_scores(tables, rows, group):
    """{title of a task: percent of the majority baseline}, in the first metric on the first dev set.

    tables: {task: TaskData}.   A task is left out if the group's runs were evaluated on another dev set (WNLI on WSC's).
    """
    scores = {}
    for name, data in tables.items():
        task, evaluated = data.task, [next(iter(row["scores"])) for row in runs_of(rows, group, name)]
        if task.devs and task.devs[0][0] in data.splits and set(evaluated) <= {task.devs[0][0]}:
            scores[task.title] = 100 * _majority_score(task, data.splits[task.devs[0][0]]["label"][:])
    return scores


def _majority_score(task, labels):
    """The first metric of predicting the most frequent label everywhere. labels: of each row, or a list of those of each word."""
    if task.is_regression:
        return 0.  # constant scores correlate with nothing
    lengths = list(map(len, labels)) if task.is_tagging else None
    labels = list(itertools.chain.from_iterable(labels)) if task.is_tagging else labels
    [(majority, _)] = Counter(labels).most_common(1)
    logits = np.eye(task.n_outputs)[np.full(len(labels), majority)]
    return compute_metrics(task, logits, labels, lengths)[task.metrics[0]]


def losses_of_runs(rows, group):
    """{title of a task: [training rows of each run's metrics.jsonl]} of the runs whose log folder exists."""
    losses = {}
    for row in group_rows(rows, group):
        path = run_path(group, row["task"], row["run"]).with_suffix("") / "metrics.jsonl"
        if path.exists():
            losses.setdefault(task_of(row).title, []).append(read_metrics(path, "train"))
    return losses


def compare_with_published(rows, group):
    """DataFrame in percent: mean, std, median and best of a group by task, then the published results.

    The last column averages over the group's tasks, without WNLI, in every line.
    With lmtuners' protocol, MNLI is the mean of its two dev sets.
    """
    summary = summarize(rows, group)
    mnli = TASKS[FIRST_TASK]
    if mnli.mean_title in summary.index and any(row["settings"].get("protocol") == "lmtuners" for row in runs_of(rows, group, mnli.name)):
        summary = summary.drop(mnli.title).rename({mnli.mean_title: mnli.title})
    titles = [TASKS[task].title for task in AVERAGED_TASKS if TASKS[task].title in summary.index]
    found = summary.loc[titles, ["mean", "std", "median", "best"]].T.rename(lambda name: f"{group} ({name})")
    published = pd.DataFrame([by_title(scores) for scores in PUBLISHED.values()], index=list(PUBLISHED))[titles]
    table = pd.concat([found, published])
    is_std = table.index.isin([f"{group} (std)", "  its standard deviation"])
    return table.assign(**{f"mean of {len(titles)}": table.mean(axis=1).where(~is_std)})


def compare_checkpoints(rows, groups):
    """Series in percent: the mean of each group's best runs over the tasks that all groups have; its name lists them.

    Own tasks count only if the groups have no task of GLUE's mean in common. PlainError if there is no common task at all.
    For groups that differ only in the pretraining seed, this is electra_pytorch's comparison of 14 models (facts.md#published-results).
    """
    best = pd.DataFrame({group: summarize(rows, group)["best"] for group in groups})
    own = dict.fromkeys(task_of(row).title for group in groups for row in group_rows(rows, group) if task_of(row).is_own)
    best = next((common for titles in ([TASKS[task].title for task in AVERAGED_TASKS], list(own))
                 if not (common := best.reindex(titles).dropna()).empty), pd.DataFrame())
    if best.empty:
        raise PlainError(f"The groups {', '.join(groups)} have no task in common. Finetune one task in all of them.")
    return best.mean().rename(f"best runs, mean of {', '.join(best.index)}")


def as_text(table):
    """A table as text, with two decimals, and "-" for missing values."""
    return table.to_string(float_format=lambda x: f"{x:.2f}", na_rep="-")


def report(rows, group):
    """The tables of a group as text, with the published results of the tasks whose tables are not synthetic."""
    parts = [f"Scores of {group} in percent ({_name_metrics(rows, group)})", as_text(summarize(rows, group))]
    if best := best_checkpoints(rows, group):
        parts += ["", f"Best runs, in {GLUE_FOLDER}/: {', '.join(path.name for path in best)}"]
    if synthetic := synthetic_titles(rows, group):
        parts += ["", f"On the quickstart's synthetic tables: {', '.join(synthetic)}. These scores do not carry over to GLUE."]
    real = without_synthetic(rows)
    if any(runs_of(real, group, task) for task in AVERAGED_TASKS):
        parts += ["", "Comparison with published results", as_text(compare_with_published(real, group))]
    return "\n".join(parts)


def best_checkpoints(rows, group):
    """Paths of the models of each task's best run."""
    tasks = dict.fromkeys(row["task"] for row in group_rows(rows, group))
    return [run_path(group, task, run) for task in tasks for run in best_runs(rows, group, task)]


def _name_metrics(rows, group):
    """Which metric each task is ranked by, e.g. 'matthews for CoLA, accuracy for RTE and SST-2'."""
    by_metric = {}
    for row in group_rows(rows, group):
        by_metric.setdefault(task_of(row).metrics[0], {})[task_of(row).title] = None
    return ", ".join(f"{metric} for {', '.join(titles)}" for metric, titles in by_metric.items())


def synthetic_titles(rows, group):
    """The tasks of a group with runs on the quickstart's tables."""
    return list(dict.fromkeys(task_of(row).title for row in group_rows(rows, group) if row["synthetic"]))


def without_synthetic(rows):
    """The runs on tables other than the quickstart's."""
    return [row for row in rows if not row["synthetic"]]


def report_checkpoints(rows, groups):
    """The comparison of several groups as text, with electra_pytorch's if it covers the same tasks."""
    averages = compare_checkpoints(rows, groups)
    weights = {row["settings"].get("pretrained_weights") for row in rows if row["group"] in groups}
    parts = [averages.name, as_text(averages),
             f"over {len(groups)} groups from {len(weights)} pretrained checkpoints: {_format_numbers(averages.agg([*PUBLISHED_SEEDS]))}"]
    if averages.name.endswith(", ".join(TASKS[task].title for task in AVERAGED_TASKS)):
        parts.append(f"electra_pytorch, 14 checkpoints: {_format_numbers(PUBLISHED_SEEDS)}")
    return "\n".join(parts)


def _format_numbers(numbers):
    return ", ".join(f"{name} {value:.2f}" for name, value in numbers.items())


def plot_group(rows, group, tables):
    """Scores of a group's runs by task, with the majority baseline and, of tables that are not synthetic, ELECTRA-Small's."""
    published = by_title(PUBLISHED["ELECTRA-Small-OWT (Google, median)"])
    for title in synthetic_titles(rows, group):
        published.pop(title, None)
    return plot_scores({group: scores_by_task(rows, group)}, published, majority_scores(tables, rows, group))


def save_result_plots(rows, group, tables):
    """Write scores.png, losses.png, and runs.html, a sortable table of all runs, to checkpoints/glue/<group>/."""
    folder = GLUE_FOLDER / group
    folder.mkdir(parents=True, exist_ok=True)
    save_plot(plot_group(rows, group, tables), folder / "scores.png")
    if losses := losses_of_runs(rows, group):
        save_plot(plot_finetuning_losses(losses), folder / "losses.png")
    (folder / "runs.html").write_text("<meta charset='utf-8'>" + sortable(table_of_runs(rows, group)).data, encoding="utf-8")
