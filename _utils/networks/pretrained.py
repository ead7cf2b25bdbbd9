"""Pretrained networks: encoders to finetune, and pairs to go on pretraining. From our checkpoints, folders or the hub."""
import contextlib
import copy
import os
import re
from typing import NamedTuple

import torch
import transformers
import xxhash
from torch import nn
from transformers import (
    AutoConfig,
    AutoModel,
    AutoTokenizer,
    ElectraForPreTraining,
    PreTrainedTokenizerBase,
)
from transformers.models.auto.modeling_auto import MODEL_FOR_MASKED_LM_MAPPING

from _utils.errors import PlainError, first_line
from _utils.networks.build import PARTS, build_network, network_class, usable_positions
from _utils.networks.tying import part_of
from _utils.pretraining_data.vocabulary import check_has_tokenizer, load_tokenizer, tokenizer_from_json
from _utils.recipes import RECIPES, TYINGS
from _utils.run_files.checkpoints import find_checkpoint, load_pretraining_checkpoint

# What pretrained_checkpoint=None means: Google's released models, of which the small one is ELECTRA-Small++.
GOOGLE_MODELS = {"small": "google/electra-small-discriminator", "small++": "google/electra-small-discriminator",
                 "base": "google/electra-base-discriminator", "large": "google/electra-large-discriminator"}


class Pretrained(NamedTuple):
    """What finetuning starts from. `model`: the encoder, or ELECTRA's whole discriminator, whose head the WSC trick needs."""
    name: str
    model: nn.Module
    hf_tokenizer: PreTrainedTokenizerBase
    digest: str  # of the weights: another model under the same name has another one

    def encoder(self):
        """A copy of the encoder, for one run."""
        return copy.deepcopy(self.model.base_model)

    def discriminator(self):
        """A copy of ELECTRA's discriminator; PlainError where there is none."""
        if not isinstance(self.model, ElectraForPreTraining):
            raise PlainError(f"wsc_trick=True needs ELECTRA's discriminator, and {self.name!r} is a {self.model.config.model_type} model: "
                             "leave it out, or choose another pretrained_checkpoint.")
        return copy.deepcopy(self.model)


def load_pretrained(name, size, max_length, folder="checkpoints/pretrain"):
    """Pretrained of a checkpoint in `folder`, a path, a transformers folder or a hub id; None: Google's model of that size.

    Raises PlainError for one that is not there, is no encoder, is of another size, or takes fewer than max_length tokens.
    """
    if name is None and size not in GOOGLE_MODELS:
        raise PlainError(f"pretrained_checkpoint=None means Google's model, and there is none of size={size}: "
                         f"choose one of {', '.join(GOOGLE_MODELS)}, or give a checkpoint.")
    name = name or GOOGLE_MODELS[size]
    if name.endswith(".pth"):
        model, hf_tokenizer = _from_checkpoint(find_checkpoint(name, folder), size)
    else:
        model, hf_tokenizer = _from_transformers(name)
        _check_size(name, model.config, size)
    _check_length(name, model, max_length)
    return Pretrained(name, model, hf_tokenizer, _digest(model))


def _from_checkpoint(path, size):
    checkpoint = load_pretraining_checkpoint(path)
    made_with = checkpoint["config"].get("size")
    if made_with != size:
        raise PlainError(f"{str(path)!r} was pretrained with size={made_with}, not {size}: say size={made_with}.")
    return network_of(checkpoint, parts_of(checkpoint)[-1], path), tokenizer_from_json(checkpoint["tokenizer"])


def parts_of(checkpoint):
    """The parts of a pretraining checkpoint, of which the last one is kept: generator and discriminator, or the generator alone."""
    return [part for part in PARTS if f"{part}_config" in checkpoint]


def network_of(checkpoint, part, path):
    """The 'generator' or 'discriminator' of a pretraining checkpoint, as `build_network` makes it.

    path: for the PlainError about weights that do not fit.
    """
    network = build_network(part, config_of(checkpoint, part, path))
    weights = {key.removeprefix(f"{part}."): value for key, value in checkpoint["model"].items() if key.startswith(f"{part}.")}
    load_weights(network, weights, path)
    return network


def config_of(checkpoint, part, path):
    """The transformers configuration of the 'generator', 'discriminator' or finetuned 'encoder' of a checkpoint; path: for PlainError."""
    try:
        return AutoConfig.for_model(**checkpoint[f"{part}_config"])
    except Exception as error:  # of many kinds, from the families' checks
        raise PlainError(f"the configuration of the {part} in {str(path)!r} cannot be read ({first_line(error)}): use another "
                         "checkpoint.") from None


def load_weights(network, weights, path):
    """Give a network the weights of a checkpoint; path: for the PlainError where they do not fit."""
    try:
        network.load_state_dict(weights)
    except RuntimeError as error:
        raise PlainError(f"the weights in {str(path)!r} do not fit its own configuration ({first_line(error)}): "
                         "use another checkpoint.") from None


@contextlib.contextmanager
def quiet_transformers():
    """Without its report of weights that an encoder does not need, which reads like an error."""
    before = transformers.utils.logging.get_verbosity()
    transformers.utils.logging.set_verbosity_error()
    try:
        yield
    finally:
        transformers.utils.logging.set_verbosity(before)


def _from_transformers(name):
    """(model, hf_tokenizer) of a folder or a hub id. A head or pooler that is not in it, which transformers makes afresh, is left out."""
    config = _encoder_config(name)
    kind = ElectraForPreTraining if config.model_type == "electra" else AutoModel
    try:
        # Weights may be stored in half precision; Adam's small steps would be lost in it.
        with quiet_transformers():
            model, found = kind.from_pretrained(name, dtype=torch.float32, output_loading_info=True, trust_remote_code=False)
            hf_tokenizer = AutoTokenizer.from_pretrained(name, trust_remote_code=False)
    except Exception as error:
        raise PlainError(f"the model {name!r} could not be loaded from the {_place(name)} ({first_line(error)}): it lacks weights or a "
                         "tokenizer, so fetch it again or choose another.") from error
    missing = " ".join(found["missing_keys"])  # which transformers has filled with random numbers
    if "discriminator_predictions." in missing:
        model = model.base_model
    if "pooler." in missing:
        model.pooler = None
    if not hf_tokenizer.is_fast or hf_tokenizer.pad_token is None:
        raise PlainError(f"the tokenizer of {name!r} has no fast version or no padding token: choose another model.")
    hf_tokenizer.backend_tokenizer.no_padding()  # a saved tokenizer may bring both
    hf_tokenizer.backend_tokenizer.no_truncation()
    return model, hf_tokenizer


def _encoder_config(name):
    """The configuration of a folder or a hub id; PlainError for what is not there, no encoder, or has no tokenizer."""
    if os.path.isdir(os.path.join(name, "discriminator")):
        raise PlainError(f"{name!r} holds two networks: say pretrained_checkpoint={os.path.join(name, 'discriminator')!r}.")
    if name.startswith((".", "/", "~")) and not os.path.isdir(name):
        raise PlainError(f"there is no folder {name!r}: give that of a transformers model, a hub id, or a checkpoint of pretrain.py.")
    try:
        config = AutoConfig.from_pretrained(name, trust_remote_code=False)  # True would run what strangers wrote; None asks the user
    except Exception as error:  # a dozen kinds, from the hub and from the files; the way out is the same
        raise PlainError(f"the model {name!r} could not be loaded from the {_place(name)} ({first_line(error)}): give a hub id, a "
                         "transformers folder or a checkpoint in checkpoints/pretrain/, or try python finetune.py "
                         "quickstart=True.") from error
    if type(config) not in MODEL_FOR_MASKED_LM_MAPPING or config.is_encoder_decoder:
        raise PlainError(f"{name!r} is a {config.model_type} model, which is no encoder: choose an ELECTRA, BERT, ALBERT, RoBERTa or "
                         "similar one.")
    if os.path.isdir(name):
        check_has_tokenizer(name)
    return config


def _place(name):
    return "folder" if os.path.isdir(name) else "hub"


def load_pair(name, size, max_length, tying="embeddings"):
    """(generator, discriminator) that were trained together: a checkpoint, a folder with both, or the hub id of the discriminator.

    Raises PlainError for one that is not there, is of another size, takes fewer than max_length tokens, or has not in common what
    `tying` shares.
    """
    if name.endswith(".pth"):
        path = find_checkpoint(name)
        checkpoint = load_pretraining_checkpoint(path)
        if "discriminator" not in parts_of(checkpoint):
            raise PlainError(f"{name!r} has no discriminator, since it was pretrained with objective='mlm': give a pair.")
        pair = tuple(network_of(checkpoint, part, path) for part in PARTS)
    else:
        pair = tuple(_part_of_pair(name, part) for part in PARTS)
    _check_pair(name, *pair, tying)
    _check_size(name, pair[1].config, size)
    _check_length(name, pair[1], max_length)
    n_words, n_rows = len(load_tokenizer(name)), pair[1].config.vocab_size
    if n_words > n_rows:
        raise PlainError(f"the tokenizer of {name!r} has {n_words} words, and its networks {n_rows}: give it the tokenizer that it was "
                         "trained with.")
    return pair


def _part_of_pair(name, part):
    """One network of a folder or of the hub."""
    place = os.path.join(name, part) if os.path.isdir(name) else name.replace("discriminator", part)
    if os.path.isdir(name) and not os.path.isdir(place):
        above = os.path.dirname(os.path.abspath(name))
        is_inside = all(os.path.isdir(os.path.join(above, other)) for other in PARTS)
        way_out = "the folder above" if is_inside else "one with generator/ and discriminator/, as export_hf and convert_tf make them"
        raise PlainError(f"initial_weights={name!r} has no folder {part}/: give {way_out}.")
    try:
        with quiet_transformers():
            kind = network_class(part, AutoConfig.from_pretrained(place, trust_remote_code=False).model_type)
            network, found = kind.from_pretrained(place, dtype=torch.float32, output_loading_info=True, trust_remote_code=False)
    except Exception as error:  # a dozen kinds, from the hub and from the files; the way out is the same
        raise PlainError(f"the {part} {place!r} could not be loaded ({first_line(error)}): give as initial_weights a checkpoint, a folder "
                         "with generator/ and discriminator/, or a hub id such as google/electra-small-discriminator.") from error
    missing = [*found["missing_keys"], *(key for key, *_ in found["mismatched_keys"])]
    if missing:
        raise PlainError(f"{place!r} is no {part}: it lacks {sorted(missing)[0]}; give what export_hf, convert_tf or Google made of both "
                         "parts.")
    return network


def _check_pair(name, generator, discriminator, tying):
    """PlainError unless both have in common what is tied, as networks that were trained together do (F24)."""
    alike = lambda a, b: a.shape == b.shape and torch.allclose(a, b, rtol=.01, atol=1e-4)  # one may have been stored in half precision
    for what in TYINGS[tying]:
        shared, other = (module.state_dict() if (module := part_of(network, what)) else {} for network in (generator, discriminator))
        differing = [key for key in {**shared, **other} if key not in other or key not in shared or not alike(shared[key], other[key])]
        if differing:
            raise PlainError(f"the networks of {name!r} were not trained together: their {differing[0]} differ; give a generator and a "
                             f"discriminator of one training with tying={tying!r}.")


def _check_length(name, network, max_length):
    positions = usable_positions(network)
    if max_length > positions:
        raise PlainError(f"max_length={max_length} is more than the {positions} positions of {name!r}: lower it.")


def _check_size(name, config, size):
    """PlainError for a model of the shape of another recipe, whose learning rates would be wrong."""
    shape = (config.num_hidden_layers, config.hidden_size)
    fitting = [other for other, recipe in RECIPES.items() if (recipe.encoder.layers, recipe.encoder.hidden) == shape]
    if fitting and size not in fitting:
        raise PlainError(f"{name!r} has {shape[0]} layers x {shape[1]}, so its settings are those of size={fitting[0]}, not {size}: "
                         f"say size={fitting[0]}.")


def _digest(model):
    digest = xxhash.xxh3_128()
    for name, tensor in model.state_dict().items():
        digest.update(name.encode())
        digest.update(tensor.detach().float().contiguous().numpy())
    return digest.hexdigest()


def count_layers(config):
    """Layers for the learning rates: ALBERT's layers share their weights by groups, so each group counts once."""
    return getattr(config, "num_hidden_groups", config.num_hidden_layers)


def layer_groups(model):
    """(name, parameter) pairs of an encoder, [embeddings with their projection, layer 0, ..., last layer], each a list.

    What stands before the layers counts as embeddings, and what stands behind them, as a last LayerNorm, to the last layer.
    Raises PlainError for an architecture whose layers cannot be told apart.
    """
    n_layers = count_layers(model.config)
    groups, reached = [[] for _ in range(n_layers + 1)], 0
    numbered = re.compile(r"(?:^|\.)(?:layers?|albert_layer_groups|h|blocks?)\.(\d+)\.")
    for name, parameter in sorted(model.named_parameters(), key=lambda item: "embedding" not in item[0]):
        if found := numbered.search(name):
            reached = int(found[1]) + 1
        groups[0 if "embedding" in name else reached].append((name, parameter))
    if not all(groups):
        raise PlainError(f"the layers of a {model.config.model_type} model cannot be told apart by name, so they cannot get learning rates "
                         "of their own: choose an ELECTRA, BERT, ALBERT, RoBERTa or similar model.")
    return groups
