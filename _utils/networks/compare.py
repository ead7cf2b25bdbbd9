"""Compare a drop-in with the model of Pretrain.ipynb that it replaces, so that no edit of the notebook is ignored."""
from contextlib import contextmanager

import torch

from _utils.errors import UserError
from _utils.networks.fast_electra import FastELECTRA, fill_slots, masked_slots
from _utils.networks.sampling import fast_sample
from _utils.seeds import fork_rng

ROWS = 2  # of a batch, which show a difference in a fraction of a second; the last one has padding


def check_drop_in(model, loss_func, masking, batch):
    """Raise UserError if FastELECTRA and the ELECTRAModel that it replaces differ in losses, gradients or samples.

    model: any model that is trained; only FastELECTRA itself replaces ELECTRAModel.   loss_func: ELECTRALoss.
    masking: MaskedLMCallback.   batch: (input_ids (B, L), sentA_lenths (B,)), of which the first rows are used.
    There is no dropout. Changes neither the random state nor gradients.
    """
    if type(model) is not FastELECTRA:
        return
    with without_dropout(model) as device:
        x, _ = masking.mask(*(tensor.to(device) for tensor in with_padding(*batch, model.pad_token_id)))
        torch.manual_seed(0)
        expected = model.plain(*x)
        torch.manual_seed(0)
        drawn = redrawn(model, expected, *x)
        draw, model.sample = model.sample, lambda logits, *_: samples_in(expected.generated, x[2], len(logits))
        try:
            found = model(*x)
        finally:
            model.sample = draw
        trained = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
        results = [terms_and_gradients(loss_func, output, x[-1], trained) for output in (expected, found)]
        counts = [[int(n) for n in one.counts(*x)] for one in (model.plain, model)]
    differences = differing(*results)
    if counts[0] != counts[1]:
        differences.append(f"the counts of masked tokens and tokens ({counts[0]}, not {counts[1]})")
    if not drawn.equal(expected.generated):
        differences.append("the sampled tokens")
    if differences:
        raise UserError("ELECTRAModel of Pretrain.ipynb differs from the faster model that is trained in its place, in "
                        f"{', '.join(differences[:3])}. If you edited it or the sampling, set fast=False to train it "
                        "as it is.")


def with_padding(input_ids, sentA_lenths, pad_token_id):
    """The first ROWS rows of a batch (input_ids (B, L), sentA_lenths (B,)), the last of them cut to half of its length.
    """
    input_ids, sentA_lenths = input_ids[:ROWS].clone(), sentA_lenths[:ROWS].clone()
    half = input_ids.shape[1] // 2
    input_ids[-1, half:] = pad_token_id
    sentA_lenths[-1].clamp_(max=half)
    return input_ids, sentA_lenths


@contextmanager
def without_dropout(model):
    """Context in which a model is in evaluation mode; afterwards modes and random states are as before. Yields its
    device.
    """
    device = next(model.parameters()).device
    modes = {module: module.training for module in model.modules()}
    model.eval()
    with fork_rng(device):
        try:
            yield device
        finally:
            for module, mode in modes.items():
                module.training = mode


def samples_in(generated, is_mlm_applied, n_slots):
    """The ids at the slots of `generated` (B, L), (M,): samples, or where a position has several, their mean."""
    positions, _ = masked_slots(is_mlm_applied, n_slots)
    return generated.flatten()[positions]


@torch.no_grad()
def redrawn(model, output, masked_inputs, sentA_lenths, is_mlm_applied, labels):
    """What the drop-in's sampling puts in for the generator's logits of an ELECTRAOutput, (B, L), with PyTorch's random
    numbers.
    """
    logits = output.mlm_gen_logits
    originals = torch.where(is_mlm_applied > 0, labels, masked_inputs)
    positions, weights = masked_slots(is_mlm_applied, len(logits))
    disallowed = originals.flatten()[positions] if model.disallow_correct else None
    sampled = fast_sample(logits, model.sampling, model.temperature, disallowed, uniform=torch.rand_like)
    return fill_slots(originals, positions, weights, sampled)


def terms_and_gradients(loss_func, output, labels, parameters):
    """({term of the loss: value}, {name of a parameter: gradient}) of an output. parameters: {name: parameter}."""
    loss, losses = loss_func(output, labels, return_losses=True)
    gradients = torch.autograd.grad(loss, list(parameters.values()), allow_unused=True)
    gradients = [torch.zeros(()) if gradient is None else gradient.cpu() for gradient in gradients]
    return {name: float(value.detach()) for name, value in losses._asdict().items()}, dict(zip(parameters, gradients))


def differing(expected, found):
    """What differs by more than rounding, in words. Both are from `terms_and_gradients`."""
    (terms, gradients), (found_terms, found_gradients) = expected, found
    differences = [f"{name} ({value:.4f}, not {found_terms[name]:.4f})" for name, value in terms.items()
                   if not abs(value - found_terms[name]) <= 1e-4 * abs(value) + 1e-6]
    largest = max(gradient.norm() for gradient in gradients.values())
    for name, gradient in gradients.items():
        if not (gradient - found_gradients[name]).norm() <= 1e-2 * gradient.norm() + 1e-5 * largest:
            differences.append(f"the gradient of {name}")
    return differences
