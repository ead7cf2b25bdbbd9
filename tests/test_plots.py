"""Plots: unusual characters, runs without metrics, and the loss of another objective."""
import json

import pytest

from _utils.plots import (
    plot_confusion,
    plot_finetuning_losses,
    plot_scores,
    plot_training,
    save_plot,
    tokens_in_color,
)


@pytest.mark.plots
@pytest.mark.parametrize("token", ["$→##$", "\\frac", "日本語"])
def test_token_with_special_characters_is_plotted(tmp_path, token):
    figure = tokens_in_color([[(token, "#ff0000", token), ("word", None, "")]])
    assert token in [text.get_text() for text in figure.axes[0].texts]
    save_plot(figure, tmp_path / "new folder/tokens.png")
    assert (tmp_path / "new folder/tokens.png").stat().st_size > 0


@pytest.mark.plots
@pytest.mark.filterwarnings("error:Glyph")
@pytest.mark.parametrize("labels, drawn", [
    (["$5 and $", "a$b$"], ["$5 and $", "a$b$"]), (["été", "ни"], ["été", "ни"]), (["\U0001fadf", "b"], ["0", "1"])])
def test_labels_of_a_confusion_matrix_are_drawn_as_they_are_or_as_numbers(tmp_path, labels, drawn):
    """No font has the newest emoji."""
    figure = plot_confusion([[1, 0], [2, 3]], labels)
    figure.savefig(tmp_path / "confusion.png")
    shown = [text.get_text().replace("\\$", "$") for text in figure.axes[0].get_yticklabels()]
    assert shown == drawn and ("font" in figure.axes[0].get_xlabel()) == (shown != labels)


@pytest.mark.plots
def test_names_of_tasks_and_groups_may_have_dollar_signs(tmp_path):
    save_plot(plot_scores({"a$b$^": {"x$_$^": [50.]}}), tmp_path / "scores.png")
    save_plot(plot_finetuning_losses({"x$_$^": [[{"step": 1, "loss": 1.}]]}), tmp_path / "losses.png")
    assert (tmp_path / "scores.png").stat().st_size > 0 and (tmp_path / "losses.png").stat().st_size > 0


def test_a_run_that_stopped_before_its_first_line_has_no_curves(tmp_path):
    (tmp_path / "metrics.jsonl").write_text('{"step": 50, "split": "held_out", "gen_loss": 9.0}\n')
    assert plot_training(tmp_path / "metrics.jsonl") is None


def write_config(folder, **keys):
    run = {"facts": {"unigram_entropy": 6.5}, "config": {"disc_smooth_label": False} | keys}
    (folder / "config.json").write_text(json.dumps(run))


@pytest.mark.plots
@pytest.mark.parametrize("smoothing, has_line", [(False, True), (.1, False)])
def test_the_loss_of_a_constant_prediction_is_that_of_labels_without_smoothing(tmp_path, smoothing, has_line):
    row = {"step": 50, "split": "train", "gen_loss": 9., "gen_loss_hidden": 9., "disc_loss": .5, "replaced_share": .1}
    (tmp_path / "metrics.jsonl").write_text(json.dumps(row) + "\n")
    write_config(tmp_path, disc_smooth_label=smoothing)
    _, axis = plot_training(tmp_path / "metrics.jsonl").axes
    assert ("constant prediction" in [line.get_label() for line in axis.lines]) == has_line


@pytest.mark.plots
def test_the_second_term_of_another_loss_has_a_panel(tmp_path):
    row = {"step": 50, "split": "train", "loss": 9.5, "gen_loss": 9., "gen_loss_hidden": 9., "rank_loss": .5}
    (tmp_path / "metrics.jsonl").write_text(json.dumps(row) + "\n")
    write_config(tmp_path)
    titles = [axis.get_title() for axis in plot_training(tmp_path / "metrics.jsonl").axes]
    assert titles == ["generator: loss", "rank loss"]
