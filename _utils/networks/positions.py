"""Computing a head, or the last layer, only at some positions."""
import contextlib


class GatheredPositions:
    """A hook between the encoder and the head of a network, of any family, that selects the positions the head computes.

    Inside `only` the head's output is (1, M, V); outside of it, that of all positions.
    """

    def __init__(self, network):
        self.positions = None
        network.base_model.register_forward_hook(self)

    @contextlib.contextmanager
    def only(self, positions):
        """Let the head compute only `positions` (M,) of the flattened batch."""
        self.positions = positions
        try:
            yield
        finally:
            self.positions = None

    def __call__(self, module, arguments, output):
        if self.positions is not None:
            output.last_hidden_state = output.last_hidden_state.flatten(0, 1)[self.positions][None]  # (1, M, H)
        return output


def first_position_only(encoder):
    """Return a context in which the last layer computes only the first position, `[CLS]`: last_hidden_state is (B, 1, H).

    This position still attends to all others. Families whose last layer is built differently, or shared, compute all positions.
    """
    if encoder.config.model_type not in ("electra", "bert", "roberta", "roformer"):
        return contextlib.nullcontext()
    after_attention = encoder.encoder.layer[-1].attention.output
    return after_attention.register_forward_pre_hook(lambda module, inputs: tuple(x[:, :1] for x in inputs))  # (B, 1, H)
