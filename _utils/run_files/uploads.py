"""Checkpoints sent elsewhere while training runs: to a folder, to any address that fsspec knows, or by a function."""
import posixpath
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import fsspec

from _utils.errors import PlainError, first_line


class Uploads:
    """Sends files in the background, one after another; what fails is told, and training goes on.

    where: a folder or address such as s3://bucket/run, gs://..., hf://...; a function of the file's path; or None, to send nothing.
    Whether an address can be used at all, `check_address` says.
    """

    def __init__(self, where):
        self.send = where if callable(where) else lambda path: copy_to(path, where)
        self.pool = ThreadPoolExecutor(1) if where is not None else None
        self.sent, self.failed = [], 0

    def add(self, path):
        """Have a file sent."""
        if self.pool:
            self.sent.append(self.pool.submit(self._send, Path(path)))

    def _send(self, path):
        try:
            self.send(path)
        except BaseException as error:  # whatever the network or the function of the user does, sys.exit() too
            self.failed += 1
            print(f"\n{path.name} could not be sent ({first_line(error)}); it stays in {path.parent}, and training goes on.")

    def close(self):
        """Wait for what is being sent; where an error ends the run, what is not begun is left."""
        if self.pool:
            if waiting := sum(not one.done() for one in self.sent):
                print(f"Waiting for {waiting} checkpoints to be sent")
            self.pool.shutdown(cancel_futures=sys.exc_info()[0] is not None)
            if not_sent := self.failed + sum(one.cancelled() for one in self.sent):
                print(f"{not_sent} of {len(self.sent)} checkpoints were not sent; they stay where they are")


def check_address(where):
    """PlainError for a file, or an address of a kind that fsspec does not know or that lacks its package."""
    if not isinstance(where, str) or "://" not in where:
        if isinstance(where, str) and Path(where).is_file():
            raise PlainError(f"upload_to={where!r} is a file: give a folder.")
        return
    try:
        fsspec.get_filesystem_class(where.split("://")[0])
    except (ImportError, ValueError) as error:
        raise PlainError(f"upload_to={where!r} cannot be used ({first_line(error)}): install what it names, or give a folder.") from None


def copy_to(path, where):
    """Copy a file into a folder or address; it appears there under its own name when it is complete."""
    filesystem, folder = fsspec.url_to_fs(where)
    filesystem.makedirs(folder, exist_ok=True)
    target = posixpath.join(folder, path.name)
    filesystem.put_file(str(path), f"{target}.unfinished")
    filesystem.mv(f"{target}.unfinished", target)
