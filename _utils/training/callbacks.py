"""Callbacks of the training loop: schedule, progress, milestones."""
import math
import sys
import time

import torch
from fastai.callback.core import Callback
from tqdm import tqdm

from _utils.errors import PlainError, is_first_process
from _utils.run_files.checkpoints import milestone_steps, save_checkpoint
from _utils.run_files.run_log import read_metrics
from _utils.training.metrics import PretrainingMetrics, warning_of_collapse


class Schedule(Callback):
    """Sets hyperparameters before each step from functions of the share of steps done, {'lr': pct -> lr, ...}."""
    order = 0

    def __init__(self, functions, steps):
        self.functions, self.steps = functions, steps

    def before_batch(self):
        for name, function in self.functions.items():
            self.opt.set_hyper(name, function(self.learn.train_iter / self.steps))


class Progress(Callback):
    """Measures the training, shows it in a bar with the time left, and logs it every `every` steps."""
    order = 10

    def __init__(self, log, steps, tokens_per_step, every=None):
        self.log, self.steps, self.tokens_per_step = log, steps, tokens_per_step
        self.every = every or max(1, min(100, steps // 200))

    def before_fit(self):
        quiet = not sys.stderr.isatty()
        self.bar = tqdm(total=self.steps, unit="step", mininterval=10 if quiet else .5, desc="Pretraining",
                        disable=not self.learn.processes.is_main)
        self.restart()

    def restart(self):
        """Begin a new interval of measuring."""
        self.gathered = PretrainingMetrics(self.learn.device, only_finite=self.learn.scaler.is_enabled())
        self.since, self.started = 0, time.perf_counter()
        self.first_bad = torch.full((), -1, device=self.learn.device)  # the first step whose gradients are not finite

    def pending(self):
        """What was measured since the last row, for `go_on`."""
        return {"sums": self.gathered.sums, "histogram": self.gathered.histogram, "since": self.since,
                "seconds": time.perf_counter() - self.started}

    def go_on(self, step, pending):
        """Go on after a step of an earlier process, with what it had measured since its last row, or None."""
        self.bar.initial = self.bar.n = self.bar.last_print_n = step  # so that rate and time left count the steps of this process
        if pending:
            self.gathered.sums.copy_(pending["sums"])
            self.gathered.histogram.copy_(pending["histogram"])
            self.since, self.started = pending["since"], time.perf_counter() - pending["seconds"]

    def after_loss(self):
        self.gathered.update(self.learn.pred, self.learn.yb[0], self.learn.parts, self.learn.totals)

    def after_batch(self):
        step = self.learn.train_iter
        self.since += 1
        # The norm is that of the summed gradients, so several processes find the same.
        self.first_bad.masked_fill_(~torch.isfinite(self.learn.gradient_norm) & (self.first_bad < 0), step)
        if step % self.every == 0 or step == self.steps:
            self._report(step)
            self.restart()
        self.bar.update()

    def _report(self, step):
        self.gathered.add_up(self.learn.processes)
        measured = self.gathered.compute()  # waits for the device, so the time is that of finished work
        speed = self.since * self.tokens_per_step / (time.perf_counter() - self.started)
        self.check_finite()
        self.log.log("train", step, {"loss": total_loss(self.learn, measured), **measured, "lr": self.opt.hypers[0]["lr"],
                                     "tokens_per_second": speed})
        self.bar.set_postfix_str(describe(measured) + f", {speed:,.0f} tokens/s", refresh=False)

    def check_finite(self):
        """PlainError if the gradients of a step since the last row were not finite, so that the weights are lost. Waits for the device.

        In fp16 such a step is skipped and the loss scaled down, which only fails where no scale is small enough.
        """
        skips = self.learn.scaler.is_enabled() and self.learn.scaler.get_scale() >= 1
        if self.first_bad > 0 and not skips:
            raise not_finite(self.learn, int(self.first_bad), self.log)

    def close(self):
        """End the bar, also where the training ended in an error."""
        self.bar.close()


def total_loss(learn, measured):
    """The weighted loss of some metrics; None where there was nothing to measure."""
    losses = measured["gen_loss"] or 0., measured.get("disc_loss")
    is_measured = losses[1] is not None or not hasattr(learn.model, "discriminator")
    return learn.loss_func.weigh(losses) if is_measured else None


def not_finite(learn, step, log):
    """The PlainError for a loss that is not finite at a step; the step's batch, as it was before masking, is saved beside the RunLog."""
    kept = ""
    if log.path:
        path = log.path.with_name("not_finite.pth")
        input_ids, sentA_lenths = learn.dls.train.batch_of_step(step - 1)
        save_checkpoint({"step": step, "seed": learn.seed, "input_ids": input_ids, "sentA_length": sentA_lenths}, path)
        kept = f" (its batch is saved in {path})"
    return PlainError(f"the loss or its gradients are not finite (nan or inf) at step {step:,}{kept}: lower lr, warm up longer or set "
                      "precision=fp32, under another base_run_name. Milestones saved before that step are intact.")


def describe(measured):
    """The measures of generator and discriminator in one line."""
    names = {"gen_loss": "gen loss", "gen_accuracy": "acc", "disc_loss": "disc loss", "disc_auc": "AUC",
             "disc_precision": "prec", "disc_recall": "rec"}
    return ", ".join(f"{word} -" if measured[name] is None else f"{word} {measured[name]:.3g}"
                     for name, word in names.items() if name in measured)


class Milestones(Callback):
    """Measures the held-out text and saves a checkpoint at 6.25, 12.5, 25, 50 and 100 % of the steps.

    save(percent): writes the checkpoint.
    """
    order = 20  # after Progress, so that its time is not counted as training

    def __init__(self, log, steps, save):
        self.log, self.save_at = log, save
        self.percents = milestone_steps(steps)
        self.max_batches = max(4, steps // 20)  # all of them, unless the training itself is short

    def after_batch(self):
        step = self.learn.train_iter
        if step not in self.percents:
            return
        if self.learn.processes.is_main:
            self._measure_and_save(step)
        self.learn.progress.restart()

    def _measure_and_save(self, step):
        if measured := self.learn.evaluate_held_out(self.max_batches):
            loss = total_loss(self.learn, measured)
            if not math.isfinite(loss):
                raise not_finite(self.learn, step, self.log)
            self.log.log("held_out", step, {"loss": loss, **measured})
            tqdm.write(f"step {step:,}, held out: {describe(measured)}")
            sys.stdout.flush()  # into a log file too
            self._warn(step)
        for percent in self.percents[step]:
            self.save_at(percent)

    def _warn(self, step):
        steps = max(self.percents)
        aucs = [row["disc_auc"] for row in read_metrics(self.log.path, "held_out") if "disc_auc" in row and row["step"] >= .25 * steps]
        if warning := warning_of_collapse(aucs, step / steps):
            tqdm.write(warning, file=sys.stderr)


class LossProgress(Callback):
    """Shows the loss of a finetuning in a bar, and logs its mean and the head's learning rate some 20 times or every 50 steps."""
    order = 10

    def __init__(self, log, steps, title):
        self.log, self.steps, self.title = log, steps, title
        self.every = max(1, min(50, steps // 20))

    def before_fit(self):
        quiet = not sys.stderr.isatty()
        self.bar = tqdm(total=self.steps, unit="step", desc=self.title, leave=False, disable=not is_first_process(),
                        **(dict(mininterval=60, delay=60) if quiet else {}))
        self.losses = []

    def after_loss(self):
        self.losses.append(self.learn.loss_grad.detach())

    def after_batch(self):
        step = self.learn.train_iter
        if step % self.every == 0 or step == self.steps:
            loss = float(torch.stack(self.losses).mean())
            if not math.isfinite(loss):
                raise PlainError(f"{self.title}: the loss has become {loss} at step {step:,}: lower its lr with task_overrides, or say "
                                 "precision=fp32.")
            self.log.log("train", step, {"loss": loss, "lr": self.opt.hypers[-1]["lr"]})
            self.bar.set_postfix_str(f"loss {loss:.3f}", refresh=False)
            self.losses = []
        self.bar.update()

    def close(self):
        """End the bar, also where the training ended in an error."""
        self.bar.close()
