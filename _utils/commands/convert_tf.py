"""Convert Google's TensorFlow checkpoints to transformers folders: `python -m _utils convert_tf`."""
import json
import re
from pathlib import Path

import torch

from _utils.commands.export_hf import TRAINING, new_folder, read_vocab, save_network
from _utils.commands.tf_checkpoint import TFCheckpoint
from _utils.errors import PlainError, as_plain_error
from _utils.networks.build import PARTS, build_network
from _utils.recipes import RECIPES, config_from_shapes, electra

# Settings in Google's model_hparam_overrides that are copied to the configuration.
_COPIED_SETTINGS = ("hidden_act", "hidden_dropout_prob", "attention_probs_dropout_prob", "max_position_embeddings", "type_vocab_size",
                    "initializer_range")


def convert_tf(
    ckpt_prefix,   # name of the checkpoint without its extension, such as electra_small/electra_small
    out_dir,       # a new or empty folder
    *,
    part: PARTS,   # the network to convert
    hparams=None,  # the hparams of run_pretraining.py, JSON or a file with it; default: sizes from the shapes, attention heads of size 64
    vocab=None,    # a vocab.txt for the tokenizer; default: that next to the checkpoint
):
    """Convert Google's TensorFlow checkpoint to a transformers folder.

    Sizes follow from the shapes, with attention heads of size 64 as in all models that Google released. For other sizes pass --hparams
    with the value that Google's run_pretraining.py received, for example
    '{"model_size": "small", "model_hparam_overrides": {"num_attention_heads": 8}}', or a file that contains it. To continue pretraining,
    convert both parts to PAIR/generator and PAIR/discriminator and run python pretrain.py initial_weights=PAIR ...
    """
    given = hparams and read_hparams(hparams)
    vocab = vocab or next(Path(ckpt_prefix).parent.glob("vocab.txt"), None)
    with new_folder(out_dir) as folder:
        network, step = convert(ckpt_prefix, part, given)
        config = network.config
        save_network(folder, network, vocab and read_vocab(vocab, config.vocab_size), f"ELECTRA, {part}", TRAINING[part],
                     {"converted from": Path(ckpt_prefix).name, "step": step})
    print(f"{out_dir}: {config.num_hidden_layers} layers x {config.hidden_size}, {config.num_attention_heads} heads")
    if given is None:
        print("The attention heads have size 64. If those of the checkpoint have another size, pass --hparams.")
    if vocab is None:
        print("The folder has no tokenizer, because there is no vocab.txt next to the checkpoint. Pass --vocab to add one.")


def convert(prefix, part, hparams=None):
    """(network, step) of a checkpoint, in float32: ElectraForMaskedLM for 'generator', ElectraForPreTraining for 'discriminator'.

    hparams: Google's, a dictionary; None: sizes from the shapes. Raises PlainError for a missing or unexpected variable or a wrong
    shape.
    """
    checkpoint = TFCheckpoint(prefix)
    variables, names = checkpoint.entries, Names(part, checkpoint.entries)
    if hparams is None:
        config = _config_from_shapes(variables, names, prefix)
    else:
        with as_plain_error("Invalid --hparams ({error}). Pass the value that run_pretraining.py received."):
            config = configs_from_hparams(hparams)[part]
    network, weights = build_network(part, config), {}
    for name, parameter in network.named_parameters():  # those that it ties appear once
        variable = names.google(name)
        if variable not in variables:
            raise PlainError(f"The {part} in {str(prefix)!r} lacks the variable {variable}. Choose another --part or checkpoint.")
        value = torch.tensor(checkpoint.read(variable))
        weights[name] = value.T if variable.endswith("/kernel") else value
        if weights[name].shape != parameter.shape:
            raise PlainError(f"The variable {variable} in {str(prefix)!r} has the shape {tuple(value.shape)}, which does not fit the other "
                             "sizes. Pass the --hparams of the training.")
    for name in sorted(set(variables) - set(map(names.google, weights))):
        if names.is_unexpected(name):
            raise PlainError(f"Unexpected variable in {str(prefix)!r}: {name}. Pass the --hparams of the training, or choose a pretrained "
                             "checkpoint of Google's ELECTRA.")
    network.load_state_dict(weights, strict=False)
    network.tie_weights()
    return network.eval(), int(checkpoint.read("global_step")) if "global_step" in variables else None


class Names:
    """Google's names (F24-F28, variables.json) of the parameters of a part, in a checkpoint with the given variable names.

    The generator uses the discriminator's embeddings unless it has its own (untied_generator_embeddings). A checkpoint without a
    generator (untied_generator or electra_objective false) has a single encoder, which is also the generator's.
    """

    def __init__(self, part, variables):
        has = lambda scope: any(name.startswith(scope) for name in variables)
        self.part = part
        self.encoder = "generator" if part == "generator" and has("generator/") else "electra"
        self.embeddings = "generator" if part == "generator" and has("generator/embeddings/word_embeddings") else "electra"

    def is_unexpected(self, variable):
        """Whether an unused variable is a weight of this part or of a finetuned model. Adam's moments are variables, too."""
        scopes = f"{self.encoder}/(embeddings_project|encoder)/|{self.embeddings}/embeddings/|{self.part}_predictions/|task_specific/"
        return re.match(scopes, variable) and not re.search("/adam_[mv]$", variable)

    def google(self, name):
        """Google's name of the parameter `name` of ElectraForMaskedLM or ElectraForPreTraining."""
        if name == "generator_lm_head.bias":
            return "generator_predictions/output_bias"
        scope = self.embeddings if ".embeddings." in name else self.encoder
        for pattern, replacement in ((r"dense_prediction\.", "dense_1."), (r"^electra\.", f"{scope}."), (r"\.layer\.(\d+)\.", r".layer_\1."),
                                     (r"LayerNorm\.weight", "LayerNorm.gamma"), (r"LayerNorm\.bias", "LayerNorm.beta"),
                                     (r"_embeddings\.weight$", "_embeddings"), (r"\.weight$", ".kernel"), (r"\.", "/")):
            name = re.sub(pattern, replacement, name)
        return name


def _config_from_shapes(variables, names, prefix):
    """The ElectraConfig of a part of a checkpoint. Raises PlainError if it is not in the shapes."""
    def shape_of(name):
        variable = names.google(name)
        entry = variables.get(variable)
        return entry and (entry.shape[::-1] if variable.endswith("/kernel") else entry.shape)

    with as_plain_error(f"{str(prefix)!r} lacks a parameter ({{error}}). Choose a checkpoint of ELECTRA, or another --part.", KeyError):
        config = config_from_shapes(shape_of)
    if config.hidden_size % 64:
        raise PlainError(f"The hidden size of the {names.part} in {str(prefix)!r} is {config.hidden_size}, not a multiple of 64, so the "
                         "number of attention heads is unknown. Pass --hparams with the value that run_pretraining.py received.")
    return config


def read_hparams(text):
    """The value of --hparams: JSON or the name of a JSON file. Raises PlainError for anything else."""
    with as_plain_error(f"--hparams {text!r} is neither JSON nor the name of a JSON file ({{error}}). Pass the value that "
                        "run_pretraining.py received.", (OSError, ValueError)):
        return json.loads(text if text.lstrip().startswith("{") else Path(text).read_text())


def configs_from_hparams(hparams):
    """{'generator': ElectraConfig, 'discriminator': ...} of Google's hparams (configure_pretraining.py, run_pretraining.py, F26)."""
    size, overrides = hparams.get("model_size", "small"), hparams.get("model_hparam_overrides", {})
    default = RECIPES[size].discriminator
    layers, hidden = overrides.get("num_hidden_layers", default.layers), overrides.get("hidden_size", default.hidden)
    networks = electra(layers, hidden, overrides.get("num_attention_heads", max(1, hidden // 64)),
                       overrides.get("intermediate_size", 4 * hidden), hparams.get("embedding_size") or (128 if size == "small" else hidden),
                       hparams.get("generator_hidden_size", .25), round(layers * hparams.get("generator_layers", 1.)))
    configs = {part: network.config(hparams.get("vocab_size", 30522)) for part, network in zip(PARTS, networks)}
    if hparams.get("untied_generator_embeddings"):
        configs["generator"].embedding_size = configs["generator"].hidden_size
    for config in configs.values():
        config.update({name: overrides[name] for name in _COPIED_SETTINGS if name in overrides})
    has_own_generator = hparams.get("untied_generator", True) and hparams.get("electra_objective", True)
    return configs if has_own_generator else dict.fromkeys(PARTS, configs["discriminator"])
