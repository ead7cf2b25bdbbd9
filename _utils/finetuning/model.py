"""Finetuned networks: the best epoch, checkpoints, and predictions."""
import copy
import sys
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import NamedTuple

import numpy as np
import pandas as pd
import torch
from fastai.callback.core import Callback
from transformers import AutoModel, ElectraForPreTraining, PretrainedConfig

from _utils.errors import UserError, as_user_error
from _utils.files import content_key
from _utils.finetuning.runs import GLUE_FOLDER, check_same_task, finished_run, score_of, task_of
from _utils.names import find_checkpoint
from _utils.networks import config_of, fit_to_cpu, load_weights, set_attention
from _utils.networks.pretrained import with_prefix
from _utils.runs import load_checkpoint, save_checkpoint, tokenizer_record, versions
from _utils.runs.definitions import definitions_of
from _utils.seeds import fork_rng
from _utils.tasks.rows import IGNORED, inference_dataloader, text_messages
from _utils.tasks.tables import Table, check_columns, to_dataset
from _utils.text import tokenizer_of
from _utils.training import DTYPES, choose_device, choose_precision


class KeepBest(Callback):
    """After each epoch, remembers the weights if `score(learner)` is the best so far, and restores the best ones at the
    end.

    An undefined score (NaN) is worse than any other. Computing the score does not change the random numbers of the
    training.   best_epoch: its number, from 1.
    """
    order = 60

    def __init__(self, score):
        self.score, self.best = score, -np.inf

    def after_epoch(self):
        with fork_rng(self.learn.device):  # from which loaders draw
            score = np.nan_to_num(self.score(self.learn), nan=np.finfo(float).min)
        if score > self.best:
            self.best, self.best_epoch = score, self.learn.epoch + 1
            self.weights = copy.deepcopy(self.learn.model.state_dict())

    def after_fit(self):
        self.learn.model.load_state_dict(self.weights)


def save_finetuned(path, model, hf_tokenizer, record):
    """Save a finetuned checkpoint: weights, the encoder's configuration, the tokenizer, the FinishedRun, and the
    definition of its network.
    """
    save_checkpoint(
        {
            "model": model.state_dict(),
            "encoder_config": model.base_model.config.to_dict(),
            **tokenizer_record(hf_tokenizer),
            "run": asdict(record),
            "network": content_key(definitions_of(type(model))),
            "versions": versions(),
        },
        path,
    )


class Untrained(NamedTuple):
    """Networks without weights, in place of `networks.Pretrained`. has_pooler: of the encoder."""
    config: PretrainedConfig
    has_pooler: bool

    def encoder(self):
        """The encoder."""
        encoder = AutoModel.from_config(self.config, trust_remote_code=False)
        if not self.has_pooler:
            encoder.pooler = None  # pretrain.py builds BERT and ALBERT without a pooler
        return encoder

    def discriminator(self):
        """ELECTRA's discriminator."""
        return ElectraForPreTraining(self.config)


def load_finetuned(path, sentence_predictor):
    """(model, hf_tokenizer, FinishedRun) of a finetuned checkpoint. UserError if it is not one.

    sentence_predictor: SentencePredictor of Finetune_GLUE.ipynb. Prints a notice if it has changed since.
    """
    checkpoint = load_checkpoint(find_checkpoint(path, GLUE_FOLDER))
    run = finished_run(checkpoint, path)
    weights = checkpoint["model"]
    untrained = Untrained(config_of(checkpoint, "encoder", path), any("pooler." in name for name in weights))
    model = task_of(run).head.network(untrained, run.settings, sentence_predictor)
    load_weights(model, weights, path)
    is_edited = checkpoint.get("network", now := content_key(definitions_of(type(model)))) != now
    if is_edited and isinstance(model, sentence_predictor):
        print(f"Notice: SentencePredictor has changed since {str(path)!r} was trained, so its predictions may differ.",
              file=sys.stderr)
    return model.eval(), tokenizer_of(checkpoint), run


def load_encoder(model, run):
    """Load the encoder of a FinishedRun into a predictor, whose head is kept."""
    model.base_model.load_state_dict(with_prefix(load_checkpoint(run.path)["model"], "base_model."))


def to_device(model, device):
    """The model on a torch.device, with the implementations of attention and dropout that are fastest there."""
    if device.type == "cpu":
        fit_to_cpu(model)
    else:
        set_attention(model, "sdpa_static")
    return model.to(device)


@torch.no_grad()
def predict_logits(model, dl, precision, name):
    """Outputs of a model for an unshuffled PaddedBatchDL on its device: (N, C) or (N,), on the CPU, in the order of the
    rows.

    For tagging N counts the words of all rows. UserError, with a name for the model, if they are not finite.
    """
    dtype = DTYPES[precision]
    model.eval()
    with torch.autocast(dl.destination.type, dtype, enabled=dtype is not None):
        batches = [(model(*xb).float(), labels) for *xb, labels in dl]
    # Waits for the GPU only here, at the end.
    outputs = torch.cat(
        [output.cpu()[labels.cpu() != IGNORED] if output.dim() == 3 else output.cpu() for output, labels in batches]
    )
    if not outputs.isfinite().all():
        raise UserError(f"{name}: the outputs of the model are not finite numbers. Correct texts "
                        "without tokens, or finetune in another group_name with precision=fp32 or a lower learning "
                        "rate (task_overrides).")
    in_rows = torch.empty_like(outputs)
    in_rows[torch.as_tensor(dl.dataset.positions(dl.get_idxs()))] = outputs
    return in_rows


def evaluate(learn, task, data):
    """{split: `Metrics.evaluate`} of a learner on the dev sets of an EncodedTask."""
    evaluations = {}
    for (split, rows), dl in zip(data.devs.items(), learn.dls.loaders[1:]):
        logits = predict_logits(learn.model, dl, learn.precision, task.title)
        evaluations[split] = task.scores.evaluate(task.head.outputs(rows, logits), data.labels[split])
    return evaluations


def keep_best(task, data):
    """KeepBest for the dev score of a Task. data: EncodedTask."""
    return KeepBest(lambda learn: score_of(evaluate(learn, task, data)))


class FinetunedModel:
    """A finetuned checkpoint, given by its path or its name in checkpoints/glue, as `finetune.load` returns it.

    sentence_predictor: SentencePredictor of Finetune_GLUE.ipynb.
    task: its Task.   labels: in the order of the probabilities.   run: its FinishedRun.
    """

    def __init__(self, path, sentence_predictor, device, precision):
        self.path, self.sentence_predictor = str(path), sentence_predictor
        self.network, self.hf_tokenizer, self.run = load_finetuned(path, sentence_predictor)
        self.task, self.settings = task_of(self.run), self.run.settings
        self.labels, self.device = list(self.task.labels), choose_device(device)
        self.precision = choose_precision(precision, self.device)

    def predict(self, texts):
        """Predictions for a list of texts, of tuples with a text for each of `task.texts`, or of sentences to tag.

        Or for a table: a DataFrame, a dictionary of columns, or a list of dictionaries. Its columns of the texts have
        the names of the training file, or of `task.texts`.
        Sentences are lists of words, or strings with spaces between the words.
        Of a task whose labels are character spans, the labels of a text are its spans [start, end, label].
        UserError for an empty list, other columns, and what is not a text.
        """
        return self.predict_table(*_table_of(texts, self.task))

    def predict_table(self, table, columns):
        """Predictions for the rows of a Table. columns: of the texts."""
        check_columns(table, columns, f"The columns of the texts are {columns}. Rename them, or pass a list of texts.")
        rows = to_dataset(table, dict(zip(self.task.texts, columns)), self.task, "test", [])
        return self.task.prediction_files.predictions(self.outputs(rows).numpy(), rows)

    def outputs(self, rows):
        """`Head.outputs` for a Dataset with its columns: probabilities (N, C), scores (N,), or Answers; for tagging N
        counts words. UserError if they are not finite.
        """
        inputs = self.task.inputs
        encoded = inputs.encode(rows, self.hf_tokenizer, self.settings, self.sentence_predictor)
        windows = ", or with window_stride" * ("window_stride" in self.task.head.keys)
        advice = f"Shorten them, or finetune with a larger max_length, if the pretrained model allows it{windows}."
        texts = inputs.texts_in(rows)
        for warning in text_messages(encoded, self.settings.max_length, self.hf_tokenizer, texts, advice):
            print(f"{self.task.title}: {warning}", file=sys.stderr)
        dl = inference_dataloader(encoded, self.settings.bs, self.device)
        logits = predict_logits(to_device(self.network, self.device), dl, self.precision, self.path)
        return self.task.head.outputs(encoded, logits)

    def check_task(self, task):
        """As `check_same_task`."""
        check_same_task(self.run, task, self.path)


def _table_of(texts, task):
    """(Table, its columns of texts) of what `FinetunedModel.predict` accepts."""
    names, in_files = list(task.texts), list(task.columns_in_files[:-1])
    rows = _rows_of(texts, [in_files, names])
    if not len(rows):
        raise UserError("The list of texts to predict is empty. Pass at least one text.")
    if isinstance(rows, pd.DataFrame):
        table = task.inputs.in_rows(Table("texts", rows.astype(object).set_axis(_places(rows)), {}))
        columns = names if {*names} <= {*table.rows} and not {*in_files} <= {*table.rows} else in_files
        return table, columns
    if len(names) == 1:
        rows = [[text] for text in rows]
    if any(isinstance(row, str) or not hasattr(row, "__len__") or len(row) != len(names) for row in rows):
        raise UserError(f"{rows!r:.100} is not a list of tuples of {len(names)} texts. Pass one such as "
                        f"{[names]!r:.100}.")
    return Table("texts", pd.DataFrame(rows, _places(rows), names, dtype=object), {}), names


def _rows_of(texts, names):
    """A list of texts or tuples, or a DataFrame of rows with names. names: lists of possible columns of the texts."""
    if isinstance(texts, pd.DataFrame):
        return texts.rename(columns=str)
    if isinstance(texts, pd.Series) and any({*columns} <= {*texts.index} for columns in names):  # a row of a DataFrame
        texts = dict(texts)
    if isinstance(texts, Mapping):
        is_row = any(isinstance(texts.get(column), str) for columns in names for column in columns)
        with as_user_error("The columns of the texts to predict are not a table ({error}). Pass lists of equal length.",
                           ValueError):
            return pd.DataFrame([texts] if is_row else dict(texts))
    if isinstance(texts, str) or not isinstance(texts, Iterable):
        texts = [texts]
    rows = list(texts)
    return pd.DataFrame(rows) if rows and all(isinstance(row, Mapping) for row in rows) else rows


def _places(rows):
    return [f"row {i}" for i in range(len(rows))]
