"""Sharing parameters between the generator and the discriminator."""
from _utils.errors import PlainError
from _utils.recipes import TYINGS

UNKNOWN_VOCAB_SIZE = 1000  # placeholder for the size of a vocabulary that is not built yet
# Names of the modules that can be shared, by family; only factorized embeddings have a projection to the hidden size.
_MODULE_NAMES = {"embeddings": ("embeddings",), "projection": ("embeddings_project", "encoder.embedding_hidden_mapping_in"),
                 "encoder": ("encoder", "transformer")}


def shared_modules(network, tying="embeddings"):
    """{'embeddings': module, ...}: the modules of a network that `tying` shares, without those that its family does not have."""
    modules = dict(network.base_model.named_modules())
    return {part: modules[name] for part in TYINGS[tying] for name in _MODULE_NAMES[part] if name in modules}


def share_parameters(source, target):
    """Make the parameters of the module `target` the same objects as those of `source`, by name."""
    for name, parameter in source.named_parameters():
        owner, _, leaf = name.rpartition(".")
        setattr(target.get_submodule(owner), leaf, parameter)


def check_tying(generator, discriminator, tying="embeddings"):
    """Raise PlainError unless the parameters that `tying` shares have the same names and shapes in both networks."""
    source, target = shared_modules(generator, tying), shared_modules(discriminator, tying)
    _check_same_parts(source, target, tying)
    for part in source:
        _check_same_parameters(source[part], target[part], part, tying)


def _check_same_parts(source, target, tying):
    """PlainError if a network lacks a module. A projection that `tying` only implies may be missing in both."""
    for part in TYINGS[tying]:
        is_needed = part in tying.split("+") or part in source or part in target
        for name, modules in (("generator", source), ("discriminator", target)):
            if is_needed and part not in modules:
                raise PlainError(f"tying={tying!r} is not possible: the {name} has no {part} to share. Choose another tying, or an encoder "
                                 "such as ELECTRA, BERT, ALBERT, RoBERTa or DistilBERT.")


def _check_same_parameters(source, target, part, tying):
    """PlainError if two modules differ in the names or shapes of their parameters, or in how they number positions."""
    source_shapes, target_shapes = _shapes(source), _shapes(target)
    for name in {**target_shapes, **source_shapes}:
        expected, shape = source_shapes.get(name), target_shapes.get(name)
        if shape != expected:
            raise PlainError(f"tying={tying!r} is not possible: {part}.{name} is {_format(shape)} in the discriminator and "
                             f"{_format(expected)} in the generator. Choose another tying or networks of the same size.")
    if part == "embeddings" and _padding_position(source) != _padding_position(target):
        raise PlainError(f"tying={tying!r} is not possible: the positions of only one of the networks start after a padding position. "
                         "Choose two networks of one family.")


def _shapes(module):
    return {name: parameter.shape for name, parameter in module.named_parameters()}


def _format(shape):
    """A shape such as (V, 128), where V stands for an unknown vocabulary size."""
    if shape is None:
        return "none"
    return f"({', '.join('V' if size == UNKNOWN_VOCAB_SIZE else str(size) for size in shape)})"


def _padding_position(embeddings):
    return getattr(getattr(embeddings, "position_embeddings", None), "padding_idx", None)
