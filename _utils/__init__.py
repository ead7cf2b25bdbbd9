"""Library code used by both notebooks. Import it before torch and fastai."""
import os
import warnings

# GCC's OpenMP threads spin 300,000 times while they wait for each other, which wastes time slices if another process is
# busy. With 1,000, GCC's value if threads outnumber cores, steps are 1.5 times as fast beside a busy process, and .93
# times as fast on an idle machine (benchmarks/results/environment_mini_amd_epyc_avx512_bf16.json).
if "OMP_WAIT_POLICY" not in os.environ:
    os.environ.setdefault("GOMP_SPINCOUNT", "1000")

# fastai 2.8 calls torch.jit.script while it is imported, which newer versions of torch warn about.
warnings.filterwarnings("ignore", message=".*torch.jit.script.*")
