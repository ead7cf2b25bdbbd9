"""Messages of scripts that end with an error."""
import errno
import io
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from unittest import mock

import pytest
import torch
from filelock import FileLock

from _utils.errors import UserError, as_user_error, explain, print_user_errors
from _utils.files import acquired, check_writable


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


def test_characters_that_the_output_lacks_are_printed_as_escapes(monkeypatch):
    """Labels in Chinese, where the locale is Latin-1 or the output of a Windows console is redirected."""
    output = io.TextIOWrapper(io.BytesIO(), "latin-1")
    monkeypatch.setattr(sys, "stdout", output)
    monkeypatch.setattr(sys, "excepthook", None)
    print_user_errors()
    print("né 正面", flush=True)
    assert output.buffer.getvalue().decode("latin-1") == "né \\u6b63\\u9762\n"


def test_a_lock_is_for_all_users_and_announces_that_it_waits(tmp_path):
    path, events = tmp_path / ".lock", []

    def wait():
        with acquired(path, lambda: events.append("waits")):
            events.append("has it")

    with ThreadPoolExecutor() as pool:
        with acquired(path, lambda: events.append("is not free")):
            assert path.stat().st_mode & 0o777 == 0o666  # whatever the umask
            waiting = pool.submit(wait)
            while not events:
                time.sleep(.01)
            events.append("is released")
        waiting.result()
    assert events == ["waits", "is released", "has it"]


def test_a_lock_of_a_user_who_does_not_share_it_is_an_error(tmp_path, monkeypatch):
    monkeypatch.setattr(FileLock, "acquire", mock.Mock(side_effect=PermissionError(errno.EACCES, "Permission denied")))
    with pytest.raises(UserError, match=r"\.lock.*chmod"):
        acquired(tmp_path / ".lock", print)


def test_a_file_that_results_are_appended_to_is_checked_before(tmp_path, monkeypatch):
    """For example the table of finished runs, which another user of the folder made."""
    path = tmp_path / "scores.jsonl"
    check_writable(tmp_path, files=[path])  # which need not exist
    path.touch()
    check_writable(tmp_path, files=[path])
    monkeypatch.setattr(os, "access", lambda checked, mode: checked != path)  # as the tests may run as root
    with pytest.raises(UserError, match="scores.jsonl.*chmod"):
        check_writable(tmp_path, files=[path])


def test_a_program_goes_on_when_the_reader_of_its_output_ends(tmp_path):
    code = ("import pathlib, sys; from _utils.errors import print_user_errors; print_user_errors(); "
            "[print('a line', file=stream) for _ in range(20_000) for stream in (sys.stdout, sys.stderr)]; "
            "pathlib.Path(sys.argv[1]).write_text('done')")
    with subprocess.Popen([sys.executable, "-c", code, str(tmp_path / "x")], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT) as program:
        program.stdout.readline()
        program.stdout.close()
    assert program.returncode == 0 and (tmp_path / "x").read_text() == "done"
