"""One process, or several that train together: `accelerate launch pretrain.py`, or torchrun."""
import contextlib
import itertools
import os
from datetime import timedelta

import torch
import torch.distributed
from accelerate import PartialState
from accelerate.utils import gather_object

from _utils.errors import UserError


class Processes:
    """This process, number `index` of the `n` that a launcher started; 0 of 1 without a launcher.

    device: of the configuration; 'cpu' for processes on CPUs (gloo), None for one GPU per process (nccl).
    """

    def __init__(self, device=None):
        if int(os.environ.get("WORLD_SIZE", 1)) == 1:
            self.state = PartialState(cpu=True)  # a single process exchanges nothing, so it needs no GPU for that
        else:
            _check_device(device)
            # On CPUs accelerate would prefer MPI to gloo, if PyTorch has it.
            on_cpu = {"cpu": True, "backend": "gloo"} if device == "cpu" else {}
            self.state = PartialState(**on_cpu, timeout=timedelta(minutes=30))  # in training, none waits long
            # For what may take one process days: preparing data, or runs of MNLI that others start from.
            self.patient = torch.distributed.new_group(backend="gloo", timeout=timedelta(days=7))
        self.index, self.n = self.state.process_index, self.state.num_processes
        self.is_main = self.index == 0

    def device(self, chosen):
        """The torch.device of this process; `chosen` is the device of a single process."""
        return self.state.device if self.n > 1 and chosen.type == "cuda" else chosen

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
        """Rows per micro-batch: `size`, or less if otherwise some processes would have none of n_rows."""
        if n_rows < self.n:
            raise UserError(f"Invalid value for bs: {n_rows} examples cannot be divided among {self.n} processes (bs "
                            "is the batch of all processes together). Raise bs, or start fewer processes.")
        return min(size, n_rows // self.n)

    def gather(self, value):
        """The values of all processes, a list."""
        return gather_object([value])

    def own(self, items):
        """This process's share of the micro-batches of a batch, or of the runs to finetune: every n-th."""
        return itertools.islice(items, self.index, None, self.n)

    def sum(self, tensor):
        """Replace a tensor by its sum over all processes."""
        if self.n > 1:
            torch.distributed.all_reduce(tensor)

    def stop_asked(self, asked, step):
        """Whether any process was asked to stop; the same in all of them. asked: whether this one was.

        Several processes exchange it at every tenth step on GPUs, for which the CPU waits then, and at every step on
        CPUs.
        """
        if self.n == 1:
            return asked
        return (step % 10 == 0 or self.state.device.type == "cpu") and any(self.gather(asked))

    def wait(self):
        """Wait until all processes are here."""
        if self.n > 1:
            torch.distributed.barrier(self.patient)

    def close(self):
        """Leave the process group."""
        self.state.destroy_process_group()


def _check_device(device):
    """Raise UserError unless each process of this machine has a GPU, or all are to use the CPU."""
    n_here, n_gpus = int(os.environ.get("LOCAL_WORLD_SIZE", 1)), torch.cuda.device_count()
    if device != "cpu" and n_gpus < n_here:
        raise UserError(f"{n_here} processes were started on a machine with {n_gpus or 'no'} GPUs. Start a process "
                        "per GPU, or set device=cpu.")
