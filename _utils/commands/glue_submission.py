"""Checks a GLUE submission, and zips a folder of one: `python -m _utils glue_submission ZIP_OR_FOLDER [GLUE_DIR]`.

Test sets have the official numbers of rows, or those in GLUE_DIR.
"""
from pathlib import Path

from _utils.errors import PlainError
from _utils.glue.submission import OFFICIAL_ROWS, check_submission, make_zip, rows_of


def main(arguments):
    if {"-h", "--help"} & set(arguments):
        print(__doc__)
        return
    if not 1 <= len(arguments) <= 2:
        raise PlainError("Pass a zip or a folder: python -m _utils glue_submission ZIP_OR_FOLDER [GLUE_DIR]")
    path, rows = Path(arguments[0]), rows_of(arguments[1]) if len(arguments) == 2 else None
    if path.is_dir():
        path = make_zip(path if path.name.strip(".") else path.resolve(), rows)  # "." has no name for the zip
    for name, count in check_submission(path, rows).items():
        print(f"{name:12} {count:7,} lines")
    is_official = rows in (None, OFFICIAL_ROWS)
    print(f"{path} is a valid submission" if is_official else f"{path} is valid for tables other than the official ones")
