"""A whole pretraining in miniature: what it writes, what it measures, and the options of the training step."""
import json
import math
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.metrics import accuracy_score, precision_score, recall_score, roc_auc_score
from tiny_pretraining import metrics, run, tensorboard_events
from tokenizers import Tokenizer

import pretrain
from _utils.config import complete
from _utils.errors import PlainError
from _utils.export_hf import main as export_hf
from _utils.networks import load_pretrained
from _utils.run_files.checkpoints import load_checkpoint, milestone_steps, write_atomically
from _utils.training.device import choose_device, choose_precision, warn_of_emulated_bf16, warn_of_unused_gpu
from _utils.training.metrics import PretrainingMetrics, warning_of_collapse


def test_a_run_leaves_milestones_configuration_metrics_and_curves(workplace):
    learn = run()
    folder = Path("checkpoints/pretrain")
    names = {f"mini_5_{percent}%.pth" for percent in ("6.25", "12.5", "25.0", "50.0", "100.0")}
    assert {path.name for path in folder.glob("*.pth")} == names
    assert {path.name for path in (folder / "mini_5").iterdir()} == {
        "config.json", "metrics.jsonl", "resume.pth", "resume_before.pth", "training.png", "learning_rate.png", "lengths.png",
        "sentences.png"}
    assert all(path.stat().st_size > 5000 for path in (folder / "mini_5").glob("*.png"))

    made_by = json.loads((folder / "mini_5/config.json").read_text())
    assert made_by["config"]["lr"] == 3e-4 and made_by["config"]["warmup_steps"] == learn.schedule.functions["lr"].keywords["warmup_steps"]
    assert {"torch", "transformers", "fastai", "datasets"} <= set(made_by["versions"])

    train, held_out = metrics(), metrics("held_out")
    assert [row["step"] for row in train] == list(range(1, 17)) and [row["step"] for row in held_out] == [1, 2, 4, 8, 16]
    for row in train + held_out:
        assert math.isfinite(row["gen_loss"]) and math.isfinite(row["disc_loss"]) and 0 <= row["disc_auc"] <= 1
    assert train[-1]["gen_loss"] < train[0]["gen_loss"] and train[0]["lr"] == 0 and train[-1]["tokens_per_second"] > 0


def test_a_checkpoint_is_plain_data_and_holds_all_that_made_it(workplace):
    learn = run()
    checkpoint = load_checkpoint("checkpoints/pretrain/mini_5_100.0%.pth")
    assert checkpoint["step"] == 16 and checkpoint["config"]["size"] == "tiny"
    words = Tokenizer.from_str(checkpoint["tokenizer"]).get_vocab()
    assert sorted(words, key=words.get) == Path("vocab.txt").read_text().split("\n")
    assert checkpoint["discriminator_config"]["hidden_size"] == 128
    for name, value in learn.model.state_dict().items():
        assert checkpoint["model"][name].equal(value), name
    at_start = load_checkpoint("checkpoints/pretrain/mini_5_6.25%.pth")
    assert at_start["step"] == 1
    name = "discriminator.electra.encoder.layer.0.output.dense.weight"
    assert not at_start["model"][name].equal(checkpoint["model"][name])


def test_several_sources_are_mixed(workplace):
    Path("other.jsonl").write_text("\n".join(json.dumps({"text": "a small network of another source .\n" * 9}) for _ in range(60)))
    size = lambda datas: len(pretrain.load_data(complete(pretrain.c.override(
        [f"datas={datas}", "vocab=vocab.txt", "max_length=32", "bs=8", "steps=4", "num_workers=0"])))[1].train_ds)
    assert size("text.txt,other.jsonl") == size("text.txt") + size("other.jsonl")
    run("datas=text.txt,other.jsonl", "steps=2")
    assert len(metrics()) == 2


def test_the_documented_commands_export_and_load_a_checkpoint(workplace, repo):
    learn = run("base_run_name=quickstart", "seed=11081", "steps=1")
    page = re.search(r"## Export to transformers.*?\n## ", (repo / "docs/checkpoints.md").read_text(), re.S)[0]
    [command] = re.findall(r"```bash\npython -m _utils.export_hf (.*)\n```", page)
    export_hf(command.split())
    [lines] = re.findall(r"```python\n(.*?)```", page, re.S)
    found = {}
    exec(lines, found)
    weight = lambda electra: electra.encoder.layer[0].output.dense.weight
    assert weight(found["encoder"]).equal(weight(learn.model.discriminator.electra))
    assert found["tokenizer"].tokenize("the text") == ["the", "text"] and found["tokenizer"]("the")["input_ids"][0] == 2


def test_the_same_command_gives_the_same_weights_and_keeps_the_earlier_run(workplace, capsys):
    weights = [run("steps=4").model.state_dict() for _ in range(2)]
    assert all(a.equal(b) for a, b in zip(*(state.values() for state in weights)))
    [aside] = Path("checkpoints/pretrain/aside").iterdir()
    assert str(aside) in capsys.readouterr().out
    assert (aside / "mini_5_100.0%.pth").exists() and (aside / "mini_5/metrics.jsonl").exists()
    others = run("steps=4", "seed=6").model.state_dict()
    assert not all(a.equal(b) for a, b in zip(weights[0].values(), others.values()))


def test_a_run_whose_name_begins_like_another_is_left_alone(workplace):
    run("steps=2", "base_run_name=mini_5")
    run("steps=2")
    run("steps=2")
    assert len(list(Path("checkpoints/pretrain").glob("mini_5_5_*.pth"))) == 5


def first_gradients(*overrides):
    """Loss and gradients of the first batch, dropout off and the likeliest words drawn."""
    found = {}

    class Stop(Exception):
        pass

    def keep(parameters, max_norm):
        found["gradients"] = [p.grad.clone() for p in parameters]
        raise Stop

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("_utils.training.learners.clip_by_global_norm", keep)
        patch.setattr("pretrain.build_model", without_dropout(pretrain.build_model))
        with pytest.raises(Stop):
            run("temperature=1e-6", *overrides)
    return found["gradients"]


def without_dropout(build_model):
    def build(*args, **kwargs):
        model = build_model(*args, **kwargs)
        for module in model.modules():
            for name in ("p", "dropout_prob", "attention_dropout"):
                if isinstance(getattr(module, name, None), float):
                    setattr(module, name, 0.)
            if hasattr(module, "dropout") and isinstance(module.dropout, float):
                module.dropout = 0.
        return model
    return build


@pytest.mark.parametrize("micro_batch, masking", [(1, "bernoulli"), (2, "bernoulli"), (4, "bernoulli"), (2, "official")])
def test_micro_batches_have_the_gradients_of_the_full_batch(workplace, micro_batch, masking):
    full, parts = first_gradients(f"masking={masking}"), first_gradients(f"masking={masking}", f"micro_batch={micro_batch}")
    for a, b in zip(full, parts):
        torch.testing.assert_close(a, b, atol=2e-5, rtol=1e-3)


@pytest.mark.parametrize("overrides", [
    ["precision=bf16"], ["precision=fp16"], ["schedule=one_cycle"], ["schedule=adjusted_one_cycle"], ["schedule=separate_linear"],
    ["sampling=fp16_gumbel"], ["sampling=multinomial", "temperature=2"], ["electra_mask_style=False"], ["adam_bias_correction=True"],
    ["gen_smooth_label=True", "disc_smooth_label=.05"], ["micro_batch=4"], ["mask_prob=.3", "lr=1e-4", "warmup_steps=2"],
    ["num_workers=2"], ["size=tiny", "vocab=300"], ["masking=official"], ["masking=official", "electra_mask_style=False", "micro_batch=2"],
    ["disallow_correct=True"], ["initial_weights=official"],
], ids=" ".join)
def test_every_option_trains(workplace, overrides):
    run("steps=8", *overrides)
    rows = metrics()
    assert len(rows) == 8 and all(math.isfinite(row["loss"]) for row in rows)
    assert rows[-1]["gen_loss"] < rows[0]["gen_loss"]


def test_options_change_the_numbers(workplace):
    """An option that does nothing would give the same losses."""
    def last_loss(*overrides):
        run("steps=4", "warmup_steps=2", *overrides)
        return metrics()[-1]["loss"]
    losses = [last_loss(*overrides) for overrides in (
        [], ["electra_mask_style=False"], ["sampling=multinomial"], ["sampling=fp16_gumbel"], ["temperature=.5"],
        ["adam_bias_correction=True"], ["schedule=one_cycle"], ["schedule=separate_linear"], ["gen_smooth_label=True"],
        ["disc_smooth_label=True"], ["precision=bf16"], ["mask_prob=.3"], ["warmup_steps=3"], ["clean=True"],
        ["masking=official"], ["masking=official", "electra_mask_style=False"], ["initial_weights=official"])]
    assert len(set(losses)) == len(losses)
    assert run("steps=1", "disallow_correct=True").model.disallow_correct  # too rare in such a run to change a loss


@pytest.fixture
def pairs(workplace):
    """A finished run's checkpoint, the folder it was exported to, and its model."""
    learn = run("base_run_name=first", "steps=4")
    export_hf(["checkpoints/pretrain/first_5_100.0%.pth", "pair"])
    return {"checkpoint": "first_5_100.0%.pth", "folder": "pair"}, learn.model.state_dict()


@pytest.mark.parametrize("kind", ["checkpoint", "folder"])
def test_pretraining_goes_on_from_a_pair_with_a_schedule_of_its_own(pairs, kind):
    names, weights = pairs
    learn = run(f"initial_weights={names[kind]}", "steps=1", "lr=1e-3", "warmup_steps=1", vocab=None)  # its only step has lr 0
    model = learn.model
    assert all(value.equal(weights[name]) for name, value in model.state_dict().items())
    words, others = (network.get_input_embeddings().weight for network in (model.generator, model.discriminator))
    assert words is others and model.generator.get_output_embeddings().weight is words
    run(f"initial_weights={names[kind]}", "steps=6", "lr=1e-3", "warmup_steps=2", vocab=None)
    assert [row["lr"] for row in metrics()] == pytest.approx([0, 1e-3 / 2 * 5 / 6, 1e-3 * 4 / 6, 1e-3 * 3 / 6, 1e-3 * 2 / 6, 1e-3 / 6])
    fresh_loss = metrics(name="first_5")[0]["loss"]
    assert metrics()[0]["loss"] < fresh_loss and load_checkpoint("checkpoints/pretrain/mini_5_100.0%.pth")["step"] == 6


@pytest.mark.parametrize("overrides, named", [
    (["initial_weights=pair"], "Set lr, warmup_steps"),
    (["initial_weights=pair", "lr=1e-3", "warmup_steps=1", "vocab=vocab.txt"], "Remove vocab='vocab.txt'"),
    (["initial_weights=pair", "lr=1e-3", "warmup_steps=1", "size=small"], "Set size=tiny"),
    (["initial_weights=none.pth", "lr=1e-3", "warmup_steps=1"], "Checkpoint not found: 'none.pth'"),
    (["initial_weights=oficial"], "'huggingface', 'official'"),
    (["initial_weights=first_5_50.0%.pth", "base_run_name=first", "lr=1e-3", "warmup_steps=1"], "Set another base_run_name"),
])
def test_a_pair_that_does_not_fit_is_told_before_the_long_work(pairs, overrides, named):
    shutil.rmtree("datasets")
    with pytest.raises(PlainError, match=named):
        run(*overrides, vocab=None)
    assert not Path("datasets").exists() and not Path("checkpoints/pretrain/mini_5").exists()


def test_a_folder_that_is_no_pair_is_not_trained_with_fresh_heads(pairs, tmp_path):
    for part, content in [("generator", "discriminator"), ("discriminator", "generator")]:
        mixed = shutil.copytree("pair", tmp_path / f"without_{part}")
        shutil.rmtree(mixed / part)
        shutil.copytree(mixed / content, mixed / part)
        with pytest.raises(PlainError, match=f"is not a {part}: it lacks"):
            run(f"initial_weights={mixed}", "lr=1e-3", "warmup_steps=1", vocab=None)


def test_a_pair_without_tokenizer_is_not_trained_on_unknown_words(pairs):
    for path in Path("pair").glob("*/tokenizer*"):
        path.unlink()
    with pytest.raises(PlainError, match="has no tokenizer"):
        run("initial_weights=pair", "lr=1e-3", "warmup_steps=1", vocab=None)
    with pytest.raises(PlainError, match="has no tokenizer"):
        load_pretrained("pair/discriminator", "tiny", 32)


def test_momentum_follows_the_one_cycle_schedule(workplace):
    learn = run("steps=4", "schedule=one_cycle")
    assert learn.opt.opt.param_groups[0]["betas"][0] == pytest.approx(learn.schedule.functions["mom"](.75))


@pytest.mark.parametrize("logger, files", [("tensorboard", "checkpoints/pretrain/mini_5/tensorboard/events*"),
                                           ("neptune", ".neptune/offline/*/*")])
def test_loggers_write_where_they_say(workplace, logger, files):
    run("steps=2", f"logger={logger}")
    assert list(Path().glob(files)) and len(metrics()) == 2


def test_tensorboard_shows_the_measures_of_both_splits(workplace):
    run("steps=4", "logger=tensorboard")
    events = tensorboard_events()
    assert {"train/gen_loss", "train/disc_auc", "train/tokens_per_second", "held_out/disc_auc"} <= set(events.Tags()["scalars"])
    assert [event.step for event in events.Scalars("train/loss")] == [1, 2, 3, 4]


def test_wandb_logs_offline(workplace, monkeypatch):
    pytest.importorskip("wandb", reason="wandb is optional and not installed")
    monkeypatch.setenv("WANDB_MODE", "offline")
    run("steps=2", "logger=wandb")
    assert list(Path().rglob("offline-run-*"))


def test_changing_the_forward_of_the_loss_changes_the_training_and_its_metrics(workplace, monkeypatch):
    run("steps=4", "base_run_name=before", "warmup_steps=1")

    def without_discriminator(loss_func, pred, targ_ids, totals=None, return_parts=False):
        _, (gen_loss, disc_loss) = plain(loss_func, pred, targ_ids, totals, return_parts=True)
        return (3 * gen_loss, (gen_loss, disc_loss)) if return_parts else 3 * gen_loss
    plain = pretrain.ELECTRALoss.forward
    monkeypatch.setattr(pretrain.ELECTRALoss, "forward", without_discriminator)
    run("steps=4", "warmup_steps=1")
    for row in metrics() + metrics("held_out"):
        assert row["loss"] == pytest.approx(3 * row["gen_loss"], rel=.02)  # means over batches and over masks
    assert metrics()[-1]["disc_loss"] != pytest.approx(metrics(name="before_5")[-1]["disc_loss"], rel=1e-4)


def test_measuring_held_out_text_does_not_disturb_the_training(workplace, monkeypatch):
    with_measures = run("steps=4").model.state_dict()
    monkeypatch.setattr(pretrain.PretrainingLearner, "evaluate_held_out", lambda *_, **__: {})
    without = run("steps=4").model.state_dict()
    assert all(a.equal(b) for a, b in zip(with_measures.values(), without.values()))


def test_an_overflow_in_fp16_is_skipped_and_training_continues(workplace, monkeypatch):
    plain = pretrain.ELECTRALoss.forward
    metrics_so_far = lambda: metrics() if Path("checkpoints/pretrain/mini_5/metrics.jsonl").exists() else []

    def overflow(loss_func, *args, **kwargs):
        loss, parts = plain(loss_func, *args, **kwargs)
        return loss * (float("inf") if torch.is_grad_enabled() and len(metrics_so_far()) == 2 else 1.), parts
    monkeypatch.setattr(pretrain.ELECTRALoss, "forward", overflow)
    before = {name: p.clone() for name, p in run("precision=fp16", "steps=3").model.state_dict().items()}
    assert len(metrics()) == 3 and all(p.isfinite().all() for p in before.values())
    with pytest.raises(PlainError, match="not finite .* at step 3"):
        run("precision=fp32", "steps=3")


def test_a_loss_that_is_not_finite_stops_the_run_in_one_sentence(workplace):
    with pytest.raises(PlainError, match=r"The loss or its gradients are not finite \(nan or inf\) at step 2") as error:
        run("lr=1e30", "warmup_steps=1")
    assert "\n" not in str(error.value)
    assert Path("checkpoints/pretrain/mini_5_6.25%.pth").exists()
    kept = load_checkpoint("checkpoints/pretrain/mini_5/not_finite.pth")
    assert kept["step"] == 2 and kept["input_ids"].shape == (8, 32) and str(error.value).count("mini_5/not_finite.pth") == 1


@pytest.mark.parametrize("aucs, share, told", [
    ([.51], .25, None), ([.51, .53], .5, "AUC on held-out text is 0.530 after 50% of the training"), ([.58, .6], .5, None),
    ([.8, .69], .5, "dropped from 0.800 to 0.690"), ([.8, .75], 1., None), ([], 1., None)])
def test_a_discriminator_that_does_not_learn_is_noticed(aucs, share, told):
    warning = warning_of_collapse(aucs, share)
    assert warning is None if told is None else told in warning and "replaced_share" in warning


def test_the_warning_is_shown_once_half_of_the_training_is_done(workplace, capsys):
    run("lr=1e-9")
    assert capsys.readouterr().err.count("Warning: the discriminator's AUC") in (1, 2)  # at 50 and 100 %, unless chance makes it .55


@pytest.mark.parametrize("capability, default", [((9, 0), "bf16"), ((8, 0), "bf16"), ((7, 5), "fp16"), ((7, 0), "fp16")])
def test_the_default_precision_is_the_fastest_that_the_gpu_computes_itself(monkeypatch, capability, default):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    assert choose_precision(None, torch.device("cuda")) == default
    assert choose_precision("fp32", torch.device("cuda")) == "fp32"


def test_the_default_precision_on_a_cpu_is_fp32_and_emulated_bf16_is_warned_of(monkeypatch, capsys):
    assert choose_precision(None, torch.device("cpu")) == "fp32"
    for supported in (True, False):
        monkeypatch.setattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", lambda supported=supported: supported)
        warn_of_emulated_bf16.cache_clear()
        assert [choose_precision("bf16", torch.device("cpu")) for _ in range(2)] == ["bf16", "bf16"]
        assert ("this CPU has no bf16 arithmetic" in capsys.readouterr().err) is not supported


@pytest.mark.parametrize("driver, visible, warned", [(True, None, True), (True, "", False), (False, None, False)])
def test_a_gpu_that_pytorch_cannot_use_is_warned_of_once(monkeypatch, capsys, driver, visible, warned):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr("os.path.exists", lambda path: driver)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    warn_of_unused_gpu.cache_clear()
    assert [choose_device(None).type for _ in range(2)] == ["cpu", "cpu"]
    assert capsys.readouterr().err.count("Warning: training on the CPU although an NVIDIA driver is installed") == warned


def test_a_gpu_that_is_not_there_is_named():
    with pytest.raises(PlainError, match="Device not found: 'cuda:99'"):
        choose_device("cuda:99")


@pytest.mark.parametrize("steps, expected", [(1_000_000, [62_500, 125_000, 250_000, 500_000, 1_000_000]), (16, [1, 2, 4, 8, 16]),
                                             (3, [1, 2, 3]), (1, [1])])
def test_milestones_at_any_number_of_steps(steps, expected):
    found = milestone_steps(steps)
    assert list(found) == expected and sorted(sum(found.values(), [])) == [6.25, 12.5, 25., 50., 100.]


def test_a_write_that_fails_leaves_the_file_before_it(tmp_path):
    path = tmp_path / "checkpoint.pth"
    write_atomically(path, lambda file: file.write(b"good"))

    def fail(file):
        file.write(b"half")
        raise OSError("disk full")
    with pytest.raises(PlainError, match=r"Could not write .*checkpoint.pth' \(OSError: disk full\). Free some disk space"):
        write_atomically(path, fail)
    assert path.read_bytes() == b"good" and list(tmp_path.iterdir()) == [path]


def test_a_checkpoint_that_is_missing_damaged_or_more_than_data_is_refused(tmp_path):
    with pytest.raises(PlainError, match="Checkpoint not found"):
        load_checkpoint(tmp_path / "none.pth")
    (tmp_path / "damaged.pth").write_bytes(b"PK\x03\x04 not a checkpoint")
    torch.save({"model": Path("/")}, tmp_path / "code.pth")
    for name in ("damaged.pth", "code.pth"):
        with pytest.raises(PlainError, match=name):
            load_checkpoint(tmp_path / name)


LOSSES = torch.tensor(27.), (torch.tensor(2.), torch.tensor(.5))  # total, (generator, discriminator)


def test_measures_are_those_of_scikit_learn():
    torch.manual_seed(0)
    gathered, logits, replaced = PretrainingMetrics(), [], []
    for _ in range(5):
        is_replaced = torch.rand(8, 64) < .15
        mask = torch.rand(8, 64) < .9
        disc_logits = torch.randn(8, 64) * 2 + is_replaced * 1.5 - 2
        chosen = torch.zeros(8, 64, dtype=torch.bool)
        chosen[:, :3] = True
        pred = pretrain.ELECTRAOutput(torch.randn(24, 10), None, disc_logits, is_replaced, mask, chosen)
        gathered.update(pred, torch.randint(10, (8, 64)), *LOSSES, (chosen.sum(), mask.sum()))
        logits.append(disc_logits[mask]), replaced.append(is_replaced[mask])
    measured = gathered.compute()
    truth, scores = torch.cat(replaced).numpy(), torch.cat(logits).numpy()
    assert measured["disc_auc"] == pytest.approx(roc_auc_score(truth, scores), abs=1e-3)
    assert measured["disc_precision"] == pytest.approx(precision_score(truth, scores > 0))
    assert measured["disc_recall"] == pytest.approx(recall_score(truth, scores > 0))
    assert measured["disc_accuracy"] == pytest.approx(accuracy_score(truth, scores > 0))
    assert measured["replaced_share"] == pytest.approx(np.mean(truth))
    assert [measured[name] for name in ("loss", "gen_loss", "disc_loss")] == pytest.approx([27, 2, .5])
    assert measured["masks_dropped"] == 0


def test_masks_beyond_the_capacity_are_counted():
    chosen = torch.ones(2, 4, dtype=torch.bool)
    pred = pretrain.ELECTRAOutput(torch.zeros(5, 10), None, torch.zeros(2, 4), chosen, chosen, chosen)
    gathered = PretrainingMetrics()
    gathered.update(pred, torch.zeros(2, 4, dtype=torch.long), *LOSSES, (torch.tensor(8), torch.tensor(8)))
    assert gathered.compute()["masks_dropped"] == 3


def test_measures_that_cannot_be_taken_are_none():
    pred = pretrain.ELECTRAOutput(torch.zeros(0, 10), None, torch.zeros(1, 4) - 1, torch.zeros(1, 4, dtype=torch.bool),
                                  torch.ones(1, 4, dtype=torch.bool), torch.zeros(1, 4, dtype=torch.bool))
    gathered = PretrainingMetrics()
    gathered.update(pred, torch.zeros(1, 4, dtype=torch.long), *LOSSES, (torch.tensor(0), torch.tensor(4)))
    measured = gathered.compute()
    assert [measured[name] for name in ("gen_loss", "gen_accuracy", "disc_auc", "disc_precision", "disc_recall")] == [None] * 5
