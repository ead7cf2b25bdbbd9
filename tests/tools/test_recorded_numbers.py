"""Numbers in the documents against the files in benchmarks/results that they come from."""
import json
import re
from collections import defaultdict

import pandas as pd
import pytest
from documents import REPO, read, rows_below, section, table

from _utils.compare_pretraining import checkpoint_scores, compare
from _utils.glue.runs import read_scores, score
from _utils.glue.tasks import AVERAGED_TASKS, PUBLISHED
from _utils.minimal_pairs.results import summarize
from _utils.run_files.run_log import read_metrics

MINI = REPO / "benchmarks/results/mini"
SYSTEMS = {"ELECTRA": "electra", "masked language model": "mlm", "not pretrained": "untrained"}
PRIMARY = ("cola", "stsb", "qnli", "mnli")  # tasks of the primary measure


def test_published_scores_are_those_that_reports_show():
    rows = rows_below("results.md", "Published scores")
    for name, scores in PUBLISHED.items():
        assert [float(cell) for cell in rows[name.strip()][:8]] == [scores[task] for task in AVERAGED_TASKS]


def test_results_of_the_readme_are_those_of_the_results_page():
    rows, own = rows_below("results.md", "Published scores"), rows_below(REPO / "README.md", "Results")
    label = lambda name: next(known for known in rows if known.startswith(name))
    assert len(own) == 4 and all(cells == rows[label(name)] for name, cells in own.items())


@pytest.mark.parametrize("line, pilot", enumerate([
    "p1_drop0_std02_bc", "p3_drop1_std02_bc", "p2_drop0_std02", "p4_sinusoidal_drop0_std02_bc", "r1_rotary_drop0_bc",
    "r2_rotary_warmup300", "r3_rotary_warmup300_lr5e4", "r4_rotary_warmup1000"]))
def test_losses_of_pilots_equal_their_raw_numbers(line, pilot):
    _, _, _, _, *losses, held_out = table(section(read("results.md"), "Pilots: the unigram plateau"))[line]
    train, found = metrics_of_pilot(pilot)
    assert losses == [f"{train[step]['gen_loss']:.2f}" if step in train else "" for step in (300, 450, 600, 900, 1125, 1875, 2550, 3000)]
    assert held_out == (f"{found[-1]['gen_loss']:.2f}" if found else "")


@pytest.mark.parametrize("line, pilot", enumerate(["e2_electra_rotary_drop0_bc", "e3_electra_rotary_warmup1000"]))
def test_pilots_of_electra_equal_their_raw_numbers(line, pilot):
    cells = table(section(read("results.md"), "Pilots: the unigram plateau").partition("The same for ELECTRA")[2])[line]
    train, found = metrics_of_pilot(pilot)
    rows = [*(train.get(step) for step in (450, 600, 900)), *(found or [None])]
    losses = [f"{row['gen_loss_hidden']:.2f}" if row else "" for row in rows]
    aucs = [f"{row['disc_auc']:.3f}".lstrip("0") if row else "" for row in rows]
    assert cells[4:] == losses + aucs


def test_pilots_of_the_learning_rate_equal_their_raw_numbers():
    f1 = {row["group"]: 100 * row["scores"]["validation"]["entity_f1"] for row in chunking_rows()}
    rows = table(section(read("results.md"), "Learning rates of pretraining"))
    assert len(rows) == 7
    for system, lr, *cells in rows:
        name = f"{SYSTEMS[system]}_lr{lr.split()[0]}"
        last = metrics_of_pilot(f"../{SYSTEMS[system]}_11081" if lr == "1e-3" else name)[1][-1]
        assert cells == [f"{last['gen_loss_hidden']:.2f}", f"{last['disc_auc']:.3f}".lstrip("0") if "disc_auc" in last else "",
                         f"{f1[f'pilot_{name}_11081_100.0%' if lr != '1e-3' else f'{SYSTEMS[system]}_11081_100.0%']:.1f}"
                         if "stopped" not in lr else ""]
    stopped = metrics_of_pilot("electra_37000_lr1e-3")[1][-1]
    assert stopped["step"] == 37_000 // 8 and f"was {stopped['disc_auc']:.3f} ".replace("0.", ".") in read("results.md")


def test_chunking_of_the_long_runs_equals_its_raw_numbers():
    rows = [row for row in read_scores(MINI / "long/scores.jsonl") if row["task"] == "chunking"]
    f1 = checkpoint_scores(rows)["chunking"].droplevel("run")
    text = section(read("results.md"), "A run six times as long")
    assert {share: cells for share, *cells in table(text)} == {
        f"{percent:g} %": [f"{f1[key]:.1f}" if (key := (f"{system}_150m", 11081, percent)) in f1 else "not measured yet"
                           for system in ("electra", "mlm")] for percent in (6.25, 12.5, 25., 50., 100.)}
    assert f"not pretrained has {f1['untrained', 11081, 100.]:.1f}." in text


def metrics_of_pilot(pilot):
    """({step: training metrics}, held-out metrics)."""
    file = MINI / f"pilots/{pilot}/metrics.jsonl"
    return {row["step"]: row for row in read_metrics(file, "train")}, read_metrics(file, "held_out")


def test_curves_of_mini_equal_their_raw_numbers():
    runs = {system: [read_metrics(file, "held_out") for file in sorted(MINI.glob(f"{system}_*/metrics.jsonl"), reverse=True)]
            for system in ("electra", "mlm")}
    short = lambda number: f"{number:.3f}".lstrip("0")
    columns = [("electra", "gen_loss_hidden", "{:.2f}".format), ("electra", "gen_accuracy_hidden", short), ("electra", "disc_auc", short),
               ("electra", "disc_loss", short), ("mlm", "gen_loss_hidden", "{:.2f}".format), ("mlm", "gen_accuracy_hidden", short)]
    expected = [[", ".join(written(run[i][key]) for run in runs[system]) for system, key, written in columns] for i in range(5)]
    shares = [f"{100 * run['step'] / runs['electra'][0][-1]['step']:g} %" for run in runs["electra"][0]]
    assert rows_below("results.md", "Pretraining") == dict(zip(shares, expected, strict=True))
    last = runs["electra"][0][-1]
    healthy = [others[-1].split(",")[0] for others in rows_below("results.md", "Is my run healthy?").values()]
    assert healthy == [f"{last['gen_loss']:.2f}", f"{last['gen_loss_hidden']:.2f}", short(last["gen_accuracy"]), short(last["disc_loss"]),
                       short(last["disc_auc"])]


def test_scores_of_the_learning_rates_equal_their_raw_numbers():
    found = {(row["group"], row["task"]): score(row) for row in read_scores(MINI / "scores.jsonl")}
    rows = table(section(read("results.md"), "Learning rates"))
    assert len(rows) == 6
    best = {system: max((sum(found[f"grid_{key}_11081_lr{lr}", task] for task in PRIMARY), lr)
                        for lr in (3e-4, 1e-3))[1] for system, key in SYSTEMS.items()}
    assert best == {"ELECTRA": 3e-4, "masked language model": 1e-3, "not pretrained": 1e-3}
    for system, lr, *scores in rows:
        raw = [found[f"grid_{SYSTEMS[system]}_11081_lr{float(lr)}", task] for task in PRIMARY]
        assert scores == [f"{number:.1f}" for number in (*raw, sum(raw) / 4)]


def test_scores_after_finetuning_equal_their_raw_numbers():
    rows = [row for row in read_scores(MINI / "scores.jsonl") if row["task"] in PRIMARY]
    scores = checkpoint_scores(rows)[["CoLA", "STS-B", "QNLI", "MNLI"]]
    last = scores.xs(100., level="percent").droplevel("run")
    text = section(read("results.md"), "Finetuning")
    shown = {(SYSTEMS[system], int(seed)): cells for system, seed, *cells in table(text)}
    assert shown == {key: [f"{score:.1f}" for score in (*last.loc[key], last.loc[key].mean())] for key in last.index}
    found = compare(scores.mean(axis=1), ["electra", "mlm"]).loc[100.]
    assert re.findall(r"(-?[\d.]+) ± ([\d.]+)", text) == [
        (f"{found[name]:.1f}", f"{found[f'{name}, s.e.']:.1f}") for name in ("electra", "mlm", "electra - mlm")]
    gain = f"{-found['electra - mlm']:.1f} ± {found['electra - mlm, s.e.']:.1f}"
    assert all(gain in " ".join(read(page).split()) for page in (REPO / "README.md", "results.md"))
    seeds, lrs = defaultdict(set), defaultdict(set)
    for row in rows:
        if row["group"].endswith("_100.0%"):
            seeds[row["group"], row["task"]].add(row["seed"])
            lrs[row["group"].split("_")[0]].add(row["settings"]["lr"])
    [shared] = {frozenset(found) for found in seeds.values()}
    assert f"seeds 0 to {max(shared)}" in text and shared == set(range(max(shared) + 1))
    assert lrs.items() <= {"electra": {3e-4}, "mlm": {1e-3}, "untrained": {1e-3}}.items()


def chunking_rows():
    return [row for row in read_scores(MINI / "scores.jsonl") if row["task"] == "chunking"]


def test_chunking_scores_of_mini_equal_their_raw_numbers():
    text = section(read("results.md"), "Chunking")
    found = {row["group"]: 100 * row["scores"]["test"]["entity_f1"] for row in chunking_rows()}
    f1 = pd.DataFrame([{"system": SYSTEMS[system], "finetuned": found[f"{SYSTEMS[system]}_{seed}_100.0%"],
                        "frozen": found[f"chunking_frozen_{SYSTEMS[system]}_{seed}"]} for system, seed, *_ in table(text)])
    assert [cells for _, _, *cells in table(text)] == f1[["finetuned", "frozen"]].map("{:.1f}".format).values.tolist()
    mean, error = f1.groupby("system").mean(), f1.groupby("system").sem()
    gain, error = mean.loc["mlm"] - mean.loc["electra"], (error.loc["mlm"] ** 2 + error.loc["electra"] ** 2) ** .5
    assert re.findall(r"([\d.]+) ± ([\d.]+)", text) == [(f"{gain[kind]:.2f}", f"{error[kind]:.2f}") for kind in ("finetuned", "frozen")]
    assert rows_below(REPO / "README.md", "An ELECTRA for a laptop") == dict(zip(
        ("none", "ELECTRA, 25 million tokens", "masked language modelling, 30 million tokens"),
        mean.loc[["untrained", "electra", "mlm"]].map("{:.1f}".format).values.tolist(), strict=True))
    pretrained = f1.loc[f1["system"] != "untrained", "finetuned"]
    assert f"reach {pretrained.min():.1f} to {pretrained.max():.1f}]" in read("own_tasks.md")


def test_chunking_during_the_training_equals_its_raw_numbers():
    f1 = checkpoint_scores(chunking_rows())["chunking"].droplevel("run")
    found = compare(f1, ["electra", "mlm"])
    shown = rows_below("results.md", "Chunking during the training")
    assert shown == {f"{percent:g} %": [
        *(", ".join(f"{f1[system, seed, percent]:.1f}" for seed in (11081, 1)) for system in ("electra", "mlm")),
        f"{row['electra - mlm']:.1f} ± {row['electra - mlm, s.e.']:.1f}"] for percent, row in found.iterrows()}


def test_accuracies_on_minimal_pairs_equal_their_raw_numbers():
    found = []
    for name in ("quickstart", "mini"):
        paradigms = pd.read_csv(REPO / f"benchmarks/results/minimal_pairs_{name}.csv", index_col=["field", "phenomenon", "paradigm"])
        means, errors = summarize(paradigms)
        found.append([[f"{mean:.1f} ± {error:.1f}" for mean, error in zip(*rows)] for rows in zip(means.to_numpy(), errors.to_numpy())])
    assert list(rows_below("probes.md", "Measurements").values()) == [first + second for first, second in zip(*found, strict=True)]


def test_chunking_scores_equal_their_raw_numbers():
    runs = read_scores(REPO / "benchmarks/results/conll2000.jsonl")
    found = {}
    for row in runs:
        found.setdefault(row["group"].removesuffix("_frozen"), {}).setdefault(row["settings"]["freeze"], []).append(
            f"{100 * row['scores']['test']['entity_f1']:.1f}")
    cells = [(", ".join(scores[False]), ", ".join(scores.get(True, []))) for scores in found.values()]
    rows = table(section(read("own_tasks.md"), "CoNLL-2000 chunking"))
    assert [(finetuned, probe) for _, _, finetuned, probe in rows] == cells


def test_steps_of_equal_compute_are_those_of_the_commands(capsys):
    [lines] = [block for block in re.findall(r"```python\n(.*?)```", read("results.md"), re.S) if "steps_of_equal_compute" in block]
    exec(lines, {})
    assert f"objective=mlm electra_mask_style=False steps={capsys.readouterr().out.strip()} " in read("results.md")


@pytest.mark.parametrize("heading, file", [("On a CPU with bf16 arithmetic", "pretraining_small_cpu_avx512"),
                                           ("On an older CPU", "pretraining_small_cpu")])
def test_pretraining_speed_equals_its_raw_numbers(heading, file):
    rows = rows_below("speed.md", heading)
    measured = json.loads((REPO / f"benchmarks/results/{file}.json").read_text())["rows"]
    assert len(rows) == len(measured) in (2, 4)
    for (ms, tokens, speedup, peak, share), numbers in zip(rows.values(), measured.values()):
        assert [float(cell.replace(",", "").removesuffix(" MB")) for cell in (ms, tokens, peak)] == \
            [round(numbers[key]) for key in ("ms/step", "tokens/s", "peak MB")]
        assert float(speedup) == pytest.approx(numbers["ratio to reference fp32"], abs=.0051)
        assert float(share) == pytest.approx(numbers["share of matmul throughput"], abs=.0051)


def test_operator_counts_equal_their_raw_numbers():
    measured = json.loads((REPO / "benchmarks/results/operators_small_default.json").read_text())
    counts = [int(cells[-1].replace(",", "")) for cells in rows_below("speed.md", "The training step on a GPU").values()]
    assert counts == [measured["rows"]["step"]["operators"], measured["by_name"]["_to_copy"]]


def test_finetuning_speed_equals_its_raw_numbers():
    rows = rows_below("speed.md", "Finetuning")
    measured = json.loads((REPO / "benchmarks/results/finetuning_small_cpu.json").read_text())["rows"]
    for (per_second, speedup), numbers in zip(rows.values(), measured.values()):
        assert float(per_second) == pytest.approx(numbers["rows/s"], abs=.051)
        assert float(speedup) == pytest.approx(numbers["ratio"], abs=.0051)
