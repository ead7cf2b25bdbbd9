"""The weights of linear layers in half precision, cast all at once."""
import torch
from torch import nn
from torch.func import functional_call


class HalfWeights:
    """Copies of the weights and biases of a model's linear layers in the dtype of autocast.

    Autocast would cast each of them in every forward pass, and its gradient in every backward pass: hundreds of small operations with the
    same result. Weights that other layers use too, such as tied embeddings, are left to autocast.

    parameters: the parameters that have copies.   copies: the copies, leaves of the autograd graph, in the same order.
    """

    def __init__(self, model, dtype):
        self.model, self.dtype = model, dtype
        of_linear = {id(p) for layer in model.modules() if isinstance(layer, nn.Linear) for p in layer.parameters(recurse=False)}
        of_others = {id(p) for layer in model.modules() if not isinstance(layer, nn.Linear) for p in layer.parameters(recurse=False)}
        found = {name: p for name, p in model.named_parameters() if id(p) in of_linear - of_others and p.requires_grad}
        self.names, self.parameters = list(found), list(found.values())
        self.copies = [torch.empty_like(p, dtype=dtype).requires_grad_() for p in self.parameters]

    @torch.no_grad()
    def refresh(self):
        """Copy the current weights."""
        torch._foreach_copy_(self.copies, self.parameters)

    def __call__(self, *x):
        """The model's output, computed with the copies."""
        return functional_call(self.model, dict(zip(self.names, self.copies)), x)
