"""A pretraining that was stopped or killed goes on as if it had not been; another one under its name is refused."""
import errno
import os
import shutil
import signal
import tracemalloc
import zipfile
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import tiny_pretraining
import torch
from fastai.callback.core import Callback
from tiny_pretraining import FOLDER, metrics, rows, tensorboard_events, weights

import pretrain
from _utils.errors import PlainError
from _utils.pretraining_data.batches import EndlessPermutations
from _utils.run_files.resume import find_resume_checkpoint, save_resume_checkpoint
from _utils.run_files.run_log import locked
from _utils.training.callbacks import TrainLog
from _utils.training.stopping import Stopped

run = partial(tiny_pretraining.run, resume=True)


@pytest.fixture
def stop_after(monkeypatch):
    """A function: let the process get a signal in the middle of a step, once."""
    class SendSignal(Callback):
        def __init__(self, step, number):
            self.step, self.number = step, number

        def before_step(self):
            if self.learn.train_iter == self.step:
                self.step = None
                os.kill(os.getpid(), self.number)

    def arrange(step, number=signal.SIGINT):
        build, sender = pretrain.build_masking, SendSignal(step, number)
        def with_sender(c, hf_tokenizer):
            masked_lm = build(c, hf_tokenizer)
            masked_lm.before_fit = lambda: masked_lm.learn.add_cb(sender)
            return masked_lm
        monkeypatch.setattr(pretrain, "build_masking", with_sender)
    return arrange


def same(a, b):
    return a.keys() == b.keys() and all(a[name].equal(b[name]) for name in a)


@pytest.mark.parametrize("options", [("steps=430",),  # rows at every second step
                                     ("steps=40", "precision=bf16", "optimizer=lamb", "masking=official"),
                                     ("steps=40", "objective=mlm", "num_workers=2", "examples=line_pairs"),
                                     ("steps=40", "precision=fp16"),
                                     ("steps=40", "adam_bias_correction=True", "schedule=one_cycle", "micro_batch=4")])
def test_a_stopped_run_ends_with_the_weights_and_rows_of_one_that_was_not(workplace, stop_after, capsys, options):
    run("base_run_name=whole", *options)
    for step in (6, 19, 30):  # of 40, 20 is a milestone
        stop_after(step)
        with pytest.raises(Stopped, match=f"Stopped at step {step + 1} of 4.*mini_5.*Rerun the same command"):
            run(*options)
    run(*options)
    assert "Resuming the run mini_5 after step 31." in capsys.readouterr().out
    assert rows() == rows("whole_5")
    for percent in ("6.25", "12.5", "25.0", "50.0", "100.0"):
        assert same(weights("mini_5", percent), weights("whole_5", percent))


def test_a_run_that_died_without_warning_goes_on_from_its_last_state(workplace, monkeypatch):
    run("base_run_name=whole")
    class Died(BaseException):
        pass
    def die(learn):
        if learn.train_iter == 11:
            raise Died
    plain = pretrain.PretrainingLearner._step
    monkeypatch.setattr("_utils.training.learners.PretrainingLearner._step", lambda learn: (die(learn), plain(learn)))
    with pytest.raises(Died):
        run("save_minutes=0")
    assert len(metrics()) == 11
    monkeypatch.undo()
    monkeypatch.chdir(workplace)
    (FOLDER / "mini_5" / "metrics.jsonl").open("a").write('{"step": 12, "split": "tr')  # as a killed process may leave it
    run("save_minutes=0")
    assert rows() == rows("whole_5") and same(weights(), weights("whole_5"))


def test_the_state_is_saved_on_time_between_two_rows_of_metrics(workplace, monkeypatch):
    """Of a run with slow steps, whose rows are minutes apart."""
    saved = []
    monkeypatch.setattr("_utils.training.callbacks.ResumePoint.save", lambda state: saved.append(state.learn.train_iter))
    monkeypatch.setattr("_utils.training.callbacks.milestone_steps", lambda steps: {steps: [100.]})
    monkeypatch.setattr("_utils.training.callbacks.TrainLog.__init__", with_rows_every(8))
    run("save_minutes=1e-9")
    assert saved == list(range(17))


def with_rows_every(steps):
    plain = TrainLog.__init__

    def init(train_log, *args):
        plain(train_log, *args)
        train_log.every = steps
    return init


def test_a_complete_run_is_not_trained_again_unless_told(workplace, capsys):
    first = run("steps=4")
    before = (FOLDER / "mini_5_100.0%.pth").stat().st_mtime_ns, rows()
    again = run("steps=4")
    assert "complete" in capsys.readouterr().out and not (FOLDER / "aside").exists()
    assert ((FOLDER / "mini_5_100.0%.pth").stat().st_mtime_ns, rows()) == before
    assert same(first.model.state_dict(), again.model.state_dict())


@pytest.mark.parametrize("other, named", [
    (("lr=1e-3", "temperature=2."), ["started with temperature=1.0, lr=0.0003", "now temperature=2.0, lr=0.001"]),
    (("steps=8",), ["steps=4", "steps=8"])])
def test_another_configuration_under_the_name_is_refused(workplace, other, named):
    run("steps=4")
    before = weights()
    with pytest.raises(PlainError) as refused:
        run("steps=4", *other)
    assert all(text in str(refused.value) for text in [*named, "resume=False"])
    assert same(before, weights())
    run("steps=4", "logger=tensorboard", "num_workers=1", "micro_batch=4")  # these may change


def test_a_signal_in_the_last_step_lets_the_run_come_to_its_end(workplace, stop_after, capsys):
    stop_after(15, signal.SIGTERM)
    run()
    assert "Stopping after this step" in capsys.readouterr().out and (FOLDER / "mini_5_100.0%.pth").exists()


def test_a_complete_run_whose_state_was_deleted_is_kept(workplace):
    run("steps=2")
    for path in (FOLDER / "mini_5").glob("resume*.pth"):
        path.unlink()
    with pytest.raises(PlainError, match=r"The run mini_5 is complete .*mini_5_100.0%.pth' exists.*resume.pth was deleted.*resume=False"):
        run("steps=2")
    assert (FOLDER / "mini_5_100.0%.pth").exists() and not (FOLDER / "aside").exists()
    run("steps=2", "resume=False")
    assert (FOLDER / "aside/mini_5_1/mini_5_100.0%.pth").exists()


def test_a_good_state_is_not_pushed_out_by_a_damaged_one(tmp_path):
    save_resume_checkpoint(tmp_path, {"step": 1})
    save_resume_checkpoint(tmp_path, {"step": 2})
    flip_a_bit(tmp_path / "resume.pth", .5)
    assert find_resume_checkpoint(tmp_path) == {"step": 1}
    assert {path.name for path in tmp_path.iterdir()} == {"resume.pth.damaged", "resume_before.pth"}
    with pytest.raises(PlainError), pytest.MonkeyPatch.context() as patch:
        patch.setattr("os.fsync", lambda _: os.open("/nowhere", 0))  # the next one cannot be written
        save_resume_checkpoint(tmp_path, {"step": 3})
    assert find_resume_checkpoint(tmp_path) == {"step": 1}
    save_resume_checkpoint(tmp_path, {"step": 3})
    assert find_resume_checkpoint(tmp_path) == {"step": 3}


def test_of_several_processes_the_first_one_renames_a_damaged_state(tmp_path, monkeypatch):
    for step in (1, 2):
        save_resume_checkpoint(tmp_path, {"step": step})
    flip_a_bit(tmp_path / "resume.pth", .5)
    monkeypatch.setenv("LOCAL_RANK", "1")
    assert find_resume_checkpoint(tmp_path) == {"step": 1} and (tmp_path / "resume.pth").exists()
    monkeypatch.setenv("LOCAL_RANK", "0")
    assert find_resume_checkpoint(tmp_path) == {"step": 1} and not (tmp_path / "resume.pth").exists()
    monkeypatch.setenv("LOCAL_RANK", "1")
    assert find_resume_checkpoint(tmp_path) == {"step": 1}


@pytest.mark.parametrize("owner, name, error", [
    (zipfile.ZipFile, "testzip", OSError(errno.EIO, "Input/output error")),
    (zipfile.ZipFile, "testzip", OSError(errno.ESTALE, "Stale file handle")),
    (torch, "load", MemoryError()),
    (torch, "load", RuntimeError("[enforce fail at alloc_cpu.cpp:127] DefaultCPUAllocator: can't allocate memory"))])
def test_a_state_that_cannot_be_read_now_is_kept_and_not_passed_over(tmp_path, monkeypatch, owner, name, error):
    for step in (1, 2):
        save_resume_checkpoint(tmp_path, {"step": step})
    def fail(*_, **__):
        raise error
    with monkeypatch.context() as patch, pytest.raises(PlainError, match=r"resume.pth' cannot be read \(.*rerun the same command"):
        patch.setattr(owner, name, fail)
        find_resume_checkpoint(tmp_path)
    assert find_resume_checkpoint(tmp_path) == {"step": 2}


def test_a_setting_that_a_state_does_not_know_is_taken_as_its_default(workplace):
    """As in a run that was begun with an earlier version."""
    run("steps=4")
    path = FOLDER / "mini_5" / "resume.pth"
    state = torch.load(path, weights_only=True)
    for key in ("temperature", "warmup_steps"):  # the second one's default is the recipe's share
        del state["config"][key]
    torch.save(state, path)
    run("steps=4")
    run("steps=4", "temperature=1.0")
    with pytest.raises(PlainError, match="started with temperature=1.0; now temperature=2.0"):
        run("steps=4", "temperature=2.")


@pytest.mark.parametrize("renamed", [0, 1])
def test_a_state_that_was_written_whole_is_used_though_the_kill_came_before_its_renaming(tmp_path, monkeypatch, renamed):
    save_resume_checkpoint(tmp_path, {"step": 1})
    replace, done = os.replace, []

    def killed(source, target):
        if Path(source).name.startswith("resume") and Path(source).suffix == ".pth":
            if len(done) == renamed:
                raise KeyboardInterrupt
            done.append(source)
        replace(source, target)
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(os, "replace", killed)
        save_resume_checkpoint(tmp_path, {"step": 2})
    assert find_resume_checkpoint(tmp_path) == {"step": 2}
    save_resume_checkpoint(tmp_path, {"step": 3})
    assert find_resume_checkpoint(tmp_path) == {"step": 3}


def test_another_text_or_vocabulary_under_the_name_is_refused(workplace):
    run("steps=4")
    text, vocab = Path("text.txt").read_text(), Path("vocab.txt").read_text()
    Path("text.txt").write_text(text.replace("guesses", "decisions"))
    with pytest.raises(PlainError, match=r"The text \(datas, vocab\) changed since the run in .*mini_5"):
        run("steps=4")
    Path("text.txt").write_text(text)
    Path("vocab.txt").write_text(vocab + "\nguessing")
    with pytest.raises(PlainError, match="The vocabulary and the text .* changed"):
        run("steps=4")
    Path("vocab.txt").write_text(vocab)
    run("steps=4")


def flip_a_bit(path, share):
    content = bytearray(path.read_bytes())
    content[int(len(content) * share)] ^= 4
    path.write_bytes(content)


@pytest.mark.parametrize("damage", [lambda path: path.write_bytes(path.read_bytes()[:5000]), lambda path: flip_a_bit(path, .5),
                                    lambda path: path.write_bytes(b"")])
def test_a_damaged_state_is_noticed_and_the_one_before_it_used(workplace, stop_after, capsys, damage):
    run("base_run_name=whole")
    stop_after(9)
    with pytest.raises(Stopped):
        run("save_minutes=0")
    kept = shutil.copytree(FOLDER / "mini_5", workplace / "kept")
    damage(FOLDER / "mini_5" / "resume.pth")
    run("save_minutes=0")
    printed = capsys.readouterr().out
    assert "resume.pth', which is damaged" in printed
    assert "after step 9." in printed  # the one before: of the row of step 9
    assert rows() == rows("whole_5") and same(weights(), weights("whole_5"))

    shutil.rmtree(FOLDER / "mini_5")
    shutil.copytree(kept, FOLDER / "mini_5")
    for name in ("resume.pth", "resume_before.pth"):
        damage(FOLDER / "mini_5" / name)
    with pytest.raises(PlainError, match="No checkpoint to resume from in .*mini_5.* resume=False to start the run from scratch"):
        run("save_minutes=0")


def test_two_processes_cannot_train_one_run(workplace):
    with locked(FOLDER / "mini_5"):
        with pytest.raises(PlainError, match="Another process is training the run"):
            run("steps=1")
    run("steps=1")


@pytest.mark.parametrize("killed", [True, False])
def test_tensorboard_shows_each_step_once(workplace, stop_after, killed):
    stop_after(9)
    with pytest.raises(Stopped):
        run("logger=tensorboard")
    if killed:  # before the next state was saved after the first
        os.replace(FOLDER / "mini_5/resume_before.pth", FOLDER / "mini_5/resume.pth")
    run("logger=tensorboard")
    assert [event.step for event in tensorboard_events().Scalars("train/gen_loss")] == list(range(1, 17))


@pytest.mark.parametrize("start", [0, 5, 10, 23])
def test_the_place_in_the_data_can_be_anywhere(start):
    whole = list(EndlessPermutations(10, 37, seed=3))
    rest = EndlessPermutations(10, 37, 3, start)
    assert list(rest) == whole[start:] and len(rest) == 37 - start


def test_the_order_of_the_data_is_that_of_numpys_permutations():
    size, n = 25_003, 60_000
    expected = np.concatenate([np.random.default_rng((7, epoch)).permutation(size) for epoch in range(3)])
    for start in (0, 9_999, 25_003, 40_000):
        assert list(EndlessPermutations(size, n, 7, start)) == expected[start:n].tolist()


@pytest.mark.parametrize("start", [0, 1_500_000])
def test_the_order_of_the_data_needs_little_memory(start):
    size = 1_000_000
    tracemalloc.start()
    iterator = iter(EndlessPermutations(size, 3 * size, seed=0, start=start))
    for _ in range(20_000):
        next(iterator)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 6 * size  # bytes; the order as a list has about 40 for each example
