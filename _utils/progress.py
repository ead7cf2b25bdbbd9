"""The progress of long work: a bar in a terminal, and in other outputs, such as log files, a line every minute."""
import sys
import time

from tqdm import tqdm
from tqdm.std import Bar


class Progress(tqdm):
    """A tqdm bar whose text has its parts in the order of their importance: count, time left, `details`, speed. As many
    as fit are shown.

    unit: what is counted, in the plural.   leave: keep the bar when it is complete.   details: strings, which may be
    replaced at any time.
    Print other lines with `Progress.write`, which keeps the bar below them.
    """

    def __init__(self, iterable=None, desc=None, total=None, leave=False, unit="steps", **kwargs):
        self.details = ()
        # In a notebook, a bar that disappears would leave an empty output.
        self.is_bar = sys.stderr.isatty() or leave and type(sys.stderr).__module__.startswith("ipykernel")
        seconds = .5 if self.is_bar else 60
        super().__init__(iterable, desc, total, leave and self.is_bar, unit=unit, mininterval=seconds, delay=seconds,
                         miniters=1, dynamic_ncols=True, **kwargs)

    def __str__(self):
        parts, state = self.parts(), self.format_dict
        if not self.is_bar:
            return ", ".join(parts)
        columns, around_bar = state["ncols"] or 100, len(" || 100%")  # a notebook has no width
        text = fitting(parts, columns - around_bar - 10)
        if len(text) < len(", ".join(parts[:2 + len(self.details[:2])])):  # these are more important than the bar
            text = fitting(parts, columns)
        room = columns - around_bar - len(text)
        if not self.total or room < 5:
            return text
        share = self.n / self.total
        return f"{text} |{Bar(min(share, 1.), room, Bar.ASCII if state['ascii'] else Bar.UTF)}| {share:.0%}"

    def parts(self):
        """The parts of the text."""
        state = self.format_dict
        rate = state["rate"] or (self.n - self.initial) / max(state["elapsed"], 1e-3)
        title, of_total = f"{self.desc}: " if self.desc else "", f"/{self.total:,}" if self.total else ""
        parts = [f"{title}{self.n:,}{of_total} {self.unit}"]
        if self.n == self.total:
            parts.append(f"{self.format_interval(state['elapsed'])} in all")
        elif self.total and rate:
            parts.append(f"{self.format_interval((self.total - self.n) / rate)} left")
        return [*parts, *self.details, f"{rate:,.1f} {self.unit}/s"]

    def display(self, msg=None, pos=None):
        """Draw the bar, or, elsewhere than in a terminal, print a line if one is due: tqdm also calls this after other
        lines.
        """
        if self.is_bar:
            return super().display(msg, pos)
        if msg is None and time.time() - self.last_print_t >= self.mininterval:
            sys.stdout.flush()  # what was printed before
            self.fp.write(f"{self}\n")

    def clear(self, nolock=False):
        if self.is_bar:
            super().clear(nolock)


def fitting(parts, columns):
    """As many of the first parts as fit, with commas between them."""
    texts = (", ".join(parts[:n]) for n in range(len(parts) + 1))
    return max((text for text in texts if len(text) <= columns), key=len)


def counted(n, noun):
    """A number and a noun: "1 epoch", "2.5 epochs"."""
    number = f"{n:.3g}"
    return f"{number} {noun}" if number == "1" else f"{number} {noun}s"
