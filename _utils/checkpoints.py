"""Checkpoint files: plain dictionaries of tensors, numbers and strings, written whole or not at all."""
import importlib.metadata
import os
import pickle
import platform
import zipfile
from pathlib import Path

import torch

from _utils.errors import PlainError, first_line

MILESTONES = (6.25, 12.5, 25., 50., 100.)  # percent of the steps at which pretraining is saved
PRETRAINING_KEYS = {"model", "generator_config", "tokenizer", "config"}


def milestone_steps(steps):
    """{step: percents}: where pretraining is saved; with few steps several percents may fall on one."""
    found = {}
    for percent in MILESTONES:
        found.setdefault(max(1, round(steps * percent / 100)), []).append(percent)
    return found


def checkpoint_path(run_name, percent, folder="checkpoints/pretrain"):
    """Path of a milestone, e.g. checkpoints/pretrain/vanilla_11081_100.0%.pth."""
    return Path(folder) / f"{run_name}_{percent}%.pth"


def save_checkpoint(content, path):
    """Write a dictionary of tensors and plain values under `path`, which never shows a half-written file."""
    write_atomically(path, lambda file: torch.save(content, file))


def save_pretrained(path, model, config, hf_tokenizer, step):
    """Write a pretraining checkpoint: weights of the networks, their configurations, the tokenizer and what made them."""
    save_checkpoint({
        "model": model.state_dict(),
        **{f"{part}_config": network.config.to_dict() for part, network in model.named_children()},
        "tokenizer": hf_tokenizer.backend_tokenizer.to_str(),  # vocabulary and settings, as tokenizers.Tokenizer.from_str reads it
        "config": config.as_data(),
        "step": step,
        "versions": versions(),
    }, path)


def write_atomically(path, write):
    """Let `write` fill a binary file; it appears under `path` only when complete and on the disk."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f"{path.name}.{os.getpid()}.unfinished")  # several processes may write it at once
    try:
        with open(unfinished, "wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(unfinished, path)
    except (OSError, RuntimeError) as error:  # torch.save's own for a disk that is full
        raise PlainError(f"{str(path)!r} could not be written ({first_line(error)}): make room and give the same command again; what "
                         "was saved before is whole.") from error
    finally:
        unfinished.unlink(missing_ok=True)


def find_checkpoint(name, folder="checkpoints/pretrain"):
    """Path of the checkpoint `name`, in `folder` or as it stands. PlainError if there is none."""
    for path in (Path(folder) / name, Path(name)):
        if path.is_file():
            return path
    if Path(name).is_dir():
        raise PlainError(f"{name!r} is a folder: give a checkpoint, a file whose name ends with .pth.")
    there = [path.name for path in sorted(Path(folder).glob("*.pth"), key=os.path.getmtime, reverse=True)]
    more = f" and {len(there) - 8} more" if len(there) > 8 else ""
    way_out = f"there are {', '.join(there[:8])}{more}" if there else "none is there yet"
    command = "python pretrain.py quickstart=True" if name.startswith("quickstart") else "python pretrain.py"
    raise PlainError(f"there is no checkpoint {name!r} in {str(folder)!r} ({way_out}): make it with {command}, or give another.")


def load_pretraining_checkpoint(path):
    """The dictionary of a checkpoint that pretrain.py wrote, as `load_checkpoint`. PlainError for one of another kind."""
    checkpoint = load_checkpoint(path)
    if not isinstance(checkpoint, dict) or not PRETRAINING_KEYS <= set(checkpoint):
        raise PlainError(f"{str(path)!r} is no checkpoint that pretrain.py wrote: take one of those in checkpoints/pretrain/, or make a "
                         "transformers folder of it with python -m _utils.export_hf or python -m _utils.convert_tf.")
    return checkpoint


class _Inert:
    """Takes the place of fastcore's list in the optimizer that electra_pytorch saved beside its weights: read, and never used."""


def load_checkpoint(path):
    """The dictionary of a checkpoint, on the CPU. It is data from strangers: nothing in it is run.

    Raises PlainError for a file that is missing, damaged or holds more than data.
    """
    if not os.path.isfile(path):
        raise PlainError(f"there is no checkpoint {str(path)!r}: see the names in {str(Path(path).parent)!r}, or make one with "
                         "python pretrain.py.")
    try:
        _check_sums(path)
        with torch.serialization.safe_globals([(_Inert, "fastcore.foundation.L")]):
            return torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError:  # whose text speaks to programmers
        raise PlainError(f"the checkpoint {str(path)!r} cannot be read: it is damaged or not one of this project's, or holds more than "
                         "data; use another.") from None
    except (RuntimeError, EOFError, OSError, ValueError, KeyError, zipfile.BadZipFile) as error:
        raise PlainError(f"the checkpoint {str(path)!r} cannot be read ({first_line(error)}): it is damaged or not one of "
                         "this project's; use another.") from error


def _check_sums(path):
    """ValueError if a part of the file is not what was written: torch.load does not compare a zip archive's check sums, zipfile does."""
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            if damaged := archive.testzip():
                raise ValueError(f"the check sum of {damaged} is wrong")


def versions():
    """Versions of what a run depends on, as plain text by name."""
    names = ("torch", "fastai", "transformers", "datasets", "hugdatafast", "tokenizers", "numpy")
    return {"python": platform.python_version(), **{name: importlib.metadata.version(name) for name in names}}
