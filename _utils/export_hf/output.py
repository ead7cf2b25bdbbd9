"""Writing a network and its files into a new folder."""
import contextlib
import os
import shutil
import tempfile
from pathlib import Path

from _utils.errors import PlainError
from _utils.networks.build import max_positions


@contextlib.contextmanager
def new_folder(path):
    """A temporary folder that is renamed to `path` at the end of the block, or deleted if the block raises.

    Raises PlainError, before anything is written, if `path` exists and is not an empty folder, or cannot be created.
    """
    path = Path(path).resolve()
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise PlainError(f"{str(path)!r} already exists. Pass a new or an empty folder.")
    parent = next(parent for parent in path.parents if parent.exists())
    try:
        unfinished = Path(tempfile.mkdtemp(prefix=f".{path.name}.", suffix=".unfinished", dir=parent))
    except OSError as error:
        raise PlainError(f"Cannot create {str(path)!r} ({error.strerror}). Pass another folder.") from None
    try:
        yield unfinished
        for written in (*unfinished.rglob("*"), unfinished):
            _set_default_permissions(written)
            _sync(written)
        path.parent.mkdir(parents=True, exist_ok=True)
        os.replace(unfinished, path)
        _sync(path.parent)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def _set_default_permissions(path):
    """The permissions of a newly created file or folder: safetensors and mkdtemp create them readable by the user only."""
    umask = os.umask(0)
    os.umask(umask)
    path.chmod((0o777 if path.is_dir() else 0o666) & ~umask)


def _sync(path):
    """Flush a file or folder to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def save_network(network, hf_tokenizer, folder, card):
    """Write a network as safetensors with its configuration, the tokenizer (or None), and a ModelCard."""
    network.save_pretrained(folder)
    if hf_tokenizer is not None:
        hf_tokenizer.model_max_length = max_positions(network)
        hf_tokenizer.save_pretrained(folder)
    card.save(Path(folder) / "README.md")
