"""Plots and tables: unusual characters, line wrapping, histogram bins, grids, sorting."""
import json

import pytest
import torch

from _utils.plots import plot_lengths, plot_training, save_plot, show_discriminator, tokens_in_color
from _utils.text.vocabulary import SPECIAL_TOKENS, tokenizer_from_tokens


@pytest.mark.plots
@pytest.mark.parametrize("token", ["$→##$", "\\frac", "<b>", "日本語", "한국어"])
def test_token_with_special_characters_is_plotted(tmp_path, token):
    figure = tokens_in_color([[(token, "#ff0000", token), ("word", None, "")]])
    assert token in [text.get_text() for text in figure.axes[0].texts]
    save_plot(figure, tmp_path / "new folder/tokens.png")
    assert (tmp_path / "new folder/tokens.png").stat().st_size > 0


def test_tokens_do_not_overlap_and_lines_wrap():
    figure = tokens_in_color([[("日本語", None, ""), ("word", None, "below it"), ("x" * 20, None, "")], [("next", None, "")]], columns=30)
    position = {text.get_text(): text.get_position() for text in figure.axes[0].texts if text.get_text()}
    # Half the width of each: "日本語" takes six columns; "word" takes eight, because of the text below it.
    assert position["word"][0] - position["日本語"][0] > 3 + 4
    assert position["日本語"][1] == position["word"][1] < position["x" * 20][1] < position["next"][1]


@pytest.mark.parametrize("longest", [3, 40, 60, 128])
def test_histogram_bars_of_uniform_lengths_have_equal_heights(longest):
    figure = plot_lengths({"uniform": 2 * list(range(1, longest + 1))})
    *others, last = [bar.get_height() for bar in figure.axes[0].patches]
    assert len(set(others)) == 1 and 0 < last <= others[0] and sum(others) + last == 2 * longest


def test_a_run_that_stopped_before_its_first_line_has_no_curves(tmp_path):
    (tmp_path / "metrics.jsonl").write_text('{"step": 50, "split": "held_out", "gen_loss": 9.0}\n')
    assert plot_training(tmp_path / "metrics.jsonl") is None


def test_replaced_tokens_are_outlined():
    hf_tokenizer = tokenizer_from_tokens([*SPECIAL_TOKENS, "one", "two"])
    ids = torch.tensor([[5, 6, 5]])
    figure = show_discriminator(ids, torch.tensor([[5, 5, 5]]), torch.tensor([[0, 1, 1]]), torch.tensor([[.1, .9, .2]]), hf_tokenizer)
    outlines = {text.get_text(): text.get_bbox_patch().get_edgecolor()[3] for text in figure.axes[0].texts if text.get_bbox_patch()}
    assert outlines == {"one": 0, "two→one": 1, "one ✓": 0}


def test_the_loss_of_a_second_language_model_has_a_panel(tmp_path):
    row = {"split": "train", "gen_loss": 9., "gen_loss_hidden": 9., "gen_accuracy": .1, "second_mlm_loss": 9.}
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(row | {"step": step}) + "\n" for step in (1, 2)))
    (tmp_path / "config.json").write_text('{"facts": {}}')
    titles = [axis.get_title() for axis in plot_training(tmp_path / "metrics.jsonl").axes]
    assert titles == ["generator: loss", "generator: accuracy", "second network: loss"]


def test_a_resumed_run_whose_metrics_were_renamed_is_plotted(tmp_path):
    """Earlier versions logged the loss of a second language model as disc_loss."""
    row = {"gen_loss": 9., "gen_loss_hidden": 9., "gen_accuracy": .1}
    rows = [row | {"split": "train", "step": 1, "disc_loss": 9.}, row | {"split": "train", "step": 2, "second_mlm_loss": 9.},
            row | {"split": "held_out", "step": 2, "second_mlm_loss": 9.}]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "config.json").write_text('{"facts": {}}')
    titles = [axis.get_title() for axis in plot_training(tmp_path / "metrics.jsonl").axes]
    assert titles[2:] == ["discriminator: loss", "second network: loss"]


def test_a_metric_that_the_objective_does_not_have_gets_no_panel(tmp_path):
    row = {"split": "train", "gen_loss": 9., "gen_loss_hidden": 9., "gen_accuracy": .1, "disc_loss": 9., "disc_auc": None}
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(row | {"step": step}) + "\n" for step in (1, 2)))
    (tmp_path / "config.json").write_text('{"facts": {}}')
    titles = [axis.get_title() for axis in plot_training(tmp_path / "metrics.jsonl").axes]
    assert titles == ["generator: loss", "generator: accuracy", "discriminator: loss"]
