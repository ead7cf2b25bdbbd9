"""Checkpoint files: plain dictionaries of tensors, numbers and strings, written atomically, and resuming from them."""
import contextlib
import errno
import importlib.metadata
import platform
import zipfile

import torch

from _utils.errors import UserError, is_first_process, one_line
from _utils.files import write_atomically
from _utils.recipes import warmup_in_steps

FORMAT = 2  # of checkpoints and of records of runs: increase it when those written before would be read wrongly
_PRETRAINING_KEYS = {"model": dict, "tokenizer": str, "config": dict}
# Keys that may change on resume. Of these device, micro_batch and compile affect results: they change random draws.
# `revisions` chooses a text, which is compared by its content; `recipe` only sets other keys.
MAY_DIFFER = ("device num_workers logger upload_to micro_batch compile resume save_minutes milestones stop_at "
              "revisions recipe").split()
OTHERWISE = "choose another base_run_name, or set resume=False to start from scratch (the earlier run is archived)."


def save_checkpoint(content, path):
    """Write a dictionary of tensors and plain values atomically."""
    write_atomically(path, lambda file: torch.save(content, file))


def save_pretrained(path, model, config, hf_tokenizer, step, metrics=None):
    """Write a pretraining checkpoint: weights, configurations, tokenizer, step, versions, and metrics of held-out text.
    """
    held_out = {} if metrics is None else {"held-out metrics": metrics}
    save_checkpoint(pretraining_checkpoint(model, config, hf_tokenizer, step) | held_out, path)


def pretraining_checkpoint(model, config, hf_tokenizer, step):
    """The content of a pretraining checkpoint."""
    networks = saved_networks(model)
    return {
        "format": FORMAT,
        "model": {
            f"{part}.{name}": value
            for part, network in networks.items()
            for name, value in network.state_dict().items()
        },
        **{f"{part}_config": config_data(network) for part, network in networks.items()},
        **tokenizer_record(hf_tokenizer),
        "config": config.as_data(),
        "step": step,
        "versions": versions(),
    }


def config_data(network):
    """The configuration of a network, which says whether its output layer, if any, is its token embeddings."""
    output = network.get_output_embeddings()
    is_tied = {} if output is None else {"tie_word_embeddings": output.weight is network.get_input_embeddings().weight}
    return network.config.to_dict() | is_tied


def saved_networks(model):
    """The networks of a model by their part of a checkpoint: 'generator' or 'towers', 'discriminator', or both.

    They are its children, unless it has a method `saved_networks`.
    """
    if hasattr(model, "saved_networks"):
        return model.saved_networks()
    return {part: network for part, network in model.named_children() if hasattr(network, "config")}


def tokenizer_record(hf_tokenizer):
    """The entries of a checkpoint from which `_utils.text.tokenizer_of` builds its tokenizer."""
    special_tokens = {**hf_tokenizer.special_tokens_map, "extra_special_tokens": hf_tokenizer.extra_special_tokens}
    return {"tokenizer": hf_tokenizer.backend_tokenizer.to_str(), "special_tokens": special_tokens}


def load_pretraining_checkpoint(path):
    """Load a checkpoint of pretrain.py, as `load_checkpoint`. Raises UserError for any other kind."""
    checkpoint = load_checkpoint(path)
    if not is_pretrained(checkpoint):
        raise UserError(f"{str(path)!r} is not a checkpoint of pretrain.py (a finetuned one has lost the heads of the "
                        "pretraining). Choose one from checkpoints/pretrain/, or convert it to a transformers folder "
                        "with python -m _utils export_hf or python -m _utils convert_tf.")
    check_format(checkpoint, repr(str(path)))
    return checkpoint


def check_format(content, what, advice="Use that version, or train again."):
    """Raise UserError if the content of a checkpoint or a record was written by a version with another FORMAT.

    what, advice: the beginning and the end of the message.
    """
    if content.get("format") != FORMAT:
        raise UserError(f"{what} was written by another version of this project, which is not supported. {advice}")


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
        message = f"Cannot read the checkpoint {str(path)!r} ({one_line(error)})."
        if is_damaged:
            raise DamagedCheckpoint(f"{message} It is damaged, was not written by this project, or contains more than "
                                    "data. Use another one, or copy it again.") from error
        raise UserError(f"{message} It may be undamaged. Check disk and memory, then rerun the same "
                        "command.") from error


def versions():
    """{package: version} of Python and the packages that a run depends on."""
    names = "torch fastai transformers datasets hugdatafast tokenizers numpy".split()
    return {"python": platform.python_version(), **{name: importlib.metadata.version(name) for name in names}}


# Resuming a pretraining run after a kill, a crash or Ctrl-C

def save_resume_checkpoint(folder, content):
    """Write the newest checkpoint to resume from, atomically, and keep the previous one, which exists at any moment."""
    newest = folder / "resume.pth"
    if newest.exists():
        newest.replace(newest.with_name("resume_before.pth"))
    save_checkpoint(content, newest)


def find_resume_checkpoint(folder):
    """The newest undamaged checkpoint to resume from, with its tensors memory-mapped; None if the folder has none.

    Raises UserError if all of them are damaged, or if one cannot be read for another reason. Nothing is deleted: a
    damaged one is renamed.
    """
    paths = sorted(folder.glob("resume*.pth"))  # resume.pth sorts before resume_before.pth
    for n_damaged, path in enumerate(paths):
        try:
            checkpoint = load_checkpoint(path, mmap=True)
        except DamagedCheckpoint:
            print(f"Skipping {str(path)!r}, which is damaged.")
            continue
        for damaged in paths[:n_damaged] if is_first_process() else ():
            with contextlib.suppress(FileNotFoundError):  # the first process of another machine was faster
                damaged.rename(f"{damaged}.damaged")  # the next save would keep it as the previous one
        return checkpoint
    if paths:
        raise DamagedCheckpoint(f"No checkpoint to resume from in {str(folder)!r} can be read. Set resume=False to "
                                "start the run from scratch (its files are then moved to aside/), or continue from one "
                                "of its milestones with initial_weights, under another base_run_name.")


def resume(config, run, contents_of):
    """Return (configuration, checkpoint to resume from or None) of a RunFolder.

    The configuration takes over what the run chose for its hardware.
    contents_of: function of a configuration and keys; {key: hash} of the files that those keys name. A key may name
    another place with the same content.
    Raises UserError if the run has another configuration, or if it is complete and its checkpoint to resume from was
    deleted.
    """
    if not config.resume:
        return config, None
    if checkpoint := find_resume_checkpoint(run.folder):
        config = _with_choices_of(checkpoint, config, run, contents_of)
    elif run.milestone(100.).exists():
        raise UserError(f"The run {run.name} is complete ({str(run.milestone(100.))!r} exists), but its resume.pth "
                        "was deleted. Set resume=False to train it again (the earlier run is archived), or choose "
                        "another base_run_name.")
    return config, checkpoint


def is_finished(config, run):
    """Whether a RunFolder is complete and only its last milestone can be loaded.

    Its checkpoints to resume from are gone or damaged.
    Raises UserError if it was trained with another configuration.
    """
    milestone = run.milestone(100.)
    if not config.resume or not milestone.exists():
        return False
    with contextlib.suppress(DamagedCheckpoint):
        if find_resume_checkpoint(run.folder):
            return False
    _with_choices_of(load_checkpoint(milestone, mmap=True), config, run)
    return True


def _with_choices_of(checkpoint, config, run, contents_of=lambda *_: {}):
    """The configuration with what a RunFolder chose, which is in its checkpoint.

    Raises UserError for settings that must not differ.
    """
    check_format(checkpoint, f"The run in {str(run.folder)!r}", f"Use that version to resume it, {OTHERWISE}")
    original = {name: key.default for name, key in config.known.items()} | checkpoint["config"]
    # precision changes the results; micro_batch changes the random numbers drawn, but fits one kind of device only.
    is_same_kind = str(config["device"])[:3] == original["device"][:3]  # cpu or cuda:N
    chosen = ["precision", "steps", "warmup_steps", *(["micro_batch"] if is_same_kind else [])]
    config = config.with_defaults({key: original[key] for key in chosen})
    config = config.copy_with({"revisions": {**original["revisions"], **config["revisions"]}})
    config = config.copy_with({"warmup_steps": warmup_in_steps(config["warmup_steps"], config["steps"])})
    now = config.as_data()
    differ = [key for key, value in now.items() if key not in MAY_DIFFER and original[key] != value]
    contents, before = contents_of(config, differ), checkpoint.get("contents", {})
    if differ := [key for key in differ if key not in contents or contents[key] != before.get(key)]:
        was, now = (", ".join(f"{key}={values[key]!r}" for key in differ) for values in (original, now))
        raise UserError(f"The run in {str(run.folder)!r} was started with {was}; now {now}. Use the same settings to "
                        f"resume it, {OTHERWISE}")
    if contents_of(config, ["datas"]).get("datas") != before.get("datas"):
        raise UserError(f"The text changed since the run in {str(run.folder)!r} was started. Restore what was there, "
                        f"{OTHERWISE}")
    return config
