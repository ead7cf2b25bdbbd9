"""Texts of the Hugging Face hub: which commit is used, checks, and downloads."""
import re

import datasets
import huggingface_hub

from _utils.errors import UserError
from _utils.files import recorded
from _utils.hub import hub_errors, load_split, names_what_exists, open_builder
from _utils.names import HUB_CORPORA, HUB_NOTATION, without_parts


def loading(source, path):
    """Context manager for calls to the hub libraries. source: the entry of `datas`."""
    kind = "" if without_parts(source) in HUB_CORPORA else " (not an existing path)"
    return hub_errors(f"datas={source!r}{kind}", path, (
        "Check the connection, and rerun the same command: what was downloaded is kept. Or set datas=PATH to read your "
        "own text, or run without a download: python pretrain.py quickstart=True"))


def commit_of(source, text, revisions, cache_dir):
    """The commit of a HubText that is used.

    revisions: {name or id: commit, branch or tag}; without it, its branch. Of a branch or tag, the commit that was the
    newest one at its first use is recorded in a file in hub_revisions/ of the cache.
    """
    commit = revisions.get(without_parts(source)) or text.branch
    if re.fullmatch("[0-9a-f]{40}", commit):
        return commit
    with loading(source, text.path):
        return recorded(cache_dir / "hub_revisions" / text.path / commit,
                        lambda: huggingface_hub.HfApi().dataset_info(text.path, revision=commit).sha)


def check_hub_text(source, text, commit, is_streamed):
    """Raise UserError unless a HubText has its configuration, its split and its column of strings.

    Reads the beginning of a file at most.
    """
    names = [part.partition("[")[0].strip() for part in text.split.split("+")]
    if is_streamed and "[" in text.split:
        raise UserError(f"Invalid value for datas: {source!r}. A slice cannot be streamed. Leave out the slice and set "
                        "stream to a number of documents, or leave out stream.")
    with loading(source, text.path):
        with names_what_exists(f"Invalid value for datas: {source!r}.", HUB_NOTATION):
            datasets.ReadInstruction.from_spec(text.split)
            builder = open_builder(text.path, text.config, commit)
            stream, *_ = [builder.as_streaming_dataset(split=name) for name in names]
        features = stream.features
        if features is None:  # neither described nor in the format of the files
            example = next(iter(stream), {})
            features = {column: type(value).__name__ for column, value in example.items()}
    kinds = {column: getattr(feature, "dtype", feature) for column, feature in features.items()}
    texts = [column for column, kind in kinds.items() if kind in ("string", "large_string", "str")]
    if text.column not in texts:
        raise UserError(f"Invalid value for datas: {source!r}. {text.path} has no column {text.column!r} of texts, but "
                        f"{', '.join(map(repr, texts)) or 'none at all'} (all columns: {', '.join(kinds):.300}). Use "
                        f"the notation {HUB_NOTATION}.")


def download(source, text, commit):
    """The documents of a HubText at a commit, from the cache of `datasets` or by download."""
    with loading(source, text.path):
        documents = load_split(text.path, text.config, text.split, commit).select_columns(text.column)
    return documents if text.column == "text" else documents.rename_column(text.column, "text")
