"""Progress: what a bar shows in a terminal, and the lines of a log file."""
import fcntl
import io
import os
import re
import struct
import sys
import termios

import pytest

from _utils.progress import Progress
from _utils.training.metrics import described

METRICS = {"loss": 21.2, "gen_loss": 3.214, "gen_loss_hidden": 3.5, "gen_accuracy": .41, "disc_loss": .36,
           "disc_auc": .8764, "disc_precision": None, "disc_recall": 0.}


def shown_at(columns, monkeypatch):
    """The text of a bar in a terminal of this width, late in a long run."""
    ours, theirs = os.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    with open(theirs, "w") as terminal, monkeypatch.context() as patch:
        patch.setattr(sys, "stderr", terminal)
        bar = Progress(total=1_000_000, initial=812_345, leave=True)
        bar.update(5)
        bar.set_postfix_str(", ".join([*described(METRICS)[:2], "12,345 tokens/s", *described(METRICS)[2:]]))
        shown = os.read(ours, 10_000).decode()
        bar.close()
    os.close(ours)
    return re.split(r"[\r\n]+", shown.strip("\r\n "))[-1]


@pytest.mark.parametrize("columns", [80, 140, 250])
def test_a_bar_fits_and_shows_the_step_the_time_left_the_loss_and_the_auc(columns, monkeypatch):
    text = shown_at(columns, monkeypatch)
    assert re.match(r"81% 812,350/1,000,000 steps, [\d:]+ left, generator loss 3\.21 nats, AUC 0\.876", text), text
    assert "precision" not in text  # which is not defined
    assert len(text) <= columns
    assert ("tokens/s" in text, "recall 0.00" in text) == (columns >= 140, columns >= 250)


def test_other_outputs_get_lines(monkeypatch):
    log = io.StringIO()
    monkeypatch.setattr(sys, "stderr", log)
    bar = Progress(desc="CoLA, run 0", total=3)
    bar.update()
    assert not log.getvalue()  # not at every step
    bar.mininterval = bar.delay = 0
    bar.set_postfix_str("loss 0.512", refresh=False)
    bar.update()
    Progress.write("A notice", file=log)
    bar.update()
    bar.close()
    lines = log.getvalue().splitlines()
    assert lines[0].startswith("CoLA, run 0: 67% 2/3 steps, ") and ", loss 0.512, " in lines[0]
    assert "A notice" in lines and "\r" not in log.getvalue() and all(lines)


def test_terms_have_the_names_of_their_objective():
    """A masked language model alone is not called a generator."""
    of_mlm = {name: value for name, value in METRICS.items() if name.startswith("gen_")}
    assert described(of_mlm)[0] == "loss 3.21 nats" and described(of_mlm | {"rank_loss": .5})[-1] == "rank loss 0.500"
