"""Computing a head, or the last layer, at some positions only."""
import contextlib


class GatheredPositions:
    """A hook between a network's encoder and its head, so that the head of any family computes a few positions only.

    The head's output is then (1, M, V), or that of all positions outside of `only`.
    """

    def __init__(self, network):
        self.positions = None
        network.base_model.register_forward_hook(self)

    @contextlib.contextmanager
    def only(self, positions):
        """Within it the head computes `positions` of the flattened batch, (M,)."""
        self.positions = positions
        try:
            yield
        finally:
            self.positions = None

    def __call__(self, module, arguments, output):
        if self.positions is not None:
            output.last_hidden_state = output.last_hidden_state.flatten(0, 1)[self.positions][None]
        return output


@contextlib.contextmanager
def first_position_only(encoder):
    """Within it the last layer computes the first position only, all that a head on `[CLS]` sees: last_hidden_state is (B, 1, H).

    It still attends to all positions. In families where the last layer is built otherwise, or shared with others, it computes all.
    """
    hooks = []
    if encoder.config.model_type in ("electra", "bert", "roberta"):
        behind_attention = encoder.encoder.layer[-1].attention.output
        hooks.append(behind_attention.register_forward_pre_hook(lambda module, inputs: tuple(x[:, :1] for x in inputs)))  # (B, 1, H)
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()
