"""Trained networks from checkpoints, transformers folders or the hub.

They are encoders to finetune, networks with their heads, and pairs.
"""
import copy
import json
import os
from typing import NamedTuple

import torch
from huggingface_hub.utils import logging as hub_logging
from torch import nn
from transformers import AutoConfig, AutoModel, ElectraForPreTraining, PreTrainedTokenizerBase
from transformers.models.auto.modeling_auto import MODEL_FOR_MASKED_LM_MAPPING
from transformers.utils import logging

from _utils.errors import UserError, as_user_error
from _utils.files import content_key
from _utils.names import find_checkpoint
from _utils.networks.build import (
    LABELS,
    PARTS,
    build_network,
    has_learned_positions,
    max_positions,
    network_class,
    shared_modules,
)
from _utils.recipes import RECIPES
from _utils.runs.checkpoints import load_pretraining_checkpoint
from _utils.text.new_tokens import pieces_of_new_tokens
from _utils.text.special_tokens import content_of, text_tokenizer
from _utils.text.vocabulary import pretrained_tokenizer, tokenizer_of

logging.disable_progress_bar()  # of reading and writing weights, which takes a moment
hub_logging.set_verbosity_error()  # the reports of each attempt to reach the hub; an error follows if all fail
logging.set_verbosity_error()  # the reports of unused weights and of layers that are not sharded read like errors

# The meaning of pretrained_checkpoint=None: Google's released models. The small one is ELECTRA-Small++.
GOOGLE_MODELS = {"small": "google/electra-small-discriminator", "small++": "google/electra-small-discriminator",
                 "base": "google/electra-base-discriminator", "large": "google/electra-large-discriminator"}
ROTARY_LENGTH = 128  # tokens of a row in finetuning, at least, with rotary positions; as the paper's small model
SELECTED_BY = "pretrained_with"  # entry of an exported configuration: {key: value} that selected the objective
# Settings of a transformers configuration that change no output.
_DESCRIPTIONS = {SELECTED_BY, "_name_or_path", "architectures", "dtype", "torch_dtype", "transformers_version",
                 "id2label", "label2id", "problem_type", "task_specific_params", "classifier_dropout", "return_dict",
                 "output_hidden_states", "output_attentions", "bos_token_id", "eos_token_id", "window_stride"}
# Modules on top of the encoder that finetuning can do without: the discriminator's head, and a pooler.
_ABOVE_ENCODER = "discriminator_predictions.", "pooler."
_ADVICE = {"generator": " For a discriminator alone, pretrain.py trains a generator with new_generator=True.",
           "discriminator": ""}  # if a part is missing
_DISCRIMINATORS = "ElectraForPreTraining", "ForTokenClassification"  # ends of the names of classes


def usable_length(network, hf_tokenizer, run):
    """Return the number of tokens of the longest text all of whose positions were trained.

    For a network that pretrain.py did not train, this is what its tokenizer allows.
    run: configuration of pretrain.py, with max_length if it trained the network.
    """
    positions = max_positions(network)
    if not run.get("max_length"):
        return min(positions, hf_tokenizer.model_max_length)
    return min(positions, run["max_length"]) if has_learned_positions(network) else positions


class Pretrained(NamedTuple):
    """A pretrained model to finetune.

    model: the encoder, or a network with it and a head, as ELECTRA's discriminator, which the WSC trick needs.
    digest: hash of the weights, of what else the network computes with them, and of the tokenizer.
    size: the recipe with which it is finetuned.   run: configuration of pretrain.py of a checkpoint; empty for others.
    """
    name: str
    model: nn.Module
    hf_tokenizer: PreTrainedTokenizerBase
    digest: str
    size: str
    run: dict

    @property
    def length(self):
        """`usable_length` of the model."""
        return usable_length(self.model, self.hf_tokenizer, self.run)

    @property
    def default_length(self):
        """Maximum tokens of a row in finetuning.

        Of a checkpoint of pretrain.py, as many as in pretraining. Rotary positions, which have no embeddings to train,
        also work for longer texts: then at least ROTARY_LENGTH. Of others, all positions, but at most 512.
        """
        if not self.run:
            return min(512, self.length)
        if has_learned_positions(self.model):
            return self.length
        return max(ROTARY_LENGTH, self.run["max_length"])

    def length_warnings(self, max_length):
        """[A warning] if a maximum length is more than the positions that were trained, or []."""
        if max_length <= self.length or not has_learned_positions(self.model):
            return []
        return [f"warning: max_length={max_length}, but {self.name!r} was made for texts of at most {self.length} "
                f"tokens, so the embeddings of later positions were not trained. Set max_length={self.length}, for "
                f"longer texts with window_stride={self.length // 2}."]

    def encoder(self):
        """A copy of the encoder, for one run."""
        return copy.deepcopy(self.model.base_model)

    def discriminator(self):
        """A copy of ELECTRA's discriminator; UserError for other models, also for discriminators of other families."""
        if not isinstance(self.model, ElectraForPreTraining):
            raise UserError(f"wsc_trick=True requires a discriminator of the family ELECTRA, which {self.name!r} "
                            f"({self.model.config.model_type}) is not. Leave wsc_trick out, or choose another "
                            f"pretrained_checkpoint.")
        return copy.deepcopy(self.model)


class PretrainedNetwork(NamedTuple):
    """A pretrained network with its trained head.

    part: 'discriminator' (`replaced_logits` of its output) or 'generator' (a masked LM).   run: configuration of
    pretrain.py of a checkpoint; of a folder only the key that selected an objective other than ELECTRA, if any.
    """
    network: nn.Module
    part: str
    hf_tokenizer: PreTrainedTokenizerBase
    run: dict

    @property
    def length(self):
        """`usable_length` of the network."""
        return usable_length(self.network, self.hf_tokenizer, self.run)


def load_pretrained(name, size=None):
    """The Pretrained of a checkpoint or its path, a transformers folder or a hub id; None: Google's model of that size.

    Of a folder with generator/ and discriminator/, it is the latter.
    Raises UserError for a model that is missing, not an encoder, or of another size, unless that is None.
    """
    if name is None:
        size = size or "small"
        if size not in GOOGLE_MODELS:
            raise UserError(f"pretrained_checkpoint=None means Google's model, but there is none with size={size}. "
                            f"Choose one of {', '.join(GOOGLE_MODELS)}, or set pretrained_checkpoint.")
        name = GOOGLE_MODELS[size]
    if name.endswith(".pth"):
        model, _, hf_tokenizer, run = load_with_head(name)
    else:
        if parts := parts_in(name):
            name = os.path.join(name, parts[-1])
        model, hf_tokenizer = _encoder_from_transformers(name)
        run = {}
    _check_size(name, model.config, size)
    size = size or run.get("size") or size_of(model.config)
    return Pretrained(name, model, hf_tokenizer, content_digest(model, hf_tokenizer), size, run)


def sizes_of(config):
    """The recipes whose encoder has the shape of a transformers configuration."""
    shape = (config.num_hidden_layers, config.hidden_size)
    return [size for size, recipe in RECIPES.items() if (recipe.encoder.layers, recipe.encoder.hidden) == shape]


def size_of(config):
    """The recipe for finetuning a network: one of its shape, else the narrowest of the paper's that is not narrower."""
    wide_enough = [size for size in ("small", "base", "large") if RECIPES[size].encoder.hidden >= config.hidden_size]
    return [*sizes_of(config), *wide_enough, "large"][0]


def content_digest(model, hf_tokenizer):
    """Return a hash of the content of a network and its tokenizer.

    It covers the names, shapes and values of all weights, and the settings, such as the number of heads.
    """
    weights = model.state_dict()
    shapes = [(name, tuple(tensor.shape)) for name, tensor in weights.items()]
    settings = {key: value for key, value in model.config.to_diff_dict().items() if key not in _DESCRIPTIONS}
    facts = shapes, json.dumps(settings, sort_keys=True, default=repr), content_of(text_tokenizer(hf_tokenizer))
    return content_key(facts, (tensor.detach().float().contiguous().numpy() for tensor in weights.values()))


def _encoder_from_transformers(name):
    """Return (model, hf_tokenizer) of a folder or a hub id.

    The model has no head or pooler for which there are no trained weights.
    """
    config = _encoder_config(name)
    kind = ElectraForPreTraining if config.model_type == "electra" else AutoModel
    model, untrained, hf_tokenizer = _from_transformers(kind, name)
    for weight in untrained:
        if not weight.startswith(_ABOVE_ENCODER):
            raise UserError(f"The weights of {name!r} lack {weight}, which its config.json requires. Download the "
                            "model again or choose another one.")
    if any(weight.startswith("discriminator_predictions.") for weight in untrained):
        model = model.base_model
    if any(weight.startswith("pooler.") for weight in untrained):
        model.pooler = None
    return model, hf_tokenizer


def _encoder_config(name):
    """The configuration of a folder or a hub id; UserError if it is missing, not an encoder, or has no tokenizer."""
    with as_user_error(f"Cannot load the model {name!r} from a folder or the hub ({{error}}). Pass a transformers "
                       "folder, a hub id such as google/electra-small-discriminator, or a checkpoint of pretrain.py."):
        config = AutoConfig.from_pretrained(name, trust_remote_code=False)
    is_causal = getattr(config, "is_decoder", False)  # [CLS] would see no other token
    if type(config) not in MODEL_FOR_MASKED_LM_MAPPING or config.is_encoder_decoder or is_causal:
        raise UserError(f"{name!r} is a {'causal ' * is_causal}{config.model_type} model, which is not an encoder. "
                        "Choose an ELECTRA, BERT, ALBERT, RoBERTa or similar model.")
    return config


def _from_transformers(kind, name):
    """Return (network, untrained, hf_tokenizer) of a folder or a hub id, with the network in float32.

    untrained: sorted names of the network's weights that are missing or have another shape.
    Checkpoints may be stored in half precision, in which Adam's small updates would be lost. Code that comes with a
    model never runs. Raises UserError also for a tokenizer with tokens for which the network has no embedding.
    """
    with as_user_error(f"Cannot load the weights of {name!r} ({{error}}). Check the connection if they are on the "
                       "hub, download them again, or choose another model."):
        network, report = kind.from_pretrained(
            name, dtype=torch.float32, output_loading_info=True, trust_remote_code=False, ignore_mismatched_sizes=True
        )
    # RoFormer's table of angles is computed; loading makes it trainable
    angles = {key for key in network.state_dict() if key.endswith("encoder.embed_positions.weight")}
    for key in angles:
        network.get_parameter(key).requires_grad = False
    untrained = sorted({*report["missing_keys"], *(key for key, *_ in report["mismatched_keys"])} - angles)
    hf_tokenizer = pretrained_tokenizer(name, "Download the model again or choose another one.")
    n = network.get_input_embeddings().num_embeddings
    if max(hf_tokenizer.get_vocab().values()) >= n:
        raise UserError(f"The tokenizer of {name!r} has {len(hf_tokenizer):,} tokens, but the model has embeddings "
                        f"for {n:,}. Call model.resize_token_embeddings(len(tokenizer)) and save the model again, or "
                        "save the tokenizer of its training in its folder.")
    return network, untrained, hf_tokenizer


def load_with_head(name, part=None):
    """Return the PretrainedNetwork, in evaluation mode, of a checkpoint, a folder or a hub id.

    name: a checkpoint or its path, a transformers folder, a folder with generator/ and discriminator/, or a hub id.
    part: 'discriminator' (of families without ElectraForPreTraining a token classifier of original and replaced),
    'generator' (any masked language model), or None: the discriminator if there is one.
    Raises UserError for a model that is missing, or whose weights lack the head. transformers would initialize the
    head randomly.
    """
    if name.endswith(".pth"):
        path = find_checkpoint(name)
        checkpoint = load_pretraining_checkpoint(path)
        part = _one_of(parts_of(checkpoint), part, name)
        hf_tokenizer = tokenizer_of(checkpoint)
        return PretrainedNetwork(network_of(checkpoint, part, path), part, hf_tokenizer, checkpoint["config"])
    if parts := parts_in(name):
        part = _one_of(parts, part, name)
        name = os.path.join(name, part)
    config = _encoder_config(name)
    part = part or PARTS[any(architecture.endswith(_DISCRIMINATORS) for architecture in config.architectures or [])]
    network, untrained, hf_tokenizer = _from_transformers(network_class(part, config.model_type), name)
    if part == "discriminator" and config.model_type != "electra" and tuple(config.id2label.values()) != LABELS:
        untrained = [f"an output layer with the labels {' and '.join(LABELS)}"]
    if untrained:
        raise UserError(f"{name!r} is not a {part}: it lacks {untrained[0]}. Pass a checkpoint of pretrain.py, a "
                        "folder from export_hf or convert_tf, or a hub id such as "
                        f"google/electra-small-{part}.{_ADVICE[part]}")
    if part == "generator" and hf_tokenizer.mask_token is None:
        raise UserError(f"The tokenizer of {name!r} has no mask token. Save the tokenizer of the masked language "
                        "model in its folder.")
    return PretrainedNetwork(network, part, hf_tokenizer, dict(getattr(config, SELECTED_BY, {})))


def _one_of(parts, part, name):
    """The part that is wanted (None: the last one); UserError if a checkpoint or folder does not have it."""
    part = part or parts[-1]
    if part not in parts:
        raise UserError(f"{name!r} has no {part}, only a {parts[0]}. Pass a generator and a discriminator of one "
                        f"training.{_ADVICE[part]}")
    return part


def load_discriminator(name, size):
    """The PretrainedNetwork of the discriminator of a checkpoint, a folder or a hub id.

    Raises UserError for one that is missing or of another size.
    """
    loaded = load_with_head(name, "discriminator")
    _check_size(name, loaded.network.config, size)
    return loaded


def load_pair(name, size, tying="embeddings"):
    """(generator, discriminator) of a checkpoint, a folder with both, or the hub id of the discriminator.

    Raises UserError as `load_discriminator` and `check_tied_output`, for a missing generator, and for networks that
    were not trained with the parameters that `tying` shares (F24).
    """
    discriminator = load_discriminator(name, size).network
    of_generator = name if name.endswith(".pth") or os.path.isdir(name) else name.replace("discriminator", "generator")
    try:
        generator = load_with_head(of_generator, "generator").network
    except UserError as error:
        raise UserError(f"The generator of {name!r} cannot be used (new_generator=True trains one): {error}") from None
    check_tied_output(generator, name)
    check_trained_together(generator, discriminator, tying, name)
    return generator, discriminator


def check_trained_together(generator, discriminator, tying, name):
    """Raise UserError for trained networks that differ in the parameters that `tying` shares (F24)."""
    for source, target in shared_modules(generator, discriminator, tying):
        for key, value in target.state_dict().items():
            # one may have been stored in half precision
            if not torch.allclose(value, source.state_dict()[key], rtol=.01, atol=1e-4):
                raise UserError(f"The networks of {name!r} were not trained with tying={tying!r}: their {key} differ. "
                                "Set tying as in their training, or pass a generator and a discriminator of one run.")


def check_tied_output(network, name):
    """Raise UserError if a trained masked language model has a separate output layer, which tying would overwrite.

    name: of the model, for the message.
    """
    if not torch.equal(network.get_output_embeddings().weight, network.get_input_embeddings().weight):
        raise UserError(f"The output layer of {name!r} differs from its token embeddings (tie_word_embeddings=False), "
                        "but here they are one matrix. Choose a masked language model that was trained with tied "
                        "embeddings.")


def parts_of(checkpoint):
    """The networks in a pretraining checkpoint: generator and discriminator, or one of them alone.

    Finetuning uses the last one.
    """
    return [part for part in PARTS if f"{part}_config" in checkpoint]


def parts_in(folder):
    """The networks in a folder with generator/ and discriminator/, or with one of them; [] for other folders and ids.
    """
    return [part for part in PARTS if os.path.isdir(os.path.join(folder, part))]


def network_of(checkpoint, part, path):
    """The 'generator' or 'discriminator' of a pretraining checkpoint, with its trained weights, in evaluation mode.

    path: of the checkpoint, for the message of a UserError.
    """
    network = build_network(part, config_of(checkpoint, part, path))
    load_weights(network, with_prefix(checkpoint["model"], f"{part}."), path)
    return network.eval()


def with_prefix(weights, prefix):
    """The entries of a state_dict whose names start with a prefix, without the prefix."""
    return {name.removeprefix(prefix): value for name, value in weights.items() if name.startswith(prefix)}


def config_of(checkpoint, part, path):
    """The transformers configuration of a part of a checkpoint, or of the 'encoder' of a finetuned one."""
    with as_user_error(f"Cannot read the configuration of the {part} in {str(path)!r} ({{error}}). Use another "
                       f"checkpoint."):
        return AutoConfig.for_model(**checkpoint[f"{part}_config"])


def load_weights(network, weights, path):
    """Load a state_dict; UserError with the path of the checkpoint if it does not fit the network."""
    with as_user_error(f"The weights in {str(path)!r} do not fit their configuration ({{error}}). Use another "
                       f"checkpoint.", RuntimeError):
        network.load_state_dict(weights)


def _check_size(name, config, size):
    """Raise UserError for a model with the shape of another recipe, whose learning rates would be wrong."""
    fitting = sizes_of(config)
    if size and fitting and size not in fitting:
        raise UserError(f"{name!r} has {config.num_hidden_layers} layers and hidden size {config.hidden_size}, the "
                        f"shape of size={fitting[0]}, not of size={size}. Set size={fitting[0]}.")


@torch.no_grad()
def add_tokens(networks, old, new):
    """Extend trained networks, in place, from the vocabulary of the tokenizer `old` to that of `new`, which has more.

    The token embedding of a new token, and in a masked language model its output bias, start as the mean of those of
    the pieces into which `old` splits it.
    """
    pieces = pieces_of_new_tokens(old, new)  # lists of ids
    first, size = len(old), len(old) + len(pieces)
    for network in networks if pieces else ():
        if size > network.get_input_embeddings().num_embeddings:
            family = network.config.model_type
            with as_user_error(f"The vocabulary of a {family} model cannot be extended ({{error}}). Leave out vocab."):
                network.resize_token_embeddings(size, mean_resizing=False)
        output = network.get_output_embeddings()
        tables = [network.get_input_embeddings().weight, *(output.parameters() if output else ())]
        for table in tables:  # tied weights occur twice, which changes nothing
            table[first:size] = torch.stack([table[ids].mean(0) for ids in pieces])
