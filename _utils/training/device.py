"""Settings that depend on the hardware: device, precision, examples per micro-batch."""
import ctypes
import math
import os
import sys
from functools import cache

import torch

from _utils.errors import UserError, as_user_error
from _utils.networks.build import count_parameters, transformers_in

# Options of glibc's mallopt (malloc.h).
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_MMAP_MAX = -1, -3, -4


def choose_device(device):
    """The torch.device of a configuration, with its index; None: the first GPU, else the CPU.

    Raises UserError if the device does not exist, or if PyTorch was built without kernels for this GPU.
    """
    with as_user_error(f"Cannot use the device {device!r} ({{error}}). {torch.cuda.device_count()} GPUs are "
                       "available. Choose another one, install a build of PyTorch for this GPU, or set device=cpu "
                       "(commands: --device cpu)."):
        return torch.ones(1, device=device or ("cuda" if torch.cuda.is_available() else "cpu")).device


def has_on_cpu(precision):
    """Whether this CPU has the arithmetic of 'bf16' or 'fp16'; others emulate it."""
    return torch.backends.mkldnn.is_available() and getattr(torch.ops.mkldnn, f"_is_mkldnn_{precision}_supported")()


def choose_precision(precision, device):
    """'bf16', 'fp16' or 'fp32'; None: fp32 on the CPU, bf16 on a GPU.

    GPUs below compute capability 8 (T4, V100, RTX 20xx) only emulate bf16, slowly; their default is fp16.
    """
    if device.type == "cpu":
        if precision in ("bf16", "fp16") and not has_on_cpu(precision):
            warn_of_emulation(precision)
        return precision or "fp32"
    return precision or ("bf16" if torch.cuda.get_device_capability(device) >= (8, 0) else "fp16")


def faster_setting(c, model):
    """The setting that is off and trains faster on the device of a completed configuration, with its gain, or None.

    The gains were measured with ELECTRA-Small (docs/speed.md). A short run gains nothing, a narrow network less.
    """
    width = max(network.config.hidden_size for network in transformers_in(model))
    if torch.device(c.device).type == "cuda":
        is_captured = c.precision == "bf16" and c.steps >= 2_000  # after a minute or two of compilation
        return "compile=True, about 5 times as fast on an H200" if is_captured and not c.compile else None
    gains = c.precision == "fp32" and width >= 256 and has_on_cpu("bf16")
    return "precision=bf16 (with resume=False), about 1.7 times as fast on an AMD EPYC with bf16" if gains else None


@cache
def warn_of_emulation(precision):
    """Print a warning once in a process: finetuning chooses the precision for each task and each prediction."""
    print(f"Warning: this CPU has no {precision} arithmetic, so precision={precision} is many times slower than "
          f"fp32.", file=sys.stderr)


def keep_freed_memory():
    """Let glibc's malloc keep the memory of freed tensors for the next ones of this process.

    By default it returns large blocks to the system and allocates them again in every step, filled with zeros page by
    page.
    Other C libraries are left as they are, and so are settings of malloc in the environment (MALLOC_*).
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt and not any(name.startswith("MALLOC_") for name in os.environ):
        mallopt(M_MMAP_MAX, 0)
        mallopt(M_MMAP_THRESHOLD, 32 << 20)  # the greatest value that glibc reaches by itself
        mallopt(M_TRIM_THRESHOLD, 2 ** 31 - 1)


def micro_batch_size(device, bs, max_length, precision, networks, predicted, n_processes=1):
    """Examples per forward and backward pass, by sizes, number of processes and, on a GPU, its memory.

    Another size changes the random draws, so a resumed run keeps its own (`_utils/runs/checkpoints.py: resume`).
    networks: generator first, on any device, including meta.   predicted: positions with logits over the vocabulary, as
    a share of the tokens.   Raises UserError if a GPU cannot hold the networks.
    """
    if device.type == "cpu":
        widest = max(network.config.hidden_size for network in networks)
        tokens = 2 ** 21 // (widest * (4 if precision == "fp32" else 2))  # hidden states of 2 MB
    else:
        tokens = _tokens_on_gpu(device, precision, networks, predicted)
    fitting = max(1, int(tokens / max_length))
    # If possible a divisor of the batch size. Other batch sizes, and numbers of processes that do not divide it, have
    # as few passes as possible, and the last one is smaller.
    passes = lambda n: math.ceil(bs / (n * n_processes))  # of the process with the most
    largest = math.ceil(bs / (passes(fitting) * n_processes))
    divisors = [
        n for n in range(largest // 2 + 1, fitting + 1) if bs % n == 0 and n * passes(n) * n_processes <= 1.1 * bs
    ]
    return max(divisors, default=largest)


def _tokens_on_gpu(device, precision, networks, predicted):
    """Tokens whose activations fit into 80% of a GPU's memory, at most 32,768, beyond which it gets no faster.

    What other programs use does not change it, because the same command has to draw the same random numbers.
    """
    # Per parameter: weight, gradient and Adam's two moments in fp32, weight and gradient in half precision, and a
    # micro-batch's gradient.
    of_weights = (4 * 4 + 2 * 2 + 4) * sum(count_parameters(network) for network in networks)
    free, total = torch.cuda.mem_get_info(device)
    free += torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)  # PyTorch's, for its next tensors
    if free < of_weights:
        raise UserError(f"{device} has {free / 1e9:.1f} GB of free memory, but weights, gradients and optimizer state "
                        f"need {of_weights / 1e9:.1f} GB. Choose a smaller size or another GPU, or stop other programs "
                        "that use this one.")
    parts = [one for network in networks for one in transformers_in(network)]
    of_token = activation_bytes_per_token([one.config for one in parts], predicted, precision)
    if not all(one._supports_sdpa for one in parts):
        of_token *= 4  # not fused: at length 512, DeBERTa saves 3.6 times as much, RoFormer 1.8 (on a CPU)
    return min(32_768, .8 * (total - of_weights) / of_token)


def activation_bytes_per_token(configs, predicted, precision):
    """Bytes saved for the backward pass per token on a GPU.

    configs: transformers configurations of the networks; the first is the generator, whose logits at predicted
    positions are included.
    Fitted to measurements of what a forward pass saves. Fused attention saves nothing quadratic in the length.
    """
    # bytes per unit of the hidden and of the feed-forward layer
    of_hidden, of_intermediate = (42, 7) if precision == "fp32" else (38, 4)
    layers = sum(
        config.num_hidden_layers
        * (of_hidden * width + of_intermediate * getattr(config, "intermediate_size", 4 * width))
        for config in configs
        for width in [config.hidden_size]
    )
    return layers + 16 * predicted * configs[0].vocab_size
