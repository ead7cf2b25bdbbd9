"""Datasets of the Hugging Face hub."""
import datasets
from datasets.exceptions import DatasetGenerationError

from _utils.errors import as_user_error


def open_builder(path, config, revision=None):
    """The builder of a dataset on the hub, a datasets.DatasetBuilder.

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


def hub_errors(source, path, notation, advice):
    """Context manager that turns what the hub libraries raise, many kinds of exceptions, into a UserError.

    source: where the user named the dataset, as text.   path: its id.   notation: of such sources.   advice: the end of
    the message.
    """
    return as_user_error(f"{source}: the hub dataset {path} could not be loaded ({{error}}). Check the connection and "
                         f"the spelling ({notation}), run hf auth login if it is gated or private, and rerun the same "
                         f"command: what was downloaded is kept. {advice}")
