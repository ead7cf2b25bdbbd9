"""The parts of finetuning: output layer, optimizer, schedule and batches."""
import math
from dataclasses import fields
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F

import finetune
from _utils.finetuning.config import FINETUNE_KEYS, complete_finetuning
from _utils.finetuning.group import PlannedRun
from _utils.finetuning.model import KeepBest, evaluate
from _utils.finetuning.plan import for_checkpoint, settings_of
from _utils.networks import load_pretrained
from _utils.tasks.glue import TASKS, load_task
from _utils.tasks.rows import EncodedRows, EncodedTask, Window, encode_task, finetuning_dataloaders
from _utils.tasks.settings import Settings
from _utils.training import set_seed


@pytest.fixture
def parts(glue, fresh_checkpoint):
    """`parts("key=value", ...)`: (learner, EncodedTask, settings) for MRPC, to test single steps."""
    def make(*overrides):
        c = complete_finetuning(finetune.c.override([f"pretrained_checkpoint={fresh_checkpoint}", "size=tiny",
                                                     "task_overrides={'mrpc': {'rows': 96, 'epochs': 2}}", *overrides]))
        pretrained, task = load_pretrained(c.pretrained_checkpoint), TASKS["mrpc"]
        splits, c = load_task("mrpc", glue).splits, for_checkpoint(c, pretrained)
        settings = settings_of(task, splits, finetune.hyperparameters(task, c, len(splits["train"])), c, pretrained)
        data = encode_task(task, splits, settings, pretrained.hf_tokenizer, finetune.SentencePredictor)
        model = task.head.network(pretrained, settings, finetune.SentencePredictor)
        learn = finetune.get_glue_learner("mrpc", model=model, data=data, settings=settings,
                                          device=torch.device("cpu"), precision="fp32")
        return learn, data, settings
    return make


def test_the_head_is_dropout_and_one_linear_layer_on_the_first_token(parts):
    learn, data, _ = parts()
    model, (ids, mask, segments, _) = learn.model.eval(), data.train.batch([0, 1, 2])
    bound, largest = (6 / (128 + 2)) ** .5, float(model.classifier.weight.data.abs().max())  # Glorot's
    assert model.dropout.p == .1 and .8 * bound < largest <= bound and not model.classifier.bias.any()
    hidden = model.base_model(ids, attention_mask=mask, token_type_ids=segments).last_hidden_state
    torch.testing.assert_close(model(ids, mask, segments), model.classifier(hidden[:, 0]))
    with torch.autocast("cpu", torch.bfloat16):
        assert model(ids, mask, segments).dtype == torch.float32  # three decimals of a score are submitted
    model.train()
    assert not torch.equal(model(ids, mask, segments), model(ids, mask, segments))


def test_rows_are_encoded_by_the_cell_that_ran_last(parts, monkeypatch):
    """It must make a label for each text."""
    encode = finetune.encode
    monkeypatch.setattr(finetune, "encode", lambda *args: [encode(*args)])
    with pytest.raises(AttributeError):  # of a list
        parts()
    with pytest.raises(ValueError, match="2 texts and 1 labels"):
        EncodedRows([([Window([2], [0])], 1)] * 2, [0])


def test_options_of_the_learner_take_effect(parts):
    learn, _, _ = parts("adam_bias_correction=True", "original_lr_layer_decays=False", "weight_decay=.01",
                        "xavier_reinited_outlayer=False")
    assert type(learn.opt.opt) is torch.optim.AdamW and learn.model.classifier.bias.any()
    rates = [group["lr"] for group in learn.opt.opt.param_groups]
    assert rates == pytest.approx([1e-3 * .8 ** depth for depth in (3, 2, 1, 0) for _ in range(2)])
    decays = {id(p): group["weight_decay"] for group in learn.opt.opt.param_groups for p in group["params"]}
    for name, parameter in learn.model.named_parameters():
        assert decays[id(parameter)] == (0. if "bias" in name or "LayerNorm" in name else .01)


def test_learning_rates_follow_schedule_and_layer_decay_at_every_step(parts):
    learn, _, settings = parts()
    learn.remove_cb(learn.loss_progress)
    groups, seen = learn.opt.opt.param_groups, []
    learn.opt.opt.register_step_pre_hook(lambda *_: seen.append([group["lr"] for group in groups]))
    learn.fit(settings.epochs)
    assert len(seen) == 12  # 192 rows in batches of 32, twice; the first is for warmup: int(.1 * 12)
    for step, rates in enumerate(seen):
        share = (1 - step / 12) * min(1, step)
        assert rates == pytest.approx([lr * share for lr in finetune.get_layer_lrs(1e-3, .8, 2) for _ in range(2)])


def test_a_logged_loss_is_the_mean_since_the_row_before(parts):
    learn, _, settings = parts()
    rows, losses, progress = [], [], learn.loss_progress
    progress.every, progress.log = 5, SimpleNamespace(log=lambda _, step, row: rows.append((step, row["loss"])))
    learn.opt.opt.register_step_post_hook(lambda *_: losses.append(learn.loss_grad.item()))
    learn.fit(settings.epochs)
    assert rows == [(5, pytest.approx(sum(losses[:5]) / 5)), (12, pytest.approx(sum(losses[5:]) / 7))]


def test_weights_follow_from_seed_schedule_and_precision_and_not_from_the_number_of_a_run(parts, fresh_checkpoint):
    pretrained = load_pretrained(str(fresh_checkpoint))

    def weights(*overrides, run=0, seed=0):
        _, data, settings = parts("precision=fp32", "task_overrides={'mrpc': {'rows': 32, 'epochs': 1}}", *overrides)
        planned = PlannedRun(TASKS["mrpc"], run, seed, settings, data._replace(devs={}), None, 0., None)
        return finetune.finetune_run(planned, pretrained, torch.device("cpu"))[0].model.classifier.weight
    expected = weights()
    assert weights(run=1).equal(expected)
    for others in (weights(seed=1), weights("schedule=one_cycle"), weights("precision=bf16")):
        assert not others.equal(expected)


# Keys that choose what is trained, where and how often. What they change of a result is recorded as something else: the
# tables, the pretrained weights, the seed and the hyperparameters of a run.
NO_SETTINGS = set("quickstart pretrained_checkpoint tasks glue_dir start end seeds group_name do_finetune "
                  "th_run majority_for_missing task_overrides device num_workers logger".split())


def test_a_key_that_changes_the_result_is_part_of_the_settings_of_a_run():
    settings = {field.name for field in fields(Settings)}
    assert FINETUNE_KEYS.keys() - settings == NO_SETTINGS


def test_the_settings_of_a_run_have_the_values_of_the_configuration(parts):
    c = {"weight_decay": .1, "adam_bias_correction": True, "xavier_reinited_outlayer": False, "freeze": True,
         "schedule": "one_cycle", "original_lr_layer_decays": False, "keep": "best", "max_length": 64,
         "pooling": "mean", "window_stride": 16, "double_unordered": False, "precision": "bf16",
         "start_from_mnli": "other", "recipe": "google"}
    _, _, settings = parts(*(f"{key}={value}" for key, value in c.items()))
    assert {key: getattr(settings, key) for key in c} == c
    assert FINETUNE_KEYS.keys() - NO_SETTINGS - c.keys() == {"size", "wsc_trick"}  # size: of the fixture


class ReadsSecondToken(torch.nn.Module):
    """The id of the second token is the class."""

    def forward(self, ids, *_):
        return F.one_hot(ids[:, 1], 3).float()


def test_the_scores_of_a_dev_set_are_those_of_its_rows():
    labels = dict(zip(TASKS["mnli"].devs, ([0, 1, 2] * 9, [2, 1, 1] * 9)))
    devs = {split: EncodedRows([([Window([2, label], [0, 0])], 2) for label in of_split], of_split)
            for split, of_split in labels.items()}
    dls = finetuning_dataloaders(devs["validation_matched"], devs.values(), 4, 0, "cpu")
    learn = SimpleNamespace(model=ReadsSecondToken(), dls=dls, precision="fp32")
    found = evaluate(learn, TASKS["mnli"], EncodedTask(None, devs, labels))
    assert {split: evaluation["scores"] for split, evaluation in found.items()} == dict.fromkeys(
        ("validation_matched", "validation_mismatched"), {"accuracy": 1.})


@pytest.mark.parametrize("scores, best", [
    ([.1, .7, .7, .3], 2), ([math.nan, .2, math.nan], 2), ([math.nan, math.nan], 1)])
def test_of_equal_scores_the_first_is_the_best_and_an_undefined_one_the_worst(scores, best):
    model = torch.nn.Linear(1, 1)
    keep = KeepBest(lambda learn: scores[learn.epoch])
    for epoch in range(len(scores)):
        keep.learn = SimpleNamespace(model=model, epoch=epoch, device=torch.device("cpu"))
        torch.nn.init.constant_(model.weight, epoch + 1)
        keep.after_epoch()
    keep.after_fit()
    assert keep.best_epoch == best == model.weight.item()


def test_unordered_pairs_are_trained_in_both_orders(parts):
    (_, both, _), (_, one, _) = parts(), parts("double_unordered=False")
    assert len(both.train) == 2 * len(one.train) == 192
    (first, *_, label), (swapped, *_, same_label) = (both.train.batch([row]) for row in (0, 96))
    first, swapped = first[0].tolist(), swapped[0].tolist()
    boundary = first.index(3)  # [SEP] of the small vocabulary
    assert swapped == [first[0], *first[boundary + 1:], *first[1:boundary + 1]] and label == same_label


def test_training_batches_contain_every_row_once_with_rows_of_similar_length_together(parts):
    learn, data, _ = parts("task_overrides={'mrpc': {'rows': 3000}}")
    set_seed(1)
    batches, lengths = list(learn.dls.train), data.train.lengths
    assert sum(len(ids) for ids, *_ in batches) == len(data.train) == 6000 and batches[0][0].shape[1] == lengths.max()
    assert sum(ids.numel() for ids, *_ in batches) < 1.1 * lengths.sum()  # hardly any padding
    set_seed(2)
    assert not torch.equal(next(iter(learn.dls.train))[3], batches[0][3])
