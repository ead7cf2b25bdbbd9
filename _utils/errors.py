"""Errors meant for people: one sentence that names the culprit and the way out."""
import sys


class PlainError(Exception):
    """A mistake that its reader can mend. The message is the whole story; scripts print it without a traceback."""

    def __init__(self, message):
        super().__init__(message)
        self.message = message

    def __str__(self):
        return self.message  # fastai rewrites `args` of what is raised inside a callback


def first_line(error):
    """Kind and first line of somebody else's error, to be quoted in a sentence."""
    return f"{type(error).__name__}: {str(error).strip()}".split("\n")[0][:160]


def print_plain_errors():
    """Let a script end with the sentence of a `PlainError` alone (exit status 1); other errors keep their traceback."""
    def hook(kind, error, traceback):
        if issubclass(kind, PlainError):
            print(f"error: {error}", file=sys.stderr)
        else:
            sys.__excepthook__(kind, error, traceback)
    sys.excepthook = hook
