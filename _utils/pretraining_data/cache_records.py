"""JSON files in `datasets/` that remember hashes and hub commits between runs."""
import json

from _utils.errors import PlainError
from _utils.run_files.checkpoints import write_atomically


def read_record(path):
    """Return the dictionary in a record file, or an empty one if the file does not exist."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except ValueError:
        raise PlainError(f"{path} is not valid JSON. Correct it or delete it.") from None


def add_to_record(path, entry, value):
    """Set one entry of a record file. The file is read again first, because another run may have added to it."""
    content = json.dumps({**read_record(path), entry: value}, indent=1) + "\n"
    write_atomically(path, lambda file: file.write(content.encode()))
