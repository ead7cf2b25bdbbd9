"""Plots: unusual characters, runs without metrics, and the loss of another objective."""
import json

import pytest

from _utils.plots import plot_training, save_plot, tokens_in_color


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


@pytest.mark.plots
def test_the_second_term_of_another_loss_has_a_panel(tmp_path):
    row = {"step": 50, "split": "train", "loss": 9.5, "gen_loss": 9., "gen_loss_hidden": 9., "rank_loss": .5}
    (tmp_path / "metrics.jsonl").write_text(json.dumps(row) + "\n")
    (tmp_path / "config.json").write_text('{"facts": {"unigram_entropy": 6.5}}')
    titles = [axis.get_title() for axis in plot_training(tmp_path / "metrics.jsonl").axes]
    assert titles == ["generator: loss", "rank loss"]
