"""Some minutes on a GPU: is a step of pretraining right, and how fast is it?

    python -m benchmarks.gpu [device=cuda] [sections=changes,replay,steps] [sizes=small] [kinds=captured,eager]
                             [limit=300] [minutes=9] [results=benchmarks/results] [miniature=False]

The environment (versions, driver, GPUs) is always recorded first. Then, the most valuable first:
changes: what makes the compiled and captured step faster, which compile=True runs: each with its time, its compilation
and its gradients, one after the other in one process.   replay: that step's random numbers and learning rate, and 20
steps compared with eager ones.   steps: speed and memory of pretraining from the loader on; `kinds`: eager; compiled;
compiled and captured in CUDA graphs (compile=True); compiled with torch.compile's own CUDA graphs (reduce-overhead).

Each measurement is a new process that is stopped after `limit` seconds, so a failure does not affect the others; what
it has measured by then is kept. After `minutes` it is stopped, and no further one is started. All are collected in
<results>/gpu_<name of the device>.json, which keeps earlier measurements that are not repeated. The exit status is 1 if
a measurement failed, was not finished, or is beyond its threshold. Needs no network. Compiled code is kept in
datasets/compiled, as by pretrain.py. miniature=True: tiny sizes, to test the command itself, also with device=cpu.
"""
import contextlib
import itertools
import json
import math
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Literal

import torch

import finetune  # noqa: F401  shows what is missing in the environment
from _utils.keys import Count, Device, Size, Text, list_of
from _utils.runs.checkpoints import versions
from _utils.training.cuda_graph import COMPILED
from _utils.training.device import choose_device
from benchmarks.gpu_steps import KINDS, changes, replay, steps
from benchmarks.report import describe_machine, parse, slug

REPO = Path(__file__).parents[1]


# Environment

def environment(device, **_):
    """Versions, driver, GPUs and compilers."""
    device = choose_device(device)
    found = {
        "machine": describe_machine(device),
        "versions": versions(),
        "cuda": torch.version.cuda,
        "driver": driver_version(),
        "c++ compiler": shutil.which(os.environ.get("CXX", "g++")),
        "cores": len(os.sched_getaffinity(0)),
    }
    found["gpus"] = (
        [torch.cuda.get_device_properties(i) for i in range(torch.cuda.device_count())] if device.type == "cuda" else []
    )
    found["gpus"] = [{"name": gpu.name, "GB": gpu.total_memory / 1e9, "compute capability": f"{gpu.major}.{gpu.minor}",
                      "processors": gpu.multi_processor_count} for gpu in found["gpus"]]
    found["summary"] = (
        f"{len(found['gpus'])} GPUs, driver {found['driver']}, CUDA {found['cuda']}, torch {found['versions']['torch']}"
    )
    yield found


def driver_version():
    """Version of the NVIDIA driver, or None."""
    if not shutil.which("nvidia-smi"):
        return None
    command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    return subprocess.run(command, capture_output=True, text=True).stdout.partition("\n")[0] or None


# The command

SECTIONS = {function.__name__: function for function in (environment, changes, replay, steps)}
DEFAULTS = {"device": "cuda", "sections": [name for name in SECTIONS if name != "environment"], "sizes": ["small"],
            "kinds": ["captured", "eager"], "limit": 300, "minutes": 9, "results": str(REPO / "benchmarks/results"),
            "miniature": False}
TYPES = {
    "device": Device | None,
    "sections": list_of(Literal[tuple(SECTIONS)], f"a list of {', '.join(SECTIONS)}"),
    "sizes": list_of(Size, "a list of sizes"),
    "kinds": list_of(Literal[KINDS], f"a list of {', '.join(KINDS)}"),
    "limit": Count,
    "minutes": Count,
    "results": Text,
    "miniature": bool,
}


def measurements(given):
    """{name: (section, its arguments)}, in the order of SECTIONS."""
    shared = {"device": given.device, "miniature": given.miniature}
    sizes = ["tiny"] if given.miniature else given.sizes
    kinds = ["eager"] if given.device == "cpu" else given.kinds
    found = {section: (section, shared) for section in ("changes", "replay") if section in given.sections}
    for size, kind in itertools.product(sizes, kinds) if "steps" in given.sections else ():
        found[f"steps of {size}, {kind}"] = "steps", {**shared, "size": size, "kind": kind}
    return found


def measure(section, arguments, limit):
    """Result of a section in a new process: {"status", "seconds", "printed", its numbers}.

    status: 'ok', 'failed' or 'timed out'; the latter two may have some of the numbers.   printed: the end of its
    output.
    """
    started = time.perf_counter()
    compiled = os.path.abspath(COMPILED)  # as pretraining, so that neither compiles what the other has
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        found, printed = Path(folder, "found.json"), Path(folder, "printed")
        command = [sys.executable, "-m", "benchmarks.gpu", "--section", section, json.dumps(arguments), str(found)]
        environment = {"TORCHINDUCTOR_CACHE_DIR": compiled, **os.environ, "TMPDIR": folder, "HF_HUB_OFFLINE": "1"}
        with printed.open("w") as output:
            process = subprocess.Popen(
                command, cwd=REPO, env=environment, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
            )
        try:
            status = "failed" if process.wait(limit) else "ok"
        except subprocess.TimeoutExpired:
            status = "timed out"
        finally:
            stop(process)
        result = {"status": status, "seconds": round(time.perf_counter() - started, 1),
                  "printed": printed.read_text(errors="replace")[-3000:]}
        return result | (json.loads(found.read_text()) if found.exists() else {})


def run_section(section, arguments, path):
    """Write what a section finds to a JSON file, as soon as it is known."""
    found, path = {}, Path(path)
    for more in SECTIONS[section](**json.loads(arguments)):
        found |= more
        unfinished = path.with_suffix(".unfinished")
        unfinished.write_text(json.dumps(found))
        unfinished.replace(path)


def stop(process):
    """Kill a process, if it still runs, with the workers that it started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
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
    unfinished.write_text(
        json.dumps({"command": command, "machine": machine, "measurements": earlier | found}, indent=1) + "\n"
    )
    unfinished.replace(path)


def main(arguments):
    if arguments[:1] == ["--section"]:
        return run_section(*arguments[1:])
    given, started, problems = parse(arguments, DEFAULTS, TYPES), time.monotonic(), []
    first = measure("environment", {"device": given.device}, given.limit)
    if first["status"] != "ok":
        sys.exit(f"{first['printed']}\nerror: The environment is incomplete: see the last lines above.")
    machine, command = first["machine"], " ".join(["python -m benchmarks.gpu", *arguments])
    path = Path(given.results, f"gpu_{slug(machine.partition(',')[0])}{'_miniature' if given.miniature else ''}.json")
    save(path, machine, command, {"environment": first})
    print(f"{machine}, {first['summary']}", flush=True)
    for name, (section, its_arguments) in measurements(given).items():
        seconds_left = 60 * given.minutes - (time.monotonic() - started)
        if seconds_left < 1:
            problems.append(f"{name} (no time left)")
            continue
        found = measure(section, its_arguments, min(given.limit, seconds_left))
        save(path, machine, command, {name: found})
        print(f"{name}: {found['status']} ({found['seconds']:.0f} s) {found.get('summary', '')}", flush=True)
        if found["status"] != "ok":
            print(found["printed"], flush=True)
            problems.append(f"{name} ({found['status']})")
        problems += [f"{name}, {check}" for check in exceeded(found)]
    print(f"Written to {path}")
    if problems:
        sys.exit(
            "error: Not measured, or beyond its threshold: "
            + "; ".join(problems)
            + ". The output of each is above and in the file."
        )


if __name__ == "__main__":
    main(sys.argv[1:])
