"""Compares pretrained systems by their scores after finetuning, against the floating point operations of their pretraining.

    python -m _utils compare_pretraining SYSTEM ... [--tasks cola,stsb] [--baseline RUN] [--plot FILE.png]

SYSTEM is a base_run_name, which may have been pretrained with several seeds. Of each run, all checkpoints count whose finetuning group
has its default name (RUN_25.0%, ...) and finished runs of all tasks. The score of a checkpoint is the mean over the tasks (--tasks;
default: all that these checkpoints have in common) of the mean over finetuning seeds; settings of finetuning and numbers of runs that
differ are printed. The unit of the comparison is the pretraining seed: errors are computed from the scores of different seeds only.
--baseline: a run to show as a dotted line, for example untrained_11081.
"""
import argparse
import json
import re
from collections import Counter, defaultdict
from dataclasses import replace

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.ticker import LogFormatterSciNotation, LogLocator, NullFormatter

from _utils.config import FRESH_WEIGHTS
from _utils.errors import PlainError
from _utils.glue.runs import GLUE_FOLDER, SCORES, Runs, score
from _utils.glue.tasks import task_of
from _utils.networks import PARTS
from _utils.plots import GREY, save_plot
from _utils.recipes import RECIPES, flops_per_token, network_from
from _utils.runs.checkpoints import check_output, find_checkpoint, load_pretraining_checkpoint

PLOT = GLUE_FOLDER / "compare_pretraining.png"
PRINTED = {"percent": "% of steps"}
_GROUP = re.compile(r"(?P<run>(?P<system>.+)_(?P<seed>\d+))_(?P<percent>[\d.]+)%")


def checkpoint_scores(rows, aggregate="mean"):
    """DataFrame of finished runs: a row per checkpoint (system, seed, run, percent of the training), a column per task.

    rows: of the table of runs.   Values are means over finetuning seeds, in percent, in the first metric on the first dev set;
    with aggregate="count" the numbers of finetuning seeds.
    """
    found = [{**match.groupdict(), "task": task_of(row).title, "score": score(row)}
             for row in rows if (match := _GROUP.fullmatch(row["group"]))]
    if not found:
        raise PlainError(f"No finished run in {SCORES} belongs to a checkpoint such as NAME_11081_25.0%. Finetune the checkpoints of the "
                         "pretraining runs first, without group_name.")
    runs = pd.DataFrame(found).astype({"seed": int, "percent": float})
    return runs.pivot_table(index=["system", "seed", "run", "percent"], columns="task", values="score", aggfunc=aggregate,
                            sort=False).sort_index()


def setting_differences(rows, checkpoints):
    """{(task title, setting): {value: {system, ...}}} of the settings of finetuning that are not the same for all checkpoints.

    rows: of the table of runs.   checkpoints: as returned by `of_systems`. Values are JSON.   The pretrained weights are left out.
    """
    used = defaultdict(lambda: defaultdict(set))
    known = set(zip(checkpoints.index.get_level_values("run"), checkpoints.index.get_level_values("percent")))
    for row in rows:
        match, title = _GROUP.fullmatch(row["group"]), task_of(row).title
        if match and (match["run"], float(match["percent"])) in known and title in checkpoints.columns:
            for key, value in row["settings"].items():
                if key != "pretrained_weights":
                    own_group = key == "start_from_mnli" and value == row["group"]
                    used[title, key][json.dumps(True if own_group else value)].add(match["system"])
    return {key: dict(values) for key, values in used.items() if len(values) > 1}


def checkpoint_flops(checkpoint):
    """Floating point operations spent on a loaded checkpoint of pretrain.py.

    PlainError if its networks are of a family without a count, or if it continued the training of others.
    """
    config = checkpoint["config"]
    name = f"{config['base_run_name']}_{config['seed']}"
    if config["initial_weights"] not in FRESH_WEIGHTS:
        raise PlainError(f"The run {name} started from {config['initial_weights']!r}, whose floating point operations are not known. "
                         "Compare runs with fresh initial_weights.")
    networks = {part: network_from(checkpoint.get(f"{part}_config")) for part in PARTS}
    if networks["generator"] is None or (networks["discriminator"] is None) != (config["objective"] == "mlm"):
        raise PlainError(f"The run {name} has networks whose floating point operations cannot be counted. Compare runs with ELECTRA, BERT, "
                         "ALBERT or RoFormer.")
    tokens = checkpoint["step"] * config["bs"] * config["max_length"]
    return tokens * flops_per_token(replace(RECIPES[config["size"]], **networks), checkpoint["generator_config"]["vocab_size"],
                                    config["max_length"], config["mask_prob"])


def compare(scores, systems):
    """DataFrame by percent of the training: mean and standard error of each system, and of the first minus each other one.

    scores: Series of the scores of checkpoints (system, seed, run, percent).   Standard errors are
    over pretraining seeds, NaN for a single seed.
    """
    by_system = scores.groupby(["system", "percent"])
    mean, error = by_system.mean().unstack("system")[systems], by_system.sem().unstack("system")[systems]
    table = {}
    for name in systems:
        table[name], table[f"{name}, s.e."] = mean[name], error[name]
    for name in systems[1:]:
        table[f"{systems[0]} - {name}"] = mean[systems[0]] - mean[name]
        table[f"{systems[0]} - {name}, s.e."] = (error[systems[0]] ** 2 + error[name] ** 2) ** .5
    return pd.DataFrame(table)


def plot_comparison(scores, flops, systems, tasks, baseline=None):
    """Score against floating point operations: a dot per checkpoint of each pretraining seed, a line through the means.

    scores: as for `compare`.   flops: a Series with the same index.   tasks: titles.   baseline: (name, score) of a dotted line, or None.
    """
    figure, axis = plt.subplots(figsize=(7, 3.6), layout="constrained")
    for i, name in enumerate(systems):
        color = plt.get_cmap("tab10")(i % 10)
        axis.plot(flops[name], scores[name], "o", ms=5, color=color, alpha=.7)
        axis.plot(flops[name].groupby("percent").mean(), scores[name].groupby("percent").mean(), color=color, label=name)
    if baseline:
        axis.axhline(baseline[1], color=GREY, ls=":", label=baseline[0])
    axis.set(xscale="log", xlabel="floating point operations of pretraining", ylabel="mean dev score, %", title=", ".join(tasks))
    axis.xaxis.set(major_locator=LogLocator(subs=(1, 2, 5)), major_formatter=LogFormatterSciNotation(minor_thresholds=(9, 9)),
                   minor_formatter=NullFormatter())
    axis.legend(frameon=False)
    return figure


def with_tasks(table, names):
    """The columns of the tasks with these names or titles; None: those that all checkpoints have. PlainError if there are none."""
    if names is None:
        table = table.dropna(axis=1)
        if not len(table.columns):
            raise PlainError(f"The checkpoints of {', '.join(table.index.unique('system'))} have no task in common. Finetune them on the "
                             "same tasks.")
        return table
    titles = {_normalized(title): title for title in table.columns}
    if unknown := [name for name in names if _normalized(name) not in titles]:
        raise PlainError(f"No checkpoint was finetuned on {unknown[0]!r}. Choose from {', '.join(titles)}.")
    return table[[titles[_normalized(name)] for name in names]]


def _normalized(task):
    return task.lower().replace("-", "")


def of_systems(table, systems, tasks=None):
    """The checkpoints of some systems that have all tasks, see `with_tasks`. PlainError for a system without any."""
    if repeated := [name for name, times in Counter(systems).items() if times > 1]:
        raise PlainError(f"{repeated[0]!r} is given twice. Name each system once.")
    finetuned = table.index.unique("system")
    table = with_tasks(table[table.index.get_level_values("system").isin(systems)].dropna(axis=1, how="all"), tasks).dropna()
    known = table.index.unique("system")
    if unknown := [name for name in systems if name not in finetuned]:
        raise PlainError(f"No checkpoint of {unknown[0]!r} was finetuned. Finetuned: {', '.join(finetuned) or 'none'}.")
    if missing := [name for name in systems if name not in known]:
        raise PlainError(f"No checkpoint of {missing[0]!r} was finetuned on all of {', '.join(table.columns)}. Complete: "
                         f"{', '.join(known) or 'none'}.")
    return table


def baseline_score(table, run):
    """(name, score) of the last checkpoint of a run such as untrained_11081. PlainError if it has none with all columns."""
    found = table[table.index.get_level_values("run") == run].dropna().mean(axis=1)
    if not len(found):
        raise PlainError(f"Invalid value for --baseline: {run!r} has no checkpoint that was finetuned on all of "
                         f"{', '.join(table.columns)}. Pass the name of a run with its seed, such as untrained_11081.")
    return run, found.iloc[-1]


def main(arguments=None):
    parser = argparse.ArgumentParser(prog="python -m _utils compare_pretraining", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("systems", nargs="+")
    parser.add_argument("--tasks", type=lambda text: text.split(","))
    parser.add_argument("--baseline")
    parser.add_argument("--plot", default=str(PLOT))
    args = parser.parse_args(arguments)
    check_output("--plot", args.plot, ".png")
    rows = Runs()
    table = checkpoint_scores(rows)
    checkpoints = of_systems(table, args.systems, args.tasks)
    means, baseline = checkpoints.mean(axis=1), args.baseline and baseline_score(table[checkpoints.columns], args.baseline)
    names = [f"{run}_{percent}%.pth" for _, _, run, percent in checkpoints.index]
    flops = pd.Series([checkpoint_flops(load_pretraining_checkpoint(find_checkpoint(name))) for name in names], means.index)
    print(checkpoints.assign(mean=means).droplevel("run").rename_axis(index=PRINTED).to_string(float_format="{:.1f}".format), end="\n\n")
    for (task, key), values in setting_differences(rows, checkpoints).items():
        print(f"{task} was finetuned with", " and ".join(f"{key}={value} ({', '.join(sorted(names))})" for value, names in values.items()))
    counts = checkpoint_scores(rows, "count").loc[checkpoints.index, checkpoints.columns].astype(int)
    if counts.stack().nunique() > 1:
        print("The scores are means of different numbers of finetuning runs:")
        print(counts.droplevel("run").rename_axis(index=PRINTED).to_string(), end="\n\n")
    print(compare(means, args.systems).rename_axis(index=PRINTED).to_string(float_format="{:.1f}".format, na_rep=""))
    save_plot(plot_comparison(means, flops, args.systems, checkpoints.columns, baseline), args.plot)
    print(f"\nPlot: {args.plot}")
