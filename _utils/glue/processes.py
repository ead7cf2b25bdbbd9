"""Several processes that share the finetuning runs: `accelerate launch finetune.py`, or torchrun."""
import os
import sys

import torch

from _utils.training.processes import Processes


class RunProcesses(Processes):
    """Processes that finetune different runs. They exchange no tensors, so several of them may share a GPU.

    device: of the configuration; None spreads the processes evenly over the GPUs of their machine.
    """

    def __init__(self, device=None):
        super().__init__("cpu")  # over gloo: NCCL refuses processes that share a GPU
        self.configured = device

    def device(self, chosen):
        """The torch.device of this process; `chosen` is the device of a single process."""
        if self.n == 1 or chosen.type == "cpu" or self.configured is not None:
            return chosen
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count())
        torch.cuda.set_device(device)  # pinned memory is allocated through the current GPU
        return device

    def report(self, line):
        """Print a line of any process, although only the first one of a machine prints otherwise."""
        # One write for text and newline, so that the lines of several processes do not mix.
        print(f"{line}\n", end="", file=sys.stdout if self.is_main else sys.__stdout__, flush=True)
