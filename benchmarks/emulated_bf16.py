"""Runs a program in bf16 on a CPU without bf16 arithmetic: python -m benchmarks.emulated_bf16 PROGRAM ...

For a product of 1,024 x 256 and 256 x 1,024, PyTorch's own emulation took 60 times as long as fp32 (AMD EPYC, AVX2).
Here the products and their sums are computed in fp32 and rounded to bf16 once, as AMX and AVX-512 do. Because of the
order of the sums, 1 of 10,000 outputs of that product differs by a rounding. It serves runs whose precision was fixed
before, not measurements of speed.
"""
import runpy
import sys
from pathlib import Path

import torch

from _utils.training import device

library = torch.library.Library("aten", "IMPL")


def emulate(name):
    """Replace the CPU kernel of a matrix product of ATen for inputs in bf16."""
    native = torch.library.get_kernel(f"aten::{name}", "CPU")

    def product(keys, *args, **kwargs):
        if not any(map(is_bf16, args)):
            return native.call_boxed(keys, *args, **kwargs)
        return native.call_boxed(keys, *(x.float() if is_bf16(x) else x for x in args), **kwargs).bfloat16()

    library.impl(name, product, "CPU", with_keyset=True)


def is_bf16(x):
    return isinstance(x, torch.Tensor) and x.dtype == torch.bfloat16


if __name__ == "__main__":
    if not device.has_on_cpu("bf16"):
        device.warn_of_emulation = lambda precision: None  # which is about PyTorch's
        for name in ["mm", "addmm", "bmm", "baddbmm"]:
            emulate(name)
    sys.argv = sys.argv[1:]
    sys.path.insert(0, str(Path(sys.argv[0]).resolve().parent))
    runpy.run_path(sys.argv[0], run_name="__main__")
