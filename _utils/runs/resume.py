"""The checkpoint that a pretraining run is resumed from, after a kill, a crash or Ctrl-C."""
import contextlib

from _utils.errors import UserError, is_first_process
from _utils.recipes import warmup_in_steps
from _utils.runs.checkpoints import DamagedCheckpoint, load_checkpoint, save_checkpoint, with_newer_keys

# Keys that may differ when a run is resumed. micro_batch and compile change which random numbers are drawn; the others
# change no result.
# `revisions` chooses a text, which is compared by its content; `recipe` only sets other keys.
MAY_DIFFER = ("device num_workers logger upload_to micro_batch compile resume save_minutes milestones stop_at "
              "revisions recipe").split()
_OTHERWISE = "choose another base_run_name, or set resume=False to start from scratch (the earlier run is archived)."


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
                                "start the run from scratch; its files are then moved to aside/, and initial_weights "
                                "can start from one of its milestones.")


def resume(config, run):
    """(configuration, checkpoint to resume from, or None) of a RunFolder; the configuration takes over what the run
    chose for
    its hardware.

    Raises UserError if the run has another configuration, or if it is complete and its checkpoint to resume from was
    deleted.
    """
    if not config.resume:
        return config, None
    if checkpoint := find_resume_checkpoint(run.folder):
        config = _with_choices_of(checkpoint["config"], config, run)
    elif run.milestone(100.).exists():
        raise UserError(f"The run {run.name} is complete ({str(run.milestone(100.))!r} exists), but its resume.pth "
                        "was deleted. Set resume=False to train it again (the earlier run is archived), or choose "
                        "another base_run_name.")
    return config, checkpoint


def is_finished(config, run):
    """Whether a RunFolder is complete and its checkpoints to resume from are gone or damaged: its last milestone is
    left.

    Raises UserError if it was trained with another configuration.
    """
    if not config.resume or not run.milestone(100.).exists():
        return False
    with contextlib.suppress(DamagedCheckpoint):
        if find_resume_checkpoint(run.folder):
            return False
    _with_choices_of(load_checkpoint(run.milestone(100.), mmap=True)["config"], config, run)
    return True


def _with_choices_of(original, config, run):
    """The configuration with what a RunFolder chose, which is in `original`.

    UserError for settings that must not differ.
    """
    original = with_newer_keys(original)
    # precision changes the results; micro_batch changes the random numbers drawn, but fits one kind of device only.
    is_same_kind = config["device"] and config["device"][:3] == original["device"][:3]  # cpu or cuda:N
    chosen = ["precision", "steps", "warmup_steps", *(["micro_batch"] if is_same_kind else [])]
    config = config.with_defaults({key: original[key] for key in chosen})
    config = config.copy_with({"warmup_steps": warmup_in_steps(config["warmup_steps"], config["steps"])})
    now = config.as_data()
    # None and False are equal: a key that is newer than the run may have its default.
    differ = [key for key, value in now.items()
              if key not in MAY_DIFFER and (value or original.get(key)) and original.get(key) != value]
    if differ:
        was, now = (", ".join(f"{key}={values.get(key)!r}" for key in differ) for values in (original, now))
        raise UserError(f"The run in {str(run.folder)!r} was started with {was}; now {now}. Use the same settings to "
                        f"resume it, {_OTHERWISE}")
    return config


def original_code(checkpoint, now):
    """The hash of the code that a run began with, for its next checkpoint.

    Prints a notice if it differs from that of the present code.
    """
    began = checkpoint["code"]
    if began != now:
        print("Notice: the code of pretrain.py, its notebook or _utils changed since this run began, so its steps "
              f"were not all trained with the same code. To train all of them with the present code, {_OTHERWISE}")
    return began


def check_same_data(checkpoint, data, folder):
    """Raise UserError if the vocabulary or the text changed. data: {name: what identifies it}."""
    if differ := [name for name, value in data.items() if checkpoint["data"].get(name) != value]:
        raise UserError(f"The {' and the '.join(differ)} changed since the run in {str(folder)!r} was started. "
                        f"Restore what was there, {_OTHERWISE}")


def check_same_vocabulary(path, hf_tokenizer):
    """Raise UserError if a pretraining checkpoint has another vocabulary than the tokenizer."""
    if load_checkpoint(path, mmap=True)["tokenizer"] != hf_tokenizer.backend_tokenizer.to_str():
        raise UserError(f"The vocabulary changed since {str(path)!r} was trained. Restore it or, if it was trained on "
                        f"the text, the text; {_OTHERWISE}")
