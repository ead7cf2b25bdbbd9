"""Messages of scripts that end with an error."""
import errno

import pytest
import torch

from _utils.errors import UserError, as_user_error, explain


@pytest.mark.parametrize("error, message", [
    (UserError("a mistake"), "error: a mistake"), (OSError(errno.ENOSPC, "No space left on device"), "No space left"),
    (OSError(errno.EFBIG, "File too large", "x.arrow"), "No space left"),
    (RuntimeError("DataLoader worker (pid 12) is killed by signal: Killed."), "num_workers"),
    (torch.OutOfMemoryError("CUDA out of memory."), "micro_batch"),
    (torch._dynamo.exc.Unsupported("a branch\nthat depends on data"), "compile"), (KeyboardInterrupt(), "Rerun")])
def test_errors_that_users_can_fix_are_explained_on_one_line(error, message):
    explanation = explain(error)
    assert message in explanation and "\n" not in explanation


def test_a_closed_connection_to_a_data_worker_is_explained():
    code = compile("raise ConnectionResetError('closed')", "site-packages/torch/utils/data/dataloader.py", "exec")
    with pytest.raises(ConnectionResetError) as raised:
        exec(code)
    assert "num_workers" in explain(raised.value) and explain(ConnectionResetError("closed")) is None


def test_a_dead_worker_is_not_taken_for_another_problem():
    with pytest.raises(RuntimeError, match="DataLoader"), as_user_error("Free some disk space."):
        raise RuntimeError("DataLoader worker (pid 12) is killed by signal: Killed.")


@pytest.mark.parametrize("error", [
    RuntimeError("Caught KeyError in DataLoader worker process 0."), ValueError("of a bug")])
def test_other_errors_keep_their_traceback(error):
    assert explain(error) is None
