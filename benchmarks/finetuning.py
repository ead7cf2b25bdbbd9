"""Finetuning on GLUE tasks, compared with a reference that computes as electra_pytorch does; both alternate in one process.

    python -m benchmarks.finetuning [glue_dir=PATH] [vocab=PATH/vocab.txt] [tasks=cola,mrpc,rte] [rows=64] [size=small] [bs=32]
                                    [max_length=128] [device=cpu] [rounds=2]

A round is one pass of every variant over the first `rows` rows of each task (None: all; MRPC: both orders of its pairs). Without a
glue_dir the tables are synthetic and their sentences short. Prints rows/s, the ratio to the reference of the same round, tokens per row
with padding, and the seconds of an epoch of the whole tables at this speed; writes them to benchmarks/results/. The encoder has initial
weights, because their values do not matter here.
"""
import sys
import tempfile
from functools import partial
from pathlib import Path
from statistics import median

from transformers import AutoModel

import finetune
from _utils.config import Count, Text
from _utils.errors import PlainError
from _utils.glue.batches import finetuning_dataloaders
from _utils.glue.config import FINETUNE_KEYS
from _utils.glue.synthetic import write_synthetic_glue
from _utils.glue.tables import load_task
from _utils.glue.tasks import TASKS
from _utils.recipes import RECIPES
from _utils.runs.log import RunLog
from _utils.text.vocabulary import load_tokenizer, tokenizer_from_tokens, train_vocabulary
from _utils.training.device import choose_device, keep_freed_memory, set_seed
from benchmarks.reference import OneByOneAdam, ReferencePredictor, RowsOneByOne, reference_finetuning_step
from benchmarks.report import alternate, describe_machine, median_ratio, parse, seconds_of, write_results

DEFAULTS = {"glue_dir": None, "vocab": None, "tasks": ["cola", "mrpc", "rte"], "rows": 64, "size": "small", "bs": 32, "max_length": 128,
            "device": None, "rounds": 2}
TYPES = {**{key: FINETUNE_KEYS[key] for key in ("glue_dir", "tasks", "size", "max_length", "device")},
         "vocab": Text | None, "rows": Count | None, "bs": Count, "rounds": Count}
VOCAB_SIZE = 30_522  # of the encoder, independent of the tokenizer


def load_tables(tasks, glue_dir, folder):
    """{Task: its training set}. Without a glue_dir synthetic tables are written to `folder`."""
    for name in tasks:
        if TASKS[name].is_regression:
            raise PlainError(f"{name!r} is not a task of this benchmark. Choose tasks with labels, such as cola,mrpc,rte.")
    if glue_dir is None:
        write_synthetic_glue(folder)
    found = {TASKS[name]: load_task(name, glue_dir or folder) for name in tasks}
    for task, data in found.items():
        if "train" in data.missing:
            raise PlainError(f"{task.title}: {data.missing['train']}. Set glue_dir to a complete download, or choose other tasks.")
    return {task: data.splits["train"] for task, data in found.items()}


def tokenizer_for(vocab, tables):
    """Tokenizer of a vocab.txt or a hub id; None: of a vocabulary trained on the tables."""
    if vocab:
        return load_tokenizer(vocab)
    texts = [text for task, rows in tables.items() for name in task.texts for text in rows[name]]
    return tokenizer_from_tokens(train_vocabulary(VOCAB_SIZE, lambda: texts))


def fresh_predictor(task, size):
    """SentencePredictor with the encoder of a recipe; the weights are always the same."""
    set_seed(0)
    encoder = AutoModel.from_config(RECIPES[size].encoder.config(VOCAB_SIZE))
    return finetune.SentencePredictor(encoder, encoder.config.hidden_size, len(task.labels))


def reference(task, rows, settings, device, pad_to=None):
    """(loader, function that trains one pass over it) of the reference."""
    model = fresh_predictor(task, settings["size"]).to(device)
    groups = finetune.parameter_groups(model)
    lrs = finetune.get_layer_lrs(settings["lr"], settings["layer_decay"], len(groups) - 2)
    optimizers = [OneByOneAdam(group, lr, weight_decay=0.) for lr, group in zip(lrs, groups)]
    model = ReferencePredictor(model)
    loader = finetuning_dataloaders(RowsOneByOne(rows, pad_to), [], settings["bs"], 0, device).train

    def one_pass():
        keep_freed_memory(False)
        for batch in loader:
            reference_finetuning_step(model, optimizers, batch)
    return loader, one_pass


def this_repository(task, rows, settings, device, precision, log):
    """(loader, function that trains one pass over it) of finetune.py."""
    learn = finetune.get_glue_learner(task, model=fresh_predictor(task, settings["size"]), data=finetune.EncodedTask(rows, {}),
                                      settings=settings, device=device, precision=precision, log=log)

    def one_pass():
        keep_freed_memory()  # as the learner does when it is created
        learn.fit(1)
    return learn.dls.train, one_pass


def timed(one_pass, device):
    """Seconds of one pass; the order of the rows is always the same."""
    set_seed(0)
    return seconds_of(one_pass, device)


def measure(task, rows, settings, max_length, device, rounds, log):
    """{name: ([seconds of a pass in each round], tokens of a pass with padding)}."""
    variants = {"reference": reference(task, rows, settings, device),
                f"reference, padded to {max_length}": reference(task, rows, settings, device, max_length),
                "finetune.py fp32": this_repository(task, rows, settings, device, "fp32", log),
                "finetune.py bf16": this_repository(task, rows, settings, device, "bf16", log)}
    tokens = {name: sum(ids.numel() for ids, *_ in loader) for name, (loader, _) in variants.items()}
    seconds = alternate({name: partial(timed, one_pass, device) for name, (_, one_pass) in variants.items()}, rounds)
    return {name: (seconds[name], tokens[name]) for name in variants}


def main(arguments):
    given = parse(arguments, DEFAULTS, TYPES)
    device, recipe = choose_device(given["device"]), RECIPES[given["size"]]
    settings = {"size": given["size"], "bs": given["bs"], "epochs": 1, "lr": recipe.glue_lr, "layer_decay": recipe.layer_decay,
                "original_lr_layer_decays": True, "weight_decay": 0., "adam_bias_correction": False, "schedule": "original_linear"}
    passes, n_rows, whole, n_sample = {}, {}, {}, given.pop("rows")
    with tempfile.TemporaryDirectory() as folder:
        tables = load_tables(given["tasks"], given["glue_dir"], folder)
        hf_tokenizer = tokenizer_for(given["vocab"], tables)
        run = partial(measure, settings=settings, max_length=given["max_length"], device=device,
                      log=RunLog("benchmark", Path(folder, "run"), {"logger": None}))
        encode = lambda task, n: finetune.encode(tables[task].select(range(n)), task, given["max_length"], hf_tokenizer, task.unordered)
        run(TASKS[given["tasks"][0]], encode(TASKS[given["tasks"][0]], 1), rounds=1)  # warmup
        for task, table in tables.items():
            n = min(n_sample or len(table), len(table))
            rows = encode(task, n)
            passes[task.name] = run(task, rows, rounds=given["rounds"])
            n_rows[task.name], whole[task.name] = len(rows), len(table) / n
    rows = summarize(passes, sum(n_rows.values()), whole)
    write_results("finetuning", rows, {**given, "rows_of_a_pass": n_rows, "rounds_seconds": passes, "machine": describe_machine(device)})


def summarize(passes, n_rows, whole):
    """Rows of the result table.

    passes: {task: result of `measure`}.   n_rows: rows of a pass over all tasks.   whole: {task: rows of the table / rows measured}.
    """
    rows, base = {}, None
    for name in next(iter(passes.values())):
        by_task = {task: found[name] for task, found in passes.items()}
        seconds = [sum(in_round) for in_round in zip(*(seconds for seconds, _ in by_task.values()))]
        base = base or seconds
        rows[name] = {"rows/s": n_rows / median(seconds), "ratio": median_ratio(base, seconds),
                      "tokens/row": sum(tokens for _, tokens in by_task.values()) / n_rows,
                      "s/epoch of the mix": sum(whole[task] * median(seconds) for task, (seconds, _) in by_task.items())}
    return rows


if __name__ == "__main__":
    main(sys.argv[1:])
