"""Sharing parameters: between the generator and the discriminator, and between a generator's output layer and its
embeddings.
"""
import torch

from _utils.errors import UserError
from _utils.recipes import TYINGS

# Names of the modules that can be shared, by family; only factorized embeddings have a projection to the hidden size.
_MODULE_NAMES = {"tokens": ("embeddings.word_embeddings",), "embeddings": ("embeddings",),
                 "projection": ("embeddings_project", "encoder.embedding_hidden_mapping_in"),
                 "encoder": ("encoder", "transformer")}


def shared_modules(network, tying):
    """{'embeddings': module, ...}: the modules of a network that `tying` shares, without those that its family does not
    have.
    """
    modules = dict(network.base_model.named_modules())
    return {part: modules[name] for part in TYINGS[tying] for name in _MODULE_NAMES[part] if name in modules}


def share_parameters(source, target):
    """Make the parameters of the module `target` the same objects as those of `source`, by name."""
    for name, parameter in source.named_parameters():
        owner, _, leaf = name.rpartition(".")
        setattr(target.get_submodule(owner), leaf, parameter)


def tie_output(network):
    """Make the output layer of a masked language model its token embeddings."""
    network.get_output_embeddings().weight = network.get_input_embeddings().weight


def check_tying(generator, discriminator, tying):
    """Raise UserError unless the parameters that `tying` shares have the same names and shapes in both networks."""
    source, target = shared_modules(generator, tying), shared_modules(discriminator, tying)
    for part in TYINGS[tying]:
        # a projection that `tying` only implies may be missing in both
        if part in {*tying.split("+"), *source, *target}:
            _check_same(source.get(part), target.get(part), part, tying)


def check_tied_output(network, name):
    """UserError if a trained masked language model has an output layer of its own, which tying would overwrite.

    name: of the model, for the message.
    """
    if not torch.equal(network.get_output_embeddings().weight, network.get_input_embeddings().weight):
        raise UserError(f"The output layer of {name!r} differs from its token embeddings (tie_word_embeddings=False), "
                        "but here they are one matrix. Choose a masked language model that was trained with tied "
                        "embeddings.")


def _check_same(source, target, part, tying):
    """UserError if a module is missing, or if both differ in the names or shapes of their parameters."""
    for name, module in (("generator", source), ("discriminator", target)):
        if module is None:
            raise UserError(f"tying={tying!r} is not possible: the {name} has no {part} to share. Choose another "
                            "tying, or an encoder such as ELECTRA, BERT, ALBERT, RoBERTa or DistilBERT.")
    source_shapes, target_shapes = (
        {name: tuple(p.shape) for name, p in module.named_parameters()} for module in (source, target)
    )
    if differing := source_shapes.items() ^ target_shapes.items():
        name, _ = min(differing)
        raise UserError(f"tying={tying!r} is not possible: {part}.{name} is {target_shapes.get(name)} in the "
                        f"discriminator and {source_shapes.get(name)} in the generator. Choose another tying or "
                        "networks of the same size.")
