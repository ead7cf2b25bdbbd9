"""Uploading checkpoints during training: to a folder, to any address that fsspec knows, or with a function."""
import posixpath
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import fsspec

from _utils.errors import PlainError, first_line


class Uploads:
    """Uploads files in a background thread, one after another. Failures are printed and do not stop the training.

    where: a folder, an address such as s3://bucket/run, gs://... or hf://..., a function of the file's path, or None for no uploads.
    `check_address` checks it in advance.
    """

    def __init__(self, where):
        self.where = where
        self.pool = ThreadPoolExecutor(1) if where is not None else None
        self.sent, self.failed = [], 0

    def add(self, path):
        """Queue a file."""
        self._queue(self.where if callable(self.where) else partial(copy_to, where=self.where), path)

    def add_missing(self, path):
        """Queue a file of an earlier process, unless the destination has it with the same size. A function is not called again."""
        if not callable(self.where):
            self._queue(partial(copy_missing, where=self.where), path)

    def _queue(self, send, path):
        if self.pool:
            self.sent.append(self.pool.submit(self._send, send, Path(path)))

    def _send(self, send, path):
        try:
            send(path)
        except BaseException as error:  # from the network or the user's function, including sys.exit()
            self.failed += 1
            print(f"\nCould not upload {path.name} ({first_line(error)}). It stays in {path.parent}; training continues.")

    def close(self):
        """Wait for the queue; after an error, only for the upload in progress."""
        if self.pool:
            if waiting := sum(not one.done() for one in self.sent):
                print(f"Waiting for the upload of {waiting} checkpoints")
            self.pool.shutdown(cancel_futures=sys.exc_info()[0] is not None)
            if not_sent := self.failed + sum(one.cancelled() for one in self.sent):
                print(f"{not_sent} of {len(self.sent)} checkpoints were not uploaded; they stay where they are")


def check_address(where):
    """Raise PlainError for a path of a file, or for an address of an unknown kind or whose package is not installed."""
    if not isinstance(where, str) or "://" not in where:
        if isinstance(where, str) and Path(where).is_file():
            raise PlainError(f"Invalid value for upload_to: {where!r} is a file. Pass a folder.")
        return
    try:
        fsspec.get_filesystem_class(where.split("://")[0])
    except (ImportError, ValueError) as error:
        raise PlainError(f"Invalid value for upload_to: {where!r} ({first_line(error)}). Install its package, or pass a folder.") from None


def copy_missing(path, where):
    """`copy_to`, unless a file of this name and size is there."""
    filesystem, folder = fsspec.url_to_fs(where)
    target = posixpath.join(folder, path.name)
    if not filesystem.exists(target) or filesystem.size(target) != path.stat().st_size:
        copy_to(path, where)


def copy_to(path, where):
    """Copy a file to a folder or address, where it appears under its own name only when it is complete."""
    filesystem, folder = fsspec.url_to_fs(where)
    filesystem.makedirs(folder, exist_ok=True)
    target = posixpath.join(folder, path.name)
    filesystem.put_file(str(path), f"{target}.unfinished")
    filesystem.mv(f"{target}.unfinished", target)
