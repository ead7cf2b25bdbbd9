"""Comparing systems by the finetuned checkpoints of several pretraining runs."""
from pathlib import Path

import pytest
import torch
from tiny_finetuning import table_row
from tiny_pretraining import FOLDER, save_fresh

import pretrain
from _utils.__main__ import main
from _utils.config import complete
from _utils.errors import UserError
from _utils.finetuning.runs import add_run
from _utils.networks.pretrained import load_pretrained
from _utils.objectives.registry import objective_of
from _utils.runs.checkpoints import FORMAT, load_checkpoint
from benchmarks.compare_pretraining import checkpoint_flops

# {checkpoint: (score of finetuning seed 0 on RTE, seed 1, the score of the only seed on CoLA)}
SCORES = {"electra_1_25.0%": (50, 54, 10), "electra_1_100.0%": (60, 64, 20), "electra_2_25.0%": (50, 52, 11),
          "electra_2_100.0%": (66, 66, 24), "mlm_1_100.0%": (58, 58, 14), "mlm_2_100.0%": (56, 60, 14),
          "untrained_1_100.0%": (50, 50, 0)}


SETTINGS = {"electra": ["steps=6000"], "mlm": ["objective=mlm", "steps=7403"], "untrained": ["steps=6000"]}


@pytest.fixture
def finished(empty_folder, small_tokenizer):
    """A working directory with the table of runs and the checkpoints of two seeds of two systems, and one without
    training.
    """
    FOLDER.mkdir(parents=True)
    for i, (name, (*of_rte, cola)) in enumerate(SCORES.items()):
        path = save_fresh(FOLDER / f"{name}.pth", small_tokenizer, *SETTINGS[name.split("_")[0]], seed=i)
        torch.save({**load_checkpoint(path), "step": 60 * float(name.rsplit("_", 1)[1][:-1])}, path)
        settings = {"pretrained_weights": load_pretrained(str(path)).digest}
        add_run(table_row("cola", 0, name, settings, scores={"validation": {"matthews": cola / 100}}))
        for seed, rte in enumerate(of_rte):
            add_run(table_row("rte", seed, name, settings, scores={"validation": {"accuracy": rte / 100}}))


@pytest.mark.plots
def test_the_unit_of_comparison_is_the_pretraining_seed(finished, capsys):
    """ELECTRA's seeds have 41 (62 and 20) and 45 (66 and 24), the others 36 (58 and 14) and 36."""
    main(["compare_pretraining", "electra", "mlm", "--baseline", "untrained_1", "--plot", "figure.png"])
    numbers = capsys.readouterr().out.split()
    assert {"43.0", "36.0", "7.0", "2.0"} <= {number.strip("()±") for number in numbers}, numbers
    assert Path("figure.png").stat().st_size > 5000


def test_scores_of_weights_that_a_later_run_replaced_are_refused(finished, small_tokenizer):
    save_fresh(FOLDER / "mlm_2_100.0%.pth", small_tokenizer, *SETTINGS["mlm"], seed=99)
    with pytest.raises(UserError, match="'mlm_2_100.0%'"):
        main(["compare_pretraining", "electra", "mlm", "--plot", "figure.png"])


def test_operations_of_two_towers_are_those_of_the_trained_ones(empty_folder):
    flops = []
    for hidden in (64, 128):
        generator = {"model_type": "electra", "hidden_size": hidden, "embedding_size": 128, "num_hidden_layers": 1}
        c = complete(pretrain.c.override(["size=tiny", "objective=electric", f"generator={generator}"]))
        with torch.device("meta"):
            networks = objective_of(c).fresh(c, 500)
        configs = {f"{part}_config": one.config.to_dict() for part, one in zip(("towers", "discriminator"), networks)}
        torch.save({"format": FORMAT, "model": {}, **configs, "tokenizer": "", "config": dict(c), "step": 1}, "a.pth")
        flops.append(checkpoint_flops("a.pth"))
    assert flops[0] < flops[1]
