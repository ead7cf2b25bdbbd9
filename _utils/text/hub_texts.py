"""Texts of the Hugging Face hub: which commit is used, checks, and downloads."""
import os
import re

import datasets

from _utils.errors import UserError
from _utils.files import write_text_atomically
from _utils.hub import hub_errors, load_split, names_what_exists, newest_commit, open_stream
from _utils.names import HUB_CORPORA, HUB_NOTATION, without_parts


def loading(source, path):
    """Context manager for calls to the hub libraries. source: the entry of `datas`."""
    kind = "" if without_parts(source) in HUB_CORPORA else " (not an existing path)"
    return hub_errors(f"datas={source!r}{kind}", path, (
        "Check the connection, and rerun the same command: what was downloaded is kept. Or set datas=PATH to read your "
        "own text, or run without a download: python pretrain.py quickstart=True"))


def commit_of(source, text, revision, cache_dir):
    """The commit of a HubText that is used.

    revision: commit, branch or tag; None: its branch. Of a branch or tag, the commit that was the newest one at its
    first use is recorded in a file in hub_revisions/ of the cache.
    """
    commit = revision or text.branch
    if re.fullmatch("[0-9a-f]{40}", commit):
        return commit
    record = cache_dir / "hub_revisions" / text.path / commit
    if not record.exists():
        with loading(source, text.path):
            newest = newest_commit(text.path, commit)
        write_text_atomically(record, newest)
    return record.read_text()


def check_hub_text(source, text, commit, is_streamed):
    """Raise UserError unless a HubText has its configuration, split and column of strings. Reads the beginning of a
    file at most.
    """
    names = [part.partition("[")[0].strip() for part in text.split.split("+")]
    if is_streamed and "[" in text.split:
        raise UserError(f"Invalid value for datas: {source!r}. A slice cannot be streamed. Leave out the slice and set "
                        "stream to a number of documents, or leave out stream.")
    with loading(source, text.path):
        with names_what_exists(f"Invalid value for datas: {source!r}.", HUB_NOTATION):
            datasets.ReadInstruction.from_spec(text.split)
            streams = [open_stream(text.path, text.config, name, commit) for name in names]
        features = streams[0].features
        if features is None:  # neither described nor in the format of the files
            example = next(iter(streams[0]), {})
            features = {column: type(value).__name__ for column, value in example.items()}
    kinds = {column: getattr(feature, "dtype", feature) for column, feature in features.items()}
    if kinds.get(text.column) not in ("string", "large_string", "str"):
        texts = [column for column, kind in kinds.items() if kind in ("string", "large_string", "str")]
        raise UserError(f"Invalid value for datas: {source!r}. {text.path} has no column {text.column!r} of texts, but "
                        f"{', '.join(map(repr, texts)) or 'none at all'} (all columns: {', '.join(kinds):.300}). Use "
                        f"the notation {HUB_NOTATION}.")


def download(source, text, commit):
    """The documents of a HubText at a commit, from the cache of `datasets` or by download."""
    with loading(source, text.path):
        documents = load_split(text.path, text.config, text.split, commit).select_columns(text.column)
    [folder] = {os.path.dirname(file["filename"]) for file in documents.cache_files}
    if os.path.basename(folder) != commit:  # without a connection `datasets` falls back to the version it loaded last
        raise UserError(f"datas={source!r} could not be loaded from the hub dataset {text.path} at revision {commit}: "
                        f"only {folder!r} is in the cache. Check the connection, delete that folder if an old version "
                        "of `datasets` created it, or choose another commit with the key revisions.")
    return documents if text.column == "text" else documents.rename_column(text.column, "text")
