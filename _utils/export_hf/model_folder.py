"""Folders that transformers loads: weights, configuration, tokenizer and model card, written completely or not at all."""
import contextlib
import json
import os
import shutil
import tempfile
from pathlib import Path

import torch
from huggingface_hub import ModelCard, ModelCardData

from _utils.errors import PlainError, as_plain_error
from _utils.networks.build import count_parameters, max_positions
from _utils.pretraining_data.vocabulary import from_vocab_file

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
