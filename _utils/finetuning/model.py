"""Finetuned networks: the best epoch, checkpoints, and predictions."""
import copy
import sys
from typing import NamedTuple

import numpy as np
import pandas as pd
import torch
from fastai.callback.core import Callback
from transformers import AutoModel, ElectraForPreTraining, PretrainedConfig

from _utils.errors import UserError
from _utils.finetuning.runs import load_finetuned_checkpoint, path_of
from _utils.networks import config_of, load_weights, make_dropout_cheap, set_attention
from _utils.runs import load_checkpoint, save_checkpoint, tokenizer_record, versions
from _utils.tasks.kinds import task_of
from _utils.tasks.rows import IGNORED, inference_dataloader, text_notices
from _utils.tasks.tables import Table, check_columns, to_dataset
from _utils.text import tokenizer_of
from _utils.training import DTYPES, choose_device, choose_precision
from _utils.training.device import avoid_cudnn_attention, fork_rng


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
    """Save a finetuned checkpoint: weights, the encoder's configuration, the tokenizer, and the record of the run."""
    save_checkpoint(
        {
            "model": model.state_dict(),
            "encoder_config": model.base_model.config.to_dict(),
            **tokenizer_record(hf_tokenizer),
            "run": record,
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


def load_finetuned(path):
    """(model, hf_tokenizer, record of the run) of a finetuned checkpoint. UserError if it is not one."""
    checkpoint = load_finetuned_checkpoint(path)
    record, weights = checkpoint["run"], checkpoint["model"]
    untrained = Untrained(config_of(checkpoint, "encoder", path), any("pooler." in name for name in weights))
    model = task_of(record).network(untrained, record["settings"] | {"freeze": False})
    load_weights(model, weights, path)
    return model.eval(), tokenizer_of(checkpoint), record


def load_encoder(model, record):
    """Load the encoder of a finished run into a predictor, whose head is kept."""
    weights = load_checkpoint(path_of(record))["model"]
    model.base_model.load_state_dict({name.removeprefix("base_model."): value for name, value in weights.items()
                                      if name.startswith("base_model.")})


def to_device(model, device):
    """The model on a torch.device, with the implementations of attention and dropout that are fastest there."""
    if device.type == "cpu":
        make_dropout_cheap(model)
    else:
        set_attention(model, "sdpa_static")
    return model.to(device)


@torch.no_grad()
def predict_logits(model, dl, precision):
    """Outputs of a model for an unshuffled PaddedBatchDL on its device: (N, C) or (N,), on the CPU, in the order of the
    rows.

    For tagging N counts the words of all rows.
    """
    dtype = DTYPES[precision]
    model.eval()
    avoid_cudnn_attention()
    with torch.autocast(dl.destination.type, dtype, enabled=dtype is not None):
        batches = [(model(*xb).float(), labels) for *xb, labels in dl]
    # Waits for the GPU only here, at the end.
    outputs = torch.cat(
        [output.cpu()[labels.cpu() != IGNORED] if output.dim() == 3 else output.cpu() for output, labels in batches]
    )
    in_rows = torch.empty_like(outputs)
    in_rows[torch.as_tensor(dl.dataset.positions(dl.get_idxs()))] = outputs
    return in_rows


def predict_rows(task, model, rows, settings, device, precision):
    """The outputs of a Task for encoded rows, on the CPU. settings: of the run; only the batch size is used."""
    dl = inference_dataloader(rows, settings["bs"], device)
    return task.outputs(rows, predict_logits(to_device(model, dl.destination), dl, precision))


class FinetunedModel:
    """A finetuned checkpoint, given by its path or its name in checkpoints/glue: `load("g_mine_0.pth").predict(["A
    text."])`.

    task: its Task.   labels: in the order of the probabilities.   run: the record of its run.
    """

    def __init__(self, path, device=None, precision=None):
        self.path = str(path)
        self.network, self.hf_tokenizer, self.run = load_finetuned(path)
        self.task, self.settings = task_of(self.run), self.run["settings"]
        self.labels, self.device = list(self.task.labels), choose_device(device)
        self.precision = choose_precision(precision, self.device)

    def predict(self, texts):
        """Predictions for a list of texts, of tuples with a text for each of `task.texts`, or of sentences to tag.

        Sentences are lists of words, or strings with spaces between the words.
        Of a task whose labels are character spans, the labels of a text are its spans [start, end, label].
        """
        names = self.task.texts
        texts = [texts] if isinstance(texts, str) else list(texts)
        rows = [[text] for text in texts] if len(names) == 1 else texts
        if any(isinstance(row, str) or len(row) != len(names) for row in rows):
            raise UserError(f"{rows!r:.100} is not a list of tuples of {len(names)} texts. Pass one such as "
                            f"{[names]!r:.100}.")
        places = [f"row {i}" for i in range(len(rows))]
        table = Table("texts", pd.DataFrame(rows, places, names, dtype=object), {})
        predictions = self.predict_table(table, names)
        return predictions._replace(labels=self.task.labels_of_texts(texts, predictions.labels))

    def predict_table(self, table, columns):
        """Predictions for the rows of a Table. columns: of the texts."""
        check_columns(table, columns, f"These are the columns of the texts of the task {self.task.name!r}.")
        rows = to_dataset(table, dict(zip(self.task.texts, columns)), self.task, "test", [])
        return self.task.predictions(self.outputs(rows).numpy(), rows)

    def outputs(self, rows):
        """`Task.outputs` for a Dataset with its columns: probabilities (N, C), scores (N,), or Answers; for tagging N
        counts words.
        """
        encoded = self.task.encode(rows, self.hf_tokenizer, self.settings)
        for notice in text_notices(
                encoded, self.settings["max_length"], self.hf_tokenizer, self.task.sample(rows),
                if_long="Finetune with a larger max_length or with window_stride, or shorten the texts.",
                if_unknown="The model was trained on other texts.", many=.3):
            print(f"{self.task.title}: {notice}", file=sys.stderr)
        return predict_rows(self.task, self.network, encoded, self.settings, self.device, self.precision)


load = FinetunedModel
