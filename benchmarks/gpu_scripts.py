"""Sections of benchmarks.gpu that run the scripts: short pretraining runs, and finetuning."""
import math
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import mean, median

import pretrain
from _utils.config import complete
from _utils.finetuning.runs import Runs
from _utils.runs.checkpoints import save_pretrained
from _utils.runs.log import read_metrics
from _utils.seeds import set_seed
from _utils.tasks.glue import GLUE, TASKS
from _utils.training.device import choose_device
from benchmarks.finetuning import load_tables, tokenizer_for
from benchmarks.gpu_checks import relative
from benchmarks.pretraining import VOCABULARY
from benchmarks.report import launcher

REPO = Path(__file__).parents[1]


def runs(device, miniature):
    """Short runs of pretrain.py in every precision and compiled, and one that is loaded again: their mean losses in the
    second half.

    A single step would depend on its masks, which a compiled run draws differently.
    """
    device = choose_device(device)
    kinds = {"eager": [], "eager, loaded again": [], "fp32": ["precision=fp32"], "bf16": ["precision=bf16"]}
    if device.type == "cuda":
        kinds |= {"fp16": ["precision=fp16"], "compiled": ["compile=True"]}
    with tempfile.TemporaryDirectory() as folder:
        write_random_corpus(Path(folder))
        settings = [
            "size=tiny",
            "datas=text.txt",
            "vocab=vocab.txt",
            "seed=5",
            "bs=32",
            "max_length=64",
            "num_workers=1",
            "logger=None",
            f"steps={20 if miniature else 100}",
            f"device={device}",
        ]
        losses = {}
        for kind, more in kinds.items():
            name = kind.partition(",")[0]
            run_script(folder, 1, "pretrain.py", *settings, *more, f"base_run_name={name}")
            rows = read_metrics(Path(folder, f"checkpoints/pretrain/{name}_5/metrics.jsonl"), "train")
            losses[kind] = mean(row["loss"] for row in rows[len(rows) // 2:])
            yield {
                "losses": losses,
                "summary": "mean loss in the second half: "
                + ", ".join(f"{kind} {loss:.4g}" for kind, loss in losses.items()),
                "checks": {
                    f"{kind}, relative difference from eager": (relative(loss, losses["eager"]), 0.05)
                    for kind, loss in losses.items()
                },
            }


def finetuning(at_once, device, glue_dir, miniature):
    """Rows per second of `at_once` runs of CoLA that share a device, by finetune.py.

    Each process does two runs; the second counts.
    """
    device, size = choose_device(device), "tiny" if miniature else "small"
    with tempfile.TemporaryDirectory() as folder:
        tables = Path(folder, "glue")
        [table] = load_tables(["cola"], glue_dir, tables).values()
        c, hf_tokenizer = complete(pretrain.c.override([f"size={size}"])), tokenizer_for(None, {TASKS["cola"]: table})
        set_seed(0)
        save_pretrained(Path(folder, "fresh.pth"), pretrain.build_model(c, hf_tokenizer), c, hf_tokenizer, step=0)
        rows = 64 if miniature else len(table)
        # about as many as a run of CoLA
        settings = {"rows": rows, "epochs": 1 if miniature else math.ceil(24_000 / rows)}
        run_script(
            folder,
            at_once,
            "finetune.py",
            f"size={size}",
            "pretrained_checkpoint=fresh.pth",
            f"glue_dir={glue_dir or tables}",
            "tasks=cola",
            f"end={2 * at_once}",
            f"task_overrides={{'cola': {settings}}}",
            f"device={device}",
            "logger=None",
            "group_name=benchmark",
        )
        finished = Runs(path=Path(folder, "checkpoints/glue/scores.jsonl"))
    each = [row.train_rows * settings["epochs"] / row.seconds for row in finished if row.run >= at_once]
    speed = at_once * median(each)
    minutes = {task.name: task.rows[0] * (1 + task.unordered) * task.epochs / speed / 60 for task in GLUE if task.rows}
    yield {
        "row": {
            "rows/s": speed,
            "rows/s of each run": median(each),
            "minutes for MNLI": minutes["mnli"],
            "minutes for a run of all nine tasks": sum(minutes.values()),
        },
        "estimated minutes": minutes,
        "table": "CoLA" if glue_dir else "synthetic CoLA, short sentences",
        "rows/s of runs": each,
        "summary": f"{speed:,.0f} rows/s",
    }


def run_script(folder, n_processes, script, *settings):
    """Seconds of a script of the repository in n processes, with `folder` as working directory."""
    started = time.perf_counter()
    subprocess.run([sys.executable, *launcher(n_processes), REPO / script, *settings], cwd=folder, check=True)
    return time.perf_counter() - started


def write_random_corpus(folder):
    """Write text.txt, documents of random words, and vocab.txt."""
    rng, words = random.Random(0), VOCABULARY[5:2000]
    documents = ["\n".join(" ".join(rng.choices(words, k=15)) + " ." for _ in range(20)) for _ in range(400)]
    Path(folder, "text.txt").write_text("\n\n".join(documents))
    Path(folder, "vocab.txt").write_text("\n".join([*VOCABULARY[:2000], "."]))
