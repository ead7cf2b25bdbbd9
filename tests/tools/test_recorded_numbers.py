"""Numbers in the documents against the files in benchmarks/results that they come from."""
import json
import math
import re

import pandas as pd
import pytest
from documents import REPO, has_sentence, read, rows_below, section, table

from _utils.commands.minimal_pairs import summarize
from _utils.glue.runs import read_scores
from _utils.glue.tasks import AVERAGED_TASKS, PUBLISHED


def test_published_scores_are_those_that_reports_show():
    rows = rows_below("results.md", "Published scores")
    for name, scores in PUBLISHED.items():
        assert [float(cell) for cell in rows[name.strip()][:8]] == [scores[task] for task in AVERAGED_TASKS]


def test_results_of_the_readme_are_those_of_the_results_page():
    rows, own = rows_below("results.md", "Published scores"), rows_below(REPO / "README.md", "Results")
    label = lambda name: next(known for known in rows if known.startswith(name))
    assert len(own) == 4 and all(cells == rows[label(name)] for name, cells in own.items())


def accuracies(file):
    return pd.read_csv(REPO / f"benchmarks/results/{file}.csv", index_col=["field", "phenomenon", "paradigm"])


def test_accuracies_on_minimal_pairs_equal_their_raw_numbers():
    found = []
    for name in ("quickstart", "mini"):
        paradigms = accuracies(f"minimal_pairs_{name}")
        means, errors = summarize(paradigms)
        found.append([[f"{mean:.1f} ± {error:.1f}" for mean, error in zip(*rows)] for rows in zip(means.to_numpy(), errors.to_numpy())])
    assert list(rows_below("probes.md", "Measurements").values()) == [first + second for first, second in zip(*found, strict=True)]
    mlm = "masked language model"
    differences = [paradigms[name] - paradigms[f"{name}, untrained"] for name in ("ELECTRA", mlm)]  # the last file is that of mini
    assert re.findall(r"([\d.]+) ± ([\d.]+) (?:points )?better", section(read("probes.md"), "Measurements")) == [
        (f"{by_paradigm.mean():.1f}", f"{by_paradigm.sem():.1f}") for by_paradigm in differences]


def test_accuracies_of_all_pretraining_seeds_equal_their_raw_numbers():
    first, others = (accuracies(f"minimal_pairs_{name}") for name in ("mini", "mini_seeds"))
    electra, mlm = (pd.DataFrame({"11081": first[system], **{seed: others[f"{system}, seed {seed}"] for seed in "12"}})
                    for system in ("ELECTRA", "masked language model"))  # rows: paradigms, columns: pretraining seeds
    text = section(read("probes.md"), "Measurements").partition("Overall, for three pretraining seeds")[2]
    assert table(text) == [[seed, *(f"{found[seed].mean():.1f} ± {found[seed].sem():.1f}" for found in (electra, mlm))] for seed in electra]
    gains = mlm.mean(axis=1) - electra.mean(axis=1)
    electra, mlm = electra.mean(), mlm.mean()
    numbers = gains.mean(), math.hypot(electra.sem(), mlm.sem()), gains.sem()
    assert mlm.min() > electra.max() and has_sentence(
        text, "by {:.1f} points; the standard error is {:.1f} over pretraining seeds, but {:.1f} over paradigms".format(*numbers))
    assert has_sentence(read("results.md"), f"score {mlm.min():.1f} to {mlm.max():.1f} and the discriminators {electra.min():.1f} to "
                                            f"{electra.max():.1f}")


def test_chunking_scores_equal_their_raw_numbers():
    runs = read_scores(REPO / "benchmarks/results/conll2000.jsonl")
    found = {}
    for row in runs:
        found.setdefault(row["group"].removesuffix("_frozen"), {}).setdefault(row["settings"]["freeze"], []).append(
            f"{100 * row['scores']['test']['entity_f1']:.1f}")
    cells = [(", ".join(scores[False]), ", ".join(scores.get(True, []))) for scores in found.values()]
    rows = table(section(read("own_tasks.md"), "CoNLL-2000 chunking"))
    assert [(finetuned, probe) for _, _, finetuned, probe in rows] == cells


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
