"""Texts of the Hugging Face hub: which commit is used, checks, downloads and streams."""
import itertools
import re

import datasets
import huggingface_hub

from _utils.errors import UserError
from _utils.files import recorded
from _utils.hub import hub_errors, load_split, open_builder
from _utils.names import HUB_NOTATION


def loading(source, path):
    """Context manager for calls to the hub libraries. source: the entry of `datas`."""
    return hub_errors(f"datas={source!r} (not an existing path)", path, HUB_NOTATION, (
        "Or set datas=PATH to read your own text, or run without a download: python pretrain.py quickstart=True"))


def commit_of(source, text, revision, cache_dir):
    """The commit of a HubText that is used.

    revision: commit, branch or tag; None: its branch. Of a branch or tag, the commit that was the newest one at its
    first use is recorded in a file in hub_revisions/ of the cache.
    """
    commit = revision or text.branch
    if re.fullmatch("[0-9a-f]{40}", commit):
        return commit
    with loading(source, text.path):
        return recorded(cache_dir / "hub_revisions" / text.path / commit,
                        lambda: huggingface_hub.HfApi().dataset_info(text.path, revision=commit).sha)


def check_hub_text(source, text, commit):
    """Raise UserError unless a HubText has its configuration, split and column of strings. Reads the beginning of a
    file at most.
    """
    names = [part.partition("[")[0].strip() for part in text.split.split("+")]
    with loading(source, text.path):
        datasets.ReadInstruction.from_spec(text.split)
        builder = open_builder(text.path, text.config, commit)
        streams = [builder.as_streaming_dataset(split=name) for name in names]
        row = next(iter(streams[0]), {})
    if not isinstance(row.get(text.column, 0), str | None):
        raise UserError(f"Invalid value for datas: {source!r}. {text.path} has no column {text.column!r} of texts. Its "
                        f"columns are {', '.join(map(repr, row)):.300}. Use the notation {HUB_NOTATION}.")


def download(source, text, commit):
    """The documents of a HubText at a commit, from the cache of `datasets` or by download."""
    with loading(source, text.path):
        documents = load_split(text.path, text.config, text.split, commit).select_columns(text.column)
    return documents if text.column == "text" else documents.rename_column(text.column, "text")


def stream(source, text, commit, n):
    """Yield the first n documents of a HubText, of which no more is downloaded than they need."""
    with loading(source, text.path):
        rows = open_builder(text.path, text.config, commit).as_streaming_dataset(split=text.split)
        for row in itertools.islice(rows.select_columns(text.column), n):
            yield row[text.column] or ""
