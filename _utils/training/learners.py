"""fastai Learners with mixed precision and clipping.

The training step of pretraining is in Pretrain.ipynb: TrainingStep.
"""
import torch
from fastai.callback.core import TrainEvalCallback
from fastai.learner import Learner
from fastai.optimizer import OptimWrapper

from _utils.optim import clip_gradients
from _utils.training.device import avoid_cudnn_attention, keep_freed_memory

DTYPES = {"fp32": None, "bf16": torch.bfloat16, "fp16": torch.float16}


class ClippingLearner(Learner):
    """fastai's Learner with mixed precision and gradients clipped at global norm 1 (F35).

    optimizer: a torch.optim.Optimizer over the model's parameters.   precision: 'fp32', 'bf16' or 'fp16'.
    init_scale: initial loss scale of fp16 (electra_pytorch: 2 ** 11 for pretraining, 2 ** 14 for finetuning).
    fastai does not validate after an epoch: pretraining evaluates at milestones, finetuning after its last step (F47)
    or with KeepBest.
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

    def clip_and_update(self, gradients, only_finite=False):
        """Clip the gradients and update the weights. Returns the norm of the gradients before clipping, ().

        only_finite: if the norm is not finite, leave weights and moments as they are, without waiting for the device.
        fp16's loss scaling always does so, and passes `found_inf` to the optimizer itself.
        """
        self.scaler.unscale_(self.opt.opt)
        norm = clip_gradients(gradients)
        if only_finite:
            self.opt.opt.found_inf = (~norm.isfinite()).float()
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
        self._do_grad_opt()  # fastai's: calls `_backward` and `_step`, and zeroes the gradients

    def _backward(self):
        self.scaler.scale(self.loss_grad).backward()

    def _step(self):
        self.clip_and_update([p.grad for p in self.model.parameters() if p.grad is not None])


def split_micro_batches(inputs, size, pad_token_id=None):
    """The model's inputs (B, ...), the token ids first, in micro-batches of `size` rows: an iterator over tuples.

    pad_token_id: sort the rows by length, and cut each micro-batch to its longest row; None: all micro-batches have the
    length L.
    """
    if pad_token_id is None:
        yield from zip(*(tensor.split(size) for tensor in inputs))
        return
    lengths = (inputs[0] != pad_token_id).sum(1)
    for rows in lengths.argsort(descending=True, stable=True).split(size):
        longest = int(lengths[rows[0]])
        yield tuple(tensor[rows, :longest] if tensor.dim() == 2 else tensor[rows] for tensor in inputs)
