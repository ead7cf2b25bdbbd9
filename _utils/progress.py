"""The progress of long work: a bar in a terminal, and in other outputs, such as log files, a line every minute."""
import sys
import threading
import time

from tqdm import tqdm

# Processes show no bars of their own. A lock for them would be reported as leaked after an error (Python 3.14).
tqdm.set_lock(threading.RLock())


class Progress(tqdm):
    """A tqdm bar whose text begins with the share, the count and the time left.

    The last parts of the text are left out if they do not fit.
    unit: what is counted, in the plural.   leave: keep the bar when it is complete. `set_postfix_str` adds details.
    Print other lines with `Progress.write`, which keeps the bar below them.
    """

    def __init__(self, iterable=None, desc=None, total=None, leave=False, unit="steps", **kwargs):
        # In a notebook, a bar that disappears would leave an empty output.
        self.is_bar = sys.stderr.isatty() or leave and type(sys.stderr).__module__.startswith("ipykernel")
        seconds = .5 if self.is_bar else 60
        if total is None and hasattr(iterable, "__len__"):
            total = len(iterable)
        done = "{percentage:.0f}% {n:,}/{total:,}{unit}, {remaining} left" if total else "{n:,}{unit}"
        form = "{desc}: " * bool(desc) + done + "{postfix}, {rate_noinv_fmt}, {elapsed} so far"
        super().__init__(iterable, desc, total, leave and self.is_bar, unit=f" {unit}", mininterval=seconds,
                         delay=seconds, miniters=1, dynamic_ncols=True,
                         bar_format=form + " |{bar}|" * self.is_bar, **kwargs)

    def __str__(self):
        text = super().__str__()
        is_cut = self.is_bar and not text.endswith("|")
        return text.rpartition(", ")[0] if is_cut else text

    def display(self, msg=None, pos=None):
        """Draw the bar, or, elsewhere than in a terminal, print a line if one is due.

        tqdm also calls this after other lines.
        """
        if self.is_bar:
            return super().display(msg, pos)
        if msg is None and time.time() - self.last_print_t >= self.mininterval:
            sys.stdout.flush()  # what was printed before
            self.fp.write(f"{self}\n")

    def clear(self, nolock=False):
        if self.is_bar:
            super().clear(nolock)


def counted(n, noun):
    """Format a number with its noun: "1 epoch", "2.5 epochs"."""
    number = f"{n:.3g}"
    return f"{number} {noun}" if number == "1" else f"{number} {noun}s"
