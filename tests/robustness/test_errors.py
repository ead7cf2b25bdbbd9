"""What scripts say when they end with an error."""
import errno
import os
import signal
import subprocess
import sys

import multiprocess
import pytest
import torch

from _utils.errors import PlainError, explain


def chained(error, later):
    try:
        try:
            raise error
        finally:
            raise later
    except Exception as raised:
        return raised


@pytest.mark.parametrize("error, told", [
    (PlainError("a mistake"), "error: a mistake"),
    (OSError(errno.ENOSPC, "No space left on device"), "no space is left"),
    (OSError(errno.EFBIG, "File too large", "x.arrow"), "no space is left"),
    (RuntimeError("DataLoader worker (pid 12) is killed by signal: Killed."), "lower num_workers"),
    (chained(RuntimeError("One of the subprocesses has abruptly died during map operation."), TimeoutError()), "lower num_workers"),
    (torch.OutOfMemoryError("CUDA out of memory."), "lower micro_batch"),
    (KeyboardInterrupt(), "the same command goes on")])
def test_errors_that_can_be_mended_are_told_in_a_sentence(error, told):
    sentence = explain(error)
    assert told in sentence and "\n" not in sentence


@pytest.mark.parametrize("error", [RuntimeError("Caught KeyError in DataLoader worker process 0."), ValueError("of a bug"),
                                   OSError(errno.ENOENT, "No such file"), chained(ValueError(), KeyError())])
def test_other_errors_keep_their_traceback(error):
    assert explain(error) is None


@pytest.mark.parametrize("rank, printed, told", [("0", "printed\n", "error: a mistake\n"), ("1", "", "process 1: error: a mistake\n")])
def test_of_several_processes_the_first_one_speaks_and_the_others_of_errors_of_their_own(repo, rank, printed, told):
    program = "from _utils.errors import *; print_plain_errors(); print('printed'); raise PlainError('a mistake')"
    done = subprocess.run([sys.executable, "-c", program], cwd=repo, env={"LOCAL_RANK": rank, "RANK": rank}, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (1, printed, told)


def test_a_queue_whose_process_was_killed_is_told():
    """As in `datasets`, where several processes read and one keeps their queue."""
    with multiprocess.Manager() as manager:
        queue = manager.Queue()
        queue.put(1)
        os.kill(manager._process.pid, signal.SIGKILL)
        with pytest.raises((EOFError, ConnectionError)) as caught:
            for _ in range(3):
                queue.get(timeout=.05)
    assert "a process that prepares data died" in explain(caught.value)
    assert explain(EOFError()) is None and explain(BrokenPipeError("of a reader of our output")) is None
