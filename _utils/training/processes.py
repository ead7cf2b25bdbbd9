"""One process, or several that train together: `torchrun --nproc_per_node 4 pretrain.py`."""
import atexit
import contextlib
import itertools
import os
import sys
from datetime import timedelta
from functools import cache

import torch
import torch.distributed

from _utils.errors import UserError, n_processes


class Processes:
    """This process, number `index` of the `n` that a launcher started; 0 of 1 without a launcher.

    device: of the configuration; 'cpu' for processes on CPUs, None for one GPU per process.
    """

    def __init__(self, device=None):
        self.n = n_processes()
        self.index = int(os.environ["RANK"]) if self.n > 1 else 0
        self.is_main = self.index == 0
        if self.n > 1:
            if device != "cpu":
                _check_gpus()
                torch.cuda.set_device(self.device(torch.device("cuda")))
            self.patient = _join()
        atexit.unregister(_leave)  # after an error in a run, it could wait for processes that are stuck

    def device(self, chosen):
        """The torch.device of this process; `chosen` is the device of a single process."""
        return torch.device("cuda", int(os.environ["LOCAL_RANK"])) if self.n > 1 and chosen.type == "cuda" else chosen

    @contextlib.contextmanager
    def main_first(self):
        """Context that the main process runs first, and the others after it."""
        if not self.is_main:
            self.wait()
        yield
        if self.is_main:
            self.wait()

    def broadcast(self, make):
        """The result of `make()`, called in the main process and copied to the others."""
        made = [make() if self.is_main else None]
        if self.n > 1:
            torch.distributed.broadcast_object_list(made, group=self.patient)
        return made[0]

    def share(self, size, n_rows):
        """Return the rows per micro-batch: at most `size`, and so few that each process gets some of n_rows.

        There are as few passes as possible.
        """
        if n_rows < self.n:
            raise UserError(f"Invalid value for bs: {n_rows} examples cannot be divided among {self.n} processes (bs "
                            "is the batch of all processes together). Raise bs, or start fewer processes.")
        of_each = -(-n_rows // self.n)
        if of_each * (self.n - 1) >= n_rows:  # the last process would have none
            of_each = n_rows // self.n
        return min(size, of_each)

    def gather(self, value):
        """The values of all processes, a list."""
        values = [value] * self.n
        if self.n > 1:
            torch.distributed.all_gather_object(values, value)
        return values

    def any(self, flags):
        """For each of some flags whether it is set in any process."""
        return [any(of_all) for of_all in zip(*self.gather(flags))]

    def own(self, items):
        """This process's share of the micro-batches of a batch, or of the runs to finetune: every n-th."""
        return itertools.islice(items, self.index, None, self.n)

    def sum(self, tensor):
        """Replace a tensor by its sum over all processes."""
        if self.n > 1:
            torch.distributed.all_reduce(tensor)

    def wait(self):
        """Wait until all processes are here."""
        if self.n > 1:
            torch.distributed.barrier(self.patient)

    def close(self):
        """Leave the process group when the program ends: until then, another run may use it."""
        if self.n > 1:
            atexit.unregister(_leave)  # of an earlier run
            atexit.register(_leave)


class RunProcesses(Processes):
    """Processes that finetune different runs. They exchange no tensors, so several of them may share a GPU.

    device: of the configuration; None spreads the processes evenly over the GPUs of their machine.
    """

    def __init__(self, device=None):
        super().__init__("cpu")  # over gloo: NCCL refuses processes that share a GPU
        if self.n > 1 and device is None and torch.cuda.is_available():
            torch.cuda.set_device(int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count())

    def report(self, line):
        """Print a line of any process, although only the first one of a machine prints otherwise."""
        is_silent = getattr(sys.stdout, "name", None) == os.devnull
        # One write for text and newline, so that the lines of several processes do not mix.
        print(f"{line}\n", end="", file=sys.__stdout__ if is_silent else sys.stdout, flush=True)


@cache
def _join():
    """Join the processes that a launcher started, once in a program.

    Returns a group with a timeout of days, for what one process may do alone: preparing data, or runs of MNLI that
    others start from.
    """
    # Runs on GPUs and on CPUs may follow each other. Processes that share a GPU exchange no tensors on it.
    has_nccl = torch.cuda.is_available() and torch.distributed.is_nccl_available()
    backend = "cpu:gloo,cuda:nccl" if has_nccl else "gloo"
    torch.distributed.init_process_group(backend, timeout=timedelta(minutes=30))  # in training, none waits long
    return torch.distributed.new_group(backend="gloo", timeout=timedelta(days=7))


def _leave():
    torch.distributed.destroy_process_group()


def _check_gpus():
    """Raise UserError unless each process of this machine has a GPU."""
    n_here, n_gpus = int(os.environ.get("LOCAL_WORLD_SIZE", 1)), torch.cuda.device_count()
    if n_gpus < n_here:
        raise UserError(f"{n_here} processes were started on a machine with {n_gpus or 'no'} GPUs. Start a process "
                        "per GPU, or set device=cpu.")
