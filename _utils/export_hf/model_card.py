"""Model cards of exported networks: metadata for the hub, usage, and the run that trained the network."""
import json
import os

from huggingface_hub import EvalResult, ModelCard, ModelCardData

from _utils.networks.build import count_parameters
from _utils.pretraining_data.hub_corpora import HUB_CORPORA

_ELECTRA = "[ELECTRA](https://arxiv.org/abs/2003.10555)"
# How the networks of an ELECTRA are pretrained.
TRAINING = {"generator": f"masked language modelling, as the generator of an {_ELECTRA}",
            "discriminator": f"replaced token detection, as the discriminator of an {_ELECTRA}"}
_PIPELINES = {"ForMaskedLM": "fill-mask", "ForSequenceClassification": "text-classification"}
_HUB_METRICS = {"matthews": "matthews_correlation", "pearson": "pearsonr", "spearman": "spearmanr"}


def model_card(network, title, training, made_by, has_tokenizer=True, datasets=(), eval_results=()):
    """A huggingface_hub.ModelCard.

    training: how the network was pretrained, a phrase.   made_by: a dictionary that describes the run; of paths in it only the last
    part is published.   datasets: hub ids.   eval_results: from `pretraining_results` or `glue_results`.
    """
    metadata = ModelCardData(
        library_name="transformers", tags=[network.config.model_type], datasets=list(datasets) or None,
        pipeline_tag=next((tag for head, tag in _PIPELINES.items() if type(network).__name__.endswith(head)), None),
        model_name=title if eval_results else None, eval_results=list(eval_results) or None)
    text = _text(network, title, training, json.dumps(without_folders(made_by), indent=1), has_tokenizer)
    return ModelCard(f"---\n{metadata.to_yaml()}\n---\n{text}")


def _text(network, title, training, made_by, has_tokenizer):
    name, config = type(network).__name__, network.config
    imports, tokenizer = name, ""
    if has_tokenizer:
        imports, tokenizer = f"AutoTokenizer, {name}", '\ntokenizer = AutoTokenizer.from_pretrained("PATH")'
    size = f"{config.num_hidden_layers} layers x {config.hidden_size}, {config.num_attention_heads} heads"
    return f"""# {title}

{count_parameters(network):,} parameters: {size}, vocabulary of {config.vocab_size:,} tokens. Pretrained by {training}.

```python
from transformers import {imports}

model = {name}.from_pretrained("PATH"){tokenizer}
```

Trained with:

```json
{made_by}
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


def hub_datasets(corpora):
    """The hub ids of the corpora that are on the hub."""
    return [HUB_CORPORA[name]["path"] for name in corpora if name in HUB_CORPORA]


def pretraining_results(part, metrics, corpora):
    """EvalResults of the generator or the discriminator on held-out text.

    metrics: {'gen_loss': number or None, 'disc_auc': ...}.   corpora: the `datas` of the configuration.
    """
    prefix = {"generator": "gen_", "discriminator": "disc_"}[part]
    task = {"generator": dict(task_type="fill-mask", task_name="Masked language modelling"),
            "discriminator": dict(task_type="token-classification", task_name="Replaced token detection")}[part]
    data = dict(dataset_type=next(iter(hub_datasets(corpora)), "text"), dataset_split="held-out",
                dataset_name=", ".join(without_folders(corpora)))
    return [EvalResult(**task, **data, metric_type=name.removeprefix(prefix), metric_value=value)
            for name, value in metrics.items() if name.startswith(prefix) and value is not None]


def glue_results(task, scores, is_synthetic):
    """EvalResults of a finetuned model. scores: {split: {metric: fraction}}."""
    dataset = dict(dataset_type="nyu-mll/glue", dataset_name=f"GLUE {task.title}")
    if is_synthetic:
        dataset = dict(dataset_type="synthetic", dataset_name=f"synthetic {task.title}")
    return [EvalResult(task_type="text-classification", **dataset, dataset_config=task.name, dataset_split=split,
                       metric_type=_HUB_METRICS.get(name, name), metric_value=value)
            for split, metrics in scores.items() for name, value in metrics.items()]
