"""Checkpoint files: plain dictionaries of tensors, numbers and strings, written atomically."""
import errno
import glob
import importlib.metadata
import os
import platform
import re
import shutil
import zipfile
from pathlib import Path

import psutil
import torch

from _utils.errors import UserError, as_user_error, one_line

_PRETRAINING_KEYS = {"model": dict, "tokenizer": str, "config": dict}


def milestone_steps(steps, percents, stop_at):
    """{step: percents} at which pretraining is evaluated and saved: shares of the steps, the last step, and `stop_at`.

    In a short run, several percents may fall on one step.
    """
    step_of = {percent: max(1, round(steps * percent / 100)) for percent in {*percents, 100.}}
    if stop_at:
        step_of[round(100 * stop_at / steps, 6)] = stop_at
    return {step: [percent for percent in sorted(step_of) if step_of[percent] == step] for step in step_of.values()}


def save_checkpoint(content, path):
    """Write a dictionary of tensors and plain values atomically."""
    write_atomically(path, lambda file: torch.save(content, file))


def save_pretrained(path, model, config, hf_tokenizer, step):
    """Write a pretraining checkpoint: weights, configurations of the networks, tokenizer, configuration of the run,
    versions.
    """
    networks = saved_networks(model)
    save_checkpoint(
        {
            "model": {
                f"{part}.{name}": value
                for part, network in networks.items()
                for name, value in network.state_dict().items()
            },
            **{f"{part}_config": network.config.to_dict() for part, network in networks.items()},
            **tokenizer_record(hf_tokenizer),
            "config": config.as_data(),
            "step": step,
            "versions": versions(),
        },
        path,
    )


def saved_networks(model):
    """{'generator': network, 'discriminator': network}, or one of them: the networks of a model, by their part of a
    checkpoint.

    They are its children, unless it has a method `saved_networks`.
    """
    if hasattr(model, "saved_networks"):
        return model.saved_networks()
    return {part: network for part, network in model.named_children() if hasattr(network, "config")}


def tokenizer_record(hf_tokenizer):
    """The entries of a checkpoint from which `_utils.text.tokenizer_of` builds its tokenizer."""
    special_tokens = {**hf_tokenizer.special_tokens_map, "extra_special_tokens": hf_tokenizer.extra_special_tokens}
    return {"tokenizer": hf_tokenizer.backend_tokenizer.to_str(), "special_tokens": special_tokens}


def write_atomically(path, write):
    """Call `write` with a binary file, which appears under `path` only when it is complete and synced to disk."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = unfinished_name(path)
    try:
        with as_user_error(f"Could not write {str(path)!r} ({{error}}). Free some disk space and rerun the same "
                           f"command; files saved "
                            # torch.save raises RuntimeError when the disk is full
                           "earlier are intact.", (OSError, RuntimeError)):
            with open(unfinished, "wb") as file:
                write(file)
                file.flush()
                os.fsync(file.fileno())
            os.replace(unfinished, path)
    finally:
        unfinished.unlink(missing_ok=True)


def write_text_atomically(path, text):
    """`write_atomically` with the text of a UTF-8 file."""
    write_atomically(path, lambda file: file.write(text.encode()))


def unfinished_name(path):
    """The name under which this process writes a file or folder until it is complete. Removes leftovers of killed
    processes.
    """
    host = re.sub(r"\W", "_", platform.node())  # in the name, because process ids of other machines cannot be checked
    for left in path.parent.glob(f"{glob.escape(path.name)}.{host}-*.unfinished"):
        pid = int(left.name.split("-")[-1].removesuffix(".unfinished"))
        if pid == os.getpid() or not psutil.pid_exists(pid):
            shutil.rmtree(left, ignore_errors=True) if left.is_dir() else left.unlink(missing_ok=True)
    return path.with_name(f"{path.name}.{host}-{os.getpid()}.unfinished")


def find_checkpoint(name, folder="checkpoints/pretrain"):
    """Path of a checkpoint given by its name in `folder` or by its path. Raises UserError if it does not exist."""
    for path in (Path(folder) / name, Path(name)):
        if path.is_file():
            return path
    if Path(name).is_dir():
        raise UserError(f"Expected a checkpoint (.pth), but {name!r} is a folder.")
    newest = [path.name for path in sorted(Path(folder).glob("*.pth"), key=os.path.getmtime, reverse=True)[:8]]
    raise UserError(f"Checkpoint not found: '{name}' in {str(folder)!r} (newest there: "
                    f"{', '.join(newest) or 'none'}). Choose another, or create it with python pretrain.py or "
                    "finetune.py (quickstart=True for those of the quickstart).")


def load_pretraining_checkpoint(path):
    """Load a checkpoint of pretrain.py, as `load_checkpoint`. Raises UserError for any other kind."""
    checkpoint = load_checkpoint(path)
    if not is_pretrained(checkpoint):
        raise UserError(f"{str(path)!r} is not a checkpoint of pretrain.py (a finetuned one has lost the heads of the "
                        "pretraining). Choose one from checkpoints/pretrain/, or convert it to a transformers folder "
                        "with python -m _utils export_hf or python -m _utils convert_tf.")
    return checkpoint | {"config": with_newer_keys(checkpoint["config"])}


def with_newer_keys(config):
    """The configuration in a checkpoint of pretrain.py, with the values of keys that are newer than it."""
    documents = "file" if config.get("one_document_per_file") else "blank_line"
    known = {key: value for key, value in config.items() if key != "one_document_per_file"}
    return {"documents": documents, "long_lines": "truncate", **known}


def objective_name(run, parts):
    """The name of the objective of a run, for which _utils/objectives/kinds.py has the Objective.

    run: configuration of pretrain.py, or Google's hparams; that of electra_pytorch has no objective.
    parts: networks in its checkpoints.
    """
    if run.get("uniform_generator"):
        return "uniform_generator"
    return run.get("objective") or ("electra" if "discriminator" in parts else "mlm")


def is_pretrained(content):
    """Whether the content of a checkpoint is that of pretrain.py: with a generator, a discriminator, or both."""
    return has_keys(content, _PRETRAINING_KEYS) and not {"generator_config", "discriminator_config"}.isdisjoint(content)


def has_keys(content, kinds):
    """Whether `content` is a dictionary with the keys and types of values in `kinds`, {key: type}."""
    return isinstance(content, dict) and all(isinstance(content.get(key), kind) for key, kind in kinds.items())


class _Inert:
    """Stands in for fastcore's L in optimizer states saved by electra_pytorch, which are read but not used."""


class DamagedCheckpoint(UserError):
    """The bytes of the file are not those that were written."""


def load_checkpoint(path, mmap=False):
    """Load a checkpoint to the CPU. It is untrusted data: no code in it is run.   mmap: memory-map its tensors.

    Raises DamagedCheckpoint if the file is damaged or contains anything but data, and UserError if it is missing or
    cannot be read.
    """
    is_zip = zipfile.is_zipfile(path)  # electra_pytorch's older ones are not
    try:
        if is_zip and (damaged := zipfile.ZipFile(path).testzip()):  # torch.load does not verify the checksums
            raise zipfile.BadZipFile(f"{damaged} has changed")
        with torch.serialization.safe_globals([(_Inert, "fastcore.foundation.L")]):
            return torch.load(path, map_location="cpu", weights_only=True, mmap=mmap)
    except Exception as error:
        # EINVAL: a damaged directory of the zip points before the start of the file.
        temporary = (OSError, MemoryError, RuntimeError) if is_zip else (OSError, MemoryError)
        is_damaged = getattr(error, "errno", None) == errno.EINVAL or not isinstance(error, temporary)
        raise (DamagedCheckpoint if is_damaged else UserError)(
            f"Cannot read the checkpoint {str(path)!r} ({one_line(error)}). " + (
                "It is damaged, was not written by this project, or contains more than data. Use another one, or copy "
                "it again."
                if is_damaged else "It may be undamaged. Check disk and memory, then rerun the same "
                                   "command.")) from error


def check_writable(*folders):
    """Raise UserError if files cannot be written to these folders, which need not exist yet."""
    for folder in map(Path, folders):
        existing = next(path for path in (folder, *folder.absolute().parents) if path.exists())
        if not existing.is_dir() or not os.access(existing, os.W_OK | os.X_OK):
            raise UserError(f"Cannot write results to the folder {str(folder)!r}: {str(existing)!r} is a file, or "
                            "permission is denied. Move the file, or start in another folder.")


def check_output(option, path, suffix):
    """UserError for an output file of a command that cannot be written or does not end in the suffix. option: '--plot'
    or another.
    """
    if not path.endswith(suffix):
        raise UserError(f"Invalid value for {option}: {path!r}. Pass a file name that ends in {suffix}.")
    check_writable(Path(path).parent)


def versions():
    """{package: version} of Python and the packages that a run depends on."""
    names = "torch fastai transformers datasets hugdatafast tokenizers numpy".split()
    return {"python": platform.python_version(), **{name: importlib.metadata.version(name) for name in names}}
