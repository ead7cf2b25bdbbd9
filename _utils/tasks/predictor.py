"""An output layer on an encoder. That of a sentence or pair is in Finetune_GLUE.ipynb: SentencePredictor."""
import torch
from torch import nn

from _utils.networks import first_position_only, inputs_of


class Predictor(nn.Module):
    """An encoder with a linear output layer.

    model: a transformers encoder.   num_class: outputs of the layer; 1 for regression.
    xavier_reinited_outlayer: Glorot uniform weights and zero bias as in Google's code (F30), else PyTorch's default
    initialization.
    freeze: keep the encoder as it is, also without its dropout.
    """
    layer = nn.Linear  # class of the output layer

    def __init__(self, model, hidden_size, num_class, xavier_reinited_outlayer=True, freeze=False):
        super().__init__()
        self.base_model = model.requires_grad_(False) if freeze else model
        self.freeze = freeze
        self.classifier = self.layer(hidden_size, num_class)
        if xavier_reinited_outlayer:
            for name, parameter in self.classifier.named_parameters():
                (nn.init.zeros_ if name.endswith("bias") else nn.init.xavier_uniform_)(parameter)

    def train(self, mode=True):
        super().train(mode)
        if self.freeze:
            self.base_model.eval()
        return self

    def hidden_states(self, inp_ids, attn_mask, token_type_ids):
        """inp_ids, attn_mask, token_type_ids (B, L) -> the encoder's final hidden states (B, L, H)."""
        return self.base_model(**inputs_of(self.base_model, inp_ids, attn_mask, token_type_ids)).last_hidden_state

    def first_hidden_state(self, inp_ids, attn_mask, token_type_ids):
        """As `hidden_states`, only that of the first token, `[CLS]`, (B, H). The last layer computes no others."""
        with first_position_only(self.base_model):
            return self.hidden_states(inp_ids, attn_mask, token_type_ids)[:, 0]

    def outputs(self, hidden, *inputs):
        """Outputs (..., C) in fp32: bf16 has fewer digits than the three decimals of a submitted score."""
        with torch.autocast(hidden.device.type, enabled=False):
            return self.classifier(hidden.float(), *inputs)


def head_options(settings, keys=()):
    """The arguments of a Predictor among the Settings of a run. keys: of the configuration that apply to the task."""
    options = {"xavier_reinited_outlayer": settings.xavier_reinited_outlayer, "freeze": settings.freeze}
    return options | ({"pooling": settings.pooling} if "pooling" in keys else {})


@torch.no_grad()
def copy_output_layer(weight, bias, head, norm):
    """Make transformers' head (dense, GELU, output layer) compute a linear layer with this weight (C, H) and bias (C,).

    norm: the LayerNorm whose outputs it reads.

    Since gelu(x) - gelu(-x) = x, dense weights W and -W with output weights 1 and -1 compute W x exactly, with two
    hidden units per label.
    With more labels than that, a shift makes all inputs of the GELU so large that it leaves them as they are, and the
    output layer removes the shift; this rounds the logits to about 1e-4. Further finetuning in transformers trains this
    larger head.
    """
    n, n_inputs = weight.shape
    for parameter in head.parameters():
        parameter.zero_()
    if 2 * n > n_inputs:
        # |x| of a LayerNorm is at most the rest
        shift = 6 + n_inputs ** .5 * norm.weight.abs() + norm.bias.abs()
        head.dense.weight.fill_diagonal_(1)
        head.dense.bias.copy_(shift)
        head.out_proj.weight.copy_(weight)
        head.out_proj.bias.copy_(bias.double() - weight.double() @ shift.double())
        return
    head.dense.weight[:2 * n] = torch.cat([weight, -weight])
    head.out_proj.weight.fill_diagonal_(1)
    head.out_proj.weight[:, n:].fill_diagonal_(-1)
    head.out_proj.bias.copy_(bias)
