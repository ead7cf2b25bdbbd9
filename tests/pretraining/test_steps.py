"""A training step: gradients, no wait for the GPU, and static steps, which CUDA graphs can capture, compared with eager ones."""
import contextlib
import copy
import itertools
from types import SimpleNamespace
from unittest import mock

import pytest
import torch
from fake_cuda import fake_cuda
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import benchmarks.pretraining
import pretrain
from _utils.config import complete
from _utils.errors import PlainError
from _utils.text.vocabulary import tokenizer_from_tokens
from _utils.training import cuda_graph, metrics
from _utils.training.after_step import Bookkeeping
from _utils.training.device import seed_step
from _utils.training.processes import Processes

EXAMPLES, LENGTH = 4, 32


@pytest.fixture(autouse=True)
def operations_of_torch(monkeypatch):
    """Random numbers and argmax as on a GPU, so that all operations are PyTorch's."""
    monkeypatch.setattr(pretrain, "uniform_like", torch.rand_like)
    for module in (pretrain, metrics):
        monkeypatch.setattr(module, "argmax", lambda x: x.argmax(-1))


def build_learner(device="cpu", *settings):
    """A learner, not compiled, whose steps have two micro-batches."""
    c = pretrain.c.override(["size=tiny", f"bs={EXAMPLES}", "micro_batch=2", f"max_length={LENGTH}", "precision=fp32"]).override(settings)
    device = torch.device(device)
    with device:
        hf_tokenizer = tokenizer_from_tokens(benchmarks.pretraining.VOCABULARY[:1000])
        learn = pretrain.build_learner(complete(c), hf_tokenizer, SimpleNamespace(device=device, n_inp=2), None, Processes())
    learn.remove_cbs([callback for callback in learn.cbs if isinstance(callback, cuda_graph.StaticStep)])
    learn.training, learn.train_iter, learn.pct_train, learn.n_iter, learn.n_epoch = True, 0, 0., 1000, 1
    return learn


def static_learner(device="cpu", *settings):
    return build_learner(device, "compile=True", *settings)


def batch_of(learn, seed=0):
    """A batch whose last example has padding."""
    ids = torch.randint(5, 1000, (EXAMPLES, LENGTH), generator=torch.Generator().manual_seed(seed))
    ids[-1, 20:] = 0
    return learn.on_device((ids, torch.tensor([5, 11, 17, 29])))


def gradients_by_autograd(learn, x, counts):
    """{name: gradient} of a step with plain autocast and loss.backward()."""
    for number, micro_batch in learn.micro_batches(x):
        seed_step(0, 0, number)
        with learn.autocast():
            learn.loss_func(learn.model(*micro_batch), micro_batch[-1], counts).backward()
    found = {name: p.grad for name, p in learn.model.named_parameters()}
    learn.model.zero_grad(set_to_none=True)
    return found


ROBERTA = {"model_type": "roberta", "hidden_size": 64, "num_attention_heads": 2, "num_hidden_layers": 1, "intermediate_size": 64,
           "max_position_embeddings": 64}
PAIR = ["precision=bf16", f"generator={ROBERTA}", f"discriminator={ROBERTA}"]


@pytest.mark.parametrize("settings", [["precision=bf16"], ["precision=fp32"], ["size=albert_tiny", "precision=bf16"], PAIR,
                                      [*PAIR, "tying=embeddings+encoder"]])
def test_gradients_equal_those_of_plain_autocast(monkeypatch, settings):
    """Parameters without gradient are left alone: weight decay skips them, too, as in fastai and torch.optim."""
    build_model = pretrain.build_model

    def build_with_more_parameters(*args, **kwargs):
        model = build_model(*args, **kwargs)
        model.unused, model.frozen = torch.nn.Linear(3, 3), torch.nn.Parameter(torch.ones(2), requires_grad=False)
        return model
    monkeypatch.setattr(pretrain, "build_model", build_with_more_parameters)
    learn = build_learner("cpu", *settings)
    learn.opt.set_hyper("lr", 1e-2)
    x, counts = learn.masks(*batch_of(learn))
    expected = gradients_by_autograd(learn, x, counts)
    for number, micro_batch in learn.micro_batches(x):
        seed_step(0, 0, number)
        learn.accumulate(*micro_batch, *counts)
    before = {name: p.detach().clone() for name, p in learn.model.named_parameters()}
    assert "unused.weight" in before and "frozen" in before
    for name, p in learn.model.named_parameters():
        if expected[name] is None:
            assert p.grad is None, name
        else:
            torch.testing.assert_close(p.grad, expected[name], atol=0., rtol=0., msg=name)
    learn.update()
    assert all(p.equal(before[name]) == (expected[name] is None) for name, p in learn.model.named_parameters())


@pytest.mark.parametrize("optimizer", ["adam", "lamb"])
def test_update_is_skipped_if_gradients_are_not_finite(optimizer):
    learn = build_learner("cpu", f"optimizer={optimizer}")
    learn.opt.set_hyper("lr", 1e-2)
    x, counts = learn.masks(*batch_of(learn))

    def state():
        moments = [tensor for of_parameter in learn.opt.opt.state.values() for tensor in of_parameter.values()]
        return [tensor.detach().clone() for tensor in (*learn.model.parameters(), *moments)]
    for number, factor in enumerate([1., float("inf"), float("nan"), 1.]):
        before = state()
        learn.accumulate(*next(learn.micro_batches(x))[1], *counts)
        learn.gradients.views[0].view(-1)[0].mul_(factor)
        learn.update()
        if number > 0:  # LAMB allocates its moments at the first update
            changed = [not a.equal(b) for a, b in zip(before, state(), strict=True)]
            assert any(changed) == (factor == 1.)


@pytest.mark.parametrize("masking", ["bernoulli", "official"])
def test_micro_batches_give_the_gradients_and_metrics_of_the_full_batch(masking):
    """On the CPU they are as long as their longest row."""
    found = []
    for micro_batch, lengths in ((4, [32]), (3, [32, 20]), (2, [32, 32]), (1, [32, 32, 32, 20])):
        torch.manual_seed(0)
        learn = build_learner("cpu", f"masking={masking}", f"micro_batch={micro_batch}", "temperature=1e-6")
        learn.model.eval()  # without dropout
        torch.manual_seed(0)
        x, counts = learn.masks(*batch_of(learn))
        micro_batches = [rows for _, rows in learn.micro_batches(x)]
        assert [rows[0].shape[1] for rows in micro_batches] == lengths
        for rows in micro_batches:
            learn.accumulate(*rows, *counts)
        found.append(([p.grad for p in learn.model.parameters()], learn.train_metrics.compute()))
    (expected, expected_metrics), *others = found
    assert any(gradient.abs().max() > .01 for gradient in expected)
    for gradients, computed in others:
        assert computed == pytest.approx(expected_metrics, rel=1e-4)
        for a, b in zip(expected, gradients):
            torch.testing.assert_close(a, b, atol=2e-5, rtol=1e-3)


def assert_never_waits(learn):
    """A complete step, with its bookkeeping, on tensors that cannot be read."""
    learn.add_cb(Bookkeeping(1000, 1))
    learn("before_fit")
    outputs = []
    learn.model.register_forward_hook(lambda module, inputs, output: outputs.append(output.disc_logits))
    learn.one_batch(0, (torch.full((EXAMPLES, LENGTH), 7), torch.full((EXAMPLES,), 10)))
    assert [(logits.shape, logits.device.type) for logits in outputs] == 2 * [((2, LENGTH), "cuda")]
    assert {p.device.type for p in learn.model.parameters()} == {"cuda"} == {learn.train_metrics.sums.device.type}


@pytest.mark.parametrize("size, precision, masking", itertools.product(["small", "base", "large"], ["bf16", "fp32"],
                                                                       ["bernoulli", "official"]))
def test_step_neither_synchronizes_nor_mixes_devices(shallow, size, precision, masking):
    with fake_cuda():
        assert_never_waits(build_learner("cuda", f"size={size}", f"precision={precision}", f"masking={masking}"))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("masking", ["bernoulli", "official"])
def test_step_never_synchronizes_with_a_real_gpu(masking):
    learn = build_learner("cuda", "precision=bf16", f"masking={masking}")
    batch = tuple(tensor.cpu().pin_memory() for tensor in batch_of(learn))
    learn.one_batch(0, batch)
    torch.cuda.set_sync_debug_mode("error")
    try:
        learn.one_batch(1, batch)
    finally:
        torch.cuda.set_sync_debug_mode("default")


class Recorder(TorchDispatchMode):
    """Records every operation with its numbers and the origin of its tensors.

    A tensor is the nth result of the recorded function ('new', n), the memory of one of its inputs ('input', i), or memory that existed
    before: ('kept', address).
    """

    def __init__(self, inputs):
        super().__init__()
        self.calls, self.alive = [], []
        self.origin = {self.storage(tensor): ("input", i) for i, tensor in enumerate(inputs) if isinstance(tensor, torch.Tensor)}

    def storage(self, tensor):
        return tensor.untyped_storage()._cdata

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        leaves = tree_leaves((args, kwargs or {}))
        if function.namespace != "profiler":
            self.calls.append((str(function), *map(self.describe, leaves)))
        devices = {leaf.device.type for leaf in leaves if isinstance(leaf, torch.Tensor) and leaf.dim()}
        result = function(*args, **(kwargs or {}))
        for tensor in tree_leaves(result):
            if isinstance(tensor, torch.Tensor):
                devices |= {tensor.device.type} if tensor.dim() else set()
                if self.storage(tensor) not in self.origin and not self.is_kept(tensor, leaves):
                    self.origin[self.storage(tensor)] = ("new", len(self.alive))
                    self.alive.append(tensor)  # so that no other tensor gets its address
        assert len(devices) < 2 or "cuda" not in devices, f"{function} copies between {devices}"
        return result

    def is_kept(self, tensor, leaves):
        """Whether a result is a view of an argument that existed before, or that argument changed in place."""
        return any(isinstance(leaf, torch.Tensor) and self.storage(leaf) == self.storage(tensor) for leaf in leaves)

    def describe(self, leaf):
        if not isinstance(leaf, torch.Tensor):
            return repr(leaf)
        origin = self.origin.get(self.storage(leaf), ("kept", self.storage(leaf)))
        return *origin, leaf.storage_offset(), tuple(leaf.shape), leaf.stride(), leaf.dtype


def recorded_step(learn, step, rates):
    """A step of a static learner on another batch; returns the recorded calls of each function, in order."""
    learn.train_iter = step
    learn.opt.set_hyper("lr", 1e-4 * (step + 1))
    calls = []

    def recorded(function, *inputs):
        with Recorder(inputs) as recorder:
            result = function(*inputs)
        calls.append(recorder.calls)
        return result

    seed_step(learn.seed, step)
    x, counts = recorded(learn.masks, *batch_of(learn, step))
    for _, micro_batch in learn.micro_batches(x):
        recorded(learn.accumulate, *micro_batch, *counts)
    cuda_graph.fill_rates(rates, learn.opt.opt)
    learn.opt.set_hyper("lr", rates)
    recorded(learn.update)
    return calls


def later_steps(learn):
    """The recorded calls of two steps after those that allocate gradients and moments."""
    rates = [torch.zeros((), device=learn.device) for _ in learn.opt.opt.param_groups]
    return [recorded_step(learn, step, rates) for step in range(4)][2:]


VARIANTS = [[], ["masking=official"], ["objective=mlm"], ["adam_bias_correction=True"], ["optimizer=lamb"], ["disallow_correct=True"],
            ["sampling=multinomial"], ["sampling=inverse_cdf"], ["electra_mask_style=False"], ["size=mini"], ["objective=all_tokens_mlm"],
            ["objective=adversarial"], *[pytest.param([setting], marks=pytest.mark.slow) for setting in (
                "uniform_generator=True", "objective=electra_15", "objective=replace_mlm")]]


@pytest.mark.parametrize("settings", VARIANTS)
def test_all_steps_run_the_same_operations_on_the_same_memory(shallow, settings):
    """Only what the operations compute differs; so they can be captured once and replayed. Nothing is copied between devices."""
    with fake_cuda():
        third, fourth = later_steps(static_learner("cuda", *settings, "precision=bf16"))
    assert len(third) == 4 and all(len(calls) > 3 for calls in third)  # masks, two micro-batches, update
    for a, b in zip(third, fourth, strict=True):
        assert len(a) == len(b)
        for call, other in zip(a, b):
            assert call == other


def test_a_step_that_changes_is_noticed():
    learn = static_learner()
    masks = learn.masks
    learn.masks = lambda ids, lengths: masks(ids + 0 * ids * learn.train_iter, lengths)
    third, fourth = later_steps(learn)
    assert third != fourth


def train(learn, steps=4):
    """Weights, moments and metrics after some steps."""
    for step in range(steps):
        learn.train_iter = step
        learn.opt.set_hyper("lr", 1e-3 * (step + 1))
        learn.one_batch(step, batch_of(learn, seed=step))
    return state_of(learn)


def state_of(learn):
    moments = [tensor for of_parameter in learn.opt.opt.state.values() for tensor in of_parameter.values()]
    return [tensor.detach().clone() for tensor in (*learn.model.parameters(), *moments, learn.train_metrics.sums)]


def assert_same_state(a, b, **tolerances):
    for x, y in zip(a, b, strict=True):
        torch.testing.assert_close(x, y, **{"atol": 0., "rtol": 0., **tolerances})


@pytest.mark.parametrize("precision, tolerances", [
    pytest.param("fp32", {"atol": 1e-6, "rtol": 1e-5}, marks=pytest.mark.slow), ("bf16", {"atol": 1e-2, "rtol": 1e-2})])
def test_functions_are_one_graph_each_and_compute_the_same(precision, tolerances):
    eager, compiled = (static_learner("cpu", f"precision={precision}") for _ in range(2))
    cuda_graph.compile_step(compiled, backend="aot_eager")
    assert_same_state(train(eager), train(compiled), **tolerances)


class SimulatedGraph(TorchDispatchMode):
    """A CUDA graph on the CPU: it records operations while they run, and a replay runs them again on the same tensors."""

    def __init__(self):
        super().__init__()
        self.calls = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        self.calls.append((function, args, kwargs or {}, result))
        return result

    @torch.no_grad()
    def replay(self):
        for function, args, kwargs, results in self.calls:
            for old, new in zip(tree_leaves(results), tree_leaves(function(*args, **kwargs))):
                if isinstance(old, torch.Tensor) and old.data_ptr() != new.data_ptr():
                    old.copy_(new)


@pytest.fixture
def simulated_gpu(monkeypatch):
    """torch.cuda's graphs and streams, simulated on the CPU."""
    monkeypatch.setattr(torch.cuda, "CUDAGraph", SimulatedGraph)
    monkeypatch.setattr(torch.cuda, "graph", lambda graph, **_: graph)
    for name in ("Stream", "current_stream", "graph_pool_handle", "synchronize"):
        monkeypatch.setattr(torch.cuda, name, mock.MagicMock())
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: contextlib.nullcontext())


@pytest.mark.parametrize("settings", VARIANTS)
def test_captured_steps_compute_the_same_as_eager_ones(simulated_gpu, shallow, settings):
    eager, captured = static_learner("cpu", *settings), static_learner("cpu", *settings)
    train(eager, 2), train(captured, 2)  # so that there are moments to keep
    before, batch = state_of(captured), batch_of(captured)
    cuda_graph.capture_step(captured, batch)
    assert_same_state(before, state_of(captured))
    assert_same_state(batch, batch_of(captured))
    assert isinstance(captured.accumulate, cuda_graph.CapturedFunction)
    assert_same_state(train(eager), train(captured))


def test_run_resumed_with_captured_steps_matches_an_uninterrupted_eager_run(simulated_gpu):
    eager, first = static_learner(), static_learner()
    train(eager, 2), train(first, 2)
    resumed = static_learner()
    resumed.model.load_state_dict(first.model.state_dict())
    resumed.opt.opt.load_state_dict(copy.deepcopy(first.opt.opt.state_dict()))
    resumed.train_metrics.state.copy_(first.train_metrics.state)
    cuda_graph.capture_step(resumed, batch_of(resumed))
    assert_same_state(train(eager), train(resumed))


def test_failed_capture_ends_training_with_one_line(simulated_gpu, monkeypatch):
    monkeypatch.setattr(torch.cuda, "graph", mock.Mock(side_effect=RuntimeError("operation not permitted when stream is capturing")))
    learn = static_learner()
    with pytest.raises(PlainError, match="compile=True failed .*not permitted.*leave compile out"):
        cuda_graph.capture_step(learn, batch_of(learn))


def test_micro_batches_of_different_sizes_are_captured_separately(simulated_gpu):
    eager, captured = static_learner(), static_learner()
    eager.micro_batch = captured.micro_batch = 3
    cuda_graph.capture_step(captured, batch_of(captured))
    assert len(captured.accumulate.graphs) == 2
    assert_same_state(train(eager), train(captured))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_captured_steps_compute_the_same_as_eager_ones_on_a_real_gpu(precision):
    eager, captured = (static_learner("cuda", f"precision={precision}", "adam_bias_correction=True") for _ in range(2))
    cuda_graph.capture_step(captured, batch_of(captured))
    assert_same_state(train(eager), train(captured), atol=1e-5, rtol=1e-4)
