"""Worker processes for preparing data.

They exit with this process: after an error, at Ctrl-C, and when it is killed.
"""
import gc
import multiprocessing
import os
import signal
import threading
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.connection import wait

from _utils.errors import UserError
from _utils.progress import Progress

_work = None  # in a worker: the function to call


def run_in_processes(work, tasks, n, desc):
    """Call `work(task)` for every task in n processes (1: in this process), with a progress bar.

    Raises the first error of a call, or UserError if a process died, after stopping the other processes.
    """
    if n <= 1:
        for task in Progress(tasks, desc, unit="parts"):
            work(task)
        return
    # a tokenizer that has used several threads must not use them in a fork
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    stop, stopper = multiprocessing.Pipe(duplex=False)
    pool = ProcessPoolExecutor(n, initializer=_start_worker, initargs=(work, stop))
    try:
        for _ in Progress(pool.map(_call, tasks), desc, len(tasks), unit="parts"):
            pass
    except BrokenProcessPool as error:
        raise UserError("A process that prepares data died, most often because memory ran out. Free memory, or use "
                        "fewer cores (taskset -c 0-3 python pretrain.py ...), and rerun the same command: finished "
                        "parts are kept.") from error
    finally:
        stopper.send(None)  # workers in the middle of a task exit too
        pool.shutdown(cancel_futures=True)


def _start_worker(work, stop):
    global _work
    _work = work
    gc.disable()  # Python's cycle collector takes a tenth of the time while many arrays are created, and finds nothing
    # Ctrl-C reaches every process of a terminal; the main process stops the workers
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_exit_with_parent, args=(stop,), daemon=True).start()


def _exit_with_parent(stop):
    """Exit this worker when its parent sends a message or dies."""
    wait([stop, multiprocessing.parent_process().sentinel])
    os._exit(1)


def _call(task):
    _work(task)
