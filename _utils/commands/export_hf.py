"""Export checkpoints to folders for transformers: `python -m _utils export_hf`."""
import argparse
import contextlib
import json
import os
import re
import shutil
import tempfile
from pathlib import Path

import torch
from huggingface_hub import EvalResult, ModelCard, ModelCardData
from torch import nn
from transformers import AutoModelForSequenceClassification, AutoModelForTokenClassification

from _utils.errors import PlainError, as_plain_error
from _utils.glue.runs import FINETUNING_KEYS, GLUE_FOLDER, check_finetuned
from _utils.glue.tasks import task_of
from _utils.networks.build import PARTS, count_parameters, max_positions
from _utils.networks.pretrained import config_of, load_weights, network_of, parts_of, with_prefix
from _utils.recipes import RECIPES, config_from_shapes
from _utils.runs.checkpoints import PRETRAINING_KEYS, find_checkpoint, has_keys, load_checkpoint
from _utils.runs.log import read_metrics
from _utils.text.readers import HUB_CORPORA
from _utils.text.vocabulary import from_vocab_file, tokenizer_from_json

_ELECTRA = "[ELECTRA](https://arxiv.org/abs/2003.10555)"
# How the networks of an ELECTRA are pretrained.
TRAINING = {"generator": f"masked language modelling, as the generator of an {_ELECTRA}",
            "discriminator": f"replaced token detection, as the discriminator of an {_ELECTRA}"}
_PIPELINES = {"MaskedLM": "fill-mask", "SequenceClassification": "text-classification", "TokenClassification": "token-classification"}


@contextlib.contextmanager
def new_folder(path):
    """A temporary folder that is renamed to `path` at the end of the block, or deleted if the block raises.

    Raises PlainError, before anything is written, if `path` exists and is not an empty folder, or cannot be created.
    """
    path = Path(path).resolve()
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise PlainError(f"{str(path)!r} already exists. Pass a new or an empty folder.")
    parent = next(parent for parent in path.parents if parent.exists())
    with as_plain_error(f"Cannot create {str(path)!r} ({{error}}). Pass another folder.", OSError):
        temporary = tempfile.TemporaryDirectory(prefix=f".{path.name}.", suffix=".unfinished", dir=parent)
    with temporary:
        unfinished = Path(temporary.name) / path.name
        unfinished.mkdir()
        yield unfinished
        for file in filter(Path.is_file, unfinished.rglob("*")):
            with open(file, "rb") as written:
                os.fsync(written.fileno())  # before the renaming, so that a power failure leaves no half-written file
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished.replace(path)


def read_vocab(path, vocab_size):
    """The tokenizer of a vocab.txt; PlainError if it does not have the size with which the networks were trained."""
    hf_tokenizer = from_vocab_file(path)
    if len(hf_tokenizer) != vocab_size:
        raise PlainError(f"The vocabulary {path} has {len(hf_tokenizer)} tokens, but the checkpoint has {vocab_size}. Pass the vocabulary "
                         "of the training with --vocab.")
    return hf_tokenizer


def save_network(network, hf_tokenizer, folder, title, training, made_by, datasets=(), eval_results=()):
    """Write a network as safetensors with its configuration, the tokenizer (or None), and a model card.

    training: how the network was pretrained, a phrase.   made_by: a dictionary that describes the run; of paths in it only the last
    part is published.   datasets: hub ids.   eval_results: a list of huggingface_hub.EvalResult.
    """
    network.save_pretrained(folder)
    shutil.copymode(folder / "config.json", folder / "model.safetensors")  # safetensors writes files that only the user can read
    if hf_tokenizer is not None:
        hf_tokenizer.model_max_length = max_positions(network)
        hf_tokenizer.save_pretrained(folder)
    metadata = ModelCardData(library_name="transformers", tags=[network.config.model_type], datasets=datasets or None,
                             pipeline_tag=_PIPELINES.get(type(network).__name__.partition("For")[2]),
                             model_name=title if eval_results else None, eval_results=eval_results or None)
    text = _text(network, title, training, made_by, hf_tokenizer is not None)
    ModelCard(f"---\n{metadata.to_yaml()}\n---\n{text}").save(folder / "README.md")


def _text(network, title, training, made_by, has_tokenizer):
    name, config = type(network).__name__, network.config
    imports, tokenizer = name, ""
    if has_tokenizer:
        imports, tokenizer = f"AutoTokenizer, {name}", '\ntokenizer = AutoTokenizer.from_pretrained("PATH")'
    dtype = ", dtype='float32'" if network.dtype == torch.float16 else ""  # half precision is slow on a CPU
    heads = config.num_attention_heads
    size = f"{config.num_hidden_layers} layers x {config.hidden_size}, {heads} head{'s' if heads > 1 else ''}"
    return f"""# {title}

{count_parameters(network):,} parameters: {size}, vocabulary of {config.vocab_size:,} tokens. Pretrained by {training}.

```python
from transformers import {imports}

model = {name}.from_pretrained("PATH"{dtype}){tokenizer}
```

Trained with:

```json
{json.dumps(without_folders(made_by), indent=1)}
```
"""


def without_folders(value):
    """A copy of nested data in which every path is reduced to its last part, to keep local folders private."""
    if isinstance(value, dict):
        return {key: without_folders(item) for key, item in value.items()}
    if isinstance(value, list):
        return [without_folders(item) for item in value]
    is_path = isinstance(value, str) and (os.path.isabs(value) or value.startswith(".") or os.path.exists(value))
    return os.path.basename(value.rstrip("/")) if is_path else value


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
                         "used here. Use python -m _utils predict, or export the pretrained checkpoint.")
    if 2 * task.n_outputs > config.hidden_size:  # copy_output_layer needs two units per label
        raise PlainError(f"{str(path)!r} has {task.n_outputs} labels, but with hidden size {config.hidden_size} it can be exported only "
                         f"with up to {config.hidden_size // 2}. Use python -m _utils predict.")


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
    parser = argparse.ArgumentParser(prog="python -m _utils export_hf", description=__doc__.split("\n")[0])
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
