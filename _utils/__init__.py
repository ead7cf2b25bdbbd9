"""What the notebooks skip; each module is named for its content. Import it before torch and fastai."""
import os
import warnings

# GCC's OpenMP lets a thread spin 300,000 times while it waits for the others. Beside another busy process that wastes the time slices
# they need. With 1,000, as GCC has it where threads outnumber cores, steps are 1.3 times as fast there, and .85 times on an idle machine
# (benchmarks/results/threads_mini_default.json).
if "OMP_WAIT_POLICY" not in os.environ:
    os.environ.setdefault("GOMP_SPINCOUNT", "1000")

# fastai 2.8 calls torch.jit.script while it is imported, which newer versions of torch warn about.
warnings.filterwarnings("ignore", message=".*torch.jit.script.*")
