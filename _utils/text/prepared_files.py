"""Arrow files of prepared text in the cache."""
import datasets
import pyarrow

from _utils.errors import as_user_error
from _utils.files import write_atomically


def prepared(path, write=None):
    """Return the Arrow file `path` as a memory-mapped datasets.Dataset.

    If it does not exist, `write(file)` creates it first. The file appears under its name only when it is complete.
    """
    if not path.exists():
        write_atomically(path, write)
    with as_user_error(f"{path} cannot be read ({{error}}). Delete it to rebuild it.",
                       (pyarrow.ArrowException, OSError, ValueError)):
        return datasets.Dataset.from_file(str(path))
