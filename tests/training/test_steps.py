"""A training step: gradients and micro-batches; compiled and captured steps equal eager ones."""
import itertools
import math
from functools import partial
from types import SimpleNamespace

import pytest
import torch

import benchmarks.pretraining
import pretrain
from _utils.config import complete
from _utils.errors import UserError
from _utils.networks import PARTS, sampling
from _utils.optim import Lamb
from _utils.seeds import seed_step
from _utils.text.vocabulary import tokenizer_from_tokens
from _utils.training import cuda_graph, metrics
from _utils.training.processes import Processes

EXAMPLES, LENGTH = 4, 32


@pytest.fixture(autouse=True)
def operations_of_torch(monkeypatch):
    """Random numbers and argmax as on a GPU, so that all operations are PyTorch's."""
    torch._dynamo.reset()  # which counts the recompilations of all tests
    monkeypatch.setattr(sampling, "uniform_like", torch.rand_like)
    for module in (sampling, metrics):
        monkeypatch.setattr(module, "argmax", lambda x: x.argmax(-1))


def build_learner(device="cpu", *settings):
    """A learner whose steps have two micro-batches. With compile=True its step can be captured, but is not yet."""
    c = pretrain.c.override(["size=tiny", f"bs={EXAMPLES}", "micro_batch=2", f"max_length={LENGTH}", "precision=fp32",
                             f"device={device}"])
    with torch.device(device) as device:
        hf_tokenizer = tokenizer_from_tokens(benchmarks.pretraining.VOCABULARY[:1000])
        dls = SimpleNamespace(device=device, n_inp=2)
        learn = pretrain.build_learner(complete(c.override(settings)), hf_tokenizer, dls, None, Processes())
    learn.remove_cbs([callback for callback in learn.cbs if isinstance(callback, cuda_graph.CompiledStep)])
    learn.training, learn.train_iter, learn.pct_train, learn.n_iter, learn.n_epoch = True, 0, 0., 1000, 1
    return learn


def static_learner(device, *settings):
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


PAIR = ["precision=bf16", *(f"{part}={{'model_type': 'roberta', 'hidden_size': 64, 'num_attention_heads': 2, "
                            "'num_hidden_layers': 1, 'intermediate_size': 64, 'max_position_embeddings': 64}"
                            for part in PARTS)]


@pytest.mark.parametrize(
    "settings",
    [
        ["precision=bf16"],
        ["precision=fp32"],
        ["size=albert_tiny", "precision=bf16"],
        PAIR,
        [*PAIR, "tying=embeddings+encoder"],
    ],
)
def test_gradients_equal_those_of_plain_autocast(settings):
    learn = build_learner("cpu", *settings)
    x, counts = learn.masks(*batch_of(learn))
    expected = gradients_by_autograd(learn, x, counts)
    for number, micro_batch in learn.micro_batches(x):
        seed_step(0, 0, number)
        learn.accumulate(*micro_batch, *counts)
    for name, p in learn.model.named_parameters():
        torch.testing.assert_close(p.grad, expected[name], atol=0., rtol=0., msg=name)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_micro_batches_may_leave_out_different_layers(precision):
    """As LayerDrop does. The last layer of the discriminator is never used."""
    network = {"model_type": "electra", "embedding_size": 128, "hidden_size": 64, "num_attention_heads": 2,
               "num_hidden_layers": 3, "intermediate_size": 64}
    learn = build_learner("cpu", "tying=embeddings", f"precision={precision}", f"discriminator={network}")
    layers = learn.model.discriminator.base_model.encoder.layer
    for layer, skips in zip(layers, ([True, False], [False, True], [True])):
        skips = itertools.cycle(skips)  # in the two micro-batches
        layer.register_forward_hook(lambda _, inputs, output, skips=skips: inputs[0] if next(skips) else output)
    x, counts = learn.masks(*batch_of(learn))
    expected = gradients_by_autograd(learn, x, counts)
    for number, micro_batch in learn.micro_batches(x):
        seed_step(0, 0, number)
        learn.accumulate(*micro_batch, *counts)
    found = {name: p.grad for name, p in learn.model.named_parameters()}
    assert [name for name, gradient in found.items() if gradient is None] == [
        name for name, gradient in expected.items() if gradient is None] != []
    torch.testing.assert_close({name: value for name, value in found.items() if value is not None},
                               {name: value for name, value in expected.items() if value is not None}, atol=0., rtol=0.)
    learn.gradients.is_fixed = True  # as with several processes
    with pytest.raises(UserError, match="process"):
        learn.accumulate(*micro_batch, *counts)
    resumed = build_learner("cpu", "tying=embeddings", f"precision={precision}", f"discriminator={network}")
    resumed.gradients.load_state(learn.gradients.state())
    assert all((p.grad is None) == (found[name] is None) for name, p in resumed.model.named_parameters())


@pytest.mark.parametrize("optimizer", [
    torch.optim.AdamW, torch.optim.NAdam, partial(torch.optim.SGD, fused=True), Lamb])
@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
def test_any_optimizer_leaves_out_a_step_whose_gradients_are_not_finite(monkeypatch, optimizer, precision):
    monkeypatch.setattr(pretrain, "build_optimizer", lambda model, lr, *_: optimizer(model.parameters(), lr=.1))
    learn = build_learner("cpu", f"precision={precision}")
    for value, is_updated in ((1., True), (math.nan, False), (1., True)):
        before = [p.clone() for p in learn.model.parameters()]
        learn.gradients.add(learn.scaler.scale(sum(value * p.sum() for p in learn.gradients.leaves)))
        learn.update()
        assert all(p.isfinite().all() for p in learn.model.parameters())
        assert any(not torch.equal(p, was) for p, was in zip(learn.model.parameters(), before)) == is_updated


def test_steps_and_seeds_have_masks_of_their_own_and_micro_batches_dropout():
    """The batch and its masks consist of two equal micro-batches."""
    learn, seen = build_learner(), []
    mask, ids = learn.masking.mask, batch_of(learn)[0][[0, 1, 0, 1]]
    learn.masking.mask = lambda *batch: ([tensor[[0, 1, 0, 1]] for tensor in mask(*batch)[0]], None)
    learn.model.register_forward_hook(lambda _, x, output: seen.append((x[0], output.disc_logits)))
    for learn.seed, learn.train_iter in ((0, 0), (0, 1), (1, 1)):
        learn.one_batch(0, (ids, torch.full((EXAMPLES,), 11)))
    (masked, logits), (again, others), (later, _), _, (of_other_seed, _), _ = seen
    assert masked.equal(again) and not masked.equal(later) and not logits.equal(others)
    assert not of_other_seed.equal(later)


OBJECTIVES = ["objective=electra", *(
    f"objective={name}" for name in ("mlm", "electra_15", "replace_mlm", "all_tokens_mlm", "adversarial", "electric")),
    "two_tower_generator=True", "uniform_generator=True", "tying=disentangled"]


@pytest.mark.parametrize("setting", ["masking=official", *OBJECTIVES])
def test_micro_batches_give_the_gradients_and_metrics_of_the_full_batch(setting):
    """On the CPU they are as long as their longest row, unless the model reads padding."""
    found = []
    for micro_batch, lengths in ((4, [32]), (3, [32, 20]), (1, [32, 32, 32, 20])):
        torch.manual_seed(0)
        learn = build_learner("cpu", setting, f"micro_batch={micro_batch}")
        learn.model.eval().temperature = 1e-6  # without dropout and random samples
        torch.manual_seed(0)
        x, counts = learn.masks(*batch_of(learn))
        micro_batches = [rows for _, rows in learn.micro_batches(x)]
        if not getattr(learn.model, "reads_padding", False):
            assert [rows[0].shape[1] for rows in micro_batches] == lengths
        for rows in micro_batches:
            learn.accumulate(*rows, *counts)
        computed = {name: value for name, value in learn.train_metrics.compute().items() if value is not None}
        found.append(([p.grad for p in learn.model.parameters()], computed))
    (expected, expected_metrics), *others = found
    for gradients, computed in others:
        assert computed == pytest.approx(expected_metrics, rel=1e-4)
        torch.testing.assert_close(gradients, expected, atol=2e-5, rtol=1e-3)


@pytest.mark.parametrize("setting", OBJECTIVES)
def test_the_held_out_loss_is_the_weighted_sum_of_its_terms(setting):
    """Also if the last batch is smaller."""
    learn = build_learner("cpu", setting, "gen_weight=3", "disc_weight=5")
    ids, lengths = batch_of(learn)
    found = metrics.evaluate(learn, [(ids, lengths), (ids[-1:], lengths[-1:])])
    terms = [found[name] for name in ("gen_loss", "disc_loss", "second_mlm_loss") if name in found]
    weights = [1. if setting == "uniform_generator=True" else 3., 5.]  # which has no generator to train
    assert len(terms) == (1 if setting == "objective=mlm" else 2)
    assert found["loss"] == pytest.approx(sum(weight * term for weight, term in zip(weights, terms)), rel=1e-5)


def test_a_short_run_evaluates_held_out_batches_of_all_corpora():
    learn = build_learner("cpu")
    a, b = ((ids[rows], lengths[rows]) for ids, lengths in [batch_of(learn)] for rows in (slice(1), slice(1, 2)))
    found = metrics.evaluate(learn, [a, a, b, b], max_batches=2)
    assert found == metrics.evaluate(learn, [a, b]) != metrics.evaluate(learn, [a, a])


def test_held_out_metrics_do_not_depend_on_dropout_and_earlier_random_numbers():
    learn = build_learner()
    found = metrics.evaluate(learn, [batch_of(learn)])
    torch.manual_seed(1)
    assert metrics.evaluate(learn, [batch_of(learn)]) == found
    for module in learn.model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.
    assert metrics.evaluate(learn, [batch_of(learn)]) == found


def test_held_out_text_goes_through_the_steps_of_an_edited_learner(monkeypatch):
    before = metrics.evaluate(learn := build_learner(), [batch_of(learn)])

    class Edited(pretrain.PretrainingLearner):
        def masks(self, *batch):
            (masked_inputs, *others), counts = super().masks(*batch)
            return (masked_inputs.masked_fill(others[1], 5), *others), counts

        def forward(self, micro_batch, counts):
            loss = super().forward(micro_batch, counts)
            self.train_metrics.sums[1] += 100
            return loss + 100

    monkeypatch.setattr(pretrain, "PretrainingLearner", Edited)
    learn = build_learner()
    of_training = learn.train_metrics.compute()
    found = metrics.evaluate(learn, [batch_of(learn)])
    assert found["gen_loss_hidden"] != before["gen_loss_hidden"] and found["loss"] > 100
    assert learn.train_metrics.compute() == of_training


def test_parameter_groups_keep_the_proportions_of_their_learning_rates(monkeypatch):
    build_optimizer = pretrain.build_optimizer

    def with_two_rates(*args):
        optimizer = build_optimizer(*args)
        optimizer.param_groups[1]["lr"] /= 4
        return optimizer

    monkeypatch.setattr(pretrain, "build_optimizer", with_two_rates)
    learn = build_learner("cpu", "lr=1e-3", "steps=10", "warmup_steps=0")
    learn("before_batch")
    assert [group["lr"] for group in learn.opt.opt.param_groups] == pytest.approx([1e-3, 2.5e-4])


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_steps_that_are_tried_are_those_of_the_training_and_change_nothing(precision):
    """Networks that were loaded are in evaluation mode until fastai's `fit`."""
    learn, trained = (build_learner("cpu", f"precision={precision}") for _ in range(2))
    for network in learn.model.children():
        network.eval()

    def state():
        scale, rates = learn.scaler.state_dict(), [group["lr"] for group in learn.opt.opt.param_groups]
        return scale, rates, [module.training for module in learn.model.modules()], torch.get_rng_state().tolist()
    before, weights = state(), [p.clone() for p in learn.model.parameters()]
    with cuda_graph.state_restored(learn):
        tried = [tensor.clone() for tensor in train(learn)]
    assert state() == before and all(map(torch.equal, weights, learn.model.parameters()))
    assert all(map(torch.equal, tried, train(trained)))  # with the same dropout
    assert all(map(torch.equal, train(learn.model.train() and learn), tried))


def needs_gpu(test):
    return pytest.mark.gpu(pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")(test))


@needs_gpu
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


def train(learn, steps=4):
    """Weights, moments and metrics after some steps."""
    for step in range(steps):
        learn.train_iter = step
        learn.opt.set_hyper("lr", 1e-3 * (step + 1))
        learn.one_batch(step, batch_of(learn, seed=step))
    moments = [tensor for of_parameter in learn.opt.opt.state.values() for tensor in of_parameter.values()]
    return [tensor.detach() for tensor in (*learn.model.parameters(), *moments, learn.train_metrics.sums)]


@pytest.mark.parametrize("setting, backend, tolerance", [
    *((setting, "eager", 1e-5) for setting in OBJECTIVES[1:]), ("precision=bf16", "aot_eager", 1e-2),
    pytest.param("precision=fp32", "aot_eager", 1e-5, marks=pytest.mark.slow)])
def test_the_functions_of_every_objective_are_one_graph_each(setting, backend, tolerance):
    """As a CUDA graph requires; with all values as in eager steps."""
    eager, compiled = (static_learner("cpu", setting) for _ in range(2))
    cuda_graph.compile_step(compiled, backend=backend)
    torch.testing.assert_close(train(eager), train(compiled), atol=tolerance, rtol=tolerance)


VARIANTS = [*OBJECTIVES, *("precision=bf16 masking=official optimizer=lamb adam_bias_correction=True "
                           "sampling=multinomial size=mini").split()]


@needs_gpu
@pytest.mark.parametrize("setting", VARIANTS)
def test_captured_steps_compute_the_same_as_eager_ones(shallow, setting):
    eager, captured = static_learner("cuda", setting), static_learner("cuda", setting)
    cuda_graph.capture_step(captured, batch_of(captured))
    torch.testing.assert_close(train(eager), train(captured), atol=1e-5, rtol=1e-4)
