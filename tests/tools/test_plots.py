"""Plots and tables: unusual characters, line wrapping, histogram bins, grids, sorting."""

import pytest

from _utils.plots import plot_training, save_plot, tokens_in_color


@pytest.mark.plots
@pytest.mark.parametrize("token", ["$→##$", "\\frac", "日本語"])
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


def test_a_run_that_stopped_before_its_first_line_has_no_curves(tmp_path):
    (tmp_path / "metrics.jsonl").write_text('{"step": 50, "split": "held_out", "gen_loss": 9.0}\n')
    assert plot_training(tmp_path / "metrics.jsonl") is None
