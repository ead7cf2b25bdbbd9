"""Export a checkpoint to transformers folders: `python -m _utils.export_hf CKPT OUT_DIR`.

A pretraining checkpoint becomes OUT_DIR/generator and OUT_DIR/discriminator (for an ELECTRA: ElectraForMaskedLM and
ElectraForPreTraining); that of a masked language model has only a generator. A finetuned ELECTRA becomes OUT_DIR/classifier
(ElectraForSequenceClassification). Each folder contains safetensors, the configuration, the tokenizer and a model card.
`from_pretrained` loads it into any class of its family and initializes missing heads.

Checkpoints of electra_pytorch are exported too; since they contain only weights, --vocab must name the vocab.txt of the training. Their
sizes follow from the shapes, with attention heads of size 64. electra_pytorch trained the LayerNorm in the generator's head with eps
1e-5 (D4); the exported generator uses 1e-12, which changes its logits in the third decimal.
"""
import argparse
import re
from pathlib import Path

import transformers
from huggingface_hub import EvalResult

from _utils.errors import PlainError
from _utils.export_hf.classifier import export_finetuned
from _utils.export_hf.model_folder import TRAINING, new_folder, save_network, without_folders
from _utils.glue.runs import FINETUNING_KEYS, GLUE_FOLDER
from _utils.networks.build import PARTS
from _utils.networks.loading import network_of, parts_of, with_prefix
from _utils.pretraining_data.hub_corpora import HUB_CORPORA
from _utils.pretraining_data.vocabulary import from_vocab_file, tokenizer_from_json
from _utils.recipes import RECIPES, config_from_shapes
from _utils.run_files.checkpoints import PRETRAINING_KEYS, find_checkpoint, has_keys, load_checkpoint
from _utils.run_files.run_log import read_metrics

_TASKS = {"generator": ("gen_", "fill-mask", "Masked language modelling"),
          "discriminator": ("disc_", "token-classification", "Replaced token detection")}


def export(path, folder, vocab=None):
    """Write a checkpoint of pretrain.py, finetune.py or electra_pytorch into `folder`. vocab: a vocab.txt, for electra_pytorch."""
    checkpoint = load_checkpoint(path)
    if weights := _weights_of_electra_pytorch(checkpoint):
        checkpoint = _as_pretraining_checkpoint(weights, path, vocab)
    elif vocab is not None:
        raise PlainError(f"{str(path)!r} is not a checkpoint of electra_pytorch. Leave --vocab out.")
    if has_keys(checkpoint, FINETUNING_KEYS):
        export_finetuned(path, folder)
    elif has_keys(checkpoint, PRETRAINING_KEYS):
        export_pretrained(checkpoint, path, folder)
    else:
        raise PlainError(f"{str(path)!r} was not written by pretrain.py, finetune.py or electra_pytorch. Use one of their checkpoints.")


def export_pretrained(checkpoint, path, folder):
    """Write `generator` and `discriminator` of a pretraining checkpoint, the content of the file `path`, into `folder`."""
    hf_tokenizer, parts = tokenizer_from_json(checkpoint["tokenizer"]), parts_of(checkpoint)
    corpora = checkpoint["config"].get("datas", [])
    datasets = [HUB_CORPORA[name]["path"] for name in corpora if name in HUB_CORPORA]
    metrics = held_out_metrics(path, checkpoint.get("step"))
    made_by = {key: checkpoint[key] for key in ("step", "config", "versions") if key in checkpoint}
    if metrics:
        made_by["held-out metrics"] = metrics
    for part in parts:
        role, training = (part, TRAINING[part]) if len(parts) == 2 else ("masked language model", "masked language modelling")
        prefix, task_type, task_name = _TASKS[part]
        results = [EvalResult(task_type=task_type, task_name=task_name, dataset_type=datasets[0] if datasets else "text",
                              dataset_name=", ".join(without_folders(corpora)), dataset_split="held-out",
                              metric_type=name.removeprefix(prefix), metric_value=value)
                   for name, value in metrics.items() if name.startswith(prefix) and value is not None]
        save_network(network_of(checkpoint, part, path), hf_tokenizer, folder / part, f"{_title(checkpoint)}, {role}", training, made_by,
                     datasets, results)


def _title(checkpoint):
    """The name of the recipe if the network has its shape; otherwise the families."""
    size, configs = checkpoint["config"].get("size"), [checkpoint[f"{part}_config"] for part in parts_of(checkpoint)]
    families, recipe = [config["model_type"] for config in configs], RECIPES.get(size)
    shape = families[-1], configs[-1].get("num_hidden_layers"), configs[-1].get("hidden_size")
    if recipe and shape == (recipe.encoder.family, recipe.encoder.layers, recipe.encoder.hidden):
        return f"ELECTRA-{size}" if families == ["electra", "electra"] else size
    return " and ".join(dict.fromkeys(families))


def held_out_metrics(path, step):
    """The held-out metrics at a step, from the metrics.jsonl of the run that wrote the checkpoint `path`; {} if there are none."""
    log = Path(re.sub(r"_[\d.]+%\.pth$", "", str(path))) / "metrics.jsonl"
    rows = read_metrics(log, "held_out") if log.is_file() else []
    return next((row for row in rows if row["step"] == step), {})


def _weights_of_electra_pytorch(checkpoint):
    """The weights in a checkpoint of electra_pytorch, saved with or without the optimizer; None for other checkpoints."""
    if not isinstance(checkpoint, dict) or "tokenizer" in checkpoint:
        return None
    weights = checkpoint.get("model", checkpoint)
    is_electra = isinstance(weights, dict) and any(str(name).startswith("generator.electra.") for name in weights)
    return weights if is_electra else None


def _as_pretraining_checkpoint(weights, path, vocab):
    """The checkpoint that pretrain.py would have written for the weights of electra_pytorch. vocab: the path of the vocab.txt.

    Their names are those of transformers 3.3.1: the current ones, and a buffer `position_ids` that is no longer saved.
    """
    if vocab is None:
        raise PlainError(f"{str(path)!r} is a checkpoint of electra_pytorch, which contains no vocabulary. Pass --vocab PATH/vocab.txt; "
                         "the default of electra_pytorch is that of google/electra-small-discriminator.")
    hf_tokenizer = from_vocab_file(vocab)
    weights = {name: value for name, value in weights.items() if not name.endswith("embeddings.position_ids")}
    configs = {}
    for part in PARTS:
        shapes = {name: value.shape for name, value in with_prefix(weights, f"{part}.").items()}
        try:
            configs[f"{part}_config"] = config_from_shapes(shapes.get).to_dict()
        except KeyError as error:
            raise PlainError(f"{str(path)!r} lacks {part}.{error.args[0]}, which every checkpoint of electra_pytorch has. Use another "
                             "checkpoint.") from None
    vocab_size = configs["discriminator_config"]["vocab_size"]
    if len(hf_tokenizer) != vocab_size:
        raise PlainError(f"The vocabulary {vocab} has {len(hf_tokenizer)} tokens, but {str(path)!r} was trained with {vocab_size}. Pass "
                         "the vocabulary of that training.")
    return {"model": weights, **configs, "tokenizer": hf_tokenizer.backend_tokenizer.to_str(), "config": {
        "made by": "electra_pytorch", "layer_norm_eps": "1e-12; in training 1e-5 in the generator's head (transformers 3.3.1)"}}


def main(arguments=None):
    parser = argparse.ArgumentParser(prog="python -m _utils.export_hf", description=__doc__.split("\n")[0])
    parser.add_argument("checkpoint", metavar="CKPT", help="a file, or a name in checkpoints/pretrain/ or checkpoints/glue/")
    parser.add_argument("out_dir", metavar="OUT_DIR", help="a new or empty folder")
    parser.add_argument("--vocab", metavar="VOCAB_TXT", help="the vocabulary, for checkpoints of electra_pytorch")
    options = parser.parse_args(arguments)
    transformers.utils.logging.disable_progress_bar()
    finetuned = GLUE_FOLDER / options.checkpoint
    path = finetuned if finetuned.is_file() else find_checkpoint(options.checkpoint)
    with new_folder(options.out_dir) as folder:
        export(path, folder, options.vocab)
    print(*sorted(map(str, Path(options.out_dir).iterdir())), sep="\n")
