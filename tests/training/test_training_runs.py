"""Complete pretraining runs in miniature: their files, reproducibility, losses that are not finite, and continued
pretraining.
"""
import contextlib
import itertools
import json
import math
import shlex
import shutil
import time
from functools import partial
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tiny_pretraining import FOLDER, equal_weights, metrics, run, write_text_and_vocabulary
from tokenizers import Tokenizer

import pretrain
from _utils.commands.export_hf import export_hf
from _utils.errors import UserError
from _utils.optim import MOMENTS_FILE
from _utils.runs import RunFolder
from _utils.runs.checkpoints import load_checkpoint
from _utils.text import unigram_entropy
from _utils.training.pretraining_run import text_of_long_lines


@pytest.fixture(scope="module")
def finished_run(tmp_path_factory, small_tokenizer):
    """(folder, learner) of a run with plots."""
    with contextlib.chdir(tmp_path_factory.mktemp("finished")):
        write_text_and_vocabulary(small_tokenizer)
        learn = run("logger=tensorboard", f"milestones={pretrain.c.milestones}")
        export_hf("checkpoints/pretrain/mini_5_100.0%.pth", "pair")
        return Path.cwd(), learn


@pytest.fixture
def finished(finished_run, monkeypatch):
    """The learner of a run in the working directory. Do not modify its files."""
    monkeypatch.chdir(finished_run[0])
    return finished_run[1]


def test_run_writes_milestones_configuration_metrics_and_plots(finished):
    assert {path.stem for path in FOLDER.glob("*.pth")} == {
        f"mini_5_{percent}%" for percent in (6.25, 12.5, 25., 50., 100.)}
    plots = [FOLDER / "mini_5" / f"{name}.png" for name in ("training", "learning_rate", "sentences")]
    assert all(path.stat().st_size > 5000 for path in plots)
    saved = json.loads((FOLDER / "mini_5/config.json").read_text())
    assert saved["config"]["lr"] == 3e-4 and {"torch", "transformers", "fastai", "datasets"} <= set(saved["versions"])
    assert saved["facts"] == {"unigram_entropy": unigram_entropy(finished.dls.train_ds.hf_dset, [*range(5)])}
    train, held_out = metrics(), metrics("held_out")
    assert [row["step"] for row in train] == list(range(1, 17))
    assert [row["step"] for row in held_out] == [1, 2, 4, 8, 16]
    last = load_checkpoint(FOLDER / "mini_5_100.0%.pth")["held-out metrics"]
    assert last == {key: held_out[-1][key] for key in last}
    assert all(math.isfinite(row["loss"]) and 0 <= row["disc_auc"] <= 1 for row in train + held_out)
    assert train[-1]["gen_loss"] < train[0]["gen_loss"] and train[0]["lr"] == 0
    events = EventAccumulator(str(FOLDER / "mini_5/tensorboard")).Reload()
    assert [event.step for event in events.Scalars("train/loss")] == list(range(1, 17))


def test_the_speed_of_a_row_is_at_least_that_of_the_whole_run_with_its_preparation(workplace):
    started = time.perf_counter()
    run("steps=4000", "stop_at=20", "warmup_steps=1")
    [row] = metrics()
    assert row["tokens_per_second"] > 20 * 8 * 32 / (time.perf_counter() - started)


def test_checkpoint_contains_weights_configuration_and_tokenizer_as_plain_data(finished):
    checkpoint, after_first_step = (load_checkpoint(FOLDER / f"mini_5_{percent}%.pth") for percent in ("100.0", "6.25"))
    assert (checkpoint["step"], after_first_step["step"]) == (16, 1)
    assert checkpoint["config"]["size"] == "tiny" and checkpoint["discriminator_config"]["hidden_size"] == 128
    token_ids = Tokenizer.from_str(checkpoint["tokenizer"]).get_vocab()
    assert sorted(token_ids, key=token_ids.get) == Path("vocab.txt").read_text().split("\n")
    assert equal_weights(checkpoint["model"], finished.model.state_dict())


def test_a_run_prints_what_becomes_of_long_lines(workplace, capsys):
    shutil.copy("text.txt", "more.txt")
    for settings, text in (([], "lines are kept"), (["recipe=google"], "lines are truncated"),
                           (["datas=more.txt,text.txt"], "lines are kept")):
        run("steps=1", *settings)
        assert text in capsys.readouterr().out
    of_both = text_of_long_lines(pretrain.c.copy_with({"datas": ["text.txt", "wikipedia"]}))
    assert "kept in text.txt" in of_both and "truncated" in of_both


def test_same_command_gives_the_same_weights_and_archives_the_earlier_run(workplace):
    first = run("steps=4").model.state_dict()
    assert equal_weights(first, run("steps=4").model.state_dict())
    [archive] = (FOLDER / "aside").iterdir()
    assert (archive / "mini_5_100.0%.pth").exists() and (archive / "mini_5/metrics.jsonl").exists()
    assert not equal_weights(first, run("steps=4", "seed=6").model.state_dict())


def test_the_last_line_names_the_checkpoint_for_the_next_command(workplace, capsys):
    """That of a step at which a run was to stop is named by the step. Elsewhere than at its files it says nothing."""
    of_run = RunFolder("mini", 5)
    of_run.report()
    assert not capsys.readouterr().out
    for steps, name in (("stop_at=3", "mini_5_step3.pth"), ("stop_at=8", "mini_5_step8.pth"),
                        ("steps=16 stop_at=99 micro_batch=99", "mini_5_100.0%.pth")):  # more than there are
        run(*steps.split(), resume=True)
        assert (FOLDER / name).exists()
        capsys.readouterr()
        of_run.report()
        assert f"finetune.py pretrained_checkpoint={name}\n" in capsys.readouterr().out
    assert {path.name for path in of_run.milestones()} == {path.name for path in FOLDER.glob("*.pth")}
    run("steps=1")
    assert (FOLDER / "aside/mini_5_1/mini_5_step3.pth").exists()


def test_the_next_command_works_in_a_shell_for_a_name_with_blanks(empty_folder, capsys):
    of_run = RunFolder("my run", 5)
    of_run.folder.mkdir(parents=True)
    of_run.milestone(100.).touch()
    of_run.report()
    assert shlex.split(capsys.readouterr().out)[-1] == f"pretrained_checkpoint={of_run.milestone(100.).name}"


def test_a_link_to_a_missing_folder_is_an_error_before_anything_is_prepared(workplace):
    Path("checkpoints").symlink_to("scratch/checkpoints")
    with pytest.raises(UserError, match="'scratch/checkpoints'"):
        run("steps=1")
    assert not Path("datasets").exists()


@pytest.fixture
def infinite_loss(monkeypatch):
    """`infinite_loss(steps)` makes the loss of these training steps infinite."""
    forward = pretrain.ELECTRALoss.forward

    def in_steps(steps):
        calls = itertools.count(1)

        def infinite(loss_func, *args, **kwargs):
            loss, terms = forward(loss_func, *args, **kwargs)
            in_training = torch.is_grad_enabled() and len(args) == 3  # with the counts of the batch
            is_infinite = in_training and next(calls) in steps
            return loss * (float("inf") if is_infinite else 1.), terms
        monkeypatch.setattr(pretrain.ELECTRALoss, "forward", infinite)
    return in_steps


@pytest.mark.parametrize("precision", ["fp16", "bf16"])
def test_steps_whose_gradients_overflow_are_skipped(workplace, infinite_loss, precision):
    infinite_loss([3])
    model = run(f"precision={precision}", "steps=3").model
    assert [(row["skipped_updates"], row["loss"] is None) for row in metrics()] == [(0, False), (0, False), (1, True)]
    assert all(p.isfinite().all() for p in model.parameters())


def test_the_eleventh_skipped_update_in_a_row_stops_the_run(workplace, infinite_loss):
    options = "precision=bf16", "bs=2"
    infinite_loss(range(3, 13))
    run(*options)
    infinite_loss(range(3, 14))
    with pytest.raises(UserError, match="step 13"):
        run(*options)


def test_infinite_loss_stops_the_run_and_saves_the_batch(workplace, infinite_loss):
    infinite_loss([3])
    with pytest.raises(UserError, match="step 3.*mini_5/not_finite.pth"):
        run("milestones=12.5")
    assert (FOLDER / "mini_5_12.5%.pth").exists()
    saved = load_checkpoint(FOLDER / "mini_5/not_finite.pth")
    assert saved["step"] == 3 and saved["input_ids"].shape == (8, 32)


def test_masks_for_which_there_is_no_slot_are_reported(workplace, monkeypatch, capsys):
    run("compile=False", "steps=1")
    assert "mask_prob" not in capsys.readouterr().err
    fit, mask_tokens = pretrain.fit_to_device, pretrain.mask_tokens
    monkeypatch.setattr(pretrain, "fit_to_device", lambda model, c: fit(model, c.copy_with({"compile": True})))
    monkeypatch.setattr(pretrain, "mask_tokens", lambda *args, mlm_probability, **options: mask_tokens(
        *args, mlm_probability=.9, **options))
    run("steps=2")
    printed = capsys.readouterr().err
    assert "mask_prob" in printed and printed.count("Warning") == 1  # not for each row


def test_the_quickstart_measures_only_the_discriminator_of_its_own_text(workplace, capsys):
    run("quickstart=True", "steps=1", vocab="vocab=vocab.txt")
    assert "random replacements" not in capsys.readouterr().out
    assert not (FOLDER / "mini_5/damaged_text.json").exists()


@pytest.mark.parametrize("options, has_warmup", [([], True), (["schedule=one_cycle"], False)])
def test_a_run_names_the_warmup_of_its_schedule(workplace, capsys, options, has_warmup):
    run("steps=1", *options)
    assert ("warmup" in capsys.readouterr().out) == has_warmup


@pytest.mark.parametrize("text, warns", [("a short line", True), ("a line that is longer " * 9, False)])
def test_positions_that_no_example_trains_are_reported(workplace, capsys, text, warns):
    Path("text.txt").write_text(f"{text}\n" * 200)
    run("documents=line", "steps=1")
    assert ("embeddings of later positions" in capsys.readouterr().out) == warns


def test_a_run_whose_held_out_text_has_no_replaced_token_ends(workplace):
    """Its AUC is undefined."""
    run("mask_prob=.001", "bs=1", "steps=4")
    assert metrics("held_out")[-1]["disc_auc"] is None


@pytest.fixture
def trained_pair(finished_run, tmp_path, monkeypatch):
    """The state_dict of the networks in mini_5_100.0%.pth and, exported, in the folder pair of the working directory.
    """
    folder, learn = finished_run
    monkeypatch.chdir(shutil.copytree(folder, tmp_path, dirs_exist_ok=True))
    return learn.model.state_dict()


continue_from = partial(run, "base_run_name=next", "lr=1e-3", "warmup_steps=1", vocab=None)


def assert_tied(model):
    embeddings = model.generator.get_input_embeddings().weight
    assert model.generator.get_output_embeddings().weight is embeddings
    assert model.discriminator.get_input_embeddings().weight is embeddings


@pytest.mark.parametrize("initial_weights", ["mini_5_100.0%.pth", "pair"])
def test_continued_pretraining_keeps_weights_and_tying_and_uses_a_new_schedule(trained_pair, initial_weights):
    model = continue_from(f"initial_weights={initial_weights}", "steps=1").model  # its only step has lr 0
    assert equal_weights(model.state_dict(), trained_pair)
    assert_tied(model)
    continue_from(f"initial_weights={initial_weights}", "steps=6", "warmup_steps=2")
    rows = metrics(name="next_5")
    assert [row["lr"] for row in rows] == pytest.approx([1e-3 * share / 12 for share in (0, 5, 8, 6, 4, 2)])
    assert rows[0]["loss"] < metrics()[0]["loss"] and load_checkpoint(FOLDER / "next_5_100.0%.pth")["step"] == 6


def test_continued_pretraining_chooses_a_schedule_for_the_text(trained_pair):
    """Ten epochs, but at most a twentieth of the recipe's steps; a tenth of its learning rate."""
    settings = ["initial_weights=mini_5_100.0%.pth", "steps=None", "warmup_steps=None", "lr=None", "bs=64"]
    n = len(continue_from(*settings, "stop_at=3", resume=True).dls.train_ds)
    saved = load_checkpoint(FOLDER / "next_5/resume.pth")["config"]
    steps = min(3000 // 20, 10 * n // 64)
    assert (saved["steps"], saved["warmup_steps"], saved["lr"]) == (steps, steps // 20, pytest.approx(3e-5))
    continue_from(*settings, "stop_at=5", resume=True)  # takes over what was chosen


@pytest.mark.parametrize("name, precision", [("pair", "fp32"), ("pair/discriminator", "bf16")])
def test_a_new_generator_is_trained_for_a_discriminator_that_stays_as_it_is(trained_pair, name, precision):
    shutil.rmtree("pair/generator")
    model = continue_from(f"initial_weights={name}", "new_generator=True", "steps=8", f"precision={precision}").model
    for key, value in model.discriminator.state_dict().items():
        assert value.equal(trained_pair[f"discriminator.{key}"])
    assert_tied(model)
    first, *_, last = metrics(name="next_5")
    assert last["gen_loss"] < first["gen_loss"] and last["disc_loss"] == pytest.approx(first["disc_loss"], abs=.1)
    with pytest.raises(UserError, match="max_length=32"):  # the embeddings of later positions would stay untrained
        continue_from(f"initial_weights={name}", "new_generator=True", "max_length=40")


def test_a_new_generator_begins_without_the_moments_of_the_old_one(trained_pair):
    settings = "initial_weights=pair", "new_generator=True", "steps=2"
    expected = continue_from(*settings).model.state_dict()
    moments = {f"{name.removeprefix('generator.')}.exp_avg": torch.ones_like(value)
               for name, value in expected.items() if name.startswith("generator.")}
    save_file(moments, f"pair/generator/{MOMENTS_FILE}")
    assert equal_weights(continue_from(*settings).model.state_dict(), expected)
