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

from _utils.errors import PlainError
from _utils.export_hf.classifier import export_finetuned
from _utils.export_hf.electra_pytorch import as_pretraining_checkpoint, find_weights
from _utils.export_hf.model_card import TRAINING, hub_datasets, model_card, pretraining_results
from _utils.export_hf.output import new_folder, save_network
from _utils.glue.runs import GLUE_FOLDER
from _utils.networks.loading import network_of, parts_of
from _utils.pretraining_data.vocabulary import tokenizer_from_json
from _utils.recipes import RECIPES
from _utils.run_files.checkpoints import PRETRAINING_KEYS, find_checkpoint, has_keys, load_checkpoint
from _utils.run_files.run_log import read_metrics


def export(path, folder, vocab=None):
    """Write a checkpoint of pretrain.py, finetune.py or electra_pytorch into `folder`. vocab: a vocab.txt, for electra_pytorch."""
    checkpoint = load_checkpoint(path)
    weights = find_weights(checkpoint)
    if weights is not None:
        return export_pretrained(as_pretraining_checkpoint(weights, path, vocab), path, folder)
    is_finetuned = isinstance(checkpoint, dict) and {"encoder_config", "run", "tokenizer"} <= set(checkpoint)
    if not is_finetuned and not has_keys(checkpoint, PRETRAINING_KEYS):
        raise PlainError(f"{str(path)!r} was not written by pretrain.py, finetune.py or electra_pytorch. Use one of their checkpoints.")
    if vocab is not None:
        raise PlainError(f"{str(path)!r} contains a vocabulary. Leave --vocab out.")
    return export_finetuned(path, folder) if is_finetuned else export_pretrained(checkpoint, path, folder)


def export_pretrained(checkpoint, path, folder):
    """Write `generator` and `discriminator` of a pretraining checkpoint, the content of the file `path`, into `folder`."""
    hf_tokenizer = tokenizer_from_json(checkpoint["tokenizer"])
    corpora = checkpoint["config"].get("datas", [])
    made_by = {key: checkpoint[key] for key in ("step", "config", "versions") if key in checkpoint}
    metrics = held_out_metrics(path, checkpoint.get("step"))
    if metrics:
        made_by["held-out metrics"] = metrics
    for part in parts_of(checkpoint):
        network = network_of(checkpoint, part, path)
        role, training = part, TRAINING[part]
        if "discriminator" not in parts_of(checkpoint):
            role, training = "masked language model", "masked language modelling"
        card = model_card(network, f"{_title(checkpoint)}, {role}", training, made_by, datasets=hub_datasets(corpora),
                          eval_results=pretraining_results(part, metrics, corpora))
        save_network(network, hf_tokenizer, folder / part, card)


def _title(checkpoint):
    """The name of the recipe if the network has its shape; otherwise the families."""
    size, parts = checkpoint["config"].get("size"), parts_of(checkpoint)
    config, recipe = checkpoint[f"{parts[-1]}_config"], RECIPES.get(size)
    shape = config["model_type"], config.get("num_hidden_layers"), config.get("hidden_size")
    if recipe and shape == (recipe.encoder.family, recipe.encoder.layers, recipe.encoder.hidden):
        return f"ELECTRA-{size}" if config["model_type"] == "electra" and "discriminator" in parts else size
    return " and ".join(dict.fromkeys(checkpoint[f"{part}_config"]["model_type"] for part in parts))


def held_out_metrics(path, step):
    """The held-out metrics at a step, from the metrics.jsonl of the run that wrote the checkpoint `path`; {} if there are none."""
    log = Path(re.sub(r"_[\d.]+%\.pth$", "", str(path))) / "metrics.jsonl"
    rows = read_metrics(log, "held_out") if log.is_file() else []
    return next((row for row in rows if row["step"] == step), {})


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
