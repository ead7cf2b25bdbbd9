"""Datasets of the Hugging Face hub."""
import datasets
import pyarrow
from datasets.exceptions import DatasetGenerationError

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
