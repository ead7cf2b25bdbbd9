"""Whole runs beside runs of Google's code: the total loss in means over 100 steps.

    python -m benchmarks.google_curve curve=PATH books=PATH [vocab=PATH] [objective=electra] [seeds=1,2,3]

curve: a folder with run_1.txt, run_2.txt ... of Google's code, each with a line "step loss" per step.   vocab: their
vocab.txt; default: that in `curve`.   books: their text as an .xz file, of which the first 9 MB are used.   seeds: of
the runs of pretrain.py and of their examples.

The discriminator has 3 layers x 128; a step has 48 x 32 tokens. With objective=electra it is the generator, too (F91),
and a quarter of the tokens are masked; with objective=electric there are two towers of 3 layers x 64, and 15% are.
Google's runs of ELECTRA end before the schedule does, so these stop there too. Each run takes about ten minutes on one
core; rerun the command to resume.
The means are added to those in means.csv in benchmarks/results/google_curve (google_curve_electric), and drawn.
`compare` has the statistics of docs/log.md.
"""
import lzma
import sys
from itertools import combinations
from pathlib import Path
from typing import Literal

import pandas as pd
from matplotlib.figure import Figure

import pretrain
from _utils.config import complete
from _utils.errors import UserError
from _utils.keys import Index, Text, list_of
from _utils.plots import BLUE
from _utils.runs import RunFolder, read_metrics
from benchmarks.report import RESULTS, parse

DEFAULTS = {
    "curve": "../shared/golden/official/curve",
    "vocab": None,
    "objective": "electra",
    "books": "../shared/data/books/books-0.txt.xz",
    "seeds": [1, 2, 3],
}
NETWORK = {
    "model_type": "electra",
    "hidden_size": 128,
    "embedding_size": 128,
    "num_hidden_layers": 3,
    "num_attention_heads": 2,
    "intermediate_size": 512,
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
}
SETTINGS = {
    "generator": NETWORK,
    "discriminator": NETWORK,
    "tying": "all",
    "masking": "official",
    "initial_weights": "official",
    "mask_prob": 0.25,
    "disc_weight": 5.0,
    "lr": 2e-3,
    "warmup_steps": 150,
    "steps": 3000,
    "bs": 48,
    "max_length": 32,
    "long_lines": "truncate",
    "precision": "fp32",
    "micro_batch": 48,
    "device": "cpu",
    "num_workers": 0,
    "logger": None,
    "milestones": [100.0],
}
SYSTEMS = {
    "electra": ("google_curve", SETTINGS),
    "electric": (
        "google_curve_electric",
        SETTINGS
        | {
            "objective": "electric",
            "generator": NETWORK | {"hidden_size": 64, "num_attention_heads": 1, "intermediate_size": 256},
            "tying": "embeddings",
            "mask_prob": 0.15,
            "disc_weight": 50.0,
        },
    ),
}  # {objective: (name of the runs, their settings)}
TYPES = {"curve": Text, "vocab": Text | None, "objective": Literal[tuple(SYSTEMS)], "books": Text,
         "seeds": list_of(Index, "a list of seeds")}
WINDOW = 100  # steps
LAST = 1900   # the last window of both of Google's runs
LEFT = 7.45   # the plateau at 7.55 is left in the first window whose mean is below


def write_text(books, path):
    """Write the text of Google's runs: 8.7 million characters in 499 documents."""
    with lzma.open(books) as file:
        text = file.read(9_000_000).decode(errors="ignore")  # the last character may be incomplete
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text[:text.rindex("\n\n") + 1], encoding="utf-8")


def configuration(text, vocab, seed, stop_at, objective="electra"):
    """The complete configuration of a run."""
    name, settings = SYSTEMS[objective]
    of_run = {
        "base_run_name": name,
        "seed": seed,
        "data_seed": seed,
        "datas": [str(text)],
        "vocab": str(vocab),
        "stop_at": stop_at,
    }
    return complete(pretrain.c.copy_with({**settings, **of_run}))


def google_losses(curve):
    """{run: losses by step} of the files in a folder."""
    files = sorted(Path(curve).glob("run_*.txt"))
    if not files:
        raise UserError(f"No run_*.txt in {str(curve)!r}. Set curve to the folder with the losses of Google's runs.")
    return {f"google_{file.stem[4:]}": pd.read_csv(file, sep=" ", index_col=0, header=None)[1] for file in files}


def losses(run):
    """The losses of a RunFolder by step: those of a row of metrics.jsonl for each of its steps."""
    rows = pd.DataFrame(read_metrics(run.folder / "metrics.jsonl", "train")).set_index("step")["loss"]
    return rows.reindex(range(1, rows.index[-1] + 1)).bfill()


def window_means(losses):
    """Means of complete windows; the index is the last step of each."""
    complete = losses[:len(losses) // WINDOW * WINDOW]
    return complete.groupby((complete.index - 1) // WINDOW * WINDOW + WINDOW).mean()


def left_plateau(means):
    """Last step of the first window in which the loss is below the plateau; None if no window is."""
    return next((step for step, mean in means.items() if mean < LEFT), None)


def compare(values):
    """(sum of the ranks of Google's runs, one-sided probability that as many runs chosen at random rank as low).

    values: Series with a number for each run. Equal ones share their mean rank.
    """
    ranks = values.rank()
    is_google = ranks.index.str.startswith("google")
    found = ranks[is_google].sum()
    sums = [sum(chosen) for chosen in combinations(ranks, is_google.sum())]
    return found, sum(one <= found for one in sums) / len(sums)


def plot(table):
    """The columns of means.csv as lines, each point in the middle of its window."""
    figure = Figure(figsize=(7, 3.6), layout="constrained")
    axis = figure.subplots()
    for name, means in table.items():
        is_google = name.startswith("google")
        axis.plot(table.index - WINDOW / 2, means, color="black" if is_google else BLUE, lw=1.6 if is_google else 1)
    axis.plot([], color="black", label="Google's code")
    axis.plot([], color=BLUE, label="pretrain.py, by seed")
    axis.set(xlabel="step", ylabel="total loss, mean of 100 steps", ylim=(None, 1.01 * table.iloc[1:].max(axis=None)))
    axis.legend(frameon=False)
    return figure


def main(arguments):
    given = parse(arguments, DEFAULTS, TYPES)
    google, (name, _) = google_losses(given.curve), SYSTEMS[given.objective]
    text, vocab = Path("datasets/google_curve.txt"), given.vocab or Path(given.curve) / "vocab.txt"
    write_text(given.books, text)
    runs = dict(google)
    for seed in given.seeds:
        pretrain.pretrain(configuration(text, vocab, seed, max(map(len, google.values())), given.objective))
        runs[f"seed_{seed}"] = losses(RunFolder(name, seed))
    new = pd.DataFrame({name: window_means(of_run) for name, of_run in runs.items()}).rename_axis("step").round(4)
    folder = RESULTS / name
    folder.mkdir(exist_ok=True)
    path = folder / "means.csv"
    earlier = pd.read_csv(path, index_col="step").drop(columns=new.columns, errors="ignore") if path.exists() else None
    table = new.join(earlier, how="outer") if earlier is not None else new
    table = table[sorted(table, key=lambda name: (name.split("_")[0], int(name.split("_")[1])))]
    table.to_csv(path)
    plot(table).savefig(folder / "curve.png", dpi=100)
    print(table.to_string(na_rep="", float_format="{:.3f}".format))
    if given.objective == "electra":
        report_plateau(table)


def report_plateau(table):
    """Print when each run leaves the plateau, and the ranks of docs/log.md."""
    left = pd.Series({name: left_plateau(means) for name, means in table.items()}, dtype=float)
    print("plateau left by step:", left.to_dict())
    print("ranks of these steps:", compare(left.fillna(float("inf"))))
    print("ranks of the last loss of all of Google's runs:", compare(table.loc[LAST].dropna()))


if __name__ == "__main__":
    main(sys.argv[1:])
