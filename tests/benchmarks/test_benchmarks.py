"""The recorded losses of Google's code against those of pretrain.py, and the checks for a GPU in miniature."""
import os
import subprocess
import sys

import pytest

import pretrain
from _utils.runs import RunFolder
from benchmarks import google_curve


@pytest.mark.slow
def test_steps_101_to_600_of_a_run_have_the_losses_of_googles_code(workplace, shared):
    """Means over 100 steps; 0.1 is three standard deviations over seeds."""
    google, text = google_curve.google_losses(shared / "golden/official/curve"), workplace / "text.txt"
    google_curve.write_text(shared / "data/books/books-0.txt.xz", text)
    c = google_curve.configuration(text, shared / "golden/official/curve/vocab.txt", 1, 600)
    pretrain.pretrain(c)
    found = google_curve.window_means(google_curve.losses(RunFolder(c.base_run_name, c.seed)))
    expected = sum(map(google_curve.window_means, google.values())) / len(google)
    for step in (200, 300, 400, 500, 600):
        assert found[step] == pytest.approx(expected[step], abs=.1)


@pytest.mark.slow
def test_the_checks_for_a_gpu_run_in_miniature_on_a_cpu(tmp_path, repo):
    settings = "device=cpu miniature=True sections=changes,replay,steps minutes=60 results=.".split()
    done = subprocess.run([sys.executable, "-m", "benchmarks.gpu", *settings], cwd=tmp_path, text=True,
                          env=os.environ | {"PYTHONPATH": str(repo)}, capture_output=True)
    assert done.returncode == 0, done.stdout[-3000:]


def test_emulated_products_are_rounded_once_also_backward(tmp_path, repo):
    (tmp_path / "products.py").write_text("""
import torch
from _utils.training.device import has_on_cpu
assert has_on_cpu("bf16") or "emulated_bf16" in torch._C._dispatch_dump("aten::addmm")
torch.manual_seed(0)
layer, x = torch.nn.Linear(64, 32), torch.randn(8, 64)
with torch.autocast("cpu", torch.bfloat16):
    y = layer(x)
y.backward(torch.ones_like(y))
x, weight = (value.bfloat16().double() for value in (x, layer.weight))
torch.testing.assert_close(y, (x @ weight.T + layer.bias.bfloat16()).bfloat16(), rtol=2 ** -7, atol=0)
torch.testing.assert_close(layer.weight.grad, x.sum(0).expand(32, 64).bfloat16().float(), rtol=2 ** -7, atol=0)
""")
    subprocess.run([sys.executable, "-m", "benchmarks.emulated_bf16", tmp_path / "products.py"], cwd=repo, check=True)
