"""What names in a configuration and in commands stand for: checkpoints, vocabularies, corpora of the hub."""
import os
from pathlib import Path

from _utils.errors import UserError

# The corpora of the paper and of electra_pytorch under their present hub ids (facts.md#libraries): (hub id,
# configuration, branch).
HUB_CORPORA = {
    "openwebtext": ("Skylion007/openwebtext", None, "main"),
    "wikipedia": ("wikimedia/wikipedia", "20231101.en", "main"),
    "bookcorpus": ("bookcorpus/bookcorpus", None, "refs/convert/parquet"),
}


def is_vocab_file(vocab):
    """Whether a value of the key `vocab` is a file with one token per line."""
    if not isinstance(vocab, str) or vocab.endswith((".json", ".pth")):
        return False
    return vocab.endswith(".txt") or os.path.isfile(vocab)


def check_file(path, advice):
    """UserError, which ends with `advice`, if there is no file at a path."""
    if not Path(path).is_file():
        raise UserError(f"File not found: {str(path)!r}. {advice}")


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
