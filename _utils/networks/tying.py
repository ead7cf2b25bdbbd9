"""Sharing parameters between the generator and the discriminator."""
from _utils.errors import PlainError
from _utils.recipes import TYINGS

ANY_SIZE = 1000  # of a vocabulary that is not known yet
# Where families keep what may be tied; those that factorise their embeddings have a projection to the hidden size.
_PLACES = {"embeddings": ("embeddings",), "projection": ("embeddings_project", "encoder.embedding_hidden_mapping_in"),
           "encoder": ("encoder", "transformer")}


def tie(generator, discriminator=None, tying="embeddings"):
    """Let the generator's output layer be its words, and the discriminator use the generator's parameters (F24).

    tying: 'embeddings': words, positions, segments and their LayerNorm; 'embeddings+projection': also from embedding to hidden size;
    'embeddings+encoder': also all layers. Raises PlainError where a parameter of one has no counterpart of its shape in the other.
    """
    generator.get_output_embeddings().weight = generator.get_input_embeddings().weight
    for what in TYINGS[tying] if discriminator is not None else ():
        ours, theirs = (part_of(network, what) for network in (generator, discriminator))
        if what in tying or ours or theirs:  # where all layers are tied, a projection is too, but there may be none
            _share(ours, theirs, f"tying={tying!r}", what)


def part_of(network, what):
    """The module of a network that is its 'embeddings', 'projection' or 'encoder'; None where it has none of its own."""
    modules = dict(network.base_model.named_modules())
    return next((modules[name] for name in _PLACES[what] if name in modules), None)


def _share(source, target, tying, what):
    if source is None or target is None:
        part = "generator" if source is None else "discriminator"
        raise PlainError(f"{tying} cannot be: the {part} has no {what} that could be shared; tie less, or take an encoder such as ELECTRA, "
                         "BERT, ALBERT, RoBERTa or DistilBERT.")
    ours, theirs = dict(source.named_parameters()), dict(target.named_parameters())
    shape = lambda parameters, name: _in_words(parameters[name].shape) if name in parameters else "none"
    for name in {**theirs, **ours}:
        if shape(ours, name) != shape(theirs, name):
            raise PlainError(f"{tying} cannot be: {what}.{name} is {shape(theirs, name)} in the discriminator and {shape(ours, name)} in "
                             "the generator; tie less, or give both networks, of the same size.")
    if what == "embeddings" and _first_position(source) != _first_position(target):
        raise PlainError(f"{tying} cannot be: the positions of one family begin behind that of padding; give two of one kind.")
    for name, parameter in ours.items():
        owner, _, leaf = name.rpartition(".")
        setattr(target.get_submodule(owner), leaf, parameter)


def _in_words(shape):
    """A shape as (V, 128), V for a vocabulary that is not known yet."""
    return f"({', '.join('V' if size == ANY_SIZE else str(size) for size in shape)})"


def _first_position(embeddings):
    return getattr(getattr(embeddings, "position_embeddings", None), "padding_idx", None)
