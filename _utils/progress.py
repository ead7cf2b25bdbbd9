"""The progress of long work: a bar in a terminal or notebook; in other outputs, such as log files, a line a minute."""
import sys
import time

from tqdm import tqdm


class Progress(tqdm):
    """A tqdm bar that shows what is most important first: count, time left, postfix, speed.

    unit: what is counted, in the plural.   leave: keep the bar when it is complete.
    Print other lines with `Progress.write`, which keeps the bar below them.
    """

    def __init__(self, iterable=None, desc=None, total=None, leave=False, unit="steps", **kwargs):
        self.is_bar = sys.stderr.isatty() or type(sys.stderr).__module__.startswith("ipykernel")
        seconds = .5 if self.is_bar else 60
        super().__init__(iterable, desc, total, leave and self.is_bar, unit=f" {unit}", mininterval=seconds,
                         delay=seconds, miniters=1, dynamic_ncols=True, **kwargs)
        if self.total:
            self.bar_format = "{l_bar}{n_fmt}/{total_fmt}{unit}, {remaining} left{postfix}, {rate_fmt} |{bar}|"

    def display(self, msg=None, pos=None):
        """Draw the bar. In other outputs, print a line if one is due: tqdm also calls this after other lines."""
        if self.is_bar:
            return super().display(msg, pos)
        if msg is None and time.time() - self.last_print_t >= self.mininterval:
            sys.stdout.flush()  # what was printed before
            self.fp.write(f"{self}\n")

    def clear(self, nolock=False):
        if self.is_bar:
            super().clear(nolock)


def counted(n, noun):
    """A number and a noun: "1 epoch", "2.5 epochs"."""
    number = f"{n:.3g}"
    return f"{number} {noun}" if number == "1" else f"{number} {noun}s"
