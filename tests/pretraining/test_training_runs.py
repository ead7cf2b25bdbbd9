"""Complete pretraining runs in miniature: the files they write, reproducibility, micro-batches, and losses that are not finite."""
import json
import math
from pathlib import Path

import pytest
import torch
from tiny_pretraining import FOLDER, equal_weights, metrics, run

import pretrain
from _utils.config import complete
from _utils.errors import PlainError
from _utils.runs.checkpoints import load_checkpoint


@pytest.mark.plots
def test_run_writes_milestones_configuration_metrics_and_plots(workplace):
    learn = run()
    milestones = {f"mini_5_{percent}%.pth" for percent in ("6.25", "12.5", "25.0", "50.0", "100.0")}
    assert {path.name for path in FOLDER.glob("*.pth")} == milestones
    assert {path.name for path in (FOLDER / "mini_5").iterdir()} == {
        "config.json", "metrics.jsonl", "resume.pth", "resume_before.pth", "training.png", "learning_rate.png", "lengths.png",
        "sentences.png"}
    assert all(path.stat().st_size > 5000 for path in (FOLDER / "mini_5").glob("*.png"))

    saved = json.loads((FOLDER / "mini_5/config.json").read_text())
    assert saved["config"]["lr"] == 3e-4 and saved["config"]["warmup_steps"] == learn.schedule.functions["lr"].keywords["warmup_steps"]
    assert {"torch", "transformers", "fastai", "datasets"} <= set(saved["versions"])

    train, held_out = metrics(), metrics("held_out")
    assert [row["step"] for row in train] == list(range(1, 17)) and [row["step"] for row in held_out] == [1, 2, 4, 8, 16]
    for row in train + held_out:
        assert math.isfinite(row["gen_loss"]) and math.isfinite(row["disc_loss"]) and 0 <= row["disc_auc"] <= 1
    assert train[-1]["gen_loss"] < train[0]["gen_loss"] and train[0]["lr"] == 0 and train[-1]["tokens_per_second"] > 0


@pytest.mark.plots
@pytest.mark.parametrize("few, kind", [(True, "electra"), (False, "electra"), (False, "line_pairs")])
def test_plotted_sentences_are_held_out_or_of_the_first_step_also_of_a_completed_run(workplace, monkeypatch, few, kind):
    if few:
        Path("text.txt").write_text("\n\n".join(Path("text.txt").read_text().split("\n\n")[:3]))
    plotted = []
    monkeypatch.setattr("_utils.plots.corrupted_in_color", lambda model, masking, input_ids, *_: plotted.append(input_ids))
    for resume in (False, True):
        learn = run("steps=2", f"examples={kind}", resume=resume)
    assert len(learn.dls.loaders) == (1 if few else 2 if kind == "electra" else 3)
    expected, _ = learn.dls.train.batch_of_step(0) if few else next(iter(learn.dls.valid))
    assert len(plotted) == 2 and all(input_ids.equal(expected[:8]) for input_ids in plotted)


def test_several_sources_are_mixed(workplace):
    Path("other.jsonl").write_text("\n".join(json.dumps({"text": "a small network of another source .\n" * 9}) for _ in range(60)))

    def n_examples(datas):
        c = complete(pretrain.c.override([f"datas={datas}", "vocab=vocab.txt", "max_length=32", "bs=8", "steps=4", "num_workers=0"]))
        return len(pretrain.load_data(c)[1].train_ds)
    assert n_examples("text.txt,other.jsonl") == n_examples("text.txt") + n_examples("other.jsonl")
    run("datas=text.txt,other.jsonl", "steps=2")
    assert len(metrics()) == 2


def test_same_command_gives_the_same_weights_and_archives_the_earlier_run(workplace, capsys):
    first, second = (run("steps=4").model.state_dict() for _ in range(2))
    assert equal_weights(first, second)
    [archive] = (FOLDER / "aside").iterdir()
    assert str(archive) in capsys.readouterr().out
    assert (archive / "mini_5_100.0%.pth").exists() and (archive / "mini_5/metrics.jsonl").exists()
    with_other_seed = run("steps=4", "seed=6").model.state_dict()
    assert not equal_weights(first, with_other_seed)


def test_archiving_ignores_runs_whose_name_has_the_same_prefix(workplace):
    run("steps=2", "base_run_name=mini_5")
    run("steps=2")
    run("steps=2")
    assert len(list(FOLDER.glob("mini_5_5_*.pth"))) == 5


def first_gradients(*overrides):
    """Gradients of the first batch, without dropout and with the most likely tokens sampled."""
    gradients = []

    class Stop(Exception):
        pass

    def record_and_stop(learn):
        gradients.extend(p.grad.clone() for p in learn.model.parameters())
        raise Stop

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pretrain.PretrainingLearner, "update", record_and_stop)
        patch.setattr("pretrain.build_model", without_dropout(pretrain.build_model))
        with pytest.raises(Stop):
            run("temperature=1e-6", *overrides)
    return gradients


def without_dropout(build_model):
    def build(*args, **kwargs):
        model = build_model(*args, **kwargs)
        for module in model.modules():
            for name in ("p", "dropout_prob", "attention_dropout", "dropout"):
                if isinstance(getattr(module, name, None), float):
                    setattr(module, name, 0.)
        return model
    return build


@pytest.mark.parametrize("micro_batch, masking", [(1, "bernoulli"), (2, "bernoulli"), (4, "bernoulli"), (2, "official")])
def test_micro_batches_give_the_gradients_of_the_full_batch(workplace, micro_batch, masking):
    of_full_batch = first_gradients(f"masking={masking}")
    accumulated = first_gradients(f"masking={masking}", f"micro_batch={micro_batch}")
    for a, b in zip(of_full_batch, accumulated):
        torch.testing.assert_close(a, b, atol=2e-5, rtol=1e-3)


def test_changed_loss_function_changes_training_and_metrics(workplace, monkeypatch):
    run("steps=4", "base_run_name=before", "warmup_steps=1")
    forward = pretrain.ELECTRALoss.forward

    def without_discriminator(loss_func, pred, targ_ids, counts=None, return_losses=False):
        _, (gen_loss, disc_loss) = forward(loss_func, pred, targ_ids, counts, return_losses=True)
        return (3 * gen_loss, (gen_loss, disc_loss)) if return_losses else 3 * gen_loss
    monkeypatch.setattr(pretrain.ELECTRALoss, "forward", without_discriminator)
    run("steps=4", "warmup_steps=1")
    for row in metrics() + metrics("held_out"):
        assert row["loss"] == pytest.approx(3 * row["gen_loss"], rel=.02)  # one is a mean over batches, the other over masked tokens
    assert metrics()[-1]["disc_loss"] != pytest.approx(metrics(name="before_5")[-1]["disc_loss"], rel=1e-4)


def test_evaluation_does_not_change_training(workplace, monkeypatch):
    with_evaluation = run("steps=4").model.state_dict()
    monkeypatch.setattr("_utils.training.after_step.Bookkeeping.evaluate", lambda *_: None)
    without_evaluation = run("steps=4").model.state_dict()
    assert equal_weights(with_evaluation, without_evaluation)


def test_fp16_skips_steps_whose_gradients_overflow(workplace, monkeypatch):
    forward, path = pretrain.ELECTRALoss.forward, FOLDER / "mini_5/metrics.jsonl"

    def infinite_at_third_step(loss_func, *args, **kwargs):
        loss, parts = forward(loss_func, *args, **kwargs)
        is_third_step = torch.is_grad_enabled() and path.exists() and len(metrics()) == 2
        return loss * (float("inf") if is_third_step else 1.), parts
    monkeypatch.setattr(pretrain.ELECTRALoss, "forward", infinite_at_third_step)
    weights = run("precision=fp16", "steps=3").model.state_dict()
    assert len(metrics()) == 3 and all(p.isfinite().all() for p in weights.values())
    with pytest.raises(PlainError, match="not finite .* at step 3"):
        run("precision=fp32", "steps=3")


def test_nonfinite_loss_stops_the_run_and_saves_the_batch(workplace):
    with pytest.raises(PlainError, match=r"The loss or its gradients are not finite \(nan or inf\) at step 2") as error:
        run("lr=1e30", "warmup_steps=1")
    assert "\n" not in str(error.value)
    assert (FOLDER / "mini_5_6.25%.pth").exists()
    saved = load_checkpoint(FOLDER / "mini_5/not_finite.pth")
    assert saved["step"] == 2 and saved["input_ids"].shape == (8, 32) and str(error.value).count("mini_5/not_finite.pth") == 1


def test_a_milestone_between_log_steps_has_finite_weights(workplace, monkeypatch):
    """Without held-out text, no evaluation notices weights that are not finite."""
    Path("text.txt").write_text("\n\n".join(Path("text.txt").read_text().split("\n\n")[:3]))
    forward = pretrain.ELECTRALoss.forward

    def infinite_after_step_24(loss_func, *args, **kwargs):
        loss, parts = forward(loss_func, *args, **kwargs)
        path = FOLDER / "mini_5/metrics.jsonl"
        return loss * (float("inf") if path.exists() and metrics() and metrics()[-1]["step"] == 24 else 1.), parts
    monkeypatch.setattr(pretrain.ELECTRALoss, "forward", infinite_after_step_24)
    with pytest.raises(PlainError, match="not finite .* at step 25"):
        run("steps=400", "bs=1")  # logged every two steps
    assert metrics()[-1]["step"] == 24 and not list(FOLDER.glob("mini_5_*.pth"))


def test_a_run_whose_held_out_text_has_no_replaced_token_ends(workplace):
    """Its AUC is undefined."""
    run("mask_prob=.001", "bs=1", "steps=4")
    assert metrics("held_out")[-1]["disc_auc"] is None


def test_warning_of_a_discriminator_that_does_not_learn_is_printed(workplace, capsys):
    run("lr=1e-9")
    assert capsys.readouterr().err.count("Warning: the discriminator's AUC") in (1, 2)  # at 50 and 100 %, unless it is .55 by chance
