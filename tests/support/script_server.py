"""Run the project's scripts and modules in forks of a server process, itself a fork of the tests' process.

A fork starts in milliseconds, whereas the imports take ten seconds. The server reads each command as a line of JSON
from a socket and writes the result as a line of JSON.
"""
import gc
import json
import logging
import os
import resource
import runpy
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import NamedTuple

import psutil
import torch
from matplotlib.figure import Figure

import _utils.commands.export_notebooks  # only to have its dependencies imported, as the last two
import _utils.plots
import finetune  # noqa: F401
import pretrain  # noqa: F401

REPO = Path(__file__).parents[2]
TIMEOUT = 200  # seconds until a command is killed


def save_empty_file(figure, file, **_):
    """In place of matplotlib's Figure.savefig to an open file, which takes longer than a short training run."""


class Done(NamedTuple):
    """Result of a command. seconds: run time."""
    returncode: int
    stdout: str
    stderr: str
    seconds: float


class Scripts:
    """`Scripts().run("pretrain.py", ["steps=2"], folder)` runs `python pretrain.py steps=2` in that folder and returns
    a Done.

    environment: {variable: value} of a new interpreter, which is then the server instead of a fork, because libraries
    read variables when they are imported.
    """

    def __init__(self, environment=None):
        ours, theirs = socket.socketpair()
        if environment is None:
            self.pid = os.fork()
        else:
            command = [sys.executable, __file__, str(theirs.fileno())]
            environment = environment | {"PYTHONPATH": str(REPO)}
            self.pid = subprocess.Popen(command, env=environment, pass_fds=[theirs.fileno()]).pid
        if not self.pid:
            ours.close()
            serve(theirs.makefile("rw"))
        theirs.close()
        self.connection = ours.makefile("rw")

    def run(self, command, arguments, folder, **faults):
        """Run a script, or a command such as "_utils predict", in a folder and return a Done. faults: as of
        `run_in_child`.
        """
        print(json.dumps([[command, arguments, str(folder)], faults]), file=self.connection, flush=True)
        return Done(*json.loads(self.connection.readline()))

    def close(self):
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)


def run_in_child(
    command,
    arguments,
    folder,
    kill_after=None,
    largest_file=resource.RLIM_INFINITY,
    victim=None,
    processes=1,
    plots=False,
):
    """Run a command in a fork of this process and return a Done.

    kill_after: seconds until the command and all its children get SIGKILL; with victim='worker', only its last child
    gets it.
    largest_file: maximum size in bytes of the files it can write, to simulate a full disk.
    processes: number of processes that run it together, with the environment that torchrun gives them.
    plots: whether it draws, see `empty_plots` in conftest.py.
    """
    with tempfile.TemporaryFile("w+", errors="replace") as out, tempfile.TemporaryFile("w+", errors="replace") as err:
        started = time.perf_counter()
        child = os.fork()
        if not child:
            os.setsid()
            resource.setrlimit(resource.RLIMIT_FSIZE, (largest_file, resource.RLIM_INFINITY))
            if not plots:
                Figure.savefig = save_empty_file
                _utils.plots.save_pretraining_plots = lambda *_: None
            if processes > 1:
                become_one_of(processes)
            run_as_interpreter(command, arguments, folder, out, err)
        killer = threading.Timer(TIMEOUT if kill_after is None else kill_after, kill, (child, victim))
        killer.start()
        returncode = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        killer.cancel()
        seconds = time.perf_counter() - started
        for file in (out, err):
            file.seek(0)
        return Done(returncode, out.read(), err.read(), seconds)


def kill(child, victim):
    """Send SIGKILL to a process and all of its children, or, with victim='worker', only to its last child."""
    try:
        if victim == "worker":
            psutil.Process(child).children(recursive=True)[-1].kill()
        else:
            os.killpg(child, signal.SIGKILL)
    except (ProcessLookupError, psutil.NoSuchProcess, IndexError):
        pass  # it has already ended, or has no children


def become_one_of(processes):
    """Return in forks of this process, with torchrun's environment.

    Like torchrun, this process waits for them, and if one fails, kills the others and exits with its status.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    children = set()
    for rank in range(processes):
        child = os.fork()
        if not child:
            os.environ |= {
                "RANK": str(rank),
                "LOCAL_RANK": str(rank),
                "WORLD_SIZE": str(processes),
                "LOCAL_WORLD_SIZE": str(processes),
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(port),
            }
            return
        children.add(child)
    code = 0
    while children and not code:
        child, status = os.wait()
        children.remove(child)
        code = abs(os.waitstatus_to_exitcode(status))
    for child in children:
        os.kill(child, signal.SIGKILL)
    os._exit(code)


def run_as_interpreter(command, arguments, folder, out, err):
    """Run a command in this process as the Python interpreter would, and exit with its status."""
    os.chdir(folder)
    for file, number in ((open(os.devnull), 0), (out, 1), (err, 2)):
        os.dup2(file.fileno(), number)
    sys.stdin, sys.stdout, sys.stderr = open(0), open(1, "w", buffering=1, closefd=False), open(2, "w", closefd=False)
    sys.__stderr__ = sys.stderr
    sys.argv = [command, *arguments]
    code = 0
    try:
        if command.endswith(".py"):
            runpy.run_path(str(REPO / command), run_name="__main__")
        else:
            module, *name = command.split()
            sys.argv[1:1] = name
            runpy.run_module(module, run_name="__main__", alter_sys=True)
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
    except BaseException:
        sys.excepthook(*sys.exc_info())
        code = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def serve(connection):
    """Run the commands from a connection until it is closed, without changes that pytest and its plugins made to this
    process.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)
    gc.freeze()  # the imported libraries are never garbage
    logging.root.handlers.clear()
    torch.set_num_threads(1)
    os.environ |= {"TOKENIZERS_PARALLELISM": "false", "PYTHONPATH": str(REPO)}
    for line in connection:
        command, faults = json.loads(line)
        print(json.dumps(run_in_child(*command, **faults)), file=connection, flush=True)
    os._exit(0)


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])).makefile("rw"))
