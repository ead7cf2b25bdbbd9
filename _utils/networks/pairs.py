"""A trained generator and discriminator, for continued pretraining."""
import os

import torch
from transformers import AutoConfig

from _utils.errors import PlainError, as_plain_error
from _utils.networks.build import PARTS, check_length, network_class
from _utils.networks.loading import check_size, load_from_transformers, network_of, parts_of
from _utils.networks.tying import shared_modules
from _utils.pretraining_data.vocabulary import load_tokenizer
from _utils.recipes import TYINGS
from _utils.run_files.checkpoints import find_checkpoint, load_pretraining_checkpoint


def load_pair(name, size, max_length, tying="embeddings"):
    """(generator, discriminator) of a checkpoint, a folder with both, or the hub id of the discriminator.

    Raises PlainError for a pair that is missing, of another size, too short for max_length tokens, or that does not share the
    parameters that `tying` shares.
    """
    if name.endswith(".pth"):
        pair = _from_checkpoint(name)
    else:
        pair = tuple(_from_transformers(name, part) for part in PARTS)
    _check_tied(name, *pair, tying)
    check_size(name, pair[1].config, size)
    check_length(pair[1], max_length, repr(name))
    n_tokens, n_embeddings = len(load_tokenizer(name)), pair[1].config.vocab_size
    if n_tokens > n_embeddings:
        raise PlainError(f"The tokenizer of {name!r} has {n_tokens} tokens, but the networks have {n_embeddings} token embeddings. Use the "
                         "tokenizer that the networks were trained with.")
    return pair


def _from_checkpoint(name):
    path = find_checkpoint(name)
    checkpoint = load_pretraining_checkpoint(path)
    if "discriminator" not in parts_of(checkpoint):
        raise PlainError(f"{name!r} has no discriminator, because it was pretrained with objective='mlm'. Choose an ELECTRA.")
    return tuple(network_of(checkpoint, part, path) for part in PARTS)


def _from_transformers(name, part):
    """One network of a pair, from a folder or the hub."""
    source = _subfolder(name, part) if os.path.isdir(name) else name.replace("discriminator", part)
    with as_plain_error(f"Cannot load the {part} {source!r} ({{error}}). Set initial_weights to a checkpoint, a folder with generator/ and "
                        "discriminator/, or a hub id such as google/electra-small-discriminator."):
        config = AutoConfig.from_pretrained(source, trust_remote_code=False)
        network, report = load_from_transformers(network_class(part, config.model_type), source)
    missing = sorted([*report["missing_keys"], *(key for key, *_ in report["mismatched_keys"])])
    if missing:
        raise PlainError(f"{source!r} is not a {part}: it lacks {missing[0]}. Set initial_weights to a pair from export_hf, convert_tf "
                         "or Google.")
    return network


def _subfolder(name, part):
    """The folder of a part in the folder of a pair; PlainError if it is missing."""
    folder = os.path.join(name, part)
    if not os.path.isdir(folder):
        parent = os.path.dirname(os.path.abspath(name))
        is_inside_pair = all(os.path.isdir(os.path.join(parent, other)) for other in PARTS)
        advice = "the parent folder" if is_inside_pair else "a folder with generator/ and discriminator/ from export_hf or convert_tf"
        raise PlainError(f"initial_weights={name!r} has no folder {part}/. Pass {advice}.")
    return folder


def _check_tied(name, generator, discriminator, tying):
    """PlainError unless the parameters that `tying` shares are equal, as in networks that were trained together (F24)."""
    sources, targets = shared_modules(generator, tying), shared_modules(discriminator, tying)
    for part in TYINGS[tying]:
        source = sources[part].state_dict() if part in sources else {}
        target = targets[part].state_dict() if part in targets else {}
        for key in {**source, **target}:
            if key not in source or key not in target or not _is_close(source[key], target[key]):
                raise PlainError(f"The networks of {name!r} were not trained together: their {key} differ. Pass a generator and a "
                                 f"discriminator of one run with tying={tying!r}.")


def _is_close(a, b):
    """True for equal tensors, of which one may have been stored in half precision."""
    return a.shape == b.shape and torch.allclose(a, b, rtol=.01, atol=1e-4)
