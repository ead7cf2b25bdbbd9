"""Runs the project's scripts and modules in children of one process that has imported what they import.

A child is a fork, so it starts in milliseconds instead of the ten seconds that the imports take, and what it does and how long is seen
without them. Started by `Scripts` it reads a command as a line of JSON on its standard input and answers with a line.
"""
import json
import os
import resource
import runpy
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import NamedTuple

import psutil

REPO = Path(__file__).parents[2]
LIMIT = 200  # seconds, after which a command is killed


class Done(NamedTuple):
    """How a command ended; seconds: without the imports."""
    returncode: int
    stdout: str
    stderr: str
    seconds: float


class Scripts:
    """`Scripts().run("pretrain.py", ["steps=2"], folder)`: the command as `python pretrain.py steps=2` in that folder, a Done."""

    def __init__(self):
        env = {**os.environ, "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false", "OMP_NUM_THREADS": "1", "PYTHONPATH": str(REPO)}
        self.server = subprocess.Popen([sys.executable, __file__], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def run(self, command, arguments, folder, kill_after=None, largest_file=None, victim=None):
        """command: a script, or a module of this repository.

        kill_after: seconds after which it gets SIGKILL with all its children, or, with victim='worker', only the last of its children.
        largest_file: bytes beyond which it can write no file, as on a disk that is full.
        """
        self.server.stdin.write(json.dumps([command, arguments, str(folder), kill_after, largest_file, victim]) + "\n")
        self.server.stdin.flush()
        return Done(*json.loads(self.server.stdout.readline()))

    def close(self):
        self.server.kill()
        self.server.communicate()


def run_in_child(command, arguments, folder, kill_after=None, largest_file=None, victim=None):
    """Done of a command, run in a fork of this process; arguments as in `Scripts.run`."""
    with tempfile.TemporaryFile("w+", errors="replace") as out, tempfile.TemporaryFile("w+", errors="replace") as err:
        started = time.perf_counter()
        child = os.fork()
        if not child:
            os.setsid()
            if largest_file is not None:
                resource.setrlimit(resource.RLIMIT_FSIZE, (largest_file, largest_file))
            become(command, arguments, folder, out, err)
        killer = threading.Timer(kill_after, kill, (child, victim)) if kill_after is not None else None
        if killer:
            killer.start()
        returncode = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if killer:
            killer.cancel()
        seconds = time.perf_counter() - started
        for file in (out, err):
            file.seek(0)
        return Done(returncode, out.read(), err.read(), seconds)


def kill(child, victim):
    """SIGKILL for a child and all of its children, or for the last of those alone."""
    try:
        if victim == "worker":
            psutil.Process(child).children(recursive=True)[-1].kill()
        else:
            os.killpg(child, signal.SIGKILL)
    except (ProcessLookupError, psutil.NoSuchProcess, IndexError):
        pass  # it has ended, or has no children now


def become(command, arguments, folder, out, err):
    """Be the interpreter of a command until it ends, and then end too, as an interpreter does."""
    signal.alarm(LIMIT)
    os.chdir(folder)
    with open(os.devnull) as nothing:
        for file, number in ((nothing, 0), (out, 1), (err, 2)):
            os.dup2(file.fileno(), number)
    sys.stdin, sys.stdout, sys.stderr = open(0), open(1, "w", buffering=1, closefd=False), open(2, "w", closefd=False)
    sys.__stderr__ = sys.stderr
    sys.argv = [command, *arguments]
    code = 0
    try:
        if command.endswith(".py"):
            runpy.run_path(str(REPO / command), run_name="__main__")
        else:
            runpy.run_module(command, run_name="__main__", alter_sys=True)
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


def serve():
    import torch

    import _utils.export_notebooks  # noqa: F401  imported for the children, as the next two
    import finetune  # noqa: F401
    import pretrain  # noqa: F401
    del sys.modules["_utils.export_notebooks"]  # which is run as a module itself
    torch.set_num_threads(1)
    for line in sys.stdin:
        print(json.dumps(run_in_child(*json.loads(line))), flush=True)


if __name__ == "__main__":
    serve()
