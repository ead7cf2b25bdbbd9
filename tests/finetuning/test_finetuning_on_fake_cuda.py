"""Finetuning steps on fake CUDA tensors: every tensor is on the GPU, and nothing synchronizes with it."""
from types import SimpleNamespace

import pytest
import torch
from fake_cuda import fake_cuda
from fastai.callback.core import Callback, CancelFitException
from torch._subclasses.fake_tensor import DataDependentOutputException, DynamicOutputShapeException
from transformers import AutoModel, ElectraForPreTraining

import finetune
from _utils.networks.fast import set_attention
from _utils.recipes import RECIPES
from _utils.tasks.glue import TASKS
from _utils.tasks.heads import WordPredictor
from _utils.tasks.rows import EncodedRows, EncodedTask, finetuning_dataloaders
from _utils.tasks.tagging import Tagging, WordRows
from _utils.tasks.wsc import WSC, SchemaPredictor, SchemaRows, make_schema

CUDA = torch.device("cuda:0")
pytestmark = pytest.mark.filterwarnings("ignore:'pin_memory' argument")


def rows_of(task, n=16):
    """EncodedRows of different lengths with dummy tokens."""
    lengths = [9 + i % 16 for i in range(n)]
    labels = [i / n if not task.labels else i % len(task.labels) for i in range(n)]
    return EncodedRows([{"inp_ids": [7] * length, "token_type_ids": [0] * length} for length in lengths], labels)


def predictor(task, size):
    encoder = AutoModel.from_config(RECIPES[size].encoder.config(30522))
    return finetune.SentencePredictor(encoder, encoder.config.hidden_size, task.n_outputs)


def learner(task, model, rows, precision, size="tiny", device=CUDA, **changes):
    recipe = RECIPES[size]
    settings = {"lr": recipe.glue_lr, "layer_decay": recipe.layer_decay, "epochs": 15, "bs": 4, "weight_decay": .01,
                "original_lr_layer_decays": True, "adam_bias_correction": False, "schedule": "original_linear", **changes}
    return finetune.get_glue_learner(task, model=model, data=EncodedTask(rows, {"dev": rows}), settings=settings, device=device,
                                     precision=precision, log=SimpleNamespace(log=lambda *_: None))


def predict(learn, dl):
    return finetune.predict_logits(learn.model, dl, learn.precision)


class Steps(Callback):
    """Stops training after some steps, before LossProgress reads the last loss."""
    order = 9

    def __init__(self, steps):
        self.steps = steps

    def after_batch(self):
        if self.learn.train_iter == self.steps:
            raise CancelFitException


def take_two_steps(learn):
    """Take two training steps; returns the gradients of the last one by parameter."""
    gradients = {}
    learn.opt.zero_grad = lambda: gradients.update({name: p.grad for name, p in learn.model.named_parameters()})
    learn.fit(1, cbs=Steps(2))
    assert learn.train_iter == 2 and learn.loss_grad.device == CUDA and learn.loss_grad.dtype == torch.float32
    return gradients


@pytest.mark.parametrize("size, task, precision, corrected", [
    ("small", "stsb", "fp32", False), ("large", "cola", "bf16", False),
    *[pytest.param(*values, marks=pytest.mark.slow) for values in (("small", "mnli", "bf16", False), ("base", "stsb", "bf16", True))]])
def test_steps_and_predictions_do_not_synchronize(size, task, precision, corrected):
    task = TASKS[task]
    with fake_cuda():
        learn = learner(task, predictor(task, size), rows_of(task), precision, size, adam_bias_correction=corrected)
        batches = list(learn.dls.train)
        assert {tensor.device for batch in batches for tensor in batch} == {CUDA}
        assert {batch[0].shape for batch in batches} == {(4, 16), (4, 24)}
        gradients = take_two_steps(learn)
        assert all(gradient.device == CUDA for gradient in gradients.values())
        moments = learn.opt.opt.state.values()
        assert len(moments) == len(gradients)
        assert all(tensor.device == CUDA for state in moments for name, tensor in state.items() if name != "step")
        assert predict(learn, learn.dls.loaders[1]).device.type == "cpu"


@pytest.mark.parametrize("size", ["bert_tiny", "albert_tiny"])
def test_other_families_do_not_synchronize(size):
    task = TASKS["rte"]
    with fake_cuda():
        take_two_steps(learner(task, predictor(task, size), rows_of(task), "bf16", size))


def test_tagging_does_not_synchronize(small_tokenizer):
    task = Tagging("tags", "tags", ("text",), ("A", "B"))
    sentences = [["the", "network", "makes", "guesses"][:2 + i % 3] for i in range(16)]
    rows = WordRows(sentences, [[i % 2 for i, _ in enumerate(words)] for words in sentences], small_tokenizer, 32)
    encoder = RECIPES["tiny"].encoder.config(len(small_tokenizer))
    with fake_cuda():
        model = WordPredictor(AutoModel.from_config(encoder), encoder.hidden_size, task.n_outputs)
        learn = learner(task, model, rows, "bf16")
        take_two_steps(learn)
        with pytest.raises(DynamicOutputShapeException):  # the words are selected at the end, on the CPU, where fake tensors have no values
            predict(learn, learn.dls.loaders[1])


def test_the_wsc_trick_does_not_synchronize(small_tokenizer):
    text = "The network makes good guesses because it takes time."
    candidates = "the network", "good guesses"
    schemas = [make_schema(text, text.index("it"), text.index("it") + 2, candidates[i % 2], i % 2) for i in range(60)]
    rows = SchemaRows(schemas, small_tokenizer, 32)
    with fake_cuda():
        model = SchemaPredictor(ElectraForPreTraining(RECIPES["tiny"].discriminator.config(len(small_tokenizer))))
        gradients = take_two_steps(learner(WSC, model, rows, "bf16"))
        assert gradients["threshold"].device == CUDA


def test_losses_are_read_only_for_logging():
    task = TASKS["rte"]
    with fake_cuda():
        learn = learner(task, predictor(task, "tiny"), rows_of(task), "fp32")
        assert learn.loss_progress.every == 3
        with pytest.raises(DataDependentOutputException):
            learn.fit(1)
        assert learn.train_iter == 3


def test_a_step_that_synchronizes_is_detected():
    """As with the attention of transformers, which looks for padding."""
    task = TASKS["rte"]
    with fake_cuda():
        learn = learner(task, predictor(task, "tiny"), rows_of(task), "bf16")
        set_attention(learn.model, "sdpa")
        with pytest.raises(DataDependentOutputException):
            take_two_steps(learn)


@pytest.mark.parametrize("size", ["tiny", "mini"])  # ELECTRA, and RoFormer with attention of its own
def test_padding_and_attention_for_the_gpu_do_not_change_predictions(size):
    """Runs on the CPU what is only used on GPUs."""
    task = TASKS["mnli"]
    torch.manual_seed(0)
    model, rows = predictor(task, size), rows_of(task)
    ids = rows.flat["inp_ids"]
    ids[:] = torch.randint(5, 100, (len(ids),)).numpy()
    learn = learner(task, model, rows, "fp32", device=torch.device("cpu"), bs=1)
    dev = learn.dls.loaders[1]
    set_attention(model, "sdpa")
    expected = predict(learn, dev)
    set_attention(model, "sdpa_static")
    dev.multiple = 8
    assert {batch[0].shape[1] for batch in dev} == {16, 24}
    torch.testing.assert_close(predict(learn, dev), expected, atol=1e-6, rtol=1e-5)
    assert expected.std(0).min() > 0
    assert rows_of(task, 4).batch([0, 1], 8)[0].shape == (2, 12)  # 10 tokens; the longest row has 12


def test_batches_are_copied_to_the_gpu_asynchronously_from_pinned_memory(monkeypatch):
    task, sent = TASKS["rte"], []
    loader = finetuning_dataloaders(rows_of(task), [], 4, 0, CUDA).train
    assert loader.fake_l.pin_memory
    monkeypatch.setattr(torch.Tensor, "to", lambda tensor, device, non_blocking=False: sent.append((device, non_blocking)))
    next(iter(loader))
    assert sent == [(CUDA, True)] * 4
