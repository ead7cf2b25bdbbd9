"""Finetuning's quickstart: three networks on the same tables of real sentences, and a check of GLUE's files."""
import contextlib
import itertools
import random
from pathlib import Path

import pandas as pd
import torch
from transformers import AutoModel

from _utils.files import write_text_atomically
from _utils.finetuning.config import complete_finetuning
from _utils.finetuning.results import as_text, summarize
from _utils.finetuning.runs import GLUE_FOLDER, Runs
from _utils.names import find_checkpoint
from _utils.networks import load_pretrained, load_with_head
from _utils.plots import plot_quickstart, save_plot
from _utils.progress import counted
from _utils.runs.log import log_of
from _utils.text import load_documents
from _utils.text.corruption import is_long, plain_words, replace_with_foreign_word, swap_neighbours
from _utils.training.corrupted_text import sentence_probabilities
from _utils.training.processes import RunProcesses

SHIPPED = Path(__file__).parents[2] / "benchmarks/results/mini/model/discriminator"
ROWS = {"train": 1000, "dev": 500}  # of each table, at most
SETTINGS = {"lr": 1e-3, "epochs": 6}  # the same for all networks
SYNTHETIC = {"rows": 64, "epochs": 1}  # of GLUE's tasks
PLOT = Path("checkpoints/quickstart.png")
TABLES, RANDOM_WEIGHTS = "datasets/quickstart_tables", "datasets/random_weights"


def quickstart(c, run):
    """Finetune three networks on the same tables, print and plot their scores, and check GLUE's files. Returns the
    Results of the check.

    c: the completed configuration, whose runs start, ..., end - 1 are seeds.   run: that of the notebook.
    """
    pretrained = load_pretrained(c.pretrained_checkpoint)  # fails before the long work if it is missing
    processes = RunProcesses(c.device)
    tasks, random_weights = processes.broadcast(lambda: (write_tables(), write_random_weights(pretrained)))
    networks = {"random weights": random_weights, "quickstart": pretrained.name, "mini": str(SHIPPED)}
    print("The quickstart takes about three minutes per run on two idle CPU cores.")
    table = {}
    for number, (name, checkpoint) in enumerate(networks.items(), 1):
        group = f"{c.group_name}_{name.replace(' ', '_')}"
        print(f"Network {number} of {len(networks)}, {name}: finetuning on {len(tasks)} tables "
              f"(log: {GLUE_FOLDER}/{group}.log)")
        finetune_quietly(of_tables(c, tasks, checkpoint, group), run)
        summary = summarize(Runs().of(group))
        table |= {"majority": summary["baseline"], name: summary["mean"]}
    table = pd.DataFrame(table)
    runs = f"mean of {counted(int(summary['runs'].max()), 'run')}; at most {ROWS['train']} training rows"
    print(f"\nMacro F1 in percent ({runs})")
    print(as_text(table), "", sep="\n")
    results = check_glue(c, run)
    if processes.is_main:
        sentences = short_sentences({name: networks[name] for name in ("quickstart", "mini")})
        metrics = log_of(find_checkpoint(pretrained.name)) if pretrained.name.endswith(".pth") else None
        save_plot(plot_quickstart(metrics, sentences, table), PLOT)
    print(f"Logs: {GLUE_FOLDER}/{c.group_name}*.log. Plot: {PLOT}")
    return results


def of_tables(c, tasks, checkpoint, group):
    """The configuration of one of the networks."""
    values = {
        "quickstart": False,
        "tasks": tasks,
        "task_overrides": {task["name"]: SETTINGS for task in tasks},
        "size": None,
        "max_length": c.max_length or 64,
        "pretrained_checkpoint": checkpoint,
        "group_name": group,
        "glue_dir": None,
        "wsc_trick": False,
        "start_from_mnli": False,
        "th_run": None,
    }
    return complete_finetuning(c.copy_with(values))


def check_glue(c, run):
    """Finetune briefly on synthetic tables of GLUE and predict its test files. Returns Results."""
    overrides = {name: SYNTHETIC for name in c.tasks if isinstance(name, str)} | c.task_overrides
    results = finetune_quietly(c.copy_with({"task_overrides": overrides, "end": c.start + 1}), run)
    print(f"Check of GLUE's files, on {SYNTHETIC['rows']} synthetic rows per task (scores mean nothing): "
          f"{results.submission or 'no zip, see the log'}")
    return results


def finetune_quietly(c, run):
    """The Results of `run`, which prints to checkpoints/glue/<group_name>.log."""
    GLUE_FOLDER.mkdir(parents=True, exist_ok=True)
    with open(GLUE_FOLDER / f"{c.group_name}.log", "a") as log, contextlib.redirect_stdout(log):
        return run(c)


def write_tables():
    """Write the tables of sentences. Returns the dictionaries of the custom tasks."""
    return write_sentence_tables(load_documents("prose_held_out", "datasets").documents["text"], TABLES)


def write_random_weights(pretrained):
    """The network of a Pretrained with random weights, as a transformers folder, whose name is returned."""
    torch.manual_seed(0)
    AutoModel.from_config(pretrained.model.base_model.config).save_pretrained(RANDOM_WEIGHTS)
    pretrained.hf_tokenizer.save_pretrained(RANDOM_WEIGHTS)
    return RANDOM_WEIGHTS


def short_sentences(checkpoints):
    """The short dev rows with a foreign word, as {network: `sentence_probabilities`}.

    checkpoints: {network: checkpoint or folder}. Networks that are not discriminators are left out.
    """
    loaded = {name: load_with_head(checkpoint) for name, checkpoint in checkpoints.items()}
    rows = Path(TABLES, "foreign_word_dev.txt").read_text().split("\n\n")
    sentences = [tuple(zip(*map(str.split, row.splitlines()))) for row in rows]
    short = [(words, tags) for words, tags in sentences if len(words) > 6 and len(" ".join(words)) < 40]
    return {name: [sentence_probabilities(one.network, one.hf_tokenizer, [*words, "."],
                                          [*(tag == "WRONG" for tag in tags), False]) for words, tags in short]
            for name, one in loaded.items() if one.part == "discriminator"}


def swapped_words(words, rng, others):
    """(words, tags) with two neighbouring words swapped, whose tag is WRONG; None for a sentence without such words."""
    return _with_tags(words, swap_neighbours(words, rng))


def foreign_word(words, rng, others):
    """(words, tags) with one word of another sentence, whose tag is WRONG; None for a sentence without a long word."""
    return _with_tags(words, replace_with_foreign_word(words, others, rng))


def commas(words, rng, others):
    """(words without commas, tag of each: COMMA if one followed it); None for a sentence without a comma."""
    if not any(word.endswith(",") for word in words):
        return None
    return [word.rstrip(",") for word in words], ["COMMA" if word.endswith(",") else "NONE" for word in words]


def _with_tags(words, damaged):
    return damaged and (damaged, ["NONE" if now == was else "WRONG" for now, was in zip(damaged, words)])


# Functions (words, rng, long words of other sentences) -> row, or None.
ROW_MAKERS = swapped_words, foreign_word, commas


def write_sentence_tables(documents, folder):
    """Write the tables, real sentences with a mistake, or with something to restore, and return the dictionaries of the
    custom tasks. Training and dev rows are from different documents.

    documents: strings with one sentence per line.
    """
    documents = [[*filter(None, map(plain_words, document.split("\n")))] for document in documents]
    dev = documents[2::3]
    train = [document for i, document in enumerate(documents) if i % 3 < 2]
    parts = {"train": sum(train, []), "dev": sum(dev, [])}
    tasks = []
    for make in ROW_MAKERS:
        task = {"name": make.__name__, "metrics": "macro_f1"}
        for split, sentences in parts.items():
            task[split] = str(Path(folder, f"{make.__name__}_{split}.txt"))
            rows = _rows(make, sentences, ROWS[split], random.Random(f"{make.__name__} {split}"))
            write_text_atomically(Path(task[split]), _conll(rows))
        tasks.append(task)
    return tasks


def _rows(make, sentences, n, rng):
    """The first n rows of the sentences in random order."""
    others = [word for words in sentences for word in words if is_long(word)]
    rows = (make(words, rng, others) for words in rng.sample(sentences, len(sentences)))
    return list(itertools.islice(filter(None, rows), n))


def _conll(rows):
    """A word and its tag per line, an empty line after each sentence."""
    return "\n".join("".join(f"{word} {tag}\n" for word, tag in zip(*row)) for row in rows)
