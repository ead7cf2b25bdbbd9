"""Files of prepared examples: what a killed process leaves, several processes at once, and how the work is divided."""
import contextlib
import multiprocessing
import os
import signal
import time

import psutil
import pytest
import tiny_pretraining
from corpora import make_corpus

from _utils.errors import UserError
from _utils.text import processors
from _utils.text.examples import prepare_examples
from _utils.text.processors import ELECTRADataProcessor

pytestmark = pytest.mark.skipif(
    multiprocessing.get_start_method() != "fork", reason="monkeypatching reaches only forked processes"
)
FORK = multiprocessing.get_context("fork")
N_FILES = 12


@pytest.fixture
def prepare(tmp_path, small_tokenizer, monkeypatch):
    """Return a function that prepares the examples of a small corpus of N_FILES blocks in a subfolder of tmp_path."""
    monkeypatch.setattr(processors, "BLOCK", 10)
    corpus = make_corpus(n_documents=10 * N_FILES)
    return lambda folder="cache", num_proc=2: prepare_examples(
        corpus, small_tokenizer, 32, 7, tmp_path / folder, num_proc=num_proc
    )


@pytest.fixture
def before_file(monkeypatch):
    """Return a function that takes `act` and calls `act(path)` in the middle of writing each file."""
    write_blocks, write_file = ELECTRADataProcessor._write_blocks, ELECTRADataProcessor._write_file

    def patch(act):
        def remember_path(processor, task):
            processor.path = task[0]
            write_file(processor, task)

        def act_and_write(processor, blocks, file):
            act(processor.path)
            write_blocks(processor, blocks, file)
        monkeypatch.setattr(ELECTRADataProcessor, "_write_file", remember_path)
        monkeypatch.setattr(ELECTRADataProcessor, "_write_blocks", act_and_write)
    return patch


def start(function, *args):
    """Call a function in a fork of this process, in a new process group."""
    process = FORK.Process(target=lambda: (os.setsid(), function(*args)))
    process.start()
    return process


def wait_until_empty(group):
    """Wait until a process group has no processes; fail after 20 seconds."""
    for _ in range(400):
        with contextlib.suppress(psutil.NoSuchProcess, ProcessLookupError):  # the process has just exited
            if not any(os.getpgid(process.pid) == group for process in psutil.process_iter()
                       if process.status() != psutil.STATUS_ZOMBIE):
                return
        time.sleep(.05)
    pytest.fail("still running")


def files(folder):
    return {path.name: path.stat().st_mtime_ns for path in folder.glob("*.arrow")}


@pytest.mark.parametrize("num_proc, killed", [(1, "itself"), (2, "parent"), (2, "worker")])
def test_after_a_kill_only_missing_files_are_built(tmp_path, prepare, before_file, num_proc, killed):
    whole = prepare("whole").to_dict()

    def kill(path):
        if path.stem.endswith("_00006_of_00012"):
            os.kill(os.getppid() if killed == "parent" else os.getpid(), signal.SIGKILL)
            time.sleep(.2)
    before_file(kill)
    if killed == "worker":
        with pytest.raises(UserError, match="A process that prepares data died.* rerun the same command"):
            prepare()
    else:
        process = start(prepare, "cache", num_proc)
        process.join(30)
        assert process.exitcode == -signal.SIGKILL
        wait_until_empty(process.pid)
    kept = files(tmp_path / "cache")
    assert 3 <= len(kept) < N_FILES

    before_file(lambda path: None)
    assert prepare(num_proc=3).to_dict() == whole
    after = files(tmp_path / "cache")
    assert len(after) == N_FILES and {name: after[name] for name in kept} == kept
    assert not list((tmp_path / "cache").glob("*.unfinished"))


def test_runs_with_different_seeds_share_their_examples(workplace):
    for seed in (5, 6):
        tiny_pretraining.run("steps=2", f"seed={seed}")
    assert len(list(workplace.glob("datasets/examples_*.arrow"))) == 1
