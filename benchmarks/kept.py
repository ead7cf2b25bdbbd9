"""What a rented machine must give back before it is taken away, in files small enough for a transfer.

    python -m benchmarks.kept FOLDER

joins the files that came back: the newest complete weights to FOLDER/weights_<step>.pth, a checkpoint, and the compiled
step to datasets/compiled/, where the next run with compile=True finds it.

The files of FOLDER: config.json, metrics.jsonl, weights_<step>.pth.<piece>of<pieces> and
compiled_<number of files>.tar.gz.<piece>of<pieces>. A new version is complete before the earlier one is deleted, so a
complete one exists whenever the machine is taken away.
"""
import io
import os
import re
import sys
import tarfile
import time
from pathlib import Path

import torch
from fastai.callback.core import Callback

from _utils.errors import UserError, print_user_errors
from _utils.files import write_atomically
from _utils.runs.checkpoints import load_checkpoint, pretraining_checkpoint
from _utils.training.callbacks import ResumeCheckpoint
from _utils.training.cuda_graph import COMPILED

PIECE = 15_000_000  # bytes


class Keep(Callback):
    """Keeps the metrics, the weights in half precision and the compiled step of a PretrainingRun in a folder.

    It does so every `minutes`, and at the end.
    """
    order = ResumeCheckpoint.order + 1

    def __init__(self, run, folder, minutes):
        self.run, self.folder, self.seconds = run, Path(folder), 60 * minutes
        self.folder.mkdir(parents=True, exist_ok=True)

    def before_fit(self):
        self.written = time.monotonic()

    def after_batch(self):
        if time.monotonic() - self.written >= self.seconds:
            self.write()

    def after_fit(self):
        self.write()

    def write(self):
        """Replace what is kept by the present state of the run."""
        for name in ("config.json", "metrics.jsonl"):
            if (written := self.run.run_folder.folder / name).exists():
                write_atomically(self.folder / name, lambda file, written=written: file.write(written.read_bytes()))
        step, run = self.learn.train_iter, self.run
        checkpoint = pretraining_checkpoint(self.learn.model, run.c, run.hf_tokenizer, step)
        write_pieces(self.folder, "weights", step, ".pth", bytes_in_half_precision(checkpoint))
        compiled = sorted(path for path in Path(COMPILED).rglob("*") if path.is_file()) if run.c.compile else []
        if compiled and not list(self.folder.glob(f"compiled_{len(compiled)}.*")):
            write_pieces(self.folder, "compiled", len(compiled), ".tar.gz", archive(compiled))
        self.written = time.monotonic()


def bytes_in_half_precision(checkpoint):
    """The file of a pretraining checkpoint with its weights in float16.

    Shared weights stay shared, and are stored once.
    """
    halves, file = {}, io.BytesIO()
    for name, value in checkpoint["model"].items():
        if value.is_floating_point():
            checkpoint["model"][name] = halves.setdefault(value.data_ptr(), value.half().cpu())
    torch.save(checkpoint, file)
    return file.getvalue()


def archive(paths):
    """The bytes of a .tar.gz of files."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w:gz", compresslevel=3) as tar:
        for path in paths:
            tar.add(path)
    return file.getvalue()


def write_pieces(folder, name, version, suffix, data):
    """Write bytes as <name>_<version><suffix>.<piece>of<pieces>, then delete other versions.

    Pieces have at most PIECE bytes.
    """
    starts = range(0, len(data), PIECE)
    paths = [folder / f"{name}_{version}{suffix}.{i:02}of{len(starts):02}" for i in range(1, len(starts) + 1)]
    for path, start in zip(paths, starts):
        write_atomically(path, lambda file, start=start: file.write(data[start:start + PIECE]))
    for other in set(folder.glob(f"{name}_*{suffix}.*of*")) - set(paths):
        other.unlink()


def newest(folder, name):
    """(version, bytes) of the newest version in a folder of which all pieces exist, or None."""
    pieces = {}
    for path in Path(folder).glob(f"{name}_*of*"):
        if found := re.fullmatch(rf"{name}_(\d+)\.[a-z.]+\.(\d+)of(\d+)", path.name):
            version, piece, n = map(int, found.groups())
            pieces.setdefault((version, n), {})[piece] = path
    complete = [key for key, paths in pieces.items() if len(paths) == key[1]]
    if not complete:
        return None
    paths = pieces[max(complete)]
    return max(complete)[0], b"".join(paths[i].read_bytes() for i in sorted(paths))


def join(folder):
    """Write what a machine gave back to files that later commands read. Returns the path of the weights.

    Raises UserError if the folder has no complete weights, or if they are damaged.
    """
    weights, compiled = newest(folder, "weights"), newest(folder, "compiled")
    if compiled:
        with tarfile.open(fileobj=io.BytesIO(compiled[1])) as tar:
            tar.extractall(filter="data")
        print(f"Compiled step: {COMPILED}, {compiled[0]} files")
    if not weights:
        raise UserError(f"No complete weights in {str(folder)!r}. Pass the folder with all pieces of "
                        "weights_<step>.pth.")
    step, data = weights
    path = Path(folder, f"weights_{step}.pth")
    write_atomically(path, lambda file: file.write(data))
    print(f"Weights after step {step:,} of {load_checkpoint(path)['config']['steps']:,}: {path}")
    return path


if __name__ == "__main__":
    print_user_errors()
    if len(sys.argv) != 2 or not os.path.isdir(sys.argv[1]):
        raise UserError("Pass the folder with the files that came back: python -m benchmarks.kept FOLDER")
    join(sys.argv[1])
