"""Electric's generator (F98, F99): two causal transformers, which predict a token from those before and those after it.

No token sees itself, so one forward pass over the text without [MASK] gives the distribution at every position.
"""
import copy

import torch
import torch.nn.functional as F
from torch import nn
from transformers.activations import ACT2FN

from _utils.errors import UserError
from _utils.networks.build import build_network, inputs_of

# Their attention takes an additive mask (B, 1, L, L), and no position reaches another one but through it.
FAMILIES = ("electra", "bert", "albert", "roberta", "distilbert", "roformer")
LOGITS_AT_ONCE = 1 << 22  # logits that exist at once: 16 MB in fp32


class TwoTowers(nn.Module):
    """Two encoders of a transformers configuration, and one head on both.

    ltr, rtl: read from left to right, and from right to left.   predictions: the head, whose output layer is the token
    embeddings of `ltr`.
    It has as much of the interface of a network of transformers as the rest of the code uses. Raises UserError for a
    family without causal masks.
    """

    def __init__(self, config):
        super().__init__()
        if config.model_type not in FAMILIES:
            raise UserError(f"Two towers cannot be built of {config.model_type} networks, whose attention cannot be "
                            f"restricted to one direction. Choose one of {', '.join(FAMILIES)}.")
        self.config = config
        self.ltr, self.rtl = (build_network("generator", copy.deepcopy(config)).base_model for _ in range(2))
        self.predictions = ClozeHead(config, self.get_input_embeddings().embedding_dim)
        self.predictions.decoder.weight = self.get_input_embeddings().weight

    @property
    def base_model(self):
        """The left tower, which has the embeddings."""
        return self.ltr

    def get_input_embeddings(self):
        return self.ltr.get_input_embeddings()

    def get_output_embeddings(self):
        return self.predictions.decoder

    def forward(self, input_ids, attention_mask, token_type_ids=None):
        """The head's hidden states (B, L, E), of the text without [MASK]; all arguments (B, L).

        The shift wraps around: the first position sees `ltr` of the last one, the last one `rtl` of the first.
        """
        towers = zip((self.ltr, self.rtl), causal_masks(attention_mask))
        before, after = (tower(**inputs_of(tower, input_ids, mask, token_type_ids)).last_hidden_state
                         for tower, mask in towers)  # (B, L, H) each
        return self.predictions(torch.cat([before.roll(1, dims=1), after.roll(-1, dims=1)], dim=-1))

    def logits_at(self, inputs, positions):
        """As `faster_layers.logits_at`, without gradient: the loss is `cross_entropy`, of all positions."""
        self.states = self(**inputs).flatten(0, 1)  # (B * L, E)
        with torch.no_grad():
            return self.predictions.decoder(self.states[positions])

    def cross_entropy(self, targets, is_counted):
        """Return (sum of the loss, (); logsumexp of the logits, (B * L,)) of the last text.

        targets, is_counted: (B, L).
        """
        decoder = self.predictions.decoder
        counted = is_counted.flatten().float()
        return cross_entropy_everywhere(self.states, decoder.weight, decoder.bias, targets.flatten(), counted)

    @torch.no_grad()
    def log_probabilities(self, tokens, log_sums):
        """Log-probabilities of `tokens` (B, L), given the original ones around them, (B, L).

        log_sums: from `cross_entropy`.
        """
        decoder, ids = self.predictions.decoder, tokens.flatten()
        logits = (self.states.float() * decoder.weight[ids]).sum(-1) + decoder.bias[ids]
        return (logits - log_sums).view(tokens.shape)


class ClozeHead(nn.Module):
    """Dense, GELU and LayerNorm, from both towers to the width of the embeddings; `decoder` is the output layer."""

    def __init__(self, config, embedding_size):
        super().__init__()
        self.dense = nn.Linear(2 * config.hidden_size, embedding_size)
        nn.init.normal_(self.dense.weight, std=config.initializer_range)
        nn.init.zeros_(self.dense.bias)
        self.activation = ACT2FN[getattr(config, "hidden_act", "gelu")]
        self.LayerNorm = nn.LayerNorm(embedding_size, eps=getattr(config, "layer_norm_eps", 1e-12))
        self.decoder = nn.Linear(embedding_size, config.vocab_size)
        nn.init.zeros_(self.decoder.bias)

    def forward(self, hidden):
        return self.LayerNorm(self.activation(self.dense(hidden)))


def causal_masks(attention_mask):
    """Additive masks for both directions, (B, 1, L, L) each. attention_mask: (B, L), True for tokens.

    A position at which nothing may be seen, such as padding from the right, sees everything, as in Google's code, which
    subtracts the same number from all scores.
    """
    length = attention_mask.shape[1]
    not_later = torch.ones(length, length, dtype=torch.bool, device=attention_mask.device).tril()
    masks = []
    for direction in (not_later, not_later.T):
        seen = direction & attention_mask.bool()[:, None, :]  # (B, L, L)
        seen = seen | ~seen.any(-1, keepdim=True)
        masks.append(torch.zeros_like(seen, dtype=torch.float32).masked_fill(~seen, torch.finfo(torch.float32).min))
    return [mask[:, None] for mask in masks]


def cross_entropy_everywhere(states, weight, bias, targets, counted):
    """Return (sum of the cross-entropy where `counted`, (); logsumexp of the logits, (N,), without gradient).

    states: (N, E).   weight, bias: of the output layer, (V, E) and (V,).   targets: (N,).   counted: (N,), 1. or 0.
    As F.cross_entropy, but the logits (N, V) never exist as a whole: their gradients are computed with the loss, in
    blocks. The arithmetic is that of autocast.
    """
    arguments, is_training = (states, weight, bias), torch.is_grad_enabled()
    with torch.no_grad():
        total, log_sums, *gradients = _loss_and_gradients(*arguments, targets, counted, is_training)
    if not is_training:
        return total, log_sums
    # A function of the arguments whose gradients are those computed above.
    surrogate = sum((x.float() * gradient).sum() for x, gradient in zip(arguments, gradients))
    return total + (surrogate - surrogate.detach()), log_sums


def _loss_and_gradients(states, weight, bias, targets, counted, is_training):
    """Return (sum of the loss (), logsumexp (N,), if is_training gradients of states, weight and bias in float32)."""
    device, extra = states.device.type, -len(weight) % 64  # GPUs multiply matrices of aligned sizes faster
    dtype = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else states.dtype
    padded = F.pad(weight, (0, 0, 0, extra)).to(dtype)
    padded_bias = F.pad(bias, (0, extra), value=-torch.inf).to(dtype)
    log_sums, of_states, of_weight, of_bias = [], [], 0., 0.
    total = torch.zeros((), device=states.device)
    n = max(1, LOGITS_AT_ONCE // len(padded))
    for x, target, is_counted in zip(states.to(dtype).split(n), targets[:, None].split(n), counted[:, None].split(n)):
        logits = F.linear(x, padded, padded_bias).float()  # (n, V)
        of_target, highest = logits.gather(1, target), logits.amax(1, keepdim=True)
        p = logits.sub_(highest).exp_()
        norm = p.sum(1, keepdim=True)
        log_sum = highest + norm.log()  # (n, 1)
        total = total + ((log_sum - of_target) * is_counted).sum()
        log_sums.append(log_sum.squeeze(1))
        if not is_training:
            continue
        gradient = p.mul_(is_counted / norm).scatter_add_(1, target, -is_counted)
        of_bias = of_bias + gradient.sum(0)
        gradient = gradient.to(dtype)
        of_states.append((gradient @ padded).float())
        of_weight = of_weight + (gradient.T @ x).float()
    if not is_training:
        return total, torch.cat(log_sums)
    v = len(weight)
    return total, torch.cat(log_sums), torch.cat(of_states), of_weight[:v], of_bias[:v]
