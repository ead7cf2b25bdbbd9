"""Datasets of the Hugging Face hub."""
import contextlib

import datasets
import huggingface_hub
import pyarrow.parquet
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
        for file in _downloaded_files(path):
            if problem := _problem_of(file.blob_path):
                name = "/".join(file.file_path.parts[-2:])
                raise UserError(f"{name} of the hub dataset {path} {problem}. Delete {file.blob_path} and "
                                "rerun the same command, which downloads it again. If that does not help, the file on "
                                "the hub is bad.") from None
        raise (error.__cause__ or error) from None


def _downloaded_files(path):
    """The parquet files of a dataset in the cache of the hub, as huggingface_hub.CachedFileInfo."""
    with contextlib.suppress(huggingface_hub.errors.CacheNotFound):
        for repository in huggingface_hub.scan_cache_dir().repos:
            if (repository.repo_type, repository.repo_id) == ("dataset", path):
                files = {file for revision in repository.revisions for file in revision.files}
                parquet = [file for file in files if file.file_name.endswith(".parquet")]
                yield from sorted(parquet, key=lambda file: file.file_path)


def _problem_of(path):
    """What is wrong with a parquet file, which is read to the end; None if it can be read."""
    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            for _ in file.iter_batches():
                pass
            return None if file.metadata.num_rows else "has no rows"
    except (OSError, pyarrow.ArrowException) as error:
        return f"is damaged ({one_line(error)})"
