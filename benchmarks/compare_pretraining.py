"""Compare pretrained systems by their scores after finetuning: `python -m _utils compare_pretraining`."""
from types import SimpleNamespace

import pandas as pd

from _utils.errors import UserError
from _utils.finetuning.runs import SCORES, Runs, setting_differences
from _utils.names import find_checkpoint
from _utils.networks.pretrained import config_of, load_pretrained, parts_of
from _utils.objectives.objective_keys import selected
from _utils.objectives.registry import OBJECTIVES
from _utils.plots import GREY, new_axis, save_plot
from _utils.recipes import FRESH_WEIGHTS, Network, recipe_of
from _utils.runs.checkpoints import load_pretraining_checkpoint
from _utils.runs.log import MILESTONE
from benchmarks.flops import flops_per_token, recipe_of_checkpoint
from benchmarks.report import check_output

_CHECKPOINT = ["system", "seed", "percent"]


def compare_pretraining(systems, *, tasks, baseline, plot):
    """Compare pretrained systems by their scores after finetuning. Arguments as in `_utils/__main__.py`."""
    check_output("--plot", plot, ".png")
    runs = finetuning_runs(Runs())
    table = checkpoint_scores(runs)
    checkpoints = of_systems(table, systems, tasks)
    is_baseline = [f"{system}_{seed}" == baseline for system, seed, _ in table.index]
    means, of_baseline = checkpoints.mean(axis=1), table.loc[is_baseline, checkpoints.columns].dropna().mean(axis=1)
    if baseline and of_baseline.empty:
        raise UserError(f"Invalid value for --baseline: {baseline!r} has no checkpoint that was finetuned on all of "
                        f"{', '.join(checkpoints)}. Pass the name of a run with its seed, such as untrained_11081.")
    files = {(run.system, run.seed, run.percent): f"{run.row.group}.pth" for run in runs.itertuples()}
    check_weights(runs, {files[name] for name in means.index})
    flops = pd.Series([checkpoint_flops(find_checkpoint(files[name])) for name in means.index], means.index)
    _print_table(checkpoints.assign(mean=means))
    print_setting_differences(runs, checkpoints)
    counts = checkpoint_scores(runs, "count").loc[checkpoints.index, checkpoints.columns]
    if counts.stack().nunique() > 1:
        print("The scores are means of different numbers of finetuning runs:")
        _print_table(counts.astype(int))
    _print_table(compare(means, systems))
    save_plot(plot_comparison(means, flops, systems, checkpoints.columns, of_baseline), plot)
    print(f"Plot: {plot}")


def check_weights(runs, files):
    """UserError if other weights than those of a file were finetuned: a later pretraining run has replaced them.

    runs: from `finetuning_runs`.   files: names of checkpoints.
    """
    digests = {file: load_pretrained(file).digest for file in files}
    for row in runs["row"]:
        file = f"{row.group}.pth"
        if digests.get(file, row.settings.pretrained_weights) != row.settings.pretrained_weights:
            raise UserError(f"Other weights than those in {file!r} were finetuned in the group {row.group!r}: a later "
                            "run of this name has replaced them. Restore them from checkpoints/pretrain/aside/, or "
                            "pretrain under another base_run_name and finetune that.")


def _print_table(table):
    print(
        table.rename_axis(index={"percent": "% of steps"}).to_string(float_format="{:.1f}".format, na_rep=""),
        end="\n\n",
    )


def finetuning_runs(rows):
    """DataFrame of the finished runs that belong to a checkpoint.

    Columns: system, seed and percent of its training, task, score, row.
    rows: of the table of runs. Scores are in percent, in the first metric on the first dev set.
    """
    found = [{**{key: match[key] for key in _CHECKPOINT}, "task": row.task, "score": row.score, "row": row}
             for row in rows if (match := MILESTONE.fullmatch(row.group)) and match["percent"]]
    if not found:
        raise UserError(f"No finished run in {SCORES} belongs to a checkpoint such as NAME_11081_25.0%. Finetune the "
                        "checkpoints of the pretraining runs first, without group_name.")
    return pd.DataFrame(found).astype({"seed": int, "percent": float})


def checkpoint_scores(runs, aggregate="mean"):
    """DataFrame of `finetuning_runs` with a row per checkpoint and a column per task.

    aggregate: over finetuning seeds.
    """
    return runs.pivot_table(
        index=_CHECKPOINT, columns="task", values="score", aggfunc=aggregate, sort=False
    ).sort_index()


def of_systems(table, systems, tasks):
    """The checkpoints of some systems that have all tasks (names, with commas; None: those that all checkpoints have).

    table: from `checkpoint_scores`. UserError for a system without checkpoints on these tasks.
    """
    found = table[table.index.isin(systems, "system")].dropna(axis=1, how="all")
    found = found.reindex(columns=tasks.split(",")).dropna() if tasks else found.dropna(axis=1)
    for name in systems:
        if found.empty or name not in found.index.unique("system"):
            raise UserError(f"No checkpoint of {name!r} was finetuned on "
                            f"{' and '.join(found) or 'the tasks of the others'}. Finetune all systems on the same "
                            f"tasks. Finetuned: {', '.join(table.index.unique('system'))}, on {', '.join(table)}.")
    return found


def print_setting_differences(runs, checkpoints):
    """Print the settings of finetuning that are not the same for all checkpoints, except the pretrained weights.

    runs: from `finetuning_runs`.   checkpoints: from `of_systems`.
    """
    used = runs[runs.set_index(_CHECKPOINT).index.isin(checkpoints.index) & runs["task"].isin(checkpoints)]
    for line in setting_differences(zip(used["system"], used["row"])):
        print(line)


def checkpoint_flops(path):
    """Floating point operations spent on a checkpoint of pretrain.py.

    With two-stage training, those of the first stage, too.
    UserError if it continued the training of other networks.
    """
    checkpoint = load_pretraining_checkpoint(path)
    config = SimpleNamespace(**checkpoint["config"])
    parts = parts_of(checkpoint)
    objective = selected(checkpoint["config"])
    first_stage = OBJECTIVES[objective].first_stage
    if config.initial_weights not in FRESH_WEIGHTS and not first_stage:
        raise UserError(f"The floating point operations of {str(path)!r} are not known: its initial_weights are "
                        f"{config.initial_weights!r}. Compare runs with fresh initial_weights.")
    networks = {part: network_from(config_of(checkpoint, part, path)) for part in parts}
    if "towers_config" in checkpoint:  # the generator has two towers
        networks["generator"] = network_from(config_of(checkpoint, "towers", path))
    recipe = recipe_of_checkpoint(recipe_of(config), objective, networks)
    vocab_size = checkpoint[f"{parts[-1]}_config"]["vocab_size"]
    per_token = lambda name: flops_per_token(recipe, vocab_size, config.max_length, config.mask_prob, name)
    flops = checkpoint["step"] * per_token(objective)
    if first_stage:
        flops += config.two_stage_steps * per_token("mlm")
    return config.bs * config.max_length * flops


def network_from(config):
    """The Network of a transformers configuration of any family."""
    return Network(
        family=config.model_type,
        layers=config.num_hidden_layers,
        hidden=config.hidden_size,
        heads=config.num_attention_heads,
        intermediate=config.hidden_dim if config.model_type == "distilbert" else config.intermediate_size,
        embedding=getattr(config, "embedding_size", config.hidden_size),
    )


def compare(scores, systems):
    """Mean and standard error (s.e.) of each system, and of the first minus each other one.

    A DataFrame by percent of the training.
    scores: Series of the scores of checkpoints (system, seed, percent).   Standard errors are over pretraining seeds,
    NaN for a single seed.
    """
    by_system = scores.groupby(["percent", "system"])
    mean, error = by_system.mean().unstack(), by_system.sem().unstack()
    first, *others = systems
    for name in others:
        mean[f"{first} - {name}"] = mean[first] - mean[name]
        error[f"{first} - {name}"] = (error[first] ** 2 + error[name] ** 2) ** .5
    return pd.concat({"mean": mean, "s.e.": error}, axis=1)


def plot_comparison(scores, flops, systems, tasks, baseline):
    """Score against floating point operations: a dot per checkpoint of each pretraining seed, a line through the means.

    scores: as for `compare`.   flops: a Series with the same index.   tasks: names.   baseline: scores of a run, for a
    dotted line.
    """
    figure, axis = new_axis("floating point operations of "
                            "pretraining", "mean dev score, %", xscale="log", title=", ".join(tasks))
    checkpoints = pd.DataFrame({"flops": flops, "score": scores})
    for i, name in enumerate(systems):
        points = checkpoints.loc[name]
        axis.plot(points["flops"], points["score"], "o", ms=5, color=f"C{i}", alpha=.7)
        axis.plot(*points.groupby("percent").mean().to_numpy().T, color=f"C{i}", label=name)
    for (system, seed, _), of_baseline in baseline[-1:].items():  # the last checkpoint
        axis.axhline(of_baseline, color=GREY, ls=":", label=f"{system}_{seed}")
    axis.legend(frameon=False)
    return figure
