"""The training steps of pretraining and finetuning, and the callbacks that a reader of the paper would skip."""
import itertools
import math
import random
import sys
import time

import numpy as np
import torch
from fastai.callback.core import Callback, TrainEvalCallback
from fastai.learner import CancelBackwardException, CancelStepException, Learner
from fastai.optimizer import OptimWrapper
from sklearn.metrics import roc_auc_score
from torch.nn.attention import SDPBackend, sdpa_kernel
from tqdm import tqdm

from _utils.checkpoints import milestone_steps, save_checkpoint
from _utils.errors import PlainError, is_first_process
from _utils.optim import clip_by_global_norm
from _utils.pretraining_metrics import PretrainingMetrics, warning_of_collapse
from _utils.run_logging import read_metrics

DTYPES = {"fp32": None, "bf16": torch.bfloat16, "fp16": torch.float16}


def set_seed(seed):
    """Seed every source of random numbers."""
    random.seed(seed)
    np.random.seed(seed % 2 ** 32)
    torch.manual_seed(seed)


def seed_step(seed, step, part=0):
    """Seed torch for one part of a step's batch, from 1; 0 is the whole batch.

    What is drawn then depends on nothing that came before, so a run that goes on elsewhere goes on alike.
    """
    torch.manual_seed(int(np.random.SeedSequence((seed, step, part)).generate_state(1)[0]))


def fork_rng(device):
    """Context in which random numbers are drawn without disturbing those outside, on the CPU and on this device alone."""
    return torch.random.fork_rng(devices=[device] if device.type == "cuda" else [])


class ClippingLearner(Learner):
    """fastai's Learner with ELECTRA's step: mixed precision, gradients clipped at global norm 1 (F35).

    optimizer: a torch.optim.Optimizer over the model's parameters.   precision: 'fp32', 'bf16' or 'fp16'.
    init_scale: of the loss, for fp16 (electra_pytorch's: 2 ** 11 for pretraining, 2 ** 14 for finetuning).
    Nothing is measured at the end of an epoch: pretraining has milestones, and of finetuning the last step counts (F47).
    """

    def __init__(self, dls, model, loss_func, optimizer, precision="fp32", init_scale=2. ** 14, cbs=()):
        super().__init__(dls, model, loss_func=loss_func, default_cbs=False, cbs=[TrainEvalCallback(), *cbs])
        self.opt = OptimWrapper(opt=optimizer)
        self.precision = precision
        self.device = dls.device
        self.scaler = torch.amp.GradScaler(self.device.type, init_scale=init_scale, enabled=precision == "fp16")

    def autocast(self):
        dtype = DTYPES[self.precision]
        return torch.autocast(self.device.type, dtype, enabled=dtype is not None)

    def _backward(self):
        self.scaler.scale(self.loss_grad).backward()

    def _step(self):
        self.scaler.unscale_(self.opt.opt)
        self.gradient_norm = clip_by_global_norm(self.model.parameters(), 1.)
        self.scaler.step(self.opt.opt)
        self.scaler.update()

    def _do_epoch_validate(self, ds_idx=1, dl=None):
        pass


class FinetuningLearner(ClippingLearner):
    """One forward pass, loss and update per batch; `logits` predicts a loader's rows."""

    def _do_one_batch(self):
        with self.autocast():
            self.pred = self.model(*self.xb)
        self.loss_grad = self.loss_func(self.pred.float(), *self.yb)
        self("after_loss")
        self._with_events(self._backward, "backward", CancelBackwardException)
        self._with_events(self._step, "step", CancelStepException)
        self.opt.zero_grad()

    @torch.no_grad()
    def logits(self, dl):
        """The model's output for the rows of an unshuffled PaddedBatchDL, in the order of the rows, dropout off; on the CPU."""
        self.model.to(self.device).eval()
        found = []
        # Without cuDNN's attention, which needs half a second on an H100 for each batch shape that it has not seen.
        with sdpa_kernel([SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]), self.autocast():
            for *xb, _ in dl:
                found.append(self.model(*xb).float())
        found = torch.cat(found).cpu()  # only now, because it waits for the device
        in_order = torch.empty_like(found)
        in_order[torch.as_tensor(dl.order)] = found
        return in_order


class PretrainingLearner(ClippingLearner):
    """ClippingLearner with gradient accumulation and measures of held-out text.

    micro_batch: examples that go through the networks at once. Loss and gradients stay those of the full batch, because
    each part is divided by the masks and tokens of the whole.
    seed: masks follow from it and the step; dropout and the generator's words from it, the step and the part of the batch.
    processes: Processes that train together. Each has the whole batch and its masks, and computes every n-th part.
    """

    def __init__(self, dls, model, loss_func, optimizer, micro_batch, seed, precision, processes, cbs=()):
        super().__init__(dls, model, loss_func, optimizer, precision, 2. ** 11, cbs)
        self.micro_batch, self.seed, self.processes = micro_batch, seed, processes

    def one_batch(self, i, b):
        seed_step(self.seed, self.train_iter)
        super().one_batch(i, self.on_device(b))

    def on_device(self, batch):
        """A batch of the loader on the learner's device, without waiting for it to arrive."""
        return tuple(tensor.to(self.device, non_blocking=True) for tensor in batch)

    def _step(self):
        self.processes.add_up_gradients([p.grad for p in self.model.parameters() if p.grad is not None])
        super()._step()

    def micro_batches(self, *tensors):
        """Tensors (B, ...) in parts of micro_batch rows: an iterator over tuples of them."""
        return zip(*(tensor.split(self.micro_batch) for tensor in tensors))

    def forward(self, x, labels, totals):
        """(prediction, losses) of one part in the learner's precision; totals: of the whole batch, as `ELECTRALoss.parts` takes them."""
        with self.autocast():
            pred = self.model(*x)
            return pred, self.loss_func.parts(pred, labels, totals)

    def _do_one_batch(self):
        """Loss and gradients of one batch, part by part, and the update."""
        full_x, full_y = self.xb, self.yb
        self.totals = self.model.totals(*full_x)
        mine = itertools.islice(enumerate(self.micro_batches(*full_x, *full_y), start=1), self.processes.index, None, self.processes.n)
        for number, (*xb, labels) in mine:
            seed_step(self.seed, self.train_iter, number)
            self.pred = self.parts = None  # the logits of the part before would stay in memory during this forward pass
            self.xb, self.yb = tuple(xb), (labels,)
            self.pred, self.parts = self.forward(xb, labels, self.totals)
            self.loss_grad = self.loss_func.weigh(self.parts)
            self("after_loss")
            if self.training:
                self._with_events(self._backward, "backward", CancelBackwardException)
        self.xb, self.yb = full_x, full_y
        if self.training:
            self._with_events(self._step, "step", CancelStepException)
            self.opt.zero_grad()

    @torch.no_grad()
    def measure_held_out(self, max_batches=None, split=1):
        """Metrics of the held-out examples, or of their first `max_batches` batches, dropout off; {} if there are none.

        Masks and samples are drawn from the learner's seed, the same every time, without disturbing the random numbers of training.
        A batch goes through the networks in parts of micro_batch examples, as in training.
        split: index of the loader, 1 for held-out examples, 2 for a test set.
        """
        if len(self.dls.loaders) <= split:
            return {}
        metrics, judged = PretrainingMetrics(self.device), []
        self.model.eval()
        with fork_rng(self.device):
            for n, batch in enumerate(itertools.islice(self.dls.loaders[split], max_batches)):
                seed_step(self.seed, n)
                input_ids, sentA_lenths = self.on_device(batch)
                masked, labels, is_mlm_applied = self.masked_lm.mask_tokens(input_ids)
                x = (masked, sentA_lenths, is_mlm_applied, labels)
                totals = self.model.totals(*x)
                for number, part in enumerate(self.micro_batches(*x), start=1):
                    seed_step(self.seed, n, number)
                    judged.append(self._measure_part(part, totals, metrics))
        self.model.train()
        return metrics.compute() | exact_auc(*map(torch.cat, zip(*judged)))


    def _measure_part(self, x, totals, metrics):
        """Add one part of a batch to the metrics; returns the discriminator's (logits, labels) of its tokens, () without one."""
        pred, losses = self.forward(x, x[-1], totals)
        metrics.update(pred, x[-1], losses, totals)
        tokens = pred.attention_mask.bool()
        return (pred.disc_logits[tokens].float().cpu(), pred.is_replaced[tokens].cpu()) if len(losses) > 1 else ()


def exact_auc(logits=None, replaced=None):
    """{'disc_auc': ...} of all tokens (N,), or {} where it is not defined."""
    if logits is None or not 0 < replaced.sum() < len(replaced) or not logits.isfinite().all():
        return {}
    return {"disc_auc": float(roc_auc_score(replaced.numpy(), logits.numpy()))}


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
        if measured := self.learn.measure_held_out(self.max_batches):
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
