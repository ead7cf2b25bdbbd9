"""The training steps of pretraining and finetuning, and the callbacks that a reader of the paper would skip."""
import itertools

import torch
from fastai.callback.core import TrainEvalCallback
from fastai.learner import CancelBackwardException, CancelStepException, Learner
from fastai.optimizer import OptimWrapper
from sklearn.metrics import roc_auc_score

from _utils.optim import clip_by_global_norm
from _utils.training.metrics import PretrainingMetrics
from _utils.training.seeds import fork_rng, seed_step

DTYPES = {"fp32": None, "bf16": torch.bfloat16, "fp16": torch.float16}


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
    """One forward pass, loss and update per batch."""

    def _do_one_batch(self):
        with self.autocast():
            self.pred = self.model(*self.xb)
        self.loss_grad = self.loss_func(self.pred.float(), *self.yb)
        self("after_loss")
        self._with_events(self._backward, "backward", CancelBackwardException)
        self._with_events(self._step, "step", CancelStepException)
        self.opt.zero_grad()


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
    def evaluate_held_out(self, max_batches=None, split=1):
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
