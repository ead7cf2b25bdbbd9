"""Micro-batches: their default size, the memory they take, and their use in evaluation."""
import gc
import weakref
from types import SimpleNamespace

import pytest
import torch
from fake_cuda import fake_cuda
from tiny_pretraining import FOLDER, metrics, run
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import benchmarks.pretraining
import pretrain
from _utils.config import complete
from _utils.errors import PlainError
from _utils.networks.build import build_network
from _utils.networks.fast_electra import FastELECTRA
from _utils.objectives.kinds import default_name, named
from _utils.recipes import RECIPES
from _utils.runs.checkpoints import load_checkpoint
from _utils.text.vocabulary import tokenizer_from_tokens
from _utils.training.device import activation_bytes_per_token, fastest_micro_batch, micro_batch_sizes
from _utils.training.learners import split_micro_batches
from _utils.training.metrics import evaluate
from _utils.training.processes import Processes

GPU, CPU = torch.device("cuda"), torch.device("cpu")


def build_networks(size):
    with torch.device("meta"):
        shapes = named(default_name(RECIPES[size])).shapes(RECIPES[size])
        return [build_network(part, network.config(30522)) for part, network in shapes]


def default_sizes(size, device, precision):
    recipe = RECIPES[size]
    return micro_batch_sizes(device, recipe.bs, recipe.max_length, precision, build_networks(size), recipe.mask_prob)


@pytest.mark.parametrize("size, gigabytes, examples", [
    ("small", 80, 128), ("base", 80, 64), ("large", 80, 32), ("base", 16, 16), ("base", 12, 16), ("large", 16, 4), ("small", 8, 128)])
def test_micro_batch_fits_the_free_gpu_memory(monkeypatch, size, gigabytes, examples):
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (gigabytes * 10 ** 9, gigabytes * 10 ** 9))
    assert default_sizes(size, GPU, "bf16") == [examples]


def test_gpu_too_small_for_the_networks_is_rejected(monkeypatch):
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (4 * 10 ** 9, 24 * 10 ** 9))
    with pytest.raises(PlainError, match=r"cuda has 4.0 GB of free memory.* need \d\.\d GB"):
        default_sizes("large", GPU, "bf16")


@pytest.mark.parametrize("size, precision, tokens", [
    ("small", "fp32", [1024, 4096]), ("small", "bf16", [2048, 4096]), ("mini", "fp32", [2048, 4096]), ("mini", "bf16", [4096]),
    ("base", "fp32", [512, 4096]), ("tiny", "fp32", [2048])])
def test_micro_batches_that_fit_the_cpu_caches_are_tried_beside_larger_ones(size, precision, tokens):
    assert [rows * RECIPES[size].max_length for rows in default_sizes(size, CPU, precision)] == tokens


@pytest.mark.parametrize("seconds_per_pass, fastest", [(1., 32), (0., 8)])
def test_larger_micro_batches_are_chosen_if_they_are_faster(monkeypatch, seconds_per_pass, fastest):
    """The clock counts passes, or stands still: then there is no gain."""
    learn = SimpleNamespace(masks=lambda *batch: (batch, ()), passes=0)
    learn.micro_batches = lambda masked: enumerate(split_micro_batches(masked, learn.micro_batch))
    learn.accumulate = lambda *_: setattr(learn, "passes", learn.passes + 1)
    monkeypatch.setattr("_utils.training.device.time.perf_counter", lambda: 1. + seconds_per_pass * learn.passes)
    assert fastest_micro_batch(learn, (torch.zeros(128, 4), torch.zeros(128)), (8, 32)) == fastest and learn.passes == 4 + 2 * (4 + 1)


@pytest.mark.parametrize("bs, processes, examples", [(128, 1, 8), (96, 1, 8), (127, 1, 8), (131, 1, 8), (10, 1, 5), (3, 1, 3), (128, 2, 8),
                                                     (60, 3, 5), (16, 3, 6), (3, 4, 1)])
def test_micro_batches_are_few_for_any_batch_size_and_number_of_processes(bs, processes, examples):
    """Up to 8 examples of 128 tokens fit."""
    networks, recipe = build_networks("small"), RECIPES["small"]
    assert micro_batch_sizes(CPU, bs, recipe.max_length, "fp32", networks, recipe.mask_prob, processes)[0] == examples


class LiveTensors(TorchDispatchMode):
    """Counts the bytes of all tensors created in this mode that are still alive, except views of the weights."""

    def __init__(self, weights):
        super().__init__()
        self.bytes = {weight.untyped_storage()._cdata: 0 for weight in weights}

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        for tensor in tree_leaves(result):
            if isinstance(tensor, torch.Tensor) and (key := (storage := tensor.untyped_storage())._cdata) not in self.bytes:
                self.bytes[key] = storage.nbytes()
                weakref.finalize(storage, self.bytes.pop, key, None)
        return result


def kept_bytes_per_token(size, precision, examples=512, length=16):
    """Measure what a forward pass keeps for the backward pass, on fake CUDA tensors.

    The length is short because attention is not fused there.
    """
    with fake_cuda():
        c = complete(pretrain.c.override([f"size={size}", f"bs={examples}", f"micro_batch={examples}", f"max_length={length}",
                                          f"precision={precision}"]))
        with GPU:
            learn = pretrain.build_learner(c, tokenizer_from_tokens(benchmarks.pretraining.VOCABULARY), SimpleNamespace(device=GPU), None,
                                           Processes())
            x, counts = learn.masks(torch.full((examples, length), 7), torch.full((examples,), 10))
        with LiveTensors(learn.model.parameters()) as live:
            loss = learn.forward(x, counts)
            gc.collect()
            assert loss.requires_grad
            return sum(live.bytes.values()) / (examples * length)


@pytest.mark.parametrize("size", ["small", pytest.param("base", marks=pytest.mark.slow), "large"])
@pytest.mark.parametrize("precision", ["bf16", "fp32"])
def test_memory_estimate_matches_a_forward_pass(size, precision):
    estimate = activation_bytes_per_token([network.config for network in build_networks(size)], RECIPES[size].mask_prob, precision)
    assert .85 < estimate / kept_bytes_per_token(size, precision) < 1.3


def test_held_out_examples_are_evaluated_in_micro_batches(workplace, monkeypatch):
    sizes, original = [], FastELECTRA.forward

    def forward(model, masked_inputs, *others):
        sizes.append(len(masked_inputs))
        return original(model, masked_inputs, *others)
    monkeypatch.setattr(FastELECTRA, "forward", forward)
    learn = run("steps=1", "temperature=1e-6")
    metrics_of = {}
    for learn.micro_batch in (1, 8):
        sizes.clear()
        metrics_of[learn.micro_batch] = evaluate(learn, learn.dls.valid)
        assert set(sizes) == {learn.micro_batch, 1}  # the last batch has one of the 33 held-out examples
    in_parts, whole = metrics_of.values()
    assert in_parts.keys() == whole.keys() and in_parts["gen_loss"] == pytest.approx(whole["gen_loss"], rel=1e-5)
    for name in ("disc_loss", "disc_auc", "replaced_share"):  # rounding swaps a few tokens with nearly equal logits
        assert in_parts[name] == pytest.approx(whole[name], rel=.02)


def test_a_resumed_run_keeps_its_micro_batch_and_precision(workplace, capsys):
    run("steps=2", "micro_batch=2", "precision=bf16")
    assert "cpu, bf16, micro-batches of 2" in capsys.readouterr().out
    (FOLDER / "mini_5_100.0%.pth").unlink()
    learn = run("steps=2", resume=True)
    assert (learn.micro_batch, learn.precision) == (2, "bf16") and len(metrics()) == 2
    assert load_checkpoint(FOLDER / "mini_5/resume.pth")["config"]["micro_batch"] == 2
    with pytest.raises(PlainError, match="precision='fp32'"):
        run("steps=2", "precision=fp32", resume=True)
