"""The first minutes on a GPU: does everything run, are the results right, and how fast is it?

    benchmarks/gpu.sh [device=cuda] [sections=equality,replay,changes,runs,processes,steps,learning,finetuning] [sizes=small,base,large]
                      [kinds=eager,compiled,captured,reduce-overhead] [at_once=1,2,4] [glue_dir=PATH] [limit=300] [minutes=45]
                      [results=benchmarks/results] [miniature=False]

The environment (versions, driver, GPUs) is always checked first. Then, in this order:
equality: a step with the same weights, masks and samples, compared with the CPU.   replay: the compiled and captured step, which
compile=True runs: random numbers, learning rate, and 20 steps compared with eager ones.   changes: what makes that step faster, each with
its time, its compilation and its gradients, one after the other in one process.   runs: short runs of pretrain.py in every
precision, compiled, and loaded again.   processes: two processes on two GPUs, compared with one.   steps: speed, memory and longest
kernels of pretraining; `kinds`: eager; compiled; compiled and captured in CUDA graphs (compile=True); compiled with torch.compile's own
CUDA graphs.   learning: the quickstart with compile=True, stopped and resumed, beside the committed curve of a CPU.   finetuning: rows/s
with several runs at once on one GPU, on CoLA of glue_dir or on synthetic sentences.

Each measurement is a new process that is stopped after `limit` seconds, so a failure does not affect the others; what it has measured by
then is kept. After `minutes` no further one is started. All are collected in <results>/gpu_<name of the device>.json, which keeps earlier
measurements that are not repeated, and printed as Markdown tables. The exit status is 1 if a measurement failed, was not finished, or is
beyond its threshold. Needs no network. miniature=True: tiny sizes, to test the command itself, also with device=cpu.
"""
import contextlib
import importlib.metadata
import json
import math
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Literal

from packaging.requirements import Requirement

REPO = Path(__file__).parents[1]
SECTIONS = ("equality", "replay", "changes", "runs", "processes", "steps", "learning", "finetuning")
KINDS = ("eager", "compiled", "captured", "reduce-overhead")
DEFAULTS = {"device": "cuda", "sections": list(SECTIONS), "sizes": ["small", "base", "large"], "kinds": list(KINDS), "at_once": [1, 2, 4],
            "glue_dir": None, "limit": 300, "minutes": 45, "results": str(REPO / "benchmarks/results"), "miniature": False}


# Of requirements.txt: for notebooks, loggers, TensorFlow's checkpoints, tagging, and tests.
NOT_NEEDED = {"jupyter", "jupytext", "nbformat", "nbclient", "ipython", "tensorboard", "neptune-client", "protobuf", "seqeval", "pytest",
              "pytest-xdist"}


def check_packages():
    """Exit if packages of requirements.txt are missing; warn of versions outside its bounds."""
    missing, other = [], []
    for line in (REPO / "requirements.txt").read_text().splitlines():
        if line and not line.startswith("#"):
            requirement = Requirement(line)
            try:
                version = importlib.metadata.version(requirement.name)
            except importlib.metadata.PackageNotFoundError:
                missing.append(requirement.name)
                continue
            if not requirement.specifier.contains(version, prereleases=True):
                other.append(f"{requirement.name} {version} (tested: {requirement.specifier})")
    if needed := sorted({*missing} - NOT_NEEDED):
        sys.exit(f"error: Packages are missing: {', '.join(needed)}. Install them: pip install -r requirements.txt.")
    if other:
        print(f"Warning: versions that were not tested: {', '.join(other)}", flush=True)


def types():
    """Types of the arguments; a function, because their module needs the packages that `main` checks first."""
    from _utils.config import Count, Device, Size, Text, list_of
    from benchmarks.report import processes
    return {"device": Device | None, "sections": list_of(Literal[SECTIONS], f"a list of {', '.join(SECTIONS)}"),
            "sizes": list_of(Size, "a list of sizes"), "kinds": list_of(Literal[KINDS], f"a list of {', '.join(KINDS)}"),
            "at_once": processes(1), "glue_dir": Text | None, "limit": Count, "minutes": Count, "results": Text, "miniature": bool}


def measurements(given):
    """{name: (section, its arguments)}, the most important first."""
    shared = {"device": given["device"], "miniature": given["miniature"]}
    glue_dir = given["glue_dir"] and str(Path(given["glue_dir"]).absolute())
    found = {name: (name, shared) for name in ("equality", "replay", "changes", "runs", "processes")}
    for size in ["tiny"] if given["miniature"] else given["sizes"]:
        for kind in given["kinds"] if given["device"] != "cpu" else ["eager"]:
            found[f"steps of {size}, {kind}"] = "steps", {**shared, "size": size, "kind": kind}
    found["learning"] = "learning", shared
    for n in given["at_once"]:
        found[f"finetuning, {n} at once"] = "finetuning", {**shared, "at_once": n, "glue_dir": glue_dir}
    return {name: (section, arguments) for name, (section, arguments) in found.items() if section in given["sections"]}


def measure(section, arguments, limit):
    """Result of a section in a new process: {"status", "seconds", "printed", its numbers}.

    status: 'ok', 'failed' or 'timed out'; the latter two may have some of the numbers.   printed: the end of its output, which may contain
    warnings.
    """
    started = time.perf_counter()
    compiled = str(Path(tempfile.gettempdir(), "torchinductor_electra"))  # kept, so that a rerun does not compile again
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        found, printed = Path(folder, "found.json"), Path(folder, "printed")
        command = [sys.executable, "-m", "benchmarks.gpu_sections", section, json.dumps(arguments), str(found)]
        with printed.open("w") as output:
            process = subprocess.Popen(command, cwd=REPO, env={"TORCHINDUCTOR_CACHE_DIR": compiled, **os.environ, "TMPDIR": folder},
                                       stdout=output, stderr=subprocess.STDOUT, start_new_session=True)
        try:
            status = "failed" if process.wait(limit) else "ok"
        except subprocess.TimeoutExpired:
            status = "timed out"
        finally:
            stop(process)
        result = {"status": status, "seconds": round(time.perf_counter() - started, 1),
                  "printed": printed.read_text(errors="replace")[-3000:]}
        return result | (json.loads(found.read_text()) if found.exists() else {})


def stop(process):
    """Kill a process, if it still runs, with all that it started; the workers of a launcher have sessions of their own."""
    import psutil  # here, because `main` checks the packages first
    started = []
    with contextlib.suppress(psutil.NoSuchProcess):
        started = psutil.Process(process.pid).children(recursive=True)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    for one in started:
        with contextlib.suppress(psutil.NoSuchProcess):
            one.kill()
    process.wait()


def exceeded(found):
    """The checks of a result whose value is not a number up to its limit, each as one line."""
    return [f"{name}: {value} (at most {limit})" for name, (value, limit) in found.get("checks", {}).items()
            if value is None or not (math.isfinite(value) and value <= limit)]


def save(path, machine, command, found):
    """Add results to the file of the machine; those that it already has under another name are kept."""
    path.parent.mkdir(parents=True, exist_ok=True)
    earlier = json.loads(path.read_text())["measurements"] if path.exists() else {}
    unfinished = path.with_suffix(".unfinished")
    unfinished.write_text(json.dumps({"command": command, "machine": machine, "measurements": earlier | found}, indent=1) + "\n")
    unfinished.replace(path)
    return earlier | found


def main(arguments):
    started = time.monotonic()
    check_packages()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("error: Stopped."))  # so that `measure` stops its process
    from benchmarks.report import parse, slug
    given = parse(arguments, DEFAULTS, types())
    environment = measure("environment", {"device": given["device"]}, given["limit"])
    if environment["status"] != "ok":
        sys.exit(f"{environment['printed']}\nerror: The environment is incomplete: see the last lines above.")
    machine, command = environment["machine"], " ".join(["benchmarks/gpu.sh", *arguments])
    path = Path(given["results"], f"gpu_{slug(machine.partition(',')[0])}{'_miniature' if given['miniature'] else ''}.json")
    all_found = save(path, machine, command, {"environment": environment})
    print(f"{machine}, {environment['summary']}", flush=True)
    problems = []
    for name, (section, its_arguments) in measurements(given).items():
        seconds_left = 60 * given["minutes"] - (time.monotonic() - started)
        if seconds_left < 1:
            problems.append(f"{name} (no time left)")
            continue
        found = measure(section, its_arguments, min(given["limit"], seconds_left))
        all_found = save(path, machine, command, {name: found})
        report(name, found)
        if found["status"] != "ok":
            problems.append(f"{name} ({found['status']})")
        problems += [f"{name}, {check}" for check in exceeded(found)]
    print(f"\n{tables(all_found)}\n\nWritten to {path}")
    if problems:
        sys.exit("error: Not measured, or beyond its threshold: " + "; ".join(problems) + ". The output of each is above and in the file.")


def report(name, found):
    """Print a measurement: its summary, and its output if it failed, else the warnings in it."""
    print(f"{name}: {found['status']} ({found['seconds']:.0f} s) {found.get('summary', '')}", flush=True)
    if found["status"] != "ok":
        print(found["printed"], flush=True)
    elif warnings := [line for line in found["printed"].splitlines() if line.startswith("Warning")
                      and "the text yields" not in line and "AUC" not in line]:  # the text is short and random on purpose
        print(*warnings, sep="\n", flush=True)


def tables(found):
    """Markdown tables of all results."""
    parts = []
    for prefix, head in (("steps of ", "pretraining"), ("finetuning, ", "finetuning")):
        rows = {name.removeprefix(prefix): values["row"] for name, values in found.items()
                if name.startswith(prefix) and "row" in values}
        if rows:
            columns = list(next(iter(rows.values())))
            lines = [[head, *columns], ["---"] * (1 + len(columns)), *([name, *map(cell, row.values())] for name, row in rows.items())]
            parts.append("\n".join(f"| {' | '.join(line)} |" for line in lines))
    parts += [f"{name}: {values['summary']}" for name, values in found.items() if "summary" in values and "row" not in values]
    return "\n\n".join(parts)


def cell(number):
    return f"{number:,.0f}" if number >= 100 else f"{number:.3g}"


if __name__ == "__main__":
    main(sys.argv[1:])
