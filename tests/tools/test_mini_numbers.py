"""The pilots and the comparison of ELECTRA with masked language modelling in results.md against the files they come from."""
import json
import math
import re
from collections import defaultdict

import numpy as np
import pandas as pd
import pytest
from documents import REPO, has_sentence, read, rows_below, section, table
from scipy.stats import ttest_ind

from _utils.commands.compare_pretraining import checkpoint_scores, compare, setting_differences
from _utils.glue.runs import read_scores, score
from _utils.recipes import RECIPES
from _utils.runs.log import read_metrics

MINI = REPO / "benchmarks/results/mini"
ELECTRA, MLM = "electra_150m", "mlm_150m"
SEEDS = (11081, 1, 2)  # of pretraining, in the order in which the document lists them
OTHER_RATE = "check_mlm_lr1e-3"  # the masked language model once more, with another learning rate of pretraining
SYSTEMS = {"ELECTRA": ELECTRA, "masked language model": MLM, "not pretrained": "untrained"}
SHORT = MINI / "short"  # the first comparison
SHORT_SYSTEMS = {"ELECTRA": "electra", "masked language model": "mlm", "not pretrained": "untrained"}
PRIMARY = ("cola", "stsb", "qnli", "mnli")  # tasks of the primary measure


def metrics_in(folder):
    """({step: training metrics}, held-out metrics)."""
    file = folder / "metrics.jsonl"
    return {row["step"]: row for row in read_metrics(file, "train")}, read_metrics(file, "held_out")


def config_of(system, seed):
    return json.loads((MINI / f"{system}_{seed}/config.json").read_text())["config"]


def scores_of(tasks, folder=MINI):
    return [row for row in read_scores(folder / "scores.jsonl") if row["task"] in tasks]


def is_checkpoint(row):
    """Whether a run belongs to the planned comparison, not to a choice of the learning rate, a frozen encoder or OTHER_RATE."""
    return row["group"].endswith("%") and not row["group"].startswith(OTHER_RATE)


def last_runs(folder):
    """The finetuning runs of the last checkpoints on the tasks of the primary measure."""
    return [row for row in filter(is_checkpoint, scores_of(PRIMARY, folder)) if row["group"].endswith("_100.0%")]


def last_scores(folder):
    """DataFrame of the last checkpoints (system, seed): mean dev scores over finetuning seeds."""
    return last_means(last_runs(folder))


def last_means(runs):
    """DataFrame of the last checkpoints that were finetuned in these runs (system, seed)."""
    return checkpoint_scores(runs)[["CoLA", "STS-B", "QNLI", "MNLI"]].droplevel(["run", "percent"])


def other_rate_runs():
    return [row for row in scores_of(PRIMARY) if row["group"].startswith(OTHER_RATE)]


def chunking_f1(folder=MINI, split="test"):
    """{group: entity F1} of the runs with scores on this split."""
    return {row["group"]: 100 * row["scores"][split]["entity_f1"] for row in scores_of(["chunking"], folder) if split in row["scores"]}


def cells_with_mean(scores):
    return [f"{number:.1f}" for number in (*scores, sum(scores) / len(scores))]


def without_zero(number):
    return f"{number:.3f}".lstrip("0")


def difference(scores, better, other):
    """The difference of two systems as the documents write it; with a single seed it has no standard error."""
    found = compare(pd.concat({100.: scores}, names=["percent"]), [better, other]).loc[100.]
    return with_error(found[f"{better} - {other}"], found[f"{better} - {other}, s.e."])


def interval(means, better, other):
    """Welch's 95 % confidence interval of the difference of two systems, as the documents write it."""
    found = ttest_ind(means[better], means[other], equal_var=False).confidence_interval()
    assert found.low < 0 < found.high  # the documents say that it includes zero
    return f"from {found.low:.0f} to {found.high:.0f}"


def with_error(value, error):
    return f"{value:.1f}" if pd.isna(error) else f"{value:.1f} ± {error:.1f}"


def test_runs_are_those_of_the_recipe_and_the_commands():
    recipe, text = RECIPES["mini"], section(read("results.md"), "ELECTRA and masked language modelling at equal compute")
    shared = {key: getattr(recipe, key) for key in ("bs", "max_length", "mask_prob", "warmup_steps")}
    shared |= {"precision": "bf16", "size": "mini"}
    [mlm] = re.findall(r"base_run_name=mlm_150m .*? steps=(\d+) warmup_steps=1000 lr=(\S+)", text)
    own = {ELECTRA: {"steps": recipe.steps, "lr": recipe.lr}, MLM: {"steps": int(mlm[0]), "lr": float(mlm[1])}}
    for system, values in own.items():
        for folder in MINI.glob(f"{system}_*"):
            config = json.loads((folder / "config.json").read_text())["config"]
            assert {key: config[key] for key in shared | values} == shared | values
        millions = values["steps"] * recipe.bs * recipe.max_length / 1e6
        assert has_sentence(text, f"({millions:.1f} million tokens") and f"{millions:.0f} million tokens" in read(REPO / "README.md")


@pytest.mark.parametrize("folder, precision", [(MINI, "bf16"), (SHORT, "fp32")])
def test_finetuning_runs_have_the_settings_of_the_commands(folder, precision):
    rows = [row for row in scores_of([*PRIMARY, "chunking"], folder) if not row["group"].startswith("pilot")]
    assert {(row["settings"]["precision"], row["settings"]["epochs"]) for row in rows} == {(precision, 3)}
    seeds = defaultdict(set)
    for row in last_runs(folder):
        seeds[row["group"], row["task"]].add(row["seed"])
    assert set(map(frozenset, seeds.values())) == {frozenset(range(5 if folder == MINI else 3))}
    assert len({(row["group"], row["task"], row["seed"]) for row in rows}) == len(rows)


@pytest.mark.parametrize("line, pilot", enumerate([
    "p1_drop0_std02_bc", "p3_drop1_std02_bc", "p2_drop0_std02", "p4_sinusoidal_drop0_std02_bc", "r1_rotary_drop0_bc",
    "r2_rotary_warmup300", "r3_rotary_warmup300_lr5e4", "r4_rotary_warmup1000"]))
def test_losses_of_pilots_equal_their_raw_numbers(line, pilot):
    _, _, _, _, *losses, held_out = table(section(read("results.md"), "Pilots: the unigram plateau"))[line]
    train, found = metrics_in(MINI / "pilots" / pilot)
    assert losses == [f"{train[step]['gen_loss']:.2f}" if step in train else "" for step in (300, 450, 600, 900, 1125, 1875, 2550, 3000)]
    assert held_out == (f"{found[-1]['gen_loss']:.2f}" if found else "")


@pytest.mark.parametrize("line, pilot", enumerate(["e2_electra_rotary_drop0_bc", "e3_electra_rotary_warmup1000"]))
def test_pilots_of_electra_equal_their_raw_numbers(line, pilot):
    cells = table(section(read("results.md"), "Pilots: the unigram plateau").partition("The same for ELECTRA")[2])[line]
    train, found = metrics_in(MINI / "pilots" / pilot)
    rows = [*(train.get(step) for step in (450, 600, 900)), *(found or [None])]
    losses = [f"{row['gen_loss_hidden']:.2f}" if row else "" for row in rows]
    aucs = [without_zero(row["disc_auc"]) if row else "" for row in rows]
    assert cells[4:] == losses + aucs


def test_pilots_of_the_learning_rate_equal_their_raw_numbers():
    f1 = {row["group"]: 100 * row["scores"]["validation"]["entity_f1"] for row in scores_of(["chunking"], SHORT)}
    glue = {(row["group"], row["task"]): f"{score(row):.1f}" for folder in (MINI, SHORT) for row in scores_of(["stsb", "qnli"], folder)}
    finetuning_lr = {"electra": 3e-4, "mlm": 1e-3}
    rows = table(section(read("results.md"), "Learning rates of pretraining"))
    assert len(rows) == 7
    for title, lr, *cells in rows:
        system, (lr, *notes) = SHORT_SYSTEMS[title], lr.split()
        if lr == "1e-3":  # a run of the first comparison
            folder, run = SHORT / f"{system}_11081", f"{system}_11081"
            on_glue = f"grid_{run}_lr{finetuning_lr[system]}"
        else:
            folder, run = MINI / f"pilots/{system}_lr{lr}", f"pilot_{system}_lr{lr}_11081"
            on_glue = f"sensitivity_{run}"
        last = metrics_in(folder)[1][-1]
        assert cells == [f"{last['gen_loss_hidden']:.2f}", without_zero(last["disc_auc"]) if "disc_auc" in last else "",
                         *(["", "", ""] if notes else [f"{f1[f'{run}_100.0%']:.1f}", glue[on_glue, "stsb"], glue[on_glue, "qnli"]])]
    stopped = metrics_in(MINI / "pilots/electra_37000_lr1e-3")[1][-1]
    assert stopped["step"] == 37_000 // 8 and has_sentence(
        read("results.md"), f"with 1e-3 the AUC was {without_zero(stopped['disc_auc'])} after 12.5 %")


def test_scores_of_the_other_learning_rate_equal_their_raw_numbers():
    rows = table(section(read("results.md"), "Masked language modelling with half the learning rate"))
    other = other_rate_runs()
    assert sorted((row["group"], row["task"], row["seed"]) for row in other) == sorted(
        (f"{OTHER_RATE}_{pretraining}_100.0%", task, seed) for pretraining in SEEDS for task in PRIMARY for seed in range(5))
    scores = pd.concat([last_scores(MINI), last_means(other)])
    f1, runs = chunking_f1(), [(system, seed) for system in (MLM, OTHER_RATE) for seed in SEEDS]
    for (lr, shown_seed, *cells), (system, seed) in zip(rows, runs, strict=True):
        config = config_of(system, seed)
        assert (config["lr"], config["seed"], config["steps"]) == (float(lr), int(shown_seed), 45_653)
        assert cells == [f"{metrics_in(MINI / f'{system}_{seed}')[1][-1]['gen_loss_hidden']:.2f}",
                         *cells_with_mean(scores.loc[system, seed]), f"{f1[f'{system}_{seed}_100.0%']:.1f}"]


def test_runs_with_the_other_learning_rate_differ_in_nothing_else():
    for seed in SEEDS:
        assert config_of(OTHER_RATE, seed) == config_of(MLM, seed) | {"base_run_name": OTHER_RATE, "lr": 1e-3}
    finetuned = other_rate_runs() + [row for row in last_runs(MINI) if row["group"].startswith(f"{MLM}_")]
    assert not setting_differences(finetuned, checkpoint_scores(finetuned))


def test_sentences_about_the_other_learning_rate_agree_with_its_scores():
    text = section(read("results.md"), "Masked language modelling with half the learning rate")
    means = pd.concat([last_scores(MINI), last_means(other_rate_runs())]).mean(axis=1)
    gains = means[OTHER_RATE] - means[MLM]
    assert has_sentence(text, f"rises by {gains[11081]:.1f} points with seed 11081, which was trained first, and by {gains[2]:.1f} with "
                              f"seed 2, but falls by {-gains[1]:.1f} with seed 1; the mean over seeds is {means[OTHER_RATE].mean():.1f} "
                              f"instead of {means[MLM].mean():.1f}. This change, {gains.mean():.1f} ± {gains.sem():.1f} (paired by seed)")
    advantage = difference(means, ELECTRA, OTHER_RATE)
    for place in (text, read("results.md").partition("The plan, written down")[0]):
        assert has_sentence(place, f"better by {advantage} points")
    assert has_sentence(read(REPO / "README.md"), f"the difference is then {advantage}, and the interval again includes zero.")
    assert has_sentence(read("results.md"), "three more networks have {:.1f}, {:.1f} and {:.1f}, and".format(*sorted(means[OTHER_RATE])))
    assert has_sentence(text, f"(95 % interval: {interval(means, ELECTRA, OTHER_RATE)})")
    assert means[ELECTRA].min() > means[OTHER_RATE].max() and means[OTHER_RATE].idxmin() == 2
    assert has_sentence(read("results.md"), f"differ by {np.ptp(means[OTHER_RATE]):.1f} points, and the one with seed 2 is again the "
                                            "lowest")


def test_chunking_scores_of_the_other_learning_rate_are_compared_as_they_are():
    text = section(read("results.md"), "Masked language modelling with half the learning rate")
    runs = [(system, seed) for system in (ELECTRA, MLM, OTHER_RATE) for seed in SEEDS]
    test, dev = (pd.Series({(system, seed): found[f"{system}_{seed}_100.0%"] for system, seed in runs}).rename_axis(["system", "seed"])
                 for found in (chunking_f1(), chunking_f1(split="validation")))
    ranges = [f"{extreme(f1[OTHER_RATE] - f1[MLM]):.1f}" for f1 in (test, dev) for extreme in (min, max)]
    assert has_sentence(text, "with every seed, by {} to {} points on the test set and by {} to {} on the dev set".format(*ranges))
    advantage = difference(test, OTHER_RATE, ELECTRA)
    assert has_sentence(text, f"than ELECTRA by {advantage} (test set)")
    assert has_sentence(read(REPO / "README.md"), f"by {difference(test, MLM, ELECTRA)}, and by {advantage} with half the learning rate")


def test_curves_equal_their_raw_numbers():
    runs = {system: [metrics_in(MINI / f"{system}_{seed}")[1] for seed in SEEDS] for system in (ELECTRA, MLM)}
    two_digits = "{:.2f}".format
    columns = [(ELECTRA, "gen_loss_hidden", two_digits), (ELECTRA, "gen_accuracy_hidden", without_zero),
               (ELECTRA, "disc_auc", without_zero), (ELECTRA, "disc_loss", without_zero),
               (MLM, "gen_loss_hidden", two_digits), (MLM, "gen_accuracy_hidden", without_zero)]
    expected = [[", ".join(written(run[i][key]) for run in runs[system]) for system, key, written in columns] for i in range(5)]
    shares = [f"{100 * run['step'] / runs[ELECTRA][0][-1]['step']:.3g} %" for run in runs[ELECTRA][0]]
    assert rows_below("results.md", "Pretraining") == dict(zip(shares, expected, strict=True))
    last = runs[ELECTRA][0][-1]
    below = 7.08 - last["gen_loss_hidden"]
    assert has_sentence(read(REPO / "README.md"), f"is {two_digits(last['gen_loss_hidden'])} nats, {below:.1f} below the unigram entropy, "
                                                  f"and its discriminator's AUC {without_zero(last['disc_auc'])}")


@pytest.mark.parametrize("column, folder", [(-1, MINI / f"{ELECTRA}_11081"), (-2, MINI.parent / "quickstart")])
def test_final_metrics_of_healthy_runs_equal_their_raw_numbers(column, folder):
    last = metrics_in(folder)[1][-1]
    replaced = last["replaced_share"]
    constant = -replaced * math.log(replaced) - (1 - replaced) * math.log(1 - replaced)
    assert [cells[column] for cells in rows_below("results.md", "Is my run healthy?").values()] == [
        f"{last['gen_loss']:.2f}", f"{last['gen_loss_hidden']:.2f}", without_zero(last["gen_accuracy"]),
        f"{without_zero(last['disc_loss'])}, {100 * (1 - last['disc_loss'] / constant):.0f} % below the line",
        without_zero(last["disc_auc"])]


def grid(systems, folder, lrs=(3e-4, 1e-3), seed=11081):
    """{(system, learning rate): scores of the tasks of the primary measure} of the runs that choose the learning rate.

    seed: of pretraining.
    """
    found = {(row["group"], row["task"]): score(row) for row in scores_of(PRIMARY, folder)}
    return {(system, lr): [found[f"grid_{system}_{seed}_lr{lr}", task] for task in PRIMARY] for system in systems for lr in lrs}


def test_scores_of_the_learning_rates_equal_their_raw_numbers():
    scores, text = grid(SYSTEMS.values(), MINI), section(read("results.md"), "Learning rates of finetuning")
    shown = {(SYSTEMS[title], float(lr)): cells for title, lr, *cells in table(text)}
    added = grid([ELECTRA, MLM], MINI, [1e-4, 3e-3])
    assert shown == {key: cells_with_mean(raw) for key, raw in (scores | added).items()}
    low, high = ((sum(scores[ELECTRA, lr]) - sum(scores[MLM, lr])) / 4 for lr in (3e-4, 1e-3))
    low_2, high_2 = (sum(raw) / 4 for raw in grid([MLM], MINI, seed=2).values())
    assert has_sentence(text, f"has a mean of {low_2:.1f} at 3e-4 and of {high_2:.1f} at 1e-3")
    assert has_sentence(text, f"ELECTRA is better, too: by {low:.1f} points at 3e-4 and by {high:.1f} at 1e-3")


@pytest.mark.parametrize("systems, folder", [(SYSTEMS, MINI), (SHORT_SYSTEMS, SHORT)])
def test_systems_are_finetuned_with_the_learning_rate_of_the_higher_mean(systems, folder):
    scores, used = grid(systems.values(), folder), defaultdict(set)
    for row in filter(is_checkpoint, scores_of(PRIMARY, folder)):
        used[next(system for system in systems.values() if row["group"].startswith(f"{system}_"))].add(row["settings"]["lr"])
    assert used == {system: {max((3e-4, 1e-3), key=lambda lr: sum(scores[system, lr]))} for system in systems.values()}


def test_scores_after_finetuning_equal_their_raw_numbers():
    scores, text = last_scores(MINI), section(read("results.md"), "Finetuning")
    shown = {(SYSTEMS[title], int(seed)): cells for title, seed, *cells in table(text)}
    assert shown == {key: cells_with_mean(scores.loc[key]) for key in scores.index}
    means = scores.mean(axis=1)
    electra, mlm = means[ELECTRA], means[MLM]
    assert electra.min() > mlm.max() and (scores.loc[ELECTRA].min() > scores.loc[MLM].max())[["STS-B", "QNLI", "MNLI"]].all()
    assert has_sentence(text, f"reaches {interval(means, ELECTRA, MLM)} points") and has_sentence(
        text, f"differ by {np.ptp(mlm):.1f} points, those of ELECTRA by {np.ptp(electra):.1f}")
    laptop = section(read(REPO / "README.md"), "An ELECTRA for a laptop")
    assert has_sentence(laptop, f"{interval(means, ELECTRA, MLM)} points, includes zero") and has_sentence(
        laptop, f"Every ELECTRA ({electra.min():.1f} to {electra.max():.1f}) is better than every masked language model "
                "({:.1f}, {:.1f} and {:.1f})".format(*sorted(mlm)))
    assert has_sentence(read("results.md"), f"without it the difference is {electra.mean() - mlm.drop(2).mean():.1f}.")
    for place in (text, section(read("results.md"), "ELECTRA and masked language modelling at equal compute"), laptop):
        assert has_sentence(place, f"better by {difference(means, ELECTRA, MLM)} points")
    gains = {task: difference(scores[task], ELECTRA, MLM) for task in scores.columns}
    assert has_sentence(text, "by {STS-B} on STS-B, which makes up more than half of the mean difference, by {QNLI} on QNLI, by {MNLI} on "
                              "MNLI and by {CoLA} on CoLA.".format(**gains))
    weak, untrained = scores.loc[(MLM, 2)], scores.loc[("untrained", 11081)]
    worst = min(score(row) for row in last_runs(MINI) if row["task"] == "mnli" and row["group"] == f"{MLM}_2_100.0%")
    assert has_sentence(text, f"on QNLI ({weak['QNLI']:.1f}, {untrained['QNLI']:.1f}), no better on MNLI ({weak['MNLI']:.1f}, "
                              f"{untrained['MNLI']:.1f}; one of its five runs has only {worst:.1f})")
    assert has_sentence(read("results.md"), f"only {weak.mean() - untrained.mean():.1f} points better on this measure")
    cola = {system: [score(row) for row in last_runs(MINI) if row["task"] == "cola" and row["group"].startswith(f"{system}_")]
            for system in (ELECTRA, MLM)}
    extremes = [extreme(cola[system]) for system in (ELECTRA, MLM) for extreme in (min, max)]
    assert has_sentence(text, "between {:.1f}, a constant prediction, and {:.1f}, those of the masked language model between {:.1f} and "
                              "{:.1f}.".format(*extremes))


def test_scores_of_sst2_and_mrpc_equal_their_raw_numbers():
    found = {(row["group"], row["task"]): f"{score(row):.1f}" for row in scores_of(["sst2", "mrpc"])}
    rows = table(section(read("results.md"), "Finetuning").partition("SST-2 (10,000 training rows)")[2])
    assert len(rows) == len(found) // 2 == 2 * len(SEEDS) + 1
    for title, seed, *cells in rows:
        assert cells == [found[f"{SYSTEMS[title]}_{seed}_100.0%", task] for task in ("sst2", "mrpc")]


def test_scores_during_the_training_equal_their_raw_numbers():
    cells = defaultdict(list)
    for tasks in (PRIMARY, ["chunking"]):
        scores = checkpoint_scores(list(filter(is_checkpoint, scores_of(tasks)))).mean(axis=1).droplevel("run")
        for percent, found in compare(scores, [ELECTRA, MLM]).iterrows():
            by_seed = [[scores[system, seed, percent] for seed in SEEDS] for system in (ELECTRA, MLM)]
            cells[f"{percent:g} %"] += [*(", ".join(map("{:.1f}".format, of_system)) for of_system in by_seed),
                                        with_error(found[f"{ELECTRA} - {MLM}"], found[f"{ELECTRA} - {MLM}, s.e."])]
    assert rows_below("results.md", "During the training") == cells


def chunking_table(heading, systems, folder):
    """DataFrame (system, seed) of the F1 on the test set that a section shows in its last two columns; it equals the raw scores."""
    rows, found = table(section(read("results.md"), heading)), chunking_f1(folder)
    f1 = pd.DataFrame([{"system": systems[title], "seed": seed, "finetuned": found[f"{systems[title]}_{seed}_100.0%"],
                        "frozen": found[f"chunking_frozen_{systems[title]}_{seed}"]} for title, seed, *_ in rows])
    assert [cells[-2:] for cells in rows] == f1[["finetuned", "frozen"]].map("{:.1f}".format).values.tolist()
    return f1.set_index(["system", "seed"])


def test_chunking_scores_equal_their_raw_numbers():
    f1 = chunking_table("Chunking", SYSTEMS, MINI)
    assert has_sentence(read("results.md"), f"by {difference(f1['finetuned'], MLM, ELECTRA)} points finetuned and by "
                                            f"{difference(f1['frozen'], MLM, ELECTRA)} frozen")
    pretrained, [untrained] = f1.drop(index="untrained")["finetuned"], f1.loc["untrained", "finetuned"]
    assert has_sentence(read("own_tasks.md"), f"`mini` has {untrained:.1f} without pretraining, and its models pretrained on Wikipedia "
                                              f"[reach {pretrained.min():.1f} to {pretrained.max():.1f}]")


def test_scores_in_the_readme_are_means_of_those_on_the_results_page():
    scores = last_scores(MINI).groupby("system").mean()
    f1 = chunking_table("Chunking", SYSTEMS, MINI).groupby("system").mean()
    labels = {"none": "untrained", "ELECTRA, 152 million tokens": ELECTRA, "masked language modelling, 187 million tokens": MLM}
    assert rows_below(REPO / "README.md", "An ELECTRA for a laptop") == {
        label: [*cells_with_mean(scores.loc[system]), *f1.loc[system].map("{:.1f}".format)] for label, system in labels.items()}


def test_scores_of_the_first_comparison_equal_their_raw_numbers():
    heading, scores = "The first comparison: a sixth of the tokens", last_scores(SHORT)
    chunking_table(heading, SHORT_SYSTEMS, SHORT)
    text = section(read("results.md"), heading)
    assert {(SHORT_SYSTEMS[title], int(seed)): cells[:5] for title, seed, *cells in table(text)} == {
        key: cells_with_mean(scores.loc[key]) for key in scores.index}
    assert has_sentence(text, f"by {difference(scores.mean(axis=1), 'mlm', 'electra')} (standard error")
    low, high = (sum(grid(["mlm"], SHORT)["mlm", lr]) / 4 for lr in (3e-4, 1e-3))
    assert has_sentence(text, f"by {max(low, high):.2f} to {min(low, high):.2f}")


def test_steps_of_equal_compute_are_those_of_the_commands(capsys):
    [lines] = [block for block in re.findall(r"```python\n(.*?)```", read("results.md"), re.S) if "steps_of_equal_compute" in block]
    exec(lines, {})
    assert f"objective=mlm electra_mask_style=False steps={capsys.readouterr().out.strip()} " in read("results.md")
