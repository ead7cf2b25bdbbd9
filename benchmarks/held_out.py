"""Held-out metrics of checkpoints of pretrain.py with several seeds: how much they depend on the masks and samples of
one evaluation.

    python -m benchmarks.held_out [checkpoints=NAME.pth,...] [seeds=0,1,2] [csv=checkpoints/held_out.csv] [key=value
    ...]

The other keys are those of pretrain.py. Their default is the value with which the first checkpoint was trained, except
for those of the machine: device, precision, micro_batch, compile and num_workers. With the seed, device, precision and
micro-batch of a run, its own held-out metrics come out again, except those of a short run, which evaluates fewer
batches.
"""
import sys

import pandas as pd
import torch

import pretrain
from _utils.errors import UserError
from _utils.files import write_atomically
from _utils.keys import PRETRAIN_KEYS, Index, list_of
from _utils.names import find_checkpoint
from _utils.networks.pretrained import load_weights
from _utils.runs.checkpoints import load_pretraining_checkpoint
from _utils.training.device import choose_device
from _utils.training.metrics import evaluate
from _utils.training.pretraining_run import fit_to_hardware
from _utils.training.processes import Processes
from benchmarks.report import check_output, parse

DEFAULTS = {"checkpoints": ["vanilla_11081_100.0%.pth"], "seeds": [0, 1, 2], "csv": "checkpoints/held_out.csv"}
OF_MACHINE = "device precision micro_batch compile num_workers".split()
TYPES = {"checkpoints": list_of(str, "a list of checkpoints"), "seeds": list_of(Index, "a list of seeds"), "csv": str}


def trained_with(path, given):
    """The configuration with which a checkpoint was trained, except for given keys and those of the machine."""
    run = load_pretraining_checkpoint(path)["config"]
    values = {key: value for key, value in run.items() if key in PRETRAIN_KEYS and key not in OF_MACHINE}
    return given.unless_chosen(values | {"initial_weights": "huggingface"})  # `evaluations` loads others


def held_out_learner(c):
    """(PretrainingLearner with fresh weights, loader of held-out examples) of a complete configuration of pretrain.py.
    """
    c, processes = c.copy_with({"device": str(choose_device(c.device))}), Processes()
    hf_tokenizer, dls = pretrain.load_data(c, processes)
    dls = dls.to(torch.device(c.device))
    c = fit_to_hardware(c, None, hf_tokenizer, processes)
    learn = pretrain.build_learner(c, hf_tokenizer, dls, None, processes)
    return learn, dls.loaders[1]


def evaluations(learn, loader, paths, seeds):
    """Yields {"checkpoint", "seed", metric: value} of each checkpoint with each seed.

    Raises UserError for an objective whose checkpoints do not hold the networks as they are trained.
    """
    if hasattr(learn.model, "saved_networks"):
        raise UserError(f"{paths[0].name!r} does not contain the weights as they are trained, so its held-out metrics "
                        "cannot be computed again. Choose checkpoints of another objective, and without "
                        "tying=disentangled.")
    for path in paths:
        load_weights(learn.model, load_pretraining_checkpoint(path)["model"], path)
        for learn.seed in seeds:
            yield {"checkpoint": path.name, "seed": learn.seed, **evaluate(learn, loader)}


def main(arguments):
    given = parse(arguments, {**pretrain.c, **DEFAULTS}, {**PRETRAIN_KEYS, **TYPES})
    check_output("csv", given["csv"], ".csv")
    paths = [find_checkpoint(name) for name in given["checkpoints"]]
    table = pd.DataFrame(evaluations(*held_out_learner(trained_with(paths[0], given)), paths, given["seeds"]))
    write_atomically(given["csv"], lambda file: table.to_csv(file, index=False))
    shown = table.filter(["checkpoint", "gen_loss", "disc_auc"])  # a masked language model has no AUC
    print(shown.groupby("checkpoint", sort=False).agg(["mean", "std", "min", "max"]).to_string())


if __name__ == "__main__":
    main(sys.argv[1:])
