"""Pretraining that starts from a trained generator and discriminator (`initial_weights`)."""
import shutil
from pathlib import Path

import pytest
from tiny_pretraining import metrics, run

from _utils.commands.export_hf import export_hf
from _utils.errors import PlainError
from _utils.networks import load_pretrained
from _utils.runs.checkpoints import load_checkpoint


@pytest.fixture
def trained_pair(workplace):
    """({'checkpoint': ..., 'folder': ...}, weights): values of initial_weights for the same trained networks, and their state_dict."""
    learn = run("base_run_name=first", "steps=4")
    export_hf("checkpoints/pretrain/first_5_100.0%.pth", "pair")
    return {"checkpoint": "first_5_100.0%.pth", "folder": "pair"}, learn.model.state_dict()


@pytest.mark.parametrize("kind", ["checkpoint", "folder"])
def test_continued_pretraining_keeps_weights_and_tying_and_uses_a_new_schedule(trained_pair, kind):
    names, weights = trained_pair
    learn = run(f"initial_weights={names[kind]}", "steps=1", "lr=1e-3", "warmup_steps=1", vocab=None)  # its only step has lr 0
    model = learn.model
    assert all(value.equal(weights[name]) for name, value in model.state_dict().items())
    embeddings = model.generator.get_input_embeddings().weight
    assert model.discriminator.get_input_embeddings().weight is embeddings
    assert model.generator.get_output_embeddings().weight is embeddings
    run(f"initial_weights={names[kind]}", "steps=6", "lr=1e-3", "warmup_steps=2", vocab=None)
    assert [row["lr"] for row in metrics()] == pytest.approx([0, 1e-3 / 2 * 5 / 6, 1e-3 * 4 / 6, 1e-3 * 3 / 6, 1e-3 * 2 / 6, 1e-3 / 6])
    initial_loss = metrics(name="first_5")[0]["loss"]
    assert metrics()[0]["loss"] < initial_loss and load_checkpoint("checkpoints/pretrain/mini_5_100.0%.pth")["step"] == 6


@pytest.mark.parametrize("overrides, message", [
    (["initial_weights=pair"], "Set lr, warmup_steps"),
    (["initial_weights=pair", "lr=1e-3", "warmup_steps=1", "vocab=vocab.txt"], "vocab='vocab.txt' contradicts"),
    (["initial_weights=pair", "lr=1e-3", "warmup_steps=1", "size=small"], "Set size=tiny"),
    (["initial_weights=none.pth", "lr=1e-3", "warmup_steps=1"], "Checkpoint not found: 'none.pth'"),
    (["initial_weights=oficial"], "'huggingface', 'official'"),
])
def test_invalid_initial_weights_are_rejected_before_preparing_data(trained_pair, overrides, message):
    shutil.rmtree("datasets")
    with pytest.raises(PlainError, match=message):
        run(*overrides, vocab=None)
    assert not Path("datasets").exists() and not Path("checkpoints/pretrain/mini_5").exists()


def test_pair_with_twice_the_same_network_is_rejected_instead_of_getting_a_new_head(trained_pair):
    for part, other in [("generator", "discriminator"), ("discriminator", "generator")]:
        folder = shutil.copytree("pair", f"without_{part}")
        shutil.rmtree(f"{folder}/{part}")
        shutil.copytree(f"{folder}/{other}", f"{folder}/{part}")
        with pytest.raises(PlainError, match=f"is not a {part}: it lacks"):
            run(f"initial_weights={folder}", "lr=1e-3", "warmup_steps=1", vocab=None)


def test_pair_without_tokenizer_is_rejected(trained_pair):
    for path in Path("pair").glob("*/tokenizer*"):
        path.unlink()
    with pytest.raises(PlainError, match="has no tokenizer"):
        run("initial_weights=pair", "lr=1e-3", "warmup_steps=1", vocab=None)
    with pytest.raises(PlainError, match="has no tokenizer"):
        load_pretrained("pair/discriminator", "tiny", 32)
