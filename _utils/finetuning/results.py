"""Tables and plots of finished runs, and comparisons of groups."""
import itertools
from collections import defaultdict
from operator import itemgetter

import numpy as np
import pandas as pd

from _utils.errors import UserError
from _utils.finetuning.runs import GLUE_FOLDER, Runs, path_of, rank
from _utils.plots import plot_confusion, plot_finetuning_losses, plot_scores, save_plot
from _utils.runs.log import read_metrics
from _utils.tasks.glue import AVERAGED_TITLES, PUBLISHED, PUBLISHED_SEEDS, TASKS
from _utils.tasks.kinds import task_of

COMPARISON = GLUE_FOLDER / "comparison.png"


def headline_scores(row, kind="scores"):
    """{line of the summary: percent} of a run: a line for each of its dev sets, and one for the mean of MNLI's.

    kind: of numbers, "scores" or "baselines"; rows of earlier versions have no baselines.
    """
    scores = {
        task_of(row).title_of(split): 100 * next(iter(metrics.values())) for split, metrics in row.get(kind, {}).items()
    }
    if row["task"] == "mnli" and len(scores) > 1:
        scores["MNLI, both"] = sum(scores.values()) / len(scores)
    return scores


def named_scores(scores):
    """{"accuracy" or "matched accuracy": percent} of a run: every metric on every dev set, first the one that ranks the
    runs.

    rmse is in the unit of the labels.
    """
    return {f"{split.removeprefix('validation').strip('_')} {name}".strip(): value if name == "rmse" else 100 * value
            for split, metrics in scores.items() for name, value in metrics.items()}


def format_scores(row):
    """The scores of a run in percent, in one line, each with that of a constant prediction."""
    kind, baselines = task_of(row).baseline, named_scores(row.get("baselines", {}))
    formats = lambda name, value: f"{value:.4g}" if name.endswith("rmse") else f"{value:.2f}"
    return ", ".join(
        f"{name} {formats(name, value)}" + (f" ({kind} {formats(name, baselines[name])})" if name in baselines else "")
        for name, value in named_scores(row["scores"]).items()
    )


def notices_of(row):
    """Warnings about the predictions of a run."""
    return [f"warning, {split}: {text}" for split, text in row.get("notices", {}).items() if text]


def notices_of_runs(runs):
    """Warnings about the predictions of runs, in a line for all runs of a task with the same one."""
    found = defaultdict(list)
    for row in runs:
        for split, text in row.get("notices", {}).items():
            if text:
                found[task_of(row).title, split, text].append(str(row["run"]))
    return [f"warning: {title}, run{'s' * (len(numbers) > 1)} {', '.join(numbers)}, {split}: {text}"
            for (title, split, text), numbers in found.items()]


def _in_line(numbers):
    return ", ".join(f"{name} {value:.2f}" for name, value in numbers.items())


def summarize(runs):
    """DataFrame of the runs of a group in percent, indexed by task: training examples, runs, mean, std, median, best,
    best run, baseline.

    baseline: of the majority label, or of a constant score.
    A row of MRPC or STS-B is two training examples, one in each order. std is the sample standard deviation, NaN for
    one run.
    The best run of a task is the best on its first dev set, also in the lines of its other sets.
    """
    lines = [
        (
            line,
            f"{row['train_rows']:,}",
            value,
            row["run"],
            headline_scores(row, "baselines").get(line, np.nan),
            rank(row),
        )
        for row in runs
        for line, value in headline_scores(row).items()
    ]
    scores = pd.DataFrame(lines, columns=["task", "training examples", "best", "best run", "baseline", "rank"])
    by_task = scores.groupby("task", sort=False)
    table = by_task["best"].agg(runs="size", mean="mean", std="std", median="median").rename_axis(None)
    table.insert(0, "training examples", by_task["training examples"].first())
    return table.join(scores.loc[by_task["rank"].idxmax()].set_index("task")[["best", "best run", "baseline"]])


def table_of_runs(runs):
    """DataFrame with a line for each of the runs of a group: scores in percent, hyperparameters and time."""
    lines = []
    for row in runs:
        (metric, value), *others = named_scores(row["scores"]).items()
        lines.append(
            (
                task_of(row).title,
                row["run"],
                row["seed"],
                value,
                metric,
                _in_line(dict(others)),
                row["train_rows"],
                *map(row["settings"].get, ("lr", "bs", "epochs")),
                row.get("seconds"),
            )
        )
    return pd.DataFrame(
        lines,
        columns=[
            "task",
            "run",
            "seed",
            "score",
            "metric",
            "other metrics",
            "training examples",
            "lr",
            "bs",
            "epochs",
            "seconds",
        ],
    )


def scores_by_task(runs):
    """{title of a task: [percent of each run]} of the runs of a group."""
    return table_of_runs(runs).groupby("task", sort=False)["score"].agg(list).to_dict()


def losses_of_runs(runs):
    """{title of a task: [training rows of each run's metrics.jsonl]} of the runs whose log folder exists."""
    losses = {}
    for row in runs:
        path = path_of(row).with_suffix("") / "metrics.jsonl"
        if path.exists():
            losses.setdefault(task_of(row).title, []).append(read_metrics(path, "train"))
    return losses


def compare_with_published(runs):
    """DataFrame in percent: mean, std, median and best of a group by task, then the published results.

    The last column averages over the group's tasks, without WNLI, in every line.
    """
    summary, group = summarize(runs), runs[0]["group"]
    titles = [title for title in AVERAGED_TITLES if title in summary.index]
    found = summary.loc[titles, "mean std median best".split()].T.rename(lambda name: f"{group} ({name})")
    table = pd.concat([found, PUBLISHED[titles]])
    is_std = table.index.str.endswith(("(std)", "standard deviation"))
    return table.assign(**{f"mean of {len(titles)}": table.mean(axis=1).where(~is_std)})


def compare_checkpoints(runs, groups):
    """Series in percent: the mean of each group's best runs over the tasks that all groups have; its name lists them.

    Custom tasks count only if the groups have no task of GLUE's mean in common. UserError if there is no common task at
    all.
    For groups that differ only in the pretraining seed, this is electra_pytorch's comparison of 14 models
    (facts.md#published-results).
    """
    common = pd.DataFrame({group: summarize(runs.of(group))["best"] for group in groups}).dropna()
    own = dict.fromkeys(task_of(row).title for row in runs if row["task"] not in TASKS)
    for titles in (AVERAGED_TITLES, own):
        if found := [title for title in titles if title in common.index]:
            return common.loc[found].mean().rename(f"best runs, mean of {', '.join(found)}")
    raise UserError(f"The groups {', '.join(groups)} have no task in common (WNLI does not count). Finetune one task "
                    f"in all of them.")


def class_tables(row):
    """Texts about the classes of a run on its dev set: precision, recall and F1 in percent, and the confusion matrix if
    it is small.
    """
    split, texts = task_of(row).devs[0], []
    if found := row.get("classes", {}).get(split):
        table = pd.DataFrame(found, "precision recall f1 rows".split()).T * [100, 100, 100, 1]
        texts += ["", f"{task_of(row).title}, run {row['run']} (the best), by class on the dev "
                      "set", as_text(table.astype({"rows": int}))]
    if matrix := row.get("confusion", {}).get(split):
        labels = task_of(row).labels
        if len(labels) <= 12:
            texts += ["Rows with each label (lines) by prediction "
                      "(columns)", pd.DataFrame(matrix, labels, labels).to_string()]
    return texts


def as_text(table):
    """A table as text, with two decimals, and "-" for missing values."""
    return table.to_string(float_format=lambda x: f"{x:.2f}", na_rep="-")


def report(runs):
    """The tables of the runs of a group as text, with the published results of the tasks whose tables are not
    synthetic.
    """
    real, best, titles_by_metric = (
        without_synthetic(runs),
        best_runs(runs),
        table_of_runs(runs).groupby("metric", sort=False)["task"],
    )
    metrics = ", ".join(f"{metric} for {', '.join(titles)}" for metric, titles in titles_by_metric.unique().items())
    parts = [f"Scores of {runs[0]['group']} in percent ({metrics})", as_text(summarize(runs))]
    if best:
        parts += ["", f"Best runs, in {GLUE_FOLDER}/: {', '.join(path_of(row).name for row in best)}"]
    if strides := {
        task_of(row).title: row["settings"].get("window_stride") for row in runs if row["settings"].get("window_stride")
    }:
        parts.append("Texts that are too long are predicted as the mean of windows: " + ", ".join(
            f"{title} (every {stride} tokens)" for title, stride in strides.items()))
    parts += notices_of_runs(runs)
    parts += [text for row in best if task_of(row).reports_classes for text in class_tables(row)]
    if synthetic := synthetic_titles(runs):
        parts += [f"On the quickstart's synthetic tables: {', '.join(synthetic)}. These scores do not carry over to "
                  f"GLUE."]
    if any(task_of(row).title in AVERAGED_TITLES for row in real):
        parts += ["", "Comparison with published results", as_text(compare_with_published(real))]
    return "\n".join(parts)


def best_runs(runs):
    """The best run of each task of a group, without tasks that have no checkpoint."""
    return [*filter(None, (Runs(rows).best() for _, rows in itertools.groupby(runs, key=itemgetter("task"))))]


def synthetic_titles(runs):
    """The tasks with runs on the quickstart's tables."""
    return list(dict.fromkeys(task_of(row).title for row in runs if row["synthetic"]))


def without_synthetic(runs):
    """The runs on tables other than the quickstart's."""
    return Runs(row for row in runs if not row["synthetic"])


def report_checkpoints(runs, groups):
    """The comparison of several groups as text, with electra_pytorch's if it covers the same tasks."""
    averages = compare_checkpoints(runs, groups)
    weights = {row["settings"]["pretrained_weights"] for row in runs if row["group"] in groups}
    parts = [averages.name, as_text(averages),
             f"over {len(groups)} groups from {len(weights)} pretrained checkpoints: "
             f"{_in_line(averages.agg([*PUBLISHED_SEEDS]))}"]
    if averages.name.endswith(", ".join(AVERAGED_TITLES)):
        parts.append(f"electra_pytorch, 14 checkpoints: {_in_line(PUBLISHED_SEEDS)}")
    return "\n".join(parts)


def plot_group(runs):
    """Scores of a group's runs by task, with the majority baseline and, of tables that are not synthetic,
    ELECTRA-Small's.
    """
    published = PUBLISHED.loc["ELECTRA-Small-OWT (Google, median)"].drop(synthetic_titles(runs), errors="ignore")
    return plot_scores(
        {runs[0]["group"]: scores_by_task(runs)}, published.to_dict(), summarize(runs)["baseline"].dropna().to_dict()
    )


def save_result_plots(runs):
    """Write scores.png, losses.png, and runs.csv, a table of all runs, to checkpoints/glue/<group_name>/.

    And confusion_<task>.png of the best run of each custom task that is a classification.
    """
    folder = GLUE_FOLDER / runs[0]["group"]
    save_plot(plot_group(runs), folder / "scores.png")
    if losses := losses_of_runs(runs):
        save_plot(plot_finetuning_losses(losses), folder / "losses.png")
    for row in best_runs(runs):
        if matrix := task_of(row).reports_classes and row.get("confusion", {}).get("validation"):
            save_plot(plot_confusion(matrix, task_of(row).labels), folder / f"confusion_{row['task']}.png")
    table_of_runs(runs).to_csv(folder / "runs.csv", index=False)
