"""fastai Learners with mixed precision and clipping, and the gradients of a batch.

The training step of pretraining is in Pretrain.ipynb: PretrainingLearner.
"""
import itertools
import time
from functools import partial

import torch
from fastai.callback.core import TrainEvalCallback
from fastai.learner import Learner
from fastai.optimizer import OptimWrapper
from torch import nn
from torch.func import functional_call

from _utils.errors import UserError
from _utils.optim import clip_gradients, reads_found_inf
from _utils.training.callbacks import step_callbacks
from _utils.training.device import keep_freed_memory
from _utils.training.metrics import PretrainingMetrics

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
        self.scaler = torch.amp.GradScaler(self.device.type, init_scale=init_scale, enabled=precision == "fp16")

    def autocast(self):
        dtype = DTYPES[self.precision]
        return torch.autocast(self.device.type, dtype, enabled=dtype is not None)

    def clip_and_update(self, gradients, only_finite=False, clip=clip_gradients):
        """Clip the gradients and update the weights. Returns the norm of the gradients before clipping, ().

        clip: function that clips the gradients, without the loss scale, in place, and returns that norm.
        only_finite: if the norm is not finite, leave weights and moments as they are.
        """
        optimizer = self.opt.opt
        self.scaler.unscale_(optimizer)
        norm = clip(gradients)
        if only_finite and reads_found_inf(optimizer):
            optimizer.found_inf = (~norm.isfinite()).float()
            only_finite = False
        if not only_finite or norm.isfinite():
            self.scaler.step(optimizer)
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


class SummingLearner(FinetuningLearner):
    """The step of Google's code.

    The gradient is that of the loss summed over the rows (F44); the logged loss is the mean. The norm that clips it has
    a row of the word embeddings for each token of the batch, not for each word (F35).
    """

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.words = self.model.base_model.get_input_embeddings()

    def _do_one_batch(self):
        with self.words.register_forward_hook(self._keep_tokens):
            super()._do_one_batch()

    def _keep_tokens(self, words, inputs, tokens):
        self.tokens = tokens  # (B, L, E)
        if tokens.requires_grad:
            tokens.retain_grad()

    def _backward(self):
        self.scaler.scale(self.loss_grad * len(self.yb[0])).backward()

    def _step(self):
        parameters = [p for p in self.model.parameters() if p.grad is not None]
        measured = [p.grad for p in parameters if p is not self.words.weight]
        if self.tokens.requires_grad:
            measured.append(self.tokens.grad / self.scaler.get_scale())
        self.clip_and_update([p.grad for p in parameters], clip=partial(clip_gradients, measured=measured))


class MicroBatchLearner(ClippingLearner):
    """The learner of pretraining, around the training step of Pretrain.ipynb: PretrainingLearner.

    masking: MaskedLMCallback.   c: the configuration, with its precision and micro_batch.
    processes: Processes that train together. Each has the whole batch and its masks, and trains on every n-th
    micro-batch.
    train_metrics: of the training steps since they were last reset.
    """

    def __init__(self, dls, model, loss_func, optimizer, masking, c, processes):
        super().__init__(
            dls, model, loss_func, optimizer, c.precision, init_scale=2. ** 11, cbs=step_callbacks(c, optimizer)
        )
        self.masking, self.micro_batch, self.seed, self.processes = masking, c.micro_batch, c.seed, processes
        # A step that is compiled, or a GPU, needs micro-batches of the same shape.
        is_cut = self.device.type == "cpu" and not c.compile and not getattr(model, "reads_padding", False)
        self.pad_token_id = model.pad_token_id if is_cut else None
        self.gradients = Gradients(model, DTYPES[c.precision], is_fixed=processes.n > 1)
        self.train_metrics = PretrainingMetrics(self.device, only_finite=c.precision != "fp32")

    def micro_batches(self, masked):
        """(1, inputs), (2, inputs) ... of the inputs (B, ...) of a batch, the token ids first.

        On a CPU, the rows are sorted by length, and each micro-batch is cut to its longest row. On a GPU, in a compiled
        step, and for a model that reads padding, all micro-batches have the length L.
        """
        if self.pad_token_id is None:
            yield from enumerate(zip(*(tensor.split(self.micro_batch) for tensor in masked)), start=1)
            return
        lengths = (masked[0] != self.pad_token_id).sum(1)
        for number, rows in enumerate(lengths.argsort(descending=True, stable=True).split(self.micro_batch), start=1):
            longest = int(lengths[rows[0]])
            yield number, tuple(tensor[rows, :longest] if tensor.dim() == 2 else tensor[rows] for tensor in masked)

    def one_batch(self, i, b):
        super().one_batch(i, self.on_device(b))
        self.step_ended = time.perf_counter()

    def on_device(self, batch):
        """A batch on the learner's device, without waiting for the copy."""
        return tuple(tensor.to(self.device, non_blocking=True) for tensor in batch)


class Gradients:
    """Gradients of a model as views of one tensor: one operation zeroes them, or adds them up over processes.

    A step calls `begin`, and for each micro-batch `network`, which is the model, and `add`. Then it sums `flat` over
    processes, updates with `views` (the norm of `flat` is less exact on a CPU), and zeroes `flat`. In fp32 and one
    process, this is what `loss.backward()` and `model.zero_grad()` do.
    The addresses of the gradients stay the same, as a CUDA graph requires. Parameters on which no loss has depended yet
    have none, so weight decay skips them, too.

    dtype: of the forward and backward pass, in which `network` has a copy of the weights of linear layers; None: that
    of the weights.
    is_fixed: all losses must depend on the same parameters, because other processes do not know which ones are used.
    """

    def __init__(self, model, dtype, is_fixed=False):
        self.is_fixed, self.names = is_fixed, {p: name for name, p in model.named_parameters()}
        self.half = HalfWeights(model, dtype) if dtype else None
        self.network = self.half or model
        halved, copies = (self.half.parameters, self.half.copies) if self.half else ([], [])
        has_copy = set(halved)
        others = [p for p in model.parameters() if p.requires_grad and p not in has_copy]
        self.parameters, self.leaves = [*halved, *others], [*copies, *others]  # leaves: of the autograd graph
        self.flat, self.views = flat_like(self.parameters, self.parameters[0].dtype)
        self.flat_half, self.half_views = flat_like(copies, dtype) if copies else (None, [])
        self.used = None  # whether the last loss depended on each of the parameters

    def begin(self):
        """Start a step, with copies of the current weights."""
        if self.half:
            self.half.refresh()

    def add(self, loss):
        """Add the gradients of a loss.

        All are added at once: autograd alone would launch an addition for each parameter.
        """
        gradients = torch.autograd.grad(loss, self.leaves, allow_unused=True)
        used = [gradient is not None for gradient in gradients]
        if used != self.used:
            self._use(used)
        n_half = len(self.half_views)
        if any(used[:n_half]):
            torch._foreach_copy_(*_pairs(self.half_views, gradients[:n_half]))
            self.flat[:len(self.flat_half)] += self.flat_half
        if any(used[n_half:]):
            torch._foreach_add_(*_pairs(self.views[n_half:], gradients[n_half:]))

    def state(self):
        """Which parameters have gradients, to resume from."""
        return [p.grad is not None for p in self.parameters]

    def load_state(self, have_gradients):
        """Give some parameters gradients."""
        for p, view, has_gradient in zip(self.parameters, self.views, have_gradients):
            if has_gradient:
                p.grad = view

    def _use(self, used):
        """Give the used parameters gradients. Those of copies are zero wherever a loss does not use them.

        UserError if they changed, but `is_fixed`.
        """
        if self.is_fixed and self.used:
            [changed, *_] = [p for p, before, now in zip(self.parameters, self.used, used) if before != now]
            raise UserError(f"Only one of two losses depends on {self.names[changed]}, as with layers that are left "
                            "out at random. With several processes, all must depend on the same parameters. Train in "
                            "one process.")
        self.load_state(used)
        if self.half_views:
            self.flat_half.zero_()
        self.used = used


def _pairs(views, gradients):
    """(views, gradients) of those that have a gradient."""
    pairs = [(view, gradient) for view, gradient in zip(views, gradients) if gradient is not None]
    return [view for view, _ in pairs], [gradient for _, gradient in pairs]


def flat_like(tensors, dtype):
    """(zeros in one dimension, views of them with the shapes and strides of some tensors, one after the other).

    Each view begins at a multiple of 16 bytes, as the fastest loads and stores of a GPU require.
    """
    sizes = [-(-tensor.numel() // 8) * 8 for tensor in tensors]  # of 2 or 4 bytes
    flat = torch.zeros(sum(sizes), dtype=dtype, device=tensors[0].device)
    offsets = itertools.accumulate(sizes, initial=0)
    return flat, [flat.as_strided(tensor.shape, tensor.stride(), offset) for tensor, offset in zip(tensors, offsets)]


class HalfWeights:
    """Copies of the weights and biases of a model's linear layers in the dtype of autocast.

    Autocast would cast each of them in every forward pass, and its gradient in every backward pass: hundreds of small
    operations with the same result. Weights that other layers use too, such as tied embeddings, are left to autocast.

    parameters: the parameters that have copies.   copies: the copies, leaves of the autograd graph, in the same order.
    """

    def __init__(self, model, dtype):
        self.model, self.dtype = model, dtype
        of_linear, of_others = set(), set()
        for layer in model.modules():
            (of_linear if isinstance(layer, nn.Linear) else of_others).update(layer.parameters(recurse=False))
        of_linear -= of_others
        named = [(name, p) for name, p in model.named_parameters() if p in of_linear and p.requires_grad]
        self.names, self.parameters = [name for name, _ in named], [p for _, p in named]
        self.copies = [torch.empty_like(p, dtype=dtype).requires_grad_() for p in self.parameters]

    @torch.no_grad()
    def refresh(self):
        """Copy the current weights."""
        torch._foreach_copy_(self.copies, self.parameters)

    def __call__(self, *x):
        """The model's output, computed with the copies."""
        return functional_call(self.model, dict(zip(self.names, self.copies)), x)
