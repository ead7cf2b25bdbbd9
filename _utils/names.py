"""What names in a configuration and in commands stand for: checkpoints, vocabularies, corpora of the hub."""
import glob
import itertools
import os
import re
import shlex
from pathlib import Path
from typing import NamedTuple

from _utils.errors import UserError


class HubText(NamedTuple):
    """A column of texts on the hub.

    path: id of the dataset.   config: its configuration; None: the only one, or the default.   split: with an optional
    slice, as in `datasets`.   branch: whose newest commit is used.
    """
    path: str
    config: str | None = None
    split: str = "train"
    column: str = "text"
    branch: str = "main"


# The corpora of the paper and of electra_pytorch under their present hub ids (facts.md#libraries).
HUB_CORPORA = {
    "openwebtext": HubText("Skylion007/openwebtext"),
    "wikipedia": HubText("wikimedia/wikipedia", "20231101.en"),
    "bookcorpus": HubText("bookcorpus/bookcorpus", branch="refs/convert/parquet"),
}
# The text of the quickstart, and the tenth of it that no run trains on (text/prose/README.md).
PROSE = Path(__file__).parent / "text/prose"
EMBEDDED = {"prose": PROSE / "train.txt.xz", "prose_held_out": PROSE / "held_out.txt.xz"}
HUB_NOTATION = "owner/name:configuration:split:column"  # parts may be empty, or left out at the end
# Endings of compressed files of text, and their names in pyarrow, which does not read .xz.
COMPRESSIONS = {".gz": "gzip", ".bz2": "bz2", ".xz": None, ".zst": "zstd"}
TEXT_FILES = (".txt", ".jsonl", ".parquet")  # endings of files of text; `text/readers.py` reads them
PRETRAIN_FOLDER = Path("checkpoints/pretrain")  # of runs and their checkpoints
HUB_ID = rf"\w[\w.-]*/(?!.*({'|'.join(map(re.escape, TEXT_FILES))}|\.pth)(\.\w+)?$)\w[\w.-]*"


def without_parts(source):
    """The name or id at the beginning of an entry of `datas`."""
    return source.partition(":")[0]


def hub_parts(source):
    """[id, parts ...] of a source in HUB_NOTATION, without the colons between them; a slice keeps its own."""
    return re.split(r":(?![^\[]*\])", source)


def hub_text(source):
    """The HubText of an entry of `datas` in HUB_NOTATION; None for a path.

    An entry on the hub begins with a hub id or a name in HUB_CORPORA. An existing path that looks like an id is a path.
    Raises UserError for more parts.
    """
    name = without_parts(source)
    if name not in HUB_CORPORA and (os.path.exists(source) or not is_hub_id(name)):
        return None
    _, *parts = hub_parts(source)
    if len(parts) > 3:
        raise UserError(f"Invalid value for datas: {source!r}. Use the notation {HUB_NOTATION}, of which parts may be "
                        "empty, or left out at the end.")
    given = zip(("config", "split", "column"), parts)
    return HUB_CORPORA.get(name, HubText(name))._replace(**{part: value for part, value in given if value})


def is_path(source):
    """Whether an entry of `datas` is a path, instead of the name of a corpus or a hub id."""
    return source not in EMBEDDED and not hub_text(source)


def check_text(source):
    """Raise UserError for an entry of `datas` that is a path at which there is nothing. Globs are not looked up.

    Prints a notice if a path has the name of a corpus.
    """
    exists = os.path.exists(source)
    if exists and source in (*EMBEDDED, *HUB_CORPORA):
        print(f"Notice: datas={source} is the corpus of that name. For the path of that name, write ./{source}.")
    elif not exists and is_path(source) and not glob.has_magic(source):
        raise no_text_error(source)


def no_text_error(source):
    """The UserError for an entry of `datas` that has no text."""
    exists = "exists, but is not" if os.path.exists(source) else "is not"
    return UserError(f"Invalid value for datas: {str(source)!r}. It {exists} a file, folder or glob with text in the "
                     f"formats {', '.join(TEXT_FILES)} or wiki_NN of WikiExtractor (also "
                     f"{', '.join(COMPRESSIONS)}). The corpora are {', '.join([*HUB_CORPORA, *EMBEDDED])}, and those "
                     f"on the hub, {HUB_NOTATION}.")


def is_hub_id(name):
    """Whether a value is an id on the hub, such as owner/name, and not an existing path."""
    return isinstance(name, str) and bool(re.fullmatch(HUB_ID, name)) and not os.path.exists(name)


def announce_hub(*values):
    """Print which of the values are ids on the hub, before a long wait for it."""
    if ids := list(filter(is_hub_id, values)):
        print(f"From the Hugging Face hub or its cache, because no such path exists: {', '.join(ids)}", flush=True)


def is_vocab_file(vocab):
    """Whether a value of the key `vocab`, a string, is a file with one token per line."""
    return vocab.endswith(".txt") or os.path.isfile(vocab) and not vocab.endswith((".json", ".pth"))


def check_file(path, advice):
    """UserError, which ends with `advice`, if there is no file at a path."""
    if not Path(path).is_file():
        raise UserError(f"File not found: {str(path)!r}. {advice}")


def checkpoint_at(name, folders=(PRETRAIN_FOLDER,)):
    """Path of a checkpoint given by its name in one of some folders, or by its path; None if it does not exist.

    What has a separator, such as ./a.pth, is a path.
    """
    in_folders = [Path(folder, name) for folder in folders if os.path.basename(name) == str(name)]
    return next(filter(Path.is_file, (*in_folders, Path(name))), None)


def find_checkpoint(name, *folders):
    """As `checkpoint_at`, in checkpoints/pretrain or in other folders, but raises UserError if it does not exist."""
    folders = folders or (PRETRAIN_FOLDER,)
    if path := checkpoint_at(name, folders):
        return path
    if Path(name).is_dir():
        raise UserError(f"Expected a checkpoint (.pth), but {name!r} is a folder.")
    is_of_pretraining = PRETRAIN_FOLDER in folders
    if not is_of_pretraining and checkpoint_at(name):
        raise UserError(f"{name!r} is a pretrained checkpoint. Finetune it first: python finetune.py "
                        f"pretrained_checkpoint={shlex.quote(str(name))}.")
    found = itertools.chain.from_iterable(Path(folder).glob("*.pth") for folder in folders)
    newest = [path.name for path in sorted(found, key=os.path.getmtime, reverse=True)[:8]]
    raise UserError(f"Checkpoint not found: {str(name)!r} in {' or '.join(map(str, folders))} (newest there: "
                    f"{', '.join(newest) or 'none'}). Choose another, or create it with python "
                    f"{'pretrain.py' if is_of_pretraining else 'finetune.py'} (quickstart=True for those of the "
                    "quickstart).")
