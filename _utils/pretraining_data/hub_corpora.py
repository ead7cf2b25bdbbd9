"""Corpora on the Hugging Face hub, each at one commit: the newest of its first use, or the one that the configuration names."""
import json
import os
import re
from functools import partial
from pathlib import Path

import datasets
import huggingface_hub
from datasets.naming import camelcase_to_snakecase
from datasets.packaged_modules.cache.cache import Cache

from _utils.errors import PlainError, first_line
from _utils.run_files.checkpoints import write_atomically

# The corpora of the paper and of electra_pytorch under their present hub names (facts.md#libraries); arguments of datasets.load_dataset.
# `revision` is the branch whose newest commit is loaded at first; without it, main.
HUB_CORPORA = {
    "openwebtext": dict(path="Skylion007/openwebtext"),
    "wikipedia": dict(path="wikimedia/wikipedia", name="20231101.en"),
    "bookcorpus": dict(path="bookcorpus/bookcorpus", revision="refs/convert/parquet"),
}


def hub_corpus(name, revision, record):
    """((path, configuration, commit), function that opens the documents) of a corpus in HUB_CORPORA.

    revision: commit, branch or tag; None: the branch in HUB_CORPORA.   record: file that keeps the commits of branches and tags.
    """
    path, config, branch = (HUB_CORPORA[name].get(part) for part in ("path", "name", "revision"))
    commit = _commit(name, path, revision or branch or "main", record)
    return (path, config, commit), partial(_load_from_hub, name, path, config, commit)


def _commit(name, path, revision, record):
    """The commit of a branch or tag of a hub dataset as in `record`, where its first use writes it; a commit is one already."""
    if re.fullmatch("[0-9a-f]{40}", revision):
        return revision
    entry = f"{path}@{revision}"
    if commit := read_record(record).get(entry):
        return commit
    try:
        commit = huggingface_hub.HfApi().dataset_info(path, revision=revision).sha
    except Exception as error:  # the hub's libraries raise a dozen kinds, and what to do is the same for all
        raise _not_loaded(name, path, error) from error
    add_to_record(record, entry, commit)
    return commit


def _load_from_hub(name, path, config, commit):
    """The documents of a hub dataset at a commit, downloaded unless they are in the cache of `datasets`."""
    try:
        documents = _cached_dataset(path, config, commit)
        if documents is None:
            documents = datasets.load_dataset(path, name=config, revision=commit, split="train")
    except Exception as error:
        raise _not_loaded(name, path, error) from error
    for folder in {os.path.dirname(file["filename"]) for file in documents.cache_files}:
        if os.path.basename(folder) != commit:  # without a connection `datasets` takes whatever it loaded last
            raise PlainError(f"the corpus {name!r} could not be loaded from the hub dataset {path} at revision {commit}, only {folder!r} "
                             "is in the cache: check the connection, delete that folder if an old version of `datasets` made it, or choose "
                             "another commit with the key revisions.")
    return documents.select_columns("text")


def _cached_dataset(path, config, commit):
    """The training split at a commit from the cache of `datasets`, None if it is not there. No connection is needed."""
    namespace, name = path.split("/")
    folder = Path(datasets.config.HF_DATASETS_CACHE, f"{namespace}___{camelcase_to_snakecase(name)}")
    complete = [info.parent.relative_to(folder).parts for info in folder.glob(f"{config or '*'}/*/{commit}/dataset_info.json")]
    if not complete:
        return None
    config_name, version, _ = complete[0]
    return Cache(dataset_name=name, repo_id=path, config_name=config_name, version=version, hash=commit).as_dataset(split="train")


def _not_loaded(name, path, error):
    return PlainError(f"the corpus {name!r} could not be loaded from the hub dataset {path} ({first_line(error)}): check the connection "
                      "and `revisions`, give datas=PATH to read your own text, or run without a download: python pretrain.py "
                      "quickstart=True")


def read_record(path):
    """The dictionary in a JSON file of `datasets/`; empty if there is none."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except ValueError:
        raise PlainError(f"{path} is not valid JSON: correct it, or delete it.") from None


def add_to_record(path, entry, value):
    """Set an entry of such a file."""
    content = json.dumps({**read_record(path), entry: value}, indent=1) + "\n"  # read again: another run may have added to it
    write_atomically(path, lambda file: file.write(content.encode()))
