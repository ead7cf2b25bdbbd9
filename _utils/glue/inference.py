"""Predictions of a finetuned model."""
import torch

from _utils.glue.batches import inference_dataloader
from _utils.networks import make_dropout_cheap, set_attention
from _utils.training.device import avoid_cudnn_attention, choose_device, choose_precision
from _utils.training.learners import DTYPES


def to_device(model, device):
    """The model on a torch.device, with the implementations of attention and dropout that are fastest there."""
    if device.type == "cpu":
        make_dropout_cheap(model)
    else:
        set_attention(model, "sdpa_static")
    return model.to(device)


@torch.no_grad()
def predict_logits(model, dl, precision):
    """Outputs of a model for an unshuffled PaddedBatchDL on its device: (N, C) or (N,), on the CPU, in the order of the rows.

    For tagging N counts the words of all rows.
    """
    dtype = DTYPES[precision]
    model.eval()
    avoid_cudnn_attention()
    with torch.autocast(dl.destination.type, dtype, enabled=dtype is not None):
        outputs = [model(*xb).float() for *xb, _ in dl]
    return dl.dataset.in_order(outputs, dl.get_idxs())  # waits for the GPU only here, at the end


def predict_rows(task, model, rows, settings, device=None, precision=None):
    """Probabilities (N, C) for encoded rows, or scores (N,) of a regression task, on the CPU.

    settings: of the run; only the batch size is used.   device, precision: as in the configuration.
    """
    device = choose_device(device)
    dl = inference_dataloader(rows, settings["bs"], device)
    logits = predict_logits(to_device(model, device), dl, choose_precision(precision, device))
    return logits if task.is_regression else logits.softmax(-1)
