"""A stopped or killed pretraining run resumes as if it had never been interrupted; a run with other settings or data is
rejected.
"""
import itertools
import os
import random
import shutil
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
import tiny_pretraining
from fastai.callback.core import Callback
from tiny_pretraining import FOLDER, equal_weights, flip_bit, metrics, rows, weights

import pretrain
from _utils.commands.export_hf import export_hf
from _utils.errors import UserError
from _utils.networks import load_pretrained
from _utils.runs.checkpoints import load_checkpoint, save_checkpoint
from _utils.runs.log import locked
from _utils.training import pretraining_run
from _utils.training.callbacks import Stopped

run = partial(tiny_pretraining.run, resume=True)


class SendSignal(Callback):
    """Sends a signal to this process in the middle of a step, once."""

    def __init__(self, step, number):
        self.step, self.number = step, number

    def before_batch(self):
        if self.learn.train_iter == self.step:
            self.step = None
            os.kill(os.getpid(), self.number)


@pytest.fixture
def stop_after(monkeypatch):
    """stop_after(step, number): the next run receives a signal while it computes the step after `step`."""
    def arrange(step, number=signal.SIGINT):
        build_learner, sender = pretrain.build_learner, SendSignal(step, number)

        def with_sender(*args):
            learn = build_learner(*args)
            learn.add_cb(sender)
            return learn
        monkeypatch.setattr(pretrain, "build_learner", with_sender)
    return arrange


def assert_equal_checkpoints():
    """The milestones of the runs mini_5 and whole_5 are equal."""
    paths = list(FOLDER.glob("whole_5_*.pth"))
    for path in paths:
        assert equal_weights(
            load_checkpoint(path)["model"], load_checkpoint(str(path).replace("whole", "mini"))["model"]
        )
    assert len(paths) > 1


@pytest.mark.parametrize("options", [("steps=430", "stop_at=12", "milestones=2"),  # metrics at every second step
                                     ("steps=12", "precision=bf16", "optimizer=lamb", "masking=official", "bs=2"),
                                     ("steps=12", "objective=mlm", "num_workers=1"),
                                     ("steps=12", "precision=fp16", "bs=2"),
                                     ("steps=12", "adam_bias_correction=True", "schedule=one_cycle", "micro_batch=4")])
def test_resumed_run_equals_uninterrupted_run(workplace, stop_after, capsys, options):
    whole = run("base_run_name=whole", *options)
    for step in (2, 5, 8):
        stop_after(step)
        with pytest.raises(Stopped, match=f"step {step + 1} "):
            run(*options)
    resumed = run(*options)
    assert "after step 9:" in capsys.readouterr().out
    assert rows() == rows("whole_5") and resumed.scaler.state_dict() == whole.scaler.state_dict()
    assert_equal_checkpoints()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP])
def test_a_run_saves_at_the_signals_of_job_schedulers_and_terminals(workplace, stop_after, number):
    before = signal.signal(number, signal.SIG_DFL)  # the tests may run under nohup
    stop_after(2, number)
    with pytest.raises(Stopped):
        run("steps=9")
    assert load_checkpoint(FOLDER / "mini_5/resume.pth")["step"] == 3
    assert signal.signal(number, before) == signal.SIG_DFL


def test_a_run_under_nohup_goes_on_when_the_terminal_is_closed(workplace, stop_after):
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    stop_after(2, signal.SIGHUP)
    run("steps=4")
    signal.signal(signal.SIGHUP, before)
    assert (FOLDER / "mini_5_100.0%.pth").exists()


def test_a_run_in_a_thread(workplace):
    """As in a server, or a search for hyperparameters."""
    with ThreadPoolExecutor() as pool:
        pool.submit(run, "steps=2", "base_run_name=thread").result()
    run("steps=2")
    assert equal_weights(weights(), weights("thread_5"))


@pytest.mark.parametrize("options", [("steps=430", "milestones=2"),  # metrics at every second step
                                     ("steps=12", "milestones=10,50", "precision=bf16", "masking=official", "bs=2")])
def test_run_that_stops_at_chosen_steps_equals_uninterrupted_run(workplace, options):
    """The schedule is that of all steps, whatever the step to stop at."""
    run("base_run_name=whole", "stop_at=12", *options)
    for stop_at in (3, 3, 7):  # the second time, nothing is left to do
        run(f"stop_at={stop_at}", *options)
        assert load_checkpoint(FOLDER / "mini_5/resume.pth")["step"] == metrics("held_out")[-1]["step"] == stop_at
    run("stop_at=12", *options)
    of_stops = [row for row in rows() if row["split"] == "held_out" and row["step"] in (3, 7)]
    assert len(of_stops) == 2 and [row for row in rows() if row not in of_stops] == rows("whole_5")
    assert_equal_checkpoints()


def test_new_milestones_that_a_resumed_run_has_passed_are_named(workplace, capsys):
    run("steps=100", "stop_at=4", "milestones=2")
    run("steps=100", "stop_at=5", "milestones=2")
    assert "Warning" not in capsys.readouterr().out
    run("steps=100", "stop_at=6", "milestones=2,3,6")
    assert "[3.0]" in capsys.readouterr().out and (FOLDER / "mini_5_6.0%.pth").exists()


def test_the_step_to_stop_at_is_a_milestone_also_if_the_run_was_interrupted_there(workplace, stop_after):
    stop_after(3)
    with pytest.raises(Stopped):
        run()
    run("stop_at=4", resume=True)
    run("stop_at=4", resume=True)  # once
    assert load_checkpoint(FOLDER / "mini_5_step4.pth")["step"] == 4
    assert [row["step"] for row in metrics("held_out")] == [4]


def test_killed_run_resumes_from_its_last_checkpoint(workplace, monkeypatch):
    run("base_run_name=whole", "steps=8")
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(pretraining_run, "save_pretrained", mock.Mock(side_effect=[None, KeyboardInterrupt]))
        run("steps=8", "save_minutes=0")  # killed before it saves its last milestone
    # a killed process may leave an incomplete line
    (FOLDER / "mini_5" / "metrics.jsonl").open("a").write('{"step": 8, "split": "tr')
    run("steps=8", "save_minutes=0")
    assert rows() == rows("whole_5") and equal_weights(weights(), weights("whole_5"))


def test_a_killed_run_has_saved_a_step_that_took_longer_than_save_minutes(workplace, monkeypatch):
    steps = itertools.count(1)

    def sample(logits, *_):
        if next(steps) == 3:
            raise KeyboardInterrupt
        time.sleep(.1)
        return logits.argmax(-1)
    monkeypatch.setattr(pretrain, "sample", sample)
    with pytest.raises(KeyboardInterrupt):
        run("save_minutes=.001")
    assert load_checkpoint(FOLDER / "mini_5/resume.pth")["step"] == 2


def test_complete_run_is_not_trained_again(workplace):
    first, path = run("steps=4"), FOLDER / "mini_5_100.0%.pth"
    before = path.stat().st_mtime_ns, rows()
    second = run("steps=4")
    assert (path.stat().st_mtime_ns, rows()) == before and not (FOLDER / "aside").exists()
    assert equal_weights(first.model.state_dict(), second.model.state_dict())


def test_run_with_other_settings_is_rejected(workplace):
    run("steps=4")
    before = weights()
    for change in ("lr=1e-3", "temperature=2.", "steps=8"):
        with pytest.raises(UserError, match=f"{change.partition('=')[0]}=.*resume=False"):
            run("steps=4", change)
    assert equal_weights(before, weights())
    run("steps=4", "logger=tensorboard", "num_workers=1", "micro_batch=4")  # these settings may differ


def test_complete_run_without_its_resume_checkpoint_is_kept(workplace):
    run("steps=2")
    for path in (FOLDER / "mini_5").glob("resume*.pth"):
        path.unlink()
    with pytest.raises(UserError, match="mini_5.*resume=False"):
        run("steps=2")
    assert (FOLDER / "mini_5_100.0%.pth").exists() and not (FOLDER / "aside").exists()
    run("steps=2", "resume=False")
    assert (FOLDER / "aside/mini_5_1/mini_5_100.0%.pth").exists()


@pytest.mark.parametrize("file, old, new, changed", [
    ("text.txt", "guesses", "decisions", "text"), ("vocab.txt", "guess", "guest", "vocabulary and the text")])
def test_run_with_another_text_or_vocabulary_is_rejected(workplace, file, old, new, changed):
    run("steps=4")
    Path(file).write_text(Path(file).read_text().replace(old, new))
    with pytest.raises(UserError, match=changed):
        run("steps=4")


def move(*names):
    """Move files to the folder `elsewhere`. Returns their new paths."""
    Path("elsewhere").mkdir(exist_ok=True)
    return [shutil.move(name, "elsewhere") for name in names]


def test_a_run_whose_files_were_moved_resumes(workplace):
    """They are known by their content."""
    run("base_run_name=whole", "steps=4")
    run("steps=4", "stop_at=3")
    text, vocabulary = move("text.txt", "vocab.txt")
    run("steps=4", f"datas={text}", f"vocab={vocabulary}")
    assert equal_weights(weights(), weights("whole_5"))
    pair = ["initial_weights=whole_5_100.0%.pth", "base_run_name=next", f"datas={text}", "steps=4"]
    run(*pair, "stop_at=2", vocab=None)
    [moved] = move(FOLDER / "whole_5_100.0%.pth")
    run(*pair, f"initial_weights={moved}", vocab=None)
    assert len(metrics(name="next_5")) == 4


@pytest.mark.parametrize("change, content", [
    ("datas=other.txt", "another text of two lines\nthat has no word in common with the first\n"),
    ("datas=other.txt,text.txt", "another text of two lines\nthat has no word in common with the first\n"),
    ("vocab=other.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nthe\n")])
def test_a_run_with_other_files_is_rejected_before_they_are_prepared(workplace, change, content):
    Path("other.txt").write_text(content)
    run("datas=text.txt,other.txt" if "," in change else "datas=text.txt", "steps=4", "stop_at=2")
    before = {*Path("datasets").iterdir()}
    with pytest.raises(UserError, match=f"{change.partition('=')[0]}=.*other.*resume=False"):
        run("datas=text.txt", "steps=4", change)
    assert {path for path in Path("datasets").iterdir() if path.suffix == ".arrow"} <= before


def test_a_run_of_another_version_is_refused(workplace):
    """Wherever one of its checkpoints is read."""
    run("steps=4", "stop_at=2")
    milestone, refused = FOLDER / "mini_5_50.0%.pth", partial(pytest.raises, UserError)
    for path, changed in ((FOLDER / "mini_5/resume.pth", {"cased": False}), (milestone, {})):
        checkpoint = load_checkpoint(path)
        save_checkpoint({**checkpoint, "format": 0, "config": checkpoint["config"] | changed}, path)
    with refused(match="mini_5.*resume=False"):
        run("steps=4")
    for read in (lambda name: export_hf(name, "exported"), lambda name: load_pretrained(name),
                 lambda name: run(f"initial_weights={name}", "base_run_name=next", vocab=None)):
        with refused(match="50.0%.pth"):
            read(str(milestone))
    assert not Path("exported").exists()


def test_a_key_that_is_newer_than_the_run_had_its_default(workplace):
    run("steps=4", "stop_at=2")
    path = FOLDER / "mini_5/resume.pth"
    checkpoint = load_checkpoint(path)
    del checkpoint["config"]["lr_decay_power"]
    save_checkpoint(checkpoint, path)
    with pytest.raises(UserError, match="lr_decay_power=1.0.*lr_decay_power=2.0.*resume=False"):
        run("steps=4", "lr_decay_power=2")
    run("steps=4")
    assert rows()[-1]["step"] == 4


def test_an_edited_definition_is_named_at_every_later_start_until_the_run_is_complete(workplace, monkeypatch, capsys):
    run("steps=3", "stop_at=1")
    assert "Notice" not in capsys.readouterr().out
    monkeypatch.setattr(pretrain, "sample", lambda logits, *_: logits.argmax(-1))
    for stop_at in (2, 3):
        run("steps=3", f"stop_at={stop_at}")
        assert "Notice: sample" in capsys.readouterr().out
    run("steps=3")
    assert "Notice" not in capsys.readouterr().out


def test_a_resumed_run_has_the_optimizer_settings_of_the_code_as_it_is_now(workplace, monkeypatch):
    run("steps=3", "stop_at=1")
    build_optimizer = pretrain.build_optimizer

    def with_other_betas(*args):
        optimizer = build_optimizer(*args)
        for group in optimizer.param_groups:
            group["betas"] = .5, .6
        return optimizer

    monkeypatch.setattr(pretrain, "build_optimizer", with_other_betas)
    assert {group["betas"] for group in run("steps=3").opt.opt.param_groups} == {(.5, .6)}


def test_random_numbers_of_python_and_numpy_belong_to_the_step_too(workplace, monkeypatch):
    mask = pretrain.MaskedLMCallback.mask

    def with_spans(self, input_ids, sentA_lenths):
        return mask(self, input_ids.roll(int(np.random.randint(2, 8)) * random.randint(1, 3), 1), sentA_lenths)

    monkeypatch.setattr(pretrain.MaskedLMCallback, "mask", with_spans)
    run("steps=6")
    whole = weights()
    run("steps=6", "stop_at=2", "base_run_name=again")
    run("steps=6", "base_run_name=again", resume=True)
    assert equal_weights(weights("again_5"), whole)


def test_run_resumes_from_the_previous_checkpoint_if_the_newest_is_damaged(workplace, stop_after, capsys):
    """If both are damaged, it is an error."""
    settings = "steps=6", "save_minutes=0"
    run("base_run_name=whole", *settings)
    stop_after(3)
    with pytest.raises(Stopped):
        run(*settings)
    before = shutil.copytree(FOLDER / "mini_5", "before")
    flip_bit(FOLDER / "mini_5/resume.pth")
    run(*settings)
    assert "after step 3:" in capsys.readouterr().out  # the previous checkpoint
    assert rows() == rows("whole_5") and equal_weights(weights(), weights("whole_5"))

    shutil.rmtree(FOLDER / "mini_5")
    shutil.copytree(before, FOLDER / "mini_5")
    for path in (FOLDER / "mini_5").glob("resume*.pth"):
        flip_bit(path)
    with pytest.raises(UserError, match="mini_5.*resume=False"):
        run(*settings)


def test_run_cannot_be_trained_by_two_processes_at_once(workplace):
    with locked(FOLDER / "mini_5"):
        with pytest.raises(UserError, match="mini_5"):
            run("steps=1")
    assert not Path("datasets").exists()  # the second process does not even prepare the text
    run("steps=1")


def test_a_resumed_run_keeps_its_micro_batch_and_precision(workplace):
    run("steps=2", "micro_batch=2", "precision=bf16")
    (FOLDER / "mini_5_100.0%.pth").unlink()
    learn = run("steps=2")
    assert (learn.micro_batch, learn.precision) == (2, "bf16") and len(metrics()) == 2
    with pytest.raises(UserError, match="precision='fp32'"):
        run("steps=2", "precision=fp32")
