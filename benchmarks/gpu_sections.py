"""The sections of `benchmarks.gpu`. Each is a function that returns a dictionary of numbers with a one-line "summary":

    python -m benchmarks.gpu_sections SECTION ARGUMENTS_AS_JSON RESULT.json
"""
import json
import math
import os
import random
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from unittest import mock

import torch

import finetune  # noqa: F401  shows what is missing in the environment
import pretrain
from _utils import recipes
from _utils.config import complete
from _utils.glue.runs import Runs
from _utils.glue.tasks import GLUE, TASKS
from _utils.optim import clip_by_global_norm
from _utils.runs.checkpoints import save_pretrained, versions
from _utils.runs.log import read_metrics
from _utils.text.batches import pretraining_dataloaders
from _utils.text.vocabulary import tokenizer_from_tokens
from _utils.training.cuda_graph import CapturedFunction
from _utils.training.device import choose_device, set_seed
from _utils.training.learners import DTYPES
from benchmarks.finetuning import load_tables, tokenizer_for
from benchmarks.loader import random_examples
from benchmarks.pretraining import VOCABULARY, Training, random_batch, warmup_steps
from benchmarks.report import describe_machine, launcher, matmul_throughput, seconds_of

REPO = Path(__file__).parents[1]


# Environment

def environment(device):
    """Versions, driver, GPUs and compilers."""
    device = choose_device(device)
    found = {"machine": describe_machine(device), "versions": versions(), "cuda": torch.version.cuda, "driver": driver_version(),
             "c++ compiler": shutil.which(os.environ.get("CXX", "g++")), "cores": len(os.sched_getaffinity(0))}
    found["gpus"] = [torch.cuda.get_device_properties(i) for i in range(torch.cuda.device_count())] if device.type == "cuda" else []
    found["gpus"] = [{"name": gpu.name, "GB": gpu.total_memory / 1e9, "compute capability": f"{gpu.major}.{gpu.minor}",
                      "processors": gpu.multi_processor_count} for gpu in found["gpus"]]
    found["summary"] = f"{len(found['gpus'])} GPUs, driver {found['driver']}, CUDA {found['cuda']}, torch {found['versions']['torch']}"
    return found


def driver_version():
    """Version of the NVIDIA driver, or None."""
    if not shutil.which("nvidia-smi"):
        return None
    command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    return subprocess.run(command, capture_output=True, text=True).stdout.partition("\n")[0] or None


# Equality

def equality(device, miniature):
    """One step in fp32 on the CPU and on the device, without dropout, with the weights, masks and samples of the CPU.

    The biases of the keys are left out: attention does not depend on them, so their gradients are nothing but rounding errors.
    """
    device, hf_tokenizer = choose_device(device), tokenizer_from_tokens(VOCABULARY)
    c = complete(pretrain.c.override([f"size={'tiny' if miniature else 'small'}", "bs=4", "max_length=64", "masking=official"]))
    set_seed(0)
    x, _ = pretrain.build_masking(c, hf_tokenizer).mask(*random_batch(c, torch.device("cpu")))
    sampled, draw = [], pretrain.sample

    def draw_and_keep(*arguments):
        sampled.append(draw(*arguments))
        return sampled[-1]

    with mock.patch.dict(recipes._SHARED, hidden_dropout_prob=0., attention_probs_dropout_prob=0.):
        with mock.patch.object(pretrain, "sample", draw_and_keep):
            expected = step_from_start(c, hf_tokenizer, x, torch.device("cpu"))
        with mock.patch.object(pretrain, "sample", lambda logits, *_: sampled[0].to(logits.device)):
            found = step_from_start(c, hf_tokenizer, x, device)
    differences, worst = {}, {}
    for kind, values in expected.items():
        by_name = {name: relative_difference(found[kind][name], value) for name, value in values.items() if not name.endswith("key.bias")}
        worst[kind] = max(by_name, key=by_name.get)
        differences[kind] = by_name[worst[kind]]
    return {"relative differences": differences, "worst": worst, "losses": {name: float(loss) for name, loss in found["losses"].items()},
            "summary": "maximum relative difference from the CPU: " +
                       ", ".join(f"{kind} {difference:.1e} ({worst[kind]})" for kind, difference in differences.items())}


def step_from_start(c, hf_tokenizer, x, device):
    """{"losses", "gradients", "weights": {name: tensor on the CPU}} of the first step of a configuration. x: the model's inputs."""
    set_seed(0)
    model = pretrain.build_model(c, hf_tokenizer, fixed_slots=True).to(device)
    optimizer = pretrain.build_optimizer(model, c.lr)
    x = tuple(tensor.to(device) for tensor in x)
    loss, terms = pretrain.build_loss(c)(model(*x), x[-1], model.counts(*x), return_losses=True)
    loss.backward()
    gradients = {name: parameter.grad.cpu().clone() for name, parameter in model.named_parameters() if parameter.grad is not None}
    clip_by_global_norm(model.parameters())
    optimizer.step()
    losses = dict(zip(("loss", "generator", "discriminator"), (loss, *terms)))
    return {"losses": {name: loss.detach().cpu() for name, loss in losses.items()}, "gradients": gradients,
            "weights": {name: parameter.detach().cpu() for name, parameter in model.named_parameters()}}


def relative_difference(a, b):
    """Largest difference between two tensors, relative to the largest element of b."""
    return float((a - b).abs().max() / b.abs().max().clamp(min=1e-30))


# Pretraining runs

def runs(device, miniature):
    """Short runs of pretrain.py in every precision and compiled, and one that is loaded again: their losses at the last step."""
    device = choose_device(device)
    kinds = {"eager": [], "eager, loaded again": [], "fp32": ["precision=fp32"], "bf16": ["precision=bf16"]}
    if device.type == "cuda":
        kinds |= {"fp16": ["precision=fp16"], "compiled": ["compile=True"]}
    with tempfile.TemporaryDirectory() as folder:
        write_random_corpus(Path(folder))
        settings = ["size=tiny", "datas=text.txt", "vocab=vocab.txt", "seed=5", "bs=32", "max_length=64", "num_workers=1", "logger=None",
                    f"steps={20 if miniature else 100}", f"device={device}"]
        losses = {}
        for kind, more in kinds.items():
            name = kind.partition(",")[0]
            run_script(folder, 1, "pretrain.py", *settings, *more, f"base_run_name={name}")
            losses[kind] = read_metrics(Path(folder, f"checkpoints/pretrain/{name}_5/metrics.jsonl"), "train")[-1]["loss"]
    return {"losses": losses, "summary": "loss at the last step: " + ", ".join(f"{kind} {loss:.4g}" for kind, loss in losses.items())}


# Pretraining steps

def steps(size, is_compiled, device, miniature, seconds=9.):
    """Speed and memory of pretraining with the batches of a recipe, from Arrow through the workers of the loader."""
    device, hf_tokenizer = choose_device(device), tokenizer_from_tokens(VOCABULARY)
    changes = ["bs=8", "max_length=32", "num_workers=0"] if miniature else []
    c = complete(pretrain.c.override([f"size={size}", f"compile={is_compiled}", *changes]))
    with tempfile.TemporaryDirectory() as folder:
        examples = random_examples(max(1000, 2 * c.bs), c.max_length, folder)
        loader = pretraining_dataloaders({"train": examples}, hf_tokenizer, c.bs, c.steps, c.max_length, 0, c.num_workers,
                                         pin_memory=device.type == "cuda").train
        training = Training(c, hf_tokenizer, device, iter(loader))
        found = time_steps(training, seconds)
    if is_compiled and device.type == "cuda" and training.c.precision != "fp16" and not found["captured graphs"]:
        sys.exit("The step was not captured in CUDA graphs: see the warning above.")
    found |= {"precision": training.c.precision, "bs": c.bs, "max_length": c.max_length,
              "mean loss": training.learn.train_metrics.compute()["loss"]}
    per_step, peak = median(found["seconds per step"]), peak_memory(device)
    throughput = matmul_throughput(device, DTYPES[training.c.precision] or torch.float32, 256 if miniature else None)
    tokens = c.bs * c.max_length
    flops = tokens * recipes.flops_per_token(recipes.RECIPES[size], len(VOCABULARY), c.max_length, c.mask_prob)
    row = {"ms/step": 1e3 * per_step, "tokens/s": tokens / per_step, "share of matmul throughput": flops / per_step / throughput,
           "peak MB": peak / 1e6, "micro-batch": training.c.micro_batch, "hours for all steps": c.steps * per_step / 3600}
    return {"row": row, **found, "matmul_flops": throughput,
            "summary": f"{row['ms/step']:.4g} ms/step, {row['tokens/s']:,.0f} tokens/s, {row['share of matmul throughput']:.1%} of matmul "
                       f"throughput, {found['captured graphs']} CUDA graphs"}


def time_steps(training, seconds):
    """Warm a Training up and time three groups of its steps, which take about `seconds` in all."""
    warmup = warm_up(training, most=warmup_steps(training.c, training.device))
    n = max(1, round(seconds / 3 / seconds_of(lambda: training.take(1), training.device)))
    per_step = [seconds_of(lambda: training.take(n), training.device) / n for _ in range(3)]
    return {"seconds per step": per_step, "steps of each group": n, "seconds of warmup steps": warmup,
            "captured graphs": captured_graphs(training.learn)}


def captured_graphs(learn):
    """The number of CUDA graphs that the steps of a learner replay: 0 for eager steps."""
    functions = [getattr(learn, name) for name in ("masks", "accumulate", "update")]
    return sum(len(function.graphs) for function in functions if isinstance(function, CapturedFunction))


def warm_up(training, most, least=3, seconds=20.):
    """Seconds of each warmup step. There are `most`, or fewer if they are slow, but at least `least`."""
    taken = []
    while len(taken) < most and (len(taken) < least or sum(taken) < seconds):
        taken.append(seconds_of(lambda: training.take(1), training.device))
    return taken


def peak_memory(device):
    """Peak bytes of tensors on a GPU, or of this process."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


# Scripts

def run_script(folder, n_processes, script, *settings):
    """Seconds of a script of the repository in n processes, with `folder` as working directory."""
    started = time.perf_counter()
    subprocess.run([sys.executable, *launcher(n_processes), REPO / script, *settings], cwd=folder, check=True)
    return time.perf_counter() - started


def finetuning(at_once, device, glue_dir, miniature):
    """Rows per second of `at_once` runs of CoLA that share a device, by finetune.py. Each process does two runs; the second counts."""
    device, size = choose_device(device), "tiny" if miniature else "small"
    with tempfile.TemporaryDirectory() as folder:
        tables = Path(folder, "glue")
        [table] = load_tables(["cola"], glue_dir, tables).values()
        c, hf_tokenizer = complete(pretrain.c.override([f"size={size}"])), tokenizer_for(None, {TASKS["cola"]: table})
        set_seed(0)
        save_pretrained(Path(folder, "fresh.pth"), pretrain.build_model(c, hf_tokenizer), c, hf_tokenizer, step=0)
        rows = 64 if miniature else len(table)
        settings = {"rows": rows, "epochs": 1 if miniature else math.ceil(24_000 / rows)}  # about as many as a run of CoLA
        run_script(folder, at_once, "finetune.py", f"size={size}", "pretrained_checkpoint=fresh.pth", f"glue_dir={glue_dir or tables}",
                   "tasks=cola", f"end={2 * at_once}", f"task_overrides={{'cola': {settings}}}", f"device={device}", "logger=None",
                   "group_name=benchmark")
        finished = Runs(path=Path(folder, "checkpoints/glue/scores.jsonl"))
    each = [row["train_rows"] * settings["epochs"] / row["seconds"] for row in finished if row["run"] >= at_once]
    speed = at_once * median(each)
    minutes = {task.name: task.rows[0] * (1 + task.unordered) * task.epochs / speed / 60 for task in GLUE if task.devs}
    return {"row": {"rows/s": speed, "rows/s of each run": median(each), "minutes for MNLI": minutes["mnli"],
                    "minutes for a run of all nine tasks": sum(minutes.values())},
            "estimated minutes": minutes, "table": "CoLA" if glue_dir else "synthetic CoLA, short sentences", "rows/s of runs": each,
            "summary": f"{speed:,.0f} rows/s"}


def processes(device, miniature):
    """A short pretraining in one process and in two, each on its own GPU (NCCL), or on the CPU (gloo)."""
    device = choose_device(device)
    if device.type == "cuda" and torch.cuda.device_count() < 2:
        return {"skipped": "one GPU", "summary": "skipped: one GPU"}
    with tempfile.TemporaryDirectory() as folder:
        write_random_corpus(Path(folder))
        settings = [f"size={'tiny' if miniature else 'small'}", "datas=text.txt", "vocab=vocab.txt", "seed=5", "bs=32", "micro_batch=8",
                    "max_length=64", "steps=10", "precision=fp32", "num_workers=0", "logger=None"]
        kinds = {"eager": [], "compiled": ["compile=True"]} if device.type == "cuda" else {"eager": []}
        losses = {kind: losses_of_processes(folder, [*settings, *more], device) for kind, more in kinds.items()}
    differences = {kind: max(abs(a - b) / abs(a) for a, b in zip(one, two, strict=True)) for kind, (one, two) in losses.items()}
    return {"losses of one and of two processes": losses, "relative differences": differences,
            "summary": "maximum relative difference between the losses of one and two processes: " +
                       ", ".join(f"{kind} {difference:.1e}" for kind, difference in differences.items())}


def losses_of_processes(folder, settings, device):
    """(losses of one process, losses of two) that pretrain with the same settings."""
    on_cpu = ["device=cpu"] if device.type == "cpu" else []
    run_script(folder, 1, "pretrain.py", *settings, f"device={device}", "base_run_name=one", "resume=False")
    run_script(folder, 2, "pretrain.py", *settings, *on_cpu, "base_run_name=two", "resume=False")
    return tuple([row["loss"] for row in read_metrics(Path(folder, f"checkpoints/pretrain/{name}_5/metrics.jsonl"), "train")]
                 for name in ("one", "two"))


def write_random_corpus(folder):
    """Write text.txt, documents of random words, and vocab.txt."""
    rng, words = random.Random(0), VOCABULARY[5:2000]
    documents = ["\n".join(" ".join(rng.choices(words, k=15)) + " ." for _ in range(20)) for _ in range(400)]
    Path(folder, "text.txt").write_text("\n\n".join(documents))
    Path(folder, "vocab.txt").write_text("\n".join([*VOCABULARY[:2000], "."]))


SECTIONS = {function.__name__: function for function in (environment, equality, runs, steps, finetuning, processes)}

if __name__ == "__main__":
    section, arguments, path = sys.argv[1:]
    Path(path).write_text(json.dumps(SECTIONS[section](**json.loads(arguments))))
