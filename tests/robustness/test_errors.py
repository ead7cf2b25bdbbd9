"""Messages of scripts that end with an error."""
import errno
import subprocess
import sys

import pytest
import torch

from _utils.errors import PlainError, explain


def chained(first, second):
    """The exception `second`, raised while `first` was handled."""
    second.__context__ = first
    return second


@pytest.mark.parametrize("error, message", [
    (PlainError("a mistake"), "error: a mistake"),
    (OSError(errno.ENOSPC, "No space left on device"), "error: No space left on device"),
    (OSError(errno.EFBIG, "File too large", "x.arrow"), "error: No space left on device"),
    (RuntimeError("DataLoader worker (pid 12) is killed by signal: Killed."), "Lower num_workers"),
    (torch.OutOfMemoryError("CUDA out of memory."), "Lower micro_batch"),
    (torch._dynamo.exc.Unsupported("a branch\nthat depends on data"),
     "error: compile=True failed (Unsupported: a branch that depends on data). Leave compile out."),
    (torch._dynamo.exc.TorchDynamoException("backend='inductor' raised:\nOutOfMemoryError: CUDA out of memory."), "Lower micro_batch"),
    (KeyboardInterrupt(), "Rerun the same command")])
def test_errors_that_users_can_fix_are_explained_on_one_line(error, message):
    explanation = explain(error)
    assert message in explanation and "\n" not in explanation


def test_a_stopped_run_ends_with_the_status_of_an_interrupt(repo):
    program = ("from _utils.errors import *; from _utils.training.after_step import Stopped; print_plain_errors(); "
               "raise Stopped('Stopped at step 1.')")
    done = subprocess.run([sys.executable, "-c", program], cwd=repo, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (130, "Stopped at step 1.\n")


@pytest.mark.parametrize("error", [RuntimeError("Caught KeyError in DataLoader worker process 0."), ValueError("of a bug"),
                                   OSError(errno.ENOENT, "No such file"), chained(ValueError(), KeyError())])
def test_other_errors_keep_their_traceback(error):
    assert explain(error) is None


@pytest.mark.parametrize("rank, stdout, stderr", [("0", "printed\n", "error: a mistake\n"), ("1", "", "process 1: error: a mistake\n")])
def test_only_the_first_process_prints_and_the_others_report_their_own_errors(repo, rank, stdout, stderr):
    program = ("import time; time.sleep = lambda seconds: None; from _utils.errors import *; print_plain_errors(); print('printed'); "
               "raise PlainError('a mistake')")
    done = subprocess.run([sys.executable, "-c", program], cwd=repo, env={"LOCAL_RANK": rank, "RANK": rank}, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (1, stdout, stderr)
