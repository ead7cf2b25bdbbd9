"""Pretrained encoders to finetune, from pretraining checkpoints, transformers folders or the hub."""
import copy
import os
from typing import NamedTuple

from torch import nn
from transformers import AutoConfig, AutoModel, AutoTokenizer, ElectraForPreTraining, PreTrainedTokenizerBase
from transformers.models.auto.modeling_auto import MODEL_FOR_MASKED_LM_MAPPING

from _utils.content_key import content_key
from _utils.errors import PlainError, as_plain_error
from _utils.networks.build import check_length
from _utils.networks.loading import check_size, folder_or_hub, load_from_transformers, network_of, parts_of
from _utils.pretraining_data.vocabulary import check_has_tokenizer, tokenizer_from_json
from _utils.run_files.checkpoints import find_checkpoint, load_pretraining_checkpoint

# The meaning of pretrained_checkpoint=None: Google's released models. The small one is ELECTRA-Small++.
GOOGLE_MODELS = {"small": "google/electra-small-discriminator", "small++": "google/electra-small-discriminator",
                 "base": "google/electra-base-discriminator", "large": "google/electra-large-discriminator"}


class Pretrained(NamedTuple):
    """A pretrained model to finetune.

    model: the encoder, or ELECTRA's discriminator, whose head the WSC trick needs.   digest: hash of the weights.
    """
    name: str
    model: nn.Module
    hf_tokenizer: PreTrainedTokenizerBase
    digest: str

    def encoder(self):
        """A copy of the encoder, for one run."""
        return copy.deepcopy(self.model.base_model)

    def discriminator(self):
        """A copy of ELECTRA's discriminator; PlainError for other models."""
        if not isinstance(self.model, ElectraForPreTraining):
            raise PlainError(f"wsc_trick=True requires ELECTRA's discriminator, but {self.name!r} is a {self.model.config.model_type} "
                             "model without it. Leave wsc_trick out, or choose another pretrained_checkpoint.")
        return copy.deepcopy(self.model)


def load_pretrained(name, size, max_length, folder="checkpoints/pretrain"):
    """The Pretrained of a checkpoint in `folder`, a path, a transformers folder or a hub id; None: Google's model of that size.

    Raises PlainError for a model that is missing, not an encoder, of another size, or too short for max_length tokens.
    """
    if name is None and size not in GOOGLE_MODELS:
        raise PlainError(f"pretrained_checkpoint=None means Google's model, but there is none with size={size}. Choose one of "
                         f"{', '.join(GOOGLE_MODELS)}, or set pretrained_checkpoint.")
    name = name or GOOGLE_MODELS[size]
    if name.endswith(".pth"):
        model, hf_tokenizer = _from_checkpoint(find_checkpoint(name, folder), size)
    else:
        model, hf_tokenizer = _from_transformers(name)
        check_size(name, model.config, size)
    check_length(model, max_length, repr(name))
    return Pretrained(name, model, hf_tokenizer, _digest(model))


def _digest(model):
    weights = model.state_dict()
    shapes = [(name, tuple(tensor.shape)) for name, tensor in weights.items()]
    return content_key(shapes, (tensor.detach().float().contiguous().numpy() for tensor in weights.values()))


def _from_checkpoint(path, size):
    """(model, hf_tokenizer) of a pretraining checkpoint; PlainError for another size."""
    checkpoint = load_pretraining_checkpoint(path)
    trained_size = checkpoint["config"].get("size")
    if trained_size != size:
        raise PlainError(f"{str(path)!r} was pretrained with size={trained_size}, not size={size}. Set size={trained_size}.")
    return network_of(checkpoint, parts_of(checkpoint)[-1], path), tokenizer_from_json(checkpoint["tokenizer"])


def _from_transformers(name):
    """(model, hf_tokenizer) of a folder or a hub id, without a head or pooler for which there are no trained weights."""
    config = _encoder_config(name)
    kind = ElectraForPreTraining if config.model_type == "electra" else AutoModel
    with as_plain_error(f"Cannot load the model {name!r} from the {folder_or_hub(name)} ({{error}}): its weights or its tokenizer are "
                        "missing. Download it again or choose another model."):
        model, report = load_from_transformers(kind, name)
        hf_tokenizer = AutoTokenizer.from_pretrained(name, trust_remote_code=False)
    missing = " ".join(report["missing_keys"])  # transformers initialized them randomly
    if "discriminator_predictions." in missing:
        model = model.base_model
    if "pooler." in missing:
        model.pooler = None
    if not hf_tokenizer.is_fast or hf_tokenizer.pad_token is None:
        raise PlainError(f"The tokenizer of {name!r} has no fast version or no padding token. Choose another model.")
    hf_tokenizer.backend_tokenizer.no_padding()  # both settings can be part of a saved tokenizer
    hf_tokenizer.backend_tokenizer.no_truncation()
    return model, hf_tokenizer


def _encoder_config(name):
    """The configuration of a folder or a hub id; PlainError if it is missing, not an encoder, or has no tokenizer."""
    if os.path.isdir(os.path.join(name, "discriminator")):
        raise PlainError(f"{name!r} contains two networks. Set pretrained_checkpoint={os.path.join(name, 'discriminator')!r}.")
    if name.startswith((".", "/", "~")) and not os.path.isdir(name):
        raise PlainError(f"Folder not found: {name!r}. Pass the folder of a transformers model, a hub id, or a checkpoint of pretrain.py.")
    with as_plain_error(f"Cannot load the model {name!r} from the {folder_or_hub(name)} ({{error}}). Pass a hub id, a transformers "
                        "folder or a checkpoint in checkpoints/pretrain/, or try python finetune.py quickstart=True."):
        config = AutoConfig.from_pretrained(name, trust_remote_code=False)
    if type(config) not in MODEL_FOR_MASKED_LM_MAPPING or config.is_encoder_decoder:
        raise PlainError(f"{name!r} is a {config.model_type} model, which is not an encoder. Choose an ELECTRA, BERT, ALBERT, RoBERTa or "
                         "similar model.")
    if os.path.isdir(name):
        check_has_tokenizer(name)
    return config
