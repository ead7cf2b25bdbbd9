"""Pictures and tables that are easily drawn wrong."""
import pandas
import pytest

from _utils.plots import _grid, plot_lengths, save_plot, sortable, tokens_in_color


@pytest.mark.parametrize("token", ["$→##$", "\\frac", "<b>", "日本語", "한국어"])
def test_any_wordpiece_can_be_drawn(tmp_path, token):
    figure = tokens_in_color([[(token, "#ff0000", token), ("word", None, "")]])
    assert token in [text.get_text() for text in figure.axes[0].texts]
    save_plot(figure, tmp_path / "tokens.png")


def test_words_do_not_overlap_and_lines_wrap():
    figure = tokens_in_color([[("日本語", None, ""), ("word", None, "below it"), ("x" * 20, None, "")], [("next", None, "")]], columns=30)
    words = {text.get_text(): text.get_position() for text in figure.axes[0].texts if text.get_text()}
    assert words["word"][0] - words["日本語"][0] > 3 + 4  # half of six columns, and of the eight that the text below takes
    assert words["日本語"][1] == words["word"][1] < words["x" * 20][1] < words["next"][1]


@pytest.mark.parametrize("longest", [3, 40, 60, 128])
def test_bars_of_a_histogram_hold_whole_wordpieces(longest):
    figure = plot_lengths({"all alike": [*range(1, longest + 1)] * 2})
    *whole, last = [bar.get_height() for bar in figure.axes[0].patches]
    assert len(set(whole)) == 1 and 0 < last <= whole[0] and sum(whole) + last == 2 * longest


@pytest.mark.parametrize("n", [1, 5, 6, 9])
def test_small_multiples_have_as_many_axes_as_needed(n):
    assert len(_grid(n)[1]) == n


def test_a_sortable_table_shows_small_learning_rates_and_sorts_by_every_column():
    table = sortable(pandas.DataFrame({"task": ["CoLA", "RTE"], "score": [8.123, 50.], "lr": [3e-4, 1e-5]})).data
    assert [f"<td>{cell}</td>" in table for cell in ("8.12", "50.00", "0.0003", "1e-05")] == [True] * 4
    assert table.count("onclick=") == 3
