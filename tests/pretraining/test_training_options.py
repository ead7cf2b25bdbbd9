"""Options of pretraining: each one trains and does what it says; loggers write their files."""
import math
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from tiny_pretraining import metrics, run

import pretrain
from _utils.config import complete


@pytest.fixture
def train(workplace, monkeypatch):
    """`train(options)` trains for six steps. Returns the learner, the rows of metrics and the outputs of the model by
    micro-batch.
    """
    loss, outputs = pretrain.ELECTRALoss.forward, []

    def keep_output(loss_func, output, *args, **kwargs):
        if torch.is_grad_enabled() and len(args) == 2:  # in training, with the counts of the batch
            outputs.append(output)
        return loss(loss_func, output, *args, **kwargs)
    monkeypatch.setattr(pretrain.ELECTRALoss, "forward", keep_output)

    def trained(options=""):
        outputs.clear()
        warmup = [] if options == "schedule=one_cycle" else ["warmup_steps=2"]  # which this schedule does not use
        learn = run("steps=6", "milestones=100", *warmup, *options.split())
        rows = metrics()
        assert len(rows) == 6 and all(math.isfinite(row["loss"]) for row in rows)
        assert min(row["gen_loss"] for row in rows) < rows[0]["gen_loss"]
        return SimpleNamespace(learn=learn, rows=rows, outputs=[*outputs])
    return trained


OF_TIME = ("tokens_per_second", "data_wait")


def differing(found, plain, step):
    """The metrics of a step that differ from those of a run without the option."""
    row, other = found.rows[step], plain.rows[step]
    return {name for name in row if row[name] != other[name] and name not in OF_TIME}


# The metrics of the first step that differ, of which the learning rate is 0 by default.
OF_FIRST_STEP = {"adam_bias_correction=True": set(), "warmup_steps=3": set(), "lr=1e-3": set(),
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


@pytest.mark.parametrize("option", ["sampling='multinomial'", "temperature=0.5", "disallow_correct=True"])
def test_an_option_of_sampling_reaches_the_model(small_tokenizer, option):
    """test_golden_sampling.py compares samples of the model with their distribution."""
    model = pretrain.build_model(complete(pretrain.c.override(["size=tiny", option])), small_tokenizer)
    key, _, value = option.partition("=")
    assert repr(getattr(model, key)) == value


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


@pytest.mark.parametrize("logger, files", [("neptune", ".neptune/offline/*/*"), ("wandb", "**/offline-run-*")])
def test_logger_writes_its_files(workplace, monkeypatch, logger, files):
    pytest.importorskip(logger, reason=f"{logger} is not installed")
    monkeypatch.setenv("WANDB_MODE", "offline")
    run("steps=2", f"logger={logger}")
    assert list(Path().glob(files)) and len(metrics()) == 2
