"""Files of prepared examples: what a killed process leaves, and which runs share them."""
import itertools
import multiprocessing
import os
import signal

import pytest
import tiny_pretraining
from corpora import make_corpus

from _utils.errors import UserError
from _utils.text import processors
from _utils.text.examples import prepare_examples
from _utils.text.processors import ELECTRADataProcessor

N_FILES = 12


@pytest.fixture
def prepare(tmp_path, small_tokenizer, monkeypatch):
    """Return a function that prepares the examples of a small corpus of N_FILES blocks in a subfolder of tmp_path."""
    if multiprocessing.get_start_method() != "fork":
        pytest.skip("monkeypatching reaches only forked processes")
    monkeypatch.setattr(processors, "ROWS_PER_BLOCK", 10)
    corpus = make_corpus(n_documents=10 * N_FILES)
    return lambda folder, n: prepare_examples(corpus, small_tokenizer, 32, 7, tmp_path / folder, num_proc=n)


def files(folder):
    return {path.name: path.stat().st_mtime_ns for path in folder.glob("*.arrow")}


def test_after_a_kill_only_missing_files_are_built(tmp_path, prepare, monkeypatch):
    whole = prepare("whole", 2).to_dict()
    build, calls, parent = ELECTRADataProcessor.build, itertools.count(), os.getpid()

    def build_four(*given):
        """Each worker is killed at its fifth block."""
        if next(calls) == 4 and os.getpid() != parent:
            os.kill(os.getpid(), signal.SIGKILL)
        return build(*given)
    with monkeypatch.context() as patch, pytest.raises(UserError, match="rerun"):
        patch.setattr(ELECTRADataProcessor, "build", build_four)
        prepare("cache", 2)
    kept = files(tmp_path / "cache")
    assert 3 <= len(kept) < N_FILES

    assert prepare("cache", 3).to_dict() == whole
    after = files(tmp_path / "cache")
    assert len(after) == N_FILES and {name: after[name] for name in kept} == kept
    assert not list((tmp_path / "cache").glob("*.unfinished"))


def test_runs_with_different_seeds_share_their_examples(workplace):
    for seed in (5, 6):
        tiny_pretraining.run("steps=2", f"seed={seed}")
    assert len(list(workplace.glob("datasets/examples_*.arrow"))) == 1
