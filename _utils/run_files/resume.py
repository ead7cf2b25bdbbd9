"""The state of a pretraining run, from which the same command goes on when it was killed or stopped."""
import contextlib
import copy
import os
import pickle
import signal
import threading
import time
from pathlib import Path

import torch
from fastai.callback.core import Callback

from _utils.errors import PlainError, first_line, is_first_process
from _utils.run_files.checkpoints import DamagedCheckpoint, check_sums, milestone_steps, save_checkpoint

# Keys that may differ when a run goes on. micro_batch and compile change which random numbers are drawn, the others nothing.
# The text that `revisions` chooses is compared by its content.
MAY_DIFFER = ("device", "num_workers", "logger", "upload_to", "micro_batch", "compile", "resume", "save_minutes", "revisions")
_NEWEST, _BEFORE, _NEXT = "resume.pth", "resume_before.pth", "resume_next.pth"  # so that one is whole whatever happens to another


def find_state(folder):
    """The newest undamaged state in the folder of a run, or None if it has none. Its tensors stay on the disk until they are used.

    Raises PlainError if all states are damaged, or if one cannot be read for another reason; nothing is deleted.
    """
    damaged = []
    for path in (Path(folder, name) for name in (_NEXT, _NEWEST, _BEFORE)):  # the first is there if a kill came before it was renamed
        if not path.exists():
            continue
        try:
            check_sums(path)
            state = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
        except DamagedCheckpoint:
            print(f"The state {str(path)!r} is damaged, and not used.")
            damaged.append(path)
            continue
        except FileNotFoundError:  # another process has just renamed it
            continue
        except (OSError, MemoryError, RuntimeError, pickle.UnpicklingError) as error:
            raise PlainError(f"the state {str(path)!r} could not be read ({first_line(error)}), although it may be undamaged: check the "
                             "disk and the free memory, then rerun the same command. Nothing was changed.") from error
        if is_first_process():
            for path in damaged:  # so that save_state does not overwrite the good state and keep a damaged one
                with contextlib.suppress(FileNotFoundError):  # the first process of another machine was faster
                    path.rename(f"{path}.damaged")
        return state
    if damaged:
        raise PlainError(f"no state in {str(folder)!r} can be read: resume=False begins the run anew and keeps what is there aside, its "
                         "milestones too, with which initial_weights can begin.")
    return None


def save_state(folder, state):
    """Write the state of a run; the one before it is kept until the next."""
    newest, before, following = (Path(folder, name) for name in (_NEWEST, _BEFORE, _NEXT))
    save_checkpoint(state, following)
    if newest.exists():
        os.replace(newest, before)
    os.replace(following, newest)


def check_same_run(state, config, folder, defaults):
    """PlainError if a state was made with other settings, naming them. config: a plain dictionary.

    defaults: values of keys that the state lacks, because it is of a version that did not have them.
    """
    kept = {**defaults, **state["config"]}
    differ = [key for key in {**config, **kept} if key not in MAY_DIFFER and kept.get(key) != config.get(key)]
    if differ:
        was, now = (", ".join(f"{key}={values.get(key)!r}" for key in differ) for values in (kept, config))
        raise PlainError(f"{str(folder)!r} was begun with {was}, and now it is {now}: give the same to go on, another base_run_name, or "
                         "resume=False, which begins anew and keeps the earlier run aside.")


def inherited(config, kept):
    """{key: value} that a resumed run takes from the configuration it was started with, where the user leaves it open.

    precision: it changes the results.   micro_batch: it changes the random numbers drawn, but suits one kind of device only.
    """
    keys = ["precision"]
    if config["device"].partition(":")[0] == kept["device"].partition(":")[0]:
        keys.append("micro_batch")
    return {key: kept[key] for key in keys if config[key] is None}


def check_same_data(state, made_of, folder):
    """PlainError if vocabulary or text are not those of the state. made_of: {'vocabulary': ..., 'text': ...} of what identifies them."""
    differ = [name for name, value in made_of.items() if state["made_of"][name] != value]
    if differ:
        raise PlainError(f"the {' and the '.join(differ)} (datas, vocab) of the run in {str(folder)!r} changed since it was begun: bring "
                         "them back, give another base_run_name, or say resume=False, which begins anew and keeps the earlier run aside.")


class Stopped(PlainError):
    """A run that was asked to stop, and has saved its state; the exit status is that of an interrupted program."""
    prefix, exit_status, is_common = "", 130, True


class StopSignals:
    """Within it Ctrl-C or SIGTERM only sets `asked`; another Ctrl-C, a second later or more, ends the process as usual.

    Launchers and job systems send a signal to all processes, and again to each.
    """

    def __init__(self):
        self.asked, self.before = None, {}  # asked: when, by the clock

    def __enter__(self):
        self.pid = os.getpid()
        if threading.current_thread() is threading.main_thread():
            self.before = {number: signal.signal(number, self._ask) for number in (signal.SIGINT, signal.SIGTERM)}
        return self

    def _ask(self, number, frame):
        if os.getpid() != self.pid:
            return  # a data worker that has just been forked
        if self.asked is None:
            self.asked = time.monotonic()
            with contextlib.suppress(OSError):  # who read the output may have been stopped too
                print("\nStopping after this step; once more ends it at once.", flush=True)
        elif number == signal.SIGINT and time.monotonic() - self.asked > 1:
            raise KeyboardInterrupt

    def __exit__(self, *_):
        for number, handler in self.before.items():
            signal.signal(number, handler)


class SavedState(Callback):
    """Saves the run's state at its start, at milestones, about every `minutes`, and when it is asked to stop; goes on from a state.

    identity: what identifies the run, {'config': ..., 'made_of': ...}.   log: the RunLog, whose place is kept too.
    state: to go on from, or None.   Of several processes, whose states are alike, the first one writes.
    """
    order = 30  # after the milestones: what they write belongs to the step that is saved

    def __init__(self, folder, identity, log, steps, minutes, signals, state=None):
        self.folder, self.identity, self.log, self.steps, self.seconds = folder, identity, log, steps, 60 * minutes
        self.signals, self.state, self.milestones = signals, state, milestone_steps(steps)

    def before_fit(self):
        self.is_main = self.learn.processes.is_main
        if self.state:
            self._load()
        elif self.is_main:
            self.save()
        self.saved = time.monotonic()

    def before_step(self):
        self.learn.processes.asked_to_stop = self.signals.asked is not None

    def _load(self):
        learn, state = self.learn, self.state
        learn.model.load_state_dict(state["model"])
        learn.opt.opt.load_state_dict(copy.deepcopy(state["optimizer"]))  # on a CPU it would keep tensors that are on the disk
        if state["scaler"] and learn.scaler.is_enabled():
            learn.scaler.load_state_dict(state["scaler"])
        learn.train_iter = state["step"]
        # What was measured since the last row; of several processes only the first one's part was kept.
        learn.progress.go_on(state["step"], state["progress"] if self.is_main else None)
        del state["model"], state["optimizer"], state["progress"]  # which keep the file open as long as the training has the state
        self.state = None

    def after_batch(self):
        step = self.learn.train_iter
        is_row = self.learn.progress.since == 0
        is_due = time.monotonic() - self.saved >= self.seconds and (self.seconds > 0 or is_row)
        asked = self.learn.processes.stop_asked(self.signals.asked is not None)
        if self.is_main and (is_due or step in self.milestones or asked):
            self.save()
            self.saved = time.monotonic()
        if asked and step < self.steps:
            raise Stopped(f"stopped at step {step:,} of {self.steps:,}, and saved in {str(self.folder)!r}: the same command goes on from "
                          "there.")

    def save(self):
        """Write the state as it is between two steps. PlainError where nothing could go on from it; what was saved before then stays."""
        learn = self.learn
        learn.progress.check_finite()
        save_state(self.folder, {
            **self.identity, "step": learn.train_iter, "model": learn.model.state_dict(), "optimizer": learn.opt.opt.state_dict(),
            "scaler": learn.scaler.state_dict(), "progress": learn.progress.pending(), "log_place": self.log.place()})
