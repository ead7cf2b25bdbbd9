"""The first minutes on a GPU: does everything run, are the results those of the CPU, and how fast is it?

    benchmarks/gpu.sh [device=cuda] [sections=environment,equality,runs,steps,finetuning,processes] [sizes=small,base,large]
                      [at_once=1,2,4] [glue_dir=PATH] [limit=170] [results=benchmarks/results] [miniature=False]

environment: versions, driver, GPUs.   equality: a step with the same weights, masks and samples, compared with the CPU.   runs: short runs
of pretrain.py in every precision, compiled and loaded again.   steps: speed and memory of pretraining, eager and with compile=True.
finetuning: rows/s with several runs at once on one GPU, on CoLA of glue_dir or on synthetic sentences.   processes: two processes on two
GPUs, compared with one.

Each measurement is a new process that is stopped after `limit` seconds, so a failure does not affect the others. All are collected in
<results>/gpu_<name of the device>.json, which keeps earlier measurements that are not repeated, and printed as Markdown tables. Needs no
network. miniature=True: tiny sizes, to test the command itself, also with device=cpu.
"""
import contextlib
import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Literal

REPO = Path(__file__).parents[1]
SECTIONS = ("environment", "equality", "runs", "steps", "finetuning", "processes")
PACKAGES = ("torch", "transformers", "tokenizers", "accelerate", "fastai", "datasets", "hugdatafast", "pandas", "sklearn",
            "seqeval", "matplotlib")
DEFAULTS = {"device": "cuda", "sections": list(SECTIONS), "sizes": ["small", "base", "large"], "at_once": [1, 2, 4], "glue_dir": None,
            "limit": 170, "results": str(REPO / "benchmarks/results"), "miniature": False}


def types():
    """Types of the arguments; a function, because their module needs the packages that `main` checks first."""
    from _utils.config import Count, Device, Size, Text, list_of
    from benchmarks.report import processes
    return {"device": Device | None, "sections": list_of(Literal[SECTIONS], f"a list of {', '.join(SECTIONS)}"),
            "sizes": list_of(Size, "a list of sizes"), "at_once": processes(1),
            "glue_dir": Text | None, "limit": Count, "results": Text, "miniature": bool}


def measurements(given):
    """{name: (section, its arguments)}, the most important first."""
    shared = {"device": given["device"], "miniature": given["miniature"]}
    glue_dir = given["glue_dir"] and str(Path(given["glue_dir"]).absolute())
    first, *others = ["tiny"] if given["miniature"] else given["sizes"]
    found = {"equality": ("equality", shared), "runs": ("runs", shared), **steps_of(first, shared)}
    for n in given["at_once"]:
        found[f"finetuning, {n} at once"] = "finetuning", {**shared, "at_once": n, "glue_dir": glue_dir}
    found["processes"] = "processes", shared
    for size in others:
        found |= steps_of(size, shared)
    return {name: (section, arguments) for name, (section, arguments) in found.items() if section in given["sections"]}


def steps_of(size, shared):
    """The measurements of a size: eager, and on a GPU compiled."""
    return {f"steps of {size}, {'compiled' if is_compiled else 'eager'}": ("steps", {**shared, "size": size, "is_compiled": is_compiled})
            for is_compiled in (False, True) if not (is_compiled and shared["device"] == "cpu")}


def measure(section, arguments, limit):
    """Result of a section in a new process: {"status", "seconds", "printed", its numbers}.

    status: 'ok', 'failed' or 'timed out'.   printed: the end of its output, which may contain warnings.
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
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # with the processes that it started
            process.wait()
        result = {"status": status, "seconds": round(time.perf_counter() - started, 1),
                  "printed": printed.read_text(errors="replace")[-3000:]}
        return result | (json.loads(found.read_text()) if status == "ok" else {})


def slug(machine):
    """The name of a machine as part of a file name."""
    return re.sub(r"\W+", "_", machine.partition(",")[0]).strip("_").lower()


def save(path, machine, command, found):
    """Add results to the file of the machine; those that it already has under another name are kept."""
    path.parent.mkdir(parents=True, exist_ok=True)
    earlier = json.loads(path.read_text())["measurements"] if path.exists() else {}
    unfinished = path.with_suffix(".unfinished")
    unfinished.write_text(json.dumps({"command": command, "machine": machine, "measurements": earlier | found}, indent=1) + "\n")
    unfinished.replace(path)
    return earlier | found


def main(arguments):
    if missing := [name for name in PACKAGES if importlib.util.find_spec(name) is None]:
        sys.exit(f"error: Packages are missing: {', '.join(missing)}. Run pip install -r requirements.txt.")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("error: Stopped."))  # so that `measure` stops its process
    from benchmarks.report import parse
    given = parse(arguments, DEFAULTS, types())
    environment = measure("environment", {"device": given["device"]}, given["limit"])
    if environment["status"] != "ok":
        sys.exit(f"{environment['printed']}\nerror: The environment is incomplete: see the last lines above.")
    machine, command = environment["machine"], " ".join(["benchmarks/gpu.sh", *arguments])
    path = Path(given["results"], f"gpu_{slug(machine)}{'_miniature' if given['miniature'] else ''}.json")
    all_found = save(path, machine, command, {"environment": environment})
    print(f"{machine}, {environment['summary']}", flush=True)
    failed = []
    for name, (section, its_arguments) in measurements(given).items():
        found = measure(section, its_arguments, given["limit"])
        all_found = save(path, machine, command, {name: found})
        print(f"{name}: {found['status']} ({found['seconds']:.0f} s) {found.get('summary', '')}", flush=True)
        if found["status"] != "ok":
            failed.append(name)
            print(found["printed"], flush=True)
        elif warnings := [line for line in found["printed"].splitlines() if line.startswith("Warning")
                          and "the text yields" not in line and "AUC" not in line]:  # the text is short and random on purpose
            print(*warnings, sep="\n", flush=True)
    print(f"\n{tables(all_found)}\n\nWritten to {path}")
    if failed:
        sys.exit(f"error: Not measured: {'; '.join(failed)}. The output of each is above and in the file.")


def tables(found):
    """Markdown tables of all successful measurements."""
    found = {name: values for name, values in found.items() if values["status"] == "ok"}
    parts = []
    for prefix, head in (("steps of ", "pretraining"), ("finetuning, ", "finetuning")):
        rows = {name.removeprefix(prefix): values["row"] for name, values in found.items() if name.startswith(prefix)}
        if rows:
            columns = list(next(iter(rows.values())))
            lines = [[head, *columns], ["---"] * (1 + len(columns)), *([name, *map(cell, row.values())] for name, row in rows.items())]
            parts.append("\n".join(f"| {' | '.join(line)} |" for line in lines))
    parts += [f"{name}: {found[name]['summary']}" for name in ("equality", "runs", "processes") if name in found]
    return "\n\n".join(parts)


def cell(number):
    return f"{number:,.0f}" if number >= 100 else f"{number:.3g}"


if __name__ == "__main__":
    main(sys.argv[1:])
