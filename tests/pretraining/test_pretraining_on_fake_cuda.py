"""A complete pretraining step on fake CUDA tensors never synchronizes with the GPU."""
import itertools
from types import SimpleNamespace

import pytest
import torch
from fake_cuda import fake_cuda

import benchmarks.pretraining
import pretrain
from _utils.config import complete
from _utils.text.vocabulary import tokenizer_from_tokens
from _utils.training.after_step import Bookkeeping
from _utils.training.processes import Processes

GPU = torch.device("cuda")
EXAMPLES, LENGTH = 4, 32


def learner_on_gpu(size, precision, masking):
    """The learner of a configuration, ready for `one_batch`; each step has two micro-batches."""
    c = complete(pretrain.c.override([f"size={size}", f"bs={EXAMPLES}", "micro_batch=2", f"max_length={LENGTH}", f"precision={precision}",
                                      f"masking={masking}"]))
    with GPU:
        hf_tokenizer = tokenizer_from_tokens(benchmarks.pretraining.VOCABULARY)
        learn = pretrain.build_learner(c, hf_tokenizer, SimpleNamespace(device=GPU, n_inp=2), None, Processes())
    learn.add_cb(Bookkeeping(1000, 1, every=1000))
    learn.training, learn.train_iter, learn.pct_train, learn.n_iter, learn.n_epoch = True, 0, 0., 1000, 1
    learn("before_fit")
    return learn


def batch_in_host_memory():
    return torch.full((EXAMPLES, LENGTH), 7), torch.full((EXAMPLES,), 10)


@pytest.mark.parametrize("size, precision, masking", [
    *itertools.product(["small"], ["bf16", "fp32"], ["bernoulli", "official"]),
    *((size, *pair) for size in ("base", "large") for pair in (("bf16", "bernoulli"), ("fp32", "official")))])
def test_step_neither_synchronizes_nor_mixes_devices(size, precision, masking):
    with fake_cuda():
        learn = learner_on_gpu(size, precision, masking)
        outputs = []
        learn.model.register_forward_hook(lambda module, inputs, output: outputs.append(output.disc_logits))
        learn.one_batch(0, batch_in_host_memory())
        assert [(logits.shape, logits.device.type) for logits in outputs] == 2 * [((2, LENGTH), "cuda")]
        assert {p.device.type for p in learn.model.parameters()} == {"cuda"} and learn.train_iter == 1
        assert learn.train_metrics.sums.device.type == "cuda"


def read_number_of_masks(learn):
    learn.model.n_slots = None  # as on a CPU


def mask_on_cpu(learn):
    learn.masking.mask_tokens = lambda inputs: (inputs.cpu(),) * 3


@pytest.mark.parametrize("fault", [read_number_of_masks, mask_on_cpu])
def test_step_that_synchronizes_or_mixes_devices_fails(fault):
    with fake_cuda(), pytest.raises((RuntimeError, TypeError)) as error:
        learn = learner_on_gpu("tiny", "fp32", "bernoulli")
        fault(learn)
        learn.one_batch(0, batch_in_host_memory())
    assert "fake" in f"{type(error.value)} {error.value}".lower() or "device" in str(error.value)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("masking", ["bernoulli", "official"])
def test_step_never_synchronizes_with_a_real_gpu(masking):
    learn = learner_on_gpu("tiny", "bf16", masking)
    batch = tuple(tensor.pin_memory() for tensor in batch_in_host_memory())
    learn.one_batch(0, batch)
    torch.cuda.set_sync_debug_mode("error")
    try:
        learn.one_batch(1, batch)
    finally:
        torch.cuda.set_sync_debug_mode("default")
