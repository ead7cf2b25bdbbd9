"""Checkpoint files of pretraining: content, milestones, export to transformers, atomic writing, and files that cannot be read."""
import re
from pathlib import Path

import pytest
import torch
from tiny_pretraining import FOLDER, run
from tokenizers import Tokenizer

import pretrain
from _utils.commands.export_hf import export_hf
from _utils.errors import PlainError
from _utils.runs.checkpoints import load_checkpoint, milestone_steps, write_atomically


def test_checkpoint_contains_weights_configuration_and_tokenizer_as_plain_data(workplace):
    learn = run()
    checkpoint = load_checkpoint(FOLDER / "mini_5_100.0%.pth")
    assert checkpoint["step"] == 16 and checkpoint["config"]["size"] == "tiny"
    token_ids = Tokenizer.from_str(checkpoint["tokenizer"]).get_vocab()
    assert sorted(token_ids, key=token_ids.get) == Path("vocab.txt").read_text().split("\n")
    assert checkpoint["discriminator_config"]["hidden_size"] == 128
    for name, value in learn.model.state_dict().items():
        assert checkpoint["model"][name].equal(value), name
    after_first_step = load_checkpoint(FOLDER / "mini_5_6.25%.pth")
    assert after_first_step["step"] == 1
    name = "discriminator.electra.encoder.layer.0.output.dense.weight"
    assert not after_first_step["model"][name].equal(checkpoint["model"][name])


def test_readme_example_exports_and_loads_a_checkpoint(workplace, repo):
    learn = run("base_run_name=quickstart", "seed=11081", "steps=1")
    section = re.search(r"## Export to transformers.*?\n## ", (repo / "docs/checkpoints.md").read_text(), re.S)[0]
    [command] = re.findall(r"```bash\npython -m _utils export_hf (.*)\n```", section)
    export_hf(*command.split())
    [code] = re.findall(r"```python\n(.*?)```", section, re.S)
    names = {}
    exec(code, names)
    exported, trained = names["encoder"], learn.model.discriminator.electra
    assert exported.encoder.layer[0].output.dense.weight.equal(trained.encoder.layer[0].output.dense.weight)
    assert names["tokenizer"].tokenize("the text") == ["the", "text"] and names["tokenizer"]("the")["input_ids"][0] == 2


@pytest.mark.parametrize("steps, expected", [(1_000_000, [62_500, 125_000, 250_000, 500_000, 1_000_000]), (16, [1, 2, 4, 8, 16]),
                                             (3, [1, 2, 3]), (1, [1])])
def test_milestones_cover_all_percents_for_any_number_of_steps(steps, expected):
    percents_by_step = milestone_steps(steps, pretrain.c.milestones)
    assert list(percents_by_step) == expected and sorted(sum(percents_by_step.values(), [])) == [6.25, 12.5, 25., 50., 100.]


@pytest.mark.parametrize("steps, stop_at, expected", [
    (1_000_000, 12_400, {4_000: [.4], 12_400: [1.24], 1_000_000: [100.]}),
    (1_000_000, 4_000, {4_000: [.4], 12_400: [1.24], 1_000_000: [100.]}),
    (17, 2, {1: [.4, 1.24], 2: [11.7647], 17: [100.]})])
def test_milestones_include_the_last_step_and_the_step_to_stop_at(steps, stop_at, expected):
    assert milestone_steps(steps, [1.24, .4], stop_at) == expected


def test_milestones_at_other_steps_are_archived_with_their_run(workplace):
    run("steps=8", "milestones=25", "stop_at=3")
    run("base_run_name=mini_5", "seed=1", "steps=2", "milestones=100")  # its name begins with the name of the other run
    run("steps=8", "resume=False", "milestones=100")
    assert {path.name for path in (FOLDER / "aside/mini_5_1").glob("*.pth")} == {"mini_5_25.0%.pth", "mini_5_37.5%.pth"}
    assert {path.name for path in FOLDER.glob("*.pth")} == {"mini_5_100.0%.pth", "mini_5_1_100.0%.pth"}


def test_failed_write_keeps_the_previous_file(tmp_path):
    path = tmp_path / "checkpoint.pth"
    write_atomically(path, lambda file: file.write(b"good"))

    def fail(file):
        file.write(b"half")
        raise OSError("disk full")
    with pytest.raises(PlainError, match=r"Could not write .*checkpoint.pth' \(OSError: disk full\). Free some disk space"):
        write_atomically(path, fail)
    assert path.read_bytes() == b"good" and list(tmp_path.iterdir()) == [path]


def test_missing_damaged_and_executable_checkpoints_are_rejected(tmp_path):
    (tmp_path / "damaged.pth").write_bytes(b"PK\x03\x04 not a checkpoint")
    torch.save({"model": Path("/")}, tmp_path / "code.pth")
    for name in ("none.pth", "damaged.pth", "code.pth"):
        with pytest.raises(PlainError, match=name):
            load_checkpoint(tmp_path / name)
