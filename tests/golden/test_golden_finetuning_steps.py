"""`recipe=google` against recorded finetuning steps of Google's code: losses, the norm that clips, gradients, weights
and learning rates (F31, F35, F44, F45).
"""
import numpy as np
import pytest
import torch
from finetuning_steps import encoder_parameters, learner_of, micro_encoder, statistics, train_step
from recorded import recorded

from _utils.tasks.rows import EncodedRows, Window
from _utils.tasks.settings import Settings
from finetune import SentencePredictor

VALUES, ARRAYS = recorded("official/finetuning_steps.json"), recorded("official/finetuning_steps.npz")
NAMES = {"cola": "cola", "mrpc": "mrpc", "sts": "stsb"}  # in Google's code, and here
BS = 9
SETTINGS = Settings(
    recipe="google",
    lr=VALUES["learning_rate"],
    layer_decay=VALUES["layerwise_lr_decay"],
    weight_decay=VALUES["weight_decay_rate"],
    bs=BS,
    epochs=VALUES["num_train_steps"] // VALUES["steps_recorded"],
)


def rows_of(task):
    """EncodedRows of the recorded batches of a task, one after the other, without Google's padding rows."""
    batch, texts, labels = recorded("official/micro_ckpt/pretrain_step.npz"), [], []
    for step in range(1, 1 + VALUES["steps_recorded"]):
        labels += ARRAYS[f"{task}/{step}/labels"].tolist()
        for row in ARRAYS[f"{task}/{step}/rows"]:
            is_token = batch["input_mask"][row] == 1
            types = batch["segment_ids"][row] * (task != "cola")  # recorded as single sentences
            texts.append(([Window(batch["input_ids"][row][is_token], types[is_token])], is_token.sum()))
    return EncodedRows(texts, [5 * label for label in labels] if task == "sts" else labels)


def predictor_of(task):
    """A SentencePredictor with the recorded weights."""
    kernel, bias = (torch.from_numpy(ARRAYS[f"{task}/head/{name}"]) for name in ("kernel", "bias"))
    model = SentencePredictor(micro_encoder(), *kernel.shape)
    model.classifier.load_state_dict({"weight": kernel.T, "bias": bias})
    return model


@pytest.mark.parametrize("loss_scale", [1., 64.])
@pytest.mark.parametrize("task", NAMES)
def test_finetuning_steps_match_google(task, loss_scale):
    rows, model, head = rows_of(task), predictor_of(task), f"task_specific/{task}/dense"
    learn = learner_of(NAMES[task], model, rows, SETTINGS)
    learn.scaler = torch.amp.GradScaler("cpu", init_scale=loss_scale)  # as with precision=fp16
    parameters = encoder_parameters(model)
    parameters |= {f"{head}/kernel": model.classifier.weight, f"{head}/bias": model.classifier.bias}
    expected = VALUES["tasks"][task]
    for step, values, rate in zip(VALUES["global_step"], expected["steps"], expected["head_learning_rate"]):
        *inputs, labels = rows.batch(np.arange(BS * (step - 1), BS * step))
        norm, gradients = train_step(learn, inputs, labels, step)
        np.testing.assert_allclose(learn.pred.detach(), ARRAYS[f"{task}/{step}/outputs"], atol=2e-6)
        assert BS * learn.loss_grad.item() == pytest.approx(values["loss_sum"], rel=1e-5)
        assert norm == pytest.approx(values["clip_norm"], rel=1e-5)
        assert learn.opt.hypers[-1]["lr"] == pytest.approx(rate)
        assert parameters.keys() == values["gradients"].keys() == values["parameters"].keys()
        for name, parameter in parameters.items():
            gradient, weight = statistics(name, gradients[parameter] / loss_scale), statistics(name, parameter)
            assert gradient == pytest.approx(values["gradients"][name], rel=1e-4, abs=1e-4), name
            # in Adam, gradients near zero move a weight as far as others, so rounding is visible
            assert weight == pytest.approx(values["parameters"][name], rel=1e-5, abs=1e-4), name


def test_the_warmup_is_not_rounded():
    """Of 345 steps it takes 34.5."""
    expected = recorded("official/lr_schedule.json")["finetune_345"]
    steps, lr = expected["args"]["num_train_steps"], expected["args"]["learning_rate"]
    rows = EncodedRows([([Window([1], [0])], 1)] * steps, [0] * steps)
    learn = learner_of("cola", predictor_of("cola"), rows, Settings(recipe="google", lr=lr, bs=1, epochs=1))
    for step, rate in zip(expected["global_step"], expected["lr"]):
        learn.train_iter = min(step, steps)
        learn.schedule.before_batch()
        assert learn.opt.hypers[-1]["lr"] == pytest.approx(rate, rel=1e-4, abs=1e-10)  # Google computes in float32
