"""Record again what Google's code computes, and compare it with the stored values:

    python tests/golden/record/compare.py ELECTRA [NAME ...]

ELECTRA: a checkout of google-research/electra.   NAME: of recorders, such as step; by default all.
Prints for each file how many values agree, the largest difference, and what is stored but not recorded: inputs, and
remarks. Exits with 1 if a value differs.
"""
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

FOLDER = Path(__file__).resolve().parent
RECORDERS = ["masking", "sampling", "examples", "step", "variants", "variables", "optimizer", "layer_rates", "chunking",
             "questions", "finetuning_numbers", "finetuning_steps"]
RELATIVE, ABSOLUTE = 2e-5, 2e-6  # the latter of the largest value of an array or list, at most of 10
LOOSER = {"finetuning_steps.json": 10}  # factor of the tolerance: rounding grows over the steps
NOISE = 1e-5  # the gradients of key biases are 0 but for rounding
ERRORS = 4.5  # a value from a random draw may differ by this many standard errors


def is_drawn(value):
    return isinstance(value, dict) and set(value) == {"drawn", "error"}


def is_array(value):
    """Whether a value of a file is compared as an array of numbers."""
    if isinstance(value, list):
        return bool(value) and all(map(is_array, value)) and np.asarray(value).dtype != object
    return isinstance(value, (int, float, np.ndarray)) and not isinstance(value, bool)


class Comparison:
    """What the comparison of a file has found: numbers that agree, the largest difference relative to its tolerance,
    paths of values that differ, and of stored values that were not recorded.
    """

    def __init__(self, factor):
        self.factor = factor  # of the tolerance
        self.n, self.worst, self.different, self.unrecorded = 0, 0., [], []

    def compare(self, old, new, path=""):
        """Compare a stored value with a recorded one. path: its keys."""
        if is_drawn(new):
            self.numbers(np.asarray(old), np.asarray(new["drawn"]), ERRORS * new["error"], path)
        elif is_array(new) and is_array(old):
            old, new = (np.asarray(value, "float64") for value in (old, new))
            largest = min(10., np.abs(new).max()) if new.size else 0.
            noise = NOISE if "key/bias" in path or "key|bias" in path else 0.
            tolerance = RELATIVE * np.abs(new) + ABSOLUTE * largest + noise
            self.numbers(old, new, self.factor * tolerance, path)
        elif isinstance(new, dict):
            self.unrecorded += [f"{path}/{key}" for key in old if key not in new]
            for key in new:
                if key in old:
                    self.compare(old[key], new[key], f"{path}/{key}")
                else:
                    self.different.append(f"{path}/{key} (not stored)")
        elif isinstance(new, list):
            if len(old) != len(new):
                self.different.append(path)
            for i, (of_old, of_new) in enumerate(zip(old, new)):
                self.compare(of_old, of_new, f"{path}/{i}")
        else:
            self.n += 1
            if old != new:
                self.different.append(path)

    def numbers(self, old, new, tolerance, path):
        self.n += old.size
        if old.shape != new.shape:
            self.different.append(path)
            return
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = np.where(old == new, 0., np.abs(old - new) / tolerance)
        worst = ratio.max() if ratio.size else 0.
        self.worst = max(self.worst, worst)
        if not worst <= 1:
            self.different.append(f"{path} ({worst:.3g} times the tolerance)")


def load(path):
    if path.suffix == ".json":
        return json.loads(path.read_text(encoding="utf-8"))
    return dict(np.load(str(path)))


def summarized(paths):
    """Paths of values, of which those with the same first part are counted together."""
    first = {}
    for path in paths:
        first.setdefault(re.split("[/|]", path.strip("/"))[0], []).append(path)
    return ", ".join(name if len(of_name) == 1 else f"{name} ({len(of_name)})"
                     for name, of_name in first.items())


def run(electra, name, out):
    """Run a recorder as a program of its own, because TensorFlow's graph and Google's modules are global."""
    environment = dict(os.environ, PYTHONPATH=str(Path(electra).resolve()), PYTHONWARNINGS="ignore",
                       CUDA_VISIBLE_DEVICES="", OMP_NUM_THREADS="1", TF_CPP_MIN_LOG_LEVEL="3")
    subprocess.run([sys.executable, str(FOLDER / f"{name}.py"), str(out)], env=environment, check=True,
                   stdout=subprocess.DEVNULL)


def main(electra, *names):
    n_different = 0
    for name in names or RECORDERS:
        began, out = time.time(), Path(tempfile.mkdtemp())
        run(electra, name, out)
        print(f"{name} ({time.time() - began:.0f} s)")
        for path in sorted(filter(Path.is_file, out.rglob("*"))):
            file = path.relative_to(out)
            comparison = Comparison(LOOSER.get(str(file), 1))
            comparison.compare(load(FOLDER.parent / "official" / file), load(path))
            n_different += len(comparison.different)
            print(f"    {file}: {comparison.n:,} values, differences at most {comparison.worst:.2g} of the tolerance")
            for path in comparison.different:
                print(f"        DIFFERENT: {path}")
            if comparison.unrecorded:
                print(f"        inputs and remarks: {summarized(comparison.unrecorded)}")
    print("{} different".format(n_different or "nothing is"))
    return n_different > 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
