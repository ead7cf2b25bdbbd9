"""Sections of benchmarks.gpu: is a step right on a GPU?"""
import contextlib
from dataclasses import replace
from unittest import mock

import torch

import pretrain
from _utils.config import complete
from _utils.networks import fast_electra
from _utils.optim import clip_by_global_norm
from _utils.recipes import Network
from _utils.seeds import seed_step, set_seed
from _utils.text.vocabulary import tokenizer_from_tokens
from _utils.training.device import choose_device, choose_precision
from benchmarks.gpu_training import captured_graphs, release, static_training, traced_only, weights_of
from benchmarks.pretraining import VOCABULARY, random_batch

# The captured step

def replay(device, miniature):
    """The step that compile=True runs: its random numbers, and its results beside those of eager steps, first in the
    precision of the device and then in fp32.

    On a CPU it is traced, but neither compiled nor captured.
    """
    device = choose_device(device)
    changes = ["size=tiny", "bs=8", "max_length=32"] if miniature else ["size=small"]
    with contextlib.nullcontext() if device.type == "cuda" else traced_only():
        checks = random_numbers(static_training(device, changes, kind="captured"))
        yield {"checks": checks}
        release(device)
        for precision in dict.fromkeys((choose_precision(None, device), "fp32")):
            settings = [*changes, f"precision={precision}", "warmup_steps=5"]
            checks |= differences_from_eager(device, settings, precision, steps=3 if miniature else 20)
            yield {"checks": checks}
    yield {"summary": ", ".join(f"{name} {value:.1e}" for name, (value, _) in checks.items() if value)}


def random_numbers(training):
    """Checks of masks, dropout and learning rate in the functions that a captured step replays."""
    training.take(1)  # compiles and captures
    learn, batch = training.learn, training.learn.on_device(next(training.batches))

    def masks(step):
        seed_step(learn.seed, step)
        masked, counts = learn.masks(*batch)
        return tuple(tensor.clone() for tensor in masked), tuple(count.clone() for count in counts)

    def loss(masked, counts, step, micro_batch):
        seed_step(learn.seed, step, micro_batch)
        learn.train_metrics.state.zero_()
        learn.accumulate(*masked, *counts)
        return learn.train_metrics.compute()["loss"]

    (masked, counts), (again, _), (others, _) = masks(3), masks(3), masks(4)
    losses = [loss(masked, counts, *seed) for seed in ((3, 1), (3, 1), (3, 2))]
    before = weights_of(learn.model)
    learn.opt.set_hyper("lr", 0.)
    learn.update()
    moved = float((weights_of(learn.model) - before).abs().max())
    same = lambda a, b: float(all(torch.equal(x, y) for x, y in zip(a, b)))
    missing = 3 - captured_graphs(learn) if learn.device.type == "cuda" else 0
    return {"functions that were not captured": (missing, 0), "same seed, other masks": (1 - same(masked, again), 0),
            "same seed and masks, another loss": (relative(losses[1], losses[0]), 1e-6),
            "another step, same masks": (same(masked, others), 0),
            "another micro-batch, same dropout": (float(losses[2] == losses[0]), 0),
            "learning rate 0, weights moved by": (moved, 0)}


def differences_from_eager(device, changes, precision, steps):
    """Checks of the losses and weights of captured steps beside eager ones: without dropout, with fixed masks and
    samples.
    """
    limits = {"fp32": (1e-4, 1e-2), "bf16": (2e-2, .3), "fp16": (2e-2, .3)}[precision]
    with without_dropout(), fixed_masks_and_samples():
        other_losses, other_change = losses_and_change(device, changes, "eager", steps)
        release(device)
        losses, change = losses_and_change(device, changes, "captured", steps)
        release(device)
    by_loss = max(map(relative, losses, other_losses))
    by_weights = float((change - other_change).norm() / other_change.norm())
    return {f"{precision}, losses of {steps} captured and eager steps": (by_loss, limits[0]),
            f"{precision}, change of the weights in {steps} captured and eager steps": (by_weights, limits[1])}


def losses_and_change(device, changes, kind, steps):
    """(the loss of each step, the change of all weights) of a training on the same batches for each kind."""
    set_seed(1)
    c = complete(pretrain.c.override(changes))
    training = static_training(device, changes, kind, iter([random_batch(c, device) for _ in range(steps)]))
    learn, losses = training.learn, []
    start = weights_of(learn.model)
    for _ in range(steps):
        learn.train_metrics.state.zero_()
        training.take(1)
        losses.append(learn.train_metrics.compute()["loss"])
    return losses, weights_of(learn.model) - start


def relative(a, b):
    return abs(a - b) / abs(b)


@contextlib.contextmanager
def fixed_masks_and_samples():
    """Context in which pretraining masks every seventh position and puts the same tokens there."""
    def every_seventh(inputs, mask_token_index, ignore_index=-100, **_):
        is_mlm_applied = (torch.arange(inputs.shape[1], device=inputs.device) % 7 == 3).expand(inputs.shape)
        return (
            inputs.masked_fill(is_mlm_applied, mask_token_index),
            inputs.masked_fill(~is_mlm_applied, ignore_index),
            is_mlm_applied,
        )

    def build_masking(c, hf_tokenizer):
        return pretrain.MaskedLMCallback(
            hf_tokenizer.mask_token_id, hf_tokenizer.all_special_ids, len(hf_tokenizer), masking=every_seventh
        )

    def sample(logits, *_):
        return 100 + torch.arange(len(logits), device=logits.device) % 1000

    with mock.patch.object(pretrain, "build_masking", build_masking):
        with mock.patch.object(fast_electra, "fast_sample", sample):
            yield



# The first step

def equality(device, miniature):
    """One step in fp32 on the CPU and on the device, without dropout, with the weights, masks and samples of the CPU.

    The biases of the keys are left out: attention does not depend on them, so their gradients are nothing but rounding
    errors.
    """
    device, hf_tokenizer = choose_device(device), tokenizer_from_tokens(VOCABULARY)
    c = complete(
        pretrain.c.override([f"size={'tiny' if miniature else 'small'}", "bs=4", "max_length=64", "masking=official"])
    )
    set_seed(0)
    x, _ = pretrain.build_masking(c, hf_tokenizer).mask(*random_batch(c, torch.device("cpu")))
    sampled, draw = [], fast_electra.fast_sample

    def draw_and_keep(*arguments):
        sampled.append(draw(*arguments))
        return sampled[-1]

    with without_dropout():
        with mock.patch.object(fast_electra, "fast_sample", draw_and_keep):
            expected = step_from_start(c, hf_tokenizer, x, torch.device("cpu"))
        with mock.patch.object(fast_electra, "fast_sample", lambda logits, *_: sampled[0].to(logits.device)):
            found = step_from_start(c, hf_tokenizer, x, device)
    differences, worst = {}, {}
    for kind, values in expected.items():
        by_name = {
            name: relative_difference(found[kind][name], value)
            for name, value in values.items()
            if not name.endswith("key.bias")
        }
        worst[kind] = max(by_name, key=by_name.get)
        differences[kind] = by_name[worst[kind]]
    limits = {"losses": 1e-4, "gradients": 1e-3, "weights": 2e-3}
    yield {
        "relative differences": differences,
        "worst": worst,
        "losses": {name: float(loss) for name, loss in found["losses"].items()},
        "checks": {
            f"{kind}, relative difference from the CPU": (differences[kind], limit) for kind, limit in limits.items()
        },
        "summary": "maximum relative difference from the CPU: "
        + ", ".join(f"{kind} {difference:.1e} ({worst[kind]})" for kind, difference in differences.items()),
    }


def without_dropout():
    """Context in which networks of the recipes are built without dropout."""
    config = Network.config
    return mock.patch.object(Network, "config", lambda network, *args: config(replace(network, dropout=0.), *args))


def step_from_start(c, hf_tokenizer, x, device):
    """{"losses", "gradients", "weights": {name: tensor on the CPU}} of the first step of a configuration. x: the
    model's inputs.
    """
    set_seed(0)
    model = pretrain.build_model(c, hf_tokenizer, fixed_slots=True).to(device)
    optimizer = pretrain.build_optimizer(model, c.lr)
    x = tuple(tensor.to(device) for tensor in x)
    loss, terms = pretrain.build_loss(c)(model(*x), x[-1], model.counts(*x), return_losses=True)
    loss.backward()
    gradients = {
        name: parameter.grad.cpu().clone() for name, parameter in model.named_parameters() if parameter.grad is not None
    }
    clip_by_global_norm(model.parameters())
    optimizer.step()
    losses = dict(zip(("loss", "generator", "discriminator"), (loss, *terms)))
    return {"losses": {name: loss.detach().cpu() for name, loss in losses.items()}, "gradients": gradients,
            "weights": {name: parameter.detach().cpu() for name, parameter in model.named_parameters()}}


def relative_difference(a, b):
    """Largest difference between two tensors, relative to the largest element of b."""
    return float((a - b).abs().max() / b.abs().max().clamp(min=1e-30))
