"""The model cards of exported folders: what the hub's page of a model shows, and how it was trained."""
import json
import math
import os
import re

import torch
from huggingface_hub import EvalResult, ModelCard, ModelCardData

from _utils.names import EMBEDDED, HUB_CORPORA, hub_text, is_hub_id, without_parts
from _utils.networks.build import count_parameters
from _utils.tasks.glue import HUB_GLUE

_PIPELINES = {
    "MaskedLM": "fill-mask",
    "SequenceClassification": "text-classification",
    "TokenClassification": "token-classification",
    "QuestionAnswering": "question-answering",
}
_METRICS = {  # the hub's names of metrics, where they differ
    "matthews": "matthews_correlation", "spearman": "spearmanr", "pearson": "pearsonr", "exact": "exact_match",
    "entity_f1": "f1", "macro_f1": "f1", "micro_f1": "f1"}

_CARD = """---
{{ card_data }}
---
# {{ title }}

{{ "{:,}".format(parameters) }} parameters: {{ config.num_hidden_layers }} layers x {{ config.hidden_size }}, \
{{ config.num_attention_heads }} head{{ "s" if config.num_attention_heads > 1 }}, \
vocabulary of {{ "{:,}".format(config.vocab_size) }} tokens. Pretrained {{ training }}.

```python
from transformers import {{ "AutoTokenizer, " if hf_tokenizer }}{{ name }}

model = {{ name }}.from_pretrained("PATH"{{ ", dtype='float32'" if is_half }}){% if hf_tokenizer %}
tokenizer = AutoTokenizer.from_pretrained("PATH"){% endif %}
```

Trained with:

```json
{{ made_by }}
```

"""


def write_card(folder, network, hf_tokenizer, title, training, made_by, facts, fills_masks):
    """Write the README.md of an exported network.

    facts: keyword arguments of ModelCardData. The other arguments are those of `save_network`.
    """
    name = type(network).__name__
    pipeline = _PIPELINES.get(name.partition("For")[2]) if fills_masks else None
    if results := facts.get("eval_results"):
        facts |= {"model_name": title, "metrics": [*dict.fromkeys(result.metric_type for result in results)]}
    metadata = ModelCardData(
        library_name="transformers",
        tags=[network.config.model_type],
        pipeline_tag=pipeline,
        **{key: value for key, value in facts.items() if value},
    )
    strings = re.compile(r'"((?:[^"\\]|\\.)*)"')
    made_by = json.dumps(made_by, indent=1, ensure_ascii=False)
    made_by = strings.sub(lambda match: f'"{without_folder(match[1])}"', made_by)
    ModelCard.from_template(
        metadata,
        template_str=_CARD,
        title=title,
        parameters=count_parameters(network),
        config=network.config,
        training=training,
        name=name,
        hf_tokenizer=hf_tokenizer,
        made_by=made_by,
        is_half=network.dtype == torch.float16,  # which is slow on a CPU
    ).save(folder / "README.md")


def without_folder(value):
    """The last part of a path, glob or URL, to keep folders and buckets private; other strings as they are."""
    is_path = re.match(r"[/.~]|\w+://", value) or os.path.exists(value)
    return os.path.basename(value.rstrip("/")) or value if is_path else value


def on_hub(run):
    """The names and ids of corpora of the hub that the configuration of a pretraining run may name."""
    return (*HUB_CORPORA, *run.get("revisions", ()))


def without_folders(run):
    """The configuration of a pretraining run with the last part of each path in `datas`, whether it exists or not."""
    names = [source if without_parts(source) in on_hub(run) else os.path.basename(source.rstrip("/"))
             for source in run.get("datas", ())]
    return run | ({"datas": names} if names else {})


def facts_of_pretraining(run, part):
    """Keyword arguments of ModelCardData for the part of a pretraining run. run: its configuration.

    The language is known of the corpora with names.
    """
    sources = run.get("datas", [])
    datasets = [hub_text(name).path for name in map(without_parts, sources) if name in on_hub(run)]
    is_english = sources and all(source in (*HUB_CORPORA, *EMBEDDED) for source in sources)
    base_model = run.get("initial_weights") if is_hub_id(run.get("initial_weights")) else None
    if base_model and not run.get("new_generator"):  # which begins with the discriminator's embeddings
        base_model = base_model.replace("discriminator", part)
    return {"datasets": [*dict.fromkeys(datasets)], "language": "en" if is_english else None, "base_model": base_model}


def facts_of_finetuning(run, task):
    """Keyword arguments of ModelCardData for a finetuned model. run: its FinishedRun."""
    is_glue = not run.settings.own_task and not run.synthetic
    results = [
        EvalResult(
            task_type=_PIPELINES.get(task.head.transformers_class.__name__.partition("For")[2], "multiple-choice"),
            dataset_type=HUB_GLUE if is_glue else task.name,
            dataset_name=f"GLUE {task.title}" if is_glue else task.title,
            dataset_config=task.name if is_glue else None,
            dataset_split=split,
            metric_type=_METRICS.get(metric, metric),
            metric_name=metric,
            metric_value=round(value, 4),
        )
        for split, scores in run.scores.items()
        for metric, value in scores.items()
        if math.isfinite(value)
    ]
    return {"eval_results": results, "datasets": [HUB_GLUE] if is_glue else None, "language": "en" if is_glue else None,
            "base_model": run.pretrained_checkpoint if is_hub_id(run.pretrained_checkpoint) else None}
