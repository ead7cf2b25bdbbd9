"""Datasets of the Hugging Face hub."""
import contextlib

import datasets
import huggingface_hub
import pyarrow
from datasets.exceptions import DatasetGenerationError, DatasetNotFoundError
from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError, RevisionNotFoundError

from _utils.errors import UserError, causes, explain, one_line


def open_builder(path, config, revision=None):
    """The builder of a dataset on the hub, a datasets.DatasetBuilder, which loads or streams its splits.

    path: its id.   config, revision: its configuration, and a commit; None: the default ones.
    Raises errors of the libraries.
    """
    builder = datasets.load_dataset_builder(path, name=config, revision=revision)
    if revision and builder.hash != revision:  # without a connection `datasets` uses the version that it loaded last
        raise ConnectionError(f"only commit {builder.hash} is in the cache, not {revision}")
    return builder


def load_split(path, config, split, revision=None):
    """A split of a dataset on the hub as a datasets.Dataset, from the cache of `datasets` or by download.

    Arguments as of `open_builder`; split: with an optional slice. Raises errors of the libraries.
    """
    builder = open_builder(path, config, revision)
    try:
        builder.download_and_prepare()
    except DatasetGenerationError as error:  # it does not say what is wrong
        raise (error.__cause__ or error) from None
    return builder.as_dataset(split)


@contextlib.contextmanager
def hub_errors(source, path, advice):
    """Context manager that turns what the hub libraries raise, many kinds of exceptions, into a UserError.

    source: where the user named the dataset, as text.   path: its id.   advice: the end of the message if the hub
    failed rather than the user.
    """
    try:
        yield
    except Exception as error:
        if explain(error):  # a UserError, or no space left
            raise
        raise UserError(_problem(error, source, path, advice)) from error


@contextlib.contextmanager
def names_what_exists(where, notation):
    """Context manager that turns errors of `datasets` about a configuration or split into a UserError.

    These list what exists. Within `hub_errors`.
    where: the beginning of the message, with the value of the user.   notation: of such values.
    """
    try:
        yield
    except (ValueError, AssertionError) as error:
        if isinstance(error, pyarrow.ArrowException):  # an unreadable file
            raise
        message = " ".join(str(error).partition("Example of usage")[0].split())
        raise UserError(f"{where} {message:.600} Use the notation {notation}.") from error


def _problem(error, source, path, advice):
    """The message for an error of the hub libraries."""
    is_any = lambda *kinds: any(isinstance(cause, kinds) for cause in causes(error))
    page = f"{huggingface_hub.constants.ENDPOINT}/datasets/{path}"
    if is_any(GatedRepoError) or "is a gated dataset" in str(error):
        return (f"{source}: the hub dataset {path} is gated. Accept its conditions on {page}, run hf auth login, and "
                "rerun the same command.")
    if is_any(RevisionNotFoundError):
        return (f"{source}: the hub dataset {path} does not have the revision ({one_line(error)}). Choose another one "
                "with the key revisions.")
    if is_any(RepositoryNotFoundError, DatasetNotFoundError):
        return (f"{source}: the hub has no public dataset {path}. Check the spelling. To use a private one, run "
                "hf auth login.")
    if "scripts are no longer supported" in str(error):
        return (f"{source}: the hub dataset {path} can only be loaded by code in its repository, which is never run. "
                "The hub may have converted it in its branch refs/convert/parquet. In pretraining, set "
                f"revisions={{'{path}': 'refs/convert/parquet'}}; for a task, download the files of that branch.")
    return f"{source}: the hub dataset {path} could not be loaded ({one_line(error)}). {advice}"
