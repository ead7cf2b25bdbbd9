"""Errors that users can fix: shown as a short message without a traceback."""
import contextlib
import errno
import os
import re
import sys
import time
import traceback


class UserError(Exception):
    """An error that the user can fix; scripts print it without a traceback.

    The message says what is wrong, what is accepted and what to do.
    prefix: printed before the message.   exit_status: of the script.
    """
    prefix, exit_status = "error: ", 1

    def __init__(self, message):
        super().__init__(message)
        self.message = message

    def __str__(self):
        return self.message  # fastai rewrites `args` of what is raised inside a callback


@contextlib.contextmanager
def as_user_error(message, errors=Exception):
    """Within it, an exception of the given kinds becomes a UserError, in whose message "{error}" is `one_line` of it.

    For calls into libraries that raise many kinds of exceptions, all with the same remedy. A UserError passes through
    unchanged.
    """
    try:
        yield
    except UserError:
        raise
    except errors as error:
        if _is_of_dead_worker(error):  # which PyTorch reports in the middle of anything
            raise
        raise UserError(message.replace("{error}", one_line(error))) from error


def one_line(error):
    """Type and message of a library's error in at most 300 characters, with shortened web addresses, for quoting it."""
    text = re.sub(r"\(Request ID: [^)]*\)|\s", " ", f"{type(error).__name__}: {error}")
    text = re.sub(r"(https?://[^\s'\"]{40})[^\s'\"]+", r"\1...", text)
    return " ".join(text.split())[:300]


def explain(error):
    """Return the message for an error that the user can fix, else None.

    Such an error is a UserError or one of a few library errors, possibly as the cause of `error`.
    """
    return next(filter(None, map(_message, causes(error))), None)


def causes(error):
    """Yield an error, the error that caused it, and so on."""
    while error:
        yield error
        error = error.__cause__ or error.__context__


def _message(error):
    if isinstance(error, UserError):
        return f"{error.prefix}{error}"
    if isinstance(error, KeyboardInterrupt):
        return "Stopped. Rerun the same command, without resume=False, to continue with what is finished."
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return (f"error: No space left on device ({one_line(error)}). Free some space and rerun the same command; "
                "saved files are intact.")
    if _is_of_dead_worker(error):
        return (f"error: A data worker process died ({one_line(error)}), most likely out of memory. Lower num_workers "
                "and rerun the same command, which without resume=False continues with what was saved.")
    if "OutOfMemoryError" in f"{type(error)} {error}":  # torch.compile's error only quotes it
        return (f"error: Out of GPU memory ({one_line(error)}). Lower micro_batch (pretraining) or the bs of a task "
                "(finetuning).")
    if type(error).__module__.startswith(("torch._dynamo", "torch._inductor")):
        return f"error: compile=True failed ({one_line(error)}). Leave compile out."
    return None


def _is_of_dead_worker(error):
    """Whether a data worker was killed. The loader sees that at once, or first a connection that was closed."""
    if isinstance(error, (ConnectionError, EOFError)):
        return any("torch/utils/data" in frame.filename for frame in traceback.extract_tb(error.__traceback__))
    return bool(re.search(r"DataLoader worker \(pid.*(killed by signal|exited unexpectedly)", str(error)))


@contextlib.contextmanager
def _may_lose_reader(stream):
    """Within it, nothing happens if the reader of a stream ends, as in `... --help | head`."""
    try:
        yield
        stream.flush()
    except OSError as error:
        if error.errno not in (errno.EPIPE, errno.EIO):  # the latter of a terminal that was closed
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())  # the interpreter flushes again at its end


class _WithoutReader:
    """A stream to which a program goes on writing when its reader ends: a training is worth more than its log."""

    def __init__(self, stream):
        self.stream = stream

    def __getattr__(self, name):
        return getattr(self.stream, name)

    def write(self, text):
        with _may_lose_reader(self.stream):
            return self.stream.write(text)

    def flush(self):
        with _may_lose_reader(self.stream):
            self.stream.flush()


def print_user_errors():
    """Make a script or a notebook end with a plain message for errors that `explain` knows.

    Other errors keep their traceback. Characters that the encoding of the output lacks are printed as escapes.
    Of several processes on a machine, the first one prints; the others print only errors that the first one
    does not have.
    """
    if not is_first_process():
        sys.stdout = open(os.devnull, "w")
    if hasattr(sys.stdout, "reconfigure"):  # not in a notebook
        sys.stdout.reconfigure(errors="backslashreplace")
        sys.stdout, sys.stderr = map(_WithoutReader, (sys.stdout, sys.stderr))
    if "IPython" in sys.modules and (shell := sys.modules["IPython"].get_ipython()):
        shell.set_custom_exc((Exception, KeyboardInterrupt), _show_in_notebook)

    def hook(kind, error, its_traceback):
        message = explain(error)
        status = 130 if isinstance(error, KeyboardInterrupt) else getattr(error, "exit_status", 1)
        if not is_first_process():
            time.sleep(3)  # if the first process ended too, the launcher kills this one now
            message = message and f"process {os.environ['RANK']}: {message}"
        if message is None:
            sys.__excepthook__(kind, error, its_traceback)
        elif is_first_process() or status == 1:  # all processes are stopped alike
            with contextlib.suppress(OSError):  # the terminal may be gone
                # torch.distributed redirects sys.stderr here and adds a prefix.
                print(message, file=sys.__stderr__, flush=True)
        if status != 1:
            sys.stdout.flush()
            os._exit(status)
    sys.excepthook = hook


def _show_in_notebook(shell, kind, error, its_traceback, tb_offset=None):
    """Show an error below a cell, as IPython's set_custom_exc."""
    if message := explain(error):
        shell._showtraceback(kind, error, [message])
    else:
        shell.showtraceback((kind, error, its_traceback), tb_offset=tb_offset)


def is_first_process():
    """Whether this is the only process on this machine, or the first that a launcher started."""
    return n_processes() == 1 or os.environ["LOCAL_RANK"] == "0"


def n_processes():
    """The number of processes that a launcher started together. Job schedulers may set WORLD_SIZE alone."""
    is_launched = {"WORLD_SIZE", "RANK", "LOCAL_RANK"} <= os.environ.keys()
    return int(os.environ["WORLD_SIZE"]) if is_launched else 1
