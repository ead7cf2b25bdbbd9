"""Options of pretraining: each one trains and does what it says; loggers write their files."""
import math
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from tiny_pretraining import metrics, run

import pretrain


@pytest.fixture
def train(workplace, monkeypatch):
    """`train(options)` trains for six steps. Returns the learner, the rows of metrics, the outputs of the model by
    micro-batch, and the ways of sampling.
    """
    loss, sample, outputs, samplings = pretrain.ELECTRALoss.forward, pretrain.sample, [], []

    def keep_output(loss_func, output, *args, **kwargs):
        if torch.is_grad_enabled() and len(args) == 2:  # in training, with the counts of the batch
            outputs.append(output)
        return loss(loss_func, output, *args, **kwargs)

    def keep_sampling(logits, sampling, temperature, disallowed):
        samplings.append((sampling, temperature, disallowed is not None))
        return sample(logits, sampling, temperature, disallowed)
    monkeypatch.setattr(pretrain.ELECTRALoss, "forward", keep_output)
    monkeypatch.setattr(pretrain, "sample", keep_sampling)

    def trained(options=""):
        outputs.clear(), samplings.clear()
        warmup = [] if options == "schedule=one_cycle" else ["warmup_steps=2"]  # which this schedule does not use
        learn = run("steps=6", "milestones=100", *warmup, *options.split())
        rows = metrics()
        assert len(rows) == 6 and all(math.isfinite(row["loss"]) for row in rows)
        assert min(row["gen_loss"] for row in rows) < rows[0]["gen_loss"]
        return SimpleNamespace(learn=learn, rows=rows, outputs=[*outputs], samplings={*samplings})
    return trained


OF_TIME = ("tokens_per_second", "data_wait")


def differing(found, plain, step):
    """The metrics of a step that differ from those of a run without the option."""
    row, other = found.rows[step], plain.rows[step]
    return {name for name in row if row[name] != other[name] and name not in OF_TIME}


# The metrics of the first step that differ, of which the learning rate is 0 by default.
OF_FIRST_STEP = {"adam_bias_correction=True": set(), "warmup_steps=3": set(), "lr=1e-3": set(),
                 "lr_decay_power=2": set(), "weight_decay_rate=.1": set(),
                 "schedule=separate_linear": set(), "schedule=one_cycle": {"lr"}, "schedule=adjusted_one_cycle": {"lr"},
                 "gen_smooth_label=True": {"loss", "gen_loss", "gen_perplexity"}, "gen_weight=2": {"loss"},
                 "disc_smooth_label=.05": {"loss", "disc_loss"}, "disc_weight=5": {"loss"}}


def test_an_option_of_loss_or_update_changes_only_that(train):
    """The first step has the same weights and draws, so only the metrics that the option defines differ."""
    plain = train()
    lrs = {"": [row["lr"] for row in plain.rows]}
    for option, of_first_step in OF_FIRST_STEP.items():
        found = train(option)
        assert differing(found, plain, step=0) == of_first_step, option
        assert "gen_loss" in differing(found, plain, step=-1), option
        lrs[option] = [row["lr"] for row in found.rows]
        assert (lrs[option] != lrs[""]) == option.startswith(("schedule", "lr", "warmup")), option
    assert lrs["lr=1e-3"] == pytest.approx([lr * 1e-3 / 3e-4 for lr in lrs[""]])


def test_half_precision_rounds_the_same_step(train):
    plain = train()
    for precision in ("bf16", "fp16"):
        found = train(f"precision={precision}")
        assert found.rows[0]["gen_loss"] == pytest.approx(plain.rows[0]["gen_loss"], rel=.02)
        assert {"gen_loss", "disc_loss"} <= differing(found, plain, step=0)
        assert found.outputs[0].is_mlm_applied.equal(plain.outputs[0].is_mlm_applied)


@pytest.mark.parametrize("option, expected", {
    "": ("fp32_gumbel", 1., False), "sampling=multinomial": ("multinomial", 1., False),
    "sampling=fp16_gumbel": ("fp16_gumbel", 1., False),
    "temperature=.5": ("fp32_gumbel", .5, False), "disallow_correct=True": ("fp32_gumbel", 1., True)}.items())
def test_an_option_of_sampling_is_that_of_every_sample(train, option, expected):
    """test_golden_sampling.py compares the samples with their distribution."""
    assert train(option).samplings == {expected}


def mask_shares(learn, repeats=300):
    """Shares of the text tokens that are masked, and of these, that show [MASK] and that stay as they are."""
    ids, lengths = (tensor.repeat(repeats, *[1] * (tensor.dim() - 1)) for tensor in learn.dls.train.batch_of_step(0))
    (masked, _, is_masked, _), _ = learn.masking.mask(ids, lengths)
    is_masked, shows = is_masked > 0, masked[is_masked > 0]
    is_text = ids > 4  # the special tokens are the first ones
    unchanged = (shows == ids[is_masked]).float().mean()
    return [float(share) for share in (is_masked[is_text].float().mean(), (shows == 4).float().mean(), unchanged)]


@pytest.mark.parametrize("option, expected", {
    "": (.15, .85, .15), "mask_prob=.3": (.3, .85, .15), "electra_mask_style=False": (.15, .8, .1),
    "electra_mask_style=always": (.15, 1., 0.)}.items())
def test_an_option_of_masking_changes_the_shares_of_masks(train, option, expected):
    assert mask_shares(train(option).learn) == pytest.approx(expected, abs=.02)


def slots_of_full_rows(outputs):
    """The numbers of slots of the examples that have all 32 tokens."""
    rows = (output.is_mlm_applied[output.attention_mask.sum(1) == 32] for output in outputs)
    return {int(n) for of_batch in rows for n in of_batch.sum(1)}


def test_official_masking_has_a_fixed_number_of_slots_and_micro_batches_have_a_fixed_size(train):
    found, plain = train("masking=official micro_batch=2"), train()
    assert slots_of_full_rows(found.outputs) == {4} and len(slots_of_full_rows(plain.outputs)) > 2
    assert {len(output.attention_mask) for output in found.outputs} == {2} and len(found.outputs) == 6 * 4
    assert {len(output.attention_mask) for output in plain.outputs} == {8} and len(plain.outputs) == 6


def test_options_of_text_vocabulary_and_initial_weights(train):
    plain, cleaned, vocabulary, official = map(train, ("", "clean=True", "vocab=300", "initial_weights=official"))
    assert len(cleaned.learn.dls.train_ds) < .9 * len(plain.learn.dls.train_ds)  # short lines are dropped
    embeddings = [one.learn.model.generator.get_input_embeddings().weight for one in (plain, vocabulary, official)]
    assert embeddings[1].shape != embeddings[0].shape
    assert embeddings[0].abs().max() > .15 and .09 < embeddings[2].abs().max() < .11  # truncated at .1, then six steps


@pytest.mark.parametrize("logger, files", [("neptune", ".neptune/offline/*/*"), ("wandb", "**/offline-run-*")])
def test_logger_writes_its_files(workplace, monkeypatch, logger, files):
    pytest.importorskip(logger, reason=f"{logger} is not installed")
    monkeypatch.setenv("WANDB_MODE", "offline")
    run("steps=2", f"logger={logger}")
    assert list(Path().glob(files)) and len(metrics()) == 2
