"""Errors meant for people: one sentence that names the culprit and the way out."""
import contextlib
import errno
import os
import re
import sys
import time
import traceback


class PlainError(Exception):
    """A mistake that its reader can mend. The message is the whole story; scripts print it without a traceback.

    prefix: what stands before it.   exit_status: of the script.   is_common: all of several processes raise it alike.
    """
    prefix, exit_status, is_common = "error: ", 1, False

    def __init__(self, message):
        super().__init__(message)
        self.message = message

    def __str__(self):
        return self.message  # fastai rewrites `args` of what is raised inside a callback


@contextlib.contextmanager
def as_plain_error(message, errors=Exception):
    """Within it, an exception of the given kinds becomes a PlainError; "{error}" in the message becomes its kind and first line.

    For calls into libraries that raise many kinds of exceptions, all with the same remedy. A PlainError passes through unchanged.
    """
    try:
        yield
    except PlainError:
        raise
    except errors as error:
        raise PlainError(message.replace("{error}", first_line(error))) from error


def first_line(error):
    """Kind and first line of somebody else's error, to be quoted in a sentence."""
    return f"{type(error).__name__}: {str(error).strip()}".split("\n")[0][:160]


def explain(error):
    """The sentence for an error whose reader can mend it, a PlainError's or one of a few that libraries raise; None for others.

    Cleaning up after such an error may have raised another.
    """
    while error:
        if sentence := _sentence(error):
            return sentence
        error = error.__cause__ or error.__context__
    return None


def _sentence(error):
    text = str(error)
    if isinstance(error, PlainError):
        return f"{error.prefix}{error}"
    if isinstance(error, KeyboardInterrupt):
        return "stopped: the same command goes on with what is finished."
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return f"error: no space is left ({first_line(error)}): make room and give the same command again; what was saved is whole."
    if re.search(r"DataLoader worker \(pid.*(killed by signal|exited unexpectedly)|abruptly died", text) or _lost_a_process(error):
        return (f"error: a process that prepares data died ({first_line(error)}), most often because memory ran out: lower num_workers and "
                "give the same command again, which goes on with what was saved.")
    if type(error).__name__ == "OutOfMemoryError":
        return f"error: the memory of the GPU is too small ({first_line(error)}): lower micro_batch in pretraining, or the bs of a task."
    return None


def _lost_a_process(error):
    """Whether the pipe to another process of ours ended, such as the one that keeps the queue of `datasets`."""
    frames = traceback.extract_tb(error.__traceback__) if isinstance(error, EOFError | ConnectionError) else []
    return any("multiprocess" in frame.filename for frame in frames)


def print_plain_errors():
    """Let a script end with the sentence of an error that can be explained (exit status 1); others keep their traceback.

    Of several processes on a machine the first one speaks; the others tell errors that are theirs alone.
    """
    if not is_first_process():
        sys.stdout = open(os.devnull, "w")

    def hook(kind, error, its_traceback):
        sentence = explain(error)
        if not is_first_process():
            time.sleep(3)  # if the first one has ended too, the launcher ends this one now
            sentence = sentence and f"process {os.environ['RANK']}: {sentence}"
        if sentence is None:
            sys.__excepthook__(kind, error, its_traceback)
        elif is_first_process() or not getattr(error, "is_common", False):
            # torch.distributed keeps what goes to sys.stderr here, and puts words before it.
            print(sentence, file=sys.__stderr__, flush=True)
        if getattr(error, "exit_status", 1) != 1:
            sys.stdout.flush()
            os._exit(error.exit_status)
    sys.excepthook = hook


def is_first_process():
    """Whether this is the only process on this machine, or the first of those that a launcher started."""
    return os.environ.get("LOCAL_RANK", "0") == "0"
