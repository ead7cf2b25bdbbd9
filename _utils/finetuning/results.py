"""Tables and plots of finished runs, and comparisons of groups."""
import itertools
from operator import attrgetter

import numpy as np
import pandas as pd

from _utils.errors import UserError
from _utils.files import write_text_atomically
from _utils.finetuning.runs import GLUE_FOLDER, Runs, setting_differences, task_of
from _utils.plots import plot_confusion, plot_finetuning_losses, plot_scores, save_plot
from _utils.progress import counted
from _utils.runs.log import read_metrics
from _utils.tasks.glue import PUBLISHED, PUBLISHED_METRICS, PUBLISHED_SEEDS

COMPARISON = GLUE_FOLDER / "comparison.png"


def headline_scores(record, kind="scores"):
    """{line of the summary: percent} of a run: a line for each of its dev sets, and one for the mean of MNLI's, which
    lmtuners reports.

    kind: of numbers, "scores", "baselines" or "words" (the latter of tasks with classes of texts only).
    """
    task = task_of(record)
    by_split = getattr(record, kind)
    scores = {task.title_of(split): 100 * next(iter(metrics.values())) for split, metrics in by_split.items()}
    if record.task == "mnli" and len(scores) > 1:
        scores["MNLI, both"] = sum(scores.values()) / len(scores)
    return scores


def named_scores(task, scores):
    """{"accuracy" or "matched accuracy": text} of a run: every metric on every dev set, in percent (errors in the unit
    of the labels), first the one that ranks the runs.   scores: {split: {metric: value}}.
    """
    named = {}
    for split, metrics in scores.items():
        for metric, value in metrics.items():
            text = f"{value:.4g}" if metric in task.scores.errors else f"{100 * value:.2f}"
            named[f"{split.removeprefix('validation').strip('_')} {metric}".strip()] = text
    return named


def format_scores(record):
    """The scores of a run in percent, in one line, each with those of the baselines."""
    task, parts = task_of(record), []
    baselines = {task.scores.baseline: named_scores(task, record.baselines), "TF-IDF": named_scores(task, record.words)}
    for name, text in named_scores(task, record.scores).items():
        others = [f"{kind} {texts[name]}" for kind, texts in baselines.items() if name in texts]
        parts.append(f"{name} {text}" + (f" ({', '.join(others)})" if others else ""))
    return ", ".join(parts)


def warnings_of(record):
    """The texts of the warnings about the predictions of a run."""
    return [f"{split}: {text}" for split, text in record.notices.items() if text]


def print_tables(tables, settings_by_task=None, are_official=True):
    """Print for each task the rows of its tables, the epochs of a run, and below them warnings.

    tables: {task: TaskData}.   settings_by_task: {task: settings} of the tasks to finetune.
    are_official: an incomplete table of GLUE reads '10,471 of 392,702'.
    """
    for name, data in tables.items():
        parts = []
        for split, rows in data.splits.items():
            n_official = data.task.official_rows.get(split, 0) if are_official else 0
            missing = f" of {n_official:,}" if len(rows) < n_official else ""
            parts.append(f"{split} {len(rows):,}{missing}")
        text = ", ".join(parts)
        if settings_by_task:
            settings = settings_by_task[name]
            text += f"; {counted(settings.epochs, 'epoch')} with batch size {settings.bs}"
        print(f"{data.task.title:6} {text}", *data.missing.values(), *data.messages, sep="\n       ")


def line_about(record, status):
    """The scores of a finished run and warnings about its predictions, in one line. status: how it was trained."""
    task = task_of(record)
    start = [f"from MNLI run {record.mnli_run}"] if record.mnli_run is not None else []
    status = ", ".join([status, *start, *dict.fromkeys(record.remarks.values())])
    scores = f"{task.title}, run {record.run}, seed {record.seed}: {format_scores(record)} ({status})"
    return "; ".join([scores, *(f"warning, {warning}" for warning in warnings_of(record))])


def _in_line(numbers):
    return ", ".join(f"{name} {value:.2f}" for name, value in numbers.items())


def summarize(runs):
    """DataFrame of the runs of a group in percent, indexed by task: training examples, runs, mean, std, median, best,
    best run, baseline.

    baseline: of the majority label, or of a constant score.   TF-IDF: of logistic regression on the words, if a task
    has it.
    A row of MRPC or STS-B is two training examples, one in each order. std is the sample standard deviation, NaN for
    one run.
    The best run of a task is the best on its first dev set, also in the lines of its other sets.
    """
    lines = []
    for record in runs:
        baselines, words = headline_scores(record, "baselines"), headline_scores(record, "words")
        for line, value in headline_scores(record).items():
            lines.append({
                "task": line,
                "training examples": f"{record.train_rows:,}",
                "best": value,
                "best run": record.run,
                "baseline": baselines.get(line, np.nan),
                "TF-IDF": words.get(line, np.nan),
                "rank": record.rank,
            })
    scores = pd.DataFrame(lines)
    by_task = scores.groupby("task", sort=False)
    table = by_task["best"].agg(runs="size", mean="mean", std="std", median="median").rename_axis(None)
    table.insert(0, "training examples", by_task["training examples"].first())
    best = scores.loc[by_task["rank"].idxmax()].set_index("task")[["best", "best run", "baseline", "TF-IDF"]]
    return table.join(best.drop(columns="TF-IDF") if best["TF-IDF"].isna().all() else best)


def table_of_runs(runs):
    """DataFrame with a line for each of the runs of a group: scores in percent, hyperparameters and time."""
    lines = []
    for record in runs:
        task = task_of(record)
        (metric, _), *others = named_scores(task, record.scores).items()
        lines.append({
            "task": task.title_of(next(iter(record.scores))),
            "run": record.run,
            "seed": record.seed,
            "score": record.score,
            "metric": metric,
            "other metrics": ", ".join(f"{name} {text}" for name, text in others),
            "training examples": record.train_rows,
            "lr": record.settings.lr,
            "bs": record.settings.bs,
            "epochs": record.settings.epochs,
            "seconds": record.seconds,
        })
    return pd.DataFrame(lines)


def scores_by_task(runs):
    """{line of the summary for the first dev set of a task: [percent of each run]} of the runs of a group."""
    return table_of_runs(runs).groupby("task", sort=False)["score"].agg(list).to_dict()


def losses_of_runs(runs):
    """{title of a task: [training rows of each run's metrics.jsonl]} of the runs whose log folder exists."""
    losses = {}
    for record in runs:
        path = record.path.with_suffix("") / "metrics.jsonl"
        if path.exists():
            losses.setdefault(task_of(record).title, []).append(read_metrics(path, "train"))
    return losses


def published_titles(runs):
    """Titles of the tasks with published results by the metric that ranks these runs."""
    metrics = {}
    for record in runs:
        of_first_set = next(iter(record.scores.values()))
        metrics.setdefault(task_of(record).title, set()).add(next(iter(of_first_set)))
    return [title for title, metric in PUBLISHED_METRICS.items() if metrics.get(title) == {metric}]


def compare_with_published(runs):
    """DataFrame in percent: mean, std, median and best of a group by task, then the published results.

    The last column averages over the group's tasks, without WNLI, in every line.
    """
    titles, group = published_titles(runs), runs[0].group
    of_group = summarize(runs).loc[titles, "mean std median best".split()].T.rename(lambda name: f"{group} ({name})")
    table = pd.concat([of_group, PUBLISHED[titles]])
    is_std = table.index.str.endswith(("(std)", "standard deviation"))
    return table.assign(**{f"mean of {len(titles)}": table.mean(axis=1).where(~is_std)})


def class_table(record):
    """Lines about the classes of a run on its dev set: precision, recall and F1 in percent; [] if it has none."""
    classes = record.classes.get(task_of(record).devs[0])
    if not classes:
        return []
    table = pd.DataFrame(classes, "precision recall f1 rows".split()).T * [100, 100, 100, 1]
    return ["", f"{task_of(record).title}, run {record.run} (the best), by class on the dev set",
            as_text(table.astype({"rows": int}))]


def as_text(table):
    """A table as text, with two decimals, and "-" for missing values."""
    return table.to_string(float_format=lambda x: f"{x:.2f}", na_rep="-")


def report(runs):
    """The tables of the runs of a group as text, with the published results of the tasks whose tables are not
    synthetic.
    """
    real, best = without_synthetic(runs), best_runs(runs)
    titles_by_metric = table_of_runs(runs).groupby("metric", sort=False)["task"]
    metrics = ", ".join(f"{metric} for {', '.join(titles)}" for metric, titles in titles_by_metric.unique().items())
    parts = [f"Scores of {runs[0].group} in percent ({metrics})", as_text(summarize(runs))]
    if saved := best_runs(runs.with_checkpoints()):
        parts += ["", f"Best runs, in {GLUE_FOLDER}/: {', '.join(record.path.name for record in saved)}"]
    parts += [f"{record.task}, run {record.run} (the best): {remark}" for record in best
              for remark in dict.fromkeys(record.remarks.values())]
    parts += [f"warning: {task_of(record).title}, run {record.run}, {warning}"
              for record in runs for warning in warnings_of(record)]
    parts += [text for record in best for text in class_table(record)]
    if synthetic := dict.fromkeys(task_of(record).title for record in runs if record.synthetic):
        parts.append(f"On the quickstart's synthetic tables: {', '.join(synthetic)}. These scores do not carry over to "
                     "GLUE.")
    if published_titles(real):
        parts += ["", "Comparison with published results", as_text(compare_with_published(real))]
    return "\n".join(parts)


def best_runs(runs):
    """The best run of each task of a group."""
    return [max(rows, key=attrgetter("rank")) for _, rows in itertools.groupby(runs, key=attrgetter("task"))]


def without_synthetic(runs):
    """The runs on tables other than the quickstart's."""
    return Runs(record for record in runs if not record.synthetic)


def report_checkpoints(runs, groups):
    """The comparison of several groups as text: the mean in percent of the best runs of each over the tasks of GLUE,
    without WNLI, that all groups have. UserError if there are none.

    For groups that differ only in the pretraining seed, this is electra_pytorch's comparison of 14 models
    (facts.md#published-results), which is printed, too, if it covers the same tasks.
    """
    summaries = pd.concat({group: summarize(runs.of(group)) for group in groups}, axis=1)
    common = summaries.xs("best", axis=1, level=1).dropna()
    shared = [title for title in PUBLISHED if title in common.index]
    if not shared:
        tasks = [f"{group} has {', '.join(scores_by_task(runs.of(group)))}" for group in groups]
        raise UserError(f"The groups have no task of GLUE in common (WNLI does not count): {'; '.join(tasks)}. "
                        "Finetune a task of GLUE in all of them.")
    averages, of_groups = common.loc[shared].mean(), [record for record in runs if record.group in groups]
    compared = [(record.group, record) for record in of_groups if {*headline_scores(record)} & {*shared}]
    n_runs = summaries.loc[shared].xs("runs", axis=1, level=1).astype(int)
    weights = {record.settings.pretrained_weights for record in of_groups}
    parts = [f"best runs, mean of {', '.join(shared)}", as_text(averages),
             f"over {len(groups)} groups from {len(weights)} pretrained checkpoints: "
             f"{_in_line(averages.agg([*PUBLISHED_SEEDS]))}"]
    parts += setting_differences(compared)
    if n_runs.stack().nunique() > 1:
        parts += ["The best runs are of different numbers of runs:", n_runs.to_string()]
    if shared == [*PUBLISHED] == published_titles(of_groups):
        parts.append(f"electra_pytorch, 14 checkpoints: {_in_line(PUBLISHED_SEEDS)}")
    return "\n".join(parts)


def save_result_plots(runs):
    """Write scores.png, losses.png, and runs.csv, a table of all runs, to checkpoints/glue/<group_name>/.

    scores.png also has the majority baseline and, of tables that are not synthetic, ELECTRA-Small's scores.

    And confusion_<task>.png of the best run of each custom task that is a classification.
    """
    folder = GLUE_FOLDER / runs[0].group
    published = PUBLISHED.loc["ELECTRA-Small-OWT (Google, median)", published_titles(without_synthetic(runs))]
    majority = summarize(runs)["baseline"].dropna()
    scores = plot_scores({runs[0].group: scores_by_task(runs)}, published.to_dict(), majority.to_dict())
    save_plot(scores, folder / "scores.png")
    if losses := losses_of_runs(runs):
        save_plot(plot_finetuning_losses(losses), folder / "losses.png")
    for record in best_runs(runs):
        if matrix := record.confusion.get("validation"):
            save_plot(plot_confusion(matrix, task_of(record).labels), folder / f"confusion_{record.task}.png")
    write_text_atomically(folder / "runs.csv", table_of_runs(runs).to_csv(index=False))
