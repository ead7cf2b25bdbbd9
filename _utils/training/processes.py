"""One process, or several that train together: `accelerate launch pretrain.py`, or torchrun."""
import contextlib
import os
from collections import deque
from datetime import timedelta

import torch
import torch.distributed
from accelerate import PartialState
from accelerate.utils import broadcast_object_list

from _utils.errors import PlainError


class Processes:
    """This process, the `index`-th of `n` that a launcher started; 0 of 1 without one.

    device: of the configuration; 'cpu' for processes on CPUs (gloo), None for a GPU each where there are GPUs (nccl).
    """

    def __init__(self, device=None):
        self.state = None
        if int(os.environ.get("WORLD_SIZE", 1)) > 1:
            _check_device(device)
            # As long as the first process may need to prepare data.
            self.state = PartialState(cpu=device == "cpu", timeout=timedelta(days=7))
        self.index, self.n = (self.state.process_index, self.state.num_processes) if self.state else (0, 1)
        self.is_main, self.asked_to_stop, self._stops = self.index == 0, False, deque()

    def device(self, chosen):
        """The torch.device of this process, where `chosen` is that of a single one."""
        return self.state.device if self.state and chosen.type == "cuda" else chosen

    def main_first(self):
        """Within it the first process goes ahead, and the others find what it left."""
        return self.state.main_process_first() if self.state else contextlib.nullcontext()

    def from_first(self, make):
        """What `make()` returns in the first process; the others wait and get a copy."""
        found = [make() if self.is_main else None]
        return broadcast_object_list(found)[0] if self.state else found[0]

    def share(self, size, n_rows):
        """Rows that go through a network at once, lowered from `size` until each process has some of n_rows."""
        if n_rows < self.n:
            raise PlainError(f"bs={n_rows} is the batch of all {self.n} processes together, and too small to be divided: raise it, or "
                             "start fewer.")
        return min(size, n_rows // self.n)

    def smallest(self, number):
        """The smallest of the numbers that the processes have."""
        if self.n == 1:
            return number
        least = torch.tensor(number, device=self.state.device)
        torch.distributed.all_reduce(least, torch.distributed.ReduceOp.MIN)
        return int(least)

    def add_up(self, tensors):
        """Put the sum over all processes into each tensor, in one message; all of one type."""
        if self.n > 1:
            flat = torch.cat([tensor.flatten() for tensor in tensors])
            torch.distributed.all_reduce(flat)
            torch._foreach_copy_(tensors, [part.view_as(tensor) for part, tensor in zip(flat.split([t.numel() for t in tensors]), tensors)])

    def add_up_gradients(self, gradients):
        """The same, and with it how many processes are `asked_to_stop`."""
        if self.n > 1:
            stops = gradients[0].new_full((), float(self.asked_to_stop))
            self.add_up([*gradients, stops])
            self._stops.append(_sent_to_host(stops))

    def stop_asked(self, asked):
        """Whether the run is asked to stop: of several processes any of them, and all find the same at the same step.

        On GPUs that is known from the gradients of the step before: its work is done or nearly so, and the step that was launched last
        keeps the GPU busy meanwhile.
        """
        if self.n == 1:
            return asked
        if len(self._stops) <= self.stop_lag:
            return False
        stops, wait = self._stops.popleft()
        wait()
        return bool(stops > 0)

    @property
    def stop_lag(self):
        """Steps between a request to stop and its reading."""
        return 1 if self.state and self.state.device.type == "cuda" else 0

    def check_alike(self, number, says):
        """PlainError with these words if the processes do not all have the same number."""
        total = torch.tensor([float(number)], dtype=torch.float64, device=self.state.device if self.state else "cpu")
        self.add_up([total])
        if float(total) != number * self.n:
            raise PlainError(says)

    def wait(self):
        """Until all processes are here."""
        if self.state:
            self.state.wait_for_everyone()

    def close(self):
        """Leave the group in good order."""
        if self.state:
            self.state.destroy_process_group()


def _sent_to_host(number):
    """(a copy of a tensor () in the host's memory, a function that waits until it has arrived)."""
    if number.device.type == "cpu":
        return number, lambda: None
    copy = torch.empty((), dtype=number.dtype, pin_memory=True).copy_(number, non_blocking=True)
    arrived = torch.cuda.Event()
    arrived.record()
    return copy, arrived.synchronize


def _check_device(device):
    """PlainError for a device that several processes would have to share."""
    if device not in (None, "cpu"):
        raise PlainError(f"device={device!r} is one for all processes: leave it out, so that each takes a GPU of its own, or say "
                         "device=cpu.")
    n_here, n_gpus = int(os.environ.get("LOCAL_WORLD_SIZE", 1)), torch.cuda.device_count()
    if device is None and 0 < n_gpus < n_here:
        raise PlainError(f"{n_here} processes were started on a machine with {n_gpus} GPUs: start as many, or say device=cpu.")
