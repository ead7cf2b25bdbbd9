"""Exporting a finetuned ELECTRA as ElectraForSequenceClassification."""
import torch
from torch import nn
from transformers import ElectraForSequenceClassification

from _utils.errors import PlainError
from _utils.export_hf.model_card import TRAINING, glue_results, model_card
from _utils.export_hf.output import save_network
from _utils.glue.runs import load_finetuned_checkpoint
from _utils.glue.tasks import TASKS
from _utils.networks.loading import config_of, load_weights, with_prefix
from _utils.pretraining_data.vocabulary import tokenizer_from_json


def export_finetuned(path, folder):
    """Write `classifier` of a finetuned checkpoint into `folder`; it computes the same logits as the finetuned model."""
    checkpoint = load_finetuned_checkpoint(path)
    run, config = checkpoint["run"], config_of(checkpoint, "encoder", path)
    _check_exportable(run, config, path)
    task = TASKS[run["task"]]
    labels = task.labels or ("score",)
    config.update({"id2label": dict(enumerate(labels)), "label2id": {label: i for i, label in enumerate(labels)},
                   "problem_type": "regression" if task.is_regression else "single_label_classification"})
    network = ElectraForSequenceClassification(config)
    load_weights(network.electra, with_prefix(checkpoint["model"], "base_model."), path)
    output_layer = nn.Linear(config.hidden_size, len(labels))
    load_weights(output_layer, with_prefix(checkpoint["model"], "classifier."), path)
    copy_output_layer(output_layer, network.classifier)
    card = model_card(network, f"ELECTRA finetuned on {task.title}", TRAINING["discriminator"],
                      {"run": run, "versions": checkpoint["versions"]},
                      eval_results=glue_results(task, run.get("scores", {}), run.get("synthetic")))
    save_network(network, tokenizer_from_json(checkpoint["tokenizer"], checkpoint["pad_token"]), folder / "classifier", card)


def _check_exportable(run, config, path):
    """PlainError for a model that no class of transformers computes."""
    if run["settings"]["wsc_trick"]:
        raise PlainError(f"{str(path)!r} was trained with the WSC trick, which no class of transformers supports. Choose another run.")
    if config.model_type != "electra":
        raise PlainError(f"{str(path)!r} is a {config.model_type} model, whose classification head in transformers differs from the one "
                         "used here. Use python -m _utils.predict, or export the pretrained checkpoint.")


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
