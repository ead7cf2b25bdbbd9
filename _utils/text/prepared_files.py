"""Files of prepared text in the cache: Arrow files with checksums, and recorded hashes of contents."""
import os
from pathlib import Path

import datasets
import pyarrow

from _utils.errors import as_user_error
from _utils.files import content_key, file_chunks, write_atomically, write_text_atomically


def prepared(path, write=None):
    """Return the Arrow file `path` as a memory-mapped datasets.Dataset. If it does not exist, `write(file)` creates it
    first.

    It appears when it is complete. Raises UserError if its content is no longer the one that was written.
    """
    record = Path(f"{path}.xxh3")
    if not path.exists():
        record.unlink(missing_ok=True)  # left over from a damaged file that the user deleted
        write_atomically(path, write)
    with as_user_error(f"{path} cannot be read ({{error}}). Delete it and {record.name} to rebuild it.",
                       (pyarrow.ArrowException, OSError, ValueError)):
        dataset = datasets.Dataset.from_file(str(path))
        current_hash([path], record, lambda: content_key("", file_chunks(path)), may_change=False)
    return dataset


def current_hash(paths, record, compute, may_change=True):
    """Return the hash of the contents of files, from the file `record` of these files if their sizes and times are
    still those in it.

    compute(): the hash of the present contents, which is then recorded.   may_change: False raises ValueError if it
    differs from the recorded one.
    """
    # The time of change (ctime) cannot be set. It reveals a change after which the time of modification was restored.
    stats = map(os.stat, paths)
    state = content_key([(stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns) for stat in stats])
    recorded = record.read_text().split() if record.exists() else []
    if recorded[1:] == [state]:
        return recorded[0]
    computed = compute()
    if recorded and not may_change and recorded[0] != computed:
        raise ValueError(f"its content does not match {record.name}")
    write_text_atomically(record, f"{computed} {state}")
    return computed
