"""Google's TensorFlow checkpoint to a transformers folder: `python -m _utils.convert_tf CKPT_PREFIX --part discriminator OUT_DIR`.

CKPT_PREFIX is the checkpoint's name without its ending, as electra_small/model.ckpt-4000000. Sizes are told from the shapes, and heads
are taken to be 64 wide, as in all models that Google released; --hparams gives them for others: what Google's run_pretraining.py
got, as '{"model_size": "small", "model_hparam_overrides": {"num_attention_heads": 8}}', or a file of that. A vocab.txt beside the
checkpoint, or --vocab, becomes the folder's tokenizer. Convert both parts to PAIR/generator and PAIR/discriminator to go on
pretraining: python pretrain.py initial_weights=PAIR ...
"""
import argparse
import json
import re
from pathlib import Path

import torch
import transformers

from _utils.convert_tf.tf_checkpoint import TFCheckpoint
from _utils.errors import PlainError, first_line
from _utils.export_hf import TRAINED_BY, card, new_folder, save_network
from _utils.networks.build import PARTS, build_network
from _utils.pretraining_data.vocabulary import from_vocab_file
from _utils.recipes import config_from_shapes, electra

# Adam's moments and the step stand beside the weights.
_NOT_WEIGHTS = re.compile(r"/adam_[mv]$|^global_step$")
_SCOPES = re.compile("(electra|generator)/(embeddings|embeddings_project|encoder)/|(generator|discriminator)_predictions/")
# Settings of Google's model_hparam_overrides that are no sizes.
_PLAIN_SETTINGS = ("hidden_act", "hidden_dropout_prob", "attention_probs_dropout_prob", "max_position_embeddings", "type_vocab_size",
                   "initializer_range")
# Those of its configure_pretraining.py that decide about shapes.
_HPARAMS = {"model_size", "model_hparam_overrides", "embedding_size", "vocab_size", "generator_hidden_size", "generator_layers",
            "untied_generator", "untied_generator_embeddings", "electra_objective"}


class Names:
    """Google's names (F24-F28, variables.json) for the parameters of a part, in the checkpoint that has the variables `there`.

    The generator's embeddings are the discriminator's, unless they are its own (untied_generator_embeddings); a checkpoint without
    generator (untied_generator or electra_objective false) has one encoder, which serves as generator too.
    """

    def __init__(self, part, there):
        self.part, own = part, part == "generator"
        self.encoder = "generator" if own and any(name.startswith("generator/") for name in there) else "electra"
        self.embeddings = "generator" if own and "generator/embeddings/word_embeddings" in there else "electra"
        self._of_part = re.compile(f"{self.encoder}/(embeddings_project|encoder)/|{self.embeddings}/embeddings/|{part}_predictions/")

    def is_of_part(self, google):
        """Whether a variable stands where those of this part do."""
        return bool(self._of_part.match(google))

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
    """(network, step) of a checkpoint: ElectraForMaskedLM for 'generator' or ElectraForPreTraining for 'discriminator', in float32.

    hparams: Google's, a dictionary; None: sizes from the shapes. Raises PlainError naming a variable that is missing, unexpected or
    of another shape.
    """
    checkpoint = TFCheckpoint(prefix)
    there = checkpoint.entries
    names = Names(part, there)
    network = _fresh_network(part, names, there, prefix, hparams)
    weights = {}
    for name, parameter in network.named_parameters():  # which gives a tied one once
        google = names.google(name)
        if google not in there:
            raise PlainError(f"the {part} of {prefix!r} lacks the variable {google}: choose another --part or checkpoint.")
        value = torch.tensor(checkpoint.read(google))
        weights[name] = value.T if google.endswith("/kernel") else value
        if weights[name].shape != parameter.shape:
            raise PlainError(f"the variable {google} of {prefix!r} has the shape {tuple(value.shape)}, which does not fit "
                             + ("the others: it is damaged." if hparams is None else
                                "--hparams: give those that it was trained with, or leave them out."))
    _check_unexpected(set(there) - set(map(names.google, weights)), names, prefix, hparams)
    network.load_state_dict(weights, strict=False)
    network.tie_weights()
    return network.eval(), int(checkpoint.read("global_step")) if "global_step" in there else None


def _fresh_network(part, names, there, prefix, hparams):
    config = _config_from_checkpoint(names, there, prefix) if hparams is None else None
    if config is not None and config.hidden_size % 64:
        raise PlainError(f"the {part} of {prefix!r} is {config.hidden_size} wide, which cannot be heads of 64: give as --hparams what "
                         "run_pretraining.py got.")
    try:
        config = config or configs_from_hparams(hparams)[part]
        return build_network(part, config)
    except Exception as error:  # of many kinds, from transformers' checks and torch's
        raise PlainError(f"no model can be made of {'--hparams' if hparams else repr(prefix)} ({first_line(error)}): give what "
                         "run_pretraining.py got as --hparams.") from error


def _check_unexpected(unused, names, prefix, hparams):
    """PlainError naming a variable of this part, or of a finetuning, that was not used; what else stands there is told."""
    unused = sorted(name for name in unused if not _NOT_WEIGHTS.search(name))
    if of_part := [name for name in unused if names.is_of_part(name)]:
        way_out = "it is no ELECTRA of Google" if hparams is None else "give the --hparams that it was trained with"
        raise PlainError(f"{prefix!r} has the variable {of_part[0]}, for which there is no place in the {names.part}: {way_out}.")
    if finetuned := [name for name in unused if name.startswith("task_specific/")]:
        raise PlainError(f"{prefix!r} has the variable {finetuned[0]}, so it was finetuned: convert the checkpoint that it came from.")
    for name in unused:
        if not _SCOPES.match(name):
            print(f"{prefix} has the variable {name}, which is left out")


def _config_from_checkpoint(names, there, prefix):
    def shape_of(name):
        entry = there.get(names.google(name))
        return entry and (entry.shape[::-1] if names.google(name).endswith("/kernel") else entry.shape)

    try:
        return config_from_shapes(shape_of)
    except KeyError as error:
        raise PlainError(f"{prefix!r} lacks the variable {names.google(error.args[0])}: it is no checkpoint of ELECTRA, or of another "
                         "part.") from None


def configs_from_hparams(hparams):
    """{'generator': ElectraConfig, 'discriminator': ...} of Google's hparams (configure_pretraining.py, run_pretraining.py, F26).

    Raises ValueError for a size that Google does not know.
    """
    size, overrides = hparams.get("model_size", "small"), hparams.get("model_hparam_overrides", {})
    if size not in ("small", "base", "large"):
        raise ValueError(f"model_size={size!r} is none of small, base, large")
    layers, hidden = {"small": (12, 256), "base": (12, 768), "large": (24, 1024)}[size]
    layers, hidden = overrides.get("num_hidden_layers", layers), overrides.get("hidden_size", hidden)
    networks = electra(layers, hidden, overrides.get("num_attention_heads", max(1, hidden // 64)),
                       overrides.get("intermediate_size", 4 * hidden),
                       hparams.get("embedding_size") or (128 if size == "small" else hidden),
                       hparams.get("generator_hidden_size", .25), round(layers * hparams.get("generator_layers", 1.)))
    generator, discriminator = (network.config(hparams.get("vocab_size", 30522)) for network in networks)
    if hparams.get("untied_generator_embeddings"):
        generator.embedding_size = generator.hidden_size
    for config in (generator, discriminator):
        config.update({name: overrides[name] for name in _PLAIN_SETTINGS if name in overrides})
    one_encoder = not hparams.get("untied_generator", True) or not hparams.get("electra_objective", True)
    return {"generator": discriminator if one_encoder else generator, "discriminator": discriminator}


def read_hparams(text):
    """The dictionary of --hparams: JSON, or the name of a file of it. PlainError for something else."""
    try:
        hparams = json.loads(text if text.lstrip().startswith("{") else Path(text).read_text())
    except (OSError, ValueError) as error:
        raise PlainError(f"--hparams {text!r} is neither JSON nor a file of it ({error}): give what run_pretraining.py got.") from None
    if not isinstance(hparams, dict) or not _HPARAMS & set(hparams):
        raise PlainError(f"--hparams {text!r} has none of {', '.join(sorted(_HPARAMS))}: give what run_pretraining.py got.")
    return hparams


def main(arguments=None):
    parser = argparse.ArgumentParser(prog="python -m _utils.convert_tf", description=__doc__.split("\n")[0])
    parser.add_argument("prefix", metavar="CKPT_PREFIX")
    parser.add_argument("--part", choices=PARTS, required=True)
    parser.add_argument("out_dir", metavar="OUT_DIR")
    parser.add_argument("--hparams", metavar="JSON")
    parser.add_argument("--vocab", metavar="VOCAB_TXT")
    given = parser.parse_args(arguments)
    hparams = None if given.hparams is None else read_hparams(given.hparams)
    beside = Path(given.prefix).parent / "vocab.txt"
    vocab = given.vocab or (beside if beside.is_file() else None)
    hf_tokenizer = None if vocab is None else from_vocab_file(vocab)
    transformers.utils.logging.disable_progress_bar()
    with new_folder(given.out_dir) as folder:
        network, step = convert(given.prefix, given.part, hparams)
        if hf_tokenizer is not None and len(hf_tokenizer) != network.config.vocab_size:
            raise PlainError(f"{vocab} has {len(hf_tokenizer)} words, and the checkpoint {network.config.vocab_size}: give its own with "
                             "--vocab.")
        made_by = {"converted from": Path(given.prefix).name, "step": step}
        text = card(network, f"ELECTRA, {given.part}", made_by, TRAINED_BY[given.part], hf_tokenizer is not None)
        save_network(network, hf_tokenizer, folder, text)
    print(f"{given.out_dir}: {network.config.num_hidden_layers} layers x {network.config.hidden_size}, "
          f"{network.config.num_attention_heads} heads" + (" of 64 (--hparams gives others)" if hparams is None else "")
          + ("" if hf_tokenizer else "; no vocab.txt lies beside the checkpoint, so the folder has no tokenizer (--vocab)"))
