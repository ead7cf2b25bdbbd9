"""Files: atomic writes, hashes that name cached files, and lines of text and JSON with their number in each error."""
import glob
import json
import os
import platform
import re
import shutil
import sys
from pathlib import Path

import xxhash
from filelock import FileLock, Timeout

from _utils.errors import UserError, as_user_error


def write_atomically(path, write):
    """Call `write` with a binary file, which appears under `path` only when it is complete and synced to disk."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = unfinished_name(path)
    try:
        # torch.save raises RuntimeError when the disk is full
        with as_user_error(f"Could not write {str(path)!r} ({{error}}). Free some disk space and rerun the same "
                           "command; files saved earlier are intact.", (OSError, RuntimeError)):
            with open(unfinished, "wb") as file:
                write(file)
                file.flush()
                os.fsync(file.fileno())
            os.replace(unfinished, path)
    finally:
        unfinished.unlink(missing_ok=True)


def write_text_atomically(path, text):
    """Write a UTF-8 text file atomically."""
    write_atomically(path, lambda file: file.write(text.encode()))


def recorded(path, compute):
    """The text in the file `path`. If it does not exist, it is created with the text that `compute()` returns."""
    if not path.exists():
        write_text_atomically(path, compute())
    return path.read_text(encoding="utf-8")


def unfinished_name(path):
    """Return the name under which this process writes a file or folder until it is complete.

    Removes leftovers of killed processes.
    """
    host = re.sub(r"\W", "_", platform.node())  # in the name, because process ids of other machines cannot be checked
    for left in path.parent.glob(f"{glob.escape(path.name)}.{host}-*.unfinished"):
        pid = int(left.name.split("-")[-1].removesuffix(".unfinished"))
        if pid == os.getpid() or not _is_running(pid):
            shutil.rmtree(left, ignore_errors=True) if left.is_dir() else left.unlink(missing_ok=True)
    return path.with_name(f"{path.name}.{host}-{os.getpid()}.unfinished")


def _is_running(pid):
    """Whether a process of this machine exists."""
    try:
        os.kill(pid, 0)  # sends nothing
    except OSError as error:
        return isinstance(error, PermissionError)  # it is another user's
    return True


def check_writable(*folders, files=()):
    """Raise UserError if files cannot be written to these folders, or to these files. Neither need exist yet."""
    for folder in map(Path, folders):
        existing = next(path for path in (folder, *folder.absolute().parents) if os.path.lexists(path))
        if not existing.is_dir() or not os.access(existing, os.W_OK | os.X_OK):
            reason = "is a file, or permission is denied"
            if not existing.exists():
                reason = f"is a link to {os.readlink(existing)!r}, which does not exist"
            raise UserError(f"Cannot write results to the folder {str(folder)!r}: {str(existing)!r} {reason}. Correct "
                            "that, or choose another folder, in which scripts are started.")
    for file in filter(Path.exists, files):
        if not os.access(file, os.W_OK):
            raise UserError(f"Cannot write to {str(file)!r}: permission is denied. {_OF_ANOTHER_USER}")


_OF_ANOTHER_USER = "Its owner can allow it with chmod a+w; or start in another folder."


def acquired(path, when_busy):
    """A context in which a file is locked, for all users of its folder.

    when_busy: a function that is called before waiting if another process has locked it.
    """
    lock = FileLock(path, mode=0o666)
    with as_user_error(f"Cannot lock {str(path)!r} ({{error}}). {_OF_ANOTHER_USER}", PermissionError):
        try:
            return lock.acquire(timeout=0)
        except Timeout:
            when_busy()
            return lock.acquire()


def content_key(made_of, chunks=()):
    """Hash (xxh3, 128 bits, hexadecimal) of `repr(made_of)` followed by the bytes-like `chunks`.

    A cached file named with this key cannot be stale: whatever changes its content changes its name.
    """
    digest = xxhash.xxh3_128(repr(made_of).encode())
    for chunk in chunks:
        digest.update(chunk)
    return digest.hexdigest()


def file_chunks(path):
    """Yield the content of a file in blocks of a megabyte."""
    with open(path, "rb", buffering=0) as file:
        while chunk := file.read(1 << 20):
            yield chunk


def read_text(path, advice="Convert the file to UTF-8."):
    """The text of a UTF-8 file, or for "-" of the standard input, with or without a byte order mark.

    Raises UserError, with the line and `advice`, for another encoding.
    """
    try:
        content = sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes()
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = error.object[:error.start].count(b"\n") + 1
        raise UserError(f"{path}, line {line} is not UTF-8 text. {advice}") from None


def read_json_lines(path, advice):
    """Return [(place, object)] of a file with one JSON object per line, e.g. ("line 3", {...}), without empty lines.

    Raises UserError, which ends with `advice`, for another encoding, and for a line that is not a JSON object or
    contains half of a surrogate pair, which cannot be written to a file again.
    """
    objects = []
    for number, line in enumerate(read_text(path, advice).split("\n"), 1):  # splitlines would also split at U+2028
        if line.strip():
            try:
                row = json.loads(line)
                json.dumps(row, ensure_ascii=False).encode()
            except (ValueError, RecursionError) as error:
                raise UserError(f"{path}, line {number} is not valid JSON ({error}). {advice}") from None
            if not isinstance(row, dict):
                raise UserError(f"{path}, line {number} is not a JSON object. {advice}")
            objects.append((f"line {number}", row))
    return objects
