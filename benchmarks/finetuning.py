"""Finetuning on GLUE tasks, compared with a reference that computes as electra_pytorch does, and with the Trainer of
transformers, if the package accelerate is installed.

    python -m benchmarks.finetuning [glue_dir=PATH] [vocab=vocab.txt] [tasks=cola,mrpc,rte] [rows=64] [size=small]
                                    [bs=32] [max_length=128] [device=...] [rounds=2] [precisions=fp32,bf16]

Each variant runs in a process of its own, in turn. A round is one pass of every variant over the first `rows` rows of
each task (None: all; MRPC and STS-B: both orders of their pairs). Without a glue_dir the tables are synthetic and their
sentences short. Prints rows/s, the ratio to the reference of the same round, tokens per row with padding, and the
seconds of an epoch of the whole tables at this speed; writes them to benchmarks/results/. The encoder has initial
weights, because their values do not matter here.
"""
import contextlib
import sys
import tempfile
from functools import partial
from pathlib import Path
from statistics import median
from typing import Literal

from transformers import (
    AutoModel,
    AutoModelForSequenceClassification,
    DataCollatorWithPadding,
    PrinterCallback,
    Trainer,
    TrainingArguments,
)
from transformers.utils import is_accelerate_available

import finetune
from _utils.errors import UserError
from _utils.finetuning.config import FINETUNE_KEYS
from _utils.keys import Count, Text, list_of
from _utils.recipes import RECIPES
from _utils.runs.log import RunLog
from _utils.seeds import set_seed
from _utils.tasks.glue import TASKS, load_task
from _utils.tasks.rows import EncodedTask, finetuning_dataloaders
from _utils.tasks.settings import Settings
from _utils.tasks.synthetic import write_synthetic_glue
from _utils.text.vocabulary import load_tokenizer, tokenizer_from_tokens, train_vocabulary
from _utils.training.device import choose_device
from benchmarks.reference import OneByOneAdam, ReferencePredictor, RowsOneByOne, reference_finetuning_step
from benchmarks.report import alternate, median_ratio, own_process, parse, seconds_of, write_results

DEFAULTS = {
    "glue_dir": None,
    "vocab": None,
    "tasks": ["cola", "mrpc", "rte"],
    "rows": 64,
    "size": "small",
    "bs": 32,
    "max_length": 128,
    "device": None,
    "rounds": 2,
    "precisions": ["fp32", "bf16"],
}
TYPES = {**{key: FINETUNE_KEYS[key] for key in ("glue_dir", "tasks", "size", "max_length", "device")},
         "vocab": Text | None, "rows": Count | None, "bs": Count, "rounds": Count,
         "precisions": list_of(Literal["fp32", "bf16"], "fp32, bf16 or both")}
VOCAB_SIZE = 30_522  # of the encoder, independent of the tokenizer


def load_tables(tasks, glue_dir, folder):
    """{Task: its training set}. Without a glue_dir synthetic tables are written to `folder`."""
    for name in tasks:
        if not TASKS[name].labels:
            raise UserError(f"{name!r} is not a task of this benchmark. Choose tasks with labels, such as "
                            f"cola,mrpc,rte.")
    if glue_dir is None:
        write_synthetic_glue(folder)
    found = {TASKS[name]: load_task(name, glue_dir or folder) for name in tasks}
    for task, data in found.items():
        if "train" in data.missing:
            raise UserError(f"{task.title}: {data.missing['train']}. Set glue_dir to a complete download, or choose "
                            f"other tasks.")
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
    model = fresh_predictor(task, settings.size).to(device)
    groups = finetune.parameter_groups(model)
    lrs = finetune.get_layer_lrs(settings.lr, settings.layer_decay, len(groups) - 2)
    optimizers = [OneByOneAdam(group, lr, weight_decay=0.) for lr, group in zip(lrs, groups)]
    model = ReferencePredictor(model)
    loader = finetuning_dataloaders(RowsOneByOne(rows, pad_to), [], settings.bs, 0, device).train

    def one_pass():
        for batch in loader:
            reference_finetuning_step(model, optimizers, batch)
    return loader, one_pass


def this_repository(task, rows, settings, device, precision, log):
    """(loader, function that trains one pass over it) of finetune.py."""
    learn = finetune.get_glue_learner(task, model=fresh_predictor(task, settings.size), data=EncodedTask(rows, {}),
                                      settings=settings, device=device, precision=precision, log=log)

    return learn.dls.train, lambda: learn.fit(1)


def trainer(task, rows, settings, device, precision, hf_tokenizer, folder):
    """(loader of the batches (inp_ids,), function that trains one pass) of the Trainer of transformers.

    As here, batches have rows of similar lengths and are padded to their longest one. Its model has a larger head.
    """
    set_seed(0)
    config = RECIPES[settings.size].encoder.config(VOCAB_SIZE)
    config.num_labels = len(task.labels)
    columns = "input_ids", "attention_mask", "token_type_ids", "labels"
    singles = [[tensor[0].tolist() for tensor in rows.batch([i])] for i in range(len(rows))]
    arguments = TrainingArguments(
        folder, num_train_epochs=1, per_device_train_batch_size=settings.bs, learning_rate=settings.lr,
        train_sampling_strategy="group_by_length", use_cpu=device.type == "cpu", bf16=precision == "bf16",
        save_strategy="no", logging_strategy="no", report_to=[], disable_tqdm=True,
    )
    train = Trainer(
        AutoModelForSequenceClassification.from_config(config), arguments,
        train_dataset=[dict(zip(columns, single)) for single in singles],
        data_collator=DataCollatorWithPadding(hf_tokenizer),
    )
    train.remove_callback(PrinterCallback)
    return [(batch["input_ids"],) for batch in train.get_train_dataloader()], train.train


class Variant:
    """What the process of a variant does when it is asked. rows: of each task; None: all."""

    def __init__(self, name, given, rows, folder):
        self.name, self.given, self.device = name, given, choose_device(given["device"])
        self.folder = folder
        recipe = RECIPES[given["size"]]
        self.settings = Settings(
            size=given["size"], bs=given["bs"], epochs=1, lr=recipe.glue_lr, layer_decay=recipe.layer_decay
        )
        self.tables = load_tables(given["tasks"], given["glue_dir"], folder)
        self.hf_tokenizer, self.rows = tokenizer_for(given["vocab"], self.tables), rows
        self.log = RunLog("benchmark", Path(folder, name), {"logger": None})

    def prepare(self, name, n=None):
        """Encode a task, or its first n rows, and build its model.

        Returns (rows of a pass, of the whole table, tokens of a pass with padding).
        """
        [(task, table)] = [(task, table) for task, table in self.tables.items() if task.name == name]
        n = min(n or self.rows or len(table), len(table))
        settings = Settings(max_length=self.given["max_length"], double_unordered=task.unordered)
        rows = finetune.encode(task, table.select(range(n)), self.hf_tokenizer, settings, training=True)
        if self.name.startswith("reference"):
            pad_to = self.given["max_length"] if "padded" in self.name else None
            loader, self.one_pass = reference(task, rows, self.settings, self.device, pad_to)
        elif self.name.startswith("Trainer"):
            loader, self.one_pass = trainer(
                task, rows, self.settings, self.device, self.name.split()[1], self.hf_tokenizer, self.folder
            )
        else:
            loader, self.one_pass = this_repository(
                task, rows, self.settings, self.device, self.name.split()[1], self.log
            )
        return len(rows), len(table) / n * len(rows), sum(ids.numel() for ids, *_ in loader)

    def seconds(self):
        """Seconds of one pass over the task prepared last; the order of the rows is always the same."""
        set_seed(0)
        return seconds_of(self.one_pass, self.device)


def main(arguments):
    given = parse(arguments, DEFAULTS, TYPES)
    n_sample = given.pop("rows")
    programs = ["Trainer", "finetune.py"] if is_accelerate_available() else ["finetune.py"]
    names = [
        "reference", f"reference, padded to {given['max_length']}",
        *(f"{program} {precision}" for program in programs for precision in given["precisions"]),
    ]
    passes, n_rows, whole = {}, {}, {}
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        calls = {
            name: stack.enter_context(
                own_process(
                    Variant,
                    name,
                    dict(given),
                    n_sample,
                    tempfile.mkdtemp(dir=folder),
                    of_reference=not name.startswith("finetune.py"),
                )
            )
            for name in names
        }
        for call in calls.values():  # warmup
            call("prepare", given["tasks"][0], 1)
            call("seconds")
        for task in given["tasks"]:
            prepared = {name: call("prepare", task) for name, call in calls.items()}
            seconds = alternate({name: partial(call, "seconds") for name, call in calls.items()}, given["rounds"])
            passes[task] = {name: (seconds[name], tokens) for name, (_, _, tokens) in prepared.items()}
            n_rows[task], n_whole, _ = prepared[names[0]]
            whole[task] = n_whole / n_rows[task]
    rows = summarize(passes, sum(n_rows.values()), whole)
    write_results(
        "finetuning",
        rows,
        {**given, "rows_of_a_pass": n_rows, "rounds_seconds": passes},
        choose_device(given["device"]),
    )


def summarize(passes, n_rows, whole):
    """Rows of the result table.

    passes: {task: {variant: ([seconds of a pass in each round], tokens of a pass with padding)}}.   n_rows: rows of a
    pass over all tasks.
    whole: {task: rows of the table / rows measured}.
    """
    rows, base = {}, None
    for name in next(iter(passes.values())):
        by_task = {task: found[name] for task, found in passes.items()}
        seconds = [sum(in_round) for in_round in zip(*(seconds for seconds, _ in by_task.values()))]
        base = base or seconds
        rows[name] = {"rows/s": n_rows / median(seconds), "ratio": median_ratio(base, seconds),
                      "tokens/row": sum(tokens for _, tokens in by_task.values()) / n_rows,
                      "s/epoch of the "
                      "mix": sum(whole[task] * median(seconds) for task, (seconds, _) in by_task.items())}
    return rows


if __name__ == "__main__":
    main(sys.argv[1:])
