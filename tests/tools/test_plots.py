"""Plots: unusual characters, and runs without metrics."""
import json

import pytest
import torch

from _utils.plots import plot_training, save_plot, show_discriminator, tokens_in_color
from _utils.text.vocabulary import SPECIAL_TOKENS, tokenizer_from_tokens


@pytest.mark.plots
@pytest.mark.parametrize("token", ["$→##$", "\\frac", "日本語"])
def test_token_with_special_characters_is_plotted(tmp_path, token):
    figure = tokens_in_color([[(token, "#ff0000", token), ("word", None, "")]])
    assert token in [text.get_text() for text in figure.axes[0].texts]
    save_plot(figure, tmp_path / "new folder/tokens.png")
    assert (tmp_path / "new folder/tokens.png").stat().st_size > 0


def test_a_run_that_stopped_before_its_first_line_has_no_curves(tmp_path):
    (tmp_path / "metrics.jsonl").write_text('{"step": 50, "split": "held_out", "gen_loss": 9.0}\n')
    assert plot_training(tmp_path / "metrics.jsonl") is None


def test_replaced_tokens_are_outlined():
    hf_tokenizer = tokenizer_from_tokens([*SPECIAL_TOKENS, "one", "two"])
    ids, labels = torch.tensor([[5, 6, 5]]), torch.tensor([[0, 1, 1]])
    figure = show_discriminator(ids, torch.tensor([[5, 5, 5]]), labels, torch.tensor([[.1, .9, .2]]), hf_tokenizer)
    tokens = [text for text in figure.axes[0].texts if text.get_bbox_patch()]
    outlines = {token.get_text(): token.get_bbox_patch().get_edgecolor()[3] for token in tokens}
    assert outlines == {"one": 0, "two→one": 1, "one ✓": 0}


def test_the_loss_of_a_second_language_model_has_a_panel(tmp_path):
    row = {"split": "train", "gen_loss": 9., "gen_loss_hidden": 9., "gen_accuracy": .1, "second_mlm_loss": 9.}
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(row | {"step": step}) + "\n" for step in (1, 2)))
    (tmp_path / "config.json").write_text('{"facts": {}}')
    titles = [axis.get_title() for axis in plot_training(tmp_path / "metrics.jsonl").axes]
    assert titles == ["generator: loss", "generator: accuracy", "second network: loss"]
