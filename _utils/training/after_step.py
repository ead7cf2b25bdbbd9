"""What follows a training step: log, non-finite gradients, milestones, the checkpoint to resume from, stopping."""
import contextlib
import copy
import math
import os
import signal
import sys
import threading
import time

import torch
from fastai.callback.core import Callback
from tqdm import tqdm

from _utils.errors import PlainError, is_first_process
from _utils.runs.checkpoints import save_checkpoint
from _utils.runs.log import read_metrics
from _utils.runs.resume import save_resume_checkpoint
from _utils.training.metrics import format_metrics, warning_of_collapse


class Stopped(PlainError):
    """The run was asked to stop and has saved its state. The exit status is that of an interrupted program."""
    prefix, exit_status, is_common = "", 130, True


class StopSignals:
    """Context in which Ctrl-C and SIGTERM only set `asked`. A second Ctrl-C, a second or more later, interrupts as usual.

    Launchers and job schedulers send a signal to the process group, and again to each process.
    """

    def __init__(self):
        self.asked, self.previous = None, {}  # asked: time of the signal

    def __enter__(self):
        self.pid = os.getpid()
        if threading.current_thread() is threading.main_thread():
            self.previous = {number: signal.signal(number, self._ask) for number in (signal.SIGINT, signal.SIGTERM)}
        return self

    def _ask(self, number, frame):
        if os.getpid() != self.pid:
            return  # in a data worker that was just forked
        if self.asked is None:
            self.asked = time.monotonic()
            with contextlib.suppress(OSError):  # the reader of the output may be gone already
                print("\nStopping after this step. Press Ctrl-C again to stop immediately.", flush=True)
        elif number == signal.SIGINT and time.monotonic() - self.asked > 1:
            raise KeyboardInterrupt

    def __exit__(self, *_):
        for number, handler in self.previous.items():
            signal.signal(number, handler)


# fastai calls the callbacks of an event in this order. After a batch: notice gradients that are not finite, log the metrics, evaluate and
# save a milestone (whose time does not count as training), and last save the checkpoint to resume from, which includes all of that.
SCHEDULE, GUARD, LOG, MILESTONES, RESUME = 0, 10, 20, 30, 40


class Schedule(Callback):
    """Sets hyperparameters before each step. functions: {'lr': pct -> lr, ...} of the share of the steps done, in [0, 1]."""
    order = SCHEDULE

    def __init__(self, functions, steps):
        self.functions, self.steps = functions, steps

    def before_batch(self):
        for name, function in self.functions.items():
            self.opt.set_hyper(name, function(self.learn.train_iter / self.steps))


class NonFiniteGuard(Callback):
    """Remembers, on the device, the first step whose gradients were not finite; `check` stops the run.

    log: RunLog; the batch of that step is saved beside it.
    """
    order = GUARD

    def __init__(self, log):
        self.log = log

    def before_fit(self):
        self.first_step = torch.full((), -1, device=self.learn.device)

    def after_batch(self):
        # The norm is that of the summed gradients, so it is the same in all processes.
        is_first = ~torch.isfinite(self.learn.gradient_norm) & (self.first_step < 0)
        self.first_step.masked_fill_(is_first, self.learn.train_iter)

    def check(self):
        """Raise PlainError if gradients were not finite since the last check, because the weights are lost then. Waits for the device.

        fp16 loss scaling skips such steps and lowers the scale; that has failed only if the scale is below 1.
        """
        is_skipped = self.learn.scaler.is_enabled() and self.learn.scaler.get_scale() >= 1
        if self.first_step > 0 and not is_skipped:
            self.stop(int(self.first_step))
        self.first_step.fill_(-1)

    def stop(self, step):
        """Save the batch of a step, as it was before masking, and raise PlainError."""
        saved = ""
        if self.log.path:
            path = self.log.path.with_name("not_finite.pth")
            input_ids, sentA_lenths = self.learn.dls.train.batch_of_step(step - 1)
            save_checkpoint({"step": step, "seed": self.learn.seed, "input_ids": input_ids, "sentA_length": sentA_lenths}, path)
            saved = f" The batch is saved in {path}."
        raise PlainError(f"The loss or its gradients are not finite (nan or inf) at step {step:,}.{saved} Lower lr, use a longer warmup or "
                         "set precision=fp32, under another base_run_name. Milestones saved before that step are intact.")


class TrainLog(Callback):
    """Logs the metrics of the training every `every` steps and shows them in a progress bar.

    guard: NonFiniteGuard, checked before each row.   tokens_per_step: of all processes together.   stop_at: last step of the bar.
    """
    order = LOG

    def __init__(self, log, guard, steps, tokens_per_step, stop_at=None, every=None):
        self.log, self.guard, self.steps, self.tokens_per_step = log, guard, steps, tokens_per_step
        self.stop_at = stop_at or steps
        self.every = every or max(1, min(100, steps // 200))

    def before_fit(self):
        self.bar = progress_bar("Pretraining", self.stop_at, disable=not self.learn.processes.is_main)
        self.begin_interval()

    def begin_interval(self):
        self.learn.train_metrics.reset()
        self.interval_steps, self.started = 0, time.perf_counter()

    def ends_interval(self, step):
        """Whether a row is logged after this step."""
        return step % self.every == 0 or step == self.steps

    def after_batch(self):
        step = self.learn.train_iter
        self.interval_steps += 1
        if self.ends_interval(step):
            self.write_row(step)
            self.begin_interval()
        self.bar.update()

    def write_row(self, step):
        self.learn.train_metrics.add_up(self.learn.processes)
        metrics = self.learn.train_metrics.compute()  # waits for the device, so the time is that of completed steps
        speed = self.interval_steps * self.tokens_per_step / (time.perf_counter() - self.started)
        self.guard.check()
        self.log.log("train", step, {**metrics, "lr": self.opt.hypers[0]["lr"], "tokens_per_second": speed})
        self.bar.set_postfix_str(f"{format_metrics(metrics)}, {speed:,.0f} tokens/s", refresh=False)

    @contextlib.contextmanager
    def paused(self):
        """Time spent within this context does not count as training."""
        paused = time.perf_counter()
        yield
        self.started += time.perf_counter() - paused

    def state_dict(self):
        """The unfinished interval."""
        return {**self.learn.train_metrics.state_dict(), "steps": self.interval_steps, "seconds": time.perf_counter() - self.started}

    def resume(self, step, interval=None):
        """Continue after `step`, with the unfinished interval that `state_dict` returned there."""
        self.bar.initial = self.bar.n = self.bar.last_print_n = step  # so that rate and remaining time count only the steps from here on
        if interval:
            self.learn.train_metrics.load_state_dict(interval)
            self.interval_steps, self.started = interval["steps"], time.perf_counter() - interval["seconds"]

    def close(self):
        """Close the bar, also after an error."""
        self.bar.close()


class Milestones(Callback):
    """Evaluates on held-out text and saves a checkpoint at the milestones.

    If there is a test set, the last evaluation includes it.
    percents: {step: percents} from `milestone_steps`.   save(percent): writes the checkpoint.
    """
    order = MILESTONES

    def __init__(self, log, guard, train_log, steps, percents, save):
        self.log, self.guard, self.train_log, self.steps, self.percents, self.save = log, guard, train_log, steps, percents, save
        self.max_batches = max(4, steps // 20)  # all held-out batches, unless the training itself is short

    def after_batch(self):
        step = self.learn.train_iter
        if step in self.percents and self.learn.processes.is_main:
            with self.train_log.paused():
                self.guard.check()  # a milestone has finite weights
                self.evaluate(step)
                for percent in self.percents[step]:
                    self.save(percent)

    def evaluate(self, step):
        if metrics := self.learn.evaluate_held_out(self.max_batches):
            if metrics["loss"] is None or not math.isfinite(metrics["loss"]):
                self.guard.stop(step)
            self.log.log("held_out", step, metrics)
            tqdm.write(f"step {step:,}, held out: {format_metrics(metrics)}")
            sys.stdout.flush()  # into a log file too
            self.warn_of_collapse(step)
        if step == self.steps and (metrics := self.learn.evaluate_held_out(split=2)):
            self.log.log("test", step, metrics)  # before the resume checkpoint is saved, because later rows are dropped when it is loaded
            tqdm.write(f"test: {format_metrics(metrics)}")

    def warn_of_collapse(self, step):
        rows = [row for row in read_metrics(self.log.path, "held_out") if row["step"] >= .25 * self.steps]
        aucs = [row["disc_auc"] for row in rows if row.get("disc_auc") is not None]  # None if no held-out token was replaced
        if warning := warning_of_collapse(aucs, step / self.steps):
            tqdm.write(warning, file=sys.stderr)


class ResumePoint(Callback):
    """Saves what is needed to resume the run: at its start, at milestones, about every `minutes`, and when it is asked to stop.

    milestones: their steps.   identity: {'config': ..., 'made_of': ...}, which a resumed run must share.   signals: StopSignals.
    checkpoint: what an earlier process saved, to resume from; None starts at step 0.   The main process saves for all.
    """
    order = RESUME

    def __init__(self, folder, identity, log, guard, train_log, steps, milestones, minutes, signals, checkpoint=None):
        self.folder, self.identity, self.log, self.guard, self.train_log = folder, identity, log, guard, train_log
        self.steps, self.milestones, self.seconds, self.signals, self.checkpoint = steps, milestones, 60 * minutes, signals, checkpoint

    def before_fit(self):
        self.is_main = self.learn.processes.is_main
        if self.checkpoint:
            self.load(self.checkpoint)
            self.checkpoint = None
        elif self.is_main:
            self.save()
        self.saved = time.monotonic()

    def load(self, checkpoint):
        learn, is_main = self.learn, self.is_main
        learn.train_iter = checkpoint["step"]
        learn.model.load_state_dict(checkpoint.pop("model"))
        learn.opt.opt.load_state_dict(copy.deepcopy(checkpoint.pop("optimizer")))  # copied, because on a CPU it would keep mapped tensors
        if checkpoint["scaler"] and learn.scaler.is_enabled():
            learn.scaler.load_state_dict(checkpoint["scaler"])
        interval = checkpoint.pop("interval")  # summed over the processes later, so only one may have it
        self.train_log.resume(learn.train_iter, interval if is_main else None)

    def after_batch(self):
        step = self.learn.train_iter
        is_stopping = self.learn.processes.stop_asked(self.signals.asked is not None)
        if self.is_main and (self.is_due(step) or step in self.milestones or is_stopping):
            self.save()
            self.saved = time.monotonic()
        if is_stopping and step < self.steps:
            raise Stopped(f"Stopped at step {step:,} of {self.steps:,}, saved in {str(self.folder)!r}. Rerun the same command to resume.")

    def is_due(self, step):
        """Whether the interval between two saves is over. With minutes=0 that is whenever a row of metrics was logged."""
        if self.seconds == 0:
            return self.train_log.ends_interval(step)
        return time.monotonic() - self.saved >= self.seconds

    def save(self):
        """Save the state between two steps. Raises PlainError instead if its weights are not finite; the earlier file stays."""
        learn = self.learn
        self.guard.check()
        save_resume_checkpoint(self.folder, {
            **self.identity, "step": learn.train_iter, "model": learn.model.state_dict(), "optimizer": learn.opt.opt.state_dict(),
            "scaler": learn.scaler.state_dict(), "interval": self.train_log.state_dict(), "log_position": self.log.position()})


class LossProgress(Callback):
    """Logs the mean loss and the head's learning rate of a finetuning run about 20 times or every 50 steps, and shows a progress bar."""
    order = LOG

    def __init__(self, log, steps, title):
        self.log, self.steps, self.title = log, steps, title
        self.every = max(1, min(50, steps // 20))

    def before_fit(self):
        self.bar = progress_bar(self.title, self.steps, disable=not is_first_process(), leave=False, quiet=dict(mininterval=60, delay=60))
        self.losses = []

    def after_loss(self):
        self.losses.append(self.learn.loss_grad.detach())

    def after_batch(self):
        step = self.learn.train_iter
        if step % self.every == 0 or step == self.steps:
            loss = float(torch.stack(self.losses).mean())
            if not math.isfinite(loss):
                raise PlainError(f"{self.title}: the loss is {loss} at step {step:,}. Lower the learning rate of the task with "
                                 "task_overrides, or set precision=fp32.")
            self.log.log("train", step, {"loss": loss, "lr": self.opt.hypers[-1]["lr"]})
            self.bar.set_postfix_str(f"loss {loss:.3f}", refresh=False)
            self.losses = []
        self.bar.update()

    def close(self):
        """Close the bar, also after an error."""
        self.bar.close()


def progress_bar(title, steps, quiet=None, **kwargs):
    """A tqdm bar; `quiet` are its settings where the output is not a terminal."""
    settings = dict(mininterval=.5) if sys.stderr.isatty() else quiet or dict(mininterval=10)
    return tqdm(total=steps, unit="step", desc=title, **settings, **kwargs)
