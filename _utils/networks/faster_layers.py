"""Faster layers: attention, dropout, rotary positions, heads at selected positions.

`fit_to_device` chooses those that a device needs.
"""
import contextlib
from functools import cache, partial

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask
from transformers.models.roformer.modeling_roformer import RoFormerSelfAttention

from _utils.networks.build import transformers_in
from _utils.networks.slots import slot_capacity


def _static_mask(*args, dtype=torch.float32, **kwargs):
    """transformers' SDPA mask without its test for padding, for which the CPU would have to wait for the GPU.

    It is additive: SDPA would convert a boolean mask in every layer; this is done once per network. Returns (B, 1, L,
    L).
    """
    mask = sdpa_mask(*args, **{**kwargs, "allow_is_bidirectional_skip": False})
    if torch.is_autocast_enabled(mask.device.type):
        dtype = torch.get_autocast_dtype(mask.device.type)
    return torch.zeros_like(mask, dtype=dtype).masked_fill(~mask, torch.finfo(dtype).min)


AttentionInterface.register("sdpa_static", sdpa_attention_forward)
AttentionMaskInterface.register("sdpa_static", _static_mask)


def set_attention(model, implementation):
    """Select a registered attention implementation for the networks of a model.

    An encoder without exchangeable attention, such as RoFormer, keeps its own; only its mask is replaced by that of
    'sdpa_static', which is additive too.
    """
    # On an H100 cuDNN's kernels take half a second for each new shape of a batch, and some versions round the dropout
    # probability to a multiple of 1/16 (pytorch/pytorch#174245).
    torch.backends.cuda.enable_cudnn_sdp(False)
    for network in transformers_in(model):
        config = network.config
        if network._supports_sdpa and network._supports_attention_backend:
            network.set_attn_implementation(implementation)
        elif (
            implementation == "sdpa_static"
            and config._attn_implementation == "eager"
            and not config.is_encoder_decoder
        ):
            config._attn_implementation = implementation


def random_bits(n):
    """n random 64-bit integers on the CPU, from NumPy's SFC64, seeded with a number from PyTorch's generator."""
    seed = int(torch.empty((), dtype=torch.int64).random_())
    return torch.from_numpy(np.random.SFC64(seed).random_raw(n).view(np.int64))


_RANGE = 1 << 16


def cheap_dropout(x, p):
    """Zero the elements of x with probability p and scale up the others; any dtype and shape, on the CPU."""
    dropped = round(p * _RANGE)
    n = x.numel()
    bits = random_bits(n // 4 + 1).view(torch.int16)[:n].view(x.shape)
    keep = torch.ge(bits, dropped - _RANGE // 2, out=torch.empty_like(x))
    return x * keep.mul_(_RANGE / (_RANGE - dropped))


class CheapDropout(nn.Dropout):
    """nn.Dropout with `cheap_dropout`."""

    def forward(self, x):
        return cheap_dropout(x, self.p) if self.training and self.p else x


def attention(module, query, key, value, attention_mask, scaling, dropout=0., **kwargs):
    """Attention as in transformers' SDPA implementation, with cheap dropout.

    query, key, value: (B, heads, L, D) each.   Returns ((B, L, heads, D), None).
    """
    if not dropout or key.shape != query.shape:  # fewer heads of keys than of queries
        return sdpa_attention_forward(
            module, query, key, value, attention_mask, dropout=dropout, scaling=scaling, **kwargs
        )
    scores = torch.matmul(query, key.transpose(2, 3)) * scaling
    if attention_mask is not None:
        # The mask of `sdpa_mask` is boolean, others are additive. Not -inf: padding may see masked positions only, and
        # NaN would spread from it.
        if attention_mask.dtype == torch.bool:
            scores = scores.masked_fill(~attention_mask, torch.finfo(scores.dtype).min)
        else:
            scores = scores + attention_mask.to(scores.dtype)
    weights = cheap_dropout(scores.softmax(-1, dtype=torch.float32).to(query.dtype), dropout)
    return torch.matmul(weights, value).transpose(1, 2).contiguous(), None


AttentionInterface.register("cheap_dropout", attention)
AttentionMaskInterface.register("cheap_dropout", sdpa_mask)


def rotate(sinusoidal_pos, *states):
    """RoFormer's rotary positions (Su et al., 2021, section 3.4.2), equal to those of transformers bit for bit.

    There, strided slices exchange the two numbers of each pair; a matrix product takes less time, above all in the
    backward pass, and is exact, because each number is multiplied by 1 or -1 once.
    sinusoidal_pos: (1, 1, L, D), the sines, then the cosines.   states: queries and keys, (B, heads, L, D) each.
    """
    sin, cos = (x.repeat_interleave(2, dim=-1) for x in sinusoidal_pos.chunk(2, dim=-1))
    return tuple(x * cos + (x @ quarter_turns(x.shape[-1], x.dtype, x.device)) * sin for x in states)


@cache
@torch.inference_mode(False)  # a tensor made in inference mode could not be used in training
def quarter_turns(size, dtype, device):
    """The matrix (D, D) by which (a, b, c, d ...) becomes (-b, a, -d, c ...)."""
    return torch.block_diag(*[torch.tensor([[0, 1], [-1, 0]], dtype=dtype, device=device)] * (size // 2))


def fit_to_cpu(model):
    """Let the networks in a model use `rotate` and cheap dropout, also in their attention if the family supports it."""
    for module in model.modules():
        if type(module) is nn.Dropout:
            module.__class__ = CheapDropout
        if isinstance(module, RoFormerSelfAttention):
            module.apply_rotary_position_embeddings = rotate
    set_attention(model, "cheap_dropout")


MULTIPLE = 64


class PaddedLinear(nn.Linear):
    """A linear layer that computes with its outputs padded to a multiple of 64, and returns those it has.

    GPUs multiply matrices of aligned sizes faster; 30,522 is not even a multiple of 4. Parameters keep their shape.
    """

    def forward(self, x):
        n_extra = -self.out_features % MULTIPLE
        bias = None if self.bias is None else F.pad(self.bias, (0, n_extra))
        return F.linear(x, F.pad(self.weight, (0, 0, 0, n_extra)), bias)[..., :self.out_features]


def pad_vocabulary(network):
    """Let the output layer of a masked language model compute with a padded vocabulary, if it is linear."""
    head = network.get_output_embeddings()
    if type(head) is nn.Linear and head.out_features % MULTIPLE:
        head.__class__ = PaddedLinear


class HeadPositions:
    """A hook between the encoder and the head of a network, of any family, that selects the positions for the head.

    positions: (M,) of the flattened batch, for one forward pass; None: all.   states: the head's last input, (1, M, H).
    """

    def __init__(self):
        self.positions = None

    def __call__(self, module, arguments, output):
        if self.positions is not None:
            self.states = output.last_hidden_state = output.last_hidden_state.flatten(0, 1)[self.positions][None]
        return output


def head_positions(network):
    """The HeadPositions of a network, which is hooked up at the first call."""
    if not hasattr(network, "head_positions"):
        network.head_positions = HeadPositions()
        network.base_model.register_forward_hook(network.head_positions)
    return network.head_positions


def logits_at(network, inputs, positions):
    """The vocabulary logits of a masked language model at `positions` (M,) of the flattened batch, (M, V).

    inputs: arguments of its forward pass, by name. The head runs at these positions only, as in Google's code (D16):
    logits for 30,522 tokens cost more operations than four layers of the small discriminator.
    A network that is not one of transformers has a method of this name instead.
    """
    if not hasattr(network, "base_model_prefix"):
        return network.logits_at(inputs, positions)
    head = head_positions(network)
    head.positions = positions
    try:
        return network(**inputs).logits[0]
    finally:
        head.positions = None


def first_position_only(encoder):
    """Return a context in which the last layer computes only the first position, `[CLS]`.

    last_hidden_state is then (B, 1, H). This position still attends to all others. Families whose last layer is built
    differently, or shared, compute all positions.
    """
    if encoder.config.model_type not in ("electra", "bert", "roberta", "roformer"):
        return contextlib.nullcontext()
    after_attention = encoder.encoder.layer[-1].attention.output
    # (B, 1, H)
    return after_attention.register_forward_pre_hook(lambda module, inputs: tuple(x[:, :1] for x in inputs))


def fit_to_device(model, c):
    """Move an ELECTRAModel to the device of a configuration, with layers that are fast there. Returns it.

    On a GPU, and if the step is compiled, all micro-batches have the same shapes, with a fixed number of masked tokens,
    and no number is read from the device.
    """
    device = torch.device(c.device)
    model.to(device)
    if device.type == "cpu" and not c.compile:
        fit_to_cpu(model)
        return model
    model.n_slots = partial(slot_capacity, mlm_probability=c.mask_prob, masking=c.masking)
    set_attention(model, "sdpa_static")
    for network in model.children():
        if hasattr(network, "get_output_embeddings"):
            pad_vocabulary(network)
        if isinstance(network, PreTrainedModel):
            head_positions(network)  # while nothing is compiled yet
    return model
