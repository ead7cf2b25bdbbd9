"""Export checkpoints to folders for transformers: `python -m _utils export_hf`."""
import contextlib
import copy
import importlib
import math
import os
import shutil
from dataclasses import asdict, replace
from operator import attrgetter
from pathlib import Path

import pandas as pd
import torch
from safetensors import SafetensorError

from _utils.commands.model_card import (
    facts_of_finetuning,
    facts_of_pretraining,
    without_folder,
    without_folders,
    write_card,
)
from _utils.errors import UserError, as_user_error
from _utils.files import check_writable, unfinished_name
from _utils.finetuning.model import load_finetuned
from _utils.finetuning.runs import FINETUNING_KEYS, GLUE_FOLDER, finished_run, task_of
from _utils.names import PRETRAIN_FOLDER, find_checkpoint
from _utils.networks.build import PARTS, inputs_of
from _utils.networks.pretrained import (
    SELECTED_BY,
    config_of,
    load_weights,
    network_of,
    parts_of,
    sizes_of,
    usable_length,
    with_prefix,
)
from _utils.objectives.objective_keys import ELECTRA, KEYS, selected
from _utils.objectives.registry import OBJECTIVES, objective_of
from _utils.recipes import config_from_shapes
from _utils.runs.checkpoints import check_format, has_keys, is_pretrained, load_checkpoint, tokenizer_record
from _utils.tasks.parts import Inputs
from _utils.tasks.tables import Table, to_dataset
from _utils.text.vocabulary import from_vocab_file, tokenizer_of

_ADVICE = "Export the pretrained checkpoint, or finetune with other settings or another model."


def export_hf(ckpt, out_dir, *, vocab=None, half=False, license=None, language=None):
    """Export a checkpoint to folders for transformers. Arguments as in `_utils/__main__.py`."""
    path = find_checkpoint(ckpt, GLUE_FOLDER, PRETRAIN_FOLDER)
    checkpoint = load_checkpoint(path)
    if has_keys(checkpoint, FINETUNING_KEYS):
        exports = [_classifier_export(checkpoint, path, half)]
    elif is_pretrained(checkpoint):
        check_format(checkpoint, repr(str(path)))
        exports = _pretrained_exports(checkpoint, path, half)
    else:
        exports = _pretrained_exports(_of_electra_pytorch(checkpoint, path, vocab), path, half)
    with new_folder(out_dir) as folder:
        for name, network, *card, facts in exports:
            facts |= {"license": license, "language": language or facts["language"]}
            save_network(folder / name, network, *card, facts)
    print(*sorted(map(str, Path(out_dir).iterdir())), sep="\n")


def to_half(network, path):
    """Round the trained weights to 16 bits; constants, such as RoFormer's table of angles, stay exact.

    Raises UserError, with the path of the checkpoint, for a weight that is too large.
    """
    for parameter in filter(attrgetter("requires_grad"), network.parameters()):
        parameter.data = parameter.data.half()
        if not parameter.isfinite().all():
            raise UserError(f"A weight of {str(path)!r} is too large for half precision. Leave out --half.")


@contextlib.contextmanager
def new_folder(path):
    """A temporary folder that is renamed to `path` at the end of the block, or deleted if the block raises.

    Raises UserError, before anything is written, if `path` exists and is not an empty folder, or cannot be created.
    """
    path = Path(path).resolve()
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise UserError(f"{str(path)!r} already exists. Pass a new or an empty folder.")
    check_writable(path.parent)
    unfinished = unfinished_name(path)
    unfinished.mkdir(parents=True)
    try:
        with as_user_error(f"Could not write {str(path)!r} ({{error}}). Free some disk space, or pass another folder.",
                           (OSError, SafetensorError)):
            yield unfinished
            for file in filter(Path.is_file, unfinished.rglob("*")):
                with open(file, "rb") as written:
                    os.fsync(written.fileno())  # before the renaming: a power failure leaves no half-written file
            unfinished.replace(path)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def save_network(folder, network, hf_tokenizer, title, training, made_by, fills_masks=True, facts=None):
    """Write a network as safetensors with its configuration, the tokenizer (or None), and a model card.

    training: how it was pretrained, a phrase after "Pretrained".   made_by: a dictionary that describes the run and has
    its metrics; of paths in it only the last part is published.   fills_masks: False for a language model trained
    without [MASK].   facts: for the hub, as in `write_card`.
    """
    network.save_pretrained(folder)
    # safetensors writes files that only the user can read
    shutil.copymode(folder / "config.json", folder / "model.safetensors")
    if hf_tokenizer is not None:
        hf_tokenizer.model_max_length = usable_length(network, hf_tokenizer, {})
        inputs = list(inputs_of(network, None, None, None))  # whatever the tokenizer's class
        hf_tokenizer.model_input_names = hf_tokenizer.init_kwargs["model_input_names"] = inputs
        hf_tokenizer.save_pretrained(folder)
    write_card(folder, network, hf_tokenizer, title, training, made_by, facts or {}, fills_masks)


def _of_electra_pytorch(checkpoint, path, vocab):
    """The checkpoint that pretrain.py would have written for one of electra_pytorch. vocab: the path of the vocab.txt.

    The names of its weights are those of transformers 3.3.1: the current ones, and a buffer `position_ids` that is no
    longer saved. UserError for another checkpoint.
    """
    # saved with or without the optimizer
    weights = checkpoint["model"] if has_keys(checkpoint, {"model": dict}) else checkpoint
    is_of_pair = has_keys(weights, {"generator.electra.embeddings.word_embeddings.weight": torch.Tensor})
    if not is_of_pair or {"tokenizer", "config"} & checkpoint.keys():
        raise UserError(f"{str(path)!r} was not written by pretrain.py, finetune.py or electra_pytorch, or only for "
                        "resuming. Use one of their milestones or finetuned checkpoints.")
    if vocab is None:
        raise UserError(f"{str(path)!r} is a checkpoint of electra_pytorch, which contains no vocabulary. Pass "
                        "--vocab PATH/vocab.txt; the default of electra_pytorch is that of "
                        "google/electra-small-discriminator.")
    weights = {name: value for name, value in weights.items() if not name.endswith("embeddings.position_ids")}
    configs = {}
    for part in PARTS:
        shapes = {name: value.shape for name, value in with_prefix(weights, f"{part}.").items()}
        with as_user_error(f"Cannot read the sizes of the {part} in {str(path)!r} ({{error}}). Use another "
                           "checkpoint.", KeyError):
            configs[part] = config_from_shapes(shapes.__getitem__)
    hf_tokenizer = read_vocab(vocab, configs["discriminator"].vocab_size)
    eps = "1e-12; in training 1e-5 in the generator's head (transformers 3.3.1)"
    max_length = 128 if configs["discriminator"].hidden_size == 256 else 512  # its settings for small, base and large
    return {"model": weights, **{f"{part}_config": config.to_dict() for part, config in configs.items()},
            **tokenizer_record(hf_tokenizer),
            "config": {"made by": "electra_pytorch", "layer_norm_eps": eps, "max_length": max_length}}


def read_vocab(path, vocab_size):
    """The tokenizer of a vocab.txt; UserError if it does not have the size with which the networks were trained."""
    hf_tokenizer = from_vocab_file(path)
    if len(hf_tokenizer) != vocab_size:
        raise UserError(f"The vocabulary {path} has {len(hf_tokenizer)} tokens, but the checkpoint has {vocab_size}. "
                        "Pass the vocabulary of the training with --vocab.")
    return hf_tokenizer


def _pretrained_exports(checkpoint, path, half):
    """Yield (part, arguments of `save_network`) for each network of a pretraining checkpoint."""
    parts, run = parts_of(checkpoint), checkpoint["config"]
    objective = objective_of(run)
    title = _title(run, objective, [config_of(checkpoint, part, path) for part in parts])
    made_by = {key: checkpoint[key] for key in ("step", "config", "versions", "held-out metrics") if key in checkpoint}
    made_by["config"] = without_folders(run)
    for part in parts:
        network, hf_tokenizer = network_of(checkpoint, part, path), tokenizer_of(checkpoint)
        vars(network.config).pop(SELECTED_BY, None)  # of an earlier training
        if selected(run) != ELECTRA:
            network.config.update({SELECTED_BY: dict([KEYS[selected(run)].selected_by])})
        hf_tokenizer.model_max_length = usable_length(network, hf_tokenizer, run)
        if half:
            to_half(network, path)
        yield (part, network, hf_tokenizer, f"{title}, {objective.title or part}", objective.training[part],
               made_by, objective.fills_masks, facts_of_pretraining(run, part))


def _title(run, objective, configs):
    """The name of the recipe of a pretraining configuration, or the families if the network is not the recipe's.

    configs: of the networks, the one to finetune last.
    """
    families = [config.model_type for config in configs]
    if run.get("size") not in sizes_of(configs[-1]) or run.get(objective.networks[-1].key):
        return " and ".join(dict.fromkeys(families))
    is_electra = not objective.title and families[-1] in ("electra", "roformer")
    return f"ELECTRA-{run['size']}" if is_electra else run["size"]


def _classifier_export(checkpoint, path, half):
    """Return ("classifier", arguments of `save_network`) for a finetuned checkpoint.

    Raises UserError if no class of transformers can do it.
    """
    run, config = finished_run(checkpoint, path), config_of(checkpoint, "encoder", path)
    task, family = task_of(run), config.model_type
    if reason := task.head.why_not_exported(run.settings, family):
        raise UserError(f"Cannot export {str(path)!r}: no class of transformers has the head of {reason}. {_ADVICE}")
    labels = dict(enumerate(task.head.output_names))
    ids = {label: i for i, label in labels.items()}
    hf_tokenizer, values = task.head.exported(tokenizer_of(checkpoint), run.settings)
    config.update({"id2label": labels, "label2id": ids, "problem_type": task.head.problem_type, **values})
    objective = OBJECTIVES.get(run.objective, OBJECTIVES[ELECTRA])
    title = "ELECTRA" if family == "electra" and not objective.title else family
    if run.objective:
        training = objective.training[objective.networks[-1].part]
    else:  # a model of transformers
        training = f"as {without_folder(run.pretrained_checkpoint)}"
    made_by = {"run": asdict(run), "versions": checkpoint["versions"]}
    network = classifier(checkpoint, config, task, path)
    if not (has_same_inputs(hf_tokenizer, task, run.settings) and has_same_outputs(network, task, path)):
        raise UserError(f"Cannot export {str(path)!r}: {type(network).__name__} or its tokenizer computes something "
                        "else than SentencePredictor and encode, which were edited, whose encoder has another "
                        "activation than GELU, or whose scores are too large for their spread. Predict with "
                        f"python -m _utils predict. {_ADVICE}")
    if half:
        to_half(network, path)
        if not has_same_outputs(copy.deepcopy(network).float(), task, path, tolerance=.02):
            raise UserError(f"Half precision changes the predictions of {str(path)!r}. Leave out --half.")
    return ("classifier", network, hf_tokenizer,
            f"{title} finetuned on {task.title}", training, made_by, True, facts_of_finetuning(run, task))


def classifier(checkpoint, config, task, path):
    """The network of the family's class for a Task, with the logits of a finetuned checkpoint.

    UserError if the family has no such class, or if the class has more layers between encoder and logits, such as
    ModernBERT's.
    """
    with as_user_error(f"Cannot export {str(path)!r} ({{error}}). {_ADVICE}", ValueError):
        network = task.head.transformers_class.from_config(config, trust_remote_code=False)
    for parameter in network.parameters():
        parameter.data.fill_(math.nan)  # marks those that get no trained weights below
    encoder = with_prefix(checkpoint["model"], "base_model.")
    network.base_model.pooler = None  # of the first token; only some families' classes have one
    encoder = {name: value for name, value in encoder.items() if not name.startswith("pooler.")}
    load_weights(network.base_model, encoder, path)
    with as_user_error(f"The output layer in {str(path)!r} does not fit its task or {type(network).__name__} "
                       f"({{error}}). {_ADVICE}", (KeyError, RuntimeError, AttributeError)):
        task.head.set_head(network, with_prefix(checkpoint["model"], "classifier."))
    if untrained := [name for name, parameter in network.named_parameters() if parameter.isnan().all()]:
        raise UserError(f"Cannot export {str(path)!r}: {type(network).__name__} also needs {untrained[0]}, which "
                        f"finetuning does not train. {_ADVICE}")
    return network


def has_same_inputs(hf_tokenizer, task, settings):
    """Whether a tokenizer gives the ids of a text, or of a pair, with which a Task was finetuned; True for other tasks.

    The function that makes them, `encode`, may have been edited.
    """
    if type(task.inputs).encode is not Inputs.encode:
        return True
    texts = [" ".join(map(str, range(settings.max_length))), "0"][:len(task.texts)]  # of which the first is truncated
    table = Table("texts", pd.DataFrame([texts], columns=task.texts), {})
    rows = to_dataset(table, dict(zip(task.texts, task.texts)), task, "test", [])
    sentence_predictor = importlib.import_module("finetune").SentencePredictor
    encoded = task.inputs.encode(rows, hf_tokenizer, replace(settings, window_stride=None), sentence_predictor)
    return encoded.batch([0])[0][0].tolist() == hf_tokenizer(*texts, truncation=True).input_ids


@torch.no_grad()
def has_same_outputs(network, task, path, tolerance=.01):
    """Whether the network for transformers computes what a checkpoint with SentencePredictor does; True for other ones.

    That class may have been edited, and some heads of transformers have the activation of their encoder.
    """
    sentence_predictor = importlib.import_module("finetune").SentencePredictor
    model, *_ = load_finetuned(path, sentence_predictor)
    if not isinstance(model, sentence_predictor):
        return True
    ids = torch.randint(network.config.vocab_size, (16, 8), generator=torch.Generator().manual_seed(0))
    inputs = ids, torch.ones_like(ids), torch.zeros_like(ids)
    expected = model(*inputs)
    found = task.head.exported_logits(network.eval(), inputs_of(network, *inputs)).view_as(expected)
    return torch.allclose(found, expected, rtol=tolerance / 10, atol=tolerance)
