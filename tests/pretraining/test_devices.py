"""The default device and precision, memory that is kept, and warnings about hardware that is slow or cannot be used."""
import os
import platform
import resource
import subprocess
import sys
from contextlib import nullcontext
from functools import partial
from pathlib import Path

import pytest
import torch
from torch._inductor.runtime.cache_dir_utils import cache_dir

from _utils.errors import PlainError
from _utils.training.cuda_graph import check_compiler, keep_compiled
from _utils.training.device import choose_device, choose_precision, hint_at_bf16, warn_of_emulation

GPU, CPU = torch.device("cuda"), torch.device("cpu")


def use_gpus(monkeypatch, capability, built_for):
    """Two GPUs of this compute capability, and a PyTorch with kernels for other ones or the same."""
    for name, value in (("device_count", 2), ("get_device_capability", capability), ("get_arch_list", built_for.split())):
        monkeypatch.setattr(torch.cuda, name, lambda *_, value=value: value)


@pytest.mark.parametrize("capability, default", [((8, 0), "bf16"), ((7, 5), "fp16")])
def test_default_precision_is_the_fastest_that_the_gpu_supports(monkeypatch, capability, default):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    assert choose_precision(None, GPU) == default and choose_precision("fp32", GPU) == "fp32"


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
@pytest.mark.parametrize("is_supported", [True, False])
def test_default_precision_on_a_cpu_is_fp32_and_an_emulated_one_causes_a_warning(monkeypatch, capsys, precision, is_supported):
    warn_of_emulation.cache_clear()
    monkeypatch.setattr(torch.ops.mkldnn, f"_is_mkldnn_{precision}_supported", lambda: is_supported)
    assert choose_precision(None, CPU) == "fp32" and not capsys.readouterr().err
    assert choose_precision(precision, CPU) == precision
    assert (f"no {precision} arithmetic" in capsys.readouterr().err) != is_supported
    warn_of_emulation.cache_clear()
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: False)  # a build without oneDNN may lack the query
    choose_precision(precision, CPU)
    assert f"no {precision} arithmetic" in capsys.readouterr().err


@pytest.mark.parametrize("seconds, is_hinted", [((0., 2., 10., 11.), True), ((0., 1., 10., 11.), False)])
def test_bf16_is_recommended_where_it_is_measured_to_be_faster(monkeypatch, capsys, seconds, is_hinted):
    monkeypatch.setattr("_utils.training.device.has_on_cpu", lambda precision: True)
    monkeypatch.setattr("_utils.training.device.time.perf_counter", partial(next, iter(seconds)))
    monkeypatch.setattr(torch, "mm", lambda a, b: a)  # takes seconds on a CPU without bf16
    hint_at_bf16()
    assert ("2.0 times as fast in bf16" in capsys.readouterr().out) == is_hinted


def test_a_gpu_has_an_index_and_a_missing_one_is_reported_by_name(monkeypatch):
    """torch.cuda.set_device refuses a device without an index."""
    use_gpus(monkeypatch, (9, 0), "sm_90")
    assert [choose_device(name).index for name in ("cuda", "cuda:1")] == [0, 1]
    for name in ("cuda:99", "gpu"):
        with pytest.raises(PlainError, match=f"Device not found: '{name}'"):
            choose_device(name)


@pytest.mark.parametrize("capability, built_for, runs", [
    ((8, 9), "sm_75 sm_86 sm_90", True), ((8, 0), "sm_75 sm_86 sm_90", False), ((12, 0), "sm_90 compute_90", True),
    ((10, 3), "sm_90 sm_100a", True), ((7, 0), "sm_75 compute_75", False), ((9, 4), "gfx942", True)])
def test_a_gpu_for_which_pytorch_has_no_kernels_is_reported(monkeypatch, capability, built_for, runs):
    use_gpus(monkeypatch, capability, built_for)
    with nullcontext() if runs else pytest.raises(PlainError, match=rf"no kernels for cuda:1.*{capability[0]}\.{capability[1]}.*sm_75"):
        choose_device("cuda:1")


def test_a_missing_compiler_is_reported(monkeypatch):
    for variable in ("CC", "CXX"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("PATH", "")
    with pytest.raises(PlainError, match="compile=True needs a C.. compiler"):
        check_compiler()
    monkeypatch.setenv("CC", "tcc")
    check_compiler()


@pytest.mark.parametrize("of_user", [None, "elsewhere"])
def test_compiled_steps_are_kept_beside_the_prepared_data_or_where_the_user_wants(monkeypatch, tmp_path, of_user):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR", raising=False)
    default = cache_dir()  # PyTorch sets the variable itself
    if of_user:
        monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", of_user)
    keep_compiled("datasets/compiled")
    assert cache_dir() == str(Path(of_user or "datasets/compiled").absolute()) != default



@pytest.mark.slow
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="needs glibc")
def test_freed_memory_is_kept_for_the_next_step_unless_the_user_has_set_malloc_up(repo):
    """In a new interpreter, because a used one may have no room to grow."""
    code = """if True:
        import os, resource
        from _utils.training.device import keep_freed_memory
        import torch
        for settings in ({"MALLOC_TRIM_THRESHOLD_": "0"}, {}):
            os.environ.pop("MALLOC_TRIM_THRESHOLD_", None)
            os.environ.update(settings)
            keep_freed_memory()
            for _ in range(4):
                before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
                torch.ones(64 << 20, dtype=torch.uint8)
            print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)"""
    env = {key: value for key, value in os.environ.items() if not key.startswith("MALLOC_")}
    done = subprocess.run([sys.executable, "-c", code], cwd=repo, env=env, capture_output=True, text=True, timeout=120)
    pages = (64 << 20) // resource.getpagesize()
    left, kept = map(int, done.stdout.split())
    assert kept < pages / 10 < left, done
