"""ELECTRA's optimizer and gradient clipping."""
import re
from collections.abc import Iterable
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor

from _utils.schedules import (  # noqa: F401  which other programs import from here
    group_schedules,
    linear_warmup_and_decay,
    linear_warmup_and_then_decay,
)

# beside the weights of a converted network: {'name.exp_avg': m, 'name.exp_avg_sq': v} of parameters
MOMENTS_FILE = "adam.safetensors"
_LATE = 1e7  # a step at which .9 ** step and .999 ** step are 0 in any precision


class AdamNoBiasCorrection(torch.optim.AdamW):
    """Adam as in Google's model/optimization.py:AdamWeightDecayOptimizer (F33).

    m = .9 m + .1 g;  v = .999 v + .001 g^2;  p -= lr * (m / (sqrt(v) + eps) + weight_decay * p)

    There is no bias correction, so the first updates are large and warmup matters; eps is outside the root; weight
    decay uses the old p and is scaled by lr. Implemented as PyTorch's fused AdamW with the step counter set so high
    that both bias corrections equal 1.
    """

    def __init__(
        self,
        params: Iterable,
        lr: float,
        betas: tuple[float, float] = (.9, .999),
        eps: float = 1e-6,
        weight_decay: float = .01,
    ):
        super().__init__(params, lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, fused=True)
        for group in self.param_groups:
            for p in group["params"]:
                step = torch.tensor(_LATE, device=p.device)
                self.state[p] = {"step": step, "exp_avg": torch.zeros_like(p), "exp_avg_sq": torch.zeros_like(p)}


class Lamb(torch.optim.Optimizer):
    """LAMB as in lmtuners: Adam's update without bias correction, scaled per tensor by a trust ratio.

    Source: pytorch_lamb, facts.md#lmtuners. The trust ratio is min(|p|, 10) / |update|, or 1 where either norm is 0. It
    stays on the device.
    """
    _step_supports_amp_scaling = True  # `step` reads `found_inf`

    def __init__(self, params, lr, betas=(.9, .999), eps=1e-6, weight_decay=.01):
        super().__init__(params, dict(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay))

    @torch.no_grad()
    def step(self):
        """Update every parameter that has a gradient, or none if `found_inf`, (), is 1."""
        keep = 1 - getattr(self, "found_inf", 0)  # exponents and factors of 0 leave numbers as they are
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            for p in group["params"]:
                if p.grad is None:
                    continue
                if not self.state[p]:
                    self.state[p] = {"exp_avg": torch.zeros_like(p), "exp_avg_sq": torch.zeros_like(p)}
                m, v = self.state[p].values()
                grad = p.grad.nan_to_num()  # 0, after clipping, if the norm was not finite
                m.lerp_(grad, (1 - beta1) * keep)
                v.mul_(beta2 ** keep).addcmul_(grad, grad, value=1 - beta2)
                update = m / (v.sqrt() + group["eps"]) + group["weight_decay"] * p
                weight, length = p.norm().clamp(max=10), update.norm()
                ratio = torch.where((weight > 0) & (length > 0), weight / length, 1.)
                p.sub_(update * ratio * keep * group["lr"])  # lr may be a tensor


def reads_found_inf(optimizer):
    """Whether an optimizer leaves out a step at which its attribute `found_inf`, (), is 1, as PyTorch's fused ones do.

    Others must not be called, so their step waits for the device.
    """
    return getattr(optimizer, "_step_supports_amp_scaling", False)


def decay_groups(named_parameters, weight_decay=.01):
    """Two parameter groups from (name, parameter) pairs: with weight decay, and biases and LayerNorms without it (F34).

    LayerNorms are recognized by their names in transformers: LayerNorm, layer_norm, mlp_norm, ln and others.
    """
    decayed, plain = [], []
    for name, parameter in named_parameters:
        exempt = re.search(r"norm|bias|\bln\b|\bln_|_ln\b", name.lower())
        (plain if exempt else decayed).append(parameter)
    return [{"params": decayed, "weight_decay": weight_decay}, {"params": plain, "weight_decay": 0.}]


def clip_by_global_norm(parameters: Iterable[Tensor], max_norm: float = 1.) -> Tensor:
    """Clip the gradients of parameters as `clip_gradients` does. Parameters without a gradient are skipped."""
    return clip_gradients([p.grad for p in parameters if p.grad is not None], max_norm)


@torch.no_grad()
def clip_gradients(grads, max_norm=1., measured=None):
    """Scale gradients in place by max_norm / max(norm, max_norm), as tf.clip_by_global_norm (F35).

    grads: a list of tensors.   measured: the tensors whose norm it is; None: the gradients.   Returns the norm, ().
    """
    norm = torch.nn.utils.get_total_norm(grads if measured is None else measured)
    torch._foreach_mul_(grads, max_norm / norm.clamp(min=max_norm))
    return norm


def restore_moments(optimizer, model, folder):
    """Set Adam's moments to those of a TensorFlow checkpoint, if `convert_tf` wrote them beside the weights.

    folder: a folder with generator/ and discriminator/, or another value of initial_weights.
    """
    moments = {f"{file.parent.name}.{name}": value
               for file in Path(folder).glob(f"*/{MOMENTS_FILE}") for name, value in load_file(file).items()}
    if moments and not isinstance(optimizer, AdamNoBiasCorrection):
        print(f"warning: the moments of Adam in {folder} are for Adam without bias correction; this run starts with "
              f"zeros.")
        return
    for name, parameter in model.named_parameters():
        for key, moment in optimizer.state[parameter].items():
            if (stored := moments.get(f"{name}.{key}")) is not None:
                moment[:len(stored)] = stored  # without the rows of added tokens
