"""Complete pretraining runs in miniature: their files, reproducibility, losses that are not finite, and continued pretraining."""
import contextlib
import json
import math
import shutil
import time
from functools import partial
from pathlib import Path

import pytest
import torch
from tiny_pretraining import FOLDER, equal_weights, metrics, run, tensorboard_events, weights, write_text_and_vocabulary
from tokenizers import Tokenizer

import pretrain
from _utils.commands.export_hf import export_hf
from _utils.config import complete, continued_schedule
from _utils.errors import PlainError
from _utils.runs.checkpoints import load_checkpoint, milestone_steps
from _utils.text.batches import ArrowBatchDL
from _utils.training import pretraining_run


@pytest.fixture(scope="module")
def finished_run(tmp_path_factory, small_tokenizer):
    """(folder, learner) of a run with plots."""
    with contextlib.chdir(tmp_path_factory.mktemp("finished")):
        write_text_and_vocabulary(small_tokenizer)
        learn = run("logger=tensorboard", f"milestones={pretrain.c.milestones}")
        export_hf("checkpoints/pretrain/mini_5_100.0%.pth", "pair")
        return Path.cwd(), learn


def test_minutes_choose_a_number_of_steps_that_changes_nothing_else_and_is_kept(workplace, monkeypatch, capsys):
    """The steps that were timed leave no trace: the run is the same as with that number of steps."""
    settings = ["warmup_steps=.25", "milestones=100"]
    in_minutes = partial(run, "minutes=.03", "steps=None", *settings, resume=True)
    in_minutes("stop_at=3")
    steps = load_checkpoint(FOLDER / "mini_5/resume.pth")["config"]["steps"]
    assert steps > 3 and f"{steps:,} steps" in capsys.readouterr().out

    monkeypatch.setattr(pretraining_run, "seconds_per_step", None)  # a resumed run measures nothing
    in_minutes()
    run(f"steps={steps}", "base_run_name=other", *settings)
    assert equal_weights(weights(), weights("other_5"))
    with pytest.raises(PlainError, match="minutes=0.03"):
        in_minutes("minutes=.02")


def test_minutes_are_divided_by_the_time_of_a_step(workplace, monkeypatch):
    monkeypatch.setattr(pretraining_run, "seconds_per_step", lambda *_: .5)
    learn = run("minutes=.1", "steps=None", "warmup_steps=.25")
    assert learn.train_iter == 12
    assert [learn.schedule.functions["lr"](step / 12) for step in (0, 3, 12)] == pytest.approx([0, .75 * 3e-4, 0])


def test_the_first_screen_is_one_summary(workplace, capsys):
    """Two lines before the first milestone, whatever is prepared, trained or resumed; and one for a run that is complete."""
    settings = ["steps=8", "warmup_steps=2", "masking=official", "precision=fp32", "micro_batch=4", "milestones=50,100"]
    for options, first, n_milestones in ((["stop_at=4"], "mini_5", 1), ([], "Resuming the run mini_5 after step 4", 1)):
        learn = run(*settings, *options, resume=True)
        network, text, *others = capsys.readouterr().out.splitlines()
        assert network.startswith(f"{first}: tiny, masking=official, ") and "8 steps (2 warmup) of 8 x 32 tokens" in network
        assert network.endswith("cpu, fp32, micro-batches of 4") and "learning rate 0.0003" in network
        assert text.startswith(f"text.txt: {len(learn.dls.train_ds):,} training examples") and "held out" in text and "entropy" in text
        assert len([line for line in others if "held out" in line]) == n_milestones and len(others) <= n_milestones + 1
    run(*settings, resume=True)
    [line] = capsys.readouterr().out.splitlines()
    assert "mini_5 is complete" in line and "resume=False" in line


@pytest.fixture
def finished(finished_run, monkeypatch):
    """The learner of a run in the working directory. Do not modify its files."""
    monkeypatch.chdir(finished_run[0])
    return finished_run[1]


def test_run_writes_milestones_configuration_metrics_and_plots(finished):
    milestones = {f"mini_5_{percent}%.pth" for percent in ("6.25", "12.5", "25.0", "50.0", "100.0")}
    assert {path.name for path in FOLDER.glob("*.pth")} == milestones
    assert {path.name for path in (FOLDER / "mini_5").iterdir()} == {
        "config.json", "metrics.jsonl", "tensorboard", "resume.pth", "resume_before.pth", "training.png", "learning_rate.png",
        "sentences.png"}
    assert all(path.stat().st_size > 5000 for path in (FOLDER / "mini_5").glob("*.png"))

    saved = json.loads((FOLDER / "mini_5/config.json").read_text())
    assert saved["config"]["lr"] == 3e-4 and saved["config"]["warmup_steps"] == finished.schedule.functions["lr"].keywords["warmup_steps"]
    assert {"torch", "transformers", "fastai", "datasets"} <= set(saved["versions"])

    train, held_out = metrics(), metrics("held_out")
    assert [row["step"] for row in train] == list(range(1, 17)) and [row["step"] for row in held_out] == [1, 2, 4, 8, 16]
    for row in train + held_out:
        assert math.isfinite(row["gen_loss"]) and math.isfinite(row["disc_loss"]) and 0 <= row["disc_auc"] <= 1
    assert train[-1]["gen_loss"] < train[0]["gen_loss"] and train[0]["lr"] == 0 and train[-1]["tokens_per_second"] > 0
    events = tensorboard_events()
    assert {"train/gen_loss", "train/disc_auc", "train/tokens_per_second", "held_out/disc_auc"} <= set(events.Tags()["scalars"])
    assert [event.step for event in events.Scalars("train/loss")] == list(range(1, 17))


def test_checkpoint_contains_weights_configuration_and_tokenizer_as_plain_data(finished):
    checkpoint, after_first_step = (load_checkpoint(FOLDER / f"mini_5_{percent}%.pth") for percent in ("100.0", "6.25"))
    assert (checkpoint["step"], after_first_step["step"]) == (16, 1)
    assert checkpoint["config"]["size"] == "tiny" and checkpoint["discriminator_config"]["hidden_size"] == 128
    token_ids = Tokenizer.from_str(checkpoint["tokenizer"]).get_vocab()
    assert sorted(token_ids, key=token_ids.get) == Path("vocab.txt").read_text().split("\n")
    assert equal_weights(checkpoint["model"], finished.model.state_dict())
    assert not equal_weights(after_first_step["model"], checkpoint["model"])


@pytest.mark.plots
@pytest.mark.parametrize("few", [True, False])
def test_plotted_sentences_are_held_out_or_of_the_first_step_also_of_a_completed_run(workplace, monkeypatch, few):
    if few:
        keep_three_documents()
    plotted = []
    monkeypatch.setattr("_utils.plots.corrupted_in_color", lambda model, masking, input_ids, *_: plotted.append(input_ids))
    for resume in (False, True):
        learn = run("steps=2", resume=resume)
    assert len(learn.dls.loaders) == (1 if few else 2)
    expected, _ = learn.dls.train.batch_of_step(0) if few else next(iter(learn.dls.valid))
    assert len(plotted) == 2 and all(input_ids.equal(expected[:8]) for input_ids in plotted)


def keep_three_documents():
    """Too few to hold some out."""
    Path("text.txt").write_text("\n\n".join(Path("text.txt").read_text().split("\n\n")[:3]))


def test_several_sources_are_mixed(workplace):
    Path("other.jsonl").write_text("\n".join(json.dumps({"text": "a small network of another source .\n" * 9}) for _ in range(60)))

    def n_examples(datas):
        c = complete(pretrain.c.override([f"datas={datas}", "vocab=vocab.txt", "max_length=32", "bs=8", "steps=4", "num_workers=0"]))
        return len(pretrain.load_data(c)[1].train_ds)
    assert n_examples("text.txt,other.jsonl") == n_examples("text.txt") + n_examples("other.jsonl")


def test_same_command_gives_the_same_weights_also_without_evaluation_and_archives_the_earlier_run(workplace, capsys, monkeypatch):
    first = run("steps=4").model.state_dict()
    (FOLDER / "mini_5/resume.pth.host-1.unfinished").touch()  # as a kill leaves behind
    monkeypatch.setattr("_utils.training.after_step.Bookkeeping.evaluate", lambda *_: None)
    assert equal_weights(first, run("steps=4").model.state_dict())
    [archive] = (FOLDER / "aside").iterdir()
    assert str(archive) in capsys.readouterr().out
    assert (archive / "mini_5_100.0%.pth").exists() and (archive / "mini_5/metrics.jsonl").exists()
    assert not list(archive.rglob("*.unfinished"))
    assert not equal_weights(first, run("steps=4", "seed=6").model.state_dict())


@pytest.mark.parametrize("steps, milestones, stop_at, expected", [
    (1_000_000, None, None, {62_500: [6.25], 125_000: [12.5], 250_000: [25.], 500_000: [50.], 1_000_000: [100.]}),
    (3, None, None, {1: [6.25, 12.5, 25.], 2: [50.], 3: [100.]}),
    (17, [1.24, .4], 2, {1: [.4, 1.24], 2: [11.764706], 17: [100.]})])
def test_milestones_include_the_last_step_and_the_step_to_stop_at(steps, milestones, stop_at, expected):
    assert milestone_steps(steps, milestones or pretrain.c.milestones, stop_at) == expected


def test_milestones_at_other_steps_are_archived_with_their_run(workplace):
    run("steps=8", "milestones=25", "stop_at=3")
    run("base_run_name=mini_5", "seed=1", "steps=2", "milestones=100")  # its name begins with the name of the other run
    run("steps=8", "resume=False", "milestones=100")
    assert {path.name for path in (FOLDER / "aside/mini_5_1").glob("*.pth")} == {"mini_5_25.0%.pth", "mini_5_37.5%.pth"}
    assert {path.name for path in FOLDER.glob("*.pth")} == {"mini_5_100.0%.pth", "mini_5_1_100.0%.pth"}


def test_changed_loss_function_changes_training_and_metrics(workplace, finished_run, monkeypatch):
    forward = pretrain.ELECTRALoss.forward

    def without_discriminator(loss_func, pred, targ_ids, counts=None, return_losses=False):
        _, (gen_loss, disc_loss) = forward(loss_func, pred, targ_ids, counts, return_losses=True)
        return (3 * gen_loss, (gen_loss, disc_loss)) if return_losses else 3 * gen_loss
    monkeypatch.setattr(pretrain.ELECTRALoss, "forward", without_discriminator)
    learn = run()
    for row in metrics() + metrics("held_out"):
        assert row["loss"] == pytest.approx(3 * row["gen_loss"], rel=.02)  # one is a mean over batches, the other over masked tokens
    assert not equal_weights(learn.model.state_dict(), finished_run[1].model.state_dict())


@pytest.fixture
def infinite_loss(monkeypatch):
    """`infinite_loss(step, n)` makes the loss of the n steps after `step` infinite, in a run that logs every step."""
    forward, path = pretrain.ELECTRALoss.forward, FOLDER / "mini_5/metrics.jsonl"

    def after(step, n=1):
        def infinite(loss_func, *args, **kwargs):
            loss, terms = forward(loss_func, *args, **kwargs)
            is_after = torch.is_grad_enabled() and path.exists() and {row["step"] for row in metrics()[-1:]} & {*range(step, step + n)}
            return loss * (float("inf") if is_after else 1.), terms
        monkeypatch.setattr(pretrain.ELECTRALoss, "forward", infinite)
    return after


def test_fp16_skips_steps_whose_gradients_overflow(workplace, infinite_loss):
    infinite_loss(2)
    weights = run("precision=fp16", "steps=3").model.state_dict()
    assert [row["skipped_updates"] for row in metrics()] == [0, 0, 1] and all(p.isfinite().all() for p in weights.values())


def test_bf16_skips_ten_updates_in_a_row_and_stops_at_the_next_one_also_when_resumed(workplace, infinite_loss):
    options = "precision=bf16", "milestones=12.5,75,81.25", "bs=2"
    infinite_loss(2, 10)
    run(*options)
    assert [row["skipped_updates"] for row in metrics()] == [0, 0, *10 * [1], 0, 0, 0, 0]
    assert equal_weights(weights(percent=12.5), weights(percent=75.)) and not equal_weights(weights(percent=75.), weights(percent=81.25))
    infinite_loss(2, 11)
    run(*options, "stop_at=7")
    with pytest.raises(PlainError, match="not finite .* at step 13, as at the 10 steps before"):
        run(*options, resume=True)


def test_share_of_the_time_that_is_spent_waiting_for_data(workplace, monkeypatch):
    fetch = ArrowBatchDL.fetch
    monkeypatch.setattr(ArrowBatchDL, "fetch", lambda *args: time.sleep(.3) or fetch(*args))
    run("steps=3", "micro_batch=8", "milestones=100")
    of_first, *others = [row["data_wait"] for row in metrics()]
    assert of_first == 0 and all(.1 < share < 1 for share in others)


def test_infinite_loss_stops_the_run_and_saves_the_batch(workplace, infinite_loss):
    infinite_loss(2)
    with pytest.raises(PlainError, match=r"The loss or its gradients are not finite \(nan or inf\) at step 3") as error:
        run("milestones=12.5")
    assert "\n" not in str(error.value) and str(error.value).count("mini_5/not_finite.pth") == 1
    assert (FOLDER / "mini_5_12.5%.pth").exists()
    saved = load_checkpoint(FOLDER / "mini_5/not_finite.pth")
    assert saved["step"] == 3 and saved["input_ids"].shape == (8, 32)


def test_a_milestone_between_log_steps_has_finite_weights(workplace, infinite_loss):
    """Without held-out text, no evaluation notices weights that are not finite."""
    keep_three_documents()
    infinite_loss(24)
    with pytest.raises(PlainError, match="not finite .* at step 25"):
        run("steps=400", "bs=1")  # logged every two steps
    assert metrics()[-1]["step"] == 24 and not list(FOLDER.glob("mini_5_*.pth"))


def test_a_run_whose_held_out_text_has_no_replaced_token_ends(workplace):
    """Its AUC is undefined."""
    run("mask_prob=.001", "bs=1", "steps=4")
    assert metrics("held_out")[-1]["disc_auc"] is None


def test_warning_of_a_discriminator_that_does_not_learn_is_printed(workplace, capsys):
    run("lr=1e-9", "steps=4")
    assert capsys.readouterr().err.count("Warning: the discriminator's AUC") in (1, 2)  # at 50 and 100 %, unless it is .55 by chance


@pytest.fixture
def trained_pair(finished_run, tmp_path, monkeypatch):
    """The state_dict of the networks in mini_5_100.0%.pth and, exported, in the folder pair of the working directory."""
    folder, learn = finished_run
    monkeypatch.chdir(shutil.copytree(folder, tmp_path, dirs_exist_ok=True))
    return learn.model.state_dict()


continue_from = partial(run, "base_run_name=next", "lr=1e-3", "warmup_steps=1", vocab=None)


@pytest.mark.parametrize("initial_weights", ["mini_5_100.0%.pth", "pair"])
def test_continued_pretraining_keeps_weights_and_tying_and_uses_a_new_schedule(trained_pair, initial_weights):
    model = continue_from(f"initial_weights={initial_weights}", "steps=1").model  # its only step has lr 0
    assert equal_weights(model.state_dict(), trained_pair)
    embeddings = model.generator.get_input_embeddings().weight
    assert model.discriminator.get_input_embeddings().weight is embeddings is model.generator.get_output_embeddings().weight
    continue_from(f"initial_weights={initial_weights}", "steps=6", "warmup_steps=2")
    rows = metrics(name="next_5")
    assert [row["lr"] for row in rows] == pytest.approx([0, 1e-3 / 2 * 5 / 6, 1e-3 * 4 / 6, 1e-3 * 3 / 6, 1e-3 * 2 / 6, 1e-3 / 6])
    assert rows[0]["loss"] < metrics()[0]["loss"] and load_checkpoint(FOLDER / "next_5_100.0%.pth")["step"] == 6


def test_continued_pretraining_chooses_a_schedule_for_the_text_and_keeps_the_masking(trained_pair, capsys, monkeypatch):
    """Ten epochs, but at most a twentieth of the recipe's steps; a tenth of its learning rate. Resuming takes over what was chosen."""
    settings = ["initial_weights=mini_5_100.0%.pth", "steps=None", "warmup_steps=None", "lr=None", "bs=64"]
    c = continue_from(*settings, "stop_at=3", resume=True)
    n = len(c.dls.train_ds)
    saved = load_checkpoint(FOLDER / "next_5/resume.pth")["config"]
    steps = min(3000 // 20, 10 * n // 64)
    assert (saved["steps"], saved["warmup_steps"], saved["lr"]) == (steps, steps // 20, pytest.approx(3e-5)) and steps > 20
    printed = capsys.readouterr().out
    assert "initial_weights=mini_5_100.0%.pth" in printed and f"{steps:,} steps ({steps // 20} warmup)" in printed
    assert "learning rate 3e-05" in printed
    continue_from(*settings, "stop_at=5", resume=True)
    assert load_checkpoint(FOLDER / "next_5/resume.pth")["step"] == 5
    text = Path("text.txt").read_text()
    Path("text.txt").write_text(text[:len(text) // 2])
    with pytest.raises(PlainError, match="The text changed"):
        continue_from(*settings, resume=True)
    Path("text.txt").write_text(text)
    monkeypatch.setattr("_utils.config.load_pretraining_checkpoint", lambda path: {"config": {"masking": "official", "size": "mini"}})
    derived = complete(pretrain.c.override(["initial_weights=mini_5_100.0%.pth"]))
    assert (derived.masking, derived.size, derived.steps, derived.lr) == ("official", "mini", None, pytest.approx(5e-5))
    google = complete(pretrain.c.override(["initial_weights=google/electra-small-discriminator", "datas=text.txt"]))
    assert google.masking == "official" and google.vocab == google.initial_weights
    with pytest.raises(PlainError, match="warmup_steps=99 is more than steps=10"):
        continued_schedule(google.copy_with({"warmup_steps": 99}), google.bs)


@pytest.mark.parametrize("name", ["pair", "pair/discriminator"])
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_new_generator_is_trained_for_a_discriminator_that_stays_as_it_is(trained_pair, name, precision):
    shutil.rmtree("pair/generator")
    model = continue_from(f"initial_weights={name}", "new_generator=True", "steps=8", f"precision={precision}").model
    assert equal_weights(model.discriminator.state_dict(), {key.removeprefix("discriminator."): value for key, value in trained_pair.items()
                                                            if key.startswith("discriminator.")})
    embeddings = model.generator.get_input_embeddings().weight
    assert model.discriminator.get_input_embeddings().weight is embeddings is model.generator.get_output_embeddings().weight
    first, *_, last = metrics(name="next_5")
    assert last["gen_loss"] < first["gen_loss"] and last["disc_loss"] == pytest.approx(first["disc_loss"], abs=.1)
    both = run("base_run_name=both", "initial_weights=next_5_100.0%.pth", "lr=1e-3", "steps=2", "warmup_steps=1", vocab=None).model
    before = load_checkpoint(FOLDER / "next_5_100.0%.pth")["model"]
    assert not any(both.state_dict()[f"{part}.electra.encoder.layer.0.output.dense.weight"].equal(
        before[f"{part}.electra.encoder.layer.0.output.dense.weight"]) for part in ("generator", "discriminator"))


def use_the_generator_twice():
    shutil.rmtree("pair/discriminator")
    shutil.copytree("pair/generator", "pair/discriminator")


def delete_generator():
    shutil.rmtree("pair/generator")


def delete_tokenizers():
    for path in Path("pair").glob("*/tokenizer*"):
        path.unlink()


@pytest.mark.parametrize("overrides, change, message", [
    (["initial_weights=none.pth"], None, "Checkpoint not found: 'none.pth'"),
    (["initial_weights=pair"], use_the_generator_twice, "is not a discriminator: it lacks"),
    (["initial_weights=pair"], delete_generator, "no folder generator/.*new_generator=True"),
    (["initial_weights=pair/discriminator"], None, "is not a generator: .*new_generator=True"),
    (["initial_weights=official", "new_generator=True", "vocab=vocab.txt"], None, "Set initial_weights"),
    (["initial_weights=pair"], delete_tokenizers, "has no tokenizer"),
    (["initial_weights=mini_5_100.0%.pth", "base_run_name=mini", "resume=False"], None, "checkpoint of the run mini_5"),
])
def test_invalid_initial_weights_are_rejected_before_preparing_data(trained_pair, overrides, change, message):
    shutil.rmtree("datasets")
    if change:
        change()
    with pytest.raises(PlainError, match=message):
        continue_from(*overrides)
    assert not Path("datasets").exists() and not Path("checkpoints/pretrain/next_5").exists()
