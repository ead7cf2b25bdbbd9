"""Most figures of README and docs/, from the raw numbers in results/: `python -m benchmarks.figures`."""
from itertools import count

import pandas as pd
from matplotlib import pyplot as plt

import _utils  # noqa: F401  first, because it sets how PyTorch's threads wait
from _utils.plots import BLUE, GREEN, GREY, ORANGE
from _utils.recipes import RECIPES
from _utils.runs import read_metrics
from _utils.tasks.glue import TASKS
from benchmarks.flops import flops_per_token
from benchmarks.tables import (
    ELECTRA,
    FIRST_SEEDS,
    MINI,
    MLM,
    OBJECTIVES,
    OTHER_RATE,
    PRIMARY,
    REPO,
    RESULTS,
    SEEDS,
    SMALL,
    finetuned,
    means,
    million_tokens,
)

UNTRAINED = "untrained_11081_100.0%"
TITLES = {ELECTRA: "ELECTRA", MLM: "masked language model", OTHER_RATE: "masked language model, half the learning rate"}
COLORS = {ELECTRA: BLUE, MLM: ORANGE, OTHER_RATE: "#bb5500"}
# {metric: (million tokens, value)} of Google's ELECTRA-Small, from the figure in issue 3 of google-research/electra.
GOOGLE_SMALL = {"gen_loss": [(67, 6.2), (136, 5.6), (203, 4.6)], "disc_auc": [(203, .88)]}


def plot_method():
    """The method on the paper's example (figure 2)."""
    figure, axis = plt.subplots(figsize=(11, 2.6), layout="constrained")
    axis.set(xlim=(0, 14), ylim=(-.2, 5.2))
    axis.axis("off")
    columns = {.8: "the chef cooked the meal", 3: "[MASK] chef [MASK] the meal", 7.8: "the chef ate the meal",
               12.6: "original original replaced original original"}
    changed = {(3, 0), (3, 2), (7.8, 0), (7.8, 2), (12.6, 2)}
    for x, tokens in columns.items():
        for i, token in enumerate(tokens.split()):
            color = "#cc5500" if (x, i) in changed else "black"
            axis.text(x, 4.4 - i, token, ha="center", va="center", family="monospace", color=color)
    boxes = {4.2: ("Generator", "a small masked\nlanguage model"),
             9: ("Discriminator", "the network that\nis finetuned")}
    for x, (title, text) in boxes.items():
        axis.add_patch(plt.Rectangle((x, .1), 2.3, 4.7, fc="#dde8f5", ec="#4477aa"))
        axis.text(x + 1.15, 3, title, ha="center", weight="bold")
        axis.text(x + 1.15, 1.6, text, ha="center", size=9)
    arrows = (1.4, 2.3, "mask"), (3.8, 4.2, ""), (6.5, 7.2, "sample"), (8.3, 9, ""), (11.3, 11.8, "")
    for start, end, label in arrows:
        axis.annotate("", (end, 2.4), (start, 2.4), arrowprops={"arrowstyle": "->"})
        axis.text((start + end) / 2, 2.7, label, ha="center", size=9)
    return figure


def plot_transitions(tasks=("stsb", "qnli")):
    """Dev score of the first finetuning seed against the operations of pretraining.

    A line for each pretraining seed.
    """
    figure, axes = plt.subplots(1, len(tasks), figsize=(9, 3.2), layout="constrained")
    scores = finetuned(MINI)["dev"]
    recipe = RECIPES["mini"]
    flops = flops_per_token(recipe, 8192) * recipe.bs * recipe.max_length * recipe.steps  # equal for both systems
    for axis, task in zip(axes, tasks):
        for system, color in ((ELECTRA, BLUE), (MLM, ORANGE)):
            for seed, marker in zip(FIRST_SEEDS, "os^"):
                line = [scores[f"{system}_{seed}_{percent}%", task, 0] for percent in (6.25, 12.5, 25.0, 50.0, 100.0)]
                axis.plot(
                    [flops * share for share in (1 / 16, 1 / 8, 1 / 4, 1 / 2, 1)],
                    line,
                    marker=marker,
                    ms=4,
                    lw=1,
                    color=color,
                    label=f"{TITLES[system]}, seed {seed}",
                )
        axis.axhline(means(MINI, UNTRAINED)[task], color=GREY, ls=":", label="not pretrained")
        axis.set(title=TASKS[task].title, xlabel="floating point operations of pretraining", xscale="log")
    axes[0].set_ylabel("dev score, %")
    figure.legend(*axes[0].get_legend_handles_labels(), frameon=False, fontsize=8, loc="outside right")
    return figure


def plot_runs():
    """Dev scores of all finetuning runs of the last checkpoints as dots.

    A panel for each task, a column for each pretrained network.
    """
    figure, axes = plt.subplots(1, len(PRIMARY), figsize=(11, 3), layout="constrained")
    scores = finetuned(MINI)["dev"]
    for axis, task in zip(axes, PRIMARY):
        ticks = {}  # {position: seed}, with a gap between two systems
        for system in TITLES:
            start = max(ticks, default=-2) + 2
            for seed, x in zip(SEEDS, count(start)):
                ticks[x] = seed
                runs = scores.loc[f"{system}_{seed}_100.0%", task]
                axis.plot([x] * len(runs), runs, "o", ms=4, alpha=.6, color=COLORS[system],
                          label=TITLES[system] if x == start else None)
        axis.axhline(means(MINI, UNTRAINED)[task], color=GREY, ls=":", label="not pretrained")
        axis.set(title=TASKS[task].title, xlabel="pretraining seed", xticks=[*ticks], xticklabels=[*ticks.values()])
        axis.tick_params(axis="x", rotation=90, length=0, labelsize=7)
    axes[0].set_ylabel("dev score, %")
    figure.legend(*axes[0].get_legend_handles_labels(), frameon=False, fontsize=8, loc="outside lower center", ncols=4)
    return figure


def plot_small():
    """Generator loss and AUC of ELECTRA-Small's training, beside points read off Google's figure.

    docs/results.md shows it.
    """
    figure, axes = plt.subplots(1, 2, figsize=(9, 3.2), layout="constrained")
    curves = {"training, with "
              "dropout": ("metrics", "train", "-", BLUE), "the same on a CPU": ("cpu_metrics", "train", "--", ORANGE),
              "held-out text": ("metrics", "held_out", "o", GREEN)}
    for axis, (metric, title) in zip(axes, {"gen_loss": "generator: loss", "disc_auc": "discriminator: AUC"}.items()):
        for label, (file, split, style, color) in curves.items():
            rows = pd.DataFrame(read_metrics(SMALL / f"{file}.jsonl", split))
            axis.plot(
                million_tokens(rows["step"], RECIPES["small"]),
                rows[metric],
                style,
                ms=4,
                lw=1,
                color=color,
                label=label,
            )
        axis.plot(*zip(*GOOGLE_SMALL[metric]), "x", color="black", label="Google, on OpenWebText")
        axis.set(title=title, xlabel="million tokens")
    axes[0].legend(frameon=False, fontsize=8)
    return figure


def plot_objectives():
    """Curves of size=tiny on documentation with each objective: losses and AUC, means of ten lines of the log."""
    figure, axes = plt.subplots(1, 3, figsize=(11, 3.2), layout="constrained")
    curves = {name: pd.DataFrame(read_metrics(RESULTS / "objectives" / name / "metrics.jsonl", "train"))
              for name in (*OBJECTIVES, "two_stage_generator")}
    first = curves.pop("two_stage_generator")
    curves["two_stage"] = pd.concat(
        [first, curves["two_stage"].eval(f"step = step + {first['step'].max()}")], ignore_index=True
    )
    panels = {"gen_loss_hidden": ("generator loss on hidden tokens", set(curves)),
              "disc_auc": ("AUC of the discriminator", {*curves} - {"mlm", "replace_mlm"}),
              "disc_loss": ("loss of the second network\nthat predicts tokens", {"replace_mlm", "all_tokens_mlm"})}
    for axis, (metric, (title, shown)) in zip(axes, panels.items()):
        for i, (name, curve) in enumerate(curves.items()):
            if name in shown:
                axis.plot(
                    curve["step"], curve[metric].astype(float).rolling(10).mean(), lw=1, color=f"C{i}", label=name
                )
        axis.set(title=title, xlabel="step")
    figure.legend(*axes[0].get_legend_handles_labels(), frameon=False, fontsize=8, loc="outside right")
    return figure


def plot_tying():
    """Training curves of the quickstart's networks whose embeddings share a gradient, or not (DeBERTaV3)."""
    figure, axes = plt.subplots(1, 2, figsize=(8, 2.8), layout="constrained")
    for name, color in (("embeddings", BLUE), ("disentangled", ORANGE)):
        metrics_file = RESULTS / f"objectives/tying_{name}/metrics.jsonl"
        curve, held_out = (pd.DataFrame(read_metrics(metrics_file, split)) for split in ("train", "held_out"))
        for axis, metric in zip(axes, ("gen_loss_hidden", "disc_auc")):
            axis.plot(curve["step"], curve[metric].astype(float).rolling(10).mean(), lw=1, color=color, label=name)
            axis.plot(held_out["step"], held_out[metric], "o", ms=4, color=color)
    for axis, title in zip(axes, ("generator loss on hidden tokens", "AUC of the discriminator")):
        axis.set(title=title, xlabel="step")
    axes[0].legend(frameon=False)
    return figure


if __name__ == "__main__":
    plot_method().savefig(REPO / "docs/method.png", dpi=120)
    plot_objectives().savefig(RESULTS / "objectives/curves.png", dpi=100)
    plot_tying().savefig(RESULTS / "objectives/tying.png", dpi=100)
    plot_small().savefig(SMALL / "training.png", dpi=100)
    for name, plot in {"transitions": plot_transitions, "runs": plot_runs}.items():
        plot().savefig(MINI / f"{name}.png", dpi=100)
