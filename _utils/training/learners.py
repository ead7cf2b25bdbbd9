"""fastai Learners with ELECTRA's training step.

The protocol of pretraining, in the order of one step. A batch may go through the networks in parts (micro-batches); losses, gradients and
metrics of the parts add up to those of the batch, because each part is divided by the totals of the batch:

    masks:
        x, (labels,) = masking.mask(*batch)  MaskedLMCallback: x = (masked_inputs, sentA_lenths, is_mlm_applied, labels)
        totals = model.totals(*x)            masked positions and tokens of the batch
    for each part:
        pred = model(*x)                     ELECTRAOutput or MaskedLMOutput
        loss, parts = loss_func(pred, labels, totals, return_parts=True)
                                             the loss to minimize, and (generator loss[, discriminator loss]) to log
        metrics.update(pred, x[0], labels, loss, parts, totals)
        loss.backward()
    update:
        clip, optimizer step

To train with another loss, change `ELECTRALoss.forward` in Pretrain.ipynb, or pass another `loss_func` that follows this protocol.
fastai's events around a batch and around the optimizer step are called (before_batch, before_step, after_step, after_batch ...); events
between forward and backward pass are not, because they would have to come once per part.
"""
import itertools

import torch
from fastai.callback.core import TrainEvalCallback
from fastai.learner import CancelBackwardException, CancelStepException, Learner
from fastai.optimizer import OptimWrapper

from _utils.networks.fast import HalfWeights
from _utils.optim import clip_gradients, learning_rates
from _utils.training.device import avoid_cudnn_attention, fork_rng, keep_freed_memory, seed_step
from _utils.training.gradients import BucketedGradients, FlatGradients
from _utils.training.metrics import PretrainingMetrics, exact_auc

DTYPES = {"fp32": None, "bf16": torch.bfloat16, "fp16": torch.float16}


class ClippingLearner(Learner):
    """fastai's Learner with mixed precision and gradients clipped at global norm 1 (F35).

    optimizer: a torch.optim.Optimizer over the model's parameters.   precision: 'fp32', 'bf16' or 'fp16'.
    init_scale: initial loss scale of fp16 (electra_pytorch: 2 ** 11 for pretraining, 2 ** 14 for finetuning).
    There is no validation after an epoch: pretraining evaluates at milestones, and finetuning uses its last step (F47).
    """

    def __init__(self, dls, model, loss_func, optimizer, precision="fp32", init_scale=2. ** 14, cbs=()):
        super().__init__(dls, model, loss_func=loss_func, default_cbs=False, cbs=[TrainEvalCallback(), *cbs])
        self.opt = OptimWrapper(opt=optimizer)
        self.precision = precision
        self.device = dls.device
        if self.device.type == "cpu":
            keep_freed_memory()
        else:
            avoid_cudnn_attention()
        self.scaler = torch.amp.GradScaler(self.device.type, init_scale=init_scale, enabled=precision == "fp16")

    def autocast(self):
        dtype = DTYPES[self.precision]
        return torch.autocast(self.device.type, dtype, enabled=dtype is not None)

    def _backward(self):
        self.scaler.scale(self.loss_grad).backward()

    def _step(self):
        self.gradient_norm = self.clip_and_update([p.grad for p in self.model.parameters() if p.grad is not None])

    def clip_and_update(self, gradients):
        """Clip the gradients and update the weights. Returns the norm of the gradients before clipping, ()."""
        self.scaler.unscale_(self.opt.opt)
        norm = clip_gradients(gradients, 1.)
        self.scaler.step(self.opt.opt)
        self.scaler.update()
        return norm

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
    """ClippingLearner with masking, gradient accumulation, several processes, and evaluation on held-out text.

    masking: MaskedLMCallback; each step draws masks with its `mask`.
    micro_batch: examples per forward and backward pass.
    seed: determines the masks of each step, and dropout and samples of each part of a batch, whatever was drawn before.
    processes: Processes that train together. Each has the whole batch and its masks, and computes every n-th part.
    is_static: keep all gradients at constant addresses, so that the step can be captured. Several processes then add them up in one message
    after the backward pass; otherwise DistributedDataParallel adds them up during it.
    train_metrics: of the training steps since they were last reset.
    """

    def __init__(self, dls, model, loss_func, optimizer, masking, micro_batch, seed, precision, processes, is_static=False, cbs=()):
        super().__init__(dls, model, loss_func, optimizer, precision, 2. ** 11, cbs)
        self.is_static = is_static
        self.masking, self.micro_batch, self.seed, self.processes = masking, micro_batch, seed, processes
        self.train_metrics = PretrainingMetrics(self.device, only_finite=self.scaler.is_enabled())
        if is_static or processes.n == 1:
            self.gradients = FlatGradients(model, processes, HalfWeights(model, DTYPES[precision]) if DTYPES[precision] else None)
        else:
            self.gradients = BucketedGradients(model, processes)
        self.lr_tensors = None

    def one_batch(self, i, b):
        seed_step(self.seed, self.train_iter)
        super().one_batch(i, self.on_device(b))

    def on_device(self, batch):
        """A batch on the learner's device, without waiting for the copy."""
        return tuple(tensor.to(self.device, non_blocking=True) for tensor in batch)

    def _do_one_batch(self):
        """One step: gradients of this process's parts of the batch, then the update."""
        x, totals = self.masks(*self.xb)
        parts = list(enumerate(self.parts_of(x), start=1))[self.processes.index::self.processes.n]
        for number, part in parts:
            seed_step(self.seed, self.train_iter, number)
            with self.gradients.part(is_last=number == parts[-1][0]):
                self.part(*part, *totals)
        self._with_events(self._step, "step", CancelStepException)

    def parts_of(self, x):
        """The model's inputs (B, ...) in parts of micro_batch rows: an iterator over tuples.

        On a CPU the rows are sorted by length, and each part is as long as its longest row; on a GPU all shapes stay the same.
        """
        if self.device.type != "cpu" or self.is_static:
            return zip(*(tensor.split(self.micro_batch) for tensor in x))
        lengths = (x[0] != self.model.pad_token_id).sum(1)
        rows = lengths.argsort(descending=True, stable=True).split(self.micro_batch)
        return (cut([tensor[part] for tensor in x], int(lengths[part[0]])) for part in rows)

    # The three functions of a step. They read and write nothing but tensors, whose shapes and addresses are the same in every step if the
    # learner is static, and no Python number that changes. `static_step` relies on this.

    def masks(self, *batch):
        """(x, totals) of a batch: the model's inputs with new masks, and the denominators of its losses."""
        self.gradients.begin()
        x, _ = self.masking.mask(*batch)
        return x, self.model.totals(*x)

    def part(self, *x_and_totals):
        """Add the gradients of a part of a batch to those of the step, and its metrics to `train_metrics`."""
        *x, n_masked, n_tokens = x_and_totals
        self.loss_grad = self.loss_of_part(x, (n_masked, n_tokens))
        self._backward()
        self.loss_grad = self.loss_grad.detach()  # frees the autograd graph

    def loss_of_part(self, x, totals):
        """The loss of a part, whose metrics are added to `train_metrics`."""
        return self.forward_part(x, totals, self.train_metrics, self.gradients.network)[1]

    def _backward(self):
        self.gradients.backward(self.scaler.scale(self.loss_grad))

    def update(self, *lrs):
        """Clip, update the weights, and zero the gradients. Returns the norm of the gradients, ().

        lrs: learning rate of each parameter group, a number or a tensor ().
        """
        with learning_rates(self.opt.opt, lrs):
            norm = self.clip_and_update(self.gradients.tensors())
        self.gradients.zero()
        return norm

    def learning_rates(self):
        """The arguments of `update`: numbers, or if it is captured the tensors it reads them from."""
        lrs = [group["lr"] for group in self.opt.opt.param_groups]
        return lrs if self.lr_tensors is None else [tensor.fill_(lr) for tensor, lr in zip(self.lr_tensors, lrs)]

    def _step(self):
        self.gradients.add_up()
        self.gradient_norm = self.update(*self.learning_rates())

    def forward_part(self, x, totals, metrics, network):
        """(pred, loss) of a part of a batch, whose metrics are added to `metrics`; the protocol at the top of this module.

        network: the model, or in training what `gradients` wraps it in.
        """
        labels = x[-1]
        with self.autocast():
            pred = network(*x)
            loss, parts = self.loss_func(pred, labels, totals, return_parts=True)
        metrics.update(pred, x[0], labels, loss, parts, totals)
        return pred, loss

    @torch.no_grad()
    def evaluate_held_out(self, max_batches=None, split=1):
        """Metrics of the held-out examples, or of their first `max_batches` batches, without dropout; {} if there are none.

        Masks and samples depend on the learner's seed only and are the same every time; the training's random numbers are not disturbed.
        split: index of the loader, 1 for held-out examples, 2 for a test set.
        """
        if len(self.dls.loaders) <= split:
            return {}
        metrics, logits, replaced = PretrainingMetrics(self.device), [], []
        self.model.eval()
        with fork_rng(self.device):
            for n, batch in enumerate(itertools.islice(self.dls.loaders[split], max_batches)):
                seed_step(self.seed, n)
                x, _ = self.masking.mask(*self.on_device(batch))  # not `masks`, which may be a CUDA graph
                totals = self.model.totals(*x)
                for number, part in enumerate(self.parts_of(x), start=1):
                    seed_step(self.seed, n, number)
                    pred, _ = self.forward_part(part, totals, metrics, self.model)
                    if hasattr(pred, "disc_logits"):
                        tokens = pred.attention_mask.bool()
                        logits.append(pred.disc_logits[tokens].float().cpu())
                        replaced.append(pred.is_replaced[tokens].cpu())
        self.model.train()
        auc = exact_auc(torch.cat(logits), torch.cat(replaced)) if logits else None
        return metrics.compute() | ({} if auc is None else {"disc_auc": auc})


def cut(x, length):
    """The model's inputs with rows of this length, without the padding after it: (B, length) or (B,) each."""
    return tuple(tensor[:, :length] if tensor.dim() == 2 else tensor for tensor in x)
