"""Our checkpoints as transformers folders: `python -m _utils.export_hf CKPT OUT_DIR`.

Of a pretraining checkpoint OUT_DIR gets `discriminator` (of an ELECTRA ElectraForPreTraining) and `generator` (ElectraForMaskedLM), which
is the only one of a masked language model; of a finetuned ELECTRA `classifier` (ElectraForSequenceClassification). Each has safetensors,
configuration, tokenizer, and a model card that says what made it. It loads into any class of its family with from_pretrained; a head that
it does not have is freshly made there.

A checkpoint that electra_pytorch wrote is exported too, if --vocab gives the vocab.txt it was trained with: it holds weights only.
Its sizes are told from the shapes, heads taken to be 64 wide as in all its sizes. The LayerNorm in the generator's head
had eps 1e-5 there (D4), 1e-12 here, which changes its logits in the third decimal.
"""
import argparse
import contextlib
import json
import os
import re
import shutil
import tempfile
from pathlib import Path

import torch
import transformers
from transformers import ElectraForSequenceClassification

from _utils.errors import PlainError, print_plain_errors
from _utils.glue.tasks import TASKS
from _utils.networks.build import PARTS, count_parameters, usable_positions
from _utils.networks.pretrained import network_of, parts_of
from _utils.pretraining_data.vocabulary import from_vocab_file, tokenizer_from_json
from _utils.recipes import RECIPES, config_from_shapes
from _utils.run_files.checkpoints import PRETRAINING_KEYS, find_checkpoint, has_keys, load_checkpoint
from _utils.run_files.run_log import read_metrics

_ELECTRA = "[ELECTRA](https://arxiv.org/abs/2003.10555)"
TRAINED_BY = {"generator": f"masked language modelling, as the generator of an {_ELECTRA}",
              "discriminator": f"replaced token detection, as the discriminator of an {_ELECTRA}"}


@contextlib.contextmanager
def new_folder(path):
    """A folder to write in, which appears under `path` when the block ends well, and not at all otherwise.

    Raises PlainError, before anything is written, if something is there already or the place cannot be written.
    """
    path = Path(path).resolve()
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise PlainError(f"{str(path)!r} is there already: give an empty or a new folder.")
    there = next(parent for parent in path.parents if parent.exists())
    try:
        unfinished = Path(tempfile.mkdtemp(prefix=f".{path.name}.", suffix=".unfinished", dir=there))
    except OSError as error:
        raise PlainError(f"{str(path)!r} cannot be made ({error.strerror}): give another folder.") from None
    try:
        yield unfinished
        for made in (*unfinished.rglob("*"), unfinished):  # safetensors and mkdtemp make what only the user may read
            made.chmod((0o777 if made.is_dir() else 0o666) & ~_umask())
            flush(made)
        path.parent.mkdir(parents=True, exist_ok=True)
        os.replace(unfinished, path)
        flush(path.parent)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def flush(path):
    """Have a file or folder on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _umask():
    mask = os.umask(0)
    os.umask(mask)
    return mask


def save_network(network, hf_tokenizer, folder, text):
    """Write a network as safetensors with its configuration, the tokenizer unless it is None, and `text` as model card."""
    network.save_pretrained(folder)
    if hf_tokenizer is not None:
        hf_tokenizer.model_max_length = usable_positions(network)
        hf_tokenizer.save_pretrained(folder)
    (Path(folder) / "README.md").write_text(text, encoding="utf-8")


def card(network, title, made_by, trained_by, has_tokenizer=True):
    """A model card: what the network is, how to load it, and `made_by`, a dictionary, of whose paths the last parts alone are told.

    trained_by: how it was pretrained, in words.
    """
    name, config = type(network).__name__, network.config
    tokenizer = ("AutoTokenizer, ", '\ntokenizer = AutoTokenizer.from_pretrained("PATH")') if has_tokenizer else ("", "")
    size = f"{config.num_hidden_layers} layers x {config.hidden_size}, {config.num_attention_heads} heads"
    return f"""---
library_name: transformers
tags:
- {config.model_type}
---
# {title}

{count_parameters(network):,} parameters: {size}, vocabulary of {config.vocab_size:,}. Pretrained by {trained_by}.

```python
from transformers import {tokenizer[0]}{name}

model = {name}.from_pretrained("PATH"){tokenizer[1]}
```

What made it:

```json
{json.dumps(_without_folders(made_by), indent=1)}
```
"""


def _without_folders(value):
    """The same dictionary with the last part of each path: where a file lay is nobody's business."""
    if isinstance(value, dict):
        return {key: _without_folders(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_without_folders(item) for item in value]
    is_path = isinstance(value, str) and (os.path.isabs(value) or value.startswith(".") or os.path.exists(value))
    return os.path.basename(value.rstrip("/")) if is_path else value


def export_pretrained(checkpoint, path, folder):
    """Write `discriminator` and `generator` of a pretraining checkpoint, the content of the file `path`, into `folder`."""
    hf_tokenizer = tokenizer_from_json(checkpoint["tokenizer"])
    made_by = {key: checkpoint[key] for key in ("step", "config", "versions") if key in checkpoint}
    if measured := held_out_measures(path, checkpoint.get("step")):
        made_by["measured on held-out text"] = measured
    title, parts = _title(checkpoint), parts_of(checkpoint)
    is_mlm = "discriminator" not in parts
    for part in parts:
        network = network_of(checkpoint, part, path)
        kind, trained_by = ("masked language model", "masked language modelling") if is_mlm else (part, TRAINED_BY[part])
        save_network(network, hf_tokenizer, folder / part, card(network, f"{title}, {kind}", made_by, trained_by))


def _title(checkpoint):
    """The recipe's name where the shapes are its; else the families'."""
    size, parts = checkpoint["config"].get("size"), parts_of(checkpoint)
    kept, recipe = checkpoint[f"{parts[-1]}_config"], RECIPES.get(size)
    shape = kept["model_type"], kept.get("num_hidden_layers"), kept.get("hidden_size")
    if recipe and shape == (recipe.encoder.family, recipe.encoder.layers, recipe.encoder.hidden):
        return f"ELECTRA-{size}" if kept["model_type"] == "electra" and "discriminator" in parts else size
    return " and ".join(dict.fromkeys(checkpoint[f"{part}_config"]["model_type"] for part in parts))


def held_out_measures(path, step):
    """What the run of a checkpoint measured at its step, as its metrics.jsonl has it; None where it does not lie beside."""
    metrics = Path(re.sub(r"_[\d.]+%\.pth$", "", str(path))) / "metrics.jsonl"
    if not metrics.is_file():
        return None
    return next((row for row in read_metrics(metrics, "held_out") if row["step"] == step), None)


def export_finetuned(checkpoint, path, folder):
    """Write `classifier` of a finetuned checkpoint into `folder`; its logits are those of our one-layer head.

    transformers' head is dense, GELU, output layer. Since gelu(x) - gelu(-x) = x, its first rows W and -W with an output layer of 1 and
    -1 give W x exactly. Who finetunes it further finetunes that larger head.
    """
    from finetune import load_finetuned  # whose imports take seconds
    model, hf_tokenizer, row = load_finetuned(path)
    if row["settings"]["wsc_trick"]:
        raise PlainError(f"{str(path)!r} was trained with the WSC trick, which no class of transformers computes: take another run.")
    task, config = TASKS[row["task"]], model.base_model.config
    if config.model_type != "electra":
        raise PlainError(f"{str(path)!r} is of the family {config.model_type}, whose head in transformers cannot compute what ours does: "
                         "use it with python -m _utils.predict, or export the checkpoint that it was finetuned from.")
    ours = model.classifier
    n, labels = ours.out_features, task.labels or ("score",)
    config.update({"id2label": dict(enumerate(labels)), "label2id": {label: i for i, label in enumerate(labels)},
                   "problem_type": "regression" if task.is_regression else "single_label_classification"})
    exported = ElectraForSequenceClassification(config)
    exported.electra.load_state_dict(model.base_model.state_dict())
    head = exported.classifier
    with torch.no_grad():
        for parameter in head.parameters():
            parameter.zero_()
        head.dense.weight[:n], head.dense.weight[n:2 * n] = ours.weight, -ours.weight
        head.out_proj.weight[:, :n], head.out_proj.weight[:, n:2 * n] = torch.eye(n), -torch.eye(n)
        head.out_proj.bias.copy_(ours.bias)
    made_by = {"run": row, "versions": checkpoint["versions"]}
    save_network(exported, hf_tokenizer, folder / "classifier",
                 card(exported, f"ELECTRA finetuned on {task.title}", made_by, TRAINED_BY["discriminator"]))


def adopt_electra_pytorch(checkpoint, path, vocab):
    """What electra_pytorch's learner saved, {'model': weights, 'opt': ...}, in the form of our own checkpoints.

    Its names are those of transformers 3.3.1: today's, and a buffer `position_ids` that today's do not save.
    """
    if vocab is None:
        raise PlainError(f"{str(path)!r} is a checkpoint of electra_pytorch, which has no vocabulary in it: give --vocab PATH/vocab.txt, "
                         "that of google/electra-small-discriminator if it was not changed.")
    hf_tokenizer = from_vocab_file(vocab)
    weights = {name: value for name, value in checkpoint["model"].items() if not name.endswith("embeddings.position_ids")}
    configs = {}
    for part in PARTS:
        shapes = {name.removeprefix(f"{part}."): value.shape for name, value in weights.items() if name.startswith(f"{part}.")}
        try:
            configs[f"{part}_config"] = config_from_shapes(shapes.get).to_dict()
        except KeyError as error:
            raise PlainError(f"{str(path)!r} lacks {part}.{error.args[0]}, which electra_pytorch saves: use another.") from None
    n_words = configs["discriminator_config"]["vocab_size"]
    if len(hf_tokenizer) != n_words:
        raise PlainError(f"{vocab} has {len(hf_tokenizer)} words, and {str(path)!r} {n_words}: give the one that it was trained with.")
    return {"model": weights, **configs, "tokenizer": hf_tokenizer.backend_tokenizer.to_str(), "config": {
        "made by": "electra_pytorch", "layer_norm_eps": "1e-12, of the generator's head 1e-5 in training (transformers 3.3.1)"}}


def export(checkpoint, path, folder, vocab=None):
    """Write a checkpoint of any kind, the content of the file `path`, into `folder`. PlainError for one of another program."""
    keys = set(checkpoint) if isinstance(checkpoint, dict) else set()
    if any(str(name).startswith("generator.electra.") for name in keys):  # saved without the optimizer
        checkpoint, keys = {"model": checkpoint}, {"model"}
    is_theirs = "model" in keys and "tokenizer" not in keys and any(name.startswith("generator.electra.") for name in checkpoint["model"])
    is_finetuned = {"encoder_config", "run", "tokenizer"} <= keys
    if not (is_theirs or is_finetuned or has_keys(checkpoint, PRETRAINING_KEYS)):
        raise PlainError(f"{str(path)!r} is a checkpoint of another program: export_hf takes those of pretrain.py, finetune.py and "
                         "electra_pytorch.")
    if vocab is not None and not is_theirs:
        raise PlainError(f"{str(path)!r} has its own vocabulary: leave --vocab out.")
    if is_finetuned:
        export_finetuned(checkpoint, path, folder)
    else:
        export_pretrained(adopt_electra_pytorch(checkpoint, path, vocab) if is_theirs else checkpoint, path, folder)


def main(arguments=None):
    parser = argparse.ArgumentParser(prog="python -m _utils.export_hf", description=__doc__.split("\n")[0])
    parser.add_argument("checkpoint", metavar="CKPT")
    parser.add_argument("out_dir", metavar="OUT_DIR")
    parser.add_argument("--vocab", metavar="VOCAB_TXT", help="of a checkpoint of electra_pytorch")
    given = parser.parse_args(arguments)
    transformers.utils.logging.disable_progress_bar()
    of_glue = Path("checkpoints/glue", given.checkpoint)
    path = of_glue if of_glue.is_file() else find_checkpoint(given.checkpoint)
    with new_folder(given.out_dir) as folder:
        export(load_checkpoint(path), path, folder, given.vocab)
    print(*sorted(map(str, Path(given.out_dir).iterdir())), sep="\n")


if __name__ == "__main__":
    print_plain_errors()
    main()
