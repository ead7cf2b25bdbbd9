"""Stopping a run with Ctrl-C or SIGTERM after the current step."""
import contextlib
import os
import signal
import threading
import time

from _utils.errors import PlainError


class Stopped(PlainError):
    """The run was asked to stop and has saved its state. The exit status is that of an interrupted program."""
    prefix, exit_status, is_common = "", 130, True


class StopSignals:
    """Context in which Ctrl-C and SIGTERM only set `asked`. A second Ctrl-C, a second or more later, interrupts as usual.

    Launchers and job schedulers send a signal to the process group, and again to each process.
    """

    def __init__(self):
        self.asked, self.previous = None, {}  # asked: time of the signal

    def __enter__(self):
        self.pid = os.getpid()
        if threading.current_thread() is threading.main_thread():
            self.previous = {number: signal.signal(number, self._ask) for number in (signal.SIGINT, signal.SIGTERM)}
        return self

    def _ask(self, number, frame):
        if os.getpid() != self.pid:
            return  # in a data worker that was just forked
        if self.asked is None:
            self.asked = time.monotonic()
            with contextlib.suppress(OSError):  # the reader of the output may be gone already
                print("\nStopping after this step. Press Ctrl-C again to stop immediately.", flush=True)
        elif number == signal.SIGINT and time.monotonic() - self.asked > 1:
            raise KeyboardInterrupt

    def __exit__(self, *_):
        for number, handler in self.previous.items():
            signal.signal(number, handler)
