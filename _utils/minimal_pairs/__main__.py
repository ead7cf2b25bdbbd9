"""Score minimal pairs with pretrained networks: `python -m _utils.minimal_pairs CHECKPOINT [CHECKPOINT ...] PATH`.

PATH is a folder of .jsonl files in the layout of BLiMP (Warstadt et al. 2020), or one file. A checkpoint is correct on a pair if it gives
the acceptable sentence the higher score; no training is involved.
"""
import argparse
import os

from _utils.errors import print_plain_errors
from _utils.minimal_pairs.pairs import read_pairs
from _utils.minimal_pairs.results import accuracy_by_paradigm, report, summarize
from _utils.minimal_pairs.scores import encode, score
from _utils.networks import PARTS, build_network, load_with_head
from _utils.plots import plot_minimal_pairs, save_plot
from _utils.run_files.checkpoints import check_output, write_atomically
from _utils.training.device import choose_device
from _utils.training.seeds import set_seed


def main(arguments=None):
    options = parse(arguments)
    check_output("--plot", options.plot, ".png")
    check_output("--csv", options.csv, ".csv")
    device = choose_device(options.device)
    pairs = read_pairs(options.path)
    models = load_models(options.checkpoints, options.part, options.seed if options.untrained else None)
    encoded = {name: encode([*pairs["good"], *pairs["bad"]], model, name) for name, model in models.items()}
    scores = {name: score(model, encoded[name], device, name) for name, model in models.items()}
    paradigms = accuracy_by_paradigm(pairs, scores)
    print(report(paradigms))
    write_atomically(options.csv, lambda file: paradigms.round(3).to_csv(file))
    save_plot(plot_minimal_pairs(*summarize(paradigms)), options.plot)
    print(f"Plot: {options.plot}. Accuracy by paradigm: {options.csv}")


def parse(arguments):
    parser = argparse.ArgumentParser(prog="python -m _utils.minimal_pairs", description=__doc__.split("\n")[0])
    parser.add_argument("checkpoints", metavar="CHECKPOINT", nargs="+",
                        help="a checkpoint of pretrain.py, a transformers folder or a hub id, with the head of the pretraining")
    parser.add_argument("path", metavar="PATH", help="a folder of .jsonl files in the layout of BLiMP, or one file")
    parser.add_argument("--part", choices=PARTS, help="network to score; default: the discriminator if there is one")
    parser.add_argument("--untrained", action="store_true", help="also score each architecture with random weights")
    parser.add_argument("--seed", type=int, default=0, help="random seed of --untrained")
    parser.add_argument("--device", help="default: the first GPU, else the CPU")
    parser.add_argument("--plot", metavar="FILE.png", default="checkpoints/minimal_pairs.png", help="default: %(default)s")
    parser.add_argument("--csv", metavar="FILE.csv", default="checkpoints/minimal_pairs.csv",
                        help="accuracy by paradigm; default: %(default)s")
    return parser.parse_intermixed_args(arguments)


def load_models(names, part=None, untrained_seed=None):
    """{name for the tables: WithHead} of checkpoints. untrained_seed: add each architecture with random weights; None: do not."""
    models = {}
    for name, title in titles(names).items():
        models[title] = model = load_with_head(name, part)
        if untrained_seed is not None:
            set_seed(untrained_seed)
            models[f"{title}, untrained"] = model._replace(network=build_network(model.part, model.network.config))
    return models


def titles(names):
    """{checkpoint: its file name without .pth}, or the checkpoint as given if several have that file name or it is not a .pth file."""
    short = {name: os.path.basename(name).removesuffix(".pth") if name.endswith(".pth") else name for name in names}
    return {name: title if [*short.values()].count(title) == 1 else name for name, title in short.items()}


if __name__ == "__main__":
    print_plain_errors()
    main()
