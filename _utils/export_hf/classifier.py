"""Exporting a finetuned ELECTRA as ElectraForSequenceClassification."""
import torch
from huggingface_hub import EvalResult
from torch import nn
from transformers import ElectraForSequenceClassification

from _utils.errors import PlainError
from _utils.export_hf.model_folder import TRAINING, save_network
from _utils.glue.runs import load_finetuned_checkpoint
from _utils.glue.tasks import TASKS
from _utils.networks.loading import config_of, load_weights, with_prefix
from _utils.pretraining_data.vocabulary import tokenizer_from_json

_HUB_METRICS = {"matthews": "matthews_correlation", "pearson": "pearsonr", "spearman": "spearmanr"}


def export_finetuned(path, folder):
    """Write `classifier` of a finetuned checkpoint into `folder`; it computes the same logits as the finetuned model."""
    checkpoint = load_finetuned_checkpoint(path)
    run, config = checkpoint["run"], config_of(checkpoint, "encoder", path)
    if run["settings"]["wsc_trick"]:
        raise PlainError(f"{str(path)!r} was trained with the WSC trick, which no class of transformers supports. Choose another run.")
    if config.model_type != "electra":
        raise PlainError(f"{str(path)!r} is a {config.model_type} model, whose classification head in transformers differs from the one "
                         "used here. Use python -m _utils.predict, or export the pretrained checkpoint.")
    task = TASKS[run["task"]]
    labels = task.labels or ("score",)
    config.update({"id2label": dict(enumerate(labels)), "label2id": {label: i for i, label in enumerate(labels)},
                   "problem_type": "regression" if task.is_regression else "single_label_classification"})
    network, output_layer = ElectraForSequenceClassification(config), nn.Linear(config.hidden_size, len(labels))
    load_weights(network.electra, with_prefix(checkpoint["model"], "base_model."), path)
    load_weights(output_layer, with_prefix(checkpoint["model"], "classifier."), path)
    copy_output_layer(output_layer, network.classifier)
    save_network(network, tokenizer_from_json(checkpoint["tokenizer"], checkpoint["pad_token"]), folder / "classifier",
                 f"ELECTRA finetuned on {task.title}", TRAINING["discriminator"], {"run": run, "versions": checkpoint["versions"]},
                 eval_results=_dev_results(task, run))


def _dev_results(task, run):
    """EvalResults of the scores {split: {metric: fraction}} of a run."""
    hub_id, suite = ("synthetic", "synthetic") if run.get("synthetic") else ("nyu-mll/glue", "GLUE")
    return [EvalResult(task_type="text-classification", dataset_type=hub_id, dataset_name=f"{suite} {task.title}",
                       dataset_config=task.name, dataset_split=split, metric_type=_HUB_METRICS.get(name, name), metric_value=value)
            for split, metrics in run.get("scores", {}).items() for name, value in metrics.items()]


@torch.no_grad()
def copy_output_layer(layer, head):
    """Make transformers' head (dense, GELU, output layer) compute the linear `layer`.

    Since gelu(x) - gelu(-x) = x, dense weights W and -W with output weights 1 and -1 compute W x exactly. Further finetuning in
    transformers trains this larger head.
    """
    n = layer.out_features
    for parameter in head.parameters():
        parameter.zero_()
    head.dense.weight[:n] = layer.weight
    head.dense.weight[n:2 * n] = -layer.weight
    head.out_proj.weight[:, :n] = torch.eye(n)
    head.out_proj.weight[:, n:2 * n] = -torch.eye(n)
    head.out_proj.bias.copy_(layer.bias)
