"""Datasets of the Hugging Face hub."""
import contextlib

import datasets
import huggingface_hub
import pyarrow
from datasets.exceptions import DatasetGenerationError, DatasetNotFoundError
from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError, RevisionNotFoundError

from _utils.errors import UserError, one_line


def load_split(path, config, split, revision=None):
    """A split of a dataset on the hub as a datasets.Dataset, from the cache of `datasets` or by download.

    path: its id.   config, revision: its configuration, and a commit; None: the default ones.
    Raises errors of the libraries, and UserError for an unreadable file in the cache, which a rerun would not replace.
    """
    try:
        return datasets.load_dataset(path, name=config, split=split, revision=revision)
    except DatasetGenerationError as error:  # it does not say what is wrong
        cause = error.__cause__ or error
        is_unreadable = isinstance(cause, pyarrow.ArrowException | OSError) and not isinstance(cause, ConnectionError)
        if not is_unreadable or getattr(cause, "errno", None):  # such as a full disk
            raise cause from None
        command = f"hf cache verify {path} --type dataset --revision {revision or 'main'}"
        raise UserError(f"The files of the hub dataset {path} cannot be read ({one_line(cause)}). "
                        f"Run {command}, delete the files that it reports, and rerun the same command, which "
                        "downloads them again.") from error


def open_stream(path, config, split, revision):
    """A split of a dataset on the hub as a datasets.IterableDataset, which downloads while it is read.

    Arguments as of `load_split`, but `split` has no slices, and `revision` is a commit. Raises errors of the libraries.
    """
    builder = datasets.load_dataset_builder(path, name=config, revision=revision)
    if builder.hash != revision:  # without a connection `datasets` falls back to the version it loaded last
        raise ConnectionError(f"only commit {builder.hash} is in the cache, not {revision}")
    return builder.as_streaming_dataset(split=split)


def newest_commit(path, branch):
    """The commit to which a branch or tag of a dataset on the hub points. Raises errors of the libraries."""
    return huggingface_hub.HfApi().dataset_info(path, revision=branch).sha


@contextlib.contextmanager
def hub_errors(source, path, advice):
    """Context manager that turns what the hub libraries raise, many kinds of exceptions, into a UserError.

    source: where the user named the dataset, as text.   path: its id.   advice: the end of the message if the hub
    failed rather than the user.
    """
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        raise UserError(_problem(error, source, path, advice)) from error


@contextlib.contextmanager
def names_what_exists(where, notation):
    """Context manager that turns errors of `datasets` about a configuration or split, which list those that exist, into
    a UserError. Within `hub_errors`.

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
    causes = [error]
    while causes[-1].__cause__ or causes[-1].__context__:
        causes.append(causes[-1].__cause__ or causes[-1].__context__)
    is_any = lambda *kinds: any(isinstance(cause, kinds) for cause in causes)
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
                f"The hub may have converted it: try revisions={{'{path}': 'refs/convert/parquet'}}.")
    return f"{source}: the hub dataset {path} could not be loaded ({one_line(error)}). {advice}"
