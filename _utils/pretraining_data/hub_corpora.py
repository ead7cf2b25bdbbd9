"""Corpora on the Hugging Face hub. Each is pinned to one commit: the newest one when it was first used, or one set by `revisions`."""
import os
import re
from functools import partial
from pathlib import Path

import datasets
import huggingface_hub
from datasets.naming import camelcase_to_snakecase
from datasets.packaged_modules.cache.cache import Cache

from _utils.errors import PlainError, as_plain_error
from _utils.pretraining_data.cache_records import add_to_record, read_record

# The corpora of the paper and of electra_pytorch under their present hub ids (facts.md#libraries), as arguments of datasets.load_dataset.
# `revision`: the branch to take the newest commit of; default: main.
HUB_CORPORA = {
    "openwebtext": dict(path="Skylion007/openwebtext"),
    "wikipedia": dict(path="wikimedia/wikipedia", name="20231101.en"),
    "bookcorpus": dict(path="bookcorpus/bookcorpus", revision="refs/convert/parquet"),
}


def hub_corpus(name, revision, record):
    """Return ((hub id, configuration, commit), function that opens the documents) of a corpus in HUB_CORPORA.

    revision: commit, branch or tag; None: the branch in HUB_CORPORA.   record: file with the commits of branches and tags.
    """
    path, config, branch = (HUB_CORPORA[name].get(part) for part in ("path", "name", "revision"))
    commit = _commit(name, path, revision or branch or "main", record)
    return (path, config, commit), partial(_load_from_hub, name, path, config, commit)


def _commit(name, path, revision, record):
    """Resolve a branch or tag to the commit in `record`, which its first use adds there."""
    if re.fullmatch("[0-9a-f]{40}", revision):
        return revision
    entry = f"{path}@{revision}"
    if commit := read_record(record).get(entry):
        return commit
    with _loading(name, path):
        commit = huggingface_hub.HfApi().dataset_info(path, revision=revision).sha
    add_to_record(record, entry, commit)
    return commit


def _load_from_hub(name, path, config, commit):
    """Open the documents of a hub dataset at a commit, from the cache of `datasets` or by download."""
    with _loading(name, path):
        documents = _cached_dataset(path, config, commit)
        if documents is None:
            documents = datasets.load_dataset(path, name=config, revision=commit, split="train")
    for folder in {os.path.dirname(file["filename"]) for file in documents.cache_files}:
        if os.path.basename(folder) != commit:  # without a connection `datasets` falls back to the version it loaded last
            raise PlainError(f"The corpus {name!r} could not be loaded from the hub dataset {path} at revision {commit}: only {folder!r} "
                             "is in the cache. Check the connection, delete that folder if an old version of `datasets` created it, or "
                             "choose another commit with the key revisions.")
    return documents.select_columns("text")


def _cached_dataset(path, config, commit):
    """Open the training split at a commit from the cache of `datasets`, without a connection; None if it is not cached."""
    namespace, name = path.split("/")
    folder = Path(datasets.config.HF_DATASETS_CACHE, f"{namespace}___{camelcase_to_snakecase(name)}")
    complete = [info.parent.relative_to(folder).parts for info in folder.glob(f"{config or '*'}/*/{commit}/dataset_info.json")]
    if not complete:
        return None
    config_name, version, _ = complete[0]
    return Cache(dataset_name=name, repo_id=path, config_name=config_name, version=version, hash=commit).as_dataset(split="train")


def _loading(name, path):
    """Context manager for calls to the hub libraries, which raise many kinds of exceptions."""
    return as_plain_error(f"The corpus {name!r} could not be loaded from the hub dataset {path} ({{error}}). Check the connection and "
                          "`revisions`, set datas=PATH to read your own text, or run without a download: python pretrain.py "
                          "quickstart=True")
