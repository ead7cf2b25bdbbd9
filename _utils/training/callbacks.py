"""Callbacks around a training step: schedule, log, milestones, the checkpoint to resume from, and stopping."""
import copy
import math
import os
import signal
import sys
import threading
import time

import torch
from fastai.callback.core import Callback
from fastcore.basics import store_attr

from _utils.errors import UserError, is_first_process
from _utils.progress import Progress
from _utils.runs.checkpoints import save_checkpoint, save_resume_checkpoint
from _utils.schedules import group_schedules
from _utils.text.batches import STOP_SIGNALS
from _utils.training.cuda_graph import CompiledStep
from _utils.training.metrics import described, evaluate, warning_of_collapse, warning_of_dropped_masks

MOST_SKIPPED = 10  # updates in a row, in half precision; fp16's loss scaling halves the scale at each


class Stopped(UserError):
    """The run was asked to stop and has saved its state. The exit status is that of an interrupted program."""
    prefix, exit_status = "", 130


class StopSignals:
    """Context in which Ctrl-C and the other STOP_SIGNALS only set `asked`.

    A second Ctrl-C, a second or more later, interrupts as usual.
    Launchers and job schedulers send a signal to the process group, and again to each process. Python allows handlers
    in the main thread only, so training in another one cannot be asked.
    """

    asked = None  # time of the signal

    def __enter__(self):
        self.pid, numbers = os.getpid(), ()
        if threading.current_thread() is threading.main_thread():
            numbers = STOP_SIGNALS
        # nohup ignores SIGHUP; shells ignore SIGINT in the background, where it is sent on purpose only
        numbers = [n for n in numbers if n == signal.SIGINT or signal.getsignal(n) != signal.SIG_IGN]
        self.previous = {number: signal.signal(number, self._ask) for number in numbers}
        return self

    def _ask(self, number, frame):
        if os.getpid() != self.pid:
            return  # in a data worker that was just forked
        if self.asked is None:
            self.asked = time.monotonic()
            try:
                print("\nStopping after this step. Press Ctrl-C again to stop immediately.", flush=True)
            except OSError:  # the terminal or the reader of the output is gone
                sys.stdout = sys.stderr = open(os.devnull, "w")
        elif number == signal.SIGINT and time.monotonic() - self.asked > 1:
            raise KeyboardInterrupt

    def __exit__(self, *_):
        for number, handler in self.previous.items():
            signal.signal(number, handler)


class Schedule(Callback):
    """Sets hyperparameters before each step.

    functions: {'lr': pct -> [lr of each parameter group], ...} of the share of the steps done, in [0, 1].
    """
    order = 0

    def __init__(self, functions, steps):
        store_attr()

    def before_batch(self):
        for name, function in self.functions.items():
            self.opt.set_hyper(name, function(self.learn.train_iter / self.steps))


def step_callbacks(c, optimizer):
    """Callbacks of the training step: the learning rates, and compiling."""
    lrs = [group["lr"] for group in optimizer.param_groups]
    functions = group_schedules(c.schedule, lrs, c.steps, c.warmup_steps, c.lr_decay_power)
    compiled = [CompiledStep(with_update=functions.keys() == {"lr"})] if c.compile else []
    return [Schedule(functions, c.steps), *compiled]


class TrainingLog(Callback):
    """Logs a row of metrics every steps / 200 steps, but at least every 100th, and shows a progress bar.

    steps: of the schedule.   tokens_per_step: of all processes together.   last_step: at which the progress bar ends.
    log: RunLog; None in all processes but the main one, which writes for all, and in benchmarks.
    """
    order = 10

    def __init__(self, steps, tokens_per_step, last_step, log=None):
        store_attr()
        self.every = max(1, min(100, steps // 200))  # steps between two rows of metrics
        self.bar = None

    def before_fit(self):
        learn = self.learn
        self.most_skipped = 0 if learn.precision == "fp32" else MOST_SKIPPED
        self.skipped = torch.zeros(2, device=learn.device)  # updates since the last row of metrics, and now in a row
        self.has_dropped_masks = False
        learn.step_ended = math.inf  # so the first batch, which starts workers and compilers, is not waited for
        self.begin_interval()

    def before_train(self):
        learn = self.learn  # at the step from which it resumes
        self.bar = Progress(
            total=self.last_step, initial=learn.train_iter, leave=True, disable=not learn.processes.is_main
        )

    def before_batch(self):
        self.waited += max(0., time.perf_counter() - self.learn.step_ended)

    def after_batch(self):
        step = self.learn.train_iter
        self.note_non_finite_gradients()
        self.interval_steps += 1
        if step % self.every == 0 or step == self.steps:
            self.log_interval(step)
        self.bar.update()

    def close(self):
        """Close the progress bar, also after an error."""
        if self.bar is not None:
            self.bar.close()

    def begin_interval(self):
        self.learn.train_metrics.state.zero_()
        self.skipped[0] = 0
        self.interval_steps, self.waited, self.started = 0, 0., time.perf_counter()

    def log_interval(self, step):
        """Log the metrics of the steps since the last row, and show them in the progress bar."""
        self.learn.processes.sum(self.learn.train_metrics.state)
        metrics = self.learn.train_metrics.compute()  # waits for the device, so the time is that of completed steps
        seconds = time.perf_counter() - self.started
        speed = self.interval_steps * self.tokens_per_step / seconds
        self.check_finite()
        if metrics["masks_dropped"] and self.learn.processes.is_main and not self.has_dropped_masks:
            self.has_dropped_masks = True
            Progress.write(warning_of_dropped_masks(metrics["masks_dropped"], step), file=sys.stderr)
        if self.log:
            self.log.log(
                "train",
                step,
                {
                    **metrics,
                    "lr": self.opt.hypers[0]["lr"],
                    "skipped_updates": int(self.skipped[0]),
                    "tokens_per_second": speed,
                    "data_wait": self.waited / seconds,
                },
            )
        first, others = described(metrics)[:2], described(metrics)[2:]
        self.bar.set_postfix_str(", ".join([*first, f"{speed:,.0f} tokens/s", *others]), refresh=False)
        self.begin_interval()

    # Gradients that are not finite

    def note_non_finite_gradients(self):
        """Count, on the device, updates skipped because gradients were not finite.

        The norm of the gradients is the same in all processes.
        Once more than `most_skipped` were skipped in a row, all later steps count as well, until `check_finite` stops
        the run.
        """
        n, in_a_row = self.skipped
        is_skipped = ~torch.isfinite(self.learn.gradient_norm)
        n += is_skipped
        in_a_row.add_(1).mul_(is_skipped | (in_a_row > self.most_skipped + 1))

    def check_finite(self):
        """Raise UserError if more than `most_skipped` updates in a row were skipped. Waits for the device."""
        too_many = int(self.skipped[1]) - self.most_skipped
        if too_many > 0:
            self.stop_at_non_finite(self.learn.train_iter + 1 - too_many)

    def stop_at_non_finite(self, step):
        """Save the batch of a step, as it was before masking, and raise UserError."""
        saved = ""
        if self.log:
            path = self.log.path.with_name("not_finite.pth")
            input_ids, sentA_lenths = self.learn.dls.train.batch_of_step(step - 1)
            save_checkpoint(
                {"step": step, "seed": self.learn.seed, "input_ids": input_ids, "sentA_length": sentA_lenths}, path
            )
            saved = f" The batch is saved in {path}."
        self.raise_non_finite(f"at step {step:,}.{saved}")

    def raise_non_finite(self, where):
        """Raise UserError for numbers that are not finite. where: the end of its first sentence."""
        or_fp32 = "" if self.learn.precision == "fp32" else ", set precision=fp32"
        raise UserError(f"The loss or its gradients are not finite (nan or inf) {where} Lower lr{or_fp32} or use a "
                        "longer warmup, under another base_run_name. Milestones saved before are intact.")

    # The steps since the last row, in the checkpoint to resume from

    def interval(self):
        """The metrics of all processes since the last row, and their times. All processes must call it."""
        metrics = self.learn.train_metrics.state.clone()
        self.learn.processes.sum(metrics)
        return {
            "metrics": metrics,
            "steps": self.interval_steps,
            "seconds": time.perf_counter() - self.started,
            "waited": self.waited,
            "skipped": self.skipped,
        }

    def load_interval(self, interval):
        """Continue in the middle of an interval between two rows."""
        self.skipped.copy_(interval["skipped"])
        metrics = self.learn.train_metrics.state
        # Summed over the processes later, so only one may have it. Code that was changed may compute other metrics.
        if self.log and interval["metrics"].shape == metrics.shape:
            metrics.copy_(interval["metrics"])
            self.interval_steps, self.started = interval["steps"], time.perf_counter() - interval["seconds"]
            self.waited = interval["waited"]


class Milestones(Callback):
    """Evaluates held-out text and saves the model at some steps. This time does not count as training.

    at_steps: from `milestone_steps`.   path_of, save: functions of a percent or a step; the path of its checkpoint, and
    writing it, with the metrics of held-out text if there is any.   log: as in TrainingLog.
    """
    order = 11

    def __init__(self, at_steps, path_of, save, log):
        store_attr()

    def before_train(self):
        """Save a milestone at the step from which the run resumes, if its checkpoint does not exist yet."""
        missing = [at for at in self.at_steps.get(self.learn.train_iter, ()) if not self.path_of(at).exists()]
        if self.learn.processes.any((bool(missing),))[0]:
            self.after_batch()
            self.resume_checkpoint.save()  # with the new row of the log

    def after_batch(self):
        step = self.learn.train_iter
        if step not in self.at_steps:
            return
        self.compare_weights()
        paused = time.perf_counter()
        if self.log:
            self.training_log.check_finite()  # a milestone has finite weights
            # one loader, or none if the text is too small
            metrics = [self.evaluate(step, loader) for loader in self.learn.dls.loaders[1:]]
            for at in self.at_steps[step]:
                self.save(at, *metrics)
        self.learn.processes.wait()  # an upload may take longer than the timeout of a training step
        self.training_log.started += time.perf_counter() - paused

    def compare_weights(self):
        """Warn if the weights of several processes are no longer the same."""
        weights = float(sum(p.detach().double().sum() for p in self.learn.model.parameters()))
        if len(set(self.learn.processes.gather(weights))) > 1:
            Progress.write("Warning: the weights of the processes differ. Use machines with the same GPUs and "
                           "versions.", file=sys.stderr)

    def evaluate(self, step, loader):
        """Log the metrics of all held-out batches, or of fewer if the training itself is short. Returns them."""
        steps = self.training_log.steps
        metrics = evaluate(self.learn, loader, max_batches=max(4, steps // 20))
        if not math.isfinite(metrics["loss"] or 0.):  # None without masked tokens
            self.training_log.raise_non_finite(f"on held-out text at step {step:,}.")
        # before the resume checkpoint is saved, because later rows are dropped when it is loaded
        self.log.log("held_out", step, metrics)
        first, others = described(metrics)[:2], described(metrics)[2:]
        Progress.write(f"Step {step:,} of {steps:,}, held-out text: {', '.join(first)}")
        if others:
            Progress.write(f"    {', '.join(others)}")
        sys.stdout.flush()  # into a log file too
        if warning := warning_of_collapse(metrics.get("disc_auc"), step / steps):
            Progress.write(warning, file=sys.stderr)
        return metrics


class ResumeCheckpoint(Callback):
    """Saves the checkpoint to resume from in a folder, or resumes from it, and stops a run that is asked to stop.

    It saves at the start, at milestones, about every `save_minutes` (0: with each row of metrics), and before a stop.
    must_match: what a resumed run must share, to be saved with it.   log: as in TrainingLog.   signals: StopSignals.
    checkpoint: what an earlier process saved, to resume from; None starts at step 0.
    """
    order = 12

    def __init__(self, folder, must_match, log, signals, save_minutes, checkpoint=None):
        store_attr()

    def before_fit(self):
        if self.checkpoint:
            self.load(self.checkpoint)
            self.checkpoint = None
        else:
            self.save()
        self.saved = time.monotonic()

    def after_batch(self):
        step, steps = self.learn.train_iter, self.training_log.steps
        stops, is_due = self.requests()
        with_each_row = not self.save_minutes and self.training_log.interval_steps == 0
        if stops or is_due or step in self.milestones.at_steps or with_each_row:
            self.save()
        if stops and step < steps:
            self.learn.processes.wait()  # for the one that saves: when one ends, the launcher soon kills the others
            raise Stopped(f"Stopped at step {step:,} of {steps:,}, saved in {str(self.folder)!r}. Rerun the same "
                          "command, without resume=False, to resume.")

    def requests(self):
        """Return (whether the run was asked to stop, whether a save is due), the same in all processes.

        Several processes exchange it at every tenth step on GPUs, which would have to wait for the slowest CPU.
        """
        processes = self.learn.processes
        if processes.n > 1 and self.learn.device.type != "cpu" and self.learn.train_iter % 10:
            return False, False
        is_due = self.save_minutes and time.monotonic() - self.saved >= 60 * self.save_minutes
        return processes.any((self.signals.asked is not None, bool(is_due)))

    def save(self):
        """Save the state between two steps, with the metrics of all processes. They all must call it.

        Raises UserError instead if its weights are not finite; the earlier file stays.
        """
        learn = self.learn
        self.training_log.check_finite()
        interval = self.training_log.interval()
        if self.log:
            save_resume_checkpoint(
                self.folder,
                {
                    **self.must_match,
                    "step": learn.train_iter,
                    "model": learn.model.state_dict(),
                    "optimizer": learn.opt.opt.state_dict(),
                    "scaler": learn.scaler.state_dict(),
                    "gradients": learn.gradients.state(),
                    "interval": interval,
                    "log_position": self.log.position(),
                },
            )
        self.saved = time.monotonic()

    def load(self, checkpoint):
        """Continue after the step of a checkpoint."""
        learn = self.learn
        learn.train_iter = checkpoint["step"]
        learn.model.load_state_dict(checkpoint.pop("model"))
        optimizer = learn.opt.opt
        built = [{name: value for name, value in group.items() if name != "params"} for group in optimizer.param_groups]
        # copied, because on a CPU it would keep mapped tensors
        optimizer.load_state_dict(copy.deepcopy(checkpoint.pop("optimizer")))
        for group, settings in zip(optimizer.param_groups, built):
            group.update(settings)  # those of `build_optimizer` as it is now
        learn.scaler.load_state_dict(checkpoint["scaler"])
        learn.gradients.load_state(checkpoint.get("gradients", ()))
        self.training_log.load_interval(checkpoint.pop("interval"))


class LossProgress(Callback):
    """Logs the mean loss and the head's learning rate of a finetuning run, and shows a progress bar.

    It logs about 20 times or every 50 steps. The last interval is the longest, so that its mean is no noisier than the
    others.
    """
    order = 10

    def __init__(self, log, steps, title):
        store_attr()
        self.every = max(1, min(50, steps // 20))

    def before_fit(self):
        self.bar = Progress(desc=self.title, total=self.steps, disable=not is_first_process())
        self.losses = []

    def after_batch(self):
        step = self.learn.train_iter
        self.losses.append(self.learn.loss_grad.detach())
        if step % self.every == 0 and step + self.every <= self.steps or step == self.steps:
            loss = float(torch.stack(self.losses).mean())
            if not math.isfinite(loss):
                or_fp32 = "" if self.learn.precision == "fp32" else " or set precision=fp32"
                raise UserError(f"{self.title}: the loss is {loss} at step {step:,}. Lower the learning rate of the "
                                f"task with task_overrides{or_fp32}, under another group_name.")
            if self.log:
                self.log.log("train", step, {"loss": loss, "lr": self.opt.hypers[-1]["lr"]})
            self.bar.set_postfix_str(f"{getattr(self.learn.loss_func, 'name', 'loss')} {loss:.3f}", refresh=False)
            self.losses = []
        self.bar.update()

    def close(self):
        """Close the bar, also after an error."""
        self.bar.close()
