"""Shared by the benchmarks: command line, machine, time and memory measurements, and output."""
import contextlib
import json
import multiprocessing
import os
import platform
import re
import shutil
import subprocess
import sys
import time
from datetime import date
from functools import partial
from pathlib import Path
from statistics import median
from unittest import mock

import torch

from _utils.config import MyConfig, from_command_line
from _utils.errors import UserError, print_user_errors
from _utils.files import check_writable
from _utils.keys import count, list_of
from _utils.runs.checkpoints import versions

RESULTS = Path(__file__).parent / "results"
CPU = torch.device("cpu")


def processes(minimum):
    """The type of a list of numbers of processes, such as 0,2."""
    return list_of(count(minimum, 64), f"numbers of processes from {minimum} to 64")


def parse(arguments, defaults, types):
    """MyConfig of the defaults and key=value arguments. Raises UserError for unknown keys and invalid values."""
    print_user_errors()
    return from_command_line(MyConfig(defaults, types), [sys.argv[0], *arguments])


def check_output(option, path, suffix):
    """UserError for an output file that cannot be written or does not end in the suffix.

    option: of the command, such as '--plot'.
    """
    if not path.endswith(suffix):
        raise UserError(f"Invalid value for {option}: {path!r}. Pass a file name that ends in {suffix}.")
    check_writable(Path(path).parent)


def describe_machine(device):
    """Name of the GPU, or name, cores and threads of the CPU."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    model = next(
        (line.partition(":")[2].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")),
        platform.processor(),
    )
    return f"{model}, {len(os.sched_getaffinity(0))} cores, {torch.get_num_threads()} threads"


def launcher(n_processes):
    """Arguments of Python that start a script in several processes on this machine."""
    # the host's name may not resolve
    options = ["--standalone", "--local-addr=127.0.0.1", f"--nproc_per_node={n_processes}"]
    return ["-m", "torch.distributed.run", *options] if n_processes > 1 else []


def wait_for(device):
    """Wait until a GPU has finished all queued work."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def seconds_of(work, device, clock=time.perf_counter):
    """Seconds that a function takes, including the work it queues on a GPU."""
    wait_for(device)
    start = clock()
    work()
    wait_for(device)
    return clock() - start


@contextlib.contextmanager
def own_process(make, *arguments, of_reference=False):
    """Context with a function that calls a method of `make(*arguments)` in a process of its own.

    call(method, *arguments).   arguments: the first one names the process in messages.
    of_reference: with the default settings of OpenMP, of which `_utils` sets another one.
    """
    context = multiprocessing.get_context("spawn")
    connection, its_end = context.Pipe()
    with mock.patch.dict(os.environ, {"GOMP_SPINCOUNT": "300000"} if of_reference else {}):
        process = context.Process(target=_serve, args=(its_end, make, arguments), daemon=True)
        process.start()
    its_end.close()  # so that `recv` fails if the process dies

    def call(*work):
        try:
            connection.send(work)
            return connection.recv()
        except (EOFError, OSError):
            process.join()
            raise UserError(f"The process of {arguments[0]!r} ended with exit status {process.exitcode}; -9 usually "
                            "means that the memory did not suffice. Choose a smaller bs, or fewer "
                            "variants.") from None
    try:
        yield call
    finally:
        with contextlib.suppress(OSError):
            connection.send(None)
        process.join()


def _serve(connection, make, arguments):
    """Answer (name of a method, its arguments) until None arrives."""
    made = make(*arguments)
    while work := connection.recv():
        method, *rest = work
        connection.send(getattr(made, method)(*rest))


def alternate(functions, rounds):
    """Call {name: function} in turn, `rounds` times; returns {name: [result of each round]}."""
    results = {name: [] for name in functions}
    for _ in range(rounds):
        for name, function in functions.items():
            results[name].append(function())
    return results


def median_ratio(numerators, denominators):
    """Median of the ratios over the rounds."""
    return median(a / b for a, b in zip(numerators, denominators))


def matmul_throughput(device, dtype, largest=None, seconds=1.):
    """Floating point operations per second of a large matrix product, over about `seconds`.

    largest: rows and columns; None: 8,192 on a GPU, 2,048 on a CPU, which either does at full speed. They are fewer
    where a product would take longer than `seconds`, as on CPUs that only emulate bf16. All products are queued before
    the wait, because a GPU would idle between waits.
    """
    largest, size, once = largest or (8192 if device.type == "cuda" else 2048), 128, 0.
    while size < largest and 8 * once < seconds:
        size *= 2
        a, b, product = (torch.randn(size, size, device=device, dtype=dtype) for _ in range(3))
        multiply = partial(torch.mm, a, b, out=product)
        multiply()  # warmup
        once = seconds_of(multiply, device)
    times = max(1, round(seconds / once))
    return times * 2 * size ** 3 / seconds_of(lambda: [multiply() for _ in range(times)], device)


def peak_bytes(step):
    """Peak bytes of tensors on the CPU during a step, minus those that existed before it."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        step()
    changes = [
        (event.start_ns(), event.nbytes())
        for event in profile.profiler.kineto_results.events()
        if event.name() == "[memory]"
    ]
    alive = peak = 0
    for _, change in sorted(changes):
        alive += change
        peak = max(peak, alive)
    return peak


def cpu_name():
    """Name of the CPU for file names, such as amd_epyc_avx512_bf16.

    Its model, and the fastest of its instruction sets that matter.
    """
    lines = (
        [line.partition(":") for line in Path("/proc/cpuinfo").read_text().splitlines()]
        if Path("/proc/cpuinfo").exists()
        else []
    )
    found = {key.strip(): value.strip() for key, _, value in lines}
    flags = found.get("flags", "").split()
    best = [flag for flag in ("amx_bf16", "avx512_bf16", "avx512f", "avx2") if flag in flags][:1]
    return slug(" ".join([found.get("model name") or platform.machine(), *best]))


def machine_name(device):
    """Name of the device for file names."""
    return slug(torch.cuda.get_device_name(device)) if device.type == "cuda" else cpu_name()


def slug(name):
    """The name of a machine as part of a file name."""
    return re.sub(r"\W+", "_", name).strip("_").lower()


def commit():
    """The commit of the repository, with "and changes" if files differ from it.

    None outside of a git repository, and without git.
    """
    if shutil.which("git") is None:
        return None
    git = partial(subprocess.run, cwd=RESULTS.parent, capture_output=True, text=True)
    found = git(["git", "describe", "--always", "--dirty= and changes", "--exclude=*"])
    return found.stdout.strip() or None


def write_results(name, rows, settings, device=CPU, batch=None):
    """Print a table of {row: {column: number}}, and write it with the settings to a file.

    It is results/<name>[_<size>][_<batch>]_<machine>.json.
    batch: its shape, such as 32x128, if the results of others are to be kept.
    """
    columns, machine = list(next(iter(rows.values()))), describe_machine(device)
    print(machine)
    print("".ljust(24) + "".join(column.rjust(max(12, len(column) + 2)) for column in columns))
    for row, values in rows.items():
        print(row.ljust(24) + "".join(f"{values[column]:,.4g}".rjust(max(12, len(column) + 2)) for column in columns))
    made_by = {"command": f"python -m benchmarks.{name} "
                          f"{' '.join(sys.argv[1:])}".strip(), "date": date.today().isoformat(),
               "commit": commit(), "machine": machine, "cpu": cpu_name()}
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / (
        "_".join(filter(None, [name, settings.get("size"), batch, machine_name(device)])) + ".json"
    )
    path.write_text(json.dumps({**made_by, "rows": rows, **settings, "versions": versions()}, indent=1) + "\n")
    print(f"Written to {path}")
