"""Export a checkpoint to transformers folders: `python -m _utils.export_hf CKPT OUT_DIR [--half]`.

A pretraining checkpoint becomes OUT_DIR/generator and OUT_DIR/discriminator (for an ELECTRA: ElectraForMaskedLM and
ElectraForPreTraining); that of a masked language model has only a generator. A finetuned model becomes OUT_DIR/classifier: the class for
sequence classification of ELECTRA or RoFormer, or, if it labels words, any family's class for token classification. Each folder contains
safetensors, the configuration, the tokenizer and a model card. `from_pretrained` loads it into any class of its family and initializes
missing heads. The discriminator of another family than ELECTRA has the head of a token classifier with two labels; to load it into that
class with other labels, pass ignore_mismatched_sizes=True. --half writes 16-bit floats: half the size, and about three significant digits.

Checkpoints of electra_pytorch are exported too; since they contain only weights, --vocab must name the vocab.txt of the training. Their
sizes follow from the shapes, with attention heads of size 64. electra_pytorch trained the LayerNorm in the generator's head with eps
1e-5 (D4); the exported generator uses 1e-12, which changes its logits in the third decimal.
"""
import argparse
import re
from pathlib import Path

import torch
from huggingface_hub import EvalResult
from torch import nn
from transformers import AutoModelForSequenceClassification, AutoModelForTokenClassification

from _utils.errors import PlainError
from _utils.export_hf.model_folder import TRAINING, new_folder, read_vocab, save_network, without_folders
from _utils.glue.runs import FINETUNING_KEYS, GLUE_FOLDER, check_finetuned
from _utils.glue.tasks import task_of
from _utils.networks.build import PARTS
from _utils.networks.pretrained import config_of, load_weights, network_of, parts_of, with_prefix
from _utils.pretraining_data.hub_corpora import HUB_CORPORA
from _utils.pretraining_data.vocabulary import tokenizer_from_json
from _utils.recipes import RECIPES, config_from_shapes
from _utils.run_files.checkpoints import PRETRAINING_KEYS, find_checkpoint, has_keys, load_checkpoint
from _utils.run_files.run_log import read_metrics

# {part: (prefix of its metrics, task on the hub, name of the task)}
_OBJECTIVES = {"generator": ("gen_", "fill-mask", "Masked language modelling"),
               "discriminator": ("disc_", "token-classification", "Replaced token detection")}
_HUB_METRICS = {"matthews": "matthews_correlation", "pearson": "pearsonr", "spearman": "spearmanr", "macro_f1": "f1",
                "entity_f1": "seqeval"}
# Families whose head for sequence classification is a layer, GELU and a layer, on the first token.
_EXPORTED_CLASSIFIERS = "electra", "roformer"


def export(path, folder, vocab=None, half=False):
    """Write a checkpoint of pretrain.py, finetune.py or electra_pytorch into `folder`.

    vocab: a vocab.txt, for electra_pytorch.   half: in 16-bit floats.
    """
    checkpoint = load_checkpoint(path)
    if weights := _weights_of_electra_pytorch(checkpoint):
        checkpoint = _as_pretraining_checkpoint(weights, path, vocab)
    elif vocab is not None:
        raise PlainError(f"{str(path)!r} is not a checkpoint of electra_pytorch. Leave --vocab out.")
    if has_keys(checkpoint, FINETUNING_KEYS):
        export_finetuned(checkpoint, path, folder, half)
    elif has_keys(checkpoint, PRETRAINING_KEYS):
        export_pretrained(checkpoint, path, folder, half)
    else:
        raise PlainError(f"{str(path)!r} was not written by pretrain.py, finetune.py or electra_pytorch. Use one of their checkpoints.")


def export_pretrained(checkpoint, path, folder, half=False):
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
        prefix, task_type, task_name = _OBJECTIVES[part]
        results = [EvalResult(task_type=task_type, task_name=task_name, dataset_type=datasets[0] if datasets else "text",
                              dataset_name=", ".join(without_folders(corpora)), dataset_split="held-out",
                              metric_type=name.removeprefix(prefix), metric_value=value)
                   for name, value in metrics.items() if name.startswith(prefix) and value is not None]
        network = network_of(checkpoint, part, path)
        save_network(halved(network) if half else network, hf_tokenizer, folder / part, f"{_title(checkpoint)}, {role}", training, made_by,
                     datasets, results)


def halved(network):
    """The network with weights in 16-bit floats; constants, such as RoFormer's table of angles, stay exact."""
    for parameter in network.parameters():
        if parameter.requires_grad:
            parameter.data = parameter.data.half()
    return network


def _title(checkpoint):
    """The name of the recipe if the network has its shape; otherwise the families."""
    size, configs = checkpoint["config"].get("size"), [checkpoint[f"{part}_config"] for part in parts_of(checkpoint)]
    families, recipe = [config["model_type"] for config in configs], RECIPES.get(size)
    shape = families[-1], configs[-1].get("num_hidden_layers"), configs[-1].get("hidden_size")
    if recipe and shape == (recipe.encoder.family, recipe.encoder.layers, recipe.encoder.hidden):
        return f"ELECTRA-{size}" if len(families) == 2 and families[-1] in ("electra", "roformer") else size
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
    weights = {name: value for name, value in weights.items() if not name.endswith("embeddings.position_ids")}
    configs = {}
    for part in PARTS:
        shapes = {name: value.shape for name, value in with_prefix(weights, f"{part}.").items()}
        try:
            configs[f"{part}_config"] = config_from_shapes(shapes.get).to_dict()
        except KeyError as error:
            raise PlainError(f"{str(path)!r} lacks {part}.{error.args[0]}, which every checkpoint of electra_pytorch has. Use another "
                             "checkpoint.") from None
    hf_tokenizer = read_vocab(vocab, configs["discriminator_config"]["vocab_size"])
    return {"model": weights, **configs, "tokenizer": hf_tokenizer.backend_tokenizer.to_str(), "config": {
        "made by": "electra_pytorch", "layer_norm_eps": "1e-12; in training 1e-5 in the generator's head (transformers 3.3.1)"}}


def export_finetuned(checkpoint, path, folder, half=False):
    """Write `classifier` of a finetuned checkpoint, the content of the file `path`, into `folder`; it computes the same logits."""
    check_finetuned(checkpoint, path)
    run, config = checkpoint["run"], config_of(checkpoint, "encoder", path)
    task = task_of(run)
    _check_supported(run, task, config, path)
    labels = task.labels or ("score",)
    config.update({"id2label": dict(enumerate(labels)), "label2id": {label: i for i, label in enumerate(labels)},
                   "problem_type": {"regression": "regression", "classification": "single_label_classification"}.get(task.kind)})
    network = word_classifier(checkpoint, config, path) if task.is_tagging else text_classifier(checkpoint, config, path)
    family = "ELECTRA" if config.model_type == "electra" else config.model_type
    training = TRAINING["discriminator"] if family == "ELECTRA" else "replaced token detection or masked language modelling"
    save_network(halved(network) if half else network, tokenizer_from_json(checkpoint["tokenizer"], checkpoint["pad_token"]),
                 folder / "classifier", f"{family} finetuned on {task.title}", training, {"run": run, "versions": checkpoint["versions"]},
                 eval_results=_dev_results(task, run))


def _check_supported(run, task, config, path):
    """PlainError for a finetuned model whose logits no class of transformers can compute."""
    if run["settings"]["wsc_trick"]:
        raise PlainError(f"{str(path)!r} was trained with the WSC trick, which no class of transformers supports. Choose another run.")
    if task.is_tagging:
        return
    if config.model_type not in _EXPORTED_CLASSIFIERS:
        raise PlainError(f"{str(path)!r} is a {config.model_type} model, whose classification head in transformers differs from the one "
                         "used here. Use python -m _utils.predict, or export the pretrained checkpoint.")
    if 2 * task.n_outputs > config.hidden_size:  # copy_output_layer needs two units per label
        raise PlainError(f"{str(path)!r} has {task.n_outputs} labels, but with hidden size {config.hidden_size} it can be exported only "
                         f"with up to {config.hidden_size // 2}. Use python -m _utils.predict.")


def text_classifier(checkpoint, config, path):
    """The family's ForSequenceClassification with the weights of a finetuned checkpoint."""
    network = AutoModelForSequenceClassification.from_config(config, trust_remote_code=False)
    output_layer = nn.Linear(config.hidden_size, config.num_labels)
    load_weights(network.base_model, with_prefix(checkpoint["model"], "base_model."), path)
    load_weights(output_layer, with_prefix(checkpoint["model"], "classifier."), path)
    copy_output_layer(output_layer, network.classifier)
    return network


def word_classifier(checkpoint, config, path):
    """The family's ForTokenClassification, whose head is the same linear layer, with the weights of a finetuned checkpoint."""
    network = AutoModelForTokenClassification.from_config(config, trust_remote_code=False)
    network.base_model.pooler = None  # of the first token; only some families' classes have one
    encoder = {name: value for name, value in with_prefix(checkpoint["model"], "base_model.").items() if not name.startswith("pooler.")}
    load_weights(network.base_model, encoder, path)
    load_weights(network.classifier, with_prefix(checkpoint["model"], "classifier."), path)
    return network


def _dev_results(task, run):
    """EvalResults of the scores {split: {metric: fraction}} of a run."""
    task_type = "token-classification" if task.is_tagging else "text-classification"
    if task.is_own:
        data = {"dataset_type": "own", "dataset_name": task.name}
    elif run.get("synthetic"):
        data = {"dataset_type": "synthetic", "dataset_name": f"synthetic {task.title}", "dataset_config": task.name}
    else:
        data = {"dataset_type": "nyu-mll/glue", "dataset_name": f"GLUE {task.title}", "dataset_config": task.name}
    return [EvalResult(task_type=task_type, **data, dataset_split=split, metric_type=_HUB_METRICS.get(name, name), metric_value=value)
            for split, metrics in run.get("scores", {}).items() for name, value in metrics.items()]


@torch.no_grad()
def copy_output_layer(layer, head):
    """Make transformers' head (dense, GELU, output layer) compute the linear `layer`, whose outputs are at most half its inputs.

    Since gelu(x) - gelu(-x) = x, dense weights W and -W with output weights 1 and -1 compute W x exactly. Further finetuning in
    transformers trains this larger head.
    """
    n, identity = layer.out_features, torch.eye(layer.out_features)
    for parameter in head.parameters():
        parameter.zero_()
    head.dense.weight[:2 * n] = torch.cat([layer.weight, -layer.weight])
    head.out_proj.weight[:, :2 * n] = torch.cat([identity, -identity], dim=1)
    head.out_proj.bias.copy_(layer.bias)


def main(arguments=None):
    parser = argparse.ArgumentParser(prog="python -m _utils.export_hf", description=__doc__.split("\n")[0])
    parser.add_argument("checkpoint", metavar="CKPT", help="a file, or a name in checkpoints/pretrain/ or checkpoints/glue/")
    parser.add_argument("out_dir", metavar="OUT_DIR", help="a new or empty folder")
    parser.add_argument("--vocab", metavar="VOCAB_TXT", help="the vocabulary, for checkpoints of electra_pytorch")
    parser.add_argument("--half", action="store_true", help="write 16-bit floats, half the size")
    options = parser.parse_args(arguments)
    finetuned = GLUE_FOLDER / options.checkpoint
    path = finetuned if finetuned.is_file() else find_checkpoint(options.checkpoint)
    with new_folder(options.out_dir) as folder:
        export(path, folder, options.vocab, options.half)
    print(*sorted(map(str, Path(options.out_dir).iterdir())), sep="\n")
