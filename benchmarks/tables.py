"""The numbers in the tables of README and docs, from the raw files: `python -m benchmarks.tables`.

Labels, columns and digits are those of the document; only the numbers are replaced.
"""
import json
import math
import re
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from statistics import median

import pandas as pd
from scipy.stats import entropy, ttest_1samp, ttest_ind

from _utils.files import read_json_lines
from _utils.finetuning.runs import percent
from _utils.networks.pretrained import ROTARY_LENGTH
from _utils.recipes import RECIPES
from _utils.runs.log import read_metrics
from _utils.tasks.glue import PUBLISHED
from benchmarks.flops import CONVENTIONS, flops_per_token, steps_of_equal_compute

REPO = Path(__file__).parents[1]
RESULTS = REPO / "benchmarks/results"
OBJECTIVES = {  # of the paper, with the metrics that docs/paper.md shows
    "electra": ("gen_loss_hidden", "disc_auc"),
    "mlm": ("gen_loss_hidden",),
    "electra_15": ("gen_loss_hidden", "disc_auc"),
    "replace_mlm": ("gen_loss_hidden", "disc_loss"),
    "all_tokens_mlm": ("gen_loss_hidden", "disc_loss", "disc_auc"),
    "two_stage": ("gen_loss_hidden", "step", "disc_auc", "step"),
    "adversarial": ("gen_loss_hidden", "disc_auc"),
}
MINI, SMALL = RESULTS / "mini", RESULTS / "small"
SMALL_RUN = "official_small_11081_1.24%"
# the last one: the masked language model with another rate
ELECTRA, MLM, OTHER_RATE = "electra_150m", "mlm_150m", "check_mlm_lr1e-3"
TABLE_5 = [
    (MINI, ELECTRA),
    *((RESULTS / "table_5", f"{name}_150m") for name in ("all_tokens_mlm", "electra_15")),
    (MINI, MLM),
]
FIRST_SEEDS = (11081, 1, 2)  # of pretraining; their checkpoints during the training were finetuned, too
SEEDS = (*FIRST_SEEDS, 3, 4)
PRIMARY = ["cola", "stsb", "qnli", "mnli"]  # tasks of the primary metric
NUMBER = re.compile(r"-?(?:\d[\d,]*)?\.?\d+(?:e-\d+)?")


# Raw numbers

def records(path):
    """The latest record of each finetuning run in a file. These files are results of any version of this project."""
    rows = read_json_lines(path, "Restore the file.")
    return {(row["group"], row["task"], row["run"]): row for _, row in rows}.values()


@cache
def finetuned(folder):
    """Finished runs by group, task and finetuning seed: percent on the dev set, and for chunking on the test set."""
    rows = [
        (
            row["group"],
            row["task"],
            row["seed"],
            percent(row["scores"]),
            100 * row["scores"].get("test", {}).get("entity_f1", math.nan),
        )
        for row in records(folder / "scores.jsonl")
    ]
    return (
        pd.DataFrame(rows, columns=["group", "task", "seed", "dev", "test"])
        .set_index(["group", "task", "seed"])
        .sort_index()
    )


def means(folder, groups, tasks=PRIMARY, split="dev", aggregate="mean"):
    """DataFrame (group, task): means over finetuning seeds, or another aggregate."""
    return finetuned(folder)[split].groupby(["group", "task"]).agg(aggregate).unstack().loc[groups, tasks]


def last(*systems):
    """The groups of the last checkpoints of all pretraining seeds."""
    return [f"{system}_{seed}_100.0%" for system in systems for seed in SEEDS]


def with_mean(scores):
    """[[number of each column, ..., their mean], ...] of a DataFrame."""
    return scores.assign(mean=scores.mean(axis=1)).values.tolist()


def held_out(folder):
    return read_metrics(folder / "metrics.jsonl", "held_out")


def million_tokens(steps, recipe):
    """Millions of tokens that a recipe sees in some steps, a number or a Series."""
    return steps * recipe.bs * recipe.max_length / 1e6


def difference(better, other):
    """[difference of the means, standard error] of the scores of two systems, a Series by pretraining seed for each."""
    return [better.mean() - other.mean(), math.hypot(better.sem(), other.sem())]


def speed(file, *keys):
    return [[row[key] for key in keys] for row in json.loads((RESULTS / f"{file}.json").read_text())["rows"].values()]


def minimal_pairs(file):
    return pd.read_csv(RESULTS / f"minimal_pairs_{file}.csv", index_col=["field", "phenomenon", "paradigm"])


# Tables: each function returns the numbers of every row

def gpu_steps():
    """Eager steps of ELECTRA-Small on a GPU, and those of its training, which are compiled.

    The columns are those of benchmarks.gpu.
    """
    eager = json.loads((RESULTS / "gpu_nvidia_h200.json").read_text())["measurements"]["steps of small, eager"]["row"]
    compiled = median(row["tokens_per_second"] for row in read_metrics(SMALL / "metrics.jsonl", "train"))
    return [[eager["ms/step"] / speedup, eager["tokens/s"] * speedup, eager["share of matmul throughput"] * speedup,
             eager["hours for all steps"] / speedup] for speedup in (1, compiled / eager["tokens/s"])]


def sizes():
    return [[recipe.discriminator.layers, recipe.discriminator.hidden, recipe.generator.layers, recipe.generator.hidden,
             recipe.bs, recipe.max_length, recipe.steps, recipe.warmup_steps, recipe.lr]
            for recipe in map(RECIPES.get, ("small", "small++", "base", "large", "mini", "tiny"))]


def finetuning_settings():
    settings = {size: (recipe.glue_lr, recipe.layer_decay, recipe.max_length) for size, recipe in RECIPES.items()}
    rows = [settings.pop(size) for size in ("small", "small++", "base", "large")]
    # rotary positions, of which those beyond the pretraining need no training
    rows += [(*settings.pop(size)[:2], ROTARY_LENGTH, RECIPES[size].max_length) for size in ("mini", "quickstart")]
    [tiny] = {settings.pop(size) for size in ("tiny", "bert_tiny", "albert_tiny", "alectra_tiny")}
    [others] = set(settings.values())
    return [*rows, tiny, others]


def small_on_glue():
    """Medians of the runs on each task and the mean of four tasks, by network.

    The last one is the majority label.
    """
    tasks = ["cola", "sst2", "mrpc", "stsb", "mnli", "qnli", "rte", "wnli"]
    groups = [SMALL_RUN, "cpu_small_11081_0.4%", "untrained_small_11081_100.0%", "mini"]
    medians = means(SMALL, groups, tasks, aggregate="median")
    medians.loc["majority label"] = {
        row["task"]: percent(row["baselines"]) for row in records(SMALL / "scores.jsonl")
    }
    return medians.assign(mean=medians[["mrpc", "stsb", "mnli", "qnli"]].mean(axis=1, skipna=False)).values.tolist()


def measured():
    """ELECTRA-Small, mini and random weights on the tasks of the published scores but QQP."""
    small, _, untrained, mini, _ = small_on_glue()
    return [row[:7] for row in (small, mini, untrained)]


def published():
    return [
        row if "deviation" in name else [*row, sum(row) / len(row)]
        for name, row in zip(PUBLISHED.index, PUBLISHED.values.tolist())
    ]


def by_network():
    """Of each pretrained network: means of the primary tasks, their mean, the mean of the medians, secondary tasks."""
    groups = [*last(ELECTRA, MLM, OTHER_RATE), "untrained_11081_100.0%"]
    medians = means(MINI, groups, aggregate="median").mean(axis=1)
    secondary = means(MINI, groups, ["sst2", "mrpc"]).values
    rows = zip(with_mean(means(MINI, groups)), medians, secondary, groups)
    return [
        [*primary, median, *others, *chunking(group.removesuffix("_100.0%"))] for primary, median, others, group in rows
    ]


def differences():
    """ELECTRA minus each masked language model, a row for each measure.

    With standard error and Welch's 95% confidence interval.
    """
    measures = [
        lambda groups: means(MINI, groups).mean(axis=1),
        lambda groups: means(MINI, groups, aggregate="median").mean(axis=1),
        *(partial(means, MINI, tasks=task) for task in PRIMARY),
        lambda groups: means(MINI, groups, "chunking", "test").dropna(),  # not of all seeds
    ]
    rows = []
    for measure in measures:
        pairs = [(measure(last(ELECTRA)), measure(last(other))) for other in (MLM, OTHER_RATE)]
        intervals = [ttest_ind(*pair, equal_var=False).confidence_interval() for pair in pairs]
        rows.append(
            [
                number
                for pair, interval in zip(pairs, intervals)
                for number in (*difference(*pair), interval.low, interval.high)
            ]
        )
    return rows


def recipe_google():
    """For each rate: means of the default and of `recipe=google`, and their difference with its 95% confidence interval
    by a paired t-test over finetuning seeds. A row for each task, and one for the mean of the tasks.
    """
    dev = finetuned(RESULTS / "finetuning_google")["dev"].unstack("task")[["cola", "stsb", "mrpc", "rte", "qnli"]]
    dev["mean"] = dev.mean(axis=1)
    rows = [[] for _ in dev]
    for rate in ("3e-4", "1e-4"):
        default, google = (dev.loc[f"{recipe}_lr{rate}"] for recipe in ("default", "google"))
        for row, task in zip(rows, dev):
            differences = google[task] - default[task]
            interval = ttest_1samp(differences, 0).confidence_interval()
            row += [default[task].mean(), google[task].mean(), differences.mean(), interval.low, interval.high]
    return rows


def budgets():
    """Operations per token of ELECTRA and of masked language modelling, and steps of equal compute.

    A row for each convention of counting, in MFLOP.
    """
    electra = RECIPES["mini"]
    mlm = replace(electra, generator=electra.discriminator, discriminator=None)
    return [[*(flops_per_token(recipe, 8192, **convention) / 1e6 for recipe in (electra, mlm)),
             steps_of_equal_compute(electra, mlm, electra.steps, 8192, **convention)]
            for convention in CONVENTIONS.values()]


def milestones_of_small():
    """By milestone: share of the steps in percent, step, million tokens, and metrics on held-out text."""
    recipe, keys = (
        RECIPES["small"],
        (
            "gen_loss",
            "gen_loss_hidden",
            "gen_accuracy_hidden",
            "disc_loss",
            "disc_auc",
            "disc_precision",
            "disc_recall",
        ),
    )
    return [
        [
            100 * row["step"] / recipe.steps,
            row["step"],
            million_tokens(row["step"], recipe),
            *(row[key] for key in keys),
        ]
        for row in held_out(SMALL)
    ]


def objectives():
    """By objective: the last evaluation on held-out text."""
    return [[held_out(RESULTS / "objectives" / name)[-1][key] for key in keys] for name, keys in OBJECTIVES.items()]


def chunking(name):
    """F1 of a pretrained network on the test set, finetuned and with a frozen encoder; NaN without such a run."""
    scores = finetuned(MINI)["test"]
    return scores.reindex([(group, "chunking", 0) for group in (f"{name}_100.0%", f"chunking_frozen_{name}")]).tolist()


def table_5():
    """Scores with finetuning seed 0, and the generator on hidden tokens, by system.

    The mean score after half of the steps, the scores after all steps and their mean, and the loss and accuracy of the
    generator.
    """
    rows = []
    for folder, system in TABLE_5:
        name = f"{system}_11081"
        half, whole = with_mean(means(folder, [f"{name}_50.0%", f"{name}_100.0%"], aggregate="first"))
        row = held_out(folder / name)[-1]
        rows.append([half[-1], *whole, row["gen_loss_hidden"], row["gen_accuracy_hidden"]])
    return rows


def healthy():
    """Metrics of mini, and how far the discriminator's loss is below that of a constant prediction."""
    row = held_out(MINI / f"{ELECTRA}_11081")[-1]
    constant = entropy([row["replaced_share"], 1 - row["replaced_share"]])
    return [[row["gen_loss"]], [row["gen_loss_hidden"]], [row["gen_accuracy"]],
            [row["disc_loss"], 100 * (1 - row["disc_loss"] / constant)], [row["disc_auc"]]]


def overall_minimal_pairs():
    """By network: mean accuracy over paradigms, that of random weights, and their paired difference.

    Each with its standard error.
    """
    rows = []
    for file in ("mini", "mini_seeds", "small_discriminator", "small_generator"):
        table = minimal_pairs(file).drop(columns="pairs")
        for name in table.columns[~table.columns.str.endswith("untrained")]:
            untrained = table.get(f"{name}, untrained", pd.Series(math.nan, table.index))
            columns = table[name], untrained, table[name] - untrained
            rows.append([number for column in columns for number in (column.mean(), column.sem())])
    electra, mlm, *others = rows
    return [electra, *others[:2], mlm, *others[2:4], *others[4:]]


def loader():
    return [
        [float(f"{tokens:.3g}"), ratio] for tokens, ratio in speed("loader_amd_epyc_avx512_bf16", "tokens/s", "ratio")
    ]


def precisions():
    """Held-out metrics of the quickstart in bf16 and in fp32: mean, lowest and highest of the seeds."""
    runs = pd.json_normalize([row for _, row in read_json_lines(RESULTS / "quickstart/precision.jsonl", "Restore it.")])
    by_precision = runs.groupby("precision").agg(["mean", "min", "max"])
    metrics = "held_out.gen_loss_hidden", "held_out.disc_auc", "damaged_text.auc"
    return [by_precision[metric].to_numpy().ravel().tolist() for metric in metrics]


PRETRAINING_SPEED = ("ms/step", "tokens/s", "ratio to reference fp32", "peak MB", "share of matmul throughput")
# {(document, heading): [(index of the first column with numbers, function) of each table; None: it is not computed]}
TABLES = {
    ("paper.md", "Curves of the objectives"): [(1, objectives)],
    ("paper.md", "What Electric costs"): [
        (1, lambda: speed("pretraining_mini_objectives_64x64_amd_epyc_avx512_bf16", "ms/step", "peak MB")),
    ],
    ("paper.md", "Table 5 in miniature"): [(3, table_5)],
    ("paper.md", "Minimal pairs"): [None, (1, overall_minimal_pairs)],
    ("pretraining.md", "Sizes"): [(1, sizes)],
    ("pretraining.md", "Is my run healthy?"): [(3, healthy)],
    ("finetuning.md", "Settings"): [(1, finetuning_settings)],
    ("../README.md", "Results"): [(1, lambda: [*measured(), *published()[:3]])],
    ("facts.md", "Published results"): [(1, lambda: published()[3:])],
    ("results.md", "Compute and time"): [(1, budgets)],
    ("results.md", "Scores"): [(2, by_network), (1, differences)],
    ("results.md", "Milestones"): [(0, milestones_of_small)],
    ("results.md", "ELECTRA-Small on GLUE"): [(1, small_on_glue)],
    ("results.md", "The step of Google's code in finetuning"): [(1, recipe_google)],
    ("speed.md", "Pretraining"): [
        (1, lambda batch=batch: speed(f"pretraining_small_{batch}_amd_epyc_avx512_bf16", *PRETRAINING_SPEED))
        for batch in ("32x128", "128x128")
    ] + [(1, precisions)],
    ("speed.md", "Data"): [
        (1, loader),
        (1, lambda: speed("preprocessing_intel_r_xeon_r_processor_avx512_bf16", "MB/s", "ratio to tokenizers alone")),
    ],
    ("speed.md", "Finetuning"): [
        (1, lambda: speed("finetuning_small_amd_epyc_avx512_bf16", "rows/s", "ratio")),
        (1, lambda: speed("finetuning_small_amd_epyc_avx2", "rows/s", "ratio", "tokens/row")),
    ],
    ("speed.md", "On a GPU"): [(1, gpu_steps)],
}


# Writing them

def filled(text, places):
    """A document with the numbers of `places`.

    places: {heading: [(index of the first column with numbers, function) of each table]}.
    """
    parts = re.split(r"(?m)^(#+ .*\n)", text)  # text, heading, text, ...
    missing = places.keys() - {heading.strip("#\n ") for heading in parts[1::2]}
    assert not missing, f"no such headings: {missing}"
    for i, heading in enumerate(parts):
        if i % 2 and heading.strip("#\n ") in places:
            before, *between = re.split(r"(?m)((?:^\|.*\n)+)", parts[i + 1])  # text, table, text, ...
            functions = places[heading.strip("#\n ")]
            tables = [filled_table(table, *function) if function else table
                      for table, function in zip(between[::2], functions, strict=True)]
            parts[i + 1] = before + "".join(table + after for table, after in zip(tables, between[1::2]))
    return "".join(parts)


def filled_table(table, first_column, raw):
    """A Markdown table with the numbers of raw(), a list for each row, as many digits as now."""
    head, line, *rows = table.splitlines(keepends=True)
    return (
        head + line + "".join(filled_row(row, first_column, numbers) for row, numbers in zip(rows, raw(), strict=True))
    )


def filled_row(row, first_column, numbers):
    cells = re.split(r"(?<!\\)\|", row)
    left = [math.nan if pd.isna(number) else float(number) for number in numbers]
    for i, cell in enumerate(cells[first_column + 1:], first_column + 1):
        while left and not NUMBER.search(cell) and math.isnan(left[0]):  # an empty cell
            left.pop(0)
        cells[i] = NUMBER.sub(lambda match: like(match[0], left.pop(0)), cell)
    assert all(map(math.isnan, left)), f"more numbers than in the document: {row}"
    return "|".join(cells)


def like(shown, number):
    """A number in the notation of the one that the document shows.

    Its digits after the point, its zero before it, its exponent.
    """
    if "e" in shown:
        return f"{number:.{len(shown.partition('e')[0].partition('.')[2])}e}".replace("e-0", "e-")
    digits = len(shown.partition(".")[2])
    text = f"{number:z,.{digits}f}" if "," in shown or number < 1000 else f"{number:z.{digits}f}"
    return re.sub(r"^(-?)0\.", r"\1.", text) if re.match(r"-?\.", shown) else text


def documents():
    """(path, text with the computed numbers) of each document that has such tables."""
    for document in dict.fromkeys(document for document, _ in TABLES):
        path = REPO / "docs" / document
        places = {heading: functions for (name, heading), functions in TABLES.items() if name == document}
        yield path, filled(path.read_text(encoding="utf-8"), places)


if __name__ == "__main__":
    for path, text in documents():
        is_current = path.read_text(encoding="utf-8") == text
        print(f"{path.relative_to(REPO)}: {'equals its raw files' if is_current else 'written'}")
        path.write_text(text, encoding="utf-8")
