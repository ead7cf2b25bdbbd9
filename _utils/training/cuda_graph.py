"""A training step without Python: its functions compiled and, on a GPU, replayed as CUDA graphs.

An eager step of ELECTRA-Small launches thousands of small kernels, and the GPU waits for the CPU that launches them. A
CUDA graph launches all kernels of a function at once. The three functions of PretrainingLearner can be captured because
they read and write tensors at constant addresses only; what changes between steps reaches them through tensors (batch,
learning rates) and the seeds that are set before each call.

Two things are not captured: fp16, whose loss scaling was not tried in a graph; and the update if momentum is scheduled,
because PyTorch's fused Adam takes it as a number, or if the optimizer does not read `found_inf`.
"""
import contextlib
import os
import shutil
from functools import partial

import torch
from fastai.callback.core import Callback

from _utils.errors import UserError, as_user_error
from _utils.optim import reads_found_inf
from _utils.seeds import fork_rng

COMPILED = "datasets/compiled"  # what torch.compile keeps


class CompiledStep(Callback):
    """Compiles the step of a PretrainingLearner and, on a GPU, captures it, with the first batch.

    with_update: whether the update can be captured: only learning rates change between steps.
    """

    def __init__(self, with_update):
        self.with_update, self.is_ready = with_update, False

    def before_batch(self):
        if self.is_ready:
            return
        self.is_ready = True
        compile_step(self.learn)
        if self.learn.device.type == "cuda" and not self.learn.scaler.is_enabled():
            capture_step(self.learn, self.xb, self.with_update and reads_found_inf(self.learn.opt.opt))


def keep_compiled():
    """Let torch.compile keep its results in COMPILED, unless TORCHINDUCTOR_CACHE_DIR names another folder.

    Later starts reuse them. PyTorch's default is a temporary folder, which it may have set already. Results serve the
    same code, versions and model of GPU.
    """
    from torch._inductor.runtime.cache_dir_utils import default_cache_dir  # takes more than a second
    if os.environ.get("TORCHINDUCTOR_CACHE_DIR") in (None, default_cache_dir()):
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = os.path.abspath(COMPILED)


def check_compiler():
    """Raise UserError if torch.compile would find no compiler."""
    if not any((os.getenv("CC"), os.getenv("CXX"), *map(shutil.which, ("gcc", "g++", "clang")))):
        raise UserError("compile=True needs a C++ compiler, but none was found (gcc, g++, clang; CC and CXX are not "
                        "set). Install g++, or leave compile out.")


# Independent small kernels, such as the column sums of bias gradients, share a launch: in the backward pass of
# ELECTRA-Small 148 instead of 517 launches (torch 2.11). Each part keeps its own block size, because one size for
# unlike parts is slow.
GPU_OPTIONS = {"combo_kernels": True, "combo_kernel_per_subkernel_blocks": True}


def compile_step(learn, backend="inductor"):
    """Compile the masks and the forward pass of a PretrainingLearner, each as one graph, at their first call.

    The backward pass is compiled with the forward pass.
    """
    options = GPU_OPTIONS if learn.device.type == "cuda" and backend == "inductor" else None
    for name in ("masks", "forward"):
        compiled = torch.compile(getattr(learn, name), fullgraph=True, dynamic=False, backend=backend, options=options)
        setattr(learn, name, compiled)


def capture_step(learn, batch, with_update=True):
    """Capture the step of a PretrainingLearner in CUDA graphs, after some steps on `batch` that change nothing.

    batch: one batch of the training, on the device.   with_update: capture the update, too.   Raises UserError if it
    fails.
    """
    learn.xb = tuple(tensor.clone() for tensor in batch)  # the graphs keep it, and overwrite it
    rates = [torch.zeros((), device=learn.device) for _ in learn.opt.opt.param_groups]  # read by the captured update
    with state_restored(learn), as_user_error("compile=True failed ({error}). If memory ran out, lower micro_batch; "
                                              "otherwise leave compile out."):
        if with_update:
            learn.opt.set_hyper("lr", rates)
        # One stream for both: autograd remembers the stream on which it first saw a parameter, and warns if gradients
        # come from another.
        stream = torch.cuda.Stream()
        warm_up(learn, stream)
        set_capturable(learn.opt.opt, with_update)
        pool = torch.cuda.graph_pool_handle()
        for name in ("masks", "accumulate", "update")[:3 if with_update else 2]:
            setattr(learn, name, CapturedFunction(getattr(learn, name), pool, stream))
        learn._do_one_batch()
        torch.cuda.synchronize()
        set_capturable(learn.opt.opt, False)
    learn.xb = batch
    if with_update:
        learn.update.before = partial(fill_rates, rates, learn.opt.opt)


def set_capturable(optimizer, is_capturable):
    """Set the flag without which PyTorch's Adam refuses to be captured, and with which it warns in eager steps."""
    for group in optimizer.param_groups:
        if "capturable" in group:
            group["capturable"] = is_capturable


def fill_rates(rates, optimizer):
    """Copy the learning rates of the optimizer's parameter groups to the tensors `rates`."""
    for rate, group in zip(rates, optimizer.param_groups):
        rate.fill_(group["lr"])


def warm_up(learn, stream):
    """Steps on a side stream, as CUDA graphs require: compilers, libraries and optimizer allocate what they keep."""
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        for _ in range(3):
            learn._do_one_batch()
    torch.cuda.synchronize()


@contextlib.contextmanager
def state_restored(learn):
    """Context in which a learner, in training mode, can try steps of the training.

    It also works before fastai's `fit` prepares the learner.
    At its end weights, optimizer state, loss scale, metrics, random numbers, learning rates and modes are as before,
    tensors at the same addresses.
    """
    def state():
        moments = [tensor for of_parameter in learn.opt.opt.state.values() for tensor in of_parameter.values()]
        return [*learn.model.parameters(), learn.train_metrics.state, *moments]

    before = {tensor: tensor.detach().to("cpu", copy=True) for tensor in state()}
    rates = [group["lr"] for group in learn.opt.opt.param_groups]
    scaler, modes = learn.scaler.state_dict(), [(module, module.training) for module in learn.model.modules()]
    learn.model.train()
    with fork_rng(learn.device):
        yield
    for module, mode in modes:
        module.training = mode
    with torch.no_grad():
        for tensor in state():
            tensor.copy_(before.get(tensor, torch.zeros(())))  # zero: a moment that did not exist before
        learn.gradients.flat.zero_()
    learn.opt.set_hyper("lr", rates)
    learn.scaler.load_state_dict(scaler)


class CapturedFunction:
    """A function of tensors whose calls are captured as CUDA graphs, one for each combination of shapes.

    Inputs and outputs of a graph stay in the tensors of its first call.
    pool: memory that several graphs share; they must be replayed in the order of their capture.   stream: of the
    capture.
    before: called before each replay.
    """

    def __init__(self, function, pool, stream):
        self.function, self.pool, self.stream = function, pool, stream
        self.graphs, self.before = {}, lambda: None

    def __call__(self, *inputs):
        self.before()
        shapes = tuple(tensor.shape for tensor in inputs)
        if shapes not in self.graphs:
            graph = torch.cuda.CUDAGraph()
            # thread_local, because other threads, which load or log data, may use the GPU meanwhile
            with torch.cuda.graph(graph, pool=self.pool, stream=self.stream, capture_error_mode="thread_local"):
                self.graphs[shapes] = graph, inputs, self.function(*inputs)
        graph, own_inputs, outputs = self.graphs[shapes]
        for own, given in zip(own_inputs, inputs):
            if own.data_ptr() != given.data_ptr():
                own.copy_(given)
        graph.replay()
        return outputs
