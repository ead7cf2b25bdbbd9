"""Convert Google's TensorFlow checkpoint to a transformers folder: `python -m _utils convert_tf CKPT_PREFIX --part PART OUT_DIR`.

CKPT_PREFIX is the name of the checkpoint without its extension, such as electra_small/electra_small. Sizes follow from the shapes,
with attention heads of size 64 as in all models that Google released. For other sizes pass --hparams with the value that Google's
run_pretraining.py received, for example '{"model_size": "small", "model_hparam_overrides": {"num_attention_heads": 8}}', or a file that
contains it. A vocab.txt next to the checkpoint, or --vocab, becomes the tokenizer. To continue pretraining, convert both parts to
PAIR/generator and PAIR/discriminator and run python pretrain.py initial_weights=PAIR ...
"""
import argparse
import json
import re
from pathlib import Path

import torch

from _utils.commands.export_hf import TRAINING, new_folder, read_vocab, save_network
from _utils.commands.tf_checkpoint import TFCheckpoint
from _utils.errors import PlainError, as_plain_error
from _utils.networks.build import PARTS, build_network
from _utils.recipes import RECIPES, config_from_shapes, electra

# Adam's moments and the step are variables too.
_NOT_WEIGHTS = re.compile(r"/adam_[mv]$|^global_step$")
_ELECTRA_SCOPES = re.compile("(electra|generator)/(embeddings|embeddings_project|encoder)/|(generator|discriminator)_predictions/")
# Settings in Google's model_hparam_overrides that are copied to the configuration.
_COPIED_SETTINGS = ("hidden_act", "hidden_dropout_prob", "attention_probs_dropout_prob", "max_position_embeddings", "type_vocab_size",
                    "initializer_range")
# Settings in Google's configure_pretraining.py that determine shapes.
_HPARAMS = {"model_size", "model_hparam_overrides", "embedding_size", "vocab_size", "generator_hidden_size", "generator_layers",
            "untied_generator", "untied_generator_embeddings", "electra_objective"}


class Names:
    """Google's names (F24-F28, variables.json) of the parameters of a part, in a checkpoint with the given variable names.

    The generator uses the discriminator's embeddings unless it has its own (untied_generator_embeddings). A checkpoint without a
    generator (untied_generator or electra_objective false) has a single encoder, which is also the generator's.
    """

    def __init__(self, part, variables):
        is_generator = part == "generator"
        has_encoder = any(name.startswith("generator/") for name in variables)
        has_embeddings = "generator/embeddings/word_embeddings" in variables
        self.part = part
        self.encoder = "generator" if is_generator and has_encoder else "electra"
        self.embeddings = "generator" if is_generator and has_embeddings else "electra"
        self._scopes = re.compile(f"{self.encoder}/(embeddings_project|encoder)/|{self.embeddings}/embeddings/|{part}_predictions/")

    def is_of_part(self, variable):
        """Check whether a variable is in one of the scopes of this part."""
        return bool(self._scopes.match(variable))

    def google(self, name):
        """Google's name of the parameter `name` of ElectraForMaskedLM or ElectraForPreTraining."""
        if name == "generator_lm_head.bias":
            return "generator_predictions/output_bias"
        name = name.replace("dense_prediction.", "dense_1.")
        scope = self.embeddings if ".embeddings." in name else self.encoder
        name = re.sub(r"^electra\.", f"{scope}.", name)
        name = re.sub(r"\.layer\.(\d+)\.", r".layer_\1.", name)
        name = name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta")
        name = re.sub(r"_embeddings\.weight$", "_embeddings", name)
        return re.sub(r"\.weight$", ".kernel", name).replace(".", "/")


def convert(prefix, part, hparams=None):
    """(network, step) of a checkpoint, in float32: ElectraForMaskedLM for 'generator', ElectraForPreTraining for 'discriminator'.

    hparams: Google's, a dictionary; None: sizes from the shapes. Raises PlainError for a missing or unexpected variable or a wrong
    shape.
    """
    checkpoint = TFCheckpoint(prefix)
    names = Names(part, checkpoint.entries)
    network = _fresh_network(checkpoint, names, prefix, hparams)
    weights = _read_weights(checkpoint, names, network, prefix)
    _check_unused(set(checkpoint.entries) - set(map(names.google, weights)), names, prefix)
    network.load_state_dict(weights, strict=False)
    network.tie_weights()
    step = int(checkpoint.read("global_step")) if "global_step" in checkpoint.entries else None
    return network.eval(), step


def _fresh_network(checkpoint, names, prefix, hparams):
    if hparams is None:
        return build_network(names.part, _config_from_shapes(checkpoint, names, prefix))
    with as_plain_error("Invalid --hparams ({error}). Pass the value that run_pretraining.py received."):
        config = configs_from_hparams(hparams)[names.part]
    try:
        return build_network(names.part, config)
    except PlainError as error:
        raise PlainError(f"Invalid --hparams. {error}") from error


def _config_from_shapes(checkpoint, names, prefix):
    def shape_of(name):
        variable = names.google(name)
        entry = checkpoint.entries.get(variable)
        return entry and (entry.shape[::-1] if variable.endswith("/kernel") else entry.shape)

    try:
        config = config_from_shapes(shape_of)
    except KeyError as error:
        raise PlainError(f"{str(prefix)!r} lacks the variable {names.google(error.args[0])}. Choose a checkpoint of ELECTRA, or another "
                         "--part.") from None
    if config.hidden_size % 64:
        raise PlainError(f"The hidden size of the {names.part} in {str(prefix)!r} is {config.hidden_size}, not a multiple of 64, so the "
                         "number of attention heads is unknown. Pass --hparams with the value that run_pretraining.py received.")
    return config


def _read_weights(checkpoint, names, network, prefix):
    """{parameter name: tensor} of a network; parameters that it ties appear once."""
    weights = {}
    for name, parameter in network.named_parameters():
        variable = names.google(name)
        if variable not in checkpoint.entries:
            raise PlainError(f"The {names.part} in {str(prefix)!r} lacks the variable {variable}. Choose another --part or checkpoint.")
        value = torch.tensor(checkpoint.read(variable))
        weights[name] = value.T if variable.endswith("/kernel") else value
        if weights[name].shape != parameter.shape:
            raise PlainError(f"The variable {variable} in {str(prefix)!r} has the shape {tuple(value.shape)}, which does not fit the other "
                             "sizes. Pass the --hparams of the training.")
    return weights


def _check_unused(variables, names, prefix):
    """PlainError for an unused variable of this part or of a finetuned model. Others are printed."""
    for name in sorted(name for name in variables if not _NOT_WEIGHTS.search(name)):
        if names.is_of_part(name):
            raise PlainError(f"Unexpected variable in the {names.part} of {str(prefix)!r}: {name}. Pass the --hparams of the training, or "
                             "choose a checkpoint of Google's ELECTRA.")
        if name.startswith("task_specific/"):
            raise PlainError(f"Unexpected variable in {str(prefix)!r}: {name}. The model was finetuned; convert the pretrained checkpoint.")
        if not _ELECTRA_SCOPES.match(name):
            print(f"Skipping the variable {name} of {prefix}")


def configs_from_hparams(hparams):
    """{'generator': ElectraConfig, 'discriminator': ...} of Google's hparams (configure_pretraining.py, run_pretraining.py, F26).

    Raises ValueError for an unknown model_size.
    """
    generator, discriminator = _networks_from_hparams(hparams)
    overrides, vocab_size = hparams.get("model_hparam_overrides", {}), hparams.get("vocab_size", 30522)
    configs = {"generator": generator.config(vocab_size), "discriminator": discriminator.config(vocab_size)}
    if hparams.get("untied_generator_embeddings"):
        configs["generator"].embedding_size = configs["generator"].hidden_size
    for config in configs.values():
        config.update({name: overrides[name] for name in _COPIED_SETTINGS if name in overrides})
    has_own_generator = hparams.get("untied_generator", True) and hparams.get("electra_objective", True)
    return configs if has_own_generator else dict.fromkeys(PARTS, configs["discriminator"])


def _networks_from_hparams(hparams):
    size, overrides = hparams.get("model_size", "small"), hparams.get("model_hparam_overrides", {})
    if size not in ("small", "base", "large"):
        raise ValueError(f"model_size={size!r} is not one of small, base, large")
    default = RECIPES[size].discriminator
    layers, hidden = overrides.get("num_hidden_layers", default.layers), overrides.get("hidden_size", default.hidden)
    return electra(layers, hidden, overrides.get("num_attention_heads", max(1, hidden // 64)),
                   overrides.get("intermediate_size", 4 * hidden),
                   hparams.get("embedding_size") or (128 if size == "small" else hidden),
                   hparams.get("generator_hidden_size", .25), round(layers * hparams.get("generator_layers", 1.)))


def read_hparams(text):
    """The dictionary of --hparams: JSON or the name of a JSON file. Raises PlainError for anything else."""
    with as_plain_error(f"--hparams {text!r} is neither JSON nor the name of a JSON file ({{error}}). Pass the value that "
                        "run_pretraining.py received.", (OSError, ValueError)):
        hparams = json.loads(text if text.lstrip().startswith("{") else Path(text).read_text())
    if not isinstance(hparams, dict) or not _HPARAMS & set(hparams):
        raise PlainError(f"--hparams {text!r} contains none of the keys {', '.join(sorted(_HPARAMS))}. Pass the value that "
                         "run_pretraining.py received.")
    return hparams


def main(arguments=None):
    options = _parse_arguments(arguments)
    hparams = None if options.hparams is None else read_hparams(options.hparams)
    vocab = options.vocab or next(Path(options.prefix).parent.glob("vocab.txt"), None)
    with new_folder(options.out_dir) as folder:
        network, step = convert(options.prefix, options.part, hparams)
        config = network.config
        save_network(network, read_vocab(vocab, config.vocab_size) if vocab else None, folder, f"ELECTRA, {options.part}",
                     TRAINING[options.part], {"converted from": Path(options.prefix).name, "step": step})
    print(f"{options.out_dir}: {config.num_hidden_layers} layers x {config.hidden_size}, {config.num_attention_heads} heads")
    if hparams is None:
        print("The attention heads have size 64. If those of the checkpoint have another size, pass --hparams.")
    if vocab is None:
        print("The folder has no tokenizer, because there is no vocab.txt next to the checkpoint. Pass --vocab to add one.")


def _parse_arguments(arguments):
    parser = argparse.ArgumentParser(prog="python -m _utils convert_tf", description=__doc__.split("\n")[0])
    parser.add_argument("prefix", metavar="CKPT_PREFIX", help="name without extension, such as electra_small/electra_small")
    parser.add_argument("--part", choices=PARTS, required=True)
    parser.add_argument("out_dir", metavar="OUT_DIR", help="a new or empty folder")
    parser.add_argument("--hparams", metavar="JSON", help="the hparams of run_pretraining.py, or a file with them")
    parser.add_argument("--vocab", metavar="VOCAB_TXT", help="default: the vocab.txt next to the checkpoint")
    return parser.parse_args(arguments)
