"""Checkpoint files: plain dictionaries of tensors, numbers and strings, written whole or not at all."""
import errno
import glob
import importlib.metadata
import os
import pickle
import platform
import re
import shutil
import zipfile
import zlib
from pathlib import Path

import psutil
import torch

from _utils.errors import PlainError, first_line

MILESTONES = (6.25, 12.5, 25., 50., 100.)  # percent of the steps at which pretraining is saved
PRETRAINING_KEYS = {"model": dict, "generator_config": dict, "tokenizer": str, "config": dict}


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
    unfinished = unfinished_name(path)
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


def unfinished_name(path):
    """Where a process writes a file or folder until it is complete: several may do so at once.

    What processes that were killed left of it is removed.
    """
    host = re.sub(r"\W", "_", platform.node())  # of other machines' processes nothing is known here
    for left in path.parent.glob(f"{glob.escape(path.name)}.{host}-*.unfinished"):
        pid = int(left.name.split("-")[-1].removesuffix(".unfinished"))
        if pid == os.getpid() or not psutil.pid_exists(pid):
            shutil.rmtree(left, ignore_errors=True) if left.is_dir() else left.unlink(missing_ok=True)
    return path.with_name(f"{path.name}.{host}-{os.getpid()}.unfinished")


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
    if not has_keys(checkpoint, PRETRAINING_KEYS):
        raise PlainError(f"{str(path)!r} is no checkpoint that pretrain.py wrote: take one of those in checkpoints/pretrain/, or make a "
                         "transformers folder of it with python -m _utils.export_hf or python -m _utils.convert_tf.")
    return checkpoint


def has_keys(content, kinds):
    """Whether this is a dictionary with these keys, {key: type of its value}."""
    return isinstance(content, dict) and all(isinstance(content.get(key), kind) for key, kind in kinds.items())


class _Inert:
    """Takes the place of fastcore's list in the optimizer that electra_pytorch saved beside its weights: read, and never used."""


class DamagedCheckpoint(PlainError):
    """A file whose bytes are not those that were written."""


def load_checkpoint(path):
    """The dictionary of a checkpoint, on the CPU. It is data from strangers: nothing in it is run.

    Raises PlainError for a file that is missing, damaged or holds more than data.
    """
    if not os.path.isfile(path):
        raise PlainError(f"there is no checkpoint {str(path)!r}: see the names in {str(Path(path).parent)!r}, or make one with "
                         "python pretrain.py.")
    try:
        if zipfile.is_zipfile(path):  # older ones of electra_pytorch are not
            check_sums(path)
        with torch.serialization.safe_globals([(_Inert, "fastcore.foundation.L")]):
            return torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError:  # whose text speaks to programmers
        raise PlainError(f"the checkpoint {str(path)!r} cannot be read: it is damaged or not one of this project's, or holds more than "
                         "data; use another.") from None
    except (RuntimeError, EOFError, OSError, ValueError, KeyError) as error:
        raise PlainError(f"the checkpoint {str(path)!r} cannot be read ({first_line(error)}): it is damaged or not one of "
                         "this project's; use another.") from error


def check_sums(path):
    """Compare the checksums in a checkpoint, a zip file, with its content, which torch.load does not do.

    Raises DamagedCheckpoint for changed bytes, and OSError for a file that cannot be read.
    """
    with open(path, "rb") as file:
        file.seek(max(0, os.path.getsize(path) - (1 << 17)))
        file.read()  # the archive's directory; zipfile hides an OSError in reading it
        try:
            with zipfile.ZipFile(file) as archive:
                damaged = archive.testzip()
        except (zipfile.BadZipFile, zlib.error, EOFError, ValueError, NotImplementedError, RuntimeError) as error:
            damaged = first_line(error)
        except OSError as error:
            if error.errno != errno.EINVAL:  # a damaged directory may point before the beginning of the file
                raise
            damaged = first_line(error)
    if damaged:
        raise DamagedCheckpoint(f"the checkpoint {str(path)!r} is damaged ({damaged} is not what was written), so it cannot be read: use "
                                "another, or copy it again.")


def check_writable(*folders):
    """PlainError if something cannot be written into a folder, which need not be there yet."""
    for folder in map(Path, folders):
        there = next(path for path in (folder, *folder.absolute().parents) if path.exists())
        if not there.is_dir():
            raise PlainError(f"the results belong into the folder {str(folder)!r}, and {str(there)!r} is a file: move it away.")
        if not os.access(there, os.W_OK | os.X_OK):
            raise PlainError(f"the results belong into the folder {str(folder)!r}, and nothing can be written there: start in another "
                             "folder.")


def versions():
    """Versions of what a run depends on, as plain text by name."""
    names = ("torch", "fastai", "transformers", "datasets", "hugdatafast", "tokenizers", "numpy")
    return {"python": platform.python_version(), **{name: importlib.metadata.version(name) for name in names}}
