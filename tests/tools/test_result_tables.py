"""The tables of numbers in README and docs, recomputed from the recipes and from the files in benchmarks/results."""
import json
import math
import re
from decimal import Decimal
from functools import cache

import pandas as pd
import pytest
from documents import REPO, read, section, tables
from scipy.stats import entropy, ttest_ind

from _utils.commands.minimal_pairs import summarize
from _utils.glue.runs import Runs, score
from _utils.glue.tasks import PUBLISHED
from _utils.recipes import RECIPES
from _utils.runs.log import read_metrics

RESULTS = REPO / "benchmarks/results"
MINI, SHORT, PILOTS = RESULTS / "mini", RESULTS / "mini/short", RESULTS / "mini/pilots"
ELECTRA, MLM, OTHER_RATE = "electra_150m", "mlm_150m", "check_mlm_lr1e-3"  # the last one: the masked language model with another rate
SEEDS = (11081, 1, 2)  # of pretraining, in the order in which the document lists them
PRIMARY = ["cola", "stsb", "qnli", "mnli"]  # tasks of the primary measure
NUMBER = re.compile(r"-?(?:\d[\d,]*)?\.?\d+(?:e-\d+)?")


# Raw numbers

@cache
def finetuned(folder):
    """Finished runs by group, task and finetuning seed: percent on the dev set, and for chunking on the test set."""
    rows = [(row["group"], row["task"], row["seed"], score(row), 100 * row["scores"].get("test", {}).get("entity_f1", math.nan))
            for row in Runs(path=folder / "scores.jsonl")]
    return pd.DataFrame(rows, columns=["group", "task", "seed", "dev", "test"]).set_index(["group", "task", "seed"])


def means(folder, groups, tasks=PRIMARY, split="dev"):
    """DataFrame (group, task): means over finetuning seeds."""
    return finetuned(folder)[split].groupby(["group", "task"]).mean().unstack().loc[groups, tasks]


def last(*systems, seeds=SEEDS):
    """The groups of the last checkpoints of all pretraining seeds."""
    return [f"{system}_{seed}_100.0%" for system in systems for seed in seeds]


def with_mean(scores):
    """[[number of each column, ..., their mean], ...] of a DataFrame."""
    return scores.assign(mean=scores.mean(axis=1)).values.tolist()


def held_out(folder):
    return read_metrics(folder / "metrics.jsonl", "held_out")


def difference(better, other):
    """[difference of the means, standard error] of the scores of two systems, a Series by pretraining seed for each."""
    return [better.mean() - other.mean(), math.hypot(better.sem(), other.sem())]


def speed(file, *keys):
    return [[row[key] for key in keys] for row in json.loads((RESULTS / f"{file}.json").read_text())["rows"].values()]


def minimal_pairs(file):
    return pd.read_csv(RESULTS / f"minimal_pairs_{file}.csv", index_col=["field", "phenomenon", "paradigm"])


# Tables: each function returns the numbers of every row

def sizes():
    return [[recipe.discriminator.layers, recipe.discriminator.hidden, recipe.generator.layers, recipe.generator.hidden,
             recipe.bs, recipe.max_length, recipe.steps, recipe.warmup_steps, recipe.lr]
            for recipe in map(RECIPES.get, ("small", "small++", "base", "large", "mini", "tiny"))]


def finetuning_settings():
    settings = {size: (recipe.glue_lr, recipe.layer_decay, recipe.glue_length) for size, recipe in RECIPES.items()}
    rows = [settings.pop(size) for size in ("small", "small++", "base", "large", "mini")]
    [tiny] = {settings.pop(size) for size in ("tiny", "bert_tiny", "albert_tiny", "alectra_tiny")}
    [others] = set(settings.values())
    return [*rows[:-1], (*rows[-1], RECIPES["mini"].max_length), (*tiny, RECIPES["tiny"].max_length), others]


def published():
    return [row if "deviation" in name else [*row, sum(row) / len(row)] for name, row in zip(PUBLISHED.index, PUBLISHED.values.tolist())]


def curves():
    columns = [(ELECTRA, key) for key in ("gen_loss_hidden", "gen_accuracy_hidden", "disc_auc", "disc_loss")]
    columns += [(MLM, "gen_loss_hidden"), (MLM, "gen_accuracy_hidden")]
    return [[held_out(MINI / f"{system}_{seed}")[i][key] for system, key in columns for seed in SEEDS] for i in range(5)]


def finetuning_rates():
    systems = {f"{ELECTRA}_11081": ("0.0001", "0.0003", "0.001", "0.003"), f"{MLM}_11081": ("0.0001", "0.0003", "0.001", "0.003"),
               "untrained_11081": ("0.0003", "0.001")}
    return with_mean(means(MINI, [f"grid_{system}_lr{lr}" for system, lrs in systems.items() for lr in lrs]))


def during_the_training():
    rows = []
    for percent in ("6.25", "12.5", "25.0", "50.0", "100.0"):
        numbers = []
        for tasks in (PRIMARY, ["chunking"]):
            systems = [means(MINI, [f"{system}_{seed}_{percent}%" for seed in SEEDS], tasks).mean(axis=1) for system in (ELECTRA, MLM)]
            numbers += [*systems[0], *systems[1], *difference(*systems)]
        rows.append(numbers)
    return rows


def chunking(folder, systems):
    """F1 on the test set, finetuned and with a frozen encoder."""
    return [[means(folder, f"{name}_100.0%", "chunking", "test"), means(folder, f"chunking_frozen_{name}", "chunking", "test")]
            for name in systems]


def half_the_rate():
    groups = last(MLM, OTHER_RATE)
    losses = [held_out(MINI / group.removesuffix("_100.0%"))[-1]["gen_loss_hidden"] for group in groups]
    f1 = means(MINI, groups, "chunking", "test")
    return [[loss, *scores, chunking] for loss, scores, chunking in zip(losses, with_mean(means(MINI, groups)), f1)]


def first_comparison():
    names = ["electra_11081", "electra_1", "mlm_11081", "mlm_1", "untrained_11081"]
    glue = with_mean(means(SHORT, [f"{name}_100.0%" for name in names]))
    return [[*scores, *f1] for scores, f1 in zip(glue, chunking(SHORT, names))]


def metrics_of(pilot, steps, *keys):
    """Training metrics of a pilot at the steps that it reached, and the last held-out ones."""
    rows = [row for row in read_metrics(PILOTS / pilot / "metrics.jsonl", "train") if row["step"] in steps]
    return [row[key] for key in keys for row in [*rows, *held_out(PILOTS / pilot)[-1:]]]


def pilots():
    return [metrics_of(name, (300, 450, 600, 900, 1125, 1875, 2550, 3000), "gen_loss") for name in (
        "p1_drop0_std02_bc", "p3_drop1_std02_bc", "p2_drop0_std02", "p4_sinusoidal_drop0_std02_bc", "r1_rotary_drop0_bc",
        "r2_rotary_warmup300", "r3_rotary_warmup300_lr5e4", "r4_rotary_warmup1000")]


def electra_pilots():
    return [metrics_of(name, (450, 600, 900), "gen_loss_hidden", "disc_auc")
            for name in ("e2_electra_rotary_drop0_bc", "e3_electra_rotary_warmup1000")]


def pretraining_rates():
    """Runs with 1e-3 are those of the first comparison; ELECTRA with 2e-3 was stopped."""
    rows = []
    for system, lrs, finetuning_lr in (("electra", ("5e-4", "1e-3", "2e-3"), 3e-4), ("mlm", ("5e-4", "1e-3", "2e-3", "4e-3"), 1e-3)):
        for lr in lrs:
            is_short, pilot = lr == "1e-3", f"{system}_lr{lr}"
            metrics = held_out(SHORT / f"{system}_11081" if is_short else PILOTS / pilot)[-1]
            rows.append([metrics[key] for key in ("gen_loss_hidden", "disc_auc") if key in metrics])
            if pilot != "electra_lr2e-3":
                group = f"{system}_11081_100.0%" if is_short else f"pilot_{pilot}_11081_100.0%"
                on_glue = (SHORT, f"grid_{system}_11081_lr{finetuning_lr}") if is_short else (MINI, f"sensitivity_pilot_{pilot}_11081")
                rows[-1] += [means(SHORT, group, "chunking"), *means(*on_glue, ["stsb", "qnli"])]
    return rows


def healthy():
    """Metrics of the quickstart and of mini, and how far the discriminator's loss is below that of a constant prediction."""
    columns = []
    for folder in (RESULTS / "quickstart", MINI / f"{ELECTRA}_11081"):
        row = held_out(folder)[-1]
        constant = entropy([row["replaced_share"], 1 - row["replaced_share"]])
        columns.append([[row["gen_loss"]], [row["gen_loss_hidden"]], [row["gen_accuracy"]],
                        [row["disc_loss"], 100 * (1 - row["disc_loss"] / constant)], [row["disc_auc"]]])
    return [first + second for first, second in zip(*columns)]


def laptop():
    names = [["untrained_11081"], *([f"{system}_{seed}" for seed in SEEDS] for system in (ELECTRA, MLM))]
    glue = pd.DataFrame([means(MINI, [f"{name}_100.0%" for name in seeds]).mean() for seeds in names])
    return [[*scores, *pd.DataFrame(chunking(MINI, seeds)).mean()] for scores, seeds in zip(with_mean(glue), names)]


def phenomena():
    """Accuracy and standard error of each network."""
    found = [summarize(minimal_pairs(file)) for file in ("quickstart", "mini")]
    return list(zip(*(table[network] for means_and_errors in found for network in means_and_errors[0] for table in means_and_errors)))


def accuracy_by_seed():
    """Means over paradigms and their standard errors."""
    mini, others = minimal_pairs("mini"), minimal_pairs("mini_seeds")
    systems = "ELECTRA", "masked language model"
    by_seed = [[mini[system] for system in systems], *([others[f"{system}, seed {seed}"] for system in systems] for seed in (1, 2))]
    return [[number for accuracies in row for number in (accuracies.mean(), accuracies.sem())] for row in by_seed]


def conll2000():
    """Test F1 of the finetuning runs, then of the frozen encoder."""
    rows = Runs(path=RESULTS / "conll2000.jsonl")
    return [[100 * row["scores"]["test"]["entity_f1"] for group in (name, f"{name}_frozen") for row in rows if row["group"] == group]
            for name in ("quickstart", "quickstart_untrained")]


def loader():
    return [[float(f"{tokens:.3g}"), ratio] for tokens, ratio in speed("loader_amd_epyc", "tokens/s", "ratio")]


PRETRAINING_SPEED = ("ms/step", "tokens/s", "ratio to reference fp32", "peak MB", "share of matmul throughput")
# {(document, heading): [(index of the first column with numbers, function) of each table]}
TABLES = {
    ("pretraining.md", "Sizes"): [(1, sizes)],
    ("finetuning.md", "Settings"): [(1, finetuning_settings)],
    ("results.md", "Published scores"): [(1, lambda: [*published(), [], []])],
    ("../README.md", "Results"): [(1, lambda: [*published()[:3], []])],
    ("results.md", "Pretraining"): [(1, curves)],
    ("results.md", "Learning rates of finetuning"): [(2, finetuning_rates)],
    ("results.md", "Finetuning"): [
        (2, lambda: with_mean(means(MINI, [*last(ELECTRA, MLM), "untrained_11081_100.0%"]))),
        (2, lambda: means(MINI, [*last(ELECTRA, MLM), "untrained_11081_100.0%"], ["sst2", "mrpc"]).values)],
    ("results.md", "During the training"): [(1, during_the_training)],
    ("results.md", "Chunking"): [
        (2, lambda: chunking(MINI, [*(f"{system}_{seed}" for system in (ELECTRA, MLM) for seed in SEEDS), "untrained_11081"]))],
    ("results.md", "Masked language modelling with half the learning rate"): [(2, half_the_rate)],
    ("results.md", "The first comparison: a sixth of the tokens"): [(2, first_comparison)],
    ("results.md", "Pilots: the unigram plateau"): [(4, pilots), (4, electra_pilots)],
    ("results.md", "Learning rates of pretraining"): [(2, pretraining_rates)],
    ("results.md", "Is my run healthy?"): [(3, healthy)],
    ("../README.md", "An ELECTRA for a laptop"): [(1, laptop)],
    ("probes.md", "Measurements"): [(1, phenomena), (1, accuracy_by_seed)],
    ("own_tasks.md", "CoNLL-2000 chunking"): [(2, conll2000)],
    ("speed.md", "On a CPU with bf16 arithmetic"): [(1, lambda: speed("pretraining_small_amd_epyc_avx512_bf16", *PRETRAINING_SPEED))],
    ("speed.md", "On an older CPU"): [(1, lambda: speed("pretraining_small_amd_epyc_avx2", *PRETRAINING_SPEED))],
    ("speed.md", "Data"): [(1, loader), (1, lambda: speed("preprocessing_intel_r_xeon_r_processor_avx512_bf16", "MB/s",
                                                          "ratio to tokenizers alone"))],
    ("speed.md", "Finetuning"): [(1, lambda: speed("finetuning_small_amd_epyc_avx512_bf16", "rows/s", "ratio"))],
    ("speed.md", "Waiting threads and freed memory"): [
        (1, lambda: speed("environment_mini_amd_epyc_avx512_bf16", "idle tokens/s", "idle ratio", "busy tokens/s", "busy ratio"))],
}


@pytest.mark.parametrize("place", TABLES, ids=lambda place: place[1])
def test_numbers_of_tables_equal_the_raw_ones_rounded(place):
    for table, (first_column, raw) in zip(tables(section(*place)), TABLES[place], strict=True):
        for row, numbers in zip(table, raw(), strict=True):
            shown = [Decimal(number.replace(",", "")) for cell in row[first_column:] for number in NUMBER.findall(cell)]
            numbers = [float(number) for number in numbers if not pd.isna(number)]
            assert list(map(float, shown)) == [round(number, -digits.as_tuple().exponent)
                                               for number, digits in zip(numbers, shown, strict=True)], row


def test_differences_in_the_text_equal_the_raw_ones_rounded():
    scores = {system: means(MINI, last(system)) for system in (ELECTRA, MLM, OTHER_RATE)}
    glue = {system: table.mean(axis=1) for system, table in scores.items()}
    f1 = {system: means(MINI, last(system), "chunking", "test") for system in scores}
    frozen = {system: means(MINI, [f"chunking_frozen_{system}_{seed}" for seed in SEEDS], "chunking", "test") for system in (ELECTRA, MLM)}
    short = [means(SHORT, last(system, seeds=SEEDS[:2])).mean(axis=1) for system in ("mlm", "electra")]
    laptop = "../README.md", "An ELECTRA for a laptop"
    comparison, finetuning, half, chunks, first = (("results.md", heading) for heading in (
        "ELECTRA and masked language modelling at equal compute", "Finetuning", "Masked language modelling with half the learning rate",
        "Chunking", "The first comparison: a sixth of the tokens"))
    for better, other, *places in [
            (glue[ELECTRA], glue[MLM], laptop, comparison, finetuning), (glue[ELECTRA], glue[OTHER_RATE], laptop, comparison, half),
            *((scores[ELECTRA][task], scores[MLM][task], finetuning) for task in PRIMARY),
            (f1[MLM], f1[ELECTRA], laptop, chunks), (frozen[MLM], frozen[ELECTRA], chunks), (f1[OTHER_RATE], f1[ELECTRA], laptop, half),
            (*short, first)]:
        for place in places:
            assert "{:.1f} ± {:.1f}".format(*difference(better, other)) in section(*place), place
    for other, *places in [(MLM, laptop, finetuning), (OTHER_RATE, half)]:  # Welch's 95 % confidence intervals
        low, high = ttest_ind(glue[ELECTRA], glue[other], equal_var=False).confidence_interval()
        for place in places:
            assert re.search(rf"from\s+{low:.0f}\s+to\s+{high:.0f}\b", section(*place)), place


def test_mini_was_trained_with_the_settings_of_its_recipe_and_its_commands(capsys):
    recipe = RECIPES["mini"]
    [lines] = [block for block in re.findall(r"```python\n(.*?)```", read("results.md"), re.S) if "steps_of_equal_compute" in block]
    exec(lines, {})
    steps = int(capsys.readouterr().out)
    for system, own in ((ELECTRA, {"steps": recipe.steps, "lr": recipe.lr}), (MLM, {"steps": steps, "lr": 2e-3}),
                        (OTHER_RATE, {"steps": steps, "lr": 1e-3})):
        for seed in SEEDS:
            config = json.loads((MINI / f"{system}_{seed}/config.json").read_text())["config"]
            expected = {**{key: getattr(recipe, key) for key in ("bs", "max_length", "mask_prob", "warmup_steps")}, **own, "seed": seed}
            assert {key: config[key] for key in expected} == expected
        assert system == ELECTRA or f"base_run_name={system} objective=mlm electra_mask_style=False steps={steps} " in read("results.md")
