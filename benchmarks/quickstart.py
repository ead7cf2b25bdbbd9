"""The numbers of both quickstarts, as JSON: `python -m benchmarks.quickstart FILE`, in the folder in which they ran.

    python pretrain.py quickstart=True && python finetune.py quickstart=True end=3
    python -m benchmarks.quickstart benchmarks/results/quickstart/results.json

Damaged text is measured with random weights, the quickstart's and the shipped network; the scores are those of all
finetuning runs.
"""
import json
import sys
from collections import defaultdict
from pathlib import Path

import torch

import pretrain
from _utils.config import complete
from _utils.files import write_text_atomically
from _utils.finetuning.quickstart import SHIPPED
from _utils.finetuning.runs import Runs, percent
from _utils.networks import load_with_head
from _utils.objectives.registry import objective_of
from _utils.runs import RunFolder, read_metrics
from _utils.text import load_documents
from _utils.training.corrupted_text import measure

GROUPS = {
    "random weights": "quickstart_random_weights",
    "quickstart": "quickstart_quickstart",
    "mini": "quickstart_mini",
}


def networks(c):
    """{name: (discriminator, tokenizer)}"""
    trained = load_with_head(str(RunFolder(c.base_run_name, c.seed).milestone(100.)))
    torch.manual_seed(0)
    untrained = objective_of(c).fresh(c, len(trained.hf_tokenizer), trained.hf_tokenizer.pad_token_id)[-1]
    shipped = load_with_head(str(SHIPPED))
    found = {"random weights": (untrained, trained.hf_tokenizer)}
    return found | {
        name: (one.network, one.hf_tokenizer) for name, one in (("quickstart", trained), ("mini", shipped))
    }


def results():
    c = complete(pretrain.c.override(["quickstart=True"]))
    folder = RunFolder(c.base_run_name, c.seed).folder
    *_, held_out = read_metrics(folder / "metrics.jsonl", "held_out")
    documents = load_documents("prose_held_out", "datasets").documents["text"][:]
    scores, seconds, majority = (defaultdict(lambda: defaultdict(list)) for _ in range(3))
    for name, group in GROUPS.items():
        for row in Runs().of(group):
            scores[name][row.task].append(round(row.score, 2))
            seconds[name][row.task].append(row.seconds)
            majority[name][row.task] = round(percent(row.baselines), 2)
    return {"unigram_entropy": json.loads((folder / "config.json").read_text())["facts"]["unigram_entropy"],
            "held_out": {key: held_out[key] for key in ("gen_loss_hidden", "gen_accuracy_hidden", "disc_auc")},
            "damaged_text": {name: measure(*network, documents) for name, network in networks(c).items()},
            "finetuning": scores, "majority": majority["quickstart"], "seconds": seconds}


if __name__ == "__main__":
    write_text_atomically(Path(sys.argv[1]), json.dumps(results(), indent=1) + "\n")
