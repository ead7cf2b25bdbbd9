"""Convert Google's TensorFlow checkpoints to transformers folders: `python -m _utils convert_tf`."""
import json
import re
from pathlib import Path

import torch
from safetensors.torch import save_file
from transformers import PreTrainedModel

from _utils.commands.export_hf import new_folder, read_vocab, save_network
from _utils.commands.tf_checkpoint import open_variables
from _utils.errors import UserError, as_user_error
from _utils.networks.build import build_network
from _utils.networks.pretrained import SELECTED_BY
from _utils.objectives.registry import objective_of
from _utils.optim import MOMENTS_FILE
from _utils.recipes import HEAD_SIZE, config_from_shapes

# Settings in Google's model_hparam_overrides that shapes do not show.
_COPIED_SETTINGS = "hidden_act hidden_dropout_prob attention_probs_dropout_prob initializer_range".split()
# Names in transformers and Google's.
_RENAMED = {
    r"dense_prediction\.": "dense_1.",
    r"\.layer\.(\d+)\.": r".layer_\1.",
    "LayerNorm.weight": "LayerNorm.gamma",
    "LayerNorm.bias": "LayerNorm.beta",
    "_embeddings.weight$": "_embeddings",
    r"\.weight$": ".kernel",
    r"\.": "/",
}
_SLOTS = {"exp_avg": "/adam_m", "exp_avg_sq": "/adam_v"}  # Adam's moments in PyTorch, and the ends of Google's names


def convert_tf(ckpt_prefix, out_dir, *, part, hparams=None, vocab=None):
    """Convert Google's TensorFlow checkpoint to a transformers folder. Arguments as in `_utils/__main__.py`."""
    with as_user_error(f"--hparams {hparams!r} is neither a JSON object nor a file with one ({{error}}). Pass the "
                       "value that run_pretraining.py received.", (OSError, ValueError, TypeError)):
        given = hparams and dict(json.loads(hparams if hparams.lstrip().startswith("{") else Path(hparams).read_text()))
    vocab = vocab or next(Path(ckpt_prefix).parent.glob("vocab.txt"), None)
    with new_folder(out_dir) as folder:
        network, step = convert(ckpt_prefix, part, given)
        moments, config = moments_of(network, ckpt_prefix, part), network.config
        length = trained_positions(moments, given, config)
        hf_tokenizer = vocab and read_vocab(vocab, config.vocab_size)
        if hf_tokenizer:
            hf_tokenizer.model_max_length = length
        title = objective_of(getattr(config, SELECTED_BY, {})).title or part
        save_network(folder, network, hf_tokenizer, f"ELECTRA, {title}", "by Google's code",
                     {"converted from": Path(ckpt_prefix).name, "step": step})
        if moments:
            save_file(moments, folder / MOMENTS_FILE)
    print(f"{out_dir}: {config.num_hidden_layers} layers x {config.hidden_size}, {config.num_attention_heads} heads, "
          f"for texts of {length} tokens, {'with' if moments else 'without'} Adam's moments")
    if given is None:
        print(f"The attention heads have size {HEAD_SIZE}. If those of the checkpoint have another size, delete "
              f"{out_dir} and convert again with --hparams.")
    if vocab is None:
        print("The folder has no tokenizer, because there is no vocab.txt next to the checkpoint. To add one, delete "
              f"{out_dir} and convert again with --vocab.")


def trained_positions(moments, hparams, config):
    """The number of tokens of the longest text in pretraining.

    It is that of positions whose embeddings had gradients, else that of Google's hparams, whose default is 128 (F26);
    without moments and hparams, as of released checkpoints, all positions.
    """
    squares = moments.get("electra.embeddings.position_embeddings.weight.exp_avg_sq")
    if squares is not None:
        return int(squares.any(1).sum())
    if hparams is None:
        return config.max_position_embeddings
    return hparams.get("max_seq_length", 128)


def convert(prefix: str, part: str, hparams: dict | None = None) -> tuple[PreTrainedModel, int]:
    """Return (network, step) of one part of a checkpoint, in float32.

    The network is an ElectraForMaskedLM for 'generator', an ElectraForPreTraining for 'discriminator'.
    hparams: Google's, a dictionary.   Raises UserError for a missing variable, and, without hparams, for a hidden size
    that heads of HEAD_SIZE do not divide.
    """
    variables = open_variables(prefix)
    try:
        network = build_network(part, _config(part, variables, hparams))
        for name, parameter in network.named_parameters():
            parameter.data.copy_(_values(variables, google_name(name, part, variables)))
    except KeyError as error:
        raise UserError(f"Cannot find the {part} in {str(prefix)!r}, which lacks the variable {error}. Choose another "
                        "--part, or a pretrained checkpoint of Google's ELECTRA.") from None
    return network.eval(), int(variables["global_step"].read()) if "global_step" in variables else None


def moments_of(network, prefix, part):
    """Return Adam's moments of a network's parameters, as in `MOMENTS_FILE`.

    Checkpoints without moments, such as those that Google released, give {}.
    """
    variables = open_variables(prefix)
    return {f"{name}.{key}": _values(variables, variable, slot)
            for name, _ in network.named_parameters() for variable in [google_name(name, part, variables)]
            for key, slot in _SLOTS.items() if variable + slot in variables}


def _values(variables, name, slot=""):
    """The values of a variable, or of one of its moments, in the orientation of PyTorch's weights."""
    value = torch.tensor(variables[name + slot].read())
    return value.T.contiguous() if name.endswith("/kernel") else value


def google_name(name, part, variables):
    """Google's name (F24-F28, variables.json) of a parameter of ElectraForMaskedLM or ElectraForPreTraining.

    variables: names in the checkpoint. The generator uses the discriminator's embeddings unless it has its own
    (untied_generator_embeddings). A checkpoint without a generator (untied_generator or electra_objective false) has a
    single encoder, which is also the generator's. Two towers (F98) are not converted: their names are not found.
    """
    if name == "generator_lm_head.bias":
        return "generator_predictions/output_bias"
    own = "generator/embeddings/word_embeddings" if ".embeddings." in name else ("generator/encoder/", "generator_ltr/")
    if part == "generator" and any(variable.startswith(own) for variable in variables):
        name = re.sub("^electra", "generator", name)
    for pattern, replacement in _RENAMED.items():
        name = re.sub(pattern, replacement, name)
    return name


def _config(part, variables, hparams):
    """The ElectraConfig of a part.

    Sizes follow from the shapes, other settings from Google's hparams or the defaults (F26).
    """
    def shape_of(name):
        variable = google_name(name, part, variables)
        return variables[variable].shape[::-1 if variable.endswith("/kernel") else 1]

    given = hparams or {}  # some users write the sizes outside of the overrides
    config, overrides = config_from_shapes(shape_of), given | given.get("model_hparam_overrides", {})
    if hparams is None and config.hidden_size % HEAD_SIZE:
        raise UserError(f"The hidden size of the {part} is {config.hidden_size}, not a multiple of {HEAD_SIZE}, so "
                        "the number of attention heads is unknown. Pass --hparams with the value that "
                        "run_pretraining.py received.")
    # heads of a generator always have HEAD_SIZE
    if google_name("electra.encoder.", part, variables).startswith("electra"):
        config.num_attention_heads = overrides.get("num_attention_heads", config.num_attention_heads)
    config.update({name: overrides[name] for name in _COPIED_SETTINGS if name in overrides})
    if overrides.get("electric_objective"):
        config.update({SELECTED_BY: {"objective": "electric"}})
    return config
